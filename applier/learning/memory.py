"""Records of a project's learning in a store: the lessons of each conversation, and the digests of approved lines.

Each conversation is read once and stored immediately, so an interrupted run can continue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from applier.learning.learned_files import digest_of
from applier.learning.lesson import Lesson
from applier.learning.propose import Heard, ProposedLine, Review
from applier.store.store import Store
from planner.evidence import Evidence
from planner.programming.git import commits
from planner.reading.history import History
from planner.reading.lazy_property import lazy_property

__all__ = ["FinishedConversation", "Memory"]


@dataclass(frozen=True)
class FinishedConversation:
    """Finished conversation of the project."""

    name: str
    """Key of a stored history, or name of a log without its suffix."""
    digests: tuple[str, ...]
    """Digests of its messages; a continuation begins with the same digests."""
    digest: str
    tokens: int
    """Approximate number of tokens, rather too many."""
    time: float
    """Time of the last words in seconds since the epoch; 0 if unknown."""
    day: str
    """Day of the last words; empty if unknown."""
    load: Callable[[], History]


@dataclass
class Memory:
    """Memory of one project, identified by its folder."""

    store: Store
    folder: str
    writes: bool = True
    """False for a dry run, which stores nothing."""

    @property
    def _project(self) -> str:
        return sha256(os.path.realpath(self.folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @lazy_property
    def conversations(self) -> dict[str, dict[str, Any]]:
        """Stored readings of the project's conversations, by the conversation's name; see `keep` for their fields."""
        prefix = f"lessons:{self._project}:"
        return {name.removeprefix(prefix): read for name, read in self.store.states(prefix).items()}

    @property
    def heard(self) -> list[Heard]:
        """Lessons of all conversations of the project."""
        return [
            Heard(Lesson(**lesson), name, read["day"], place, read.get("time", 0.0))
            for name, read in self.conversations.items()
            for lesson, place in zip(read["lessons"], read["places"], strict=True)
        ]

    @property
    def approved(self) -> Mapping[str, str]:
        """Digest of every line that was ever approved, by the line's key."""
        return dict(self.store.get_state(f"learned:{self._project}") or {})

    def knows(self, line: str) -> bool:
        """Return True if the person approved `line` in this form."""
        return digest_of(line) in self.approved.values()

    def is_read(self, conversation: FinishedConversation, reader: str) -> bool:
        """Return True if `reader`, or instead of rules any, has read this form of the conversation."""
        stored = self.conversations.get(conversation.name, {})
        return stored.get("digest") == conversation.digest and (reader == "rules" or stored.get("reader") == reader)

    def keep(
        self, conversation: FinishedConversation, reader: str, lessons: Sequence[Lesson], evidence: Evidence
    ) -> None:
        """Store the lessons that `reader` found in a conversation, with the digest of the history up to each lesson's
        turn, and the conversation's commits."""
        ends = [evidence.turns[lesson.turn].turn.stop for lesson in lessons]
        read = {
            "history": conversation.name,  # if this is a stored history's key, the lessons are forgotten with it
            "digest": conversation.digest,
            "reader": reader,
            "day": conversation.day,
            "time": conversation.time,
            "lessons": [asdict(lesson) for lesson in lessons],
            "places": [sha256("".join(conversation.digests[:end]).encode()).hexdigest() for end in ends],
            "commits": [[*line.text.split(maxsplit=2)[1:], line.turn_ids[0]] for line in commits(evidence)],
        }
        self.conversations[conversation.name] = read
        if self.writes:
            self.store.set_state(f"lessons:{self._project}:{conversation.name}", read)

    @lazy_property
    def review(self) -> Review:
        """A model's review of the project's lines; empty if there was none."""
        return Review.of(self.store.get_state(f"lessons-review:{self._project}") or {})

    def keep_review(self, review: Review) -> None:
        """Store a review; it is removed when a conversation is forgotten, since it may contain its words."""
        self.review = review
        if self.writes:
            kept = {**review.state, "histories": sorted(self.conversations)}
            self.store.set_state(f"lessons-review:{self._project}", kept)

    def lines(self, every: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return the lines that the review kept, and new ones of conversations that wait for no review."""
        review = self.review
        waiting = {name for name, read in self.conversations.items() if read["reader"] != "rules"}
        unseen = [line for line in review.unseen(every) if line.sources[0].conversation not in waiting]
        return [*(line for _, line in review.reviewed_lines(every)), *unseen]

    def approve(self, lines: Mapping[str, str], ended: Collection[str] = ()) -> None:
        """Store digests of approved `lines` by key; forget `ended` lines, which may be proposed again."""
        kept = {key: digest for key, digest in self.approved.items() if digest not in ended}
        self.store.set_state(f"learned:{self._project}", {**kept, **lines})
