"""Evidence of every turn of a history, gathered once and shared by planners, selection and guards.

The evidence of a turn alone is a pure function of its messages and is kept when the history grows. Its relations to
other turns (superseded, repeated, answered) are a second pass, linear in turns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from planner.evidence.calls import Call, calls_of, read_call, superseded_turns
from planner.evidence.field import Field
from planner.evidence.hosts import attributed, boilerplate_of
from planner.evidence.outcomes import Outcome, is_refusal, listed_failures, read_outcome
from planner.evidence.turns import Evidence, TurnEvidence
from planner.evidence.user_words import Choice, answered_offer
from planner.reading.history import History, Turn
from planner.reading.lines import (
    Line,
    Lines,
    Statement,
    join_lines,
    numbers_of,
    statements,
    turn_lines,
    without_escapes,
)
from planner.reading.tokens import TokenCounter
from planner.settings import ToolUse

__all__ = ["gather_evidence"]


def gather_evidence(
    history: History,
    counter: TokenCounter,
    known: Evidence | None = None,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    field: Field | None = None,
) -> Evidence:
    """Return the evidence of `history`, deterministic and without a model.

    `known`: earlier evidence made with the same counter, whose turns are not read again; `uses`: declarations of tools
    by name; `field`: the fields of work that know tools.
    """
    known, field = known or Evidence({}), field or Field()
    read = {
        turn.id: known.by_digest.get(turn.digest) or _read_turn(history, turn, counter, uses, field)
        for turn in history.turns
    }
    read = {turn.id: _with(read[turn.id], turn=turn) for turn in history.turns}
    turns = _related(read)
    root, by_digest = field.common_name(list(read.values())), {turn.turn.digest: turn for turn in read.values()}
    return Evidence(turns, root, by_digest, field.record, known.entries)


def _with(turn: TurnEvidence, /, **fields: Any) -> TurnEvidence:
    """Return `turn` with these field values; the same object if it has them already."""
    return turn if all(getattr(turn, name) == value for name, value in fields.items()) else replace(turn, **fields)


def _read_turn(
    history: History, turn: Turn, counter: TokenCounter, uses: Mapping[str, ToolUse], field: Field
) -> TurnEvidence:
    """Return the evidence of one turn, read from its messages alone."""
    tokens = counter.messages(history.messages_of(turn))  # first: while it counts, it holds all texts once more
    calls = calls_of(
        history, turn, uses, lambda name, arguments: field.read_call(name, arguments, read_call(name, arguments))
    )
    lines = attributed(turn_lines(history, turn), calls)
    read = lines.to_read()
    all_statements = [
        one._replace(text=without_escapes(one.text)) if "\x1b" in one.text else one for one in statements(read)
    ]
    results = {block: list(group) for block, group in groupby(all_statements, key=attrgetter("block"))}
    outcomes = [_outcome(call, results, field) for call in (*calls, *_unasked(lines, calls))]
    listed = list(listed_failures(all_statements))
    return TurnEvidence(
        turn=turn,
        lines=lines,
        calls=calls,
        outcomes=tuple(outcomes[: len(calls)]),
        tokens=tokens,
        line_tokens=_line_tokens(read, len(lines), counter),
        failure_lines=_numbers([numbers_of(entry[:1]) for entry in listed], [one.reasons for one in outcomes]),
        decisive_lines=_numbers([numbers_of(entry) for entry in listed], [one.decisive for one in outcomes]),
        boilerplate_lines=boilerplate_of(read),
    )


def _outcome(call: Call, results: Mapping[int, Sequence[Statement]], field: Field) -> Outcome:
    """Return how `call` ended, by general signs and then by `field`; `results`: statements by block."""
    result = results.get(call.result_block, ()) if call.result_block is not None else ()
    return field.read_result(call, result, read_outcome(call, result))


def _numbers(*groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted({number for group in groups for numbers in group for number in numbers}))


def _unasked(lines: Lines, calls: Sequence[Call]) -> Iterator[Call]:
    """Yield an unnamed call for each result without a call: an agent that writes its calls as text has only results."""
    answered = {call.result_block for call in calls}
    for text in lines.texts:
        if text.part == "result" and text.block not in answered:
            yield Call("", {}, text.block, text.block, {"type": "tool_result", "content": text.text})


def _line_tokens(read: Sequence[Line], count: int, counter: TokenCounter) -> array[int]:
    """Return the raw tokens of each of the turn's `count` lines with its line break; 0 for lines not in `read`."""
    tokens = array("I", bytes(4 * count))
    for line in read:
        tokens[line.number - 1] = counter.raw(line.text + "\n")
    return tokens


