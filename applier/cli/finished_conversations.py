"""The finished conversations of one project, from a store or from client logs.

Selects conversations that worked in the project's folders, are over, and are not continued by another. Without a known
folder, the paths in the conversation decide. Unreadable ones become lines of the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from applier.adapters.transcripts import Transcript, read_transcript, transcript_files
from applier.learning.memory import FinishedConversation
from applier.processes import all_cores, in_processes
from applier.store.listing import is_within
from applier.store.store import Store
from planner.analysis import analyze
from planner.errors import CompactorError
from planner.reading.history import History, read_history

__all__ = ["MANY", "Unread", "conversations_in", "stored_conversations"]

OPEN_SECONDS = 3_600.0
"""Age below which a conversation counts as unfinished."""
MANY = 32
"""Number of files from which several processes pay."""
TOKENS_A_CHARACTER = 0.3
"""Tokens a character, for the cost before counting."""


@dataclass(frozen=True)
class Unread:
    """Conversation that is not read, and the reason."""

    name: str
    why: str
    bad: bool = False
    """True if the conversation should be readable."""


def conversations_in(logs: Sequence[Path], projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations in the files `logs`, and in the files of the folders among them."""
    paths, work = transcript_files(logs), partial(_logged, projects=projects)
    apart = in_processes(work, paths, all_cores()) if len(paths) >= MANY else ((path, work(path)) for path in paths)
    made = {path: one or Unread(path.name, "the process that read it died", bad=True) for path, one in apart}
    return _finished([made[path] for path in paths], now)


def stored_conversations(store: Store, projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations of `store`."""
    return _finished([_stored(store, history.key, projects) for history in store.histories()], now)


def _logged(path: Path, projects: Sequence[str]) -> FinishedConversation | Unread:
    try:
        read = read_transcript(path)
        history, end = read_history(read.messages), _end(read)
        name = re.sub(r"[^\w.-]+", "-", path.stem)  # the name is part of the lines
        here = _conversation(name, history, end, partial(_load, path))
        return _elsewhere(path.name, read.working_folder or _root(history), projects) or here
    except (CompactorError, OSError) as error:
        return Unread(path.name, str(error), bad=True)


def _load(path: Path) -> History:
    return read_history(read_transcript(path).messages)


def _stored(store: Store, key: str, projects: Sequence[str]) -> FinishedConversation | Unread:
    folder, end = store.origin(key)
    if folder and (elsewhere := _elsewhere(key, folder, projects)):
        return elsewhere
    try:
        history = store.load_history(key)
    except CompactorError as error:
        return Unread(key, str(error), bad=True)
    here = _conversation(key, history, end, partial(store.load_history, key))
    return _elsewhere(key, folder or _root(history), projects) or here


def _conversation(name: str, history: History, end: float, load: Callable[[], History]) -> FinishedConversation:
    tokens = int(TOKENS_A_CHARACTER * sum(len(str(message["content"])) for message in history.messages))
    day = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d") if end else ""
    return FinishedConversation(name, tuple(history.digests), history.digest, tokens, end, day, load)


def _root(history: History) -> str:
    """Return the folder that the paths of a conversation share."""
    return analyze(history.messages).evidence.root


def _elsewhere(name: str, place: str, projects: Sequence[str]) -> Unread | None:
    if any(is_within(place, project) for project in projects):
        return None
    return Unread(name, f"worked in {place}" if place else "do not name a folder")


def _finished(every: Sequence[FinishedConversation | Unread], now: float) -> list[FinishedConversation | Unread]:
    """Drop conversations that another one continues, give each a different name, and mark unfinished ones as unread."""
    in_order = sorted((one for one in every if isinstance(one, FinishedConversation)), key=lambda one: one.digests)
    longer = {id(one) for one, behind in pairwise(in_order) if behind.digests[: len(one.digests)] == one.digests}
    names: set[str] = set()
    finished: list[FinishedConversation | Unread] = []
    for one in every:
        if isinstance(one, Unread):
            finished.append(one)
        elif now - one.time < OPEN_SECONDS:
            finished.append(Unread(one.name, "are not over: their last words are less than an hour old"))
        elif id(one) not in longer:
            finished.append(replace(one, name=f"{one.name}-{one.digest[7:13]}") if one.name in names else one)
            names.add(one.name)
    return finished


def _end(read: Transcript) -> float:
    """Return the time of a log's last line; 0 if unknown."""
    for line in reversed(read.source.get("log", {}).values()):
        try:
            return datetime.fromisoformat(str(line.get("timestamp"))).timestamp()
        except ValueError:
            continue
    return 0.0
