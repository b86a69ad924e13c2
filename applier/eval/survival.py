"""Measures what a compacted list still contains: names that the agent needs, failed attempts, the user's demands.

A specific is a path, a URL, an identifier, an id, or a number of three digits or more. A need is a specific that the
agent writes after the cut of a transcript, and could know only from before the cut. A list is measured as plain text,
in o200k tokens. Of the planner, only its readers of messages are used: if the measure shared the planner's ways of
finding names, it would overlook what the planner overlooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from planner.reading.lines import call_text, one_line
from planner.reading.messages import Block, Message, blocks, result_text, strings_in, to_json
from planner.reading.tokens import TokenCounter

_URL = r"https?://[^\s\"'`<>()\[\]{}|\\^]+"
"""URL without the markup around it: of ``(https://a.org/a?b=1)`` without the brackets."""
_PATH = r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+|(?<![\w.@+-])[\w.@+-]++(?:/[\w.@+-]++)+"
"""Path: ``/srv/app``, ``~/x``, ``../lib/a.py``, ``src/a.py``; not a slash alone. `_is_path` excludes ``1/2``."""
_WORD = r"\w+(?:[.\-:@]+\w+)*"
"""Word with inner marks: ``get_user``, ``ticket-4711``, ``a.b.c``; without the full stop at the end of a sentence."""
_CANDIDATE = re.compile(rf"(?<![\w/])(?:(?P<url>{_URL})|(?P<path>{_PATH})|(?P<word>{_WORD}))")
"""Text that may be a path, URL or identifier, matched from its first character: in ``x/y.py`` never ``y.py`` alone."""

_TRAILING = ".,;:!?-…"
"""Punctuation that does not belong to a name at its end."""
_NOISE = re.compile(r"(?<![\w:.\\])\\[bnrt](?=\w)|\.{3,}")
r"""Characters to ignore before a name: an escape (``\bname``, but no folder in ``C:\temp``), or a row of dots."""
_PHRASE = re.compile(r"\d+-?[a-z]+")
"""Number with a word, which is no identifier: ``40-line``, ``3rd``; not ``a1b2``."""
_NUMBER = re.compile(r"\d+(?:[.,:\-]\d+)*")
"""Number, date or time: ``1500``, ``3.14``, ``12:30``, ``2026-01-31``; not ``v1.2``."""
_DOTTED = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w*)+")
"""Dotted name: ``os.path``; not ``e.g`` or ``1.5``."""
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
"""Capital inside a name: in ``getUser`` and ``HTTPClient``; not in ``User`` or ``USER``."""
_EDGE = re.compile(r"\w")
"""Character directly before or after a name by which the name is only a part of a longer one."""


def pieces(messages: Iterable[Message]) -> list[str]:
    """Return the texts of all blocks in `messages`, without empty ones."""
    texts = (_block_text(block) for message in messages for block in blocks(message))
    return [text for text in texts if text]


def plain_text(messages: Iterable[Message]) -> str:
    """Return the texts of all blocks in `messages`, joined by line breaks."""
    return "\n".join(pieces(messages))


def _block_text(block: Block) -> str:
    """Return the text of a block, whatever its type is; empty if it has none."""
    kind = block["type"]
    if kind in ("text", "thinking"):
        return str(block.get(kind) or "")
    if kind in ("tool_use", "server_tool_use"):
        return call_text(block)
    if kind.endswith("tool_result"):
        return result_text(block)
    source = block.get("source")
    return str(source.get("data", "")) if isinstance(source, dict) and source.get("type") == "text" else ""


def agent_values(message: Message) -> Iterator[tuple[str, bool]]:
    """Yield the texts in the agent's `message`, each with True if it is a string in the arguments of a call."""
    for block in blocks(message):
        if block["type"] == "text":
            yield str(block.get("text") or ""), False
        elif block["type"] in ("tool_use", "server_tool_use"):
            yield from ((value, True) for value in strings_in(block.get("input")))


@lru_cache(maxsize=1)
def o200k_counter() -> TokenCounter:
    """Return a counter of o200k tokens (OpenAI's tokenizer), so that sizes do not depend on a model."""
    return TokenCounter(1.0)  # 1.0: without a model's correction


def text_tokens(text: str) -> int:
    """Return the number of o200k tokens in `text`."""
    return o200k_counter().raw(text)


def message_tokens(messages: Sequence[Message]) -> int:
    """Return the number of o200k tokens in `messages`: texts, calls with their arguments as JSON, results."""
    tokens = 0
    for block in (block for message in messages for block in blocks(message)):
        is_call = block["type"] in ("tool_use", "server_tool_use")
        text = f"{block.get('name', '')} {to_json(block.get('input'))}" if is_call else _block_text(block)
        tokens += text_tokens(text)
    return tokens


