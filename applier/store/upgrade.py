"""Upgrades a store of format 4, whose keys and plan ids had 8 hex digits, to format 5, whose keys have 32.

Only states and events had short forms. A state with a short form that fits two histories is removed, and its session
begins again from its host's whole list.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from applier.store.backend import Backend
from applier.store.forgetting import state_name
from applier.store.records import encode, fields, pack, parts, read
from planner.placeholders import KEY_DIGITS
from planner.reading.messages import to_json

__all__ = ["OLD_FORMAT", "WholeNames", "upgrade"]

OLD_FORMAT = 4
_SHORT = re.compile(r"([hp][0-9a-f]{8})((?::t[1-9][0-9]*)?)")
"""``h1a2b3c4d``, ``h1a2b3c4d:t12``, ``p1a2b3c4d`` as a whole text."""
_NAME = re.compile(r"(.*:)(h[0-9a-f]{8})", re.DOTALL)
"""``origin:h1a2b3c4d``: a state's name that ends with a key."""
_EXACT = "head", "messages", "content"
"""Fields that contain messages, which stay byte for byte."""


class WholeNames:
    """Whole names for the short ones of one store."""

    def __init__(self, backend: Backend) -> None:
        """Read the names of all histories and plans, within a transaction."""
        histories = (("h", key.partition("/")[2]) for key in backend.keys("history/"))
        plans = (("p", fields(key, 3)[0]) for key in backend.keys("plan/"))
        self._whole: dict[str, set[str]] = defaultdict(set)
        for letter, digest in (*histories, *plans):
            self._whole[f"{letter}{digest[:8]}"].add(f"{letter}{digest[:KEY_DIGITS]}")

    def state(self, name: str, value: Any) -> tuple[str, Any] | None:
        """Return a state's name and value with whole names in them; None if a short one is ambiguous."""
        unknown: list[str] = []
        value = self._replaced(value, unknown)
        if match := _NAME.fullmatch(name):
            name = match[1] + self._of(match[2], unknown)
        return None if unknown else (name, value)

    def event(self, value: Any) -> Any:
        """Return an event with whole names, where they are known."""
        return self._replaced(value, [])

    def _replaced(self, value: Any, unknown: list[str]) -> Any:
        if isinstance(value, dict):
            return {key: one if key in _EXACT else self._replaced(one, unknown) for key, one in value.items()}
        if isinstance(value, list):
            return [self._replaced(one, unknown) for one in value]
        match = _SHORT.fullmatch(value) if isinstance(value, str) else None
        return self._of(match[1], unknown) + match[2] if match else value

    def _of(self, short: str, unknown: list[str]) -> str:
        whole = self._whole.get(short, set())
        if len(whole) == 1:
            return next(iter(whole))
        unknown.append(short)
        return short


def upgrade(backend: Backend) -> None:
    """Write whole names into the states and events of `backend`, within a transaction that writes."""
    names = WholeNames(backend)
    for key, content in _each(backend, backend.keys("state/")):
        old = state_name(key), json.loads(content)
        new = names.state(*old)
        if new != old:
            backend.remove([key])
            backend.add({f"state/{to_json(new[0])}": pack(encode(new[1], key))} if new else {})
    for key, content in _each(backend, backend.keys("event/")):
        event = json.loads(content)
        if (whole := names.event(event)) != event:
            backend.remove([key])
            backend.add({key: pack(encode(whole, key))})


def _each(backend: Backend, keys: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for some in parts(list(keys)):
        contents: Mapping[str, bytes] = read(backend, some)
        yield from contents.items()
