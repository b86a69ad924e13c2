"""The store on an SQL database: each method is one transaction. And how a conversation leaves its tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from applier.store.chain import (
    ROOT,
    Content,
    add_nodes,
    audit,
    chain_of,
    check_unchanged,
    contents_of,
    digest_of,
    encode,
    missing_nodes,
    pack,
    unpack,
)
from applier.store.database import Database, Row, Transaction, release_database
from applier.store.protocol import Store, StoredHistory, StoreSize
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
from applier.store.secrets import redact_data
from planner.errors import PlanRejected, ReferenceNotFound, StoreDamaged, StoreError
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.history import History, read_history
from planner.reading.messages import Message, to_json

__all__ = ["SqlStore"]

_PLAN_ID = re.compile(r"p?([0-9a-f]{8,64})")
"""``p1a2b3c4d``, ``1a2b3c4d``; not ``p12`` (too short), ``h1a2b3c4d``."""
_LAST_SECOND = 10**15
"""Far behind what any clock says, and a number that every database holds."""


class SqlStore(Store):
    """A `Store` on `database`, whose tables are there."""

    def __init__(self, database: Database, *, redact_originals: bool = False) -> None:
        """Use `database` until `close`. With `redact_originals` no secret is stored at all, see `open_store`."""
        self.database = database
        self._redacts = redact_originals
        self._open = True

    def save_history(self, history: History) -> str:
        """See `Store.save_history`."""
        contents = [self._content(message, index) for index, message in enumerate(history.messages)]
        nodes = chain_of(history, contents)
        entry = SavedHistory(history_key(history.digest), _bytes(history.digest), nodes[-1].digest if nodes else ROOT)
        if not (key := self._key(entry)):
            with self.database.transaction(write=True) as transaction:
                missing = missing_nodes(transaction, nodes)
                for node in missing:
                    check_unchanged(history, node.position - 1)
                add_nodes(transaction, missing, contents[len(nodes) - len(missing) :])
                transaction.rows(
                    "INSERT INTO histories (says, tip) VALUES (?, ?) ON CONFLICT DO NOTHING", (entry.says, entry.tip)
                )
            key = self._key(entry)
        return key

    def _content(self, message: Message, index: int) -> Content:
        place = f"messages[{index}]"
        exact = encode(message, place)
        return encode(redact_data(exact.value()), place) if self._redacts else exact

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

    def load_turn(self, reference: str, within: Sequence[str] | None = None) -> tuple[str, list[Message]]:
        """See `Store.load_turn`."""
        wanted = parse_reference(reference)
        with self.database.transaction() as transaction:
            entry = find_referenced(transaction, wanted, within)
            nodes = turn_nodes(entry.chain(transaction), wanted.turn, entry.key)
            contents = contents_of(transaction, nodes, entry.key)
        return f"{entry.key}:t{wanted.turn}", [content.value() for content in contents]

    def save_plan(self, plan: CompactionPlan) -> str:
        """See `Store.save_plan`."""
        content = encode(redact_data(plan.model_dump(mode="json")), "plan")
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
        contents = [encode(fact, "fact") for fact in redact_data([fact.model_dump(mode="json") for fact in facts])]
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
        content = encode(redact_data(value) if self._redacts else value, f"state {name}")
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
                _remove_history(transaction, find_history(transaction, history_key))
            orphans = [_plan_id(digest) for digest in _orphan_plans(transaction)]
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


_BELOW = (
    "WITH RECURSIVE below (digest, says) AS (SELECT digest, says FROM nodes WHERE says = ? UNION "
    "SELECT n.digest, n.says FROM below b JOIN nodes n ON n.parent = b.digest) SELECT says FROM below"
)
_ABOVE = (
    "WITH RECURSIVE above (parent, says) AS (SELECT parent, says FROM nodes WHERE says = ? UNION "
    "SELECT n.parent, n.says FROM above a JOIN nodes n ON n.digest = a.parent) SELECT says FROM above"
)
_UNREACHED = (
    "WITH RECURSIVE kept (digest, parent) AS ("
    "SELECT digest, parent FROM nodes WHERE digest IN (SELECT tip FROM histories) UNION "
    "SELECT n.digest, n.parent FROM kept k JOIN nodes n ON n.digest = k.parent) "
    "DELETE FROM nodes WHERE digest NOT IN (SELECT digest FROM kept)"
)


def _remove_history(transaction: Transaction, history: SavedHistory) -> None:
    """Delete the history, those it extends or that extend it, and what nothing refers to any more."""
    family = {history.says}
    for query in (_BELOW, _ABOVE):
        family |= {row[0] for row in transaction.rows(query, (history.says,), types=(bytes,))}
    sql = "SELECT seq, says, tip FROM histories WHERE says IN (??)"
    rows = transaction.rows_of(sql, sorted(family), types=(int, bytes, bytes))
    transaction.each("DELETE FROM histories WHERE says = ?", [(says,) for says in {row[1] for row in rows}])
    transaction.rows(_UNREACHED)
    gone = family - _still_shared(transaction, rows)
    for table in ("plans", "facts"):
        transaction.each(f"DELETE FROM {table} WHERE says = ?", [(says,) for says in gone])
    _remove_named(transaction, gone | {row[2] for row in rows if row[1] in gone})
    transaction.rows("DELETE FROM blobs WHERE digest NOT IN (SELECT message FROM nodes)")


def _still_shared(transaction: Transaction, rows: Sequence[Row]) -> set[bytes]:
    """Put back those of the histories `rows` that another conversation extends; their digests."""
    says = sorted({row[1] for row in rows})
    left = transaction.rows_of("SELECT says, digest FROM nodes WHERE says IN (??)", says, types=(bytes, bytes))
    forms = {digest for _, digest in left}
    any_form: dict[bytes, bytes] = dict(left)
    own = [row for row in rows if row[2] in forms]
    whole = {row[1] for row in own}
    others = {row[1]: (row[0], row[1], any_form[row[1]]) for row in rows if row[1] in any_form and row[1] not in whole}
    transaction.each("INSERT INTO histories VALUES (?, ?, ?)", [*own, *others.values()])
    return set(any_form)


_NAME = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})(?::t[0-9]+)?")
"""A history's key or digest, or a reference into it, as a whole value; not one that stands in a text."""


