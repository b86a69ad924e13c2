"""Says where calls and results do not pair as the API wants. Repairs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.reading.messages import Block, Message, blocks

__all__ = ["pairing_warnings"]


def pairing_warnings(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    """One warning per call without a result and per result without a call; `places` names each message."""
    calls: dict[str, Block] = {}
    for i, (message, place) in enumerate(zip(messages, places, strict=True)):
        results = _blocks(message, "user", "tool_result")
        yield from _unanswered(calls, results, places[i - 1], last=False)
        yield from _unasked(calls, results, place)
        calls = {str(call.get("id")): call for call in _blocks(message, "assistant", "tool_use")}
    yield from _unanswered(calls, [], places[-1] if places else "", last=True)


def _blocks(message: Message, role: str, kind: str) -> list[Block]:
    return [block for block in blocks(message) if block["type"] == kind] if message["role"] == role else []


def _unanswered(calls: dict[str, Block], results: list[Block], place: str, *, last: bool) -> Iterator[str]:
    answered = {str(result.get("tool_use_id")) for result in results}
    for key, call in calls.items():
        if key not in answered:
            end = "is the last thing and still open" if last else "has no result"
            yield f"{place}: the call {key} ({call.get('name')}) {end}"


def _unasked(calls: dict[str, Block], results: list[Block], place: str) -> Iterator[str]:
    seen: set[str] = set()
    for result in results:
        key = str(result.get("tool_use_id"))
        if key not in calls:
            yield f"{place}: the result {key} answers no call of the message before it"
        elif key in seen:
            yield f"{place}: the call {key} has a second result"
        seen.add(key)
