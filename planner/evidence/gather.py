"""Evidence of every turn of a history, gathered once and shared by planners, fit and guards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from planner.evidence.calls import Call, calls_of
from planner.evidence.failures import failures_of
from planner.evidence.grounding import NameIndex
from planner.evidence.roots import common_root, without_root
from planner.evidence.superseded import outdated_turns
from planner.evidence.user_words import bonds_of, own_words
from planner.reading.history import History, Turn
from planner.reading.lines import Line, Statement, join_lines, statements, turn_lines
from planner.reading.tokens import TokenCounter

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]

HEAD_CHARACTERS = 40
"""How much of a call's subject stands in its one-line head."""
FAILED_HEAD_CHARACTERS = 110
"""Of a call that failed: what was tried must be told from what is tried next."""
_VALUE = re.compile(
    r"[$€£¥]\s?\d[\d.,]*[kKmM]?\b|\b\d{4}-\d\d-\d\d\b"
    r"|\b\d+(?:[.,]\d+)*\s?(?:%|(?:ms|s|sec|seconds?|min|minutes?|h|hours?|days?|[KMG]i?B|tokens?|USD|EUR)\b)"
)
"""Amounts, dates and measures: who says the same words with another one replaces it."""


@dataclass(frozen=True)
class TurnEvidence:
    """What one turn holds."""

    turn: Turn
    lines: tuple[Line, ...]
    calls: tuple[Call, ...]
    tokens: int
    """Of the whole turn, as it stands in the history."""
    failure_lines: tuple[int, ...]
    """Numbers of the lines that show that something failed here; empty when nothing did."""
    decisive_lines: tuple[int, ...]
    """Of those, what says most of each failure."""
    constraint_lines: tuple[int, ...]
    """Numbers of the lines with words of the user that bind the agent; whoever's message carries them."""
    demand_lines: tuple[int, ...]
    """Of those, what says that it binds: must, never, only, instead."""
    setback_lines: tuple[int, ...]
    """Numbers of the lines in which the agent says that something is not as it was hoped."""
    superseded_by: str
    """The later turn that made this one outdated (the same file read or written again), or empty."""

    @property
    def failed(self) -> bool:
        """True if this turn is a failed approach."""
        return bool(self.failure_lines)

    @property
    def head(self) -> str:
        """The turn in one line: its calls with their subjects, or who speaks."""
        return "; ".join(call_head(call) for call in self.calls) or self.turn.kind

    @cached_property
    def text(self) -> str:
        """All its lines."""
        return join_lines(self.lines)

    @cached_property
    def names(self) -> NameIndex:
        """What it names."""
        return NameIndex(self.text)

    def statements_of(self, numbers: Iterable[int]) -> Iterator[Statement]:
        """The statements that the lines with these `numbers` make, in their order."""
        return statements(self.lines[number - 1] for number in numbers)

    @cached_property
    def user_lines(self) -> tuple[Line, ...]:
        """The lines that are the user's own words."""
        return own_words(self.lines)

    @cached_property
    def _by_block(self) -> dict[int, tuple[Line, ...]]:
        grouped: dict[int, list[Line]] = {}
        for line in self.lines:
            grouped.setdefault(line.block, []).append(line)
        return {block: tuple(lines) for block, lines in grouped.items()}

    def lines_of(self, block: int | None) -> tuple[Line, ...]:
        """The lines of one block of the turn, by its index; none for None."""
        return self._by_block.get(block, ()) if block is not None else ()

    def outcome_of(self, call: Call) -> str:
        """How `call` ended, in one line; empty if it has no result, or one without text."""
        lines = self.lines_of(call.result_block)
        decisive = set(self.decisive_lines)
        told = [line for line in lines if line.number in decisive] or [line for line in lines if line.text.strip()][-1:]
        return " ".join(told[0].text.split()) if told else ""

    @property
    def obligations(self) -> frozenset[int]:
        """Numbers of the lines that stand whatever the target: what decided failures, demands of the user."""
        return frozenset(self.decisive_lines) | frozenset(self.demand_lines)

    @property
    def claims(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the lines that stand before others as far as the target allows, by kind, the foremost first."""
        return self.constraint_lines, self.failure_lines, self.setback_lines


@dataclass(frozen=True)
class Evidence:
    """Evidence of all turns, by turn id, in order."""

    turns: dict[str, TurnEvidence]
    root: str = ""
    """The folder that most absolute paths of the history are in, without a slash at its end; may be empty."""

    def shown(self, text: str) -> str:
        """`text` as it stands in a note: paths below the root without it."""
        return without_root(text, self.root)

    @property
    def tokens(self) -> int:
        """Of the whole history."""
        return sum(turn.tokens for turn in self.turns.values())


def call_head(call: Call, root: str = "", failed: bool = False) -> str:
    """A call in a few words: the tool and its subject, without `root`; of one that failed, what was tried."""
    subject, most = (call.attempt, FAILED_HEAD_CHARACTERS) if failed else (call.subject, HEAD_CHARACTERS)
    subject = without_root(subject, root)
    if len(subject) > most:
        subject = subject[: most - 1] + "…"
    return f"{call.name} {subject}".strip()


def gather_evidence(
    history: History, counter: TokenCounter, known: Mapping[str, TurnEvidence] | None = None
) -> Evidence:
    """The evidence of `history`, deterministic, without a model; `known` turns, by digest, are not read again."""
    calls = {turn.id: calls_of(history, turn) for turn in history.turns}
    outdated = outdated_turns(calls)
    turns = {
        turn.id: _turn_evidence(history, turn, calls[turn.id], outdated.get(turn.id, ""), counter)
        for turn in history.turns
    }
    turns = _said_once(turns)
    return Evidence(turns, common_root(line.text for turn in turns.values() for line in turn.lines))


def _said_once(turns: dict[str, TurnEvidence]) -> dict[str, TurnEvidence]:
    """`turns` in which words of the user that are said again later, to the letter or with other values, bind there."""
    later: set[str] = set()
    once: dict[str, TurnEvidence] = {}
    for turn_id, turn in reversed(turns.items()):
        said = {one: _VALUE.sub("0", one.text) for one in turn.statements_of(turn.constraint_lines)}
        again = {number for one, form in said.items() if form in later for number in one.numbers}
        later.update(said.values())
        once[turn_id] = replace(
            turn,
            constraint_lines=tuple(number for number in turn.constraint_lines if number not in again),
            demand_lines=tuple(number for number in turn.demand_lines if number not in again),
        )
    return dict(reversed(once.items()))


def _turn_evidence(
    history: History, turn: Turn, calls: tuple[Call, ...], superseded_by: str, counter: TokenCounter
) -> TurnEvidence:
    lines = turn_lines(history, turn)
    said = tuple(statements(lines))
    failures, bonds = failures_of(said, calls), bonds_of(said)
    return TurnEvidence(
        turn,
        lines,
        calls,
        counter.messages(history.messages_of(turn)),
        failures.lines,
        failures.decisive,
        bonds.lines,
        bonds.demands,
        failures.setbacks,
        superseded_by,
    )
