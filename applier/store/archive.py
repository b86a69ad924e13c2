"""Copies of a store in one file: a backup of everything, or one conversation to import into another store.

A conversation's file may come from a stranger. So every digest is recomputed, and only the states that a conversation
needs are imported, none that would approve learned lessons or admit people to the proxy.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from pydantic import ValidationError

from applier.store import records
from applier.store.backend import VERSION_TABLE, Backend, SqliteBackend
from applier.store.forgetting import SESSION_STATE, Relations, names_in, state_name
from applier.store.opening import OLD_FORMAT, WholeNames, check_format, open_store
from applier.store.records import NewRecord, Node, StoredHistory, find_history, marks_of_new_facts, pack
from applier.store.store import Store, event_place
from planner.errors import CompactorError, StoreDamaged, StoreError
from planner.plan import CompactionPlan, ExtractedFact
from planner.reading.messages import message_digest, prefix_digests, to_json
from planner.reading.secrets import MARK

CARRIED = SESSION_STATE, "origin:", "view:", "answer:"
"""Beginnings of the names of the states (named JSON values) that are exported with a conversation: its session, its
folder, its views (compacted lists), and the texts by which the proxy answered requests to compact it."""
_LARGEST_BYTES = 64 * 2**20
"""Largest content of one record of most kinds in bytes: twice the size of a request to the Messages API."""
_MOST_BYTES = {"history": 2**14, "order": 2**7, "fact": 2**20}
"""Largest content of the other kinds of records, in bytes."""
_MOST_VALUES = 500_000
"""Largest number of JSON values in one record, as each takes about a hundred bytes of memory."""
_MOST_RATIO = 20
"""Usual upper limit for the size of unpacked content, as a multiple of its compressed size; messages have none."""
_ROOM_BYTES = 32 * 2**20
"""Sum of the bytes by which the records of one file may be larger than `_MOST_RATIO` allows."""
_SEAL = "seal"
"""Key of the record with a digest of all other records in a file, by which a later change of the file is noticed."""


def back_up(store: Store, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write all records of `store`, as of one moment, to the new file `path`, which is a store itself."""
    _write(store, Path(path), lambda backend: backend.keys(""), overwrite)


def export_conversation(
    store: Store, history_key: str, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write one conversation to the new file `path`, to import it into another store: the history (list of messages)
    with this key, histories that it extends or that its session can return to, their plans, facts, events, states."""
    _write(store, Path(path), lambda backend: _keys_of_conversation(backend, history_key), overwrite)


def _keys_of_conversation(backend: Backend, history_key: str) -> list[str]:
    """Return the keys of all records to export with this history: its messages, the histories that it needs, and
    their plans, facts, events and states."""
    relations, history = Relations(backend), find_history(backend, history_key)
    family = relations.family([history.name])
    nodes = [relations.nodes[digest] for digest in family.nodes]  # messages with their places
    # a prefix is the digest of a whole history or of its beginning; a tip, the digest of its last node
    prefixes = {node.prefix for node in nodes} | {relations.histories[name].prefix for name in family.histories}
    digests = prefixes | {relations.histories[name].tip for name in family.histories} - {""}
    plans_and_facts = [
        key for kind in ("plan", "fact") for key in backend.keys(f"{kind}/") if records.prefix_of(key) in prefixes
    ]
    states = [key for key in family.states if state_name(key).startswith(CARRIED)]
    nodes_and_messages = {key for node in nodes for key in (node.key, f"message/{node.message}")}
    histories = {f"history/{name}" for name in family.histories}
    events = relations.events(digests, states)
    return sorted({"order", *histories, *nodes_and_messages, *plans_and_facts, *states, *events})


def _write(store: Store, path: Path, keys_of: Callable[[Backend], Sequence[str]], overwrite: bool) -> None:
    """Copy the records with the keys that `keys_of` returns, and a digest of them all, into a new store; then move its
    file to `path`. Raise a StoreError if `path` is a folder, a store in use or, without `overwrite`, any file."""
    if os.path.lexists(path):  # a store in use has a log (``-wal``) beside it
        if not path.is_file() or str(path.resolve()) == store.backend.place or Path(f"{path}-wal").exists():
            raise StoreError(f"{path}: is no file that can be replaced; give another")
        if not overwrite:
            raise StoreError(f"{path}: exists already; replace it by --overwrite, or give another file")
    beside, source = path.absolute().parent, store.backend
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name[:100]}.", dir=beside, ignore_cleanup_errors=True
        ) as folder:
            part = Path(folder, "store.db")
            with (
                open_store(part, redact_originals=False) as copy,
                source.transaction(),
                copy.backend.transaction(write=True),
            ):
                for some_keys in records.in_parts([key for key in keys_of(source) if key != _SEAL]):
                    copy.backend.add(source.get(some_keys))
                copy.backend.add({_SEAL: _seal_of(copy.backend)})
            os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def _seal_of(backend: Backend) -> bytes:
    """Return a digest of the keys and bodies of all records except the seal, the record with this digest."""
    seal = hashlib.sha256()
    for key, body in records.bodies(backend, [key for key in backend.keys("") if key != _SEAL]):
        seal.update(f"{len(key)} {len(body)} {key} ".encode() + body)
    return seal.digest()


class Archive(SqliteBackend):
    """File to import, opened as a database that is only read; no SQL in the file is run, as it may be a stranger's."""

    is_old = False
    """True if the file has the format before the present one, with short keys."""

    def connect(self) -> sqlite3.Connection:
        """Return a read-only connection, after checking that the file has exactly the tables of a store."""
        # without a log beside it, SQLite shall create no files next to the database, as it may be in a read-only folder
        immutable = "" if Path(f"{self._path}-wal").exists() else "&immutable=1"
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=ro{immutable}", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {pragma}")
            schema = set(connection.execute("SELECT type, name FROM sqlite_master"))
            if schema != {("table", "records"), ("table", VERSION_TABLE)}:
                raise StoreError(f"{self.place}: not a conversation or a backup of this program; give another file")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """Open the file `path` for `import_archive`, after checking its form, its sizes and every digest in it."""
    file = Path(path)
    if not file.is_file():
        raise StoreError(f"{path}: no such file")
    archive = Archive(file, 0.0)
    try:
        archive.is_old = check_format(archive) == OLD_FORMAT
        _check_sizes(archive)
        for problem in records.audit(archive):
            raise StoreDamaged(f"{path}: damaged: {problem.problem}; nothing was imported")
        yield archive
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # right digests, wrong content
        if isinstance(error, CompactorError) and not isinstance(error, ValidationError):
            raise
        raise StoreDamaged(
            f"{path}: contains data that no store writes ({type(error).__name__}); nothing was imported"
        ) from None
    finally:
        archive.close()


