"""Forgetting a conversation: what only it held is deleted and overwritten, what others share stays."""

from __future__ import annotations

from collections.abc import Sequence

from applier.store.database import Row, Transaction
from applier.store.lookup import Found

__all__ = ["remove_history"]

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


def remove_history(transaction: Transaction, found: Found) -> None:
    """Delete the history, those it extends or that extend it, and what nothing refers to any more."""
    says = {row[0] for query in (_BELOW, _ABOVE) for row in transaction.rows(query, (found.says,))}
    family = sorted(says | {found.says})
    rows = transaction.rows_of("SELECT seq, says, tip FROM histories WHERE says IN (??)", family)
    transaction.each("DELETE FROM histories WHERE says = ?", [(row[1],) for row in rows])
    transaction.rows(_UNREACHED)
    kept = _still_shared(transaction, rows)
    gone = [(says,) for says in family if says not in kept]
    transaction.each("DELETE FROM plans WHERE says = ?", gone)
    transaction.each("DELETE FROM facts WHERE says = ?", gone)
    transaction.rows("DELETE FROM blobs WHERE digest NOT IN (SELECT message FROM nodes)")


def _still_shared(transaction: Transaction, rows: Sequence[Row]) -> set[bytes]:
    """Put back those of the histories `rows` that another conversation extends; their digests."""
    digests = [says for _, says, _ in rows]
    left: dict[bytes, bytes] = dict(transaction.rows_of("SELECT says, digest FROM nodes WHERE says IN (??)", digests))
    shared = [(seq, says, left[says]) for seq, says, _ in rows if says in left]
    transaction.each("INSERT INTO histories VALUES (?, ?, ?)", shared)
    return set(left)