def specifics(text: str) -> list[str]:
    """Return the different specifics (paths, identifiers, long numbers, …) in `text`, in order of first appearance."""
    distinct: dict[str, None] = {}
    for match in _CANDIDATE.finditer(_NOISE.sub("  ", text)):
        word = match.group().rstrip(_TRAILING)
        if match["url"] or (_is_path(word) if match["path"] else _is_specific(word)):
            distinct[word] = None
        elif match["word"]:  # ``user:get_user`` is no specific, but its part ``get_user`` is
            distinct.update(dict.fromkeys(part for part in re.split(r"[^\w.]+", word) if _is_specific(part)))
    return list(distinct)


def _is_path(text: str) -> bool:
    """Return True if a path has 4 characters, and a part with two letters: ``/a/bcd``, ``src/app``; not ``1/2``."""
    return len(text) >= 4 and any(len(re.sub(r"[\d_\W]", "", part)) >= 2 for part in text.split("/"))


def _is_specific(word: str) -> bool:
    """Return True for a word that hardly occurs in another text by chance: an id, an identifier, a long number."""
    if _NUMBER.fullmatch(word):
        return sum(c.isdigit() for c in word) >= 3
    if len(word) < 4 or not word.isascii() or _PHRASE.fullmatch(word):
        return False
    if re.search(r"[-:@]", word):  # ``ticket-4711``, ``gpt-large-v``, ``me@a.org``; not ``well-known``
        return any(c.isdigit() for c in word) or word.count("-") >= 2 or "@" in word
    if "." in word:  # ``os.path``
        return bool(_DOTTED.fullmatch(word))
    has_letter, has_digit = any(c.isalpha() for c in word), any(c.isdigit() for c in word)
    has_underscore = "_" in word.strip("_")
    return has_letter and (has_underscore or has_digit or bool(_HUMPS.search(word)))


def occurrences(specific: str, text: str) -> Iterator[int]:
    """Yield the offsets at which `text` contains the name `specific` as a whole word."""
    at = text.find(specific)
    while at >= 0:
        end = at + len(specific)
        continues_before = at > 0 and _EDGE.match(text, at - 1)
        continues_after = end < len(text) and _EDGE.match(text, end)
        if not continues_before and not continues_after:
            yield at
        at = text.find(specific, at + 1)


def contains(specific: str, text: str) -> bool:
    """Return True if `text` contains the name `specific` as a whole word."""
    return any(True for _ in occurrences(specific, text))


def path_splits(specific: str) -> list[tuple[str, str]]:
    """Return each way to split the path `specific` into a folder and a path below it with a folder of its own:
    ``("src", "app/a.py")`` for ``src/app/a.py``. Return an empty list for a name that is no path."""
    if "/" not in specific or "://" in specific:
        return []
    slashes = [at for at, character in enumerate(specific) if character == "/" and at > 0]
    return [(specific[:at], specific[at + 1 :]) for at in slashes if "/" in specific[at + 1 :].rstrip("/")]


WINDOW_CHARACTERS = 60
"""Number of characters before and after a name that count as its context."""
PASTED_CHARACTERS = 2_000
"""Length above which text in a user message counts as pasted, so that it contains no demands."""
QUOTED_CHARACTERS = 100
"""Number of characters of a failure's line that a compacted list must contain to have kept the failure."""

