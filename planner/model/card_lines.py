"""Chooses the lines on the cards, under one budget for all turns; the model may point at any other.

Lines compete by kind: first those that must be seen, then the best summary of their text, then those that later turns
probably need. Within a kind the newest turns come first.
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
from planner.evidence.calls import Call
from planner.evidence.names import defines, specifics_of
from planner.evidence.tasks import written_tasks
from planner.evidence.turns import call_sides
from planner.placeholders import argument_lines, call_line
from planner.programming.tools import PATCHED, commands_in
from planner.proposal import PlanRequest
from planner.reading.lines import Line, is_encoded, without_escapes

__all__ = ["card_text", "lines_of_cards"]

NUMBER_TOKENS = 2.5
"""Raw tokens of a line's number, mark and line break (2.3 to 2.6 on the cards of six sessions)."""
COMMAND_LINES = 12
"""Most lines of a call with long arguments."""
SENTENCE_WORDS = 5
"""Fewest words of a line of a report with meaning of its own."""
AGAIN = 0.6
"""Weight of a name each further time, relative to the time before."""
ECHO_CHARACTERS = 240
"""Length below which the result of a successful edit only confirms it."""
REPEAT_CHARACTERS = 24
"""Length above which a line of another card, not the user's, is not repeated."""
LATEST_TURNS = 16
"""Newest turns that are shown nearly whole: planners missed the basis of the live work most of all."""
TASKS_SHARE = 0.1
"""Share of the budget for the newest list of tasks."""
DOCUMENTS_SHARE = 0.3
"""Share of the budget for documents that the session wrote: of a design's decisions and figures the cards showed ten
lines of three hundred, and each question about the rest was lost."""
MOST_DIFFERENT = 6
"""Most lines of a failed test with the difference between actual and expected."""
LAST_TURNS = 4
"""Number of the last of them that come before the agent's words, since they decide the next step."""
LONG_OUTPUT_LINES = 40
"""Most lines of a command's output, from both ends: a build's output had taken the room of the edits."""
LONG_READING_LINES, LONG_EXCERPT_LINES = 40, 120
"""A longer file that was read, whole or in part, is shown by what matters of it."""
LIVE_LINES = 16
"""Lines that describe a turn that stays whole anyway."""

_NUMBERED = re.compile(r"\A\s*(\d{1,9})([→:\t]| \|)")
_NUMBERED_ANYWHERE = re.compile(r"\A\s*(\d{1,9})([→:])")
"""Number of a viewer in front of a line: ``  12→``, ``12: ``, and of a file ``12<tab>``, ``12 | ``, which elsewhere are
a column of data: ``4711<tab>user_0``."""
LEAST_NUMBERED = 3
"""Fewest lines with consecutive numbers that count as numbered."""
_KEYS = re.compile(r"\bdescription=.*|\b\w++=")
_BETWEEN = re.compile(r"[;,]|\b\w+=")
"""Separator of a call's words in a header: ``TaskUpdate taskId=5, status=done; Read a.py``."""
_TELLS = re.compile(r"(?![\"']|import\b|from\b|use\b|#include)(?=.*\w{3})")
"""Line with content: ``count = 3``; not ``}``, and not ``import os`` or ``"log/slog"``, which do not describe a
change."""
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
"""Beginning of the new text in the arguments of an edit on one line: `` new_string=``."""


def card_text(turn: TurnEvidence, line: Line, evidence: Evidence) -> str:
    """Return `line` of `turn` as a card shows it: without a viewer's number (cards number lines themselves), the root
    of paths, and colours."""
    text = line.text[turn.once(_viewer_numbers).get(line.number, 0) :]
    call = turn.once(argument_lines).get(line.number) if line.part == "call" else None
    return evidence.shown(without_escapes(text) if call is None else call_line(call, text, evidence.root))


