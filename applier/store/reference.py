"""Names of stored objects, such as ``h1a2b3c4d:t12`` for a turn of a history, and how they are looked up.

Short keys, and the suggestions in errors, come only from the histories that the reader may see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from applier.store.backend import Backend
from applier.store.records import Node, StoredHistory, read_chain, read_histories
from planner.errors import ReferenceNotFound
from planner.placeholders import KEY_DIGITS, history_key

EXPECTED_KEY = f"expected 'h' and {KEY_DIGITS} hex digits"
_SHORTEST = 8
"""Number of hex digits of the shortest form of a history's key."""
_SUGGESTED = 3
"""Largest number of keys that an error suggests."""
_LISTED = 1_000
"""Largest number of stored keys that are compared with an unknown key, to suggest similar ones."""

_KEY = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})")
"""Key of a history: ``h1a2b3c4d``, ``sha256:…``; not ``h1a2b`` (too short), ``1a2b3c4d``."""
_REFERENCE = re.compile(r"(?:(.+):)?t([1-9][0-9]{0,8})")
"""Name of a turn: ``h1a2b3c4d:t12``, ``t12``; not ``t0``, ``h1a2b3c4d``."""


def parse_key(key: str) -> str:
    """Return the hex digits of a history's key, whole or short, or of its ``sha256:`` digest."""
    match = _KEY.fullmatch(key.strip())
    if match is None:
        raise ReferenceNotFound(f"{key[:80]!r} is no history key; {EXPECTED_KEY}")
    return match[1]


def parse_reference(reference: str) -> tuple[str, int]:
    """Return the hex digits of the key and the number of the turn in ``h1a2b3c4d:t12``; of ``t12`` no digits."""
    match = _REFERENCE.fullmatch(reference.strip())
    if match is None:
        raise ReferenceNotFound(f"{reference[:80]!r} is no reference; expected t12, or a history key and :t12")
    return parse_key(match[1]) if match[1] else "", int(match[2])


def find_history(backend: Backend, key: str) -> StoredHistory:
    """Return the history with this `key`; raise `ReferenceNotFound` if none has it or the key is too short."""
    digits = parse_key(key)
    histories = read_histories(backend, digits)
    if len(digits) < KEY_DIGITS:
        keys = ", ".join(history.key for history in histories[:_SUGGESTED]) or "none"
        raise ReferenceNotFound(f"h{digits} is too short for a key; {EXPECTED_KEY}; stored keys that begin so: {keys}")
    if not histories:
        keys_there = [history_key(name.partition("/")[2]) for name in backend.keys("history/")[:_LISTED]]
        raise ReferenceNotFound(f"no history h{digits} in this store; {_similar_keys(digits, keys_there)}")
    check_unambiguous([history.name for history in histories], digits)
    return histories[0]


def check_unambiguous(digests: Sequence[str], digits: str) -> None:
    """Raise `ReferenceNotFound` if a short key (`digits`) fits several stored histories, which have these digests."""
    if len(digests) > 1:
        longer = ", ".join(list(shortest_names(digests).values())[:_SUGGESTED])
        raise ReferenceNotFound(f"h{digits} means more than one history; use more characters: {longer}")


def shortest_names(digests: Sequence[str]) -> dict[str, str]:
    """Return a short name like ``h1a2b3c4d`` for each digest: all equally long, as short as differences allow."""
    different = set(digests)
    enough = next(count for count in range(_SHORTEST, 65) if len({one[:count] for one in different}) == len(different))
    return {digest: f"h{digest[:enough]}" for digest in digests}


def find_referenced(backend: Backend, digits: str, turn: int, within: Sequence[str] | None) -> StoredHistory:
    """Return the history of the turn named ``hDIGITS:tTURN``, or ``tTURN`` if `digits` is empty. `within`: keys of the
    histories that the reader may see, with those that these extend; None means all. A name without digits means the
    first of `within` that is stored."""
    if within is None:
        return find_history(backend, f"h{digits}") if digits else _only_conversation(backend, turn)
    visible = [history for key in dict.fromkeys(within) for history in read_histories(backend, _whole_digits(key))[:1]]
    if not digits:
        if not visible:
            raise ReferenceNotFound(f"no t{turn}: nothing of this conversation is stored yet")
        return visible[0]
    candidates = read_histories(backend, digits)
    matches = [history for history in candidates if history in visible]
    if candidates and not matches:
        prefixes = {node.prefix for history in visible for node in read_chain(backend, history)}
        matches = [history for history in candidates if history.prefix in prefixes]
    if not matches:
        keys = list(dict.fromkeys(history.key for history in visible))
        raise ReferenceNotFound(f"no history h{digits} in this conversation; {_similar_keys(digits, keys)}")
    check_unambiguous([history.name for history in matches], digits)
    return matches[0]


def _whole_digits(key: str) -> str:
    """Return the hex digits of a `key`; raise an error if it is a short one."""
    digits = parse_key(key)
    if len(digits) < KEY_DIGITS:
        raise ReferenceNotFound(f"{key[:80]!r} is too short for a key; {EXPECTED_KEY}")
    return digits


def _only_conversation(backend: Backend, turn: int) -> StoredHistory:
    """Return the store's longest history, for a reference ``t12`` without a key; raise an error if there are others.
    Beginnings of the longest history do not count as others. `turn` is for the error."""
    histories = sorted(read_histories(backend), key=lambda history: history.messages)[::-1]
    if not histories:
        raise ReferenceNotFound(f"no t{turn}: the store is empty")
    longest = histories[0]
    prefixes = {node.prefix for node in read_chain(backend, longest)}
    others = [history for history in histories[1:] if history.tip and history.prefix not in prefixes]
    if others:
        keys = ", ".join(f"{history.key}:t{turn}" for history in (longest, *others)[:_SUGGESTED])
        raise ReferenceNotFound(f"the store has several conversations, each with its own t{turn}; use one of: {keys}")
    return longest


def nodes_of_turn(nodes: Sequence[Node], turn: int, key: str) -> list[Node]:
    """Return the messages (as nodes) of a turn; raise an error, which names the history `key`, if there are none."""
    matches = [node for node in nodes if node.turn == turn]
    if not matches:
        there = f"its turns are t1 to t{nodes[-1].turn}" if nodes else "it is empty"
        raise ReferenceNotFound(f"no turn t{turn} in history {key}; {there}")
    return matches


def _similar_keys(digits: str, keys: Sequence[str]) -> str:
    """Return a text for the end of an error, with some of the existing `keys`, the most similar to `digits` first."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(f"h{digits}", keys, _SUGGESTED, 0.4) or keys[:_SUGGESTED]
    return f"it has {', '.join(near)}" + (" and others" if len(keys) > len(near) else "") if keys else "it is empty"
