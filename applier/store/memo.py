"""Which histories were saved last, so that saving one that grew reads its new messages only.

A shortcut and never the truth: what it says is stored is checked in the store before it is relied on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.store.chain import Node
from planner.history import History
from planner.messages import Message

__all__ = ["SavedMemo"]

_REMEMBERED = 8
"""Histories kept in mind: an agent's and those of its running subagents."""

Marks = tuple[object, ...] | None


@dataclass(frozen=True)
class _Saved:
    history: History
    nodes: Sequence[Node]
    marks: Sequence[Marks]
    """Of each message, what its content tells and its digest does not, see `message_digest`."""

    def shared_with(self, history: History) -> int:
        """How many messages at the front of `history` are certainly the ones saved."""
        for index, nodes in enumerate(zip(self.history.messages, history.messages, strict=False)):
            if not self._same(index, *nodes, history.digests[index]):
                return index
        return min(len(self.nodes), len(history.messages))

    def _same(self, index: int, saved: Message, message: Message, digest: str) -> bool:
        return (
            message is saved
            and digest == self.history.digests[index]
            and _marks(message["content"]) == self.marks[index]
        )


class SavedMemo:
    """The histories saved last, found by their first message."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._saved: dict[str, _Saved] = {}

    def prefix(self, history: History) -> Sequence[Node]:
        """The nodes of as many messages at the front of `history` as are known to be saved."""
        saved = self._saved.get(history.digests[0]) if history.digests else None
        return saved.nodes[: saved.shared_with(history)] if saved else ()

    def remember(self, history: History, nodes: Sequence[Node]) -> None:
        """`history` was saved as `nodes`."""
        if not nodes:
            return
        first = history.digests[0]
        known = dict(self._saved)
        known.pop(first, None)
        known[first] = _Saved(history, nodes, [_marks(message["content"]) for message in history.messages])
        self._saved = dict(list(known.items())[-_REMEMBERED:])


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