def import_archive(store: Store, archive: Archive, *, is_own_backup: bool = False) -> list[str]:
    """Import all records of `archive` into `store`, or nothing; return the keys of its histories, oldest first.

    Records that `store` already has stay. Of the states (named JSON values), only those that an imported conversation
    needs are imported, as somebody else may have exported the file. From one's own backup (`is_own_backup`), all states
    are imported, also those that approve lessons and people. A store that redacts originals stores the records without
    secrets.
    """
    place = archive.place
    if place == store.backend.place:  # it would wait for itself
        raise StoreError(f"{place}: is the store that is to take it in; give another file, or by --store another store")
    with archive.transaction(), store.backend.transaction(write=True):
        if not is_own_backup and archive.get([_SEAL]) != {_SEAL: _seal_of(archive)}:
            raise StoreDamaged(f"{place}: is not as `compactor store export` wrote it; nothing was imported")
        whole_names = WholeNames(archive) if archive.is_old else None
        return _Import(store, archive, is_own_backup, whole_names).run()


def _check_sizes(archive: Archive) -> None:
    """Raise a StoreError if a record would unpack to more than a store ever writes, which could fill the memory."""
    with archive.transaction():
        room = _ROOM_BYTES
        for key in archive.keys(""):
            kind, body = key.partition("/")[0], archive.get([key])[key]
            if kind in ("message", "history", "plan", "fact", "event", "state", "order"):
                most = _MOST_BYTES.get(kind, _LARGEST_BYTES)
                size = records.unpacked_bytes(body, most)
                if kind != "message":
                    allowed = _MOST_RATIO * len(body)
                    room -= size - allowed  # text compresses by at most this ratio; what is larger uses up the room
                too_large = size > most or room < 0
                if too_large or records.count_values(records.unpack(body, key), _MOST_VALUES) > _MOST_VALUES:
                    raise StoreError(f"{archive.place}: {key[:40]} is larger than what a store writes; not imported")


