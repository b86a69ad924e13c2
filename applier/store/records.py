"""What stands in a backend, under which key: each record sealed with its digest; a history as a chain of nodes, each
one message and everything before it.

====================================================  ==================================================
key                                                   body
====================================================  ==================================================
``message/DIGEST``                                    one message, exactly
``node/GROUP/POSITION/TURN/PARENT/MESSAGE/SAYS``      nothing: its key says all of it
``history/NAME``                                      a `StoredHistory`
``plan/DIGEST/SAYS/ORDER``                            a plan for the history that says `SAYS`
``fact/GROUP/SAYS/ORDER``                             a fact of that history
``event/SESSION/ORDER``                               an event; the session as JSON
``state/NAME``                                        a state; its name as JSON
``order``                                             how many records were put in an order so far
====================================================  ==================================================

Histories that share a prefix share its nodes, so saving a longer one costs the new messages only. A node is named by
the digest of its message and its parent, so a chain cannot be read back with anything changed in it. The nodes of the
positions 1, 2 to 3, 4 to 7, 8 to 15 … are a group, named by what the history says at the first of these: a chain is
read in a few steps, and no other conversation with it that does not share half of it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import zstandard

from applier.store.backend import Backend
from planner.errors import StoreDamaged, StoreError
from planner.placeholders import history_key
from planner.plan import Finding
from planner.reading.history import History
from planner.reading.messages import to_json

__all__ = [
    "EMPTY_HISTORY",
    "GROUP_DIGITS",
    "Node",
    "StoredHistory",
    "audit",
    "chain_of",
    "digest_of",
    "encode",
    "fields",
    "groups_of",
    "missing_keys",
    "next_order",
    "nodes_of",
    "pack",
    "parts",
    "read",
    "read_chain",
    "read_histories",
    "read_messages",
    "saved_history",
    "unpack",
]

EMPTY_HISTORY = hashlib.sha256(b"").hexdigest()
"""What an empty history says."""

_LEVEL = 6
"""Of zstd: on 51 real sessions 4 % less bytes than at 3, the usual one, and 2 % less than zlib's level 4 in the same
time; it is read back in half of zlib's."""
_WORTH = 0.9
"""Compressed content is kept only below this share of its size."""
_SHORT = 256
"""Bytes: below this, little is saved for the time that it takes to begin."""
_ZSTD_MARK, _ZLIB_MARK = b"(", b"x"
"""Every zstd frame begins with the first, every zlib stream (which stores had before) with the second, and no JSON
text with either."""
GROUP_DIGITS = 16
_AT_ONCE = 500
"""Records that are read together."""


def encode(value: object, place: str) -> bytes:
    """`value` as the JSON that ``json.dumps`` makes of it: key order, floats and lone surrogates kept.

    Raises:
        StoreError: `value` is not JSON data; the text names `place`.
    """
    try:
        return to_json(value).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{place}: cannot be stored, it is not JSON data: {error}") from error


def digest_of(content: bytes) -> str:
    """The 64 hex digits that name `content`."""
    return hashlib.sha256(content).hexdigest()


def pack(content: bytes) -> bytes:
    """The body that `content` is stored as: its digest, and it, compressed when that pays."""
    packed = zstandard.compress(content, _LEVEL) if len(content) >= _SHORT else content
    return hashlib.sha256(content).digest() + (packed if len(packed) < len(content) * _WORTH else content)


def unpack(body: bytes, place: str) -> bytes:
    """The content stored as `body`.

    Raises:
        StoreDamaged: it does not match its digest; the text names `place`.
    """
    digest, packed = body[:32], body[32:]
    unpacking: dict[bytes, Callable[[bytes], bytes]] = {_ZSTD_MARK: zstandard.decompress, _ZLIB_MARK: zlib.decompress}
    try:
        content = unpacking.get(packed[:1], bytes)(packed)
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:  # a damaged frame can say that it has any length
        raise StoreDamaged(f"{place}: its content cannot be read back: {error}") from error
    if hashlib.sha256(content).digest() != digest:
        raise StoreDamaged(f"{place}: its content does not match its digest")
    return content


