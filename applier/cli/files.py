"""Reads transcripts, plans and texts; writes files whole or not at all, readable only by their owner."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import click

from applier.adapters.transcripts import Transcript, read_transcript
from applier.cli.screen import echo
from planner.errors import PlanRejected, SettingsError, TranscriptError
from planner.plan import CompactionPlan, Finding

PRIVATE_FILE = 0o600
"""Mode of a new file: only its owner can read it."""


def read_file(path: Path, part: int | None = None) -> Transcript:
    """Return the transcript in the file `path`, and print warnings on standard error. `part`: number of a conversation
    in a file with several; None for all. If the file has a plan, the error names the order of arguments."""
    try:
        read = read_transcript(path, part=part)
    except TranscriptError:
        with suppress(PlanRejected, OSError):
            CompactionPlan.from_json(path.read_bytes())
            cure = f"`compactor review {path}` shows it; if both are named, PLAN is before TRANSCRIPT"
            raise TranscriptError(f"{path}: holds a plan, expected a transcript: {cure}") from None
        raise
    for warning in read.warnings:
        echo(f"compactor: note: {warning}", err=True)
    return read


def read_plan(path: Path) -> CompactionPlan:
    """Return the plan in the file `path`. If it has a transcript, the error names the right order of arguments."""
    try:
        return CompactionPlan.from_json(path.read_bytes(), str(path))
    except PlanRejected:
        with suppress(TranscriptError):
            read_transcript(path)
            cure = f"name PLAN before TRANSCRIPT, or make one with `compactor plan {path} -o plan.json`"
            problem = f"{path}: holds a transcript, expected a plan: {cure}"
            raise PlanRejected(problem, [Finding(code="invalid_plan", problem=problem)]) from None
        raise


def read_text(path: Path) -> str:
    """Return the text in the file `path`, or from standard input for ``-``."""
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: expected text in UTF-8") from None


def digest_of(path: Path) -> str:
    """Return a digest of the file's content, by which `write_unchanged` notices a change; empty if there is no file."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def write_unchanged(path: Path, text: str, digest: str) -> str:
    """Write `text` to `path`, and return the file's new digest. Raise SettingsError if the file exists and no longer
    has the `digest` that it had when it was read, as somebody else has changed it."""
    if digest_of(path) not in ("", digest):
        raise SettingsError(f"{path}: was changed meanwhile and is not overwritten: move that file away, then save")
    write_whole(path, text)
    return digest_of(path)


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part.

    A new file is readable by its owner alone; an old one keeps its permissions. Devices and pipes cannot be replaced
    and are written to directly.
    """
    content = text.encode("utf-8", "surrogatepass")
    try:
        mode = path.stat().st_mode if path.exists() else PRIVATE_FILE
        if path.exists() and not path.is_file():  # an open pipe (/dev/stdout) cannot be replaced
            path.write_bytes(content)
        elif path.exists() and not os.access(path, os.W_OK):  # a read-only file could be replaced, but must not be
            raise PermissionError(errno.EACCES, "may not be written")
        else:  # unlike `resolve`, `realpath` accepts links that lead in a circle
            _replace(Path(os.path.realpath(path)), content, stat.S_IMODE(mode))
    except OSError as error:  # add the file's name, which an error while writing lacks
        error.filename = str(path)
        raise


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write `content` to a temporary file with these permissions (`mode`), then replace the file `path` by it in one
    step. `click.open_file(atomic=True)` would replace the file also after a failed write."""
    handle, part = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, mode)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def make_folder(path: Path) -> None:
    """Make the folder `path` and its missing parents, for their owner alone."""
    for folder in reversed((path, *path.parents)):
        folder.mkdir(mode=0o700, exist_ok=True)
