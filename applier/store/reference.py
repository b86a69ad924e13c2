"""Names of stored things: history keys, turn ids and the references made of both; and what stands behind them.

Where a name means nothing, or more than one thing, the error says what there is, and only what its reader may see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from applier.store.backend import Backend
from applier.store.records import Node, StoredHistory, read_chain, read_histories
from planner.errors import ReferenceNotFound
from planner.placeholders import history_key

__all__ = ["find_history", "find_referenced", "nodes_of_turn", "parse_key", "parse_reference", "unambiguous"]

_SUGGESTED = 3
_LISTED = 1_000
"""Keys that are looked through for one that is nearly the one asked for."""

_KEY = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})")
"""``h1a2b3c4d``, ``sha256:…``; not ``h1a2b`` (too short to name one), ``1a2b3c4d``."""
_REFERENCE = re.compile(r"(?:(.+):)?t([1-9][0-9]{0,8})")
"""``h1a2b3c4d:t12``, ``t12``; not ``t0``, ``h1a2b3c4d``."""


def parse_key(key: str) -> str:
    """The hex digits of a history key (``h`` and 8 to 64 digits) or of a full ``sha256:`` digest.

    Raises:
        ReferenceNotFound: `key` is neither.
    """
    match = _KEY.fullmatch(key.strip())
    if match is None:
        raise ReferenceNotFound(f"{key[:80]!r} is no history key; expected one like h1a2b3c4d")
    return match[1]


def parse_reference(reference: str) -> tuple[str, int]:
    """The first hex digits of the history's digest and the turn of ``h1a2b3c4d:t12``; no digits of a bare ``t12``.

    Raises:
        ReferenceNotFound: `reference` has another form.
    """
    match = _REFERENCE.fullmatch(reference.strip())
    if match is None:
        raise ReferenceNotFound(f"{reference[:80]!r} is no reference; expected one like h1a2b3c4d:t12")
    return parse_key(match[1]) if match[1] else "", int(match[2])


def find_history(backend: Backend, key: str) -> StoredHistory:
    """The history with that key.

    Raises:
        ReferenceNotFound: none has it, or more than one.
    """
    digits = parse_key(key)
    histories = read_histories(backend, digits)
    if not histories:
        keys = [history_key(name.partition("/")[2]) for name in backend.keys("history/")[:_LISTED]]
        raise ReferenceNotFound(f"no history h{digits} in this store; {_known(digits, keys)}")
    unambiguous([history.name for history in histories], digits, "h")
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


def find_referenced(backend: Backend, digits: str, turn: int, within: Sequence[str] | None) -> StoredHistory:
    """The history that a reference names, among those that the reader may see (None: all), see `Store.restore`.

    Raises:
        ReferenceNotFound: there is none, or it is not clear which is meant.
    """
    if within is None:
        return find_history(backend, f"h{digits}") if digits else _only_conversation(backend, turn)
    visible = [history for key in dict.fromkeys(within) for history in read_histories(backend, parse_key(key))[:1]]
    if not digits:
        if not visible:
            raise ReferenceNotFound(f"no t{turn}: nothing of this conversation is stored yet")
        return visible[0]
    candidates = read_histories(backend, digits)
    named = [history for history in candidates if history in visible]
    if not named:
        seen = {node.says for history in visible for node in read_chain(backend, history)} if candidates else set()
        named = [history for history in candidates if history.says in seen]
    if not named:
        keys = list(dict.fromkeys(history.key for history in visible))
        raise ReferenceNotFound(f"no history h{digits} in this conversation; {_known(digits, keys)}")
    unambiguous([history.name for history in named], digits, "h")
    return named[0]


def _only_conversation(backend: Backend, turn: int) -> StoredHistory:
    """The longest history, if every other is a prefix of it."""
    histories = sorted(read_histories(backend), key=lambda history: history.messages)[::-1]
    if not histories:
        raise ReferenceNotFound(f"no t{turn}: the store is empty")
    longest = histories[0]
    prefixes = {node.says for node in read_chain(backend, longest)}
    others = [history for history in histories[1:] if history.tip and history.says not in prefixes]
    if others:
        keys = ", ".join(f"{history.key}:t{turn}" for history in (longest, *others)[:_SUGGESTED])
        raise ReferenceNotFound(f"the store has several conversations; say whose t{turn} is meant: {keys}")
    return longest


def nodes_of_turn(nodes: Sequence[Node], turn: int, key: str) -> list[Node]:
    """The nodes of one turn.

    Raises:
        ReferenceNotFound: the history has no such turn.
    """
    own = [node for node in nodes if node.turn == turn]
    if not own:
        there = f"its turns are t1 to t{nodes[-1].turn}" if nodes else "it is empty"
        raise ReferenceNotFound(f"no turn t{turn} in history {key}; {there}")
    return own


def _known(digits: str, keys: Sequence[str]) -> str:
    """What there is instead, the most alike first."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(f"h{digits}", keys, _SUGGESTED, 0.4) or keys[:_SUGGESTED]
    return f"it has {', '.join(near)}" + (" and others" if len(keys) > len(near) else "") if keys else "it is empty"