_CONTEXT_WORD = re.compile(r"[^\W\d_]{3,}")
"""Word that counts as context of a name: ``session``, ``läuft``; not ``x1`` or ``to``."""
_BARE_VALUE = re.compile(r"[\d.,:\-]+|[a-z]+")
"""Argument of a call that does not come from anywhere: ``200``, ``true``; not ``src/a.py`` or ``maxRetries``."""
_FAILED = re.compile(
    r"(?i)\bexit(?:ed with)? (?:code|status) [1-9]|^Traceback |^(?:--- )?FAIL\b|\(fail\)|user doesn't want to proceed",
    re.MULTILINE,
)
"""Sign of failure in a result without an error flag: ``exit code 1``, ``--- FAIL: TestX``; not ``exit code 0``."""
_CAUSE = re.compile(
    r"(?i)error|fail|exception|not found|no such|denied|reject|refus|undefined|cannot|can't|unable|unknown|panic"
    r"|invalid|expected|not exist|conflict|already|timeout"
)
"""Word in a line that names a cause: ``KeyError: 'token'``; not ``exit code 1`` or a line of a listing."""
_EMPTY_WORDS = re.compile(r"(?i)^\W*(?:exit code \d+|fail(?:ed)?|error|process exited with code \d+)\W*$")
"""Line that reports only that something failed: ``Exit code 1``, ``FAILED``; not ``FAILED tests/test_a.py``."""
_FOLDERS = re.compile(r"(?<![\w.@+-])(?:[~…]?\.{0,2}(?>(?:/?[\w.@+-]++/)+)|…?/(?=[\w.@+-]))")
"""Folders in a path: ``/srv/app/`` of ``/srv/app/x.py``; not ``x.py``, and not a slash between spaces."""
_USER_WORDS = re.compile(r"the user said:\s*(.+)", re.DOTALL)
"""Words of the user in the result of a call that they refused: all after ``the user said:``."""
_MACHINE = re.compile(
    r"<(system-reminder|(?:local-)?command-(?:args|caveat|message|name|stderr|stdout))>(?>(?:(?!</?\1>).)*)</\1>"
    r"|^\[Request interrupted[^\]\n]*\]",
    re.DOTALL,
)
"""Text in a user message that the agent's program wrote: ``<system-reminder>…</system-reminder>``; not other tags."""
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s)[^.!?\n]*)*[.!?]*")
"""Sentence, up to a full stop before white space: ``edit a.py first.`` is one sentence, not two."""
_DEMAND = re.compile(
    r"(?i)\b(?:must|never|don'?t|do not|only|always|should|shouldn't|prefer|instead|avoid|make sure|need to|without"
    r"|no more|stop|let'?s|i want|we want|use|just|keep|remove|rather)\b"
)
"""Word in a sentence by which the user demands something: ``never touch the schema``; not ``looks good``."""


@dataclass(frozen=True)
class Need:
    """Name or value that the agent wrote after a cut of the transcript and could know only from before the cut."""

    specific: str
    """The name or value: ``src/a.py``, ``get_user``, ``4711``."""
    contexts: frozenset[frozenset[str]]
    """Words around each occurrence of the name before the cut, one set for each occurrence."""


@dataclass(frozen=True)
class NeedRecall:
    """Which of the names that the agent needs after a cut (needs) a compacted list contains."""

    needed: int
    """Number of names that the agent needs."""
    lost: tuple[str, ...]
    """Needed names that the compacted list does not contain."""
    bare: tuple[str, ...]
    """Needed names that the compacted list contains, but nowhere with half of the words that were around them."""

    @property
    def plain(self) -> float:
        """Share of the needed names that the compacted list contains; 1 if none was needed."""
        return 1 - len(self.lost) / self.needed if self.needed else 1.0

    @property
    def in_context(self) -> float:
        """Share of the needed names that the list contains together with their context; 1 if none was needed."""
        return 1 - (len(self.lost) + len(self.bare)) / self.needed if self.needed else 1.0


@dataclass(frozen=True)
class Survival:
    """Which failures, and which demands of the user (``never touch the schema``), a compacted list contains."""

    failures: int
    """Number of failed calls before the compaction."""
    failures_lost: tuple[str, ...]
    """First line of each failure that is not in the compacted list with any of its lines."""
    demands: int
    """Number of the user's demands before the compaction."""
    demands_lost: tuple[str, ...]
    """User's demands that are not verbatim in the compacted list."""

    @property
    def failures_kept(self) -> float:
        """Share of failures that are in the compacted list with at least one line; 1 if there were none."""
        return 1 - len(self.failures_lost) / self.failures if self.failures else 1.0

    @property
    def demands_kept(self) -> float:
        """Share of the user's demands that are verbatim in the compacted list; 1 if there were none."""
        return 1 - len(self.demands_lost) / self.demands if self.demands else 1.0


def find_needs(before: Sequence[Message], after: Sequence[Message], task: str) -> tuple[Need, ...]:
    """Return the names that the agent writes in `after`, the messages after a cut, and could know only from `before`,
    those before it. They are in `before` but not in `task`, and no message of the user in `after`, with a result or
    words, shows them earlier."""
    texts = pieces(before)
    before_text = "\n".join(texts)
    needs = []
    for specific in _written_before_shown(after):
        if contains(specific, before_text) and not contains(specific, task):
            places = ((text, at) for text in texts for at in occurrences(specific, text))
            contexts = frozenset(_context_words(text, at, at + len(specific)) for text, at in places)
            needs.append(Need(specific, contexts))
    return tuple(needs)


