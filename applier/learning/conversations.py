"""The finished conversations of one project: those of a store, or client logs in a folder.

Decides which are read: those that worked in the project's folders, and are over. One that does not say where it worked
counts only if its paths do. A file that cannot be read is a line of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from applier.adapters.transcripts import Transcript, read_transcript
from applier.store.facts import is_within
from applier.store.store import Store
from planner.analysis import analyze
from planner.errors import CompactorError
from planner.reading.history import History, read_history

__all__ = ["OPEN_SECONDS", "Conversation", "Unread", "conversations_in", "stored_conversations"]

OPEN_SECONDS = 3_600.0
"""One in which something was said so short a time ago is not over."""
SUFFIXES = (".jsonl", ".json")
TOKENS_A_CHARACTER = 0.3
"""For what reading one costs at most, before it is counted."""


@dataclass(frozen=True)
class Conversation:
    """One that is over."""

    name: str
    """By which it is found: a history's key, or the file's name without its ending."""
    digest: str
    tokens: int
    """About so many, rather more than it has."""
    time: float
    """When it was over, in seconds since the epoch."""
    load: Callable[[], History]
    is_stored: bool = False

    @property
    def day(self) -> str:
        """The day on which it was over."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class Unread:
    """One that is not read, and why."""

    name: str
    why: str
    bad: bool = False
    """True if it should be readable."""


def conversations_in(folder: Path, projects: Sequence[str], now: float) -> Iterator[Conversation | Unread]:
    """Those in the files of `folder` and below, by name."""
    for path in sorted(one for one in folder.rglob("*") if one.suffix in SUFFIXES and one.is_file()):
        try:
            read = read_transcript(path)
            history, end = read_history(read.messages), _end(read)
            if why := _why_not(read.working_folder, history, projects, now - end):
                yield Unread(path.name, why)
            else:
                load = partial(_load, path)
                yield Conversation(path.stem, history.digest, _tokens(history), end or path.stat().st_mtime, load)
        except (CompactorError, OSError) as error:
            yield Unread(path.name, str(error), bad=True)


def _load(path: Path) -> History:
    return read_history(read_transcript(path).messages)


def stored_conversations(store: Store, projects: Sequence[str], now: float) -> Iterator[Conversation | Unread]:
    """Those of `store`, the longest form of each."""
    longer: dict[str, list[History]] = {}
    for stored in sorted(store.histories(), key=lambda one: (-one.messages, one.order)):
        family = longer.setdefault(stored.groups[0], [])
        if any(one.digest_at(stored.messages) == stored.digest for one in family):
            continue
        folder, time = store.origin(stored.key)
        history = store.load_history(stored.key)
        family.append(history)
        if why := _why_not(folder, history, projects, now - time):
            yield Unread(stored.key, why)
        else:
            load = partial(store.load_history, stored.key)
            yield Conversation(stored.key, stored.digest, _tokens(history), time, load, is_stored=True)


def _tokens(history: History) -> int:
    return int(TOKENS_A_CHARACTER * sum(len(str(message["content"])) for message in history.messages))


def _why_not(folder: str, history: History, projects: Sequence[str], seconds_since: float) -> str:
    """Why a conversation that worked in `folder` is not one of these projects' that is over; empty if it is."""
    place = folder or analyze(history.messages).evidence.root
    if not any(is_within(place, project) for project in projects):
        return f"worked in {place}" if place else "do not say where they worked"
    return "are not over: something was said within the hour" if seconds_since < OPEN_SECONDS else ""


def _end(read: Transcript) -> float:
    """When the last line of a log was written; 0 if it does not say."""
    for line in reversed(read.source.get("log", {}).values()):
        try:
            return datetime.fromisoformat(str(line.get("timestamp"))).timestamp()
        except ValueError:
            continue
    return 0.0
