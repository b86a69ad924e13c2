"""The tables of the store: how they are made and changed, what is wrong in them, and how a conversation leaves them.

They are made by numbered steps, oldest first. A step that has shipped is never edited: a change is a new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from applier.store.chain import EMPTY_HISTORY, NODE_TYPES, ROOT, Node, node_digest
from applier.store.content import unpack
from applier.store.database import MAX_PARAMETERS, Database, Dialect, Row, Transaction
from applier.store.reference import SavedHistory, history_key
from planner.errors import StoreDamaged, StoreError
from planner.plan import Finding

__all__ = ["MIGRATIONS", "audit", "migrate", "orphan_plans", "remove_history"]

Step = Callable[[Transaction, Dialect], None]


def migrate(database: Database) -> None:
    """Bring the tables of `database` to this version.

    Raises:
        StoreError: the database belongs to another program, or to a newer version of this one.
    """
    place = database.dialect.place
    with database.transaction() as transaction:
        if database.dialect.is_foreign(transaction):
            raise StoreError(f"{place}: not a store of this program; give another file")
        version = _version(transaction, database.dialect)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{place}: made by a newer version (store format {version}, this one reads {len(MIGRATIONS)}); "
            "update relevance-compactor"
        )
    if version < len(MIGRATIONS):
        _run_steps(database)


def _version(transaction: Transaction, dialect: Dialect) -> int:
    if not dialect.has_schema(transaction):
        return 0
    rows = transaction.rows("SELECT version FROM compactor_schema", types=(int,))
    if len(rows) != 1 or rows[0][0] < 0:
        raise StoreDamaged(f"{dialect.place}: its version cannot be read; restore it from a backup")
    return int(rows[0][0])


def _run_steps(database: Database) -> None:
    with database.transaction(write=True) as transaction:
        version = _version(transaction, database.dialect)  # another process may have been first
        if version == 0:
            database.dialect.prepare(transaction)
        for step in MIGRATIONS[version:]:
            step(transaction, database.dialect)
        transaction.rows("UPDATE compactor_schema SET version = ?", (len(MIGRATIONS),))


def _step_1(transaction: Transaction, dialect: Dialect) -> None:
    """Everything of the first version. `body` is always packed content, `digest` its SHA-256."""
    data, serial = dialect.bytes_type, dialect.serial_type
    for sql in (
        "CREATE TABLE compactor_schema (version INTEGER NOT NULL)",
        "INSERT INTO compactor_schema VALUES (0)",
        f"CREATE TABLE blobs (digest {data} PRIMARY KEY, body {data} NOT NULL)",
        f"CREATE TABLE nodes (digest {data} PRIMARY KEY, parent {data} NOT NULL, position INTEGER NOT NULL, "
        f"turn INTEGER NOT NULL, message {data} NOT NULL, says {data} NOT NULL)",
        f"CREATE TABLE histories (seq {serial}, says {data} NOT NULL UNIQUE, tip {data} NOT NULL)",
        f"CREATE TABLE plans (seq {serial}, digest {data} NOT NULL UNIQUE, says {data} NOT NULL, body {data} NOT NULL)",
        f"CREATE TABLE facts (seq {serial}, says {data} NOT NULL, digest {data} NOT NULL, body {data} NOT NULL, "
        "UNIQUE (says, digest))",
        f"CREATE TABLE events (seq {serial}, session TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, "
        f"digest {data} NOT NULL, body {data} NOT NULL)",
        "CREATE INDEX events_session ON events (session, time)",
        f"CREATE TABLE states (name TEXT PRIMARY KEY, digest {data} NOT NULL, body {data} NOT NULL)",
    ):
        transaction.rows(sql)


def _step_2(transaction: Transaction, dialect: Dialect) -> None:
    """Histories that say the same in several forms stand side by side."""
    data, serial = dialect.bytes_type, dialect.serial_type
    for sql in (
        f"CREATE TABLE forms (seq {serial}, says {data} NOT NULL, tip {data} NOT NULL, UNIQUE (says, tip))",
        "INSERT INTO forms (says, tip) SELECT says, tip FROM histories ORDER BY seq",
        "DROP TABLE histories",
        "ALTER TABLE forms RENAME TO histories",
    ):
        transaction.rows(sql)


def _step_3(transaction: Transaction, dialect: Dialect) -> None:
    """A server's planner keeps no values of what is stored: they would outlive what is forgotten."""
    for table in _CONTENT:
        if dialect.unsampled_sql:
            transaction.rows(dialect.unsampled_sql.format(table=table))


MIGRATIONS: tuple[Step, ...] = (_step_1, _step_2, _step_3)
"""Step n brings a store of version n-1 to version n."""

_CONTENT = ("blobs", "plans", "facts", "events", "states")
"""Every table that holds content: a digest and a body."""


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
    for table in _CONTENT:
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
    nodes = {row[0]: Node(*row) for row in transaction.rows("SELECT * FROM nodes", types=NODE_TYPES)}
    blobs = {row[0] for row in transaction.rows("SELECT digest FROM blobs", types=(bytes,))}
    for node in nodes.values():
        place = f"message {node.position} of a history ({history_key(node.says.hex())} ends with it)"
        if node.digest != node_digest(node.parent, node.position, node.turn, node.message, node.says):
            yield f"{place}: does not match its digest"
        if node.parent != ROOT and node.parent not in nodes:
            yield f"{place}: the message before it is missing"
        if node.message not in blobs:
            yield f"{place}: its content is missing"
    for says, tip in transaction.rows("SELECT says, tip FROM histories", types=(bytes, bytes)):
        if says != (EMPTY_HISTORY if tip == ROOT else nodes[tip].says if tip in nodes else b""):
            yield f"history {history_key(says.hex())}: its last message is missing or another's"


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


def remove_history(transaction: Transaction, history: SavedHistory) -> None:
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


def orphan_plans(transaction: Transaction) -> list[bytes]:
    """The digests of plans that were made for histories which are not stored: nobody knows whose they are."""
    sql = (
        "SELECT digest FROM plans WHERE says NOT IN (SELECT says FROM nodes) "
        "AND says NOT IN (SELECT says FROM histories) ORDER BY seq"
    )
    return [row[0] for row in transaction.rows(sql, types=(bytes,))]
