"""Form of a store's records: what the key and the body of each kind contain. A body begins with its content's digest.

Histories and turns are looked up by names such as ``h1a2b3c4d:t12``. If a caller may see only some histories, short
keys are resolved, and keys suggested in errors, only among these.

A history (a whole conversation) is stored as a chain of nodes. A node is one message with a link to the node before it.
The prefix of a node is the digest of the history that ends with its message.

====================================================  ==================================================
key                                                   body
====================================================  ==================================================
``message/DIGEST``                                    one message, exactly
``node/GROUP/POSITION/TURN/PARENT/MESSAGE/PREFIX``    nothing: the key contains the whole node
``history/NAME``                                      a `StoredHistory`
``plan/DIGEST/PREFIX/ORDER``                          a plan for the history with the digest `PREFIX`
``fact/GROUP/PREFIX/ORDER``                           a fact of the history with the digest `PREFIX`
``event/SESSION/ORDER``                               an event; `SESSION` is the session's id as JSON
``state/NAME``                                        a state (any JSON value); `NAME` is its name as JSON
``order``                                             the last number used as an `ORDER`
====================================================  ==================================================

Records of the search table for facts have forms of their own (`applier.store.search`).

Histories with the same beginning share nodes, so saving a longer one costs the new messages only. A node is named by
the digest of its message and its parent, so a changed chain is noticed when it is read.

The nodes of the positions 1, 2 to 3, 4 to 7, 8 to 15 and so on form groups. A group is named by the prefix of its first
node. So a long chain is read group by group, in a few steps, and no step reads a node of a history that differs in its
first half.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import is_
from typing import Any, NamedTuple

import zstandard

from applier.store.backend import Backend
from planner.errors import ReferenceNotFound, StoreDamaged, StoreError
from planner.placeholders import KEY_DIGITS, history_key
from planner.plan import Finding
from planner.reading.messages import History, Message, json_pieces, prefix_digests

NOTED_SECONDS = 3600.0
"""Shortest time between two notes of a history's last use, in seconds."""
EMPTY_HISTORY = hashlib.sha256(b"").hexdigest()
"""Digest of a history without messages."""

_LEVEL = 6
"""Compression level of zstd: on 51 real sessions 4 % fewer bytes than the usual 3."""
_WORTH = 0.9
"""Largest ratio of compressed to original size for which a record is stored compressed."""
_SHORT = 256
"""Size in bytes below which a record is not compressed."""
_UNPACKING: Mapping[bytes, Callable[[bytes], bytes]] = {b"(": zstandard.decompress, b"x": zlib.decompress}
"""Functions that unpack a compressed record, by the first byte of its content: zstd, and zlib in older stores. No JSON
text begins with such a byte."""
_NO_STRUCTURE = bytes(set(range(256)) - set(b'",[{'))
"""All bytes except quotes, commas and opening brackets, so that they can be removed from a JSON text."""
_AT_ONCE = 500
"""Number of records that are read from the database together."""


