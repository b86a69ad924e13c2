"""Evidence of every turn of a history, gathered once and shared by planners, selection and guards.

A first pass reads each turn alone; its result is kept when the history grows. A second pass adds the relations to other
turns, such as which turn repeats or answers it. Its time is linear in the number of turns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from planner.evidence.calls import Call, calls_of, read_call
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


def gather_evidence(
    history: History,
    counter: TokenCounter,
    known: Evidence | None = None,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    field: Field | None = None,
) -> Evidence:
    """Return the evidence of `history`. It is deterministic and asks no model.

    `known`: evidence of an earlier history, made with the same counter. Its turns are not read again.
    `uses`: declarations of tools, by name.
    `field`: the field of work that knows the tools; without it, tools are read by general signs alone.
    """
    known, field = known or Evidence({}), field or Field()
    read = {
        turn.id: known.by_digest.get(turn.digest) or _read_turn(history, turn, counter, uses, field)
        for turn in history.turns
    }
    # a turn of an earlier history may have left the live tail since
    read = {turn.id: _with(read[turn.id], turn=turn) for turn in history.turns}
    turns = _related(read)
    root, by_digest = field.common_name(list(read.values())), {turn.turn.digest: turn for turn in read.values()}
    return Evidence(turns, root, by_digest, field.record, known.entries)


def _with(turn: TurnEvidence, /, **fields: Any) -> TurnEvidence:
    """Return `turn` with these values of its fields; the same object if nothing changes."""
    return turn if all(getattr(turn, name) == value for name, value in fields.items()) else replace(turn, **fields)


def _read_turn(
    history: History, turn: Turn, counter: TokenCounter, uses: Mapping[str, ToolUse], field: Field
) -> TurnEvidence:
    """Return the evidence of one turn, read from its messages alone."""
    # tokens are counted before the lines are made, as counting needs the memory of all texts once more
    tokens = counter.messages(history.messages_of(turn))
    calls = calls_of(
        history, turn, uses, lambda name, arguments: field.read_call(name, arguments, read_call(name, arguments))
    )
    lines = attributed(turn_lines(history, turn), calls)
    read = lines.to_read()
    all_statements = list(map(_without_escapes, statements(read)))
    statements_by_block = {block: list(group) for block, group in groupby(all_statements, key=attrgetter("block"))}
    outcomes = [_outcome(call, statements_by_block, field) for call in (*calls, *_unasked(lines, calls))]
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


def _without_escapes(statement: Statement) -> Statement:
    """Return `statement` without the codes of a terminal."""
    return statement._replace(text=without_escapes(statement.text)) if "\x1b" in statement.text else statement


def _outcome(call: Call, statements_by_block: Mapping[int, Sequence[Statement]], field: Field) -> Outcome:
    """Return how `call` ended, by general signs and then by `field`."""
    result = statements_by_block.get(call.result_block, ()) if call.result_block is not None else ()
    return field.read_result(call, result, read_outcome(call, result))


def _numbers(*groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return all numbers in `groups`, ascending, each once."""
    return tuple(sorted({number for group in groups for numbers in group for number in numbers}))


def _unasked(lines: Lines, calls: Sequence[Call]) -> Iterator[Call]:
    """Yield an unnamed call for each result that belongs to none of `calls`. Agents that write their calls as text have
    such results."""
    answered = {call.result_block for call in calls}
    for text in lines.texts:
        if text.part == "result" and text.block not in answered:
            yield Call("", {}, text.block, text.block, {"type": "tool_result", "content": text.text})


def _line_tokens(read: Sequence[Line], count: int, counter: TokenCounter) -> array[int]:
    """Return the raw tokens of each of the turn's `count` lines, with its line break; 0 for lines not in `read`."""
    tokens = array("I", bytes(4 * count))
    for line in read:
        tokens[line.number - 1] = counter.raw(line.text + "\n")
    return tokens


def _related(read: Mapping[str, TurnEvidence]) -> dict[str, TurnEvidence]:
    """Return the turns by id, each with the fields that depend on other turns."""
    turns = list(read.values())
    superseded, answers, noise = _superseded(turns), _answers(turns), _noise(turns)
    related = {}
    for previous, turn in zip([None, *turns], turns, strict=False):
        turn_id = turn.turn.id
        related[turn_id] = _with(
            _without_noise(turn, noise) if noise else turn,
            superseded_by=superseded.get(turn_id, ""),
            answered_at=answers.get(turn_id, ""),
            choice=_choice(previous, turn),
        )
    return related


