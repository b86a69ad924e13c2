"""Recomputes every digest in the store. Reports what is wrong and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from applier.store.chain import ROOT, Node, node_digest
from applier.store.content import unpack
from applier.store.database import MAX_PARAMETERS, Database, Transaction
from applier.store.reference import history_key
from planner.errors import StoreDamaged
from planner.plan import Finding

__all__ = ["audit"]

_TABLES = ("blobs", "plans", "facts", "events", "states")
"""Every table that holds content: a digest and a body."""


def audit(database: Database) -> list[Finding]:
    """What is wrong in `database`; empty if all is well.

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
    for table in _TABLES:
        yield from _damaged_content(transaction, table)
    yield from _broken_chains(transaction)


def _damaged_content(transaction: Transaction, table: str) -> Iterator[str]:
    digests = [row[0] for row in transaction.rows(f"SELECT DISTINCT digest FROM {table}")]
    for start in range(0, len(digests), MAX_PARAMETERS):
        some = digests[start : start + MAX_PARAMETERS]
        for digest, body in transaction.rows_of(f"SELECT digest, body FROM {table} WHERE digest IN (??)", some):
            try:
                unpack(body, digest, f"{table} {bytes(digest).hex()[:16]}")
            except StoreDamaged as error:
                yield str(error)


def _broken_chains(transaction: Transaction) -> Iterator[str]:
    nodes = {row[0]: Node(*row) for row in transaction.rows("SELECT * FROM nodes")}
    blobs = {row[0] for row in transaction.rows("SELECT digest FROM blobs")}
    for node in nodes.values():
        place = f"message {node.position} of a history ({history_key(node.says.hex())} ends with it)"
        if node.digest != node_digest(node.parent, node.position, node.turn, node.message, node.says):
            yield f"{place}: does not match its digest"
        if node.parent != ROOT and node.parent not in nodes:
            yield f"{place}: the message before it is missing"
        if node.message not in blobs:
            yield f"{place}: its content is missing"
    for says, tip in transaction.rows("SELECT says, tip FROM histories"):
        if tip != ROOT and (tip not in nodes or nodes[tip].says != says):
            yield f"history {history_key(says.hex())}: its last message is missing or another's"
