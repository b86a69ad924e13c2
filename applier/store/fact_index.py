"""Index of the words of all facts, ranked by BM25, with the conversation, type and time of each fact.

A table in memory, like that of `ranked` for one search, but permanent; in large stores also stored as records, for
other processes. Forgetting removes all of these records; the next search builds the table from the remaining facts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from threading import RLock

from applier.store.backend import Backend
from applier.store.records import next_order, order_of, read
from applier.store.search import asked_terms, spaced, word_table
from planner.placeholders import history_key

INDEXED, RECENT = "index/", "recent/"
"""Prefixes of the records of the table, and of the keys of facts that are not in it yet."""
MOST_RECENT = 5_000
"""Most new facts that a search reads one by one, before the table is stored again (90 MB for a million)."""
PART_BYTES = 1 << 20
"""Size of the records into which a stored table is cut."""
READ_AT_ONCE, AT_ONCE = 10_000, 200
"""Number of facts read into the table together, and of keys yielded together."""
FIRST = 2_000
"""Number of facts to rank first; a question for more ranks all."""
COMMON = 20_000
"""Number of facts from which a word counts as common: a common word only ranks the finds if other words of the search
find enough. In sixty searches of a million facts the best 20 are the same without this rule, and the longest search
takes three times as long."""


def notes_of_facts(keys: Iterable[str]) -> dict[str, bytes]:
    """Return the records that mark the facts with these keys as new."""
    return {key.replace("fact/", RECENT, 1): b"" for key in keys}


def index_is_due(backend: Backend) -> bool:
    """Return whether so many facts are new that reading them would slow a search."""
    return len(backend.keys(RECENT)) > MOST_RECENT


def forget_index(backend: Backend) -> None:
    """Delete the table, also the copies in other processes."""
    backend.remove([*backend.keys(INDEXED), *backend.keys(RECENT)])


class FactIndex:
    """This process's table of the facts in one store; each use of it first adds new facts."""

    most_recent, first, common = MOST_RECENT, FIRST, COMMON
    """Limits, which a test of few facts sets lower."""

    def __init__(self, backend: Backend) -> None:
        """Prepare the table; the first use reads the facts."""
        self._backend, self._lock = backend, RLock()
        self._parts: list[str] | None = None
        self._table = sqlite3.connect(":memory:", check_same_thread=False)

    def keys(
        self, words: str, *, kind: str | None = None, since: float = 0.0, histories: Collection[str] | None = None
    ) -> Iterator[list[str]]:
        """Yield lists of at most `AT_ONCE` keys of facts, the newest first. The facts are of this `kind`, were
        extracted at the time `since` or later, and belong to these `histories`. With `words`, only facts with one of
        them are yielded, the best first and the newest first among equals."""
        with self._lock:
            self._refresh()
        yielded = set[int]()
        for most in (self.first, -1):  # first the best few, then all: -1 is no limit in SQL
            with self._lock:
                ids = [one for one in self._ids(words, kind, since, histories, most) if one not in yielded]
            yielded.update(ids)
            for start in range(0, len(ids), AT_ONCE):
                yield self._keys_of(ids[start : start + AT_ONCE])
            if len(ids) < most:
                return

    def store(self) -> None:
        """Add the new facts to the table, and store it if they are many. Then no later search has to wait for that."""
        with self._lock:
            self._refresh()

    def _keys_of(self, ids: Sequence[int]) -> list[str]:
        """Return the keys of the facts `ids` that the table still has; an id is a fact's order number."""
        sql = "SELECT facts.id, name FROM facts JOIN places ON places.id = place WHERE facts.id IN "
        with self._lock:
            places = dict(self._table.execute(f"{sql}({','.join(map(str, ids))})"))
        return [f"fact/{places[one]}/{one:012}" for one in ids if one in places]

    def _ids(
        self, words: str, kind: str | None, since: float, histories: Collection[str] | None, most: int
    ) -> list[int]:
        """Return the ids of at most `most` facts (-1: all), with the filters and in the order of `keys`."""
        wanted = "kind = coalesce(?, kind) AND time >= ?"
        values: tuple[object, ...] = (kind, since)
        if histories is not None:
            every = self._table.execute("SELECT id, name FROM places")
            places = (str(one) for one, name in every if history_key(name.partition("/")[2]) in histories)
            wanted += f" AND place IN ({','.join(places)})"
        chosen, order, terms = f"FROM facts WHERE {wanted}", "id DESC", asked_terms(words)
        if words.strip() and not terms:
            return []
        if terms:  # ranks only matches that are wanted; ``ORDER BY rank`` would rank and sort all of them
            chosen = f"FROM texts CROSS JOIN facts ON id = texts.rowid WHERE {wanted} AND texts MATCH ?"
            order, values = "bm25(texts), id DESC", (*values, terms)
            if most > 0 and kind is None and since <= 0.0 and histories is None and (few := self._seldom(terms)):
                chosen += " AND +texts.rowid IN (SELECT rowid FROM texts WHERE texts MATCH ?)"  # +: match by match
                values = (*values, few)
        sql = f"SELECT id {chosen} ORDER BY {order} LIMIT ?"
        return [one for (one,) in self._table.execute(sql, (*values, most))]

    def _seldom(self, terms: str) -> str:
        """Return the query for the uncommon words of `terms` if these alone find `first` facts; else an empty text."""

        def count(some: str) -> int:
            return int(self._table.execute("SELECT count(*) FROM texts WHERE texts MATCH ?", (some,)).fetchone()[0])

        every = terms.split(" OR ")
        seldom = [term for term in every if count(term) <= self.common]
        some = " OR ".join(seldom)
        return some if 0 < len(seldom) < len(every) and count(some) >= self.first else ""

    def _refresh(self) -> None:
        """Add the store's new facts to the table, and remove deleted ones; store it again if many facts are new."""
        with self._backend.transaction():
            parts = self._backend.keys(INDEXED)
            if parts != self._parts:
                self._open(parts)
            kind = RECENT if self._is_stored else "fact/"
            keys = {order_of(key): key.replace(kind, "fact/", 1) for key in self._backend.keys(kind)}
            if not (self._is_stored or self._added <= keys.keys()):  # another process deleted facts
                self._open([])
            new = [key for order, key in keys.items() if order not in self._added]
            for start in range(0, len(new), READ_AT_ONCE):
                self._add(new[start : start + READ_AT_ONCE])
        if len(self._added) > self.most_recent:
            self._keep(parts)

    def __del__(self) -> None:
        """Close the table."""
        self._table.close()

    def _open(self, parts: Sequence[str]) -> None:
        """Replace the table by the stored one, with the record keys `parts`, or by an empty one if that is damaged."""
        bodies = self._backend.get(parts)
        whole = b"".join(bodies[part] for part in parts if part in bodies)
        self._table.close()
        self._table = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._is_stored = {part.split("/")[2] for part in parts} == {_digest(whole)}
        self._parts, self._added = list(parts), set[int]()
        if self._is_stored:
            self._table.deserialize(whole)
            return
        word_table(self._table)
        self._table.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        self._table.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, place INTEGER, kind TEXT, time REAL)")

    def _add(self, keys: Sequence[str]) -> None:
        """Read the facts with these record `keys` into the table."""
        facts = {key: json.loads(content) for key, content in read(self._backend, keys).items()}
        self._added.update(map(order_of, keys))
        places = {key: key.partition("/")[2].rpartition("/")[0] for key in facts}
        run = self._table.executemany
        self._table.execute("BEGIN")
        run("INSERT OR IGNORE INTO places (name) VALUES (?)", [(name,) for name in dict.fromkeys(places.values())])
        run(
            "INSERT INTO facts SELECT ?, id, ?, ? FROM places WHERE name = ?",
            [(order_of(key), one["type"], one["timestamp"], places[key]) for key, one in facts.items()],
        )
        texts = ((order_of(key), spaced(f"{one['content']}\n{one['quote']}")) for key, one in facts.items())
        run("INSERT INTO texts (rowid, words) VALUES (?, ?)", texts)
        self._table.execute("COMMIT")

    def _keep(self, parts: Sequence[str]) -> None:
        """Store the table in place of the records `parts`, unless a fact was forgotten or another process stored its
        own table meanwhile."""
        whole = self._table.serialize()
        with self._backend.transaction(write=True):
            existing = set() if self._is_stored else set(map(order_of, self._backend.keys("fact/")))
            if self._backend.keys(INDEXED) != list(parts) or not (self._is_stored or self._added <= existing):
                return
            no_longer_new = [key for key in self._backend.keys(RECENT) if order_of(key) in self._added]
            self._backend.remove([*parts, *no_longer_new])
            place = f"{INDEXED}{next_order(self._backend)}/{_digest(whole)}"
            starts = range(0, len(whole), PART_BYTES)
            records = {f"{place}/{start:012}": whole[start : start + PART_BYTES] for start in starts}
            self._backend.add(records)
        self._parts, self._added, self._is_stored = list(records), set(), True


def _digest(whole: bytes) -> str:
    return blake2b(whole, digest_size=16).hexdigest()
