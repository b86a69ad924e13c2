"""Request in the form that rules read, and the violation of a rule, which is a value and never an exception."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from planner.reading.families import ModelFamily
from planner.reading.lazy_property import lazy_property
from planner.reading.messages import Block, Message, blocks


class PlacedBlock(NamedTuple):
    """Block with its place in the request."""

    message: int
    """Index of its message."""
    block_index: int
    """Index of the block in that message."""
    block: Block


class PlacedCall(NamedTuple):
    """Place of a call, or of a result, in the request."""

    message: int
    """Index of its message."""
    block_index: int
    """Index of its block in that message."""
    call: str
    """Id of the call."""


class CallRound(NamedTuple):
    """Calls in neighbouring assistant messages, which are one message for the API, and their results."""

    calls: list[PlacedCall]
    results: list[PlacedCall]
    """Results in the user's messages right after the calls, whether or not they belong to these calls."""
    next_index: int
    """Index of the message after the calls."""


def place_of(message: int, block: int | None = None) -> str:
    """Return ``messages[3]`` or ``messages[3].content[1]``."""
    return f"messages[{message}]" if block is None else f"messages[{message}].content[{block}]"


@dataclass(frozen=True)
class CheckedRequest:
    """Request under check; rules only read it."""

    messages: Sequence[Message]
    family: ModelFamily
    thinking_enabled: bool | None = None
    """True if the request asks for thinking. With None, rules that depend on it are skipped."""

    @lazy_property
    def blocks(self) -> list[PlacedBlock]:
        """Top-level blocks of all messages, in order."""
        contents = enumerate(map(blocks, self.messages))
        return [PlacedBlock(at, index, block) for at, content in contents for index, block in enumerate(content)]

    @lazy_property
    def rounds(self) -> list[CallRound]:
        """Calls and results of each run of assistant messages."""
        by_role = groupby(enumerate(self.messages), lambda indexed: str(indexed[1]["role"]))
        runs = [(role, [at for at, _ in run]) for role, run in by_role]
        rounds = list[CallRound]()
        for (role, run), (next_role, next_run) in pairwise([*runs, ("", [])]):
            if role == "assistant":
                calls = self._placed(run, "tool_use", "id")
                results = self._placed(next_run if next_role == "user" else [], "tool_result", "tool_use_id")
                rounds.append(CallRound(list(calls), list(results), run[-1] + 1))
        return rounds

    def _placed(self, messages: Sequence[int], kind: str, key: str) -> Iterator[PlacedCall]:
        """Yield the place of each block of type `kind` in the messages with these indices. `key`: field of the block
        with the id of its call."""
        for at in messages:
            for index, block in enumerate(blocks(self.messages[at])):
                if block["type"] == kind:
                    yield PlacedCall(at, index, str(block.get(key)))

    @property
    def last_answer(self) -> int:
        """Index of the last assistant message; -1 without one."""
        indices = reversed(range(len(self.messages)))
        return next((at for at in indices if self.messages[at]["role"] == "assistant"), -1)

    @property
    def last_answer_content(self) -> Sequence[Block]:
        """Content of the last assistant message; empty without one."""
        return blocks(self.messages[self.last_answer]) if self.last_answer >= 0 else ()


MENDED_BY_THE_API = frozenset({"alternation", "result_order", "split_results"})
"""Codes of violations that the Messages API accepts: it merges neighbours of one role and pairs results by their ids.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """Violation of one rule at one place of a request."""

    rule: int
    """Number of the rule, which the docstring of its function describes."""
    place: str
    """Place in the request: ``messages[3].content[1]``, ``messages[3]`` or ``messages``."""
    problem: str
    cure: str
    code: str
    """Name of the problem: ``alternation``, ``split_results``, …"""

    @property
    def message(self) -> int:
        """Index of the message at that place; not for ``messages``, the place of a problem of the whole list."""
        return int(self.place.removeprefix("messages[").partition("]")[0])

    @property
    def refused(self) -> bool:
        """True if the Messages API answers 400; False if only stricter providers refuse it."""
        return self.code not in MENDED_BY_THE_API

    def __str__(self) -> str:
        """Return one line: the place, the problem, the remedy and the rule."""
        return f"{self.place}: {self.problem}; {self.cure} (rule {self.rule})"
