"""What is stored, as bytes that are named by their digest; a history as a chain of nodes, each one message and
everything before it; and whether all of it is what it was.

Content is exact JSON, compressed when that pays. Bytes that do not match their digest are never handed out.

Histories that share a prefix share its nodes, so saving a longer one costs the new messages only. A node's
digest covers its message and its parent, so a chain cannot be read back with anything changed in it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from applier.store.database import MAX_PARAMETERS, Database, Transaction
from planner.errors import StoreDamaged, StoreError
from planner.plan import Finding
from planner.reading.history import History
from planner.reading.messages import message_digest, to_json

__all__ = [
    "CONTENT_TABLES",
    "EMPTY_HISTORY",
    "ROOT",
    "Content",
    "Node",
    "add_nodes",
    "audit",
    "chain_of",
    "check_unchanged",
    "contents_of",
    "digest_of",
    "encode",
    "missing_nodes",
    "pack",
    "read_chain",
    "unpack",
]

ROOT = b""
"""The parent of the first node; the tip of an empty history."""
EMPTY_HISTORY = hashlib.sha256(b"").digest()
"""What an empty history says."""

_COLUMNS = "digest, parent, position, turn, message, says"
_NODE_TYPES = (bytes, bytes, int, int, bytes, bytes)
"""Those of the columns of ``nodes``, in the order of the fields of `Node`."""
_LEVEL = 4
"""Of zlib: on 20 real sessions 2.5 % more bytes than at 6, the usual one, in 0.62 of the time."""
_WORTH = 0.9
"""Compressed content is kept only below this share of its size."""
_SHORT = 256
"""Bytes: below this, little is saved for the time that it takes to begin."""
_ZLIB_MARK = b"x"
"""Every zlib stream with the default window begins with this byte, and no JSON text does."""
CONTENT_TABLES = ("blobs", "plans", "facts", "events", "states")
"""Every table that holds content: a digest and a body."""


class Content(bytes):
    """The exact bytes of one JSON value."""

    def value(self) -> Any:
        """What the bytes say, as a new object."""
        return json.loads(self)


def encode(value: object, place: str) -> Content:
    """`value` as the JSON that ``json.dumps`` makes of it: key order, floats and lone surrogates kept.

    Raises:
        StoreError: `value` is not JSON data; the text names `place`.
    """
    try:
        return Content(to_json(value).encode("ascii"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{place}: cannot be stored, it is not JSON data: {error}") from error


def digest_of(content: bytes) -> bytes:
    """The 32 bytes that name `content`."""
    return hashlib.sha256(content).digest()


def pack(content: bytes) -> bytes:
    """`content` as it is stored."""
    packed = zlib.compress(content, _LEVEL) if len(content) >= _SHORT else content
    return packed if len(packed) < len(content) * _WORTH else bytes(content)


def unpack(body: bytes | None, digest: bytes, place: str) -> Content:
    """The content stored as `body`.

    Raises:
        StoreDamaged: it is missing, or does not match `digest`; the text names `place`.
    """
    if body is None:
        raise StoreDamaged(f"{place}: its content is missing from the store")
    try:
        content = Content(zlib.decompress(body) if body[:1] == _ZLIB_MARK else body)
    except zlib.error as error:
        raise StoreDamaged(f"{place}: its content cannot be read back: {error}") from error
    if digest_of(content) != digest:
        raise StoreDamaged(f"{place}: its content does not match its digest")
    return content


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


def chain_of(history: History, contents: Sequence[Content]) -> list[Node]:
    """The nodes of `history`, whose messages are stored as `contents`."""
    turns = [turn.number for turn in history.turns for _ in range(turn.start, turn.stop)]
    nodes: list[Node] = []
    parent, running = ROOT, hashlib.sha256()
    for position, (turn, content, digest) in enumerate(zip(turns, contents, history.digests, strict=True), 1):
        running.update(digest.encode())
        message, says = digest_of(content), running.digest()
        nodes.append(Node(node_digest(parent, position, turn, message, says), parent, position, turn, message, says))
        parent = nodes[-1].digest
    return nodes


def check_unchanged(history: History, index: int) -> None:
    """See that a message still is what it was when `history` was read: its name is made of what it was then.

    Raises:
        StoreError: it is not, or is no JSON data.
    """
    content = encode(history.messages[index], f"messages[{index}]")
    if message_digest(content.value()) != history.digests[index]:
        raise StoreError(
            f"messages[{index}]: changed since the history was read, or not plain JSON; read the history again"
        )


def missing_nodes(transaction: Transaction, nodes: Sequence[Node]) -> Sequence[Node]:
    """Those at the end of the chain `nodes` that are not stored; the ancestors of a stored node are."""

    def missing(node: Node) -> bool:
        return not transaction.rows("SELECT 1 FROM nodes WHERE digest = ?", (node.digest,))

    return nodes[bisect_left(nodes, True, key=missing) :]


def add_nodes(transaction: Transaction, nodes: Sequence[Node], contents: Sequence[Content]) -> None:
    """Store `nodes` with the `contents` of their messages."""
    transaction.each(
        "INSERT INTO blobs VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(node.message, pack(content)) for node, content in zip(nodes, contents, strict=True)],
    )
    transaction.each("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", [astuple(node) for node in nodes])


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
        types=_NODE_TYPES,
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


def audit(database: Database) -> list[Finding]:
    """What is wrong in `database`, every digest recomputed; empty if all is well. Changes nothing.

    Raises:
        StoreError: the database cannot be read at all.
    """
    try:
        with database.transaction() as transaction:
            problems = database.dialect.damages(transaction) or list(_problems(transaction))
    except StoreDamaged as error:
        problems = [str(error)]
    return [Finding(code="damaged", problem=problem) for problem in problems]


def _problems(transaction: Transaction) -> Iterator[str]:
    for table in CONTENT_TABLES:
        yield from _damaged_content(transaction, table)
    yield from _broken_chains(transaction)


def _damaged_content(transaction: Transaction, table: str) -> Iterator[str]:
    digests = [row[0] for row in transaction.rows(f"SELECT DISTINCT digest FROM {table}", types=(bytes,))]
    for start in range(0, len(digests), MAX_PARAMETERS):
        some = digests[start : start + MAX_PARAMETERS]
        sql = f"SELECT digest, body FROM {table} WHERE digest IN (??)"
        for digest, body in transaction.rows_of(sql, some, types=(bytes, bytes)):
            try:
                unpack(body, digest, f"{table} {digest.hex()[:16]}")
            except StoreDamaged as error:
                yield str(error)


def _broken_chains(transaction: Transaction) -> Iterator[str]:
    nodes = {row[0]: Node(*row) for row in transaction.rows("SELECT * FROM nodes", types=_NODE_TYPES)}
    blobs = {row[0] for row in transaction.rows("SELECT digest FROM blobs", types=(bytes,))}
    for node in nodes.values():
        place = f"message {node.position} of a history ({_short(node.says)} ends with it)"
        if node.digest != node_digest(node.parent, node.position, node.turn, node.message, node.says):
            yield f"{place}: does not match its digest"
        if node.parent != ROOT and node.parent not in nodes:
            yield f"{place}: the message before it is missing"
        if node.message not in blobs:
            yield f"{place}: its content is missing"
    for says, tip in transaction.rows("SELECT says, tip FROM histories", types=(bytes, bytes)):
        if says != (EMPTY_HISTORY if tip == ROOT else nodes[tip].says if tip in nodes else b""):
            yield f"history {_short(says)}: its last message is missing or another's"


def _short(says: bytes) -> str:
    return f"h{says.hex()[:8]}"
