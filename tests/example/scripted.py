"""Both sides of a screenplay: the model that answers from it and the user who speaks from it.

Neither remembers anything: each finds its place in the play from the last message alone, so that both go on
after a compaction, a retry or a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.reading.messages import blocks, plain_message
from tests.example.screenplay import Call, Screenplay


class ScriptedModel:
    """Answers a request with the line of the play that comes next."""

    def __init__(self, play: Screenplay) -> None:
        """Index `play` by the user's words; two lines of the user must not be the same."""
        self.play = play
        self.after_words = {line.text: at + 1 for at, line in enumerate(play) if line.speaker == "user"}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The content and stop reason of the answer to `request`."""
        at = self.place(request["messages"][-1])
        line = self.play[at]
        text = [{"type": "text", "text": line.text}] if line.text else []
        calls = [
            {"type": "tool_use", "id": call_id(at, number), "name": call.name, "input": call.input}
            for number, call in enumerate(line.calls)
        ]
        return {"content": [*text, *calls], "stop_reason": "tool_use" if calls else "end_turn"}

    def place(self, message: Mapping[str, Any]) -> int:
        """Which line of the play answers `message`."""
        for block in reversed(blocks(dict(message))):
            if block["type"] == "tool_result":
                return place_of(block["tool_use_id"])[0] + 1
            if block.get("text") in self.after_words:
                return self.after_words[block["text"]]
        raise ValueError(f"no line of the play answers {message!r:.200}")


class ScriptedPerson:
    """Says what the play has the user say."""

    def __init__(self, play: Screenplay) -> None:
        """Speak from `play`."""
        self.play = play

    def next_words(self, messages: list[Any]) -> str | None:
        """The user's line behind the answer the model just gave."""
        said = sum(
            1
            for message in map(plain_message, messages)
            if message["role"] == "assistant" and not any(b["type"] == "tool_use" for b in blocks(message))
        )
        words = [line.text for line in self.play if line.speaker == "user"]
        return words[said] if said < len(words) else None

    def refuses(self, call: Mapping[str, Any]) -> str | None:
        """The reason in the play, for a call that is refused there."""
        return self._call(call).refused

    def interrupts(self, call: Mapping[str, Any]) -> str | None:
        """What is said in the play while this call runs."""
        return self._call(call).meanwhile

    def _call(self, call: Mapping[str, Any]) -> Call:
        at, number = place_of(call["id"])
        return self.play[at].calls[number]


def call_id(at: int, number: int) -> str:
    """The id of call `number` in line `at` of a play."""
    return f"toolu_{at:04}_{number}"


def place_of(identifier: str) -> tuple[int, int]:
    """What `call_id` was given."""
    _, at, number = identifier.split("_")
    return int(at), int(number)