def _related(read: Mapping[str, TurnEvidence]) -> dict[str, TurnEvidence]:
    """Return the turns by id, each with the fields that depend on other turns."""
    turns = list(read.values())
    calls_by_turn = {
        turn.turn.id: [(call, outcome.status in ("passed", "done", "running")) for call, outcome in turn.ended_calls]
        for turn in turns
    }
    superseded = superseded_turns(calls_by_turn)
    answers, quieter = dict(_answers(turns)), dict(_without_noise(turns))
    related = {}
    for previous, turn in zip([None, *turns], turns, strict=False):
        turn_id = turn.turn.id
        decisive, outcomes = quieter.get(turn_id, (turn.decisive_lines, turn.outcomes))
        related[turn_id] = _with(
            turn,
            superseded_by=superseded.get(turn_id, ""),
            answered_at=answers.get(turn_id, ""),
            decisive_lines=decisive,
            outcomes=outcomes,
            choice=_choice(previous, turn),
        )
    return related


def _without_noise(turns: Sequence[TurnEvidence]) -> Iterator[tuple[str, tuple[tuple[int, ...], tuple[Outcome, ...]]]]:
    """Yield id, new decisive lines and new outcomes of turns with a decisive line that a passed run prints, too: it is
    no reason of a failure, and the next reason replaces it if there is one."""
    decisive = {turn.lines.text(number).strip() for turn in turns for number in turn.decisive_lines}
    ended_calls = (one for turn in turns if decisive for one in turn.ended_calls)
    passed_texts = (call.text for call, outcome in ended_calls if call.kind == "run" and outcome.has_passed)
    noise_texts = {line.strip() for text in passed_texts for line in text.splitlines()} & decisive
    for turn in turns if noise_texts else ():
        noise_lines = {number for number in turn.failure_lines if turn.lines.text(number).strip() in noise_texts}
        outcomes = tuple(_without(outcome, noise_lines) for outcome in turn.outcomes)
        if outcomes != turn.outcomes:
            kept = {number for number in turn.decisive_lines if number not in noise_lines}
            yield turn.turn.id, (tuple(sorted(kept.union(*(one.decisive for one in outcomes)))), outcomes)


def _without(outcome: Outcome, noise: set[int]) -> Outcome:
    """Return the outcome without the lines numbered `noise` as reasons; unchanged if there are no others."""
    reasons = tuple(number for number in outcome.reasons if number not in noise)
    if not reasons or noise.isdisjoint(outcome.decisive):
        return outcome
    decisive = tuple(number for number in outcome.decisive if number not in noise) or reasons[:1]
    lines = tuple(number for number in outcome.lines if number not in noise) or decisive
    return replace(outcome, reasons=reasons, decisive=decisive, lines=lines)


def _answers(turns: Sequence[TurnEvidence]) -> Iterator[tuple[str, str]]:
    """Yield the ids of turns in which the user asked for work, each with the id of the turn that ended it: an answer
    without calls or a question, after turns with calls, and before the user's next message or the end. It is none if
    the next message reports that the user stopped the agent."""
    asked, worked = "", False
    for turn, following in zip(turns, [*turns[1:], None], strict=False):
        if turn.turn.kind == "user":
            asked, worked = turn.turn.id, False
        worked = worked or bool(turn.calls)
        ends = following is None or (
            following.turn.kind == "user" and not any(is_refusal(line.text) for line in following.lines)
        )
        if asked and worked and ends and not turn.calls and not turn.text.rstrip("\n *_`\"')").endswith("?"):
            yield asked, turn.turn.id


def _choice(before: TurnEvidence | None, turn: TurnEvidence) -> Choice | None:
    """Return the option or question in the turn `before` that `turn` answers by a short reply; None for other turns."""
    if before is None or turn.turn.kind != "user":
        return None
    spoken = tuple(statements(before.lines.of_part("assistant")))
    return answered_offer(join_lines(turn.user_lines), spoken, before.turn.id) if spoken else None