def encode(value: object, place: str) -> bytes:
    """Return `value` as JSON in bytes, like ``json.dumps``. Raise a StoreError, with `place`, if it is no JSON data."""
    try:
        return b"".join(map(str.encode, json_pieces(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{place}: cannot be stored, it is not JSON data: {error}") from error


def count_values(raw: bytes, most: int) -> int:
    """Estimate the number of values in the JSON text `raw` by its commas and brackets; do not parse it, as a stranger's
    text could fill the memory. If there are more than `most`, do not count commas and brackets inside strings."""
    rough = sum(map(raw.count, (b",", b"[", b"{")))
    if rough <= most:
        return rough
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_STRUCTURE)
    strings = bare.count(b'"') // 2
    if strings > most:
        return strings
    outside_strings = bare.split(b'"')[::2]  # each string is one part of the split, between its quotes
    return sum(map(len, outside_strings))


def digest_of(content: bytes) -> str:
    """Return the digest of `content` as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def pack(content: bytes) -> bytes:
    """Return `content` as the body of a record: its digest (32 bytes), then the content, compressed if shorter."""
    packed = zstandard.compress(content, _LEVEL) if len(content) >= _SHORT else content
    return hashlib.sha256(content).digest() + (packed if len(packed) < len(content) * _WORTH else content)


def unpack(body: bytes, place: str) -> bytes:
    """Return the content in a record's `body`. Raise a StoreDamaged, which names `place`, if its digest is another."""
    digest, packed = body[:32], body[32:]
    try:
        content = _UNPACKING.get(packed[:1], bytes)(packed)  # `bytes` returns uncompressed content as it is
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:  # a damaged frame can claim any length
        raise StoreDamaged(f"{place}: its content cannot be read back: {error}") from error
    if hashlib.sha256(content).digest() != digest:
        raise StoreDamaged(f"{place}: its content does not match its digest")
    return content


def unpacked_bytes(body: bytes, most: int) -> int:
    """Return the size of the content in a record's `body`; `most` + 1 if it is larger, without unpacking all of it."""
    packed = body[32:]  # after the digest
    if packed[:1] == b"x":  # zlib
        return len(zlib.decompressobj().decompress(packed, most + 1))
    size = zstandard.frame_content_size(packed) if packed[:1] == b"(" else len(packed)  # "(": zstd
    if size < 0:
        raise StoreDamaged("a record does not say how large its content is; no store writes such a one")
    return min(int(size), most + 1)


def read(backend: Backend, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of the existing records with these `keys`, by key and in their order. Raise a StoreDamaged if
    one does not match its digest."""
    return {key: _checked_content(key, body) for key, body in bodies(backend, keys)}


def bodies(backend: Backend, keys: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield key and body of the existing records with these `keys`, which may be many, in their order."""
    for some_keys in in_parts(keys):
        found = backend.get(some_keys)
        yield from ((key, found[key]) for key in some_keys if key in found)


def in_parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield `keys` in parts, as records are read from the database a few hundred at a time."""
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _checked_content(key: str, body: bytes) -> bytes:
    """Return the content of a record; raise a StoreDamaged if it does not match its digest or the one in its `key`."""
    kind, _, name = key.partition("/")
    content = unpack(body, f"{kind} {name[:16]}")
    if kind in ("message", "plan") and not name.startswith(body[:32].hex()):
        raise StoreDamaged(f"{kind} {name[:16]}: its content does not match its digest")
    return content


def fields(key: str, count: int) -> list[str]:
    """Return the `count` parts of a record's `key` after the first: ``["a", "b"]`` for ``fact/a/b``. Raise a
    StoreDamaged if there is another number of them."""
    values = key.split("/")[1:]
    if len(values) != count:
        raise _invalid_key(key)
    return values


def _invalid_key(key: str) -> StoreDamaged:
    """Return an error for a `key` that no record has."""
    return StoreDamaged(f"{key[:80]!r} is the key of no record; restore the store from a backup")


def order_of(key: str) -> int:
    """Return the order number at the end of a record's `key`; records with higher ones were stored later. It is the
    text after the last slash, as other parts of the key (a session's id) may contain slashes, too."""
    number = key.rpartition("/")[2]
    if not number.isdigit():
        raise _invalid_key(key)
    return int(number)


def next_order(backend: Backend, count: int = 1) -> str:
    """Reserve the next `count` order numbers for new records; return the first as 12 digits: ``000000000042``."""
    last_number = sum(json.loads(content) for content in read(backend, ["order"]).values())  # 0 without the record
    backend.remove(["order"])
    backend.add({"order": pack(encode(last_number + count, "order"))})
    return f"{last_number + 1:012}"


class NewRecord(NamedTuple):
    """Content to store as a record with an order number at the end of its key."""

    place: str
    """Key of the record without the order number: ``event/"session"/``."""
    content: bytes


def add_in_order(backend: Backend, candidates: Iterable[NewRecord]) -> list[str]:
    """Store those of the `candidates` that are not stored yet, with new order numbers, and return their keys."""
    wanted = list(dict.fromkeys(candidates))
    places = {record.place for record in wanted}
    known = {place: set(read(backend, backend.keys(place)).values()) for place in places}
    return add_new(backend, [record for record in wanted if record.content not in known[record.place]])


def add_new(backend: Backend, new: Sequence[NewRecord]) -> list[str]:
    """Store the records `new` with new order numbers, and return their keys."""
    first = int(next_order(backend, len(new))) if new else 0
    records = {f"{record.place}{order:012}": pack(record.content) for order, record in enumerate(new, first)}
    backend.add(records)
    return list(records)


class PlanKey(NamedTuple):
    """Parts of the key of a plan's record."""

    digest: str
    """Digest of the plan."""
    prefix: str
    """Digest of the history for which the plan was made."""
    order: str
    """Order number; plans with higher ones were stored later."""

    @property
    def key(self) -> str:
        """Whole key of the record."""
        return "/".join(("plan", *self))


def plan_keys(backend: Backend) -> list[PlanKey]:
    """Return the keys of all plans, oldest first."""
    return sorted((PlanKey(*fields(key, 3)) for key in backend.keys("plan/")), key=lambda plan: plan.order)


def prefix_of(key: str) -> str:
    """Return the digest of the history to which a plan or fact belongs: the field ``PREFIX`` of its `key`."""
    return fields(key, 3)[1]


class Node(NamedTuple):
    """One message in its place in a history, with a link to the message before it."""

    group: str
    """Name of the group in which the node is stored, so that neighbouring nodes are read together: the first digits of
    the prefix of the group's first node."""
    position: int
    """Number of the message in the history, from 1."""
    turn: int
    """Number of the turn that contains the message."""
    parent: str
    """Digest of the node of the message before; empty for the first message."""
    message: str
    """Digest of the message's exact content."""
    prefix: str
    """Digest of the history that ends with this message, as `History.digest_at` computes it."""

    @property
    def digest(self) -> str:
        """Digest that names the node; it depends on all messages before it."""
        digests = bytes.fromhex(self.parent + self.message + self.prefix)
        return digest_of(digests + f"{self.position}:{self.turn}".encode())

    @property
    def key(self) -> str:
        """Key of the record of this message in its place."""
        return "/".join(("node", *map(str, self)))

    def linked_to(self, before: Node) -> Node:
        """Return this node (message with its place) placed after `before`, with the group, position and parent
        there."""
        position = before.position + 1
        # groups begin at the positions 1, 2, 4, 8 …; a power of two has no bit in common with the number before it
        begins_group = position & before.position == 0
        group = self.prefix[:_GROUP_DIGITS] if begins_group else before.group
        return self._replace(group=group, position=position, parent=before.digest if before.position else "")


_GROUP_DIGITS = 16
NOTHING = Node(EMPTY_HISTORY[:_GROUP_DIGITS], 0, 0, "", "", EMPTY_HISTORY)
"""Node before the first message of every history, to link it to something. It is not stored."""


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """Record of one saved history. A longer one saved later has a record of its own, though they share messages."""

    name: str
    """Digest in the key: its `prefix`, or its `tip` if another form (with other cache marks) already has that key."""
    order: str
    """Order number of the first save, by which histories are sorted by age."""
    prefix: str
    """Digest of the messages, which ignores details of form such as cache marks."""
    tip: str
    """Digest of the last node, which depends on the exact form of all messages; empty for an empty history."""
    groups: list[str]
    """Names of the groups in which its nodes are stored, in order."""
    messages: int
    turns: int
    used: float = 0.0
    """Time of the last save, restore or continuation, in seconds since the epoch; 0 if unknown. It may be up to an hour
    before the true one, as it is not noted more often."""
    size_bytes: int = 0
    """Size of the messages as JSON. In the store they take less space, as they are compressed and shared."""

    @property
    def key(self) -> str:
        """Key of the history as users see it: ``h1a2b3c4d``."""
        return history_key(self.name)

    @classmethod
    def from_json(cls, content: bytes) -> StoredHistory:
        """Return the history from the content of its record, in which the field `prefix` is called ``says``."""
        fields = json.loads(content)
        return cls(prefix=fields.pop("says"), **fields)

    def to_json(self) -> bytes:
        """Return the history as the content of its record."""
        return encode({"says" if name == "prefix" else name: value for name, value in asdict(self).items()}, "history")

    @property
    def digest(self) -> str:
        """Digest of the history with the name of the algorithm: ``sha256:…``, as in `History.digest`."""
        return f"sha256:{self.prefix}"


@dataclass(frozen=True, slots=True)
class SavedChain:
    """Values of a saved history that make it cheap to save a longer one: only its new messages are read and written.
    The messages must never be edited, as a longer history is recognized by the same message objects."""

    key: str = ""
    """Key of the history: ``h1a2b3c4d``; empty if nothing was saved yet."""
    messages: tuple[Message, ...] = ()
    last: Node = NOTHING
    """Node of the last message: the message with its place in the history."""
    groups: tuple[str, ...] = ()
    """Names of the groups in which the history's nodes are stored."""
    size_bytes: int = 0

    def begins(self, history: History) -> bool:
        """Return True if `history` begins with the messages of this chain, as the same objects."""
        first = history.messages[: len(self.messages)]
        return len(first) == len(self.messages) and all(map(is_, first, self.messages))


def chain_of(history: History, contents: Sequence[bytes], before: Node = NOTHING) -> list[Node]:
    """Return the nodes (messages with their place) for the messages of `history` that come after the node `before`.
    `contents`: these messages in the form in which they are stored."""
    turn_of_each_message = [turn.number for turn in history.turns for _ in range(turn.start, turn.stop)]
    turns = turn_of_each_message[before.position :]
    nodes = [before]
    for turn, content, prefix in zip(turns, contents, prefix_digests(history.digests, before.position), strict=True):
        nodes.append(Node("", 0, turn, "", digest_of(content), prefix).linked_to(nodes[-1]))
    return nodes[1:]


def nodes_of(keys: Sequence[str]) -> dict[str, Node]:
    """Return the nodes (messages with their place in a history) that these record `keys` contain, by digest."""
    nodes = {}
    for key in keys:
        group, position, turn, *digests = fields(key, 6)
        try:
            node = Node(group, int(position), int(turn), *digests)
            nodes[node.digest] = node
        except ValueError:
            raise StoreDamaged(f"{key[:80]!r} is the key of no message; restore the store from a backup") from None
    return nodes


def back_to_first(nodes: Mapping[str, Node], digest: str) -> Iterator[str]:
    """Yield the `digest` of a node and the digests of all nodes before it, back to the first message."""
    while digest in nodes:
        yield digest
        digest = nodes[digest].parent


def read_chain(backend: Backend, history: StoredHistory) -> list[Node]:
    """Return the messages of `history` as nodes, first message first; raise a StoreDamaged if one is missing."""
    nodes = nodes_of([key for group in history.groups for key in backend.keys(f"node/{group}/")])
    chain = [nodes[digest] for digest in back_to_first(nodes, history.tip)]
    is_cut = bool(chain[-1].parent if chain else history.tip)  # a first node has no parent, an empty history no tip
    if is_cut:
        raise StoreDamaged(f"{history.key}: message {history.messages - len(chain)} is missing or damaged")
    return chain[::-1]


def read_histories(backend: Backend, name: str = "") -> list[StoredHistory]:
    """Return the saved histories with names (hex digits of their keys) that begin with `name`, oldest first; all if it
    is empty."""
    contents = read(backend, backend.keys(f"history/{name}"))
    histories = [StoredHistory.from_json(content) for content in contents.values()]
    if [f"history/{history.name}" for history in histories] != list(contents):
        raise StoreDamaged("a history is stored under another's name; restore the store from a backup")
    return sorted(histories, key=lambda history: history.order)


def saved_history(backend: Backend, prefix: str, tip: str) -> StoredHistory | None:
    """Return the saved history with the digest `prefix` and exactly the messages that `tip`, the digest of its last
    node, depends on; None if it is not saved."""
    candidates = [history for name in (prefix, tip) if name for history in read_histories(backend, name)]
    return next((history for history in candidates if history.tip == tip), None)


def keep_history(backend: Backend, history: StoredHistory) -> StoredHistory:
    """Store `history` with a name and a number, and return it so; if it is stored already, only note its last use."""
    saved = saved_history(backend, history.prefix, history.tip)
    if saved and history.used - saved.used < NOTED_SECONDS:
        return saved
    if saved is None:
        is_prefix_taken = bool(backend.get([f"history/{history.prefix}"]))  # by another form of the same messages
        name = history.tip if is_prefix_taken else history.prefix
        saved = replace(history, name=name, order=next_order(backend))
    saved = replace(saved, used=history.used)
    backend.remove([f"history/{saved.name}"])
    backend.add({f"history/{saved.name}": pack(saved.to_json())})
    return saved


def read_messages(backend: Backend, nodes: Sequence[Node], place: str) -> list[Any]:
    """Return the exact messages of `nodes`. Raise a StoreDamaged if one is missing; `place` names the history in it."""
    contents = read(backend, [f"message/{digest}" for digest in dict.fromkeys(node.message for node in nodes)])
    for node in nodes:
        if f"message/{node.message}" not in contents:
            raise StoreDamaged(f"{place}, message {node.position}: its content is missing from the store")
    return [json.loads(contents[f"message/{node.message}"]) for node in nodes]


EXPECTED_KEY = f"expected 'h' and {KEY_DIGITS} hex digits"
"""Text for errors about the key of a history."""
_SHORTEST = 8
"""Number of hex digits of the shortest form of a history's key."""
_SUGGESTED = 3
"""Largest number of keys that an error suggests."""
_LISTED = 1_000
"""Largest number of stored keys that are compared with an unknown key, to suggest similar ones."""

_KEY = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})")
"""Key of a history: ``h1a2b3c4d``, ``sha256:…``; not ``h1a2b`` (too short), ``1a2b3c4d``."""
_REFERENCE = re.compile(r"(?:(.+):)?t([1-9][0-9]{0,8})")
"""Name of a turn: ``h1a2b3c4d:t12``, ``t12``; not ``t0``, ``h1a2b3c4d``."""


def parse_key(key: str) -> str:
    """Return the hex digits of a history's key, whole or short, or of its digest: ``1a2b3c4d`` for ``h1a2b3c4d``. Raise
    `ReferenceNotFound` for any other text."""
    match = _KEY.fullmatch(key.strip())
    if match is None:
        raise ReferenceNotFound(f"{key[:80]!r} is no history key; {EXPECTED_KEY}")
    return match[1]


def parse_reference(reference: str) -> tuple[str, int]:
    """Return the hex digits of the key and the number of the turn: ``("1a2b3c4d", 12)`` for ``h1a2b3c4d:t12``, and
    ``("", 12)`` for ``t12``. Raise `ReferenceNotFound` for any other text."""
    match = _REFERENCE.fullmatch(reference.strip())
    if match is None:
        raise ReferenceNotFound(f"{reference[:80]!r} is no reference; expected t12, or a history key and :t12")
    return parse_key(match[1]) if match[1] else "", int(match[2])


def find_history(backend: Backend, key: str) -> StoredHistory:
    """Return the history with this `key`; raise `ReferenceNotFound` if none has it or the key is too short."""
    digits = parse_key(key)
    histories = read_histories(backend, digits)
    if len(digits) < KEY_DIGITS:
        keys = ", ".join(history.key for history in histories[:_SUGGESTED]) or "none"
        raise ReferenceNotFound(f"h{digits} is too short for a key; {EXPECTED_KEY}; stored keys that begin so: {keys}")
    if not histories:
        keys_there = [history_key(name.partition("/")[2]) for name in backend.keys("history/")[:_LISTED]]
        raise ReferenceNotFound(f"no history h{digits} in this store; {_similar_keys(digits, keys_there)}")
    return histories[0]


def shortest_names(digests: Sequence[str]) -> dict[str, str]:
    """Return for each digest a short key like ``h1a2b3c4d``. All have the same length, the shortest (from 8 digits on)
    at which they differ from each other."""
    different = set(digests)
    length = next(count for count in range(_SHORTEST, 65) if len({one[:count] for one in different}) == len(different))
    return {digest: f"h{digest[:length]}" for digest in digests}


def find_referenced(backend: Backend, digits: str, turn: int, within: Sequence[str] | None) -> StoredHistory:
    """Return the history of the turn that is named ``hDIGITS:tTURN``, or ``tTURN`` if `digits` is empty.

    `within`: keys of the histories that the caller may see, with those that these extend; None means all. ``tTURN``
    means a turn of the first of `within` that is stored; if `within` is None, of the store's only conversation.

    Raises:
        ReferenceNotFound: there is no such history among those that the caller may see, or there are several.
    """
    if within is None:
        return find_history(backend, f"h{digits}") if digits else _only_conversation(backend, turn)
    visible: list[StoredHistory] = []
    for key in dict.fromkeys(within):
        if len(whole_digits := parse_key(key)) < KEY_DIGITS:
            raise ReferenceNotFound(f"{key[:80]!r} is too short for a key; {EXPECTED_KEY}")
        visible += read_histories(backend, whole_digits)[:1]
    if not digits:
        if not visible:
            raise ReferenceNotFound(f"no t{turn}: nothing of this conversation is stored yet")
        return visible[0]
    candidates = read_histories(backend, digits)
    matches = [history for history in candidates if history in visible]
    if candidates and not matches:  # a shorter history that a visible one extends is visible, too
        prefixes = {node.prefix for history in visible for node in read_chain(backend, history)}
        matches = [history for history in candidates if history.prefix in prefixes]
    if not matches:
        keys = list(dict.fromkeys(history.key for history in visible))
        raise ReferenceNotFound(f"no history h{digits} in this conversation; {_similar_keys(digits, keys)}")
    if len(matches) > 1:
        longer = ", ".join(list(shortest_names([history.name for history in matches]).values())[:_SUGGESTED])
        raise ReferenceNotFound(f"h{digits} means more than one history; use more characters: {longer}")
    return matches[0]


def _only_conversation(backend: Backend, turn: int) -> StoredHistory:
    """Return the store's longest history, for a reference like ``t12`` (`turn` is 12) without a key. Raise
    `ReferenceNotFound` if there are histories that are not beginnings of the longest one."""
    histories = sorted(read_histories(backend), key=lambda history: history.messages)[::-1]
    if not histories:
        raise ReferenceNotFound(f"no t{turn}: the store is empty")
    longest = histories[0]
    prefixes = {node.prefix for node in read_chain(backend, longest)}
    others = [history for history in histories[1:] if history.tip and history.prefix not in prefixes]
    if others:
        keys = ", ".join(f"{history.key}:t{turn}" for history in (longest, *others)[:_SUGGESTED])
        raise ReferenceNotFound(f"the store has several conversations, each with its own t{turn}; use one of: {keys}")
    return longest


def _similar_keys(digits: str, keys: Sequence[str]) -> str:
    """Return a text for the end of an error about the unknown key ``hDIGITS``: some of the existing `keys`, the most
    similar first."""
    from difflib import get_close_matches  # only errors need it

    if not keys:
        return "it is empty"
    similar = get_close_matches(f"h{digits}", keys, _SUGGESTED, 0.4) or keys[:_SUGGESTED]
    return f"it has {', '.join(similar)}" + (" and others" if len(keys) > len(similar) else "")


INDEXED, RECENT = "index/", "recent/"
"""Beginnings of the record keys of the stored search table for facts, and of the marks of new facts: ``recent/…`` for a
fact ``fact/…`` that the stored table does not contain."""
MOST_RECENT = 5_000
"""Largest number of new facts that each search reads one by one; with more, the table is stored again."""


def marks_of_new_facts(keys: Iterable[str]) -> dict[str, bytes]:
    """Return the records to be stored for new facts, so that searches add these facts to the stored search table:
    ``recent/a/b/1`` without content for the fact with the key ``fact/a/b/1``."""
    return {key.replace("fact/", RECENT, 1): b"" for key in keys}


def audit(backend: Backend) -> list[Finding]:
    """Recompute every digest in `backend`, and return a remark on each record that is damaged or missing."""
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
    """Yield a problem for each record with content that does not match its digest."""
    keys = [key for kind in ("message", "plan", "fact", "event", "state") for key in backend.keys(f"{kind}/")]
    for key, body in bodies(backend, keys):
        try:
            _checked_content(key, body)
        except StoreDamaged as error:
            yield str(error)


def _broken_chains(backend: Backend) -> Iterator[str]:
    """Yield a problem for each message, or link between messages, that a saved history needs and the store lacks."""
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
