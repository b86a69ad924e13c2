"""What a store keeps of a project's learning: what each conversation taught, and which lines the person approved.

A conversation is read once and kept at once, so that reading goes on where it was stopped. Of approved lines only
digests are kept: the lines are in the person's files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from applier.learning.learned_files import digest_of
from applier.learning.lesson import Lesson
from applier.learning.propose import Heard, ProposedLine, Review
from applier.store.store import Store
from planner.evidence import Evidence
from planner.evidence.state import commits
from planner.reading.lazy_property import lazy_property

if TYPE_CHECKING:
    from applier.learning.finished_conversations import FinishedConversation

__all__ = ["Memory"]


@dataclass
class Memory:
    """Of one project, known by its folder."""

    store: Store
    folder: str
    writes: bool = True
    """False: nothing is stored, for a dry run."""

    @property
    def _project(self) -> str:
        return sha256(os.path.realpath(self.folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @lazy_property
    def conversations(self) -> dict[str, dict[str, Any]]:
        """What was read of each, by its name."""
        prefix = f"lessons:{self._project}:"
        return {name.removeprefix(prefix): read for name, read in self.store.states(prefix).items()}

    @property
    def heard(self) -> list[Heard]:
        """All lessons of the project's conversations."""
        return [
            Heard(Lesson(**lesson), name, read["day"], place, read.get("time", 0.0))
            for name, read in self.conversations.items()
            for lesson, place in zip(read["lessons"], read["places"], strict=True)
        ]

    @property
    def approved(self) -> Mapping[str, str]:
        """The digest of each line that was ever approved, by the line's key."""
        return dict(self.store.get_state(f"learned:{self._project}") or {})

    def knows(self, line: str) -> bool:
        """True if the person approved `line` as it stands."""
        return digest_of(line) in self.approved.values()

    def is_read(self, conversation: FinishedConversation, reader: str) -> bool:
        """True if it was read as it is now, by `reader` or a better one: a model reads more than ``rules``."""
        known = self.conversations.get(conversation.name, {})
        return known.get("digest") == conversation.digest and (reader == "rules" or known.get("reader") == reader)

    def keep(
        self, conversation: FinishedConversation, reader: str, lessons: Sequence[Lesson], evidence: Evidence
    ) -> None:
        """Keep what `reader` read in it, and which commits it made."""
        ends = [evidence.turns[lesson.turn].turn.stop for lesson in lessons]
        read = {
            "history": conversation.name,  # with which it is forgotten, if it is a stored one
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
        """What a model made of the lines that it was shown."""
        return Review.of(self.store.get_state(f"lessons-review:{self._project}") or {})

    def keep_review(self, review: Review) -> None:
        """Keep it; what is forgotten of a conversation takes it away, for its words may tell of that."""
        self.review = review
        if self.writes:
            kept = {**review.state, "histories": sorted(self.conversations)}
            self.store.set_state(f"lessons-review:{self._project}", kept)

    def lines(self, every: Sequence[ProposedLine]) -> list[ProposedLine]:
        """What is proposed of `every` line: what a review left, and what of conversations that only rules read."""
        review = self.review
        waiting = {name for name, read in self.conversations.items() if read["reader"] != "rules"}
        unseen = [line for line in review.unseen(every) if line.sources[0].conversation not in waiting]
        return [*(line for _, line in review.standing(every)), *unseen]

    def approve(self, lines: Mapping[str, str], ended: Collection[str] = ()) -> None:
        """Keep that the person approved `lines`: digests by key; and forget the `ended`, which may come back."""
        standing = {key: digest for key, digest in self.approved.items() if digest not in ended}
        self.store.set_state(f"learned:{self._project}", {**standing, **lines})
