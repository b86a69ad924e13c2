"""Turn cards: what the planner model sees of each turn, within a token budget for all of them.

A card is a header line (id, size, what was called, hints) and lines of the turn under their own numbers, so that
the model can answer by pointing. Which lines: by classes, the foremost first, and within a class the newest turns
first. Turns that get no card are a line of an index. Decides nothing about what survives.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import groupby, islice
from typing import TypeVar

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import edit_sides
from planner.evidence.names import defines
from planner.evidence.tasks import written_tasks
from planner.model.answer import BEST_SCORE, spans
from planner.model.prompts import one_line, safe_text
from planner.placeholders import ranges_of
from planner.plan import CompactionPlan, TurnDecision
from planner.proposal import PlanRequest, read_and_new
from planner.reading.lines import Line, call_parts

__all__ = ["Card", "history_index", "turn_cards", "turn_heads", "turn_index"]

HEADERS_SHARE = 0.4
"""The most of the budget that may go to headers."""
HEAD_CHARACTERS = (240, 120, 60, 30, 0)
"""How long a turn's head may be: the first length at which all headers fit."""
TURN_HEAD_CHARACTERS = 100
"""And of a turn that is named for orientation."""
INDEX_CHARACTERS, CHOSEN_CHARACTERS = (100, 60, 30, 12), (80, 40, 0)
"""And in an index, the longest first: of all turns, and of those that were chosen before."""
INDEX_SHARE, INDEX_FLOOR_TOKENS, EARLIER_TOKENS = 0.03, 2_000, 1_000
"""Of the history's tokens, what an index of all turns may take behind a prefix, where it is the part of the question
that no cache holds; and of it what was chosen behind the last compaction."""

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
ASKED_WORTH = 2.0
"""And what a name that the latest request names counts, wherever it stands."""
CONFLICT_LINES = 40
"""Of one side and the other of a merge conflict so many lines count as much as a signature."""
RECENT_TURNS = 8
"""What so few turns ago was read may be used yet: what it names counts as if it were."""
AGAIN = 0.6
"""What a name counts each further time, against the time before."""
REPEAT_CHARACTERS = 24
"""A longer line, not the user's, that stands on another card already is not shown again."""
HOST_DEMANDS = 16
"""Of a template that a host expanded so many loud lines are shown; the rest of it says how, not what."""
LATEST_TURNS, MOST_LATEST_TURNS = 10, 24
"""What answers the latest request, so many of the newest turns at least and at most, is shown nearly whole: planners
missed what the live work stands on more than anything older."""
LONG_READING_LINES = 40
LIVE_LINES = 16
"""Of a turn that stays whole in any case so many lines tell what it is about."""

_CHANGE_DIRECTORY = re.compile(r"^cd \S+ (?:&&|;) ")
"""``cd /srv/app && `` before a command."""
_GUTTER = re.compile(r"^\s*\d+(?:→|\t| \| )")
"""What may be the number of a line in front of it: enough to look behind it."""
_NUMBERED = re.compile(r"^\s*\d+→")
"""What is one, as file viewers print it; not the first column of ``4711\tuser_0`` and ``4711 | alice``."""
_RETOLD = re.compile(r" description=[^=\n]{0,160}$|(?<=command=)cd \S+ && ")
"""``description=`` at the end of a command's line, and the folder that it changes to first."""
_OPENS = re.compile(r"\s{0,8}#{1,6}\s\S|\s{0,8}\*\*\S.{0,80}\*\*\s*\S|(?:<{7}|={7}|>{7})(?: |$)")
"""A heading, or a side of a merge conflict: ``## Setup``, ``**Risk** none``, ``<<<<<<< HEAD``; not ``**Analysis:**``,
which says nothing alone."""
_TELLS = re.compile(r"\s*(?![\"']|import\b|from\b|use\b|#include)(?=.*\w{3})")
"""``count = 3``; not ``}``, and not ``import os`` or ``"log/slog"``, which say nothing of what was changed."""
_NEW_TEXT = re.compile(r" new_(?:string|str|source)=")
"""Where the new text begins in the arguments of an edit on one line: `` new_string=``."""
_HEADING = re.compile(r"\s*#{1,6} ")
_LOUD = re.compile(r"\b(?:MUST|NEVER|ALWAYS|CRITICAL|ONLY|DO NOT|[Dd]o NOT)\b")
"""A rule in capitals: ``findings MUST be stored``; not ``you must know``."""

