"""What the agent's next message takes from the past, and how much of that stood in what was sent to it.

The bill alone says nothing: the cheapest context is an empty one. Counts strings; calls no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from applier.bench.cuts import placings
from applier.bench.replay import Call
from applier.bench.specifics import specifics, stands
from applier.bench.texts import agent_values, plain_text
from planner.reading.messages import plain_message

__all__ = ["count_needs"]


def count_needs(calls: Iterable[Call], messages: Sequence[object]) -> tuple[int, int]:
    """How many names the agent's messages take from before them, and how many of these they could read there.

    Names are paths, URLs, identifiers and numbers of three digits or more, each counted once a message. `messages`
    is the transcript that `calls` were replayed from; what it holds up to a call is what the agent was shown then.
    """
    texts = _Texts()
    needed = met = 0
    for call in calls:
        names = _written(messages[call.history_messages])
        view = texts.joined(call.sent)
        standing = {name for name in names if stands(name, view) or any(placings(name, view))}
        gone = names - standing
        before = texts.joined(messages[: call.history_messages]) if gone else ""
        needed += len(standing) + sum(stands(name, before) for name in gone)
        met += len(standing)
    return needed, met


def _written(message: object) -> set[str]:
    return {name for value, _ in agent_values(plain_message(message)) for name in specifics(value)}


class _Texts:
    """The text of each message, read once for each object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}

    def joined(self, messages: Iterable[object]) -> str:
        return "\n".join(map(self._text, messages))

    def _text(self, message: object) -> str:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, plain_text([plain_message(message)])
        return known[1]
