"""Request in the form that the rules read, with the model's family; and a rule's violation as a value, never an
exception."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from planner.reading.families import ModelFamily
from planner.reading.lazy_property import lazy_property
from planner.reading.messages import Block, Message, blocks

__all__ = ["MENDED_BY_THE_API", "CheckedRequest", "Violation", "place_of"]


_Place = tuple[int, int, str]
"""Call or result: index of its message, index of its block there, and id of the call."""


def place_of(message: int, block: int | None = None) -> str:
    """Return ``messages[3]`` or ``messages[3].content[1]``."""
    return f"messages[{message}]" if block is None else f"messages[{message}].content[{block}]"


@dataclass(frozen=True)
class CheckedRequest:
    """Request under check; rules only read it."""

    messages: Sequence[Message]
    family: ModelFamily
    thinking_enabled: bool | None = None
    """None if unknown; rules that depend on it are skipped."""

    @lazy_property
    def blocks(self) -> list[tuple[int, int, Block]]:
        """Top-level blocks, each with the index of its message and its own."""
        contents = enumerate(map(blocks, self.messages))
        return [(at, index, block) for at, content in contents for index, block in enumerate(content)]

    @lazy_property
    def rounds(self) -> list[tuple[list[_Place], list[_Place], int]]:
        """Calls of each run of assistant messages, results in the run of user messages after it (none if there is no
        such run), and the index of the message after the calls. Neighbours of one role are one message for the API."""
        by_role = groupby(enumerate(self.messages), lambda indexed: str(indexed[1]["role"]))
        runs = [(role, [at for at, _ in run]) for role, run in by_role]
        return [
            (
                list(self._named(call_run, "tool_use", "id")),
                list(self._named(next_run if next_role == "user" else [], "tool_result", "tool_use_id")),
                call_run[-1] + 1,
            )
            for (role, call_run), (next_role, next_run) in pairwise([*runs, ("", [])])
            if role == "assistant"
        ]

    def _named(self, messages: Sequence[int], kind: str, key: str) -> Iterator[_Place]:
        """Yield the place of each block of type `kind` in the messages with these indices, with its id under `key`."""
        for at in messages:
            for index, block in enumerate(blocks(self.messages[at])):
                if block["type"] == kind:
                    yield at, index, str(block.get(key))

    @property
    def last_answer(self) -> tuple[int, Sequence[Block]]:
        """Index and content of the last assistant message; -1 and an empty list without one."""
        for at in reversed(range(len(self.messages))):
            if self.messages[at]["role"] == "assistant":
                return at, blocks(self.messages[at])
        return -1, ()


MENDED_BY_THE_API = frozenset({"alternation", "result_order", "split_results"})
"""Codes of violations that the Messages API repairs itself: it merges neighbours of one role and pairs results by id.
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
    """Name of the problem among those of one rule: ``alternation``, ``split_results``, …"""

    @property
    def message(self) -> int:
        """Index of the message at that place; a rule on calls always has one."""
        return int(self.place.removeprefix("messages[").partition("]")[0])

    @property
    def refused(self) -> bool:
        """True if the Messages API answers 400; False if only stricter providers refuse it."""
        return self.code not in MENDED_BY_THE_API

    def __str__(self) -> str:
        """Return one line: the place, the problem, the remedy and the rule."""
        return f"{self.place}: {self.problem}; {self.cure} (rule {self.rule})"
