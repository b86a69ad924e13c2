"""Which lines stand on the cards, under one budget for all turns; the model may point at any other.

By kinds, the foremost first: what must be seen, then what says most of what it stands for, then whatever later turns
are likely to need. Within a kind the newest turns come first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice, zip_longest
from operator import attrgetter, itemgetter
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import PATCHED, WHOLE_TEXT, Call
from planner.evidence.changes import edit_sides
from planner.evidence.names import defines, specifics_of
from planner.evidence.tasks import written_tasks
from planner.placeholders import argument_lines, call_line
from planner.proposal import PlanRequest
from planner.reading.lines import Line, is_encoded, without_escapes

__all__ = ["card_text", "lines_of_cards"]

NUMBER_TOKENS = 2.5
"""Raw tokens of a line's number, mark and line break (2.3 to 2.6 on the cards of six sessions)."""
COMMAND_LINES = 12
"""Of a call with long arguments so many lines are shown."""
SENTENCE_WORDS = 5
"""A line of a report with fewer words says nothing by itself."""
AGAIN = 0.6
"""What a name counts each further time, against the time before."""
ECHO_CHARACTERS = 240
"""A shorter result of an edit that was made says nothing but that."""
REPEAT_CHARACTERS = 24
"""A longer line, not the user's, that stands on another card already is not shown again."""
LATEST_TURNS = 16
"""So many of the newest turns are shown nearly whole: planners missed what the live work stands on most of all."""
TASKS_SHARE = 0.1
"""Of the budget, what the newest list of tasks may take."""
DOCUMENTS_SHARE = 0.3
"""Of the budget, what the documents that the session wrote may take: of a design's decisions and figures the cards
showed ten lines of three hundred, and each question about the rest was lost."""
MOST_DIFFERENT = 6
"""Of a test that failed so many lines show how what came differs from what was expected."""
LAST_TURNS = 4
"""And so many of them before what the agent said: they decide what is next."""
LONG_OUTPUT_LINES = 40
"""Of what a command printed at most so many lines, from both ends: a build's noise had taken the room of the edits."""
LONG_READING_LINES, LONG_EXCERPT_LINES = 40, 120
"""A longer file that was read, whole or in part, is shown by what matters of it."""
LIVE_LINES = 16
"""Of a turn that stays whole in any case so many lines tell what it is about."""

_NUMBERED = re.compile(r"\A\s*(\d{1,9})([→:\t]| \|)")
_NUMBERED_ANYWHERE = re.compile(r"\A\s*(\d{1,9})([→:])")
"""What a viewer puts before a line: ``  12→``, ``12: ``, and of a file ``12<tab>``, ``12 | ``, which elsewhere are a
column of data: ``4711<tab>user_0``."""
LEAST_NUMBERED = 3
"""So many lines that count on are numbered, not one that begins with a number."""
_KEYS = re.compile(r"\bdescription=.*|\b\w++=")
_BETWEEN = re.compile(r"[;,]|\b\w+=")
"""What stands between the words of a call in a header: ``TaskUpdate taskId=5, status=done; Read a.py``."""
_TELLS = re.compile(r"(?![\"']|import\b|from\b|use\b|#include)(?=.*\w{3})")
"""``count = 3``; not ``}``, and not ``import os`` or ``"log/slog"``, which say nothing of what was changed."""
_LOUD = re.compile(r"\b(?:MUST|NEVER|ALWAYS|CRITICAL|ONLY|DO NOT|[Dd]o NOT)\b")
"""A rule in capitals: ``findings MUST be stored``; not ``you must know``."""
_DOCUMENT = re.compile(r"\.(?:mdx?|markdown|rst|adoc|txt|org)$", re.IGNORECASE)
"""A file of prose."""
_DIFFERENT = re.compile(r"\s*(?:[-+](?![-+]) *[^\s\d]|(?:expected|actual|received|got|want)\b.{0,3}[:=])", re.I)
"""``+   "text": "Found"``, ``Expected: 3``; not ``--- a/file``, ``-3``."""
_PARAGRAPH = re.compile(r"\s*(?:[-*+|>#`]|\d{1,3}[.)])\s?")
"""What a paragraph of a document begins with where no blank line is before it: ``- ``, ``2. ``, ``| `` of a table."""
_HAS_WORD = re.compile(r"\w")
_NEW_TEXT = re.compile(r" new_(?:string|str|source)=")
"""Where the new text begins in the arguments of an edit on one line: `` new_string=``."""


