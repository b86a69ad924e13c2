"""A store's records in one file: a backup of all of them, or one conversation, which another store takes in.

The file is SQLite's, with the table that a store has: its owner's alone, whole or not there. A conversation's file is
a stranger's until it was checked: every digest is computed anew, and of its states only those are taken that a
conversation needs, so that nothing in it approves or admits anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from applier.store.backend import VERSION_TABLE, Backend
from applier.store.fact_index import notes_of_facts
from applier.store.forgetting import SESSION_STATE, Kin, events_of, naming, state_name
from applier.store.opening import check_format, open_store
from applier.store.records import (
    EMPTY_HISTORY,
    GROUP_DIGITS,
    Node,
    StoredHistory,
    audit,
    digest_of,
    fields,
    groups_of,
    next_order,
    nodes_of,
    pack,
    parts,
    read,
    read_histories,
    saved_history,
)
from applier.store.reference import find_history
from applier.store.secrets import MARK
from applier.store.sqlite import SqliteBackend
from applier.store.store import Store
from planner.errors import CompactorError, StoreDamaged, StoreError
from planner.plan import CompactionPlan, ExtractedFact
from planner.reading.messages import message_digest, to_json

__all__ = ["back_up", "export_conversation", "import_records"]

CARRIED = SESSION_STATE, "origin:", "view:", "answer:"
"""What begins the names of the states that come with a conversation: where it stands, where it worked, its views."""
_SEAL = "seal"
"""The key of the digest of all other records, as they were written."""


def back_up(store: Store, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write all of `store`, as it stands at one moment, to the new file `path`: a store's file, to be named as one, or
    taken in by another store. Who writes to the store meanwhile waits for nothing where that is a file.

    Raises:
        StoreError: the file is there already and is not to `overwrite`; or it cannot be written.
    """
    _write(store, Path(path), lambda backend: backend.keys(""), overwrite)


