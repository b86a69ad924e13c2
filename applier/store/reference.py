"""Names of stored things: history keys, turn ids and the references made of both; and what stands behind them.

Where a name means nothing, or more than one thing, the error says what there is, and only what its reader may see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from applier.store.chain import EMPTY_HISTORY, Node, read_chain
from applier.store.database import Transaction
from planner.errors import ReferenceNotFound, StoreDamaged

__all__ = [
    "Reference",
    "SavedHistory",
    "digest_range",
    "find_history",
    "find_referenced",
    "history_key",
    "one_of",
    "parse_key",
    "parse_reference",
    "turn_nodes",
]

SHORT_DIGITS = 8
"""Hex digits of a digest in a history key: 4 billion keys, and a clash is noticed, never guessed."""
_SUGGESTED = 3
_LISTED = 1_000
"""Keys that are looked through for one that is nearly the one asked for."""

_KEY = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})")
"""``h1a2b3c4d``, ``sha256:…``; not ``h1a2b`` (too short to name one), ``1a2b3c4d``."""
_REFERENCE = re.compile(r"(?:(.+):)?t([1-9][0-9]{0,8})")
"""``h1a2b3c4d:t12``, ``t12``; not ``t0``, ``h1a2b3c4d``."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as its parts."""

    digits: str
    """The first hex digits of the history's digest; empty in a bare ``t12``."""
    turn: int


def history_key(digest: str) -> str:
    """``h1a2b3c4d`` for the history digest ``sha256:1a2b3c4d…``."""
    return "h" + digest.removeprefix("sha256:")[:SHORT_DIGITS]


def parse_key(key: str) -> str:
    """The hex digits of a history key (``h`` and 8 to 64 digits) or of a full ``sha256:`` digest.

    Raises:
        ReferenceNotFound: `key` is neither.
    """
    match = _KEY.fullmatch(key.strip())
    if match is None:
        raise ReferenceNotFound(f"{key[:80]!r} is no history key; expected one like h1a2b3c4d")
    return match[1]


def digest_range(digits: str) -> tuple[bytes, bytes]:
    """The least and the greatest digest that begin with the hex `digits`."""
    return bytes.fromhex(digits.ljust(64, "0")), bytes.fromhex(digits.ljust(64, "f"))


def parse_reference(reference: str) -> Reference:
    """The parts of ``h1a2b3c4d:t12``, or of a bare ``t12``.

    Raises:
        ReferenceNotFound: `reference` has another form.
    """
    match = _REFERENCE.fullmatch(reference.strip())
    if match is None:
        raise ReferenceNotFound(f"{reference[:80]!r} is no reference; expected one like h1a2b3c4d:t12")
    return Reference(parse_key(match[1]) if match[1] else "", int(match[2]))


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """A saved history."""

    key: str
    says: bytes
    """Its digest."""
    tip: bytes
    """The digest of its last node, which stands for its exact form."""

    def chain(self, transaction: Transaction) -> list[Node]:
        """Its nodes, checked.

        Raises:
            StoreDamaged: one is missing or changed, or the last one is another history's.
        """
        nodes = read_chain(transaction, self.tip, self.key)
        if (nodes[-1].says if nodes else EMPTY_HISTORY) != self.says:
            raise StoreDamaged(f"{self.key}: its last message is another's")
        return nodes


def find_history(transaction: Transaction, key: str) -> SavedHistory:
    """The history with that key: the first saved with the digest it begins, or the exact form it begins.

    Raises:
        ReferenceNotFound: none has it, or more than one.
    """
    digits = parse_key(key)
    histories = _with_digits(transaction, digits)
    if not histories:
        raise ReferenceNotFound(f"no history h{digits} in this store; {_known(digits, _newest_keys(transaction))}")
    return one_of(histories, digits)


def _with_digits(transaction: Transaction, digits: str) -> list[SavedHistory]:
    """Every history that `digits` can mean; of several forms of one, the first saved."""
    low, high = digest_range(digits)
    rows = transaction.rows(
        "SELECT says, tip FROM histories WHERE says BETWEEN ? AND ? OR tip BETWEEN ? AND ? ORDER BY seq",
        (low, high, low, high),
        types=(bytes, bytes),
    )
    named: dict[bytes, SavedHistory] = {}
    for says, tip in rows:
        named.setdefault(says if low <= says <= high else tip, SavedHistory(f"h{digits}", says, tip))
    return [named[name] for name in sorted(named)]


def one_of(histories: Sequence[SavedHistory], digits: str) -> SavedHistory:
    """The only one of `histories`.

    Raises:
        ReferenceNotFound: there are more; the text says which names are long enough.
    """
    names = [(one.says if one.says.hex().startswith(digits) else one.tip).hex() for one in histories]
    unambiguous(names, digits, "h")
    return histories[0]