def card_text(turn: TurnEvidence, line: Line, evidence: Evidence) -> str:
    """`line` of `turn` as a card shows it: without the number of a viewer, for cards number lines themselves, and
    without the root of paths and without colours."""
    text = line.text[turn.once(_viewer_numbers).get(line.number, 0) :]
    call = turn.once(argument_lines).get(line.number) if line.part == "call" else None
    return evidence.shown(without_escapes(text) if call is None else call_line(call, text, evidence.root))


def _viewer_numbers(turn: TurnEvidence) -> Mapping[int, int]:
    """Where the text begins of each line that a viewer numbered: most that begin with a number count on."""
    starts: dict[int, int] = {}
    for call in turn.calls:
        form = _NUMBERED if call.kind in ("read", "write") and (call.path or call.commands) else _NUMBERED_ANYWHERE
        numbered: dict[int, int] = {}
        follow, due = 0, ""
        for line in turn.lines_of(call.result_block):
            if not line.continues and (found := form.match(line.text)):
                numbered[line.number] = found.end()
                follow += f"{found[1]}{found[2]}" == due
                due = f"{int(found[1]) + 1}{found[2]}"
        if follow >= max(LEAST_NUMBERED - 1, len(numbered) / 2):
            starts |= numbered
    return starts


def _in_conflict(turn: TurnEvidence) -> frozenset[int]:
    """The lines of merge conflicts, both sides and their marks."""
    inside, numbers = False, set()
    for line in turn.lines.of_part("result"):
        text = line.text[turn.once(_viewer_numbers).get(line.number, 0) :]
        inside = inside or text.startswith("<<<<<<< ")
        numbers |= {line.number} if inside else set()
        inside = inside and not text.startswith(">>>>>>> ")
    return frozenset(numbers)


def lines_of_cards(
    request: PlanRequest, turns: Sequence[TurnEvidence], headers: Mapping[str, str], most_raw_tokens: int
) -> Mapping[str, Sequence[Line]]:
    """The lines to show of `turns` below their `headers`, by turn id, in order; together at most `most_raw_tokens`."""
    choice = _Choice(request, headers)
    standing = list(_standing_tasks(turns))
    for turn, line in standing:
        choice.take(turn, line, most_raw_tokens * TASKS_SHARE)
    reserved = choice.spent
    for turn, line in _documents(turns):
        choice.take(turn, line, reserved + most_raw_tokens * DOCUMENTS_SHARE)
    reserved = choice.spent - reserved
    choice.done = {(turn.turn.id, block) for turn in turns for block in _of_no_more_use(turn)}
    choice.done -= {(turn.turn.id, line.block) for turn, line in standing}
    for kind in _KINDS:
        rest = most_raw_tokens - reserved
        limit = min(reserved + rest * kind.share, choice.spent + rest * kind.own_share)
        placed = [
            (place if kind.in_rounds else 0, turn, line)
            for turn in turns[: -1 - kind.most_turns : -1]
            for place, line in enumerate(kind.lines(turn))
        ]
        for _, turn, line in sorted(placed, key=itemgetter(0)):
            choice.take(turn, line, limit)
    _take_best(choice, _candidates(choice, turns), most_raw_tokens)
    return {turn.turn.id: [line for line in turn.lines if choice.shows(turn, line)] for turn in turns}