def read(backend: Backend, keys: Sequence[str]) -> dict[str, bytes]:
    """The content of those of `keys` that are there, in their order.

    Raises:
        StoreDamaged: one does not match its digest, or is another's.
    """
    bodies = backend.get(keys)
    return {key: _checked(key, bodies[key]) for key in keys if key in bodies}


def parts(keys: Sequence[str], size: int = _AT_ONCE) -> Iterator[Sequence[str]]:
    """`keys` in parts of which each is read at once."""
    return (keys[start : start + size] for start in range(0, len(keys), size))


def _checked(key: str, body: bytes) -> bytes:
    kind, _, name = key.partition("/")
    content = unpack(body, f"{kind} {name[:16]}")
    if kind in ("message", "plan") and not name.startswith(body[:32].hex()):
        raise StoreDamaged(f"{kind} {name[:16]}: its content does not match its digest")
    return content


def fields(key: str, count: int) -> list[str]:
    """What the `count` parts of `key` behind its kind say.

    Raises:
        StoreDamaged: it has more or less of them.
    """
    parts = key.split("/")[1:]
    if len(parts) != count:
        raise StoreDamaged(f"{key[:80]!r} is the key of no record; restore the store from a backup")
    return parts


def next_order(backend: Backend, count: int = 1) -> str:
    """Where the next record stands among those that have an order: behind all that were written before; of `count`
    records the first.
    """
    last = sum(json.loads(content) for content in read(backend, ["order"]).values())
    backend.remove(["order"])
    backend.add({"order": pack(encode(last + count, "order"))})
    return f"{last + 1:012}"


class Node(NamedTuple):
    """One message of a history, and all before it."""

    position: int
    """1 for the first message."""
    turn: int
    """The number of the turn that the message belongs to."""
    parent: str
    """The digest of the node before it; empty of the first one."""
    message: str
    """The digest of the message's exact content."""
    says: str
    """The digest of the history that ends here, see `History.digest_at`."""

    @property
    def digest(self) -> str:
        """What names it."""
        parts = bytes.fromhex(self.parent + self.message + self.says)
        return digest_of(parts + f"{self.position}:{self.turn}".encode())

    def key(self, groups: Sequence[str]) -> str:
        """That of its record, in a history with these groups."""
        return "/".join(("node", groups[self.position.bit_length() - 1], *map(str, self)))


def groups_of(says: Sequence[str]) -> list[str]:
    """The groups of a history that says `says` at each of its positions; of an empty one a group without nodes."""
    firsts = [says[2**n - 1] for n in range(len(says).bit_length())]
    return [first[:GROUP_DIGITS] for first in firsts or [EMPTY_HISTORY]]


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """One history that was saved; a longer one saved later is another, though their messages are shared."""

    name: str
    """The digest that its key is made of: what it says, or its tip where another form of it was saved before."""
    order: str
    """Later ones have a greater one."""
    says: str
    """The hex digits of its digest."""
    tip: str
    """The digest of its last node, which stands for its exact form; empty if it has none."""
    groups: list[str]
    """Those of its nodes, in order; of an empty history one without nodes."""
    messages: int
    turns: int
    used: float = 0.0
    """When it was saved last, restored from or gone on with, to an hour: seconds since the epoch, 0 if not noted."""
    size_bytes: int = 0
    """Of its messages, as JSON; shared and packed they take less."""

    @property
    def key(self) -> str:
        """``h1a2b3c4d``, by which it is asked for."""
        return history_key(self.name)

    @property
    def digest(self) -> str:
        """See `History.digest`."""
        return f"sha256:{self.says}"

    def record(self) -> dict[str, bytes]:
        """It, as it is stored."""
        return {f"history/{self.name}": pack(encode(asdict(self), "history"))}


def chain_of(history: History, contents: Sequence[bytes]) -> list[Node]:
    """The nodes of `history`, whose messages are stored as `contents`."""
    turns = [turn.number for turn in history.turns for _ in range(turn.start, turn.stop)]
    nodes: list[Node] = []
    running = hashlib.sha256()
    for position, (turn, content, digest) in enumerate(zip(turns, contents, history.digests, strict=True), 1):
        running.update(digest.encode())
        parent = nodes[-1].digest if nodes else ""
        nodes.append(Node(position, turn, parent, digest_of(content), running.hexdigest()))
    return nodes