T = TypeVar("T")


@dataclass(frozen=True)
class Card:
    """One turn as the planner model sees it, or a run of small turns behind one header."""

    turns: Sequence[TurnEvidence]
    header: str
    lines: tuple[Line, ...]
    text: str
    """The header, and the lines below it."""
    tokens: int


_Group = tuple[Sequence[TurnEvidence], str]
"""Neighbouring turns that share a card (mostly one turn), and the card's header."""


def turn_cards(request: PlanRequest, turns: Sequence[TurnEvidence], budget_tokens: int) -> tuple[Card, ...]:
    """A card for every one of `turns`, in order, together within `budget_tokens`; the same every time."""
    counter = request.counter
    budget = int(budget_tokens / counter.scale)

    def cost(groups: Sequence[_Group]) -> int:
        return sum(counter.raw(header) + 1 for _, header in groups)

    fitting = _header_choices(turns, request.evidence.shown)
    groups = _first(fitting, lambda groups: cost(groups) <= int(budget * HEADERS_SHARE))
    headers = {group[0].turn.id: (group[0], header) for group, header in groups if len(group) == 1}
    shown = _choose_lines(request, headers, max(0, budget - cost(groups)))
    cards = []
    for group, header in groups:
        lines = shown.get(group[0].turn.id, ())
        text = _text(request.evidence, group[0], header, lines)
        cards.append(Card(group, header, lines, text, math.ceil(counter.raw(text) * counter.scale)))
    return tuple(cards)


def _first(choices: Iterable[T], fits: Callable[[T], bool]) -> T:
    """The first of `choices`, of which each is smaller than the one before, that fits; the last if none does."""
    for choice in choices:
        if fits(choice):
            break
    return choice


def _text(evidence: Evidence, turn: TurnEvidence, header: str, lines: Sequence[Line]) -> str:
    marks = _marks(turn)
    shown = (f"{line.number}{marks[line.number]} {safe_text(_card_text(line, evidence))}" for line in lines)
    return "\n".join([header, *shown])


_PART_MARKS = {"user": "|", "assistant": ":", "call": ">", "result": "|"}


def _marks(turn: TurnEvidence) -> Mapping[int, str]:
    """What kind of line each is; the prompt explains the marks."""
    marks = {line.number: ":" if line.source == "planner" else _PART_MARKS[line.part] for line in turn.lines}
    for place, call in enumerate(turn.calls, 1):
        marks |= edit_sides(call, turn.lines_of(call.block))
        if len(turn.calls) > 1:
            marks |= {line.number: f"|{place}" for line in turn.lines_of(call.result_block)}
    marks |= {number: "!" for number in turn.failure_lines if marks[number][0] in "|>"}
    return marks | {line.number: '"' for line in turn.user_lines}


# Headers, and lines of an index.


def _header_choices(turns: Sequence[TurnEvidence], shorten: Callable[[str], str]) -> Iterator[Sequence[_Group]]:
    """A header for every turn: with shorter heads, then with neighbouring small turns on one card, twice as many each
    time."""
    for characters in HEAD_CHARACTERS:
        yield [([turn], _header(turn, characters, shorten)) for turn in turns]
    run = 2
    while run < 2 * len(turns):
        yield [(group, _run_header(group)) for group in _runs(turns, run)]
        run *= 2


def _header(turn: TurnEvidence, characters: int, shorten: Callable[[str], str]) -> str:
    parts = [f"## {turn.turn.id}", f"{turn.tokens}/{len(turn.lines)}"]
    if characters:
        parts.append(_turn_head(turn, characters, shorten))
    parts += _hints(turn)
    return " · ".join(part for part in parts if part)


def _turn_head(turn: TurnEvidence, characters: int, shorten: Callable[[str], str]) -> str:
    """The turn's calls with their subjects, the same call once; or who speaks; on one line of `characters`.

    `shorten` leaves out the folder that most paths are in.
    """
    heads = [f"{call.name} {_clipped(shorten(call.subject), characters // 2)}".strip() for call in turn.calls]
    counted = Counter(heads)
    head = "; ".join(f"{head} ×{n}" if n > 1 else head for head, n in counted.items())
    return one_line(head or {"assistant": "agent"}.get(turn.turn.kind, turn.turn.kind), characters)


