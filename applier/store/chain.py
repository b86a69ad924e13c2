"""A history as a chain of nodes, each one message and everything before it.

Histories that share a prefix share its nodes, so saving a longer one costs the new messages only. A node's
digest covers its message and its parent, so a chain cannot be read back with anything changed in it.
`SavedMemo` remembers which were saved last: a shortcut and never the truth, checked in the store before use.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from applier.store.content import Content, digest_of, encode, pack, unpack
from applier.store.database import Transaction
from planner.errors import StoreDamaged, StoreError
from planner.reading.history import History
from planner.reading.messages import message_digest

__all__ = [
    "EMPTY_HISTORY",
    "NODE_TYPES",
    "ROOT",
    "Known",
    "Node",
    "SavedMemo",
    "add_nodes",
    "chain_of",
    "contents_of",
    "node_contents",
    "node_digest",
    "read_chain",
]

ROOT = b""
"""The parent of the first node; the tip of an empty history."""
EMPTY_HISTORY = hashlib.sha256(b"").digest()
"""What an empty history says."""

_COLUMNS = "digest, parent, position, turn, message, says"
NODE_TYPES = (bytes, bytes, int, int, bytes, bytes)
"""Those of the columns of ``nodes``, in the order of the fields of `Node`."""
_REMEMBERED = 8
"""Histories kept in mind: an agent's and those of its running subagents."""


@dataclass(frozen=True, slots=True)
class Node:
    """One row of the table ``nodes``."""

    digest: bytes
    parent: bytes
    position: int
    """1 for the first message."""
    turn: int
    """The number of the turn that the message belongs to."""
    message: bytes
    """The digest of the message's exact content."""
    says: bytes
    """The digest of the history that ends here, see `History.digest_at`."""


def node_digest(parent: bytes, position: int, turn: int, message: bytes, says: bytes) -> bytes:
    """What a node with these parts is named."""
    return hashlib.sha256(parent + message + says + f"{position}:{turn}".encode()).digest()


def chain_of(history: History, contents: Sequence[Content], start: Sequence[Node] = ()) -> list[Node]:
    """The nodes of `history`; `contents` are those of its messages from the end of `start` on."""
    nodes = list(start)
    turns = [turn.number for turn in history.turns for _ in range(turn.start, turn.stop)]
    for says, turn, content in zip(
        _prefix_digests(history.digests, len(start)), turns[len(start) :], contents, strict=True
    ):
        parent, position, message = (nodes[-1].digest if nodes else ROOT), len(nodes) + 1, digest_of(content)
        digest = node_digest(parent, position, turn, message, says)
        nodes.append(Node(digest, parent, position, turn, message, says))
    return nodes


def _prefix_digests(digests: Sequence[str], start: int) -> Iterator[bytes]:
    """`History.digest_at` for every count above `start`, each message hashed once."""
    running = hashlib.sha256("".join(digests[:start]).encode())
    for digest in digests[start:]:
        running.update(digest.encode())
        yield running.copy().digest()


def node_contents(history: History, start: int, cleaned: Callable[[Any], Any] | None) -> list[Content]:
    """The content of each message of `history` from index `start` on, exact, or as `cleaned` leaves it.

    Raises:
        StoreError: a message is not JSON data, or is not what it was when the history was read.
    """
    exact = [_checked(history, index) for index in range(start, len(history.messages))]
    if cleaned is None:
        return exact
    return [encode(cleaned(content.value()), f"messages[{index}]") for index, content in enumerate(exact, start)]


def _checked(history: History, index: int) -> Content:
    content = encode(history.messages[index], f"messages[{index}]")
    if message_digest(content.value()) != history.digests[index]:
        raise StoreError(
            f"messages[{index}]: changed since the history was read, or not plain JSON; read the history again"
        )
    return content


def add_nodes(transaction: Transaction, nodes: Sequence[Node], contents: Sequence[Content]) -> bool:
    """Store what is missing of the chain `nodes`; `contents` are those of its last messages.

    False, with nothing stored, if a node whose content is not known is missing.
    """
    known = len(nodes) - len(contents)

    def missing(node: Node) -> bool:
        return not transaction.rows("SELECT 1 FROM nodes WHERE digest = ?", (node.digest,))

    if known and missing(nodes[known - 1]):
        return False
    fresh = nodes[bisect_left(nodes, True, known, key=missing) :]  # the ancestors of a stored node are stored
    transaction.each(
        "INSERT INTO blobs VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(node.message, pack(contents[node.position - 1 - known])) for node in fresh],
    )
    transaction.each("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", [astuple(node) for node in fresh])
    return True


def read_chain(transaction: Transaction, tip: bytes, place: str) -> list[Node]:
    """The nodes from the first message to `tip`, in order.

    Raises:
        StoreDamaged: a node is missing or changed.
    """
    rows = transaction.rows(
        f"WITH RECURSIVE chain ({_COLUMNS}) AS (SELECT {_COLUMNS} FROM nodes WHERE digest = ? UNION ALL "
        "SELECT n.digest, n.parent, n.position, n.turn, n.message, n.says FROM chain c "
        "JOIN nodes n ON n.digest = c.parent AND n.position = c.position - 1) "
        f"SELECT {_COLUMNS} FROM chain ORDER BY position",
        (tip,),
        types=NODE_TYPES,
    )
    nodes = [Node(*row) for row in rows]
    parent = ROOT
    for position, node in enumerate(nodes, 1):
        if node.digest != node_digest(parent, position, node.turn, node.message, node.says):
            raise StoreDamaged(f"{place}: message {node.position}, or what stands before it, is damaged")
        parent = node.digest
    if parent != tip:
        raise StoreDamaged(f"{place}: its last message is missing")
    return nodes


def contents_of(transaction: Transaction, nodes: Sequence[Node], place: str) -> list[Content]:
    """The exact content of each node's message.

    Raises:
        StoreDamaged: one is missing or changed.
    """
    wanted = list({node.message for node in nodes})
    bodies: dict[bytes, bytes] = dict(
        transaction.rows_of("SELECT digest, body FROM blobs WHERE digest IN (??)", wanted, types=(bytes, bytes))
    )
    return [unpack(bodies.get(node.message), node.message, f"{place}, message {node.position}") for node in nodes]


Marks = tuple[object, ...] | None
"""What the content of a message tells and its digest does not, see `message_digest`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the messages at the front of a history."""

    nodes: Sequence[Node] = ()
    marks: Sequence[Marks] = ()
    """Of each message."""


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