SESSION_STATE = "session:"
"""The state with this and a session's id for a name belongs to the events of that session."""


def _remove_named(transaction: Transaction, digests: Collection[bytes]) -> None:
    """Delete the states and events one of whose values names one of the histories `digests`, and all events of the
    sessions whose states these are.
    """
    starts = {digest.hex() for digest in digests if digest}
    names = _naming(transaction, "states", "name", str, starts)
    transaction.each("DELETE FROM states WHERE name = ?", [(name,) for name in names])
    sessions = [(name.replace(SESSION_STATE, "", 1),) for name in names if name.startswith(f'"{SESSION_STATE}')]
    transaction.each("DELETE FROM events WHERE session = ?", sessions)
    events = _naming(transaction, "events", "seq", int, starts)
    transaction.each("DELETE FROM events WHERE seq = ?", [(seq,) for seq in events])


def _naming(transaction: Transaction, table: str, key: str, kind: type, starts: Collection[str]) -> list[Any]:
    """The keys of the rows of `table` that name a history whose digest is one of `starts`."""
    shortest = {start[:8] for start in starts}
    naming = []
    for name, digest, body in transaction.rows(f"SELECT {key}, digest, body FROM {table}", types=(kind, bytes, bytes)):
        digits = _names_in(unpack(body, digest, f"{table} {name}").value())
        if any(some[:8] in shortest and any(start.startswith(some) for start in starts) for some in digits):
            naming.append(name)
    return naming


def _names_in(value: Any) -> Iterator[str]:
    """The digits of every history key that is a whole value in JSON data."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, str) and (match := _NAME.fullmatch(item)):
            yield match[1]


def _orphan_plans(transaction: Transaction) -> list[bytes]:
    """The digests of plans that were made for histories which are not stored: nobody knows whose they are."""
    sql = (
        "SELECT digest FROM plans WHERE says NOT IN (SELECT says FROM nodes) "
        "AND says NOT IN (SELECT says FROM histories) ORDER BY seq"
    )
    return [row[0] for row in transaction.rows(sql, types=(bytes,))]