@dataclass
class _Import:
    """One import of a file's records into a store, inside a transaction of both. It raises a ValueError for content
    that no store writes, which `open_archive` reports as damage."""

    store: Store
    archive: Backend
    is_own_backup: bool
    whole_names: WholeNames | None = None
    """Translator from the short keys and ids of an old file to full ones; None for a new file."""
    nodes: dict[str, Node] = field(default_factory=lambda: {"": records.NOTHING})
    """Nodes (messages with their places in a history) as this store has them, by their digests in the file. They differ
    from those in the file if the store removes secrets."""
    groups: dict[str, list[str]] = field(default_factory=lambda: {records.NOTHING.prefix: [records.NOTHING.group]})
    """Names of the groups in which a history's nodes are stored, by the digest of the history."""
    others: set[str] = field(default_factory=set)
    """Names of the store's histories that are not in the file. No imported state may mention one of them."""

    def run(self) -> list[str]:
        """Import all records of the file, and return the keys of its histories."""
        backend, histories = self.store.backend, records.read_histories(self.archive)
        for history in sorted(histories, key=lambda history: -history.messages):
            if history.tip not in self.nodes:  # else it is the beginning of a longer one, with the same messages
                self._import_messages(history)
        imported = [self._import_history(one) for one in histories]
        self.others = {one.name for one in records.read_histories(backend)} - {one.name for one in imported}
        for key, content in self._records_of("plan"):
            self._import_plan(key, content)
        facts = []
        for key, content in self._records_of("fact"):
            ExtractedFact.model_validate_json(content)  # raises a ValueError if it is no fact
            prefix = records.prefix_of(key)
            facts.append(NewRecord(f"fact/{self.groups[prefix][-1]}/{prefix}/", content))
        backend.add(marks_of_new_facts(records.add_in_order(backend, facts)))
        events = [NewRecord(event_place(json.loads(content)), content) for _, content in self._records_of("event")]
        records.add_in_order(backend, events)
        for key, content in self._records_of("state"):
            self._import_state(key, content)
        return [one.key for one in imported]

    def _records_of(self, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of the file's records of a `kind` such as ``fact``, in the order of their last field,
        usually the order number. Short keys and ids of an old file are replaced by full ones."""
        for key in sorted(self.archive.keys(f"{kind}/"), key=lambda key: key.rpartition("/")[2]):
            content = records.read(self.archive, [key])[key]
            if self.whole_names is None or kind not in ("state", "event"):
                yield key, content
            elif record := self.whole_names.record(key, content):
                yield record

    def _import_messages(self, history: StoredHistory) -> None:
        """Import the messages of `history` with their places in it, without secrets if the store removes them. Refuse a
        message that does not belong at the place that its key names."""
        nodes = records.read_chain(self.archive, history)
        messages = records.read_messages(self.archive, nodes, history.key)
        exact = takewhile(lambda message: MARK not in to_json(message), messages)  # no digest shows removed secrets
        prefixes = prefix_digests(list(map(message_digest, exact)))
        if any(prefix != node.prefix for prefix, node in zip(prefixes, nodes, strict=False)):
            raise ValueError(history.key)
        stored, groups = records.NOTHING, list[str]()
        for node, message in zip(nodes, messages, strict=True):
            content = self.store.stored_form(message, history.key)
            stored = node._replace(message=records.digest_of(content)).linked_to(stored)
            if (stored.group, stored.position) != (node.group, node.position):
                raise ValueError(history.key)
            groups = groups if node.group in groups else [*groups, node.group]
            self.nodes[node.digest], self.groups[node.prefix] = stored, groups
            self.store.backend.add({f"message/{stored.message}": pack(content), stored.key: b""})

    def _import_history(self, history: StoredHistory) -> StoredHistory:
        """Store a history, and return it as stored. Raise an error if its numbers of messages and turns are not those
        of its last message, as the archive is damaged or forged then."""
        last = self.nodes[history.tip]
        used = history.used if self.is_own_backup else self.store.clock()
        stored = replace(history, tip=last.digest if history.tip else "", used=used)
        claimed = stored.prefix, stored.groups, stored.messages, stored.turns, type(stored.size_bytes)
        if claimed != (last.prefix, self.groups[last.prefix], last.position, last.turn, int):
            raise ValueError(stored.key)
        return records.keep_history(self.store.backend, stored)

    def _import_plan(self, key: str, content: bytes) -> None:
        """Store a plan if it is not stored yet and was made for an imported history; raise an error if it is not valid.
        From one's own backup, plans for other histories are stored, too."""
        digest, prefix, _ = records.fields(key, 3)
        CompactionPlan.from_json(content, key)  # raises an error if it is not valid
        # `prefix` is the digest of the plan's history; `groups` has the digests of all imported ones
        if (prefix in self.groups or self.is_own_backup) and not self.store.backend.keys(f"plan/{digest}/"):
            self.store.backend.add({f"plan/{digest}/{prefix}/{records.next_order(self.store.backend)}": pack(content)})

    def _import_state(self, key: str, content: bytes) -> None:
        """Store a state (named JSON value). From a file that may be a stranger's, store it only if its name begins as
        in `CARRIED` and it mentions no history of the store that is not in the file."""
        name, value = state_name(key), json.loads(content)
        if name.startswith("origin:"):  # a wrong one would make every list of conversations fail
            event_place(value)  # raises an error if its time is not valid
            if (value["history"], type(value["folder"])) != (name.removeprefix("origin:"), str):
                raise ValueError(key)
        names_another = any(other.startswith(digits) for digits in names_in(content) for other in self.others)
        if self.is_own_backup or (name.startswith(CARRIED) and not names_another):
            self.store.backend.add({f"state/{to_json(name)}": pack(self.store.stored_form(value, key))})
