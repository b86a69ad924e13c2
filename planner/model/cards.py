"""Turn cards: the planner model's view of each turn, within a token budget for all of them.

A card is a header line (id, size, what was called, hints) and lines of the turn under their own numbers, so that the
model can answer by pointing. Turns without a card are a line of an index. Decides nothing about what survives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TypeVar

from planner.evidence import TurnEvidence
from planner.evidence.calls import Call
from planner.model.answer import BEST_SCORE, spans
from planner.model.card_lines import card_text, is_in_header, lines_of_cards
from planner.model.prompts import one_line, safe_text
from planner.pinned import Pinned, pinned
from planner.plan import CompactionPlan
from planner.proposal import PlanRequest, read_and_new
from planner.reading.lines import Line

__all__ = ["Card", "history_index", "turn_cards", "turn_heads", "turn_index"]

HEAD_CHARACTERS = 160
"""Length of the calls in a header."""
TURN_HEAD_CHARACTERS = 100
"""Length of the head of a turn that is listed only for orientation."""
INDEX_CHARACTERS, CHOSEN_CHARACTERS = (100, 60, 30, 12), (80, 40, 0)
"""Lengths of the head of a turn in an index, the longest first: of all turns, and of those chosen before."""
INDEX_SHARE, INDEX_FLOOR_TOKENS, EARLIER_TOKENS = 0.03, 2_000, 1_000
"""Size of an index of all turns after a prefix, the uncached part of the question: its share of the history's tokens,
its smallest size, and its part for choices after the last compaction."""

MOST_FLAGS = 16
"""Number of a call's arguments that are searched for switches."""
KEPT_MARK = "*"
"""Mark of a line that stays anyway."""
_PART_MARKS = {"user": "|", "assistant": ":", "call": ">", "result": "|"}

T = TypeVar("T")


@dataclass(frozen=True)
class Card:
    """Turn as the planner model sees it, or a run of small turns under one header."""

    turns: Sequence[TurnEvidence]
    header: str
    lines: tuple[Line, ...]
    text: str
    """Header, and the lines below it."""
    tokens: int


def turn_cards(
    request: PlanRequest, turns: Sequence[TurnEvidence], budget_tokens: int, *, mark_kept: bool = True
) -> tuple[Card, ...]:
    """Return the cards of `turns`, in order, together within `budget_tokens`; deterministic. With `mark_kept`, lines
    that stay anyway are marked."""
    settings = request.settings
    shown = lines_of_cards(
        request, turns, lambda turn: _header(request, turn, len(turn.lines)), budget_tokens / request.counter.scale
    )
    kept = None
    if mark_kept:
        view = settings.window_tokens, request.target_tokens, settings.target_model
        kept = pinned(request.analysis, *view, None, "model")
    runs = groupby(turns, key=lambda turn: turn.turn.id if turn.turn.id in shown else "")
    return tuple(
        _card(request, kept, next(run), shown[turn_id]) if turn_id else _fold(request, list(run))
        for turn_id, run in runs
    )


def _first(choices: Iterable[T], fits: Callable[[T], bool]) -> T:
    """Return the first of `choices` that fits, each smaller than the one before; else the last."""
    for choice in choices:
        if fits(choice):
            break
    return choice


def _card(request: PlanRequest, pinned_lines: Pinned | None, turn: TurnEvidence, numbers: frozenset[int]) -> Card:
    lines, header = [turn.lines[number - 1] for number in sorted(numbers)], _header(request, turn, 0)
    others = (line for line in turn.lines if line.number not in numbers and line.text.strip())
    if not all(line.part == "call" and is_in_header(card_text(request, turn, line), header) for line in others):
        header = _header(request, turn, len(turn.lines))
    marks = _marks(turn) if lines else {}
    kept = frozenset() if pinned_lines is None or turn.turn.live else pinned_lines.lines(turn)
    shown = (
        f"{line.number}{marks[line.number]}{KEPT_MARK * (line.number in kept)} "
        f"{safe_text(card_text(request, turn, line))}"
        for line in lines
    )
    text = "\n".join([header, *shown])
    return Card([turn], header, tuple(lines), text, request.counter.text(text))


def _fold(request: PlanRequest, run: Sequence[TurnEvidence]) -> Card:
    """Return one card for neighbours without their own cards."""
    ids = spans(turn.turn.number for turn in run)
    header = f"## {ids} · {sum(turn.tokens for turn in run)} · {len(run)} turns"
    return Card(run, header, (), header, request.counter.text(header))


def _marks(turn: TurnEvidence) -> Mapping[int, str]:
    """Return the kind of each line; the prompt explains the marks."""
    marks = {line.number: ":" if line.source == "planner" else _PART_MARKS[line.part] for line in turn.lines}
    for place, call in enumerate(turn.calls, 1):
        marks |= turn.sides(call)
        if len(turn.calls) > 1:
            marks |= {line.number: f"|{place}" for line in turn.lines_of(call.result_block)}
    marks |= {number: "!" for number in turn.failure_lines if marks[number][0] in "|>"}
    return marks | {line.number: '"' for line in turn.user_lines}


