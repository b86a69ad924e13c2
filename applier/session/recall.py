"""Notices when the agent names something that now stands only behind a reference, and which turn holds it.

Reads the new messages and the removed turns; brings nothing back itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from applier.session.frame import Addition, Frame
from applier.session.history_tracker import HistoryTracker
from planner.evidence.names import common_root, file_paths, specifics_of, without_root
from planner.layout.placeholders import clean
from planner.reading.lines import call_text, join_lines, turn_lines
from planner.reading.messages import Message, blocks, plain_message, result_text

__all__ = ["Named", "Recall", "restored_text"]

_HYPHENATED = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+")
MIN_CHARACTERS = 6
"""Shorter names stand in too many turns to point at one."""


@dataclass(frozen=True, slots=True)
class Named:
    """Something removed that the agent has named."""

    name: str
    turn_id: str
    tokens: int


@dataclass
class Recall:
    """What stands in the list that is sent, and what was removed from it."""

    removed: list[tuple[str, str]] = field(default_factory=list)
    """Turn id and text of each removed turn, oldest first."""
    root: str = ""
    """The folder that a plan's notes leave out of paths."""
    _standing: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, frame: Frame, tracker: HistoryTracker) -> Recall:
        """For a frame that has just come into force."""
        if frame.plan is None:
            return cls()
        history = tracker.history
        gone = [d.turn_id for d in frame.plan.turns if d.strategy != "keep" and d.turn_id in history.by_id]
        removed = [(turn_id, turn_text(tracker, turn_id)) for turn_id in gone]
        known = tracker.known_analysis
        root = known.evidence.root if known else common_root(path for _, text in removed for path in file_paths(text))
        recall = cls(removed, root, [_text(plain_message(message)) for message in frame.head])
        recall._standing += [_text(message) for message in tracker.plain[frame.start :]]
        return recall

    def hear(self, new: Iterable[Message], tracker: HistoryTracker) -> list[Named]:
        """What `new` messages name that stands nowhere any more, newest turn first; work by the new ones."""
        if not self.removed:
            return []
        new = list(new)
        self._standing += [_text(message, own=False) for message in new]
        names = [name for name in _named(new) if not self._stands(name)]
        self._standing += [_text(message) for message in new]
        holders: dict[str, Named] = {}
        for name in names:
            holder = next((item for item in reversed(self.removed) if name in item[1]), None)
            if holder is not None and holder[0] not in holders:
                holders[holder[0]] = Named(name, holder[0], tracker.counter.text(holder[1]))
        return list(holders.values())

    def brought_back(self, turn_id: str) -> None:
        """That turn stands again."""
        self.removed = [item for item in self.removed if item[0] != turn_id]

    def _stands(self, name: str) -> bool:
        short = without_root(name, self.root)
        return any(name in text or short in text for text in self._standing)


def restored_text(tracker: HistoryTracker, named: Named, message: int) -> Addition:
    """The turn said again behind message `message`."""
    text = clean(turn_text(tracker, named.turn_id))
    return Addition(
        message,
        f'<restored turn="{named.turn_id}">\n'
        f"Shortened away before, and named just now ({clean(named.name)}); for reference, not an instruction.\n"
        f"{text}\n</restored>",
    )


def turn_text(tracker: HistoryTracker, turn_id: str) -> str:
    """The whole text of a turn, as it was read for the last plan if it was."""
    history, known = tracker.history, tracker.known_analysis
    turn = history.by_id[turn_id]
    read = known.evidence.by_digest.get(turn.digest) if known is not None else None
    return read.text if read is not None else join_lines(turn_lines(history, turn))


def _text(message: Message, *, own: bool = True) -> str:
    """The text of a message; without `own`, only what others than the agent said."""
    return "\n".join(_texts(message, own))


def _texts(message: Message, own: bool) -> Iterator[str]:
    if message["role"] == "assistant" and not own:
        return
    for block in blocks(message):
        if block["type"] == "text":
            yield str(block.get("text", ""))
        elif block["type"] == "tool_use":
            yield call_text(block)
        else:
            yield result_text(block)


def _named(new: Iterable[Message]) -> Iterator[str]:
    """Paths, URLs and identifiers that the agent itself writes in its words or in calls that failed.

    A call that worked brings what it needs by itself.
    """
    failed = {
        block.get("tool_use_id")
        for message in new
        for block in blocks(message)
        if block["type"] == "tool_result" and block.get("is_error")
    }
    for message in new:
        for block in blocks(message) if message["role"] == "assistant" else ():
            if block["type"] == "text" or (block["type"] == "tool_use" and block.get("id") in failed):
                text = str(block.get("text", "")) if block["type"] == "text" else _values(block.get("input"))
                for name, kind in specifics_of(text).items():
                    if kind != "number" and _points_at_something(name):
                        yield name


def _values(arguments: object) -> str:
    """What a call is about: the texts in its input, not the names of its parameters."""
    if isinstance(arguments, Mapping):
        return "\n".join(map(_values, arguments.values()))
    return str(arguments) if isinstance(arguments, str) else ""


def _points_at_something(name: str) -> bool:
    """Paths, URLs and names with underscores, humps or digits; not words joined by hyphens."""
    return len(name) >= MIN_CHARACTERS and not _HYPHENATED.fullmatch(name)
