"""Records of a store: what their keys and bodies contain. Each body begins with the digest of its content.

A history is stored as a chain of nodes. A node is one message, linked to the node of the message before it. The prefix
of a node is the digest of the history that ends with its message.

====================================================  ==================================================
key                                                   body
====================================================  ==================================================
``message/DIGEST``                                    one message, exactly
``node/GROUP/POSITION/TURN/PARENT/MESSAGE/PREFIX``    nothing: the key contains the whole node
``history/NAME``                                      a `StoredHistory`
``plan/DIGEST/PREFIX/ORDER``                          a plan for the history with the digest `PREFIX`
``fact/GROUP/PREFIX/ORDER``                           a fact of the history with the digest `PREFIX`
``event/SESSION/ORDER``                               an event; `SESSION` is the session's id as JSON
``state/NAME``                                        a state; `NAME` is its name as JSON
``order``                                             the last number used as an `ORDER`
====================================================  ==================================================

Histories that begin alike share nodes, so saving a longer one costs the new messages only. A node is named by the
digest of its message and its parent, so a chain cannot be read back with anything changed in it.

The nodes of the positions 1, 2 to 3, 4 to 7, 8 to 15 and so on form groups. A group is named by the prefix of its first
node. So a long chain is read group by group, in a few steps, and no step reads a node of a history that differs in its
first half.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import is_
from typing import Any, NamedTuple

import zstandard

from applier.store.backend import Backend
from planner.errors import StoreDamaged, StoreError
from planner.placeholders import history_key
from planner.plan import Finding
from planner.reading.messages import History, Message, json_pieces, prefix_digests

NOTED_SECONDS = 3600.0
"""Shortest time between two records of a history's last use."""
EMPTY_HISTORY = hashlib.sha256(b"").hexdigest()
"""Digest of an empty history."""

_LEVEL = 6
"""Level of zstd: on 51 real sessions 4 % fewer bytes than the usual 3."""
_WORTH = 0.9
"""Largest ratio of compressed to original size at which the compressed form is stored."""
_SHORT = 256
"""Size in bytes below which compression is not tried."""
_PIECE_BYTES = 1 << 20
"""Size of the pieces in which a record is unpacked to learn its size."""
_UNPACKING: Mapping[bytes, Callable[[bytes], bytes]] = {b"(": zstandard.decompress, b"x": zlib.decompress}
"""Decompressors by first byte: zstd, and zlib in older stores; no JSON text begins with either."""
_NO_STRUCTURE = bytes(set(range(256)) - set(b'",[{'))
"""All bytes that neither delimit a string nor begin or separate values of JSON."""
_AT_ONCE = 500
"""Number of records that are read together."""


