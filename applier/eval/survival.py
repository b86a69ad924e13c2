"""What the agent needed later and what of it still stands: names, failed approaches, the user's binding words.

What is needed is read from what the agent wrote after a cut, which no method is shown. Failures and words are found
without the planner, by a rough reading of its own: a measure must not share the blind spots of what it measures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.eval.texts import agent_values, occurrences, one_space, path_splits, pieces, plain_text, specifics, stands
from planner.reading.messages import Message, blocks, result_text

__all__ = [
    "Need",
    "NeedRecall",
    "Survival",
    "failure_traces",
    "find_needs",
    "measure_recall",
    "measure_survival",
    "placings",
    "user_demands",
]

WINDOW_CHARACTERS = 60
"""How far around a specific its context reaches, either side."""
PASTED_CHARACTERS = 2_000
"""A longer text in a user message is pasted material, not what the user says."""
QUOTED_CHARACTERS = 100
"""How much of a line has to be found; longer ones are cut there."""

_CONTEXT_WORD = re.compile(r"[^\W\d_]{3,}")
"""``session``, ``läuft``; not ``x1`` or ``to``."""
_BARE_VALUE = re.compile(r"[\d.,:\-]+|[a-z]+")
"""An argument that says nothing of where it is from: ``200``, ``true``; not ``src/a.py`` or ``maxRetries``."""
_FAILED = re.compile(
    r"(?i)\bexit(?:ed with)? (?:code|status) [1-9]|^Traceback |^(?:--- )?FAIL\b|\(fail\)|user doesn't want to proceed",
    re.MULTILINE,
)
"""A result that failed though nothing marks it: ``exit code 1``, ``--- FAIL: TestX``; not ``exit code 0`` or ``failed
before`` inside a line."""
_TELLING = re.compile(
    r"(?i)error|fail|exception|not found|no such|denied|reject|refus|undefined|cannot|can't|unable|unknown|panic"
    r"|invalid|expected|not exist|conflict|already|timeout"
)
"""A line that says what went wrong: ``KeyError: 'token'``; not ``exit code 1`` or a line of a listing."""
_EMPTY_WORDS = re.compile(r"(?i)^\W*(?:exit code \d+|fail(?:ed)?|error|process exited with code \d+)\W*$")
"""A line that says no more than that it failed: ``Exit code 1``, ``FAILED``; not ``FAILED tests/test_a.py``."""
_FOLDERS = re.compile(r"[~…]?\.{0,2}(?:/?[\w.@+-]+/)+|…?/(?=[\w.@+-])")
"""The folders of a path: ``/srv/app/`` of ``/srv/app/x.py``; not ``x.py``, and not a slash between spaces."""
_USER_SAID = re.compile(r"the user said:\s*(.+)", re.DOTALL)
"""The user's own words in a result that reports a refusal: from there to its end."""
_MACHINE = re.compile(
    r"<(system-reminder|command-[a-z]+|local-command-[a-z]+)>.*?</\1>|^\[Request interrupted[^\]]*\]", re.DOTALL
)
"""What a host writes into the user's message: ``<system-reminder>…</system-reminder>``; not other tags."""
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s)[^.!?\n]*)*[.!?]*")
"""Up to a full stop with white space behind it: ``edit a.py first.`` is one sentence, not two."""
_DEMAND = re.compile(
    r"(?i)\b(?:must|never|don'?t|do not|only|always|should|shouldn't|prefer|instead|avoid|make sure|need to|without"
    r"|no more|stop|let'?s|i want|we want|use|just|keep|remove|rather)\b"
)
"""A sentence that binds: ``never touch the schema``; not ``looks good``."""


@dataclass(frozen=True)
class Need:
    """One specific the agent wrote after the cut that it could only know from before."""

    specific: str
    contexts: frozenset[frozenset[str]]
    """The words around each of its original occurrences."""


@dataclass(frozen=True)
class NeedRecall:
    """What of `needed` specifics survived."""

    needed: int
    lost: tuple[str, ...]
    """Needed specifics that stand nowhere in the result."""
    bare: tuple[str, ...]
    """Those that stand, but without the words that were around them."""

    @property
    def plain(self) -> float:
        """The share that still stands; 1 when nothing was needed."""
        return 1 - len(self.lost) / self.needed if self.needed else 1.0

    @property
    def in_context(self) -> float:
        """The share that stands with at least half of the words around one original occurrence."""
        return 1 - (len(self.lost) + len(self.bare)) / self.needed if self.needed else 1.0


@dataclass(frozen=True)
class Survival:
    """What survived of failures and demands."""

    failures: int
    failures_lost: tuple[str, ...]
    """The most telling line of each failure that left no trace."""
    demands: int
    demands_lost: tuple[str, ...]

    @property
    def failures_kept(self) -> float:
        """The share with a telling line left; 1 when nothing failed."""
        return 1 - len(self.failures_lost) / self.failures if self.failures else 1.0

    @property
    def demands_kept(self) -> float:
        """The share left verbatim; 1 when there were none."""
        return 1 - len(self.demands_lost) / self.demands if self.demands else 1.0


