"""Finds histories by key; where there is none, says what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from applier.store.chain import Node, read_chain
from applier.store.database import Transaction
from applier.store.reference import Reference, digest_range, history_key, parse_key
from planner.errors import ReferenceNotFound

__all__ = ["Found", "find_history", "find_referenced", "one_of", "turn_nodes"]

_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A saved history."""

    key: str
    says: bytes
    """Its digest."""
    tip: bytes
    """The digest of its last node."""

    def chain(self, transaction: Transaction) -> list[Node]:
        """Its nodes, checked."""
        return read_chain(transaction, self.tip, self.key)


def find_history(transaction: Transaction, key: str) -> Found:
    """The history with that key.

    Raises:
        ReferenceNotFound: none has it, or more than one.
    """
    digits = parse_key(key)
    rows = transaction.rows(
        "SELECT says, tip FROM histories WHERE says BETWEEN ? AND ? ORDER BY says", digest_range(digits)
    )
    if not rows:
        raise ReferenceNotFound(f"no history h{digits} in this store; {_known(transaction, digits)}")
    one_of([row[0].hex() for row in rows], digits, "h")
    return Found(f"h{digits}", *rows[0])


def one_of(digests: Sequence[str], digits: str, letter: str) -> None:
    """Refuse a short name that means more than one of `digests`.

    Raises:
        ReferenceNotFound: the text says which names are long enough.
    """
    if len(digests) > 1:
        enough = next(n for n in range(len(digits), 65) if len({d[:n] for d in digests}) == len(digests))
        longer = ", ".join(f"{letter}{digest[:enough]}" for digest in digests[:_SUGGESTED])
        raise ReferenceNotFound(f"{letter}{digits} means more than one; use more characters: {longer}")


def find_referenced(transaction: Transaction, reference: Reference) -> Found:
    """The history that `reference` names; for a bare turn, the longest if every other is a prefix of it.

    Raises:
        ReferenceNotFound: there is none, or it is not clear which is meant.
    """
    if reference.digits:
        return find_history(transaction, f"h{reference.digits}")
    rows = transaction.rows(
        "SELECT h.says, h.tip FROM histories h LEFT JOIN nodes n ON n.digest = h.tip "
        "ORDER BY coalesce(n.position, 0) DESC, h.seq DESC"
    )
    if not rows:
        raise ReferenceNotFound(f"no t{reference.turn}: the store is empty")
    found = Found(history_key(rows[0][0].hex()), *rows[0])
    prefixes = {node.says for node in found.chain(transaction)}
    others = [says for says, tip in rows[1:] if tip and says not in prefixes]
    if others:
        keys = ", ".join(f"{history_key(says.hex())}:t{reference.turn}" for says in (found.says, *others)[:_SUGGESTED])
        raise ReferenceNotFound(f"t{reference.turn} stands in more than one history; say which: {keys}")
    return found


def turn_nodes(nodes: Sequence[Node], turn: int, key: str) -> list[Node]:
    """The nodes of one turn.

    Raises:
        ReferenceNotFound: the history has no such turn.
    """
    found = [node for node in nodes if node.turn == turn]
    if not found:
        there = f"its turns are t1 to t{nodes[-1].turn}" if nodes else "it is empty"
        raise ReferenceNotFound(f"no turn t{turn} in history {key}; {there}")
    return found


def _known(transaction: Transaction, digits: str) -> str:
    rows = transaction.rows("SELECT says FROM histories ORDER BY seq DESC LIMIT 1000")
    keys = [history_key(row[0].hex()) for row in rows]
    near = get_close_matches(f"h{digits}", keys, _SUGGESTED, 0.4) or keys[:_SUGGESTED]
    return f"it has {', '.join(near)}" + (" and others" if len(keys) > len(near) else "") if keys else "it is empty"