def export_conversation(
    store: Store, history_key: str, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write one conversation to the new file `path`: the history, what it extends and its session may go back to, with
    their plans, facts, events and states.

    Raises:
        ReferenceNotFound: it is not there.
        StoreError: as by `back_up`.
    """
    _write(store, Path(path), lambda backend: _keys_of(backend, history_key), overwrite)


def _keys_of(backend: Backend, history_key: str) -> list[str]:
    kin, history = Kin(backend), find_history(backend, history_key)
    family = kin.family([history.name])
    nodes = [kin.nodes[digest] for digest in family.nodes]
    says = {node.says for node in nodes} | {kin.histories[name].says for name in family.histories}
    digests = says | {kin.histories[name].tip for name in family.histories} - {""}
    made = [key for kind in ("plan", "fact") for key in backend.keys(f"{kind}/") if fields(key, 3)[1] in says]
    states = [key for key in family.states if state_name(key).startswith(CARRIED)]
    events = {*events_of(backend, states), *naming(backend, "event", digests)}
    histories, own = [f"history/{name}" for name in family.histories], [kin.keyed[digest][0] for digest in family.nodes]
    messages = {f"message/{node.message}" for node in nodes}
    return sorted({"order", *histories, *own, *messages, *made, *states, *events})


def _write(store: Store, path: Path, keys_of: Callable[[Backend], Sequence[str]], overwrite: bool) -> None:
    """Copy records into a store in a private folder beside `path`, then put its file in place at once."""
    _refuse_taken(store, path, overwrite)
    try:
        folder = tempfile.mkdtemp(prefix=f".{path.name[:100]}.", dir=path.absolute().parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    part, seal = Path(folder, "store.db"), hashlib.sha256()
    try:
        source = store.backend
        with (
            open_store(part, redact_originals=False) as copy,
            source.transaction(),
            copy.backend.transaction(write=True),
        ):
            keys = [key for key in keys_of(source) if key != _SEAL]
            for some in parts(keys):
                records = source.get(some)
                _add_to(seal, records)
                copy.backend.add(records)
            copy.backend.add({_SEAL: seal.digest()})
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_taken(store: Store, path: Path, overwrite: bool) -> None:
    if os.path.lexists(path):
        if not path.is_file() or str(path.resolve()) == store.backend.place or Path(f"{path}-wal").exists():
            raise StoreError(f"{path}: is no file that can be replaced; give another")
        if not overwrite:
            raise StoreError(f"{path}: is there already; say --overwrite to replace it, or give another file")


def _add_to(seal: hashlib._Hash, records: Mapping[str, bytes]) -> None:
    for key, body in sorted(records.items()):
        seal.update(f"{len(key)} {len(body)} {key} ".encode() + body)


class _Archive(SqliteBackend):
    """The file that is taken in: only read, and no SQL that stands in it is run."""

    def connect(self) -> sqlite3.Connection:
        """See `SqlBackend.connect`."""
        alone = "" if Path(f"{self._path}-wal").exists() else "&immutable=1"
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=ro{alone}", uri=True, isolation_level=None, check_same_thread=False
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


def import_records(store: Store, path: str | os.PathLike[str], *, is_own_backup: bool = False) -> list[str]:
    """Take what the file `path` holds into `store`, all of it or nothing; the keys of its histories, oldest first.

    What `store` has already it keeps. Of a conversation's file, whoever made it, every digest has to be right, what is
    to stay out of this store (`redact_originals`) is taken out, and states are taken only as far as a conversation
    needs them. With `is_own_backup` all that a store held is taken, also what the person approved.

    Raises:
        StoreError: it is not such a file, it is damaged, or was changed since it was written.
    """
    file = Path(path)
    if not file.is_file():
        raise StoreError(f"{path}: no such file")
    archive = _Archive(file, 0.0)
    try:
        check_format(archive)
        for problem in audit(archive):
            raise StoreDamaged(f"{path}: damaged: {problem.problem}; nothing was imported")
        with archive.transaction(), store.backend.transaction(write=True):
            if not is_own_backup:
                _check_seal(archive)
            return _Import(store, archive, is_own_backup).done()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # its digests are right
        if isinstance(error, CompactorError) and not isinstance(error, ValidationError):
            raise
        raise StoreDamaged(
            f"{path}: holds what no store writes ({type(error).__name__}); nothing was imported"
        ) from None
    finally:
        archive.close()


def _check_seal(archive: _Archive) -> None:
    keys, seal = [key for key in archive.keys("") if key != _SEAL], hashlib.sha256()
    for some in parts(keys):
        _add_to(seal, archive.get(some))
    if archive.get([_SEAL]) != {_SEAL: seal.digest()}:
        raise StoreDamaged(f"{archive.place}: is not as `compactor store export` wrote it; nothing was imported")


@dataclass
class _Import:
    """Takes the records of an archive into a store, within a transaction of each."""

    store: Store
    archive: Backend
    is_own_backup: bool
    messages: dict[str, str] = field(default_factory=dict)
    """What a message is called in the store, by its digest in the archive."""
    plain: dict[str, str] = field(default_factory=dict)
    """What it says, see `message_digest`; nothing of one from which secrets were taken."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """The store's node, by the digest of the archive's."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """By what a history or a prefix says."""
    known: dict[str, set[bytes]] = field(default_factory=dict)
    """What the store has in an order, by its place."""

    def done(self) -> list[str]:
        """The keys of all histories, once everything is taken in."""
        self._take_messages()
        self._take_nodes()
        keys = [self._history(one) for one in read_histories(self.archive)]
        takes = {"plan": self._plan, "fact": self._fact, "event": self._event, "state": self._state}
        for kind, take in takes.items():  # of the first three in their order
            for key in sorted(self.archive.keys(f"{kind}/"), key=lambda key: key.rpartition("/")[2]):
                take(key, read(self.archive, [key])[key])
        return keys

    def _take_messages(self) -> None:
        keys = self.archive.keys("message/")
        for some in parts(keys):
            for key, content in read(self.archive, some).items():
                own = self.store.stored_form(json.loads(content), key)
                digest = key.partition("/")[2]
                self.messages[digest] = digest_of(own)
                self.plain[digest] = "" if MARK.encode() in content else message_digest(json.loads(content))
                self.store.backend.add({f"message/{self.messages[digest]}": pack(own)})

    def _take_nodes(self) -> None:
        """A chain is as it says unless secrets were taken out of it: then what it said before is not known."""
        self.nodes[""] = Node(0, 0, "", "", "")
        running: dict[str, hashlib._Hash | None] = {"": hashlib.sha256()}
        groups: dict[str, list[str]] = {"": []}
        keyed = nodes_of(self.archive.keys("node/"))
        for digest, (_, node) in sorted(keyed.items(), key=lambda item: item[1][1].position):
            before, plain = running[node.parent], self.plain[node.message]
            running[digest] = now = before.copy() if before and plain else None
            if now:
                now.update(plain.encode())
            above = self.nodes[node.parent]
            if node.position != above.position + 1 or (now and now.hexdigest() != node.says):
                raise ValueError(digest)
            own = node._replace(parent=above.digest if node.parent else "", message=self.messages[node.message])
            is_first = node.position & (node.position - 1) == 0
            groups[digest] = [*groups[node.parent], node.says[:GROUP_DIGITS]] if is_first else groups[node.parent]
            self.nodes[digest], self.groups[node.says] = own, groups[digest]
            self.store.backend.add({own.key(groups[digest]): b""})

    def _history(self, history: StoredHistory) -> str:
        last = self.nodes[history.tip]
        says, tip = last.says or EMPTY_HISTORY, last.digest if history.tip else ""
        if (says, history.messages, history.turns) != (history.says, last.position, last.turn):
            raise ValueError(history.key)
        self.groups.setdefault(says, groups_of(()))
        used, backend = history.used if self.is_own_backup else self.store.clock(), self.store.backend
        saved = saved_history(backend, says, tip)
        if saved is None:
            name = tip if backend.get([f"history/{says}"]) else says
            order, groups = next_order(backend), self.groups[says]
            saved = StoredHistory(
                name, order, says, tip, groups, last.position, last.turn, size_bytes=history.size_bytes
            )
        record = replace(saved, used=max(saved.used, used)).record()
        backend.remove(record)
        backend.add(record)
        return saved.key

    def _plan(self, key: str, content: bytes) -> None:
        digest, says, _ = fields(key, 3)
        CompactionPlan.from_json(content, key)
        if (says in self.groups or self.is_own_backup) and not self.store.backend.keys(f"plan/{digest}/"):
            self.store.backend.add({f"plan/{digest}/{says}/{next_order(self.store.backend)}": pack(content)})

    def _fact(self, key: str, content: bytes) -> None:
        ExtractedFact.model_validate_json(content)
        says = fields(key, 3)[1]
        self._in_order(f"fact/{self.groups[says][-1]}/{says}/", content)

    def _event(self, _: str, content: bytes) -> None:
        event = json.loads(content)
        abs(event["time"])
        self._in_order(f"event/{to_json(event.get('session'))}/", content)

    def _in_order(self, place: str, content: bytes) -> None:
        """Behind what stands there, unless that has the same."""
        backend = self.store.backend
        if place not in self.known:
            self.known[place] = set(read(backend, backend.keys(place)).values())
        if content not in self.known[place]:
            self.known[place].add(content)
            key = f"{place}{next_order(backend)}"
            backend.add({key: pack(content), **(notes_of_facts([key]) if key.startswith("fact/") else {})})

    def _state(self, key: str, content: bytes) -> None:
        name, value = state_name(key), json.loads(content)
        if self.is_own_backup or name.startswith(CARRIED):
            self.store.backend.add({f"state/{to_json(name)}": pack(self.store.stored_form(value, key))})
