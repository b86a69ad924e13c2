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
from planner.model.card_lines import card_text, is_in_header, lines_of_cards, sources_of_repeats
from planner.model.prompts import one_line, safe_text
from planner.pinned import Pinned, pinned
from planner.plan import CompactionPlan
from planner.proposal import PlanRequest, read_and_new
from planner.reading.lines import Line

__all__ = ["Card", "history_index", "turn_cards", "turn_heads", "turn_index"]

HEAD_CHARACTERS = 160
"""Largest length of the calls in the header of a card."""
TURN_HEAD_CHARACTERS = 100
"""The same for a neighbouring turn that is listed only for orientation."""
INDEX_CHARACTERS, CHOSEN_CHARACTERS = (100, 60, 30, 12), (80, 40, 0)
"""Largest lengths of the calls of a turn in an index of all turns, and in one of earlier choices; tried from the
longest until the index fits."""
INDEX_SHARE, INDEX_FLOOR_TOKENS, EARLIER_TOKENS = 0.03, 2_000, 1_000
"""Largest size of the index in a question after the agent's prefix: a share of the history's tokens, but at least this
number; and the tokens in it for earlier choices. The index is not cached."""

MOST_FLAGS = 16
"""Number of a call's arguments that are searched for switches (arguments that are True)."""
LEAST_REPEATS = 2
"""Number of lines left out because another card shows them, from which a header names that card."""
KEPT_MARK = "*"
"""Mark of a line that stays whatever the planner decides."""
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
    """Return the cards of `turns`, in order, together within about `budget_tokens`; runs of turns without space for
    lines share a card. With `mark_kept`, lines that stay whatever the planner decides are marked."""
    settings = request.settings
    shown = lines_of_cards(
        request, turns, lambda turn: _header(request, turn, len(turn.lines)), budget_tokens / request.counter.scale
    )
    kept = None
    if mark_kept:
        view = settings.window_tokens, request.target_tokens, settings.target_model
        kept = pinned(request.analysis, *view, None, "model")
    repeats = sources_of_repeats(request, turns, shown)
    runs = groupby(turns, key=lambda turn: turn.turn.id if turn.turn.id in shown else "")
    return tuple(
        _card(request, kept, next(run), shown[turn_id], repeats[turn_id]) if turn_id else _fold(request, list(run))
        for turn_id, run in runs
    )


def _first(choices: Iterable[T], fits: Callable[[T], bool]) -> T:
    """Return the first of `choices` for which `fits` is true, else the last."""
    for choice in choices:
        if fits(choice):
            break
    return choice


def _card(
    request: PlanRequest,
    pinned_lines: Pinned | None,
    turn: TurnEvidence,
    numbers: frozenset[int],
    repeats: Mapping[str, int],
) -> Card:
    """Return the card of `turn` with the lines `numbers`.

    Its header has the number of all lines if lines with content are left out that the header does not show, and names
    the turn whose card shows most of them (`repeats`: number of such lines by turn id).
    """
    lines, header = [turn.lines[number - 1] for number in sorted(numbers)], _header(request, turn, 0)
    others = (line for line in turn.lines if line.number not in numbers and line.text.strip())
    if not all(line.part == "call" and is_in_header(card_text(request, turn, line), header) for line in others):
        header = _header(request, turn, len(turn.lines))
    source = max(repeats, key=repeats.__getitem__, default="")
    if source and repeats[source] >= LEAST_REPEATS:
        header += f" · {repeats[source]} lines as in {source}"
    marks = _marks(turn) if lines else {}
    pinned_numbers = frozenset() if pinned_lines is None or turn.turn.live else pinned_lines.lines(turn)
    shown = (
        f"{line.number}{marks[line.number]}{KEPT_MARK * (line.number in pinned_numbers)} "
        f"{safe_text(card_text(request, turn, line))}"
        for line in lines
    )
    text = "\n".join([header, *shown])
    return Card([turn], header, tuple(lines), text, request.counter.text(text))


def _fold(request: PlanRequest, run: Sequence[TurnEvidence]) -> Card:
    """Return one card, a header alone, for neighbouring turns without their own cards."""
    ids = spans(turn.turn.number for turn in run)
    header = f"## {ids} · {sum(turn.tokens for turn in run)} · {len(run)} turns"
    return Card(run, header, (), header, request.counter.text(header))