def unambiguous(digests: Sequence[str], digits: str, letter: str) -> None:
    """Refuse a short name that means more than one of `digests`.

    Raises:
        ReferenceNotFound: the text says which names are long enough.
    """
    if len(digests) > 1:
        enough = next(n for n in range(len(digits), 65) if len({d[:n] for d in digests}) == len(digests))
        longer = ", ".join(f"{letter}{digest[:enough]}" for digest in digests[:_SUGGESTED])
        raise ReferenceNotFound(f"{letter}{digits} means more than one; use more characters: {longer}")


def find_referenced(transaction: Transaction, reference: Reference, within: Sequence[str] | None) -> SavedHistory:
    """The history that `reference` names, among those that the reader may see (None: all), see `Store.restore`.

    Raises:
        ReferenceNotFound: there is none, or it is not clear which is meant.
    """
    if within is not None:
        return _find_within(transaction, reference, within)
    if reference.digits:
        return find_history(transaction, f"h{reference.digits}")
    return _only_conversation(transaction, reference.turn)


def _find_within(transaction: Transaction, reference: Reference, within: Sequence[str]) -> SavedHistory:
    """What it names among the histories `within` and those they extend; all else is as if it were not there."""
    visible = [history for key in dict.fromkeys(within) if (history := _first(transaction, key)) is not None]
    if not reference.digits:
        if not visible:
            raise ReferenceNotFound(f"no t{reference.turn}: nothing of this conversation is stored yet")
        return visible[0]
    candidates = _with_digits(transaction, reference.digits)
    tips = {history.tip for history in visible}
    named = [history for history in candidates if history.tip in tips] or [
        history for history in candidates if any(_extends(transaction, longer, history) for longer in visible)
    ]
    if not named:
        keys = dict.fromkeys(history.key for history in visible)
        raise ReferenceNotFound(
            f"no history h{reference.digits} in this conversation; {_known(reference.digits, list(keys))}"
        )
    return one_of(named, reference.digits)


def _first(transaction: Transaction, key: str) -> SavedHistory | None:
    return next(iter(_with_digits(transaction, parse_key(key))), None)


def _extends(transaction: Transaction, longer: SavedHistory, shorter: SavedHistory) -> bool:
    """True if every message of `shorter` stands in `longer`, in its form or another."""
    return any(node.says == shorter.says for node in longer.chain(transaction))


def _only_conversation(transaction: Transaction, turn: int) -> SavedHistory:
    """The longest history, if every other is a prefix of it."""
    rows = transaction.rows(
        "SELECT h.says, h.tip FROM histories h LEFT JOIN nodes n ON n.digest = h.tip "
        "ORDER BY coalesce(n.position, 0) DESC, h.seq DESC",
        types=(bytes, bytes),
    )
    if not rows:
        raise ReferenceNotFound(f"no t{turn}: the store is empty")
    history = SavedHistory(history_key(rows[0][0].hex()), *rows[0])
    prefixes = {node.says for node in history.chain(transaction)}
    others = [says for says, tip in rows[1:] if tip and says not in prefixes]
    if others:
        keys = ", ".join(f"{history_key(says.hex())}:t{turn}" for says in (history.says, *others)[:_SUGGESTED])
        raise ReferenceNotFound(f"the store has several conversations; say whose t{turn} is meant: {keys}")
    return history


def turn_nodes(nodes: Sequence[Node], turn: int, key: str) -> list[Node]:
    """The nodes of one turn.

    Raises:
        ReferenceNotFound: the history has no such turn.
    """
    own = [node for node in nodes if node.turn == turn]
    if not own:
        there = f"its turns are t1 to t{nodes[-1].turn}" if nodes else "it is empty"
        raise ReferenceNotFound(f"no turn t{turn} in history {key}; {there}")
    return own


def _newest_keys(transaction: Transaction) -> list[str]:
    rows = transaction.rows(f"SELECT says FROM histories ORDER BY seq DESC LIMIT {_LISTED}", types=(bytes,))
    return list(dict.fromkeys(history_key(row[0].hex()) for row in rows))


def _known(digits: str, keys: Iterable[str]) -> str:
    """What there is instead, the most alike first."""
    from difflib import get_close_matches  # only errors need it

    keys = list(keys)
    near = get_close_matches(f"h{digits}", keys, _SUGGESTED, 0.4) or keys[:_SUGGESTED]
    return f"it has {', '.join(near)}" + (" and others" if len(keys) > len(near) else "") if keys else "it is empty"