def missing_keys(backend: Backend, keys: Sequence[str]) -> Sequence[str]:
    """Those at the end of a chain's `keys` that are not stored; what stands before a stored node is."""
    return keys[bisect_left(keys, True, key=lambda key: not backend.get([key])) :]


def nodes_of(keys: Sequence[str]) -> dict[str, tuple[str, Node]]:
    """The nodes that `keys` say, each with its key, by digest.

    Raises:
        StoreDamaged: a key says none.
    """
    nodes = {}
    for key in keys:
        _, position, turn, *digests = fields(key, 6)
        try:
            node = Node(int(position), int(turn), *digests)
            nodes[node.digest] = key, node
        except ValueError:
            raise StoreDamaged(f"{key[:80]!r} is the key of no message; restore the store from a backup") from None
    return nodes


def read_chain(backend: Backend, history: StoredHistory) -> list[Node]:
    """The nodes from the first message to the last of `history`, in order.

    Raises:
        StoreDamaged: a node is missing or changed.
    """
    nodes = nodes_of([key for group in history.groups for key in backend.keys(f"node/{group}/")])
    chain: list[Node] = []
    digest = history.tip
    while digest:
        if digest not in nodes:
            raise StoreDamaged(f"{history.key}: message {history.messages - len(chain)} is missing or damaged")
        chain.append(nodes[digest][1])
        digest = chain[-1].parent
    return chain[::-1]


def read_histories(backend: Backend, name: str = "") -> list[StoredHistory]:
    """The histories whose names begin with `name`, oldest first.

    Raises:
        StoreDamaged: a record is changed.
    """
    contents = read(backend, backend.keys(f"history/{name}"))
    histories = [StoredHistory(**json.loads(content)) for content in contents.values()]
    if [f"history/{history.name}" for history in histories] != list(contents):
        raise StoreDamaged("a history stands under another's name; restore the store from a backup")
    return sorted(histories, key=lambda history: history.order)


def saved_history(backend: Backend, says: str, tip: str) -> StoredHistory | None:
    """The history that ends at `tip` and says `says`, if it was saved."""
    histories = [one for name in (says, tip) if name for one in read_histories(backend, name)]
    return next((history for history in histories if history.tip == tip), None)


def read_messages(backend: Backend, nodes: Sequence[Node], place: str) -> list[Any]:
    """The exact messages of `nodes`.

    Raises:
        StoreDamaged: one is missing or changed.
    """
    contents = read(backend, [f"message/{digest}" for digest in dict.fromkeys(node.message for node in nodes)])
    for node in nodes:
        if f"message/{node.message}" not in contents:
            raise StoreDamaged(f"{place}, message {node.position}: its content is missing from the store")
    return [json.loads(contents[f"message/{node.message}"]) for node in nodes]


def audit(backend: Backend) -> list[Finding]:
    """What is wrong in `backend`, every digest recomputed; empty if all is well. Changes nothing.

    Raises:
        StoreError: the database cannot be read at all.
    """
    problems: list[str] = []
    try:
        with backend.transaction():
            problems += backend.damages()
            if not problems:
                problems.extend(_damaged_records(backend))
                problems.extend(_broken_chains(backend))
    except StoreDamaged as error:
        problems.append(str(error))
    return [Finding(code="damaged", problem=problem) for problem in problems]


def _damaged_records(backend: Backend) -> Iterator[str]:
    keys = [key for kind in ("message", "plan", "fact", "event", "state") for key in backend.keys(f"{kind}/")]
    for some in parts(keys):
        for key, body in backend.get(some).items():
            try:
                _checked(key, body)
            except StoreDamaged as error:
                yield str(error)


def _broken_chains(backend: Backend) -> Iterator[str]:
    nodes = nodes_of(backend.keys("node/"))
    messages = set(backend.keys("message/"))
    for _, node in nodes.values():
        place = f"message {node.position} of a history (h{node.says[:8]} ends with it)"
        if node.parent and node.parent not in nodes:
            yield f"{place}: the message before it is missing or damaged"
        if f"message/{node.message}" not in messages:
            yield f"{place}: its content is missing"
    for history in read_histories(backend):
        if history.tip and history.tip not in nodes:
            yield f"history {history.key}: its last message is missing or damaged"
