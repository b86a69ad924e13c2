"""Which lines of each turn the planner model gets to see, under one budget for all turns.

By classes, the foremost first, and within a class the newest turns first: the user's words, what an earlier compaction
wrote, the agent's own words, outcomes of calls, reports of other agents, what edits put in, more of short results, what
of long ones later turns used, the rest by relevance. Never decides what survives; the model may point at any line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import islice

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import edit_sides
from planner.evidence.tasks import written_tasks
from planner.proposal import PlanRequest
from planner.reading.lines import Line, call_parts

__all__ = ["card_text", "choose_lines"]

NUMBER_TOKENS = 2.5
"""Raw tokens of a line's number, mark and line break (2.3 to 2.6 on the cards of six sessions)."""
SHORT_RESULT_LINES, SHORT_RESULT_CHARACTERS = 12, 960
"""A result up to this size is shown whole before lines of longer ones."""
ENDING_LINES = {"run": 2, "ask": 6, "other": 6}
"""How many last lines of a longer result are shown with it, by what the call does; of what only reads none."""
COMMAND_LINES = 12
"""Of a call with long arguments so many lines are shown before what it changes."""
SENTENCE_WORDS = 5
"""A line of a report with fewer words says nothing by itself."""
SIGNATURE_WORTH, HEADING_WORTH = 0.4, 0.1
"""What a signature and what a heading counts beside the names that later turns use, each up to 1: a heading says that
there is a section, and seldom what is in it."""
CONFLICT_LINES = 40
"""Of one side and the other of a merge conflict so many lines count as much as a signature."""
RECENT_TURNS = 8
"""What so few turns ago was read may be used yet: what it names counts as if it were."""
AGAIN = 0.6
"""What a name counts each further time, against the time before."""
REPEAT_CHARACTERS = 24
"""A longer line, not the user's, that stands on another card already is not shown again."""

_GUTTER = re.compile(r"^\s*\d+(?:→|\t| \| )")
"""What may be the number of a line in front of it: enough to look behind it."""
_NUMBERED = re.compile(r"^\s*\d+→")
"""What is one, as file viewers print it; not the first column of ``4711\tuser_0`` and ``4711 | alice``."""
_RETOLD = re.compile(r" description=[^=\n]{0,160}$|(?<=command=)cd \S+ && ")
"""``description=`` at the end of a command's line, and the folder that it changes to first."""
_SIGNATURE = re.compile(
    r"\s{0,8}(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|unsafe)\s){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module)\s\S|#{1,6}\s\S"
    r"|\*\*\S.{0,80}\*\*\s*\S|(?:<{7}|={7}|>{7})(?: |$)"
)
"""Opens a signature or a heading, or a side of a merge conflict: ``export async function run(``, ``## Setup``,
``**Risk** none``, ``<<<<<<< HEAD``; not ``return type_of(x)``, and not ``**Analysis:**``, which says nothing alone."""

_TELLS = re.compile(r"\s*(?![\"']|import\b|from\b|use\b|#include)(?=.*\w{3})")
"""``count = 3``; not ``}``, and not ``import os`` or ``"log/slog"``, which say nothing of what was changed."""
_NEW_TEXT = re.compile(r" new_(?:string|str|source)=")
_HEADING = re.compile(r"\s*#{1,6} ")
_LOUD = re.compile(r"\b(?:MUST|NEVER|ALWAYS|CRITICAL|ONLY|DO NOT|[Dd]o NOT)\b")
"""A rule in capitals: ``findings MUST be stored``; not ``you must know``."""
HOST_DEMANDS = 16
"""Of a template that a host expanded so many such lines are shown; the rest of it says how, not what."""
LATEST_TURNS, MOST_LATEST_TURNS, LATEST_SHARE = 10, 24, 0.25
"""What answers the latest request, so many of the newest turns at least and at most, is shown nearly whole within this
share of the budget: planners missed what the live work stands on more than anything older."""
RECAP_SHARE = 0.2
"""What an earlier compaction wrote, the memory of all before it, is shown within this share, its end first: there it
says how things stood."""
LONG_READING_LINES = 40
LIVE_LINES = 16
"""Of a turn that stays whole in any case so many lines tell what it is about."""