class _Choice:
    """What has been chosen so far, and what it cost in raw tokens."""

    def __init__(self, request: PlanRequest, headers: Mapping[str, str]) -> None:
        self.request, self.headers = request, headers
        self.done: set[tuple[str, int | None]] = set()
        """Turns and blocks of which nothing more is shown."""
        self.spent = 0.0
        self._most_a_turn = request.settings.piece_tokens / request.counter.scale / 2  # of one piece
        self._spent_by_turn: dict[str, float] = defaultdict(float)
        self._shown: set[tuple[str, int]] = set()
        self._texts: set[object] = set()
        """Of the lines that are shown somewhere, alone, with their part and with their turn."""

    def shows(self, turn: TurnEvidence, line: Line) -> bool:
        """True if `line` stands on its card."""
        return (turn.turn.id, line.number) in self._shown

    def text(self, turn: TurnEvidence, line: Line) -> str:
        """What a card shows of `line`."""
        return card_text(turn, line, self.request.evidence)

    def cost(self, turn: TurnEvidence, line: Line) -> float:
        """What showing `line` takes."""
        return self.request.counter.raw(self.text(turn, line)) + NUMBER_TOKENS

    def take(self, turn: TurnEvidence, line: Line, limit: float) -> bool:
        """Show `line` if it fits and says something that no card does; True if it is shown now, and was not before."""
        if self.spent >= limit or self.shows(turn, line) or _is_hidden(turn, line) or self._repeats(turn, line):
            return False
        cost, turn_id = self.cost(turn, line), turn.turn.id
        if self.spent + cost > limit or self._spent_by_turn[turn_id] + cost > self._most_a_turn:
            return False
        self.spent += cost
        self._spent_by_turn[turn_id] += cost
        self._shown.add((turn_id, line.number))
        text = _unmarked(self.text(turn, line))
        self._texts |= {text, (line.part, text), (turn_id, text)}
        return True

    def _repeats(self, turn: TurnEvidence, line: Line) -> bool:
        """True for a line that says what its header or another card shows: one of a result whatever another says, any
        other what one of its own part says, for that something was planned does not say that it was done; of the user's
        what one of the same message says."""
        if line.number in turn.obligations or line.number in turn.once(_in_conflict):
            return False
        text = _unmarked(self.text(turn, line))
        if line.source == "user":
            return (turn.turn.id, text) in self._texts
        if not text:
            return True
        if line.part == "call" and not _words(_KEYS.sub(" ", text)) - _words(self.headers[turn.turn.id]):
            return True
        if (turn.turn.id, line.block) in self.done:
            return True
        return len(text) >= REPEAT_CHARACTERS and (text if line.part == "result" else (line.part, text)) in self._texts


def _words(text: str) -> set[str]:
    return set(_BETWEEN.sub(" ", text).split())


def _unmarked(text: str) -> str:
    """`text` without what a diff puts before it: it shows again what an edit put in."""
    return text.strip().lstrip("+-").strip()


def _is_hidden(turn: TurnEvidence, line: Line) -> bool:
    """Return True for a line that no card shows.

    Such are lines without a word (``)``), encoded data, all but the end of a run that passed, and the text that a host
    always writes but for its demands.
    """
    if not line.text.strip():
        return True
    if not _HAS_WORD.search(line.text) and line.source != "user" and line.number not in turn.once(_in_conflict):
        return True
    return (
        is_encoded(line.text)
        or line.number in turn.passing_lines
        or (line.number in turn.boilerplate_lines and not _is_demand(line))
    )


def _is_demand(line: Line) -> bool:
    """True for a rule in what a host expanded: the rest of it says how, not what."""
    return line.part == "user" and _LOUD.search(line.text) is not None


def _standing_tasks(turns: Sequence[TurnEvidence]) -> Iterator[tuple[TurnEvidence, Line]]:
    """The newest list of tasks: it says what is left."""
    for turn in reversed(turns):
        for call, outcome in turn.ended_calls:
            if written_tasks(call) is not None and outcome.status != "failed":
                yield from ((turn, line) for line in turn.lines_of(call.block))
                return


def _documents(turns: Sequence[TurnEvidence]) -> list[tuple[TurnEvidence, Line]]:
    """The lines of the documents that the session wrote whole, the newest text of each: the first lines of all of them,
    then the second ones, and so on."""
    written: set[str] = set()
    ranked: list[tuple[int, TurnEvidence, Line]] = []
    for turn in reversed(turns):
        for call, outcome in reversed(list(turn.ended_calls)):
            texts = _texts_written(turn, call) if call.kind == "write" and outcome.status != "failed" else {}
            for path in texts.keys() - written:
                if _DOCUMENT.search(path):
                    ranked += [(place, turn, line) for place, line in enumerate(_telling_first(texts[path]))]
            written |= texts.keys()
    return [(turn, line) for _, turn, line in sorted(ranked, key=itemgetter(0))]


def _texts_written(turn: TurnEvidence, call: Call) -> Mapping[str, Sequence[Line]]:
    """The files that a call makes or writes anew, and the lines of their text."""
    lines = turn.lines_of(call.block)
    sides = _sides(call, lines)
    if WHOLE_TEXT & call.input.keys():
        return {call.path: [line for line in lines if sides.get(line.number) == "+"]}
    texts: dict[str, list[Line]] = {}
    text: list[Line] = []
    for line in lines:
        if patched := PATCHED.match(line.text):
            text = texts.setdefault(patched[2], []) if patched[1] == "Add" else []
        elif sides.get(line.number) == "+":
            text.append(line)
    return texts


