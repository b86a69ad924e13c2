"""The store on an SQL database: each method is one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from applier.store.audit import audit
from applier.store.chain import ROOT, add_nodes, chain_of, contents_of, node_contents
from applier.store.content import digest_of, encode, pack, unpack
from applier.store.database import Database, Row
from applier.store.excerpt import find_matches, lines_of, matching_lines, numbered, range_of
from applier.store.lookup import find_history, find_referenced, one_of, turn_nodes
from applier.store.memo import Known, SavedMemo
from applier.store.protocol import Match, Restored, StoredHistory, StoreSize
from applier.store.reference import SHORT_DIGITS, digest_range, history_key, parse_key, parse_reference
from applier.store.removal import remove_history
from applier.store.secrets import redact, redact_data
from planner.errors import ReferenceNotFound, StoreDamaged, StoreError
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.history import History, read_history
from planner.reading.lines import join_lines
from planner.reading.messages import to_json

__all__ = ["SqlStore"]

_SAVE_HISTORY = "INSERT INTO histories (says, tip) VALUES (?, ?) ON CONFLICT (says) DO UPDATE SET tip = excluded.tip"
_PLAN_ID = re.compile(r"p?([0-9a-f]{8,64})")


class SqlStore:
    """A `Store` on `database`, whose tables are there."""

    def __init__(self, database: Database, release: Callable[[Database], None]) -> None:
        """Use `database` until `close`, which hands it to `release`."""
        self.database = database
        self._release: Callable[[Database], None] | None = release
        self._memo = SavedMemo()

    def save_history(self, history: History) -> str:
        """See `Store.save_history`."""
        if not self._saved(history, self._memo.prefix(history)):
            self._saved(history, Known())
        return history_key(history.digest)

    def _saved(self, history: History, known: Known) -> bool:
        """Save `history`, of which `known` is stored; False if it is not."""
        contents = node_contents(history, len(known.nodes))
        nodes = chain_of(history, contents, known.nodes)
        saved = _bytes(history.digest), nodes[-1].digest if nodes else ROOT
        if not self._rows("SELECT 1 FROM histories WHERE says = ? AND tip = ?", saved):
            with self.database.transaction(write=True) as transaction:
                if not add_nodes(transaction, nodes, contents):
                    return False
                transaction.rows(_SAVE_HISTORY, saved)
        self._memo.remember(history, nodes, known)
        return True

    def load_history(self, key: str) -> History:
        """See `Store.load_history`."""
        with self.database.transaction() as transaction:
            found = find_history(transaction, key)
            contents = contents_of(transaction, found.chain(transaction), found.key)
        history = read_history([content.value() for content in contents])
        if _bytes(history.digest) != found.says:
            raise StoreDamaged(f"{found.key}: its messages do not match its digest")
        return history

    def histories(self) -> tuple[StoredHistory, ...]:
        """See `Store.histories`."""
        rows = self._rows(
            "SELECT h.says, coalesce(n.position, 0), coalesce(n.turn, 0) FROM histories h "
            "LEFT JOIN nodes n ON n.digest = h.tip ORDER BY h.seq"
        )
        return tuple(StoredHistory(history_key(says.hex()), f"sha256:{says.hex()}", *counts) for says, *counts in rows)

    def restore(self, reference: str, *, lines: tuple[int, int] | None = None, search: str | None = None) -> Restored:
        """See `Store.restore`."""
        wanted = parse_reference(reference)
        with self.database.transaction() as transaction:
            found = find_referenced(transaction, wanted)
            nodes = turn_nodes(found.chain(transaction), wanted.turn, found.key)
            contents = contents_of(transaction, nodes, found.key)
        messages = tuple(content.value() for content in contents)
        name = f"{found.key}:t{wanted.turn}"
        part = lines_of(messages) if lines is None else range_of(lines_of(messages), lines, name)
        if search is None:
            return Restored(name, messages, join_lines(part))
        matches = matching_lines(part, search)
        return Restored(name, messages, numbered(part, matches), matches)

    def search(self, text: str, history_key: str) -> list[Match]:
        """See `Store.search`."""
        return find_matches(self.load_history(history_key), text)

    def save_plan(self, plan: CompactionPlan) -> str:
        """See `Store.save_plan`."""
        content = plan.to_json().encode()
        digest = digest_of(content)
        with self.database.transaction(write=True) as transaction:
            transaction.rows(
                "INSERT INTO plans (digest, says, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (digest, _bytes(plan.history.digest), pack(content)),
            )
        return _plan_id(digest)

    def load_plan(self, plan_id: str) -> CompactionPlan:
        """See `Store.load_plan`."""
        found = _PLAN_ID.fullmatch(plan_id.strip())
        rows = self._rows(
            "SELECT digest, body FROM plans WHERE digest BETWEEN ? AND ? ORDER BY digest",
            digest_range(found[1]) if found else (b"", b""),
        )
        if not found or not rows:
            raise ReferenceNotFound(f"no plan {plan_id!r} in this store; expected an id like p1a2b3c4d")
        one_of([row[0].hex() for row in rows], found[1], "p")
        return CompactionPlan.from_json(unpack(rows[0][1], rows[0][0], f"plan {plan_id}"), plan_id)

    def plans(self, history_key: str) -> tuple[str, ...]:
        """See `Store.plans`."""
        return tuple(_plan_id(row[0]) for row in self._made_for(history_key, "plans", "digest"))

    def save_facts(self, facts: Sequence[ExtractedFact], history_key: str) -> None:
        """See `Store.save_facts`."""
        with self.database.transaction(write=True) as transaction:
            says = find_history(transaction, history_key).says
            for fact in facts:
                clean = fact.model_copy(update={"content": redact(fact.content), "quote": redact(fact.quote)})
                content = encode(clean.model_dump(mode="json"), "fact")
                transaction.rows(
                    "INSERT INTO facts (says, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (says, digest_of(content), pack(content)),
                )

    def facts(self, history_key: str) -> tuple[ExtractedFact, ...]:
        """See `Store.facts`."""
        rows = self._made_for(history_key, "facts", "digest, body")
        contents = dict.fromkeys(unpack(body, digest, f"fact of {history_key}") for digest, body in rows)
        return tuple(ExtractedFact.model_validate_json(content) for content in contents)

    def record_event(self, event: Mapping[str, Any]) -> None:
        """See `Store.record_event`."""
        time = event.get("time")
        if not isinstance(time, int | float):
            raise StoreError(f"event: 'time' has to be seconds since the epoch, found {time!r}")
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
        )
        return tuple(unpack(body, digest, "event").value() for digest, body in rows)

    def set_state(self, name: str, value: Any) -> None:
        """See `Store.set_state`."""
        content = encode(value, f"state {name}")
        with self.database.transaction(write=True) as transaction:
            transaction.rows("DELETE FROM states WHERE name = ?", (to_json(name),))
            if value is not None:
                row = to_json(name), digest_of(content), pack(content)
                transaction.rows("INSERT INTO states VALUES (?, ?, ?)", row)

    def get_state(self, name: str) -> Any:
        """See `Store.get_state`."""
        rows = self._rows("SELECT digest, body FROM states WHERE name = ?", (to_json(name),))
        return unpack(rows[0][1], rows[0][0], f"state {name}").value() if rows else None

    def forget(self, history_key: str) -> None:
        """See `Store.forget`."""
        with self.database.transaction(write=True) as transaction:
            remove_history(transaction, find_history(transaction, history_key))
        self.database.flush()

    def verify(self) -> list[Finding]:
        """See `Store.verify`."""
        return audit(self.database)

    def size(self) -> StoreSize:
        """See `Store.size`."""
        counts = "(SELECT count(*) FROM histories), (SELECT count(*) FROM blobs)"
        return StoreSize(*self._rows(f"SELECT {counts}, ({self.database.dialect.size_sql})")[0])

    def close(self) -> None:
        """See `Store.close`."""
        release, self._release = self._release, None
        if release is not None:
            release(self.database)

    def __enter__(self) -> Self:
        """See `Store`."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `Store`."""
        self.close()

    def _rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        with self.database.transaction() as transaction:
            return transaction.rows(sql, values)

    def _made_for(self, history_key: str, table: str, columns: str) -> list[Row]:
        """Rows of `table` that belong to the history or to a prefix of it, oldest first."""
        with self.database.transaction() as transaction:
            found = find_history(transaction, history_key)
            prefixes = sorted({found.says, *(node.says for node in found.chain(transaction))})
            sql = f"SELECT seq, {columns} FROM {table} WHERE says IN (??)"
            return [row[1:] for row in sorted(transaction.rows_of(sql, prefixes))]


def _plan_id(digest: bytes) -> str:
    return f"p{digest.hex()[:SHORT_DIGITS]}"


def _bytes(digest: str) -> bytes:
    return digest_range(parse_key(digest))[0]