class _Rank(IntEnum):
    """Classes of lines, the foremost first."""

    USER = 0
    RECAP = 1
    AGENT = 2
    LATEST = 3
    OUTCOME = 4
    REPORT = 5
    CHANGE = 6
    DETAIL = 7
    USED = 8
    REST = 9


SHARES = {
    _Rank.USER: 0.35,
    _Rank.RECAP: 0.5,
    _Rank.AGENT: 0.62,
    _Rank.LATEST: 0.72,
    _Rank.OUTCOME: 0.8,
    _Rank.REPORT: 0.84,
    _Rank.CHANGE: 0.88,
    _Rank.DETAIL: 0.9,
    _Rank.USED: 0.99,
    _Rank.REST: 1.0,
}
"""How much of the budget may be spent when each class is through: one wall of text cannot hide all behind it."""
OWN_SHARES = {_Rank.RECAP: RECAP_SHARE, _Rank.LATEST: LATEST_SHARE}
"""How much of the budget a class may take by itself."""


@dataclass
class _Choice:
    """What has been chosen so far, and what it cost in raw tokens."""

    request: PlanRequest
    most_per_turn: int
    left_out: Mapping[str, frozenset[int]]
    spent: float = 0
    spent_by_turn: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    shown: dict[str, set[int]] = field(default_factory=dict)
    texts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of the lines that are shown somewhere, by their part."""

    def cost(self, line: Line) -> float:
        """What showing `line` takes."""
        return self.request.counter.raw(card_text(line, self.request.evidence)) + NUMBER_TOKENS

    def take(self, turn_id: str, line: Line, limit: float, *, again: bool = False) -> bool:
        """Show `line` if it fits; True if it stands on a card now, be it another's unless `again`."""
        shown = self.shown.setdefault(turn_id, set())
        if line.number in shown or line.number in self.left_out.get(turn_id, ()):
            return True
        if not again and self.repeats(line):
            return True
        cost = self.cost(line)
        if self.spent + cost > limit or self.spent_by_turn[turn_id] + cost > self.most_per_turn:
            return False
        shown.add(line.number)
        self.spent += cost
        self.spent_by_turn[turn_id] += cost
        self.texts[line.part].add(line.text.strip())
        return True

    def repeats(self, line: Line) -> bool:
        """True for a line that says what another card shows: one of a result whatever another says, any other what one
        of its own kind says, for that something was planned does not say that it was done."""
        text = line.text.strip()
        if line.source == "user" or len(text) < REPEAT_CHARACTERS:
            return False
        return any(text in self.texts[part] for part in (self.texts if line.part == "result" else (line.part,)))


def card_text(line: Line, evidence: Evidence) -> str:
    """`line` as a card shows it: without the number that a tool put before it, but where something is defined; without
    what retells a command; and without the folder that most paths are in."""
    text = line.text
    if line.part == "call":
        text = _RETOLD.sub("", text)
    elif line.part == "result" and not _is_signature(line):
        text = _NUMBERED.sub("", text)
    return evidence.shown(text)


def _is_signature(line: Line) -> bool:
    return _SIGNATURE.match(_GUTTER.sub("", line.text)) is not None


def choose_lines(
    request: PlanRequest,
    turns: Sequence[TurnEvidence],
    limit: int,
    most_per_turn: int,
    in_headers: Mapping[str, frozenset[int]],
) -> Mapping[str, tuple[Line, ...]]:
    """The lines to show of each of `turns`, in order, by turn id; together at most `limit` raw tokens.

    No turn shows more than `most_per_turn` of them. Lines of a turn that its card's header repeats (`in_headers`) are
    left out, names of arguments without them, and lists of tasks that a later one updates.
    """
    ranked = [(turn, _ranks(turn)) for turn in reversed(turns)]
    left_out = _rank_task_lists(ranked)
    for turn in turns:
        left_out[turn.turn.id] |= in_headers[turn.turn.id].union(_argument_names(turn))
    choice = _Choice(request, most_per_turn, left_out)
    for rank in islice(_Rank, _Rank.USED):
        take = _take_turns if rank in (_Rank.USER, _Rank.RECAP, _Rank.AGENT, _Rank.DETAIL) else _take_rounds
        most = min(limit * SHARES[rank], choice.spent + limit * OWN_SHARES.get(rank, 1))
        take(choice, _queue(ranked, rank), most)
    for rank, candidates in ((_Rank.USED, _used_later), (_Rank.REST, _by_relevance)):
        _take_best(choice, candidates(choice, turns), limit * SHARES[rank])
    return {t.turn.id: tuple(line for line in t.lines if line.number in choice.shown.get(t.turn.id, ())) for t in turns}