def _sides(call: Call, lines: Sequence[Line]) -> Mapping[int, str]:
    """The old and the new lines of an edit, of a patch too, which marks them itself."""
    if not call.path and any(PATCHED.match(line.text) for line in lines):
        return {line.number: line.text[0] for line in lines if line.text[:1] in ("+", "-")}
    return edit_sides(call, lines)


def _telling_first(lines: Sequence[Line]) -> Iterator[Line]:
    """The headings of a document, then of each section the paragraph with the most names and figures a line, then of
    each the second one, and so on."""
    sections: list[list[list[Line]]] = [[]]
    last = 0
    for line in lines:
        text = line.text.removeprefix("+")
        if text.startswith("#"):
            yield line
            sections.append([])
        elif text.strip():
            if line.number != last + 1 or _PARAGRAPH.match(text) or not sections[-1]:
                sections[-1].append([])
            sections[-1][-1].append(line)
            last = line.number
    ranked = [sorted(paragraphs, key=_telling, reverse=True) for paragraphs in sections]
    yield from (line for some in zip_longest(*ranked, fillvalue=[]) for paragraph in some for line in paragraph)


def _telling(paragraph: Sequence[Line]) -> float:
    text = " ".join(line.text for line in paragraph)
    return (len(specifics_of(text)) + text.count("**")) / (1 + len(paragraph))


def _of_no_more_use(turn: TurnEvidence) -> Iterator[int | None]:
    """The blocks of lists of tasks, of which the newest alone stands, and of results that only say that a file was
    written."""
    for call, outcome in turn.ended_calls:
        if is_list := written_tasks(call) is not None:
            yield call.block
        if is_list or (call.kind == "write" and outcome.status != "failed" and len(call.text) < ECHO_CHARACTERS):
            yield call.result_block


# The kinds of lines, of each turn the most telling first.


def _kept(turn: TurnEvidence) -> Iterable[Line]:
    return (turn.lines[number - 1] for number in sorted(turn.obligations))


def _agent(turn: TurnEvidence) -> Iterable[Line]:
    """What the agent said, and its questions to the user with their options and answers."""
    dialogs = {block for call in turn.calls if call.kind == "ask" for block in (call.block, call.result_block)}
    return (line for line in turn.lines if line.part == "assistant" or line.block in dialogs)


def _latest(turn: TurnEvidence) -> Sequence[Line]:
    """What there is to show of a turn, from both ends inwards; of an edit the new text first, of conflicts both sides.

    Not of long files that were read whole: of those what they define and what is used says more.
    """
    rest = [line for line in turn.lines if line.part != "result" and not _is_hidden(turn, line)]
    for call, result in _telling_results(turn):
        longest = LONG_READING_LINES if call.path and len(call.input) == 1 else LONG_EXCERPT_LINES
        if call.kind != "read" and not call.is_report:
            rest += _from_ends(result)[:LONG_OUTPUT_LINES]
        elif len(result) <= longest or call.is_report:
            rest += result
    rest.sort(key=attrgetter("number"))
    conflict = [turn.lines[number - 1] for number in sorted(turn.once(_in_conflict))]
    shown = [*_changes(turn), *conflict, *_from_ends(rest)]
    return shown[:LIVE_LINES] if turn.turn.live else shown


def _outcomes(turn: TurnEvidence) -> Iterator[Line]:
    """What the host demands, how calls ended, of an edit that was made what it put in foremost, what a host's own text
    begins with, and what another agent found: sentences, no headings."""
    yield from _kept(turn)
    yield from filter(_is_demand, turn.lines.of_part("user"))
    for call, outcome in turn.ended_calls:
        if call.kind != "write" or outcome.status == "failed":
            yield from _from_ends([turn.lines[number - 1] for number in outcome.lines])
            if outcome.status == "failed":
                different = (line for line in turn.lines_of(call.result_block) if _DIFFERENT.match(line.text))
                yield from islice(different, MOST_DIFFERENT)
        else:
            yield from _arguments(turn, call)[:1]
    heads = {line.block: line for line in reversed([*turn.lines.of_part("user")]) if line.text.strip()}
    yield from heads.values()
    reports = [line for call in turn.calls if call.is_report for line in turn.lines_of(call.result_block)]
    yield from _from_ends(
        [line for line in reports if len(line.text.split()) >= SENTENCE_WORDS and not line.text.startswith("#")]
    )


def _changes(turn: TurnEvidence) -> Iterator[Line]:
    for call in turn.calls:
        yield from _arguments(turn, call)