def _superseded(turns: Sequence[TurnEvidence]) -> dict[str, str]:
    """Return the id of the later turn that supersedes a turn, by the id of the superseded turn.

    All calls of a superseded turn are repeated later. The later turn is the one that repeats the last of them.
    A call is repeated by the same call with the same result. A read of an object is also repeated by a later read of
    all of it, and by a call that writes it whole. A call with another result, such as "go east" in another room, is no
    repetition.
    """
    turn_of_content: dict[bytes, str] = {}  # id of the next turn that makes the same call
    turn_of_whole: dict[str, str] = {}  # id of the next turn that reads or writes the whole object
    superseded: dict[str, str] = {}
    for turn in reversed(turns):
        later_ids = []
        for call, content in zip(turn.calls, turn.once(_contents), strict=True):
            later_id = turn_of_content.get(content, "")
            later_ids.append(later_id or (turn_of_whole.get(call.path, "") if _reads_whole(call) else ""))
        if later_ids and all(later_ids):
            superseded[turn.turn.id] = later_ids[-1]
        for _, call, outcome in turn.ended_calls:
            if outcome.status in ("failed", "unanswered"):
                continue
            turn_of_content.setdefault(turn.once(_contents)[call.number], turn.turn.id)
            if _reads_whole(call) or call.reading.is_whole:
                turn_of_whole.setdefault(call.path, turn.turn.id)
        if any(call.reading.starts_anew for call in turn.calls):
            turn_of_content, turn_of_whole = {}, {}
    return superseded


def _contents(turn: TurnEvidence) -> tuple[bytes, ...]:
    return tuple(map(_content, turn.calls))


def _content(call: Call) -> bytes:
    """Return a digest of a call's input and, unless it only reads, of its result."""
    if call.kind in ("read", "search"):
        return call.identity
    text = call.text.encode("utf-8", "surrogatepass")
    return call.identity + blake2b(text, digest_size=16).digest()


def _reads_whole(call: Call) -> bool:
    return bool(call.path) and call.kind == "read" and not call.part


def _noise(turns: Sequence[TurnEvidence]) -> set[str]:
    """Return the texts of decisive lines that a run that passed prints, too, so that they explain no failure."""
    decisive = {turn.lines.text(number).strip() for turn in turns for number in turn.decisive_lines}
    ended_calls = (ended for turn in turns if decisive for ended in turn.ended_calls)
    passed_texts = (call.text for _, call, outcome in ended_calls if call.kind == "run" and outcome.has_passed)
    return {line.strip() for text in passed_texts for line in text.splitlines()} & decisive


def _without_noise(turn: TurnEvidence, noise_texts: set[str]) -> TurnEvidence:
    """Return `turn` with the next reason of a failure in place of each decisive line in `noise_texts`, if there is
    one."""
    noise_lines = {number for number in turn.failure_lines if turn.lines.text(number).strip() in noise_texts}
    outcomes = tuple(_without_reasons(outcome, noise_lines) for outcome in turn.outcomes)
    if outcomes == turn.outcomes:
        return turn
    decisive = [number for number in turn.decisive_lines if number not in noise_lines]
    return replace(turn, outcomes=outcomes, decisive_lines=_numbers([decisive], [one.decisive for one in outcomes]))


def _without_reasons(outcome: Outcome, noise: set[int]) -> Outcome:
    """Return the outcome without the lines numbered `noise`; unchanged if it has no other reason, or none of them is
    decisive."""
    reasons = tuple(number for number in outcome.reasons if number not in noise)
    if not reasons or noise.isdisjoint(outcome.decisive):
        return outcome
    decisive = tuple(number for number in outcome.decisive if number not in noise) or reasons[:1]
    lines = tuple(number for number in outcome.lines if number not in noise) or decisive
    return replace(outcome, reasons=reasons, decisive=decisive, lines=lines)


def _answers(turns: Sequence[TurnEvidence]) -> dict[str, str]:
    """Return the id of the turn with the agent's answer, by the id of the turn in which the user asked for work. The
    answer is the agent's last message before the user writes again, or at the end. It has no calls, follows turns with
    calls, and does not end with a question. There is none if the user stopped the agent."""
    asking_id, has_worked = "", False
    answers = {}
    for turn, following in zip(turns, [*turns[1:], None], strict=False):
        if turn.turn.kind == "user":
            asking_id, has_worked = turn.turn.id, False
        has_worked = has_worked or bool(turn.calls)
        if asking_id and has_worked and not turn.calls and _ends_work(following) and not _asks(turn):
            answers[asking_id] = turn.turn.id
    return answers


def _ends_work(following: TurnEvidence | None) -> bool:
    """Return True if the agent's work ends before the turn `following`, as this is a message of the user or missing. A
    message which reports that the user stopped the agent does not end the work."""
    if following is None:
        return True
    return following.turn.kind == "user" and not any(is_refusal(line.text) for line in following.lines)


def _asks(turn: TurnEvidence) -> bool:
    """Return True if the turn ends with a question mark, whatever marks follow it."""
    return turn.text.rstrip("\n *_`\"')").endswith("?")


def _choice(previous: TurnEvidence | None, turn: TurnEvidence) -> Choice | None:
    """Return the option or question in the turn `previous` that the user answers by a short reply in `turn`; None
    without one."""
    if previous is None or turn.turn.kind != "user":
        return None
    spoken = tuple(statements(previous.lines.of_part("assistant")))
    return answered_offer(join_lines(turn.user_lines), spoken, previous.turn.id) if spoken else None
