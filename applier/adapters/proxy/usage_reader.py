"""What a session should see of an answer, read as its bytes pass by; changes none and waits for none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from applier.adapters.proxy.wires import Wire

__all__ = ["UsageReader"]

_MAX_BYTES = 8 * 2**20
"""Of an answer (an event, if it streams) that is read; a larger one passes unread."""


class UsageReader:
    """Reads one answer, whole or streamed, from its bytes."""

    def __init__(self, wire: Wire, *, is_stream: bool) -> None:
        """`wire` says what of it counts."""
        self._wire, self._is_stream = wire, is_stream
        self._rest = b""
        self._is_too_large = False

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        if not self._is_too_large:
            self._rest += data
            self._is_too_large = len(self._rest) > _MAX_BYTES

    def observed(self) -> list[Mapping[str, Any]]:
        """What was complete since the last call."""
        if self._is_too_large:
            return []
        lines = self._lines() if self._is_stream else self._whole()
        events = (event for line in lines if isinstance(event := _json(line), dict))
        return [part for event in events if (part := self._wire.observed(event)) is not None]

    def _lines(self) -> Iterator[bytes]:
        *lines, self._rest = self._rest.split(b"\n")
        return (line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:"))

    def _whole(self) -> Iterator[bytes]:
        yield self._rest


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