def _clipped(subject: str, most: int) -> str:
    """`subject` within `most` characters: of a path its end says most, of anything else its beginning."""
    line = _CHANGE_DIRECTORY.sub("", one_line(subject, len(subject) + 1))
    if len(line) <= most:
        return line
    return f"…{line[1 - most :]}" if "/" in line and " " not in line else f"{line[: most - 1]}…"


def _hints(turn: TurnEvidence) -> list[str]:
    refused = any(map(turn.is_refused, turn.calls))
    hints = ["hint: refused by the user"] if refused else ["hint: failed?"] if turn.failed else []
    if not turn.failed and any(outcome.status == "passed" for outcome in turn.outcomes):
        hints.append("hint: passed")
    if turn.superseded_by:
        hints.append(f"hint: done again at {turn.superseded_by}")
    elif turn.edited_later_at:
        hints.append(f"hint: edited later at {turn.edited_later_at}")
    if turn.turn.live:
        hints.append("LIVE")
    elif turn.obligations:
        ranges = (f"{low}-{high}" if low < high else f"{low}" for low, high in ranges_of(turn.obligations))
        hints.append(f"kept {','.join(ranges)}")
    return hints


def _run_header(group: Sequence[TurnEvidence]) -> str:
    if len(group) == 1:
        return _header(group[0], HEAD_CHARACTERS[-1], str)
    tokens, lines = sum(turn.tokens for turn in group), sum(len(turn.lines) for turn in group)
    return f"## {group[0].turn.id}-{group[-1].turn.id} · {tokens}/{lines} · {len(group)} turns"


def _runs(turns: Sequence[TurnEvidence], most: int) -> Iterator[Sequence[TurnEvidence]]:
    """Runs of at most `most` neighbours; a turn that must be seen stands alone."""
    run: list[TurnEvidence] = []
    for turn in turns:
        alone = turn.failed or bool(turn.constraint_lines) or turn.turn.live
        if run and (alone or len(run) == most or turn.turn.number > run[-1].turn.number + 1):
            yield run
            run = []
        run.append(turn)
        if alone:
            yield run
            run = []
    if run:
        yield run


