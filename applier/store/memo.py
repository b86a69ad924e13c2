"""Which histories were saved last, so that saving one that grew reads its new messages only.

A shortcut and never the truth: what it says is stored is checked in the store before it is relied on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.store.chain import Node
from planner.reading.history import History

__all__ = ["Known", "SavedMemo"]

_REMEMBERED = 8
"""Histories kept in mind: an agent's and those of its running subagents."""

Marks = tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the messages at the front of a history."""

    nodes: Sequence[Node] = ()
    marks: Sequence[Marks] = ()
    """Of each message, what its content tells and its digest does not, see `message_digest`."""


@dataclass(frozen=True, slots=True)
class _Saved:
    history: History
    known: Known

    def shared_with(self, history: History) -> int:
        """How many messages at the front of `history` are certainly the ones saved."""
        pairs = zip(self.history.messages, history.messages, strict=False)
        for index, (saved, message) in enumerate(pairs):
            if not (
                message is saved
                and history.digests[index] == self.history.digests[index]
                and _marks(message["content"]) == self.known.marks[index]
            ):
                return index
        return min(len(self.history.messages), len(history.messages))


class SavedMemo:
    """The histories saved last, found by their first message."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._saved: dict[str, _Saved] = {}

    def prefix(self, history: History) -> Known:
        """What is known of as many messages at the front of `history` as were certainly saved."""
        saved = self._saved.get(history.digests[0]) if history.digests else None
        if saved is None:
            return Known()
        count = saved.shared_with(history)
        return Known(saved.known.nodes[:count], saved.known.marks[:count])

    def remember(self, history: History, nodes: Sequence[Node], before: Known) -> None:
        """`history` was saved as `nodes`; `before` was known of its first messages."""
        if not nodes:
            return
        fresh = history.messages[len(before.nodes) :]
        known = Known(nodes, [*before.marks, *(_marks(message["content"]) for message in fresh)])
        first = history.digests[0]
        others = {key: saved for key, saved in self._saved.items() if key != first}
        others[first] = _Saved(history, known)
        self._saved = dict(list(others.items())[-_REMEMBERED:])


def _marks(content: object) -> Marks:
    """Where cache marks stand in `content`; None for text, which is not a block."""
    if not isinstance(content, list):
        return None
    return tuple(
        [
            (index, repr(block.get("cache_control")), _marks(block.get("content")))
            for index, block in enumerate(content)
            if isinstance(block, dict) and ("cache_control" in block or "content" in block)
        ]
    )
