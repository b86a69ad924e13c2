"""The store on an SQL database: each method is one transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self

from applier.store.chain import ROOT, Known, SavedMemo, add_nodes, chain_of, contents_of, node_contents
from applier.store.content import digest_of, encode, pack, unpack
from applier.store.database import Database, Row, Transaction, release_database
from applier.store.protocol import Restored, SearchResult, StoredHistory, StoreSize
from applier.store.reference import (
    SHORT_DIGITS,
    SavedHistory,
    digest_range,
    find_history,
    find_referenced,
    history_key,
    parse_key,
    parse_reference,
    turn_nodes,
    unambiguous,
)
from applier.store.secrets import redact_data, redact_texts
from applier.store.tables import audit, orphan_plans, remove_history
from planner.errors import PlanRejected, ReferenceNotFound, StoreDamaged, StoreError
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.history import History, read_history
from planner.reading.lines import Part
from planner.reading.messages import Message, to_json

__all__ = ["SqlStore"]

_PLAN_ID = re.compile(r"p?([0-9a-f]{8,64})")
"""``p1a2b3c4d``, ``1a2b3c4d``; not ``p12`` (too short), ``h1a2b3c4d``."""
_LAST_SECOND = 10**15
"""Far behind what any clock says, and a number that every database holds."""
_SUGGESTED = 3
"""Turns that an error names where a search does match."""


class SqlStore:
    """A `Store` on `database`, whose tables are there."""

    def __init__(self, database: Database, *, redact_originals: bool = False) -> None:
        """Use `database` until `close`. With `redact_originals` no secret is stored at all, see `open_store`."""
        self.database = database
        self._redacts = redact_originals
        self._open = True
        self._memo = SavedMemo()

    def save_history(self, history: History) -> str:
        """See `Store.save_history`."""
        return self._saved(history, self._memo.prefix(history)) or self._saved(history, Known())

    def _saved(self, history: History, known: Known) -> str:
        """Save `history`, of which `known` is stored; its key, or nothing if `known` is not."""
        contents = node_contents(history, len(known.nodes), redact_texts if self._redacts else None)
        nodes = chain_of(history, contents, known.nodes)
        entry = SavedHistory(history_key(history.digest), _bytes(history.digest), nodes[-1].digest if nodes else ROOT)
        if not (key := self._key(entry)):
            with self.database.transaction(write=True) as transaction:
                if not add_nodes(transaction, nodes, contents):
                    return ""
                transaction.rows(
                    "INSERT INTO histories (says, tip) VALUES (?, ?) ON CONFLICT DO NOTHING", (entry.says, entry.tip)
                )
            key = self._key(entry)
        self._memo.remember(history, nodes, known)
        return key

    def _key(self, entry: SavedHistory) -> str:
        """What a saved history is called: by its digest if no other form of it was saved before; else by its form."""
        rows = self._rows("SELECT tip FROM histories WHERE says = ? ORDER BY seq", (entry.says,), types=(bytes,))
        tips = [row[0] for row in rows]
        if entry.tip not in tips:
            return ""
        return entry.key if tips[0] == entry.tip else history_key(entry.tip.hex())

    def load_history(self, key: str) -> History:
        """See `Store.load_history`."""
        with self.database.transaction() as transaction:
            entry = find_history(transaction, key)
            contents = contents_of(transaction, entry.chain(transaction), entry.key)
        return read_history([content.value() for content in contents])

    def histories(self) -> tuple[StoredHistory, ...]:
        """See `Store.histories`."""
        rows = self._rows(
            "SELECT h.says, h.tip, coalesce(n.position, 0), coalesce(n.turn, 0) FROM histories h "
            "LEFT JOIN nodes n ON n.digest = h.tip ORDER BY h.seq",
            types=(bytes, bytes, int, int),
        )
        first: dict[bytes, bytes] = {}
        return tuple(
            StoredHistory(
                history_key((says if first.setdefault(says, tip) == tip else tip).hex()),
                f"sha256:{says.hex()}",
                *counts,
            )
            for says, tip, *counts in rows
        )

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
        within: Sequence[str] | None = None,
    ) -> Restored:
        """See `Store.restore`."""
        from applier.store.excerpt import restored_part  # who only saves need not load what searches

        wanted = parse_reference(reference)
        with self.database.transaction() as transaction:
            entry = find_referenced(transaction, wanted, within)
            nodes = entry.chain(transaction)
            contents = contents_of(transaction, turn_nodes(nodes, wanted.turn, entry.key), entry.key)
        name = f"{entry.key}:t{wanted.turn}"
        messages: list[Message] = [content.value() for content in contents]
        part = partial(restored_part, name, messages, lines=lines, search=search, max_characters=max_characters)
        try:
            return part(by_words=False)
        except ReferenceNotFound as error:
            if not search:
                raise
            elsewhere = self.search(search, f"h{entry.tip.hex()}", limit=_SUGGESTED)
            if elsewhere.by_words:
                with suppress(ReferenceNotFound):
                    return part()
            raise ReferenceNotFound(f"{error}; {_turns_of(entry.key, elsewhere)}") from None

    def search(
        self,
        text: str,
        history_key: str,
        *,
        part: Part | None = None,
        tool: str | None = None,
        limit: int | None = None,
    ) -> SearchResult:
        """See `Store.search`."""
        from applier.store.excerpt import find_matches

        return find_matches(self.load_history(history_key), text, part=part, tool=tool, limit=limit)

    def save_plan(self, plan: CompactionPlan) -> str:
        """See `Store.save_plan`."""
        content = encode(redact_texts(plan.model_dump(mode="json")), "plan")
        digest = digest_of(content)
        with self.database.transaction(write=True) as transaction:
            transaction.rows(
                "INSERT INTO plans (digest, says, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (digest, _bytes(plan.history.digest), pack(content)),
            )
        return _plan_id(digest)

    def load_plan(self, plan_id: str) -> CompactionPlan:
        """See `Store.load_plan`."""
        with self.database.transaction() as transaction:
            digest, body = _find_plan(transaction, plan_id)
        content = unpack(body, digest, f"plan {plan_id}")
        try:
            return CompactionPlan.from_json(content, plan_id)
        except PlanRejected as error:
            raise StoreDamaged(f"plan {plan_id} is of another version of this program: {error}") from None

    def plans(self, history_key: str) -> tuple[str, ...]:
        """See `Store.plans`."""
        return tuple(_plan_id(row[0]) for row in self._made_for(history_key, "plans", "digest", bytes))

    def save_facts(self, facts: Sequence[ExtractedFact], history_key: str) -> None:
        """See `Store.save_facts`."""
        contents = [encode(fact, "fact") for fact in redact_texts([fact.model_dump(mode="json") for fact in facts])]
        with self.database.transaction(write=True) as transaction:
            says = find_history(transaction, history_key).says
            transaction.each(
                "INSERT INTO facts (says, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(says, digest_of(content), pack(content)) for content in contents],
            )

    def facts(self, history_key: str) -> tuple[ExtractedFact, ...]:
        """See `Store.facts`."""
        rows = self._made_for(history_key, "facts", "digest, body", bytes, bytes)
        contents = dict.fromkeys(unpack(body, digest, f"fact of {history_key}") for digest, body in rows)
        return tuple(ExtractedFact.model_validate_json(content) for content in contents)

    def record_event(self, event: Mapping[str, Any]) -> None:
        """See `Store.record_event`."""
        time = event.get("time")
        if not isinstance(time, int | float) or not abs(time) < _LAST_SECOND:
            raise StoreError(f"event: 'time' has to be seconds since the epoch, found {type(time).__name__}")
        content = encode(redact_data(dict(event)), "event")
        with self.database.transaction(write=True) as transaction:
            transaction.rows(
                "INSERT INTO events (session, time, digest, body) VALUES (?, ?, ?, ?)",
                (to_json(event.get("session")), float(time), digest_of(content), pack(content)),
            )

    def events(self, session: str | None = None, *, since: float = 0.0) -> tuple[dict[str, Any], ...]:
        """See `Store.events`."""
        rows = self._rows(
            "SELECT digest, body FROM events WHERE time >= ? AND (session = ? OR ?) ORDER BY seq",
            (since, to_json(session), session is None),
            types=(bytes, bytes),
        )
        return tuple(unpack(body, digest, "event").value() for digest, body in rows)

    def set_state(self, name: str, value: Any) -> None:
        """See `Store.set_state`."""
        content = encode(redact_texts(value) if self._redacts else value, f"state {name}")
        with self.database.transaction(write=True) as transaction:
            transaction.rows("DELETE FROM states WHERE name = ?", (to_json(name),))
            if value is not None:
                row = to_json(name), digest_of(content), pack(content)
                transaction.rows("INSERT INTO states VALUES (?, ?, ?)", row)

    def get_state(self, name: str) -> Any:
        """See `Store.get_state`."""
        rows = self._rows("SELECT digest, body FROM states WHERE name = ?", (to_json(name),), types=(bytes, bytes))
        return unpack(rows[0][1], rows[0][0], f"state {name}").value() if rows else None

    def forget(self, history_key: str) -> list[Finding]:
        """See `Store.forget`."""
        with self.database.transaction(write=True) as transaction:
            if damages := self.database.dialect.damages(transaction):  # a row that an index has lost would stay
                raise StoreDamaged(
                    f"{self.database.dialect.place}: the file is damaged ({damages[-1]}), and what is deleted from it "
                    "may stay in it: restore it from a backup first, or delete the file"
                )
            if history_key.startswith("p"):
                digest, _ = _find_plan(transaction, history_key)
                transaction.rows("DELETE FROM plans WHERE digest = ?", (digest,))
            else:
                remove_history(transaction, find_history(transaction, history_key))
            orphans = [_plan_id(digest) for digest in orphan_plans(transaction)]
        self._memo = SavedMemo()
        left = self.flush()
        if orphans:
            problem = f"plans of histories that were never saved may speak of it: {', '.join(orphans)}"
            left.append(Finding(code="left", problem=problem, repair="forget them by their ids"))
        return left

    def flush(self) -> list[Finding]:
        """See `Store.flush`."""
        return [Finding(code="left", problem=problem) for problem in self.database.flush()]

    def verify(self) -> list[Finding]:
        """See `Store.verify`."""
        return audit(self.database)

    def size(self) -> StoreSize:
        """See `Store.size`."""
        counts = "(SELECT count(*) FROM histories), (SELECT count(*) FROM blobs)"
        sql = f"SELECT {counts}, ({self.database.dialect.size_sql})"
        return StoreSize(*self._rows(sql, types=(int, int, int))[0])

    def close(self) -> None:
        """See `Store.close`."""
        if self._open:
            self._open = False
            release_database(self.database)

    def __enter__(self) -> Self:
        """See `Store`."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `Store`."""
        self.close()

    def _rows(self, sql: str, values: Sequence[object] = (), *, types: tuple[type, ...]) -> list[Row]:
        with self.database.transaction() as transaction:
            return transaction.rows(sql, values, types=types)

    def _made_for(self, history_key: str, table: str, columns: str, *types: type) -> list[Row]:
        """Rows of `table` that belong to the history or to a prefix of it, oldest first."""
        with self.database.transaction() as transaction:
            entry = find_history(transaction, history_key)
            prefixes = sorted({entry.says, *(node.says for node in entry.chain(transaction))})
            sql = f"SELECT seq, {columns} FROM {table} WHERE says IN (??)"
            return [row[1:] for row in sorted(transaction.rows_of(sql, prefixes, types=(int, *types)))]


def _turns_of(key: str, result: SearchResult) -> str:
    """Where it is instead."""
    names = [f"{key}:{match.turn_id}" for match in result.matches]
    more = f" and {result.turns - len(names)} more turns" if result.turns > len(names) else ""
    return f"{', '.join(names)}{more} match" if names else "no other turn of this history does"


def _find_plan(transaction: Transaction, plan_id: str) -> tuple[bytes, bytes]:
    """Digest and body of the plan with that id."""
    match = _PLAN_ID.fullmatch(plan_id.strip())
    sql = "SELECT digest, body FROM plans WHERE digest BETWEEN ? AND ? ORDER BY digest"
    rows = transaction.rows(sql, digest_range(match[1]), types=(bytes, bytes)) if match else []
    if not match or not rows:
        raise ReferenceNotFound(f"no plan {plan_id[:80]!r} in this store; expected an id like p1a2b3c4d")
    unambiguous([row[0].hex() for row in rows], match[1], "p")
    digest, body = rows[0]
    return digest, body


def _plan_id(digest: bytes) -> str:
    return f"p{digest.hex()[:SHORT_DIGITS]}"


def _bytes(digest: str) -> bytes:
    return digest_range(parse_key(digest))[0]