def _viewer_numbers(turn: TurnEvidence) -> Mapping[int, int]:
    """Return the start of the text in each line that a viewer numbered; most lines beginning with a number must be
    consecutive."""
    starts: dict[int, int] = {}
    for call in turn.calls:
        form = _NUMBERED if call.kind in ("read", "write") and (call.path or commands_in(call)) else _NUMBERED_ANYWHERE
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
    """Return the lines of merge conflicts, both sides and their marks."""
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
    """Return the lines to show of `turns` below their `headers`, by turn id, in order; together at most
    `most_raw_tokens`."""
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
    """Chosen lines so far, and their cost in raw tokens."""

    def __init__(self, request: PlanRequest, headers: Mapping[str, str]) -> None:
        self.request, self.headers = request, headers
        self.done: set[tuple[str, int | None]] = set()
        """Turns and blocks of which no more is shown."""
        self.spent = 0.0
        self._most_a_turn = request.settings.piece_tokens / request.counter.scale / 2  # of one piece
        self._spent_by_turn: dict[str, float] = defaultdict(float)
        self._shown: set[tuple[str, int]] = set()
        self._texts: set[object] = set()
        """Texts of shown lines, alone, with their part and with their turn."""

    def shows(self, turn: TurnEvidence, line: Line) -> bool:
        """Return True if `line` is on its card."""
        return (turn.turn.id, line.number) in self._shown

    def text(self, turn: TurnEvidence, line: Line) -> str:
        """Return the text of `line` on a card."""
        return card_text(turn, line, self.request.evidence)

    def cost(self, turn: TurnEvidence, line: Line) -> float:
        """Return the cost of showing `line`."""
        return self.request.counter.raw(self.text(turn, line)) + NUMBER_TOKENS

    def take(self, turn: TurnEvidence, line: Line, limit: float) -> bool:
        """Show `line` if it fits and is new on the cards; return True if it is added."""
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
        """Return True for a line that repeats its header or another card. A result's line may repeat any; another line
        only one of its own part, since a plan does not show that something was done; the user's line only one of the
        same message."""
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
    """Return `text` without a diff's mark, for comparison with the text of an edit."""
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
        or line.number in turn.idle_lines
        or (line.number in turn.boilerplate_lines and not _is_demand(line))
    )


def _is_demand(line: Line) -> bool:
    """Return True for a rule in text that a host expanded; the rest of it is instructions."""
    return line.part == "user" and _LOUD.search(line.text) is not None


def _standing_tasks(turns: Sequence[TurnEvidence]) -> Iterator[tuple[TurnEvidence, Line]]:
    """Yield the newest list of tasks, which shows the open ones."""
    for turn in reversed(turns):
        for call, outcome in turn.ended_calls:
            if written_tasks(call) is not None and outcome.status != "failed":
                yield from ((turn, line) for line in turn.lines_of(call.block))
                return


def _documents(turns: Sequence[TurnEvidence]) -> list[tuple[TurnEvidence, Line]]:
    """Return the lines of the newest text of documents that the session wrote whole: the first lines of all, then the
    second ones, and so on."""
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
    """Return the files that a call writes whole, and the lines of their text."""
    lines = turn.lines_of(call.block)
    sides = _sides(call, lines)
    if call.reading.is_whole:
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
    """Return the old and the new lines of an edit, also of a patch, which marks them itself."""
    if not call.path and any(PATCHED.match(line.text) for line in lines):
        return {line.number: line.text[0] for line in lines if line.text[:1] in ("+", "-")}
    return call_sides(call, lines)