def find_needs(before: Sequence[Message], after: Sequence[Message], task: str) -> tuple[Need, ...]:
    """What the agent writes in `after`, before it is shown again, that `before` holds and `task` does not."""
    texts = pieces(before)
    held = "\n".join(texts)
    needs = []
    for specific in _written_unseen(after):
        if stands(specific, held) and not stands(specific, task):
            places = ((text, at) for text in texts for at in occurrences(specific, text))
            contexts = frozenset(_context_words(text, at, at + len(specific)) for text, at in places)
            needs.append(Need(specific, contexts))
    return tuple(needs)


def _written_unseen(after: Sequence[Message]) -> list[str]:
    """Specifics in the order the agent first writes them, without those shown to it before it did."""
    shown, written = "", dict[str, bool]()
    for message in after:
        if message["role"] == "user":
            shown += "\n" + plain_text([message])
        for value, is_input in agent_values(message) if message["role"] == "assistant" else ():
            if not (is_input and _BARE_VALUE.fullmatch(value.strip())):
                new = [specific for specific in specifics(value) if specific not in written]
                written |= {specific: not stands(specific, shown) for specific in new}
    return [specific for specific, unseen in written.items() if unseen]


def _context_words(text: str, start: int, end: int) -> frozenset[str]:
    """The words of three letters or more within `WINDOW_CHARACTERS` either side of ``text[start:end]``."""
    around = text[max(0, start - WINDOW_CHARACTERS) : start] + " \n " + text[end : end + WINDOW_CHARACTERS]
    return frozenset(word.lower() for word in _CONTEXT_WORD.findall(around))


def placings(specific: str, text: str) -> Iterator[tuple[int, int]]:
    """Where `specific` stands in `text`: itself, or for a path its rest while its root stands elsewhere."""
    for at in occurrences(specific, text):
        yield at, at + len(specific)
    for root, rest in path_splits(specific):
        if stands(root, text):
            for at in occurrences(rest, text):
                yield at, at + len(rest)


def measure_recall(needs: Sequence[Need], messages: Sequence[Message]) -> NeedRecall:
    """The recall of `needs` in `messages`, a compacted list."""
    text = plain_text(messages)
    lost, bare = [], []
    for need in needs:
        places = list(placings(need.specific, text))
        if not places:
            lost.append(need.specific)
            continue
        around = [_context_words(text, *place) for place in places]
        if not any(2 * len(words & known) >= len(known) for words in around for known in need.contexts):
            bare.append(need.specific)
    return NeedRecall(len(needs), tuple(lost), tuple(bare))


def measure_survival(before: Sequence[Message], result: Sequence[Message]) -> Survival:
    """What of the failures and demands in `before` still stands in `result`."""
    text = one_space(plain_text(result))
    named = _without_folders(text)
    failures, demands = list(failure_traces(before)), list(user_demands(before))
    lost = [lines[0] for lines in failures if not any(_quoted(line) in named for line in lines)]
    return Survival(
        len(failures),
        tuple(line[:QUOTED_CHARACTERS] for line in lost),
        len(demands),
        tuple(demand for demand in demands if demand not in text),
    )


def _without_folders(text: str) -> str:
    """`text` with each path as its last name: a failure is told as well by a shorter path, and recall asks for it."""
    return _FOLDERS.sub("", text)


def _quoted(line: str) -> str:
    return _without_folders(line)[:QUOTED_CHARACTERS]


def failure_traces(messages: Sequence[Message]) -> Iterator[list[str]]:
    """For each failed call, the lines of its result that tell what went wrong, the user's own words first."""
    for block in (block for message in messages for block in blocks(message) if block["type"] == "tool_result"):
        text = result_text(block)
        lines = _telling_lines(text) if block.get("is_error") or _FAILED.search(text) else []
        if lines:
            yield lines


def _telling_lines(text: str) -> list[str]:
    said = _USER_SAID.search(text)
    lines = [one_space(line) for line in (said[1] if said else text).splitlines()]
    full = [line for line in lines if len(line) > 8 and not _EMPTY_WORDS.match(line)]
    return [line for line in full if _TELLING.search(line)] or full


def user_demands(messages: Sequence[Message]) -> Iterator[str]:
    """Sentences in which the user binds the agent, in the user's words."""
    for message in messages:
        for block in blocks(message) if message["role"] == "user" else ():
            text = str(block.get("text") or "") if block["type"] == "text" else ""
            if len(text) <= PASTED_CHARACTERS:
                sentences = map(one_space, _SENTENCE.findall(_MACHINE.sub(" ", text)))
                yield from (s for s in sentences if len(s) > 8 and _DEMAND.search(s))