def turn_heads(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    """A line for each of `turns`."""
    shorten = request.evidence.shown
    return "\n".join(f"{turn.turn.id} · {_turn_head(turn, TURN_HEAD_CHARACTERS, shorten)}" for turn in turns)


def turn_index(request: PlanRequest, earlier: CompactionPlan, most_tokens: int) -> str:
    """What planners chose of the turns they have read: a line each where words of them stand, else one for a run.

    Turns that none has named are left out. Heads get shorter until all lines fit `most_tokens`.
    """
    read, _ = read_and_new(request, earlier)
    named = frozenset(earlier.provenance.named) & earlier.decisions.keys()
    turns = [turn for turn in read if turn.turn.id in named]
    texts = ("\n".join(_chosen_lines(request, earlier, turns, characters)) for characters in CHOSEN_CHARACTERS)
    return _first(texts, lambda text: request.counter.text(text) <= most_tokens)


def _chosen_lines(
    request: PlanRequest, earlier: CompactionPlan, turns: Sequence[TurnEvidence], characters: int
) -> Iterator[str]:
    for strategy, run in groupby(turns, lambda turn: earlier.decisions[turn.turn.id].strategy):
        members = list(run)
        if strategy in ("keep", "summarize") and characters:
            for turn in members:
                yield _chosen_line(request, turn, earlier.decisions[turn.turn.id], characters)
        else:
            name, tokens = spans(turn.turn.number for turn in members), sum(turn.tokens for turn in members)
            yield f"{name} · {tokens} tokens · {strategy}"


def _chosen_line(request: PlanRequest, turn: TurnEvidence, decision: TurnDecision, characters: int) -> str:
    head = _turn_head(turn, characters, request.evidence.shown)
    gist = one_line(decision.summary, characters)
    score = round(decision.relevance_score * BEST_SCORE)
    return f"{turn.turn.id} · {turn.tokens} tokens · {head} · {decision.strategy} {score}{' · ' * bool(gist)}{gist}"


def history_index(request: PlanRequest, earlier: CompactionPlan | None) -> str:
    """A line for each turn, what was decided of those behind the last compaction, as long as there is room for."""
    read, new = read_and_new(request, earlier)
    before = []
    if earlier is not None:
        others = f"{spans(turn.turn.number for turn in read)} · all others: the best of their lines stand"
        before = [line for line in (turn_index(request, earlier, EARLIER_TOKENS), others) if line]
    most = max(INDEX_FLOOR_TOKENS, request.analysis.tokens * INDEX_SHARE)
    texts = ("\n".join([*before, *(_opening(request, turn, c) for turn in new)]) for c in INDEX_CHARACTERS)
    return _first(texts, lambda text: request.counter.text(text) <= most)


def _opening(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """A turn by its size and what it calls, or how it begins: by this the model knows it again; and whether it stays in
    any case, whole or in part."""
    head = _turn_head(turn, characters, request.evidence.shown)
    if not turn.calls and turn.lines:
        first = (turn.user_lines or turn.lines)[0].text
        head = one_line(f"{head}: {first}", characters)
    stays = " · LIVE" if turn.turn.live else " · kept" if turn.obligations else ""
    return f"{turn.turn.id} · {turn.tokens}/{len(turn.lines)} · {head}{stays}"


# Which lines stand on the cards, under one budget for all turns; the model may point at any other.


class _Rank(Enum):
    """Classes of lines, the foremost first, each with how much of the budget may be spent when it is through: one wall
    of text cannot hide all behind it."""

    USER = 0.35
    RECAP = 0.5
    """What an earlier compaction wrote, the memory of all before it."""
    AGENT = 0.62
    LATEST = 0.72
    OUTCOME = 0.8
    REPORT = 0.84
    """What another agent found."""
    CHANGE = 0.88
    DETAIL = 0.9
    """More of short results."""
    USED = 0.99
    """What of long ones later turns used."""
    REST = 1.0
    """By relevance."""


OWN_SHARES = {_Rank.RECAP: 0.2, _Rank.LATEST: 0.25}
"""How much of the budget a class may take by itself."""


@dataclass
class _Choice:
    """What has been chosen so far, and what it cost in raw tokens."""

    request: PlanRequest
    left_out: Mapping[str, frozenset[int]]
    spent: float = 0
    spent_by_turn: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    shown: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of the lines that are shown somewhere, by their part."""

    @property
    def most_per_turn(self) -> float:
        """No turn takes more of a piece than half."""
        return int(self.request.settings.piece_tokens / self.request.counter.scale / 2)

    def cost(self, line: Line) -> float:
        """What showing `line` takes."""
        return self.request.counter.raw(_card_text(line, self.request.evidence)) + NUMBER_TOKENS

    def take(self, turn_id: str, line: Line, limit: float, *, again: bool = False) -> bool:
        """Show `line` if it fits; True if it stands on a card now, be it another's unless `again`."""
        if line.number in self.shown[turn_id] or line.number in self.left_out.get(turn_id, ()):
            return True
        if not again and self.repeats(line):
            return True
        cost = self.cost(line)
        if self.spent + cost > limit or self.spent_by_turn[turn_id] + cost > self.most_per_turn:
            return False
        self.shown[turn_id].add(line.number)
        self.spent += cost
        self.spent_by_turn[turn_id] += cost
        self.texts[line.part].add(_plain(line))
        return True

    def repeats(self, line: Line) -> bool:
        """True for a line that says what another card shows: one of a result whatever another says, any other what one
        of its own kind says, for that something was planned does not say that it was done."""
        text = _plain(line)
        if line.source == "user" or len(text) < REPEAT_CHARACTERS:
            return False
        return any(text in self.texts[part] for part in (self.texts if line.part == "result" else (line.part,)))


def _plain(line: Line) -> str:
    """`line` as it is compared with others: without the number that a tool put before it."""
    return (_NUMBERED.sub("", line.text) if line.part == "result" else line.text).strip()


def _card_text(line: Line, evidence: Evidence) -> str:
    """`line` as a card shows it: without the number that a tool put before it, but where something is defined; without
    what retells a command; and without the folder that most paths are in."""
    text = line.text
    if line.part == "call":
        text = _RETOLD.sub("", text)
    elif line.part == "result" and not _is_signature(line):
        text = _NUMBERED.sub("", text)
    return evidence.shown(text)


def _is_signature(line: Line) -> bool:
    """True for a line that opens a definition, a section or a side of a conflict."""
    return defines(line.text) or _OPENS.match(_GUTTER.sub("", line.text)) is not None


_Ranked = Sequence[tuple[TurnEvidence, dict[int, _Rank]]]
"""The newest turn first, each with the classes of its lines."""
_Queue = Sequence[tuple[TurnEvidence, Sequence[Line]]]


def _choose_lines(
    request: PlanRequest, headers: Mapping[str, tuple[TurnEvidence, str]], limit: int
) -> Mapping[str, tuple[Line, ...]]:
    """The lines to show below `headers`, by turn id, in order; together at most `limit` raw tokens.

    What the header repeats is left out, names of arguments without them, and lists of tasks that a later one updates.
    """
    turns = [turn for turn, _ in headers.values()]
    ranked = [(turn, _ranks(turn)) for turn in reversed(turns)]
    left_out = _rank_task_lists(ranked)
    for turn, header in headers.values():
        left_out[turn.turn.id] |= {*_in_header(turn, header, request.evidence.shown), *_argument_names(turn)}
    choice = _Choice(request, left_out)
    for turn, _ in ranked:
        for line in (turn.lines[number - 1] for number in sorted(turn.obligations - turn.boilerplate_lines)):
            if line.text.strip():
                choice.take(turn.turn.id, line, limit * _Rank.USER.value, again=True)
    for rank in _Rank:
        most = min(limit * rank.value, choice.spent + limit * OWN_SHARES.get(rank, 1))
        if rank in (_Rank.USED, _Rank.REST):
            candidates = _used_later if rank == _Rank.USED else _by_relevance
            _take_best(choice, candidates(choice, turns), most)
        else:
            take = _take_turns if rank in (_Rank.USER, _Rank.RECAP, _Rank.AGENT, _Rank.DETAIL) else _take_rounds
            take(choice, _queue(ranked, rank), most)
    return {t.turn.id: tuple(line for line in t.lines if line.number in choice.shown[t.turn.id]) for t in turns}


def _in_header(turn: TurnEvidence, header: str, shorten: Callable[[str], str]) -> Iterator[int]:
    """Numbers of the lines of calls that `header` repeats: their subject stands there in full, and is all they say."""
    for call in turn.calls:
        stands = one_line(shorten(call.subject), len(call.subject) + 1) in header
        if stands and all(key == _RETELLS or _is_below(value, call) for key, value in call.input.items()):
            yield from (line.number for line in turn.lines_of(call.block)[:1])


_RETELLS = "description"
"""An argument that retells the subject."""


def _is_below(value: object, call: Call) -> bool:
    """True if the header has `value` of `call`, or it takes lines of its own below the first."""
    return value == call.subject or (isinstance(value, str) and "\n" in value)


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
        since = next((at + 1 for at, (turn, _) in enumerate(ranked) if turn.user_lines), 0)
        return [(turn, _latest(turn)) for turn, _ in ranked[: min(max(since, LATEST_TURNS), MOST_LATEST_TURNS)]]
    return [(turn, _of_rank(turn, ranks, rank)) for turn, ranks in ranked]


def _of_rank(turn: TurnEvidence, ranks: Mapping[int, _Rank], rank: _Rank) -> Sequence[Line]:
    """Lines of one class, the most telling first.

    What shows failures, and from both ends inwards; of changes what they define, and from the top; of a recap its end,
    which says how things stood.
    """
    lines = [turn.lines[number - 1] for number in sorted(ranks) if ranks[number] == rank]
    if rank == _Rank.RECAP:
        return lines[::-1]
    if rank == _Rank.CHANGE:
        return sorted(lines, key=lambda line: not _is_signature(line))
    first = turn.obligations if rank == _Rank.OUTCOME else frozenset()
    rest = _from_ends([line for line in lines if line.number not in first])
    return [line for line in lines if line.number in first] + rest


def _latest(turn: TurnEvidence) -> Sequence[Line]:
    """What there is to show of a turn, from both ends inwards; of an edit the new text first.

    Not of long files that were read: of those what they define and what is used says more.
    """
    changed = dict.fromkeys(_changes(turn))
    hidden = {*turn.boilerplate_lines, *changed}
    for call in turn.calls:
        lines = turn.lines_of(call.result_block)
        if call.kind == "read" and len(lines) > LONG_READING_LINES:
            hidden.update(line.number for line in lines)
    rest = [line for line in turn.lines if line.number not in hidden]
    every = (*(turn.lines[number - 1] for number in changed), *_from_ends(rest))
    shown = [line for line in every if line.text.strip()]
    return shown[:LIVE_LINES] if turn.turn.live else shown


def _from_ends(lines: Sequence[Line]) -> list[Line]:
    """First, last, second, last but one, …"""
    half = (len(lines) + 1) // 2
    order = [line for pair in zip(lines[:half], reversed(lines), strict=False) for line in pair]
    return order[: len(lines)]


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


# The classes.


def _ranks(turn: TurnEvidence) -> dict[int, _Rank]:
    """The class of each line that has one before its relevance is asked; what a host always writes has none."""
    loud = (line.number for line in turn.lines.of_part("user") if _LOUD.search(line.text))
    demands = list(islice(loud, HOST_DEMANDS))
    hidden = turn.boilerplate_lines.difference(demands)
    ranks = dict.fromkeys((*turn.failure_lines, *_details(turn)), _Rank.DETAIL)
    ranks |= dict.fromkeys(_changes(turn), _Rank.CHANGE)
    ranks |= dict.fromkeys(_reported(turn), _Rank.REPORT)
    ranks |= dict.fromkeys((*turn.obligations, *demands, *_outcomes(turn)), _Rank.OUTCOME)
    asked = (block for call in turn.calls if call.kind == "ask" for block in (call.block, call.result_block))
    ranks |= {line.number: _Rank.AGENT for block in asked for line in turn.lines_of(block)}
    for line in turn.lines:
        if not line.text.strip() or line.number in hidden:
            ranks.pop(line.number, None)
        elif line.source in ("user", "planner"):
            ranks[line.number] = _Rank.USER if line.source == "user" else _Rank.RECAP
        elif line.part == "assistant":
            ranks[line.number] = _Rank.AGENT
    return ranks


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
        for line in turn.lines_of(call.result_block) if call.is_report else ():
            if len(line.text.split()) >= SENTENCE_WORDS and not _HEADING.match(line.text):
                yield line.number


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


def _put_in(turn: TurnEvidence, call: Call) -> Sequence[Line]:
    """The line that says most of what an edit put in: what it defines, else the first that imports nothing; of texts
    on the call's one line where the new one begins."""
    lines = turn.lines_of(call.block)
    sides = edit_sides(call, lines)
    new = [line for line in lines if sides.get(line.number) == "+" and _TELLS.match(line.text)]
    start = next((at for at, line in enumerate(lines) if _NEW_TEXT.search(line.text)), 0)
    inline = lines[start : start + 2]
    if len(inline) > 1 and not _NEW_TEXT.split(inline[0].text)[-1].strip():
        inline = inline[1:]
    return (sorted(new, key=lambda line: not _is_signature(line)) or inline)[:1]


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
    names_of = choice.request.relevance.names
    asked = _names_asked(choice.request)
    written: dict[str, int] = {}
    for turn in turns:
        for line, names in zip(turn.lines, names_of[turn.turn.id], strict=True):
            if line.part in ("assistant", "call"):
                written |= dict.fromkeys(names, turn.turn.number)
    for turn in turns:
        number = turn.turn.number
        lately = turns[-1].turn.number - number < RECENT_TURNS
        conflict = frozenset(_conflicts(turn))
        for line, names in zip(turn.lines, names_of[turn.turn.id], strict=True):
            if line.part not in ("result", "user") or not line.text.strip():
                continue
            of_request = asked.intersection(names)
            used = frozenset(name for name in names if lately or written.get(name, 0) > number or name in asked)
            telling = line.number in conflict or _is_signature(line)
            signature = telling * (HEADING_WORTH if _HEADING.match(line.text) else SIGNATURE_WORTH)
            if used or signature:
                yield _Candidate(turn, line, used, signature + ASKED_WORTH * len(of_request), choice.cost(line))


def _names_asked(request: PlanRequest) -> frozenset[str]:
    """What the user's latest words name."""
    latest = next((turn for turn in reversed(request.evidence.turns.values()) if turn.user_lines), None)
    if latest is None:
        return frozenset()
    names = request.relevance.names[latest.turn.id]
    return frozenset(name for line in latest.user_lines for name in names[line.number - 1])


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