_Ranked = Sequence[tuple[TurnEvidence, dict[int, _Rank]]]
"""The newest turn first, each with the classes of its lines."""
_Queue = Sequence[tuple[TurnEvidence, Sequence[Line]]]


def _argument_names(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines of calls that only name the tool or the argument below them: ``Bash``, ``new_string:``."""
    for call in turn.calls:
        place = 0
        lines = turn.lines_of(call.block)
        for key, count in call_parts(call.name, call.input):
            if place < len(lines) and (key or lines[place].text == call.name):
                yield lines[place].number
            place += count


def _rank_task_lists(ranked: _Ranked) -> dict[str, frozenset[int]]:
    """Show the newest list of tasks with the agent's own words: it says what is left.

    Returns the lines of lists that a later one updates, by turn id.
    """
    updated: dict[str, frozenset[int]] = defaultdict(frozenset)
    newer: frozenset[str] | None = None
    calls = ((turn, ranks, call, written_tasks(call)) for turn, ranks in ranked for call in turn.calls)
    for turn, ranks, call, tasks in calls:
        if tasks is None:
            continue
        numbers = [line.number for line in turn.lines_of(call.block) if line.text.strip()]
        items = frozenset(task.text for task in tasks)
        if newer is None:
            ranks |= dict.fromkeys(numbers, _Rank.AGENT)
        elif items & newer:
            updated[turn.turn.id] |= frozenset(numbers)
        newer = items
    return updated


def _queue(ranked: _Ranked, rank: _Rank) -> _Queue:
    """The lines of one class of each turn."""
    if rank == _Rank.LATEST:
        return [(turn, _latest(turn)) for turn, _ in ranked[: _latest_turns(ranked)]]
    return [(turn, _of_rank(turn, ranks, rank)) for turn, ranks in ranked]


def _latest_turns(ranked: _Ranked) -> int:
    """How many of the newest turns answer the latest request, within the bounds of what is shown nearly whole."""
    since = next((at + 1 for at, (turn, _) in enumerate(ranked) if turn.user_lines), 0)
    return min(max(since, LATEST_TURNS), MOST_LATEST_TURNS)


def _of_rank(turn: TurnEvidence, ranks: Mapping[int, _Rank], rank: _Rank) -> Sequence[Line]:
    """Lines of one class, the most telling first.

    What shows failures, and from both ends inwards; of changes what they define, and from the top; of a recap its end.
    """
    lines = [turn.lines[number - 1] for number in sorted(ranks) if ranks[number] == rank]
    if rank == _Rank.RECAP:
        return lines[::-1]
    if rank == _Rank.CHANGE:
        return sorted(lines, key=lambda line: not _SIGNATURE.match(line.text))
    first = turn.obligations if rank == _Rank.OUTCOME else frozenset()
    rest = _from_ends([line for line in lines if line.number not in first])
    return [line for line in lines if line.number in first] + rest


def _latest(turn: TurnEvidence) -> Sequence[Line]:
    """What there is to show of a turn, from both ends inwards; of an edit the new text first."""
    changed = dict.fromkeys(_changes(turn))
    hidden = turn.boilerplate_lines | changed.keys() | frozenset(_long_readings(turn))
    rest = [line for line in turn.lines if line.number not in hidden]
    lines = (*(turn.lines[number - 1] for number in changed), *_from_ends(rest))
    shown = [line for line in lines if line.text.strip()]
    return shown[:LIVE_LINES] if turn.turn.live else shown


def _long_readings(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines of long files that were read: of those what they define and what is used says more."""
    for call in turn.calls:
        lines = turn.lines_of(call.result_block)
        if call.kind == "read" and len(lines) > LONG_READING_LINES:
            yield from (line.number for line in lines)


def _take_turns(choice: _Choice, queue: _Queue, limit: float) -> None:
    """All lines of a turn before those of the next."""
    for turn, lines in queue:
        for line in lines:
            if not choice.take(turn.turn.id, line, limit):
                break


def _take_rounds(choice: _Choice, queue: _Queue, limit: float) -> None:
    """One line a turn in each round: no turn is left without its outcome for another's length."""
    place = 0
    while queue and choice.spent < limit:
        queue = [(turn, lines) for turn, lines in queue if place < len(lines)]
        for turn, lines in queue:
            choice.take(turn.turn.id, lines[place], limit, again=lines[place].number in turn.obligations)
        place += 1


def _ranks(turn: TurnEvidence) -> dict[int, _Rank]:
    """The class of each line that has one before its relevance is asked; what a host always writes has none."""
    demands = frozenset(islice(_demands(turn), HOST_DEMANDS))
    classes = (
        (_Rank.OUTCOME, turn.obligations | demands | frozenset(_outcomes(turn))),
        (_Rank.REPORT, frozenset(_reported(turn))),
        (_Rank.CHANGE, frozenset(_changes(turn))),
        (_Rank.DETAIL, frozenset(turn.failure_lines) | frozenset(_details(turn))),
    )
    ranks: dict[int, _Rank] = {}
    for line in turn.lines:
        if not line.text.strip() or line.number in turn.boilerplate_lines - demands:
            continue
        if line.source == "user":
            ranks[line.number] = _Rank.USER
        elif line.source == "planner":
            ranks[line.number] = _Rank.RECAP
        elif line.part == "assistant":
            ranks[line.number] = _Rank.AGENT
        else:
            rank = next((rank for rank, numbers in classes if line.number in numbers), None)
            if rank is not None:
                ranks[line.number] = rank
    return ranks


def _demands(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines of a host's text in the user's message that say loudly what must be: a command's rules."""
    return (line.number for line in turn.lines.of_part("user") if _LOUD.search(line.text))


def _outcomes(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines that say how calls ended, of an edit that was made what it put in foremost; and what
    a host's own text begins with."""
    for call, outcome in zip(turn.calls, turn.outcomes, strict=True):
        if call.kind != "write" or outcome.status == "failed":
            yield from outcome.lines
        else:
            yield from (line.number for line in _put_in(turn, call))
    heads: dict[int, int] = {}
    for line in turn.lines.of_part("user"):
        if line.text.strip():
            heads.setdefault(line.block, line.number)
    yield from heads.values()


def _reported(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines in which another agent says what it found: sentences, no headings."""
    for call in turn.calls:
        if call.is_report:
            lines = turn.lines_of(call.result_block)
            said = (
                line for line in lines if len(line.text.split()) >= SENTENCE_WORDS and not _HEADING.match(line.text)
            )
            yield from (line.number for line in said)


def _details(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines of short results, and of those that longer ones end with."""
    for call, outcome in zip(turn.calls, turn.outcomes, strict=True):
        result = [line for line in turn.lines_of(call.result_block) if line.text.strip()]
        if call.kind == "write" and outcome.status != "failed":
            continue
        size = max(len(result) / SHORT_RESULT_LINES, sum(len(line.text) for line in result) / SHORT_RESULT_CHARACTERS)
        ending = len(result) if size <= 1 else ENDING_LINES.get(call.kind, 0)
        yield from (line.number for line in result[len(result) - ending :] if size <= 1 or not line.continues)


def _changes(turn: TurnEvidence) -> Iterator[int]:
    """What edits put in and where, of one that failed all it looked for, and the beginning of other long arguments."""
    for call in turn.calls:
        lines = turn.lines_of(call.block)
        if call.kind != "write":
            yield from (line.number for line in lines[:COMMAND_LINES])
            continue
        sides = edit_sides(call, lines)
        old = {line.text: line for line in reversed(lines) if sides.get(line.number) in ("-", "=")}
        tried = list(reversed(old.values()))[: None if call.is_error else 1]
        new = (line for line in lines if sides.get(line.number) == "+")
        yield from (line.number for line in (*lines[:1], *tried, *new))


def _put_in(turn: TurnEvidence, call: Call) -> Iterator[Line]:
    """The line that says most of what an edit put in: what it defines, else the first that imports nothing; of texts
    on the call's one line where the new one begins."""
    lines = turn.lines_of(call.block)
    sides = edit_sides(call, lines)
    new = [line for line in lines if sides.get(line.number) == "+" and _TELLS.match(line.text)]
    found = next((at for at, line in enumerate(lines) if _NEW_TEXT.search(line.text)), 0)
    inline = lines[found : found + 2]
    if len(inline) > 1 and not _NEW_TEXT.split(inline[0].text)[-1].strip():
        inline = inline[1:]
    yield from (sorted(new, key=lambda line: not _SIGNATURE.match(line.text)) or inline)[:1]


def _from_ends(lines: Sequence[Line]) -> list[Line]:
    """First, last, second, last but one, …"""
    half = (len(lines) + 1) // 2
    order = [line for pair in zip(lines[:half], reversed(lines), strict=False) for line in pair]
    return order[: len(lines)]


@dataclass(frozen=True)
class _Candidate:
    """A line that competes for space by what it names and by what it is worth besides."""

    turn: TurnEvidence
    line: Line
    names: frozenset[str]
    base: float
    cost: float

    def density(self, weights: Mapping[str, float], shown: Mapping[str, int]) -> float:
        """Worth a token; a name that stands on cards already counts less each time."""
        return (self.base + sum(weights[name] * AGAIN ** shown.get(name, 0) for name in self.names)) / self.cost


def _take_best(choice: _Choice, candidates: Iterable[_Candidate], limit: float) -> None:
    """The best of `candidates` that fit, each judged again when it is its turn: greedy, by worth a token."""
    weights = choice.request.relevance.weights
    shown: dict[str, int] = defaultdict(int)
    heap = [(-one.density(weights, shown), -one.turn.turn.number, one.line.number, one) for one in candidates]
    heapify(heap)
    while heap and choice.spent < limit:
        _, number, place, one = heappop(heap)
        density = one.density(weights, shown)
        if heap and density < -heap[0][0]:
            heappush(heap, (-density, number, place, one))
        elif choice.take(one.turn.turn.id, one.line, limit):
            for name in one.names:
                shown[name] += 1


def _used_later(choice: _Choice, turns: Sequence[TurnEvidence]) -> Iterator[_Candidate]:
    """Lines of results with what the agent wrote in a later turn, or, read lately, may yet; signatures, headings."""
    relevance = choice.request.relevance
    written: dict[str, int] = {}
    for turn in turns:
        for line, names in zip(turn.lines, relevance.names[turn.turn.id], strict=True):
            if line.part in ("assistant", "call"):
                written |= dict.fromkeys(names, turn.turn.number)
    last = turns[-1].turn.number if turns else 0
    for turn in turns:
        number = turn.turn.number
        conflict = frozenset(_conflicts(turn))
        for line, names in zip(turn.lines, relevance.names[turn.turn.id], strict=True):
            if line.part not in ("result", "user") or not line.text.strip():
                continue
            lately = last - number < RECENT_TURNS
            used = frozenset(name for name in names if lately or written.get(name, 0) > number)
            telling = line.number in conflict or _is_signature(line)
            signature = telling * (HEADING_WORTH if _HEADING.match(line.text) else SIGNATURE_WORTH)
            if used or signature:
                yield _Candidate(turn, line, used, signature, choice.cost(line))


def _conflicts(turn: TurnEvidence) -> Iterator[int]:
    """Numbers of the lines within merge conflicts: both sides are what has to be decided."""
    left = 0
    for line in turn.lines:
        text = _GUTTER.sub("", line.text)
        if line.part != "result" or text.startswith(">>>>>>> "):
            left = 0
        elif text.startswith("<<<<<<< "):
            left = CONFLICT_LINES
        elif left:
            left -= 1
            yield line.number


def _by_relevance(choice: _Choice, turns: Sequence[TurnEvidence]) -> Iterator[_Candidate]:
    """All filled lines by what the evidence says they are worth."""
    relevance = choice.request.relevance
    for turn in turns:
        turn_id = turn.turn.id
        for line, names, base in zip(turn.lines, relevance.names[turn_id], relevance.bases[turn_id], strict=True):
            if line.text.strip():
                yield _Candidate(turn, line, frozenset(names), base, choice.cost(line))