def _arguments(turn: TurnEvidence, call: Call) -> Sequence[Line]:
    """Of an edit what it put in, definitions foremost, where, and of one that failed all it looked for; of others the
    beginning of long arguments. Lists of tasks have been shown: only one stands."""
    lines = turn.lines_of(call.block)
    if call.kind != "write":
        return [] if written_tasks(call) is not None else lines[:COMMAND_LINES]
    if WHOLE_TEXT & call.input.keys() and _DOCUMENT.search(call.path):
        return lines[:1]
    sides = _sides(call, lines)
    old = [line for line in lines if sides.get(line.number) in ("-", "=")]
    new = [line for line in lines if sides.get(line.number) == "+"] or [
        line for line in lines if _NEW_TEXT.search(line.text)
    ]
    telling = sorted(new, key=lambda line: (not defines(line.text), not _TELLS.match(line.text.lstrip("+ \t"))))
    return [*telling, *lines[:1], *(old if turn.outcomes[call.number].status == "failed" else old[:1])]


def _telling_results(turn: TurnEvidence) -> Iterator[tuple[Call, Sequence[Line]]]:
    """What calls gave back; of an edit that was made it says nothing."""
    for call, outcome in turn.ended_calls:
        if call.kind != "write" or outcome.status == "failed":
            yield call, [line for line in turn.lines_of(call.result_block) if line.text.strip()]


def _from_ends(lines: Sequence[Line]) -> list[Line]:
    """First, last, second, last but one, …"""
    half = (len(lines) + 1) // 2
    return list(chain.from_iterable(zip(lines[:half], reversed(lines), strict=False)))[: len(lines)]


class _Kind(NamedTuple):
    """Lines of one kind, and how they share the budget: one wall of text cannot hide all behind it."""

    lines: Callable[[TurnEvidence], Iterable[Line]]
    share: float
    """How much of the budget may be spent when the kind is through."""
    own_share: float = 1.0
    """How much of it the kind may take by itself."""
    in_rounds: bool = True
    """One line a turn in each round, so that no turn is left without its outcome for another's length; else all lines
    of a turn before those of the next."""
    most_turns: int = 1_000_000
    """Of the newest."""


_KINDS = (
    _Kind(_kept, 0.35),
    _Kind(lambda turn: turn.typed_lines, 0.35, in_rounds=False),
    # what an earlier compaction wrote, from its end, which says how things stood
    _Kind(lambda turn: reversed([*turn.lines.of_sources("planner")]), 0.5, own_share=0.2, in_rounds=False),
    _Kind(lambda turn: turn.user_lines, 0.5, own_share=0.15, in_rounds=False),
    _Kind(_latest, 0.56, own_share=0.1, most_turns=LAST_TURNS),
    _Kind(_agent, 0.62, in_rounds=False),
    _Kind(_latest, 0.72, own_share=0.25, most_turns=LATEST_TURNS),
    _Kind(_outcomes, 0.82),
    _Kind(_changes, 0.88),
)


# What is left of the budget goes to the lines that are worth most.


class _Candidate(NamedTuple):
    """A line that competes for space by what it names and by what it is worth besides."""

    turn: TurnEvidence
    line: Line
    names: Sequence[str]
    base: float
    cost: float


def _take_best(choice: _Choice, candidates: Iterable[_Candidate], limit: float) -> None:
    """The best of `candidates` that fit, each judged again when it is its turn: greedy, by worth a token; a name that
    stands on cards already counts less each time."""
    weights = choice.request.relevance.weights
    shown: dict[str, int] = defaultdict(int)

    def entry(one: _Candidate) -> tuple[float, int, int, _Candidate]:
        worth = one.base + sum(weights[name] * AGAIN ** shown[name] for name in one.names)
        return -worth / one.cost, -one.turn.turn.number, one.line.number, one

    heap = [entry(one) for one in candidates]
    heapify(heap)
    while heap and choice.spent < limit:
        best = heappop(heap)[-1]
        again = entry(best)
        if heap and again > heap[0]:
            heappush(heap, again)
        elif choice.take(best.turn, best.line, limit):
            for name in best.names:
                shown[name] += 1


def _candidates(choice: _Choice, turns: Sequence[TurnEvidence]) -> Iterator[_Candidate]:
    """All lines that are not shown: by what they name, and by what is said in them."""
    relevance = choice.request.relevance
    for turn in turns:
        turn_id = turn.turn.id
        for line, names, base in zip(turn.lines, relevance.names[turn_id], relevance.bases[turn_id], strict=True):
            if not (choice.shows(turn, line) or _is_hidden(turn, line)):
                yield _Candidate(turn, line, names, base, choice.cost(turn, line))
