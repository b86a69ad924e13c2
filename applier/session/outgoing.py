"""The list that is sent, with its tokens, kept up as messages arrive.

Grows by the new messages alone; is made anew only when the frame changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from applier.session.frame import Frame, message_at
from applier.session.ledger import Ledger
from planner.reading.messages import plain_message

__all__ = ["Outgoing", "first_difference"]


@dataclass
class Outgoing:
    """What would be sent now."""

    messages: list[object] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """Tokens of each message, by the ledger's counter."""
    total: int = 0

    @classmethod
    def of(cls, frame: Frame, ledger: Ledger) -> Outgoing:
        """The list that `frame` gives for the whole history."""
        made = cls(list(frame.head), [ledger.counter.message(plain_message(m)) for m in frame.head])
        made.total = sum(made.counted)
        made.extend(frame, ledger, frame.start)
        return made

    def extend(self, frame: Frame, ledger: Ledger, start: int) -> None:
        """Append the messages of the history from `start` on."""
        for index in range(start, len(ledger)):
            self.messages.append(message_at(frame, ledger, index))
            self.counted.append(self._tokens(frame, ledger, index))
            self.total += self.counted[-1]

    def refresh(self, at: int, message: object) -> None:
        """Send `message`, which says the same with other cache marks, at place `at`."""
        self.messages[at] = message

    def _tokens(self, frame: Frame, ledger: Ledger, index: int) -> int:
        if index not in frame.edited:
            return ledger.counted[index]
        return ledger.counter.message(plain_message(self.messages[-1]))


def first_difference(before: Sequence[object], after: Sequence[object]) -> int | None:
    """Index of the first message of `before` that `after` does not repeat; None if it repeats them all."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not new and old != new:
            return at
    return None if len(after) >= len(before) else len(after)