def encode(value: object, place: str) -> bytes:
    """Return `value` as the JSON of ``json.dumps``, with key order, floats and lone surrogates."""
    try:
        return b"".join(piece.encode() for piece in json_pieces(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{place}: cannot be stored, it is not JSON data: {error}") from error


def count_values(raw: bytes, most: int) -> int:
    """Estimate the number of values in the JSON text `raw` without parsing it. The estimate also counts commas and
    brackets within strings, unless there are more than `most` in all."""
    rough = sum(map(raw.count, (b",", b"[", b"{")))
    if rough <= most:
        return rough
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_STRUCTURE)
    strings = bare.count(b'"') // 2
    return strings if strings > most else sum(map(len, bare.split(b'"')[::2]))  # every other part is outside strings


def digest_of(content: bytes) -> str:
    """Return the 64 hex digits of the digest of `content`."""
    return hashlib.sha256(content).hexdigest()


def pack(content: bytes) -> bytes:
    """Return the stored body of `content`: its digest, and the content, compressed if that pays."""
    packed = zstandard.compress(content, _LEVEL) if len(content) >= _SHORT else content
    return hashlib.sha256(content).digest() + (packed if len(packed) < len(content) * _WORTH else content)


def unpack(body: bytes, place: str) -> bytes:
    """Return the content stored as `body`; `place` names the record in errors."""
    digest, packed = body[:32], body[32:]
    try:
        content = _UNPACKING.get(packed[:1], bytes)(packed)
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:  # a damaged frame can claim any length
        raise StoreDamaged(f"{place}: its content cannot be read back: {error}") from error
    if hashlib.sha256(content).digest() != digest:
        raise StoreDamaged(f"{place}: its content does not match its digest")
    return content


def unpacked_bytes(body: bytes) -> int:
    """Return the number of bytes that `unpack` would make of `body`, without unpacking it."""
    packed = body[32:]
    if packed[:1] == b"x":
        decoder = zlib.decompressobj()
        size = 0
        while packed and not decoder.eof:
            size += len(decoder.decompress(packed, _PIECE_BYTES))
            packed = decoder.unconsumed_tail
        return size
    size = zstandard.frame_content_size(packed) if packed[:1] == b"(" else len(packed)
    if size < 0:
        raise StoreDamaged("a record does not say how large its content is; no store writes such a one")
    return int(size)


def read(backend: Backend, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the content of the existing `keys`, in their order."""
    bodies = backend.get(keys)
    return {key: _checked(key, bodies[key]) for key in keys if key in bodies}


def parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield `keys` in parts of the size in which records are read together."""
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _checked(key: str, body: bytes) -> bytes:
    """Return the content of the record `key`; raise an error if it does not match its digest or its key."""
    kind, _, name = key.partition("/")
    content = unpack(body, f"{kind} {name[:16]}")
    if kind in ("message", "plan") and not name.startswith(body[:32].hex()):
        raise StoreDamaged(f"{kind} {name[:16]}: its content does not match its digest")
    return content


def fields(key: str, count: int) -> list[str]:
    """Return the fields of a record's `key` after its kind; raise an error if their number is not `count`."""
    values = key.split("/")[1:]
    if len(values) != count:
        raise _no_record(key)
    return values


def _no_record(key: str) -> StoreDamaged:
    return StoreDamaged(f"{key[:80]!r} is the key of no record; restore the store from a backup")


def order_of(key: str) -> int:
    """Return the order number in a record's `key`: the part after the last slash, as a session's id may contain one."""
    number = key.rpartition("/")[2]
    if not number.isdigit():
        raise _no_record(key)
    return int(number)


def next_order(backend: Backend, count: int = 1) -> str:
    """Reserve the next `count` order numbers, and return the first as text with leading zeros."""
    last = sum(json.loads(content) for content in read(backend, ["order"]).values())
    backend.remove(["order"])
    backend.add({"order": pack(encode(last + count, "order"))})
    return f"{last + 1:012}"


class NewRecord(NamedTuple):
    """Content to store under a new order number."""

    place: str
    """Beginning of the record's key, before the number."""
    content: bytes


def add_in_order(backend: Backend, candidates: Iterable[NewRecord]) -> list[str]:
    """Store the `candidates` in order, without those whose place has a record of the same content; return the keys."""
    known: dict[str, set[bytes]] = {}
    new: list[NewRecord] = []
    for one in candidates:
        if one.place not in known:
            known[one.place] = set(read(backend, backend.keys(one.place)).values())
        if one.content not in known[one.place]:
            known[one.place].add(one.content)
            new.append(one)
    first = int(next_order(backend, len(new))) if new else 0
    records = {f"{one.place}{order:012}": pack(one.content) for order, one in enumerate(new, first)}
    backend.add(records)
    return list(records)


class PlanKey(NamedTuple):
    """Fields of the key of a plan's record."""

    digest: str
    """Digest of the plan."""
    prefix: str
    """Digest of the history that the plan was made for."""
    order: str

    @property
    def key(self) -> str:
        """Whole key."""
        return "/".join(("plan", *self))


def plan_keys(backend: Backend) -> list[PlanKey]:
    """Return the keys of all plans, the oldest first."""
    return sorted((PlanKey(*fields(key, 3)) for key in backend.keys("plan/")), key=lambda plan: plan.order)


def prefix_of(key: str) -> str:
    """Return the digest of the history of a plan or fact: the field ``PREFIX`` of its `key`."""
    return fields(key, 3)[1]


class Node(NamedTuple):
    """One message of a history, linked to all messages before it."""

    group: str
    """Name of its group: the first digits of the `prefix` of the first node in that group."""
    position: int
    """1 for the first message."""
    turn: int
    """Number of the turn that contains the message."""
    parent: str
    """Digest of the node before it; empty for the first one."""
    message: str
    """Digest of the message's exact content."""
    prefix: str
    """Digest of the history that ends with this message, as `History.digest_at` computes it."""

    @property
    def digest(self) -> str:
        """Digest that names the node."""
        parts = bytes.fromhex(self.parent + self.message + self.prefix)
        return digest_of(parts + f"{self.position}:{self.turn}".encode())

    @property
    def key(self) -> str:
        """Key of its record."""
        return "/".join(("node", *map(str, self)))

    def linked_to(self, before: Node) -> Node:
        """Return this node as the one after `before`: with its group, position and parent set."""
        position = before.position + 1
        # a power of two has no bit in common with the number before it, and begins a group
        group = before.group if position & before.position else self.prefix[:_GROUP_DIGITS]
        return self._replace(group=group, position=position, parent=before.digest if before.position else "")


_GROUP_DIGITS = 16
NOTHING = Node(EMPTY_HISTORY[:_GROUP_DIGITS], 0, 0, "", "", EMPTY_HISTORY)
"""Node before the first message of every history."""


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """One saved history; a longer one saved later is another, though they share messages."""

    name: str
    """Digest in its key: its `prefix`, or its `tip` if another form of the same history was saved before."""
    order: str
    """Order of its first save; later ones are greater."""
    prefix: str
    """Hex digits of the history's own digest, which equals the `prefix` of its last node."""
    tip: str
    """Digest of the last node, which identifies the exact form of the history; empty if the history is empty."""
    groups: list[str]
    """Groups of its nodes, in order; one group without nodes for an empty history."""
    messages: int
    turns: int
    used: float = 0.0
    """Time of the last save, restore or continuation, up to an hour early: seconds since the epoch, 0 if unknown."""
    size_bytes: int = 0
    """Size of its messages as JSON, in bytes. In the store they take less, as they are compressed and shared."""

    @property
    def key(self) -> str:
        """Key of the history: ``h1a2b3c4d``."""
        return history_key(self.name)

    @classmethod
    def from_json(cls, content: bytes) -> StoredHistory:
        """Return the history in a record, in which the prefix is called ``says``."""
        fields = json.loads(content)
        return cls(prefix=fields.pop("says"), **fields)

    def to_json(self) -> bytes:
        """Return the record of the history."""
        return encode({"says" if name == "prefix" else name: value for name, value in asdict(self).items()}, "history")

    @property
    def digest(self) -> str:
        """Digest of the history with its algorithm: ``sha256:…``, as in `History.digest`."""
        return f"sha256:{self.prefix}"


@dataclass(frozen=True, slots=True)
class SavedChain:
    """Saved history with its last node. With it, saving a longer history reads and writes only the new messages. Its
    messages must never be edited: a longer history is recognized by the same message objects."""

    key: str = ""
    messages: tuple[Message, ...] = ()
    last: Node = NOTHING
    """Node of the last message."""
    groups: tuple[str, ...] = ()
    size_bytes: int = 0

    def begins(self, history: History) -> bool:
        """Return True if `history` begins with the same message objects."""
        first = history.messages[: len(self.messages)]
        return len(first) == len(self.messages) and all(map(is_, first, self.messages))


def chain_of(history: History, contents: Sequence[bytes], before: Node = NOTHING) -> list[Node]:
    """Return the nodes of `history` after the node `before`, for the stored `contents` of their messages."""
    turns = [turn.number for turn in history.turns for _ in range(turn.start, turn.stop)][before.position :]
    nodes = [before]
    for turn, content, prefix in zip(turns, contents, prefix_digests(history.digests, before.position), strict=True):
        nodes.append(Node("", 0, turn, "", digest_of(content), prefix).linked_to(nodes[-1]))
    return nodes[1:]


def missing_nodes(backend: Backend, chain: Sequence[Node]) -> Sequence[Node]:
    """Return the nodes at the end of `chain` that are not stored. Bisects: before a stored node all are stored."""
    return chain[bisect_left(chain, True, key=lambda node: not backend.get([node.key])) :]


def nodes_of(keys: Sequence[str]) -> dict[str, Node]:
    """Return the nodes in `keys` by digest."""
    nodes = {}
    for key in keys:
        group, position, turn, *digests = fields(key, 6)
        try:
            node = Node(group, int(position), int(turn), *digests)
            nodes[node.digest] = node
        except ValueError:
            raise StoreDamaged(f"{key[:80]!r} is the key of no message; restore the store from a backup") from None
    return nodes


def way_back(nodes: Mapping[str, Node], digest: str) -> Iterator[str]:
    """Yield `digest` and the digests of all `nodes` before it, back to the first."""
    while digest in nodes:
        yield digest
        digest = nodes[digest].parent


def read_chain(backend: Backend, history: StoredHistory) -> list[Node]:
    """Return the nodes of `history` from the first message to the last."""
    nodes = nodes_of([key for group in history.groups for key in backend.keys(f"node/{group}/")])
    chain = [nodes[digest] for digest in way_back(nodes, history.tip)]
    is_cut = bool(chain[-1].parent if chain else history.tip)  # a first node has no parent, an empty history no tip
    if is_cut:
        raise StoreDamaged(f"{history.key}: message {history.messages - len(chain)} is missing or damaged")
    return chain[::-1]


def read_histories(backend: Backend, name: str = "") -> list[StoredHistory]:
    """Return the histories whose names begin with `name`, oldest first."""
    contents = read(backend, backend.keys(f"history/{name}"))
    histories = [StoredHistory.from_json(content) for content in contents.values()]
    if [f"history/{history.name}" for history in histories] != list(contents):
        raise StoreDamaged("a history is stored under another's name; restore the store from a backup")
    return sorted(histories, key=lambda history: history.order)


def saved_history(backend: Backend, prefix: str, tip: str) -> StoredHistory | None:
    """Return the saved history with the digest `prefix` and the exact form `tip`, or None. Its name is one of them."""
    histories = [one for name in (prefix, tip) if name for one in read_histories(backend, name)]
    return next((history for history in histories if history.tip == tip), None)


def keep_history(backend: Backend, history: StoredHistory) -> StoredHistory:
    """Store `history`, and return it as stored. If it was stored before, record its use every `NOTED_SECONDS`."""
    saved = saved_history(backend, history.prefix, history.tip)
    if saved and history.used - saved.used < NOTED_SECONDS:
        return saved
    if saved is None:
        name = history.tip if backend.get([f"history/{history.prefix}"]) else history.prefix
        saved = replace(history, name=name, order=next_order(backend))
    saved = replace(saved, used=history.used)
    backend.remove([f"history/{saved.name}"])
    backend.add({f"history/{saved.name}": pack(saved.to_json())})
    return saved


def read_messages(backend: Backend, nodes: Sequence[Node], place: str) -> list[Any]:
    """Return the exact messages of `nodes`; `place` names the history in errors."""
    contents = read(backend, [f"message/{digest}" for digest in dict.fromkeys(node.message for node in nodes)])
    for node in nodes:
        if f"message/{node.message}" not in contents:
            raise StoreDamaged(f"{place}, message {node.position}: its content is missing from the store")
    return [json.loads(contents[f"message/{node.message}"]) for node in nodes]


def audit(backend: Backend) -> list[Finding]:
    """Recompute every digest in `backend`, and return a finding for each problem; change nothing."""
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
    """Yield a problem for each record that does not match its digest."""
    keys = [key for kind in ("message", "plan", "fact", "event", "state") for key in backend.keys(f"{kind}/")]
    for some in parts(keys):
        for key, body in backend.get(some).items():
            try:
                _checked(key, body)
            except StoreDamaged as error:
                yield str(error)


def _broken_chains(backend: Backend) -> Iterator[str]:
    """Yield a problem for each node that a history needs and each message that a node needs, if it is missing."""
    nodes = nodes_of(backend.keys("node/"))
    messages = set(backend.keys("message/"))
    for node in nodes.values():
        place = f"message {node.position} of a history ({history_key(node.prefix)} ends with it)"
        if node.parent and node.parent not in nodes:
            yield f"{place}: the message before it is missing or damaged"
        if f"message/{node.message}" not in messages:
            yield f"{place}: its content is missing"
    for history in read_histories(backend):
        if history.tip and history.tip not in nodes:
            yield f"history {history.key}: its last message is missing or damaged"