def _written_before_shown(after: Sequence[Message]) -> list[str]:
    """Return the names that the agent wrote in the messages `after` before a result or the user showed them there."""
    shown = ""  # text of the user's messages so far
    is_unseen: dict[str, bool] = {}  # by name: True if the agent wrote it before it was shown
    for message in after:
        if message["role"] == "user":
            shown += "\n" + plain_text([message])
        for text, is_input in agent_values(message) if message["role"] == "assistant" else ():
            if not (is_input and _BARE_VALUE.fullmatch(text.strip())):
                new = [specific for specific in specifics(text) if specific not in is_unseen]
                is_unseen |= {specific: not contains(specific, shown) for specific in new}
    return [specific for specific, unseen in is_unseen.items() if unseen]


def _context_words(text: str, start: int, end: int) -> frozenset[str]:
    """Return the words of 3 letters or more up to `WINDOW_CHARACTERS` before or after the name ``text[start:end]``."""
    around = text[max(0, start - WINDOW_CHARACTERS) : start] + " \n " + text[end : end + WINDOW_CHARACTERS]
    return frozenset(word.lower() for word in _CONTEXT_WORD.findall(around))


def placings(specific: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each occurrence of the name `specific` in `text`. If `text` names a folder of the path
    `specific` in one place, and the path inside this folder in another, the latter counts as an occurrence, too."""
    for at in occurrences(specific, text):
        yield at, at + len(specific)
    for root, rest in path_splits(specific):
        if contains(root, text):
            for at in occurrences(rest, text):
                yield at, at + len(rest)


def measure_recall(needs: Sequence[Need], messages: Sequence[Message]) -> NeedRecall:
    """Return which names in `needs` the compacted list `messages` contains, alone or with half of the words around."""
    text = plain_text(messages)
    lost, bare = [], []
    for need in needs:
        places = list(placings(need.specific, text))
        if not places:
            lost.append(need.specific)
            continue
        around = [_context_words(text, *place) for place in places]
        has_context = any(2 * len(words & known) >= len(known) for words in around for known in need.contexts)
        if not has_context:
            bare.append(need.specific)
    return NeedRecall(len(needs), tuple(lost), tuple(bare))


def measure_survival(before: Sequence[Message], result: Sequence[Message]) -> Survival:
    """Return which failures (failed calls) and which demands of the user in the messages `before` the compacted list
    `result` contains. A failure needs one of its lines, a demand its whole sentence."""
    text = one_line(plain_text(result))
    text_without_folders = _FOLDERS.sub("", text)  # a failure may be described with a shorter path
    failures, demands = list(failure_traces(before)), list(user_demands(before))
    lost = [lines[0] for lines in failures if not any(_without_folders(line) in text_without_folders for line in lines)]
    return Survival(
        len(failures),
        tuple(line[:QUOTED_CHARACTERS] for line in lost),
        len(demands),
        tuple(demand for demand in demands if demand not in text),
    )


def _without_folders(line: str) -> str:
    """Return the beginning of a failure's line, with ``a.py`` for ``/srv/app/a.py``."""
    return _FOLDERS.sub("", line)[:QUOTED_CHARACTERS]


def failure_traces(messages: Sequence[Message]) -> Iterator[list[str]]:
    """Yield for each failed call the lines of its result that name the cause (``KeyError: 'token'``). If the user
    refused the call, only the user's words are searched. If no line names a cause, yield all lines."""
    for block in (block for message in messages for block in blocks(message) if block["type"] == "tool_result"):
        text = result_text(block)
        lines = _cause_lines(text) if block.get("is_error") or _FAILED.search(text) else []
        if lines:
            yield lines


def _cause_lines(text: str) -> list[str]:
    """Return the lines of a failed call's result that name the cause, or if none does, all lines except short ones and
    those that only report the failure (``exit code 1``)."""
    words = _USER_WORDS.search(text)
    lines = [one_line(line) for line in (words[1] if words else text).splitlines()]
    full = [line for line in lines if len(line) > 8 and not _EMPTY_WORDS.match(line)]
    return [line for line in full if _CAUSE.search(line)] or full


def user_demands(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the user's sentences that demand something (``never touch the schema``). Texts longer than
    `PASTED_CHARACTERS` are left out, as the user pasted them."""
    for message in messages:
        for block in blocks(message) if message["role"] == "user" else ():
            text = str(block.get("text") or "") if block["type"] == "text" else ""
            if len(text) <= PASTED_CHARACTERS:
                sentences = map(one_line, _SENTENCE.findall(_MACHINE.sub(" ", text)))
                yield from (s for s in sentences if len(s) > 8 and _DEMAND.search(s))