def _marks(turn: TurnEvidence) -> Mapping[int, str]:
    """Return the mark of each line by number, which shows its kind; the prompt explains the marks."""
    marks = {line.number: ":" if line.source == "planner" else _PART_MARKS[line.part] for line in turn.lines}
    for place, call in enumerate(turn.calls, 1):
        marks |= turn.sides(call)
        if len(turn.calls) > 1:
            marks |= {line.number: f"|{place}" for line in turn.lines_of(call.result_block)}
    marks |= {number: "!" for number in turn.failure_lines if marks[number][0] in "|>"}
    return marks | {line.number: '"' for line in turn.user_lines}


# Headers.


def _header(request: PlanRequest, turn: TurnEvidence, all_lines: int) -> str:
    """Return the header of a card: id, tokens, number of lines (`all_lines`, 0 if all are shown), calls, hints."""
    size = f"{turn.tokens}/{all_lines}" if all_lines else f"{turn.tokens}"
    return " · ".join(filter(None, (f"## {turn.turn.id}", size, _head(request, turn, HEAD_CHARACTERS), *_hints(turn))))


def _head(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the distinct calls of a turn with their subjects (path, command or query), or its sender if it has no
    calls, on one line of at most `characters`."""
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
    """Return remarks on how the turn's calls ended, and whether it is live."""
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
    """Return the places of the turn's calls, counted from 1, whose results are empty."""
    return [
        place
        for place, call in enumerate(turn.calls, 1)
        if call.result_block is not None and not any(line.text.strip() for line in turn.lines_of(call.result_block))
    ]


# Lines of an index.


def _index_line(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return one line with the turn's id, tokens, number of lines, and calls or first words."""
    head = _head(request, turn, characters)
    if not turn.calls and turn.lines:
        head = one_line(f"{head}: {(turn.user_lines or turn.lines)[0].text}", characters)
    return f"{turn.turn.id} · {turn.tokens}/{len(turn.lines)} · {head}"


def turn_heads(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    """Return one line for each of `turns`, to orient the model."""
    return "\n".join(_index_line(request, turn, TURN_HEAD_CHARACTERS) for turn in turns)


def turn_index(request: PlanRequest, earlier: CompactionPlan, most_tokens: int) -> str:
    """Return the choices of earlier planners as text: one line for each kept or summarized turn, one for each run of
    others with the same strategy.

    Turns without a choice are left out. Lines get shorter until all fit in `most_tokens`.
    """
    read, _ = read_and_new(request, earlier)
    named = frozenset(earlier.provenance.named) & earlier.decisions.keys()
    turns = [turn for turn in read if turn.turn.id in named]
    texts = ("\n".join(_chosen_lines(request, earlier, turns, characters)) for characters in CHOSEN_CHARACTERS)
    return _first(texts, lambda text: request.counter.text(text) <= most_tokens)


def _chosen_lines(
    request: PlanRequest, earlier: CompactionPlan, turns: Sequence[TurnEvidence], characters: int
) -> Iterator[str]:
    """Yield the lines of `turn_index`, with calls and summaries of at most `characters`; 0: a line for each run."""
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
    """Return an index of the history: a line for each turn that no planner has read, after those of `turn_index` for an
    `earlier` plan. Lines get shorter until all fit."""
    read, new = read_and_new(request, earlier)
    before = []
    if earlier is not None:
        others = f"{spans(turn.turn.number for turn in read)} · all others: the best of their lines stand"
        before = [line for line in (turn_index(request, earlier, EARLIER_TOKENS), others) if line]
    most = max(INDEX_FLOOR_TOKENS, request.analysis.tokens * INDEX_SHARE)
    texts = ("\n".join([*before, *(_staying(request, turn, c) for turn in new)]) for c in INDEX_CHARACTERS)
    return _first(texts, lambda text: request.counter.text(text) <= most)


def _staying(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the turn's line, with ``LIVE`` or ``kept`` if all or some of it stays in any case."""
    stays = " · LIVE" if turn.turn.live else " · kept" if turn.obligations else ""
    return _index_line(request, turn, characters) + stays