def _telling_first(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the headings of a document, then from each section the paragraph with the most names and figures a line,
    then the second one, and so on."""
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
    """Yield the blocks of all lists of tasks but the newest, and of results that only confirm a written file."""
    for call, outcome in turn.ended_calls:
        if is_list := written_tasks(call) is not None:
            yield call.block
        if is_list or (call.kind == "write" and outcome.status != "failed" and len(call.text) < ECHO_CHARACTERS):
            yield call.result_block


# The kinds of lines, of each turn the most telling first.


def _kept(turn: TurnEvidence) -> Iterable[Line]:
    return (turn.lines[number - 1] for number in sorted(turn.obligations))


def _agent(turn: TurnEvidence) -> Iterable[Line]:
    """Return the agent's words, and its questions to the user with their options and answers."""
    dialogs = {block for call in turn.calls if call.kind == "ask" for block in (call.block, call.result_block)}
    return (line for line in turn.lines if line.part == "assistant" or line.block in dialogs)


def _latest(turn: TurnEvidence) -> Sequence[Line]:
    """Return the lines of a turn, from both ends inwards; of an edit the new text first, of conflicts both sides.

    Long files that were read whole are left out: their definitions and used lines are better.
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
    """Yield the host's demands, the ends of calls, the new text of successful edits first, the beginning of a host's
    own text, and another agent's findings: sentences, no headings."""
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
    """Return the new text of an edit, definitions first, with its place, and of a failed one all of the searched text;
    of other calls the beginning of long arguments. Lists of tasks were shown before."""
    lines = turn.lines_of(call.block)
    if call.kind != "write":
        return [] if written_tasks(call) is not None else lines[:COMMAND_LINES]
    if call.reading.is_whole and _DOCUMENT.search(call.path):
        return lines[:1]
    sides = _sides(call, lines)
    old = [line for line in lines if sides.get(line.number) in ("-", "=")]
    new = [line for line in lines if sides.get(line.number) == "+"] or [
        line for line in lines if _NEW_TEXT.search(line.text)
    ]
    telling = sorted(new, key=lambda line: (not defines(line.text), not _TELLS.match(line.text.lstrip("+ \t"))))
    return [*telling, *lines[:1], *(old if turn.outcomes[call.number].status == "failed" else old[:1])]


def _telling_results(turn: TurnEvidence) -> Iterator[tuple[Call, Sequence[Line]]]:
    """Yield the results of calls, except of successful edits."""
    for call, outcome in turn.ended_calls:
        if call.kind != "write" or outcome.status == "failed":
            yield call, [line for line in turn.lines_of(call.result_block) if line.text.strip()]


def _from_ends(lines: Sequence[Line]) -> list[Line]:
    """Return the first, the last, the second, the last but one, and so on."""
    half = (len(lines) + 1) // 2
    return list(chain.from_iterable(zip(lines[:half], reversed(lines), strict=False)))[: len(lines)]


class _Kind(NamedTuple):
    """Lines of one kind, and their share of the budget, so that no wall of text hides the rest."""

    lines: Callable[[TurnEvidence], Iterable[Line]]
    share: float
    """Share of the budget that may be spent when the kind is done."""
    own_share: float = 1.0
    """Share that the kind itself may take."""
    in_rounds: bool = True
    """One line a turn in each round, so that no turn is left without its outcome for another's length; else all lines
    of a turn before those of the next."""
    most_turns: int = 1_000_000
    """Most turns, the newest."""


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
    """Line that competes for space by its names and its other worth."""

    turn: TurnEvidence
    line: Line
    names: Sequence[str]
    base: float
    cost: float


def _take_best(choice: _Choice, candidates: Iterable[_Candidate], limit: float) -> None:
    """Take the best of `candidates` that fit, each evaluated again at its turn: greedy, by worth a token; a name on the
    cards counts less each time."""
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
    """Yield all lines that are not shown, with their names and words."""
    relevance = choice.request.relevance
    for turn in turns:
        turn_id = turn.turn.id
        for line, names, base in zip(turn.lines, relevance.names[turn_id], relevance.bases[turn_id], strict=True):
            if not (choice.shows(turn, line) or _is_hidden(turn, line)):
                yield _Candidate(turn, line, names, base, choice.cost(turn, line))