# Headers.


def _header(request: PlanRequest, turn: TurnEvidence, all_lines: int) -> str:
    """Return the header of a card of `turn`, with the number of `all_lines` if not all of them are shown."""
    size = f"{turn.tokens}/{all_lines}" if all_lines else f"{turn.tokens}"
    return " · ".join(filter(None, (f"## {turn.turn.id}", size, _head(request, turn, HEAD_CHARACTERS), *_hints(turn))))


def _head(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the turn's distinct calls with their subjects, or its sender; on one line of `characters`."""
    if not characters:
        return ""
    shown = request.evidence.shown
    subjects = {call.number: _clipped(shown(call.head_subject), characters // 2) for call in turn.calls}
    heads = Counter(" ".join(filter(None, (call.name, subjects[call.number], *_flags(call)))) for call in turn.calls)
    head = "; ".join(f"{head} ×{n}" if n > 1 else head for head, n in heads.items())
    return one_line(head or {"assistant": "agent"}.get(turn.turn.kind, turn.turn.kind), characters)


def _flags(call: Call) -> Iterator[str]:
    """Yield the switches of a call that change its effect: ``replace_all``."""
    return (name for name, value in islice(call.input.items(), MOST_FLAGS) if value is True)


def _clipped(subject: str, most: int) -> str:
    """Return `subject` within `most` characters: the end of a path, the beginning of anything else."""
    if len(subject) > most and "/" in subject and " " not in subject:
        return f"…{subject[1 - most :]}"
    return one_line(subject, most)


def _hints(turn: TurnEvidence) -> list[str]:
    refused = any(map(turn.is_refused, turn.calls))
    hints = ["hint: refused by the user"] if refused else ["hint: failed?"] if turn.failed else []
    if not turn.failed and any(outcome.status == "passed" for outcome in turn.outcomes):
        hints.append("hint: passed")
    if empty := _empty_results(turn):
        hints.append("empty result" if len(turn.calls) == 1 else f"empty result of call {', '.join(map(str, empty))}")
    if turn.turn.live:
        hints.append("LIVE")
    return hints


def _empty_results(turn: TurnEvidence) -> list[int]:
    """Return which of the turn's calls, counted from 1, returned nothing."""
    return [
        place
        for place, call in enumerate(turn.calls, 1)
        if call.result_block is not None and not any(line.text.strip() for line in turn.lines_of(call.result_block))
    ]


# Lines of an index.


def _index_line(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return a turn's size and calls, or its first words, so that the model recognises it."""
    head = _head(request, turn, characters)
    if not turn.calls and turn.lines:
        head = one_line(f"{head}: {(turn.user_lines or turn.lines)[0].text}", characters)
    return f"{turn.turn.id} · {turn.tokens}/{len(turn.lines)} · {head}"


def turn_heads(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    """Return a line for each of `turns`."""
    return "\n".join(_index_line(request, turn, TURN_HEAD_CHARACTERS) for turn in turns)


def turn_index(request: PlanRequest, earlier: CompactionPlan, most_tokens: int) -> str:
    """Return the choices of planners for turns that they have read: a line for each with text, else one for a run.

    Turns without a choice are left out. Heads get shorter until all lines fit `most_tokens`.
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
        if strategy in ("reference", "drop") or not characters:
            tokens = sum(turn.tokens for turn in members)
            yield f"{spans(turn.turn.number for turn in members)} · {tokens} tokens · {strategy}"
            continue
        for turn in members:
            decision = earlier.decisions[turn.turn.id]
            chosen = f"{strategy} {round(decision.relevance_score * BEST_SCORE)}"
            gist = one_line(decision.summary, characters)
            yield " · ".join(filter(None, (_index_line(request, turn, characters), chosen, gist)))


def history_index(request: PlanRequest, earlier: CompactionPlan | None) -> str:
    """Return a line for each turn, and the decisions after the last compaction, if there is room."""
    read, new = read_and_new(request, earlier)
    before = []
    if earlier is not None:
        others = f"{spans(turn.turn.number for turn in read)} · all others: the best of their lines stand"
        before = [line for line in (turn_index(request, earlier, EARLIER_TOKENS), others) if line]
    most = max(INDEX_FLOOR_TOKENS, request.analysis.tokens * INDEX_SHARE)
    texts = ("\n".join([*before, *(_staying(request, turn, c) for turn in new)]) for c in INDEX_CHARACTERS)
    return _first(texts, lambda text: request.counter.text(text) <= most)


def _staying(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the turn's line, and whether the turn stays anyway, whole or in part."""
    stays = " · LIVE" if turn.turn.live else " · kept" if turn.obligations else ""
    return _index_line(request, turn, characters) + stays
