"""The files the agent read last, to be said again behind a plan: from disk if unchanged, else as it read them.

Never reads outside the allowed roots, whatever a path says, and never follows a link out of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from applier.session.ledger import Ledger, Result

__all__ = ["FileMarks", "RecentFile", "recent_files"]

MAX_FILE_BYTES = 2_000_000
"""A larger file is never read again; the allowance would cut it to less than a hundredth."""


@dataclass(frozen=True, slots=True)
class RecentFile:
    """One file, with its content as of now or as the agent saw it."""

    path: str
    turn_id: str
    content: str
    from_disk: bool


Mark = tuple[int, int]
"""Time of change in nanoseconds, and size."""


@dataclass
class FileMarks:
    """How files under the allowed roots stood on disk when the agent last touched them."""

    roots: Sequence[Path]
    _marks: dict[str, Mark] = field(default_factory=dict)

    def touch(self, results: Sequence[Result]) -> None:
        """Take note of the files that `results`, just arrived, have read or written."""
        if not self.roots:
            return
        for result in results:
            if result.call.path and result.kind in ("read", "write"):
                found = self._allowed(result.call.path)
                if found is not None:
                    self._marks[result.call.path] = _mark(found)

    def unchanged_content(self, path: str) -> str | None:
        """The file's content, if it is under a root and was not changed since the agent touched it."""
        found = self._allowed(path)
        if found is None or path not in self._marks or _mark(found) != self._marks[path]:
            return None
        if self._marks[path][1] > MAX_FILE_BYTES:
            return None
        try:
            return found.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _allowed(self, path: str) -> Path | None:
        """`path` as a real file under one of the roots, links resolved; None if it is not."""
        for root in self.roots:
            try:
                real, top = (root / path).resolve(), root.resolve()
                if real.is_relative_to(top) and real.is_file():
                    return real
            except (OSError, ValueError):
                continue
        return None


def _mark(path: Path) -> Mark:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def recent_files(ledger: Ledger, marks: FileMarks, most: int) -> list[RecentFile]:
    """The `most` files that were read last, newest first, each with what it is known to hold."""
    found: dict[str, RecentFile] = {}
    for recent in _readable(ledger, marks):
        found.setdefault(recent.path, recent)
        if len(found) == most:
            break
    return list(found.values())


def _readable(ledger: Ledger, marks: FileMarks) -> Iterator[RecentFile]:
    written: set[str] = set()
    for result in reversed(ledger.results):
        path = result.call.path
        if not path or result.is_error:
            continue
        if result.kind == "write":
            written.add(path)
        if result.kind not in ("read", "write"):
            continue
        on_disk = marks.unchanged_content(path)
        turn_id = ledger.turn_id(result.message)
        if on_disk is not None:
            yield RecentFile(path, turn_id, on_disk, True)
        elif result.kind == "read" and path not in written:
            yield RecentFile(path, turn_id, result.text, False)
