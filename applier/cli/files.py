"""Reading plans and transcripts, writing results: whole files or nothing, readable by their owner alone."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from hashlib import sha256
from pathlib import Path

import click

from applier.adapters.transcripts import Transcript, read_transcript
from applier.cli.screen import echo
from planner.errors import SettingsError
from planner.plan import CompactionPlan

__all__ = [
    "digest_of",
    "make_folder",
    "read_file",
    "read_plan",
    "read_text",
    "refuse_changed",
    "write_whole",
]

MAX_PLAN_MEGABYTES = 64
"""A larger plan file is refused: the plan of 100,000 turns has less."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def read_file(path: Path, part: int | None = None) -> Transcript:
    """The transcript in the file `path`; what was odd about it goes to standard error, a line each.

    Raises:
        TranscriptError: it is none; the text names the line and what was expected.
    """
    read = read_transcript(path, part=part)
    for warning in read.warnings:
        echo(f"compactor: note: {warning}", err=True)
    return read


def read_plan(path: Path) -> CompactionPlan:
    """The plan in the file `path`.

    Raises:
        PlanRejected: it is not one; the text names the field.
        SettingsError: it is too large to be one.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_PLAN_MEGABYTES * 2**20 + 1)
    if len(raw) > MAX_PLAN_MEGABYTES * 2**20:
        raise SettingsError(f"{path}: larger than {MAX_PLAN_MEGABYTES} MB: expected a plan")
    return CompactionPlan.from_json(raw, str(path))


def read_text(path: Path) -> str:
    """The text in the file `path`, or on standard input for ``-``.

    Raises:
        SettingsError: it is not UTF-8.
    """
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: expected text in UTF-8") from None


def digest_of(path: Path) -> str:
    """What the file `path` holds now, to be compared later; empty if there is none."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def refuse_changed(path: Path, digest: str) -> None:
    """Refuse to overwrite what somebody else wrote to `path` since it was of this `digest`.

    Raises:
        SettingsError: it is another file now; one that is gone loses nothing.
    """
    if digest_of(path) not in ("", digest):
        raise SettingsError(f"{path}: was changed meanwhile and is not overwritten: move that file away, then save")


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part.

    A new file is its owner's alone, an old one keeps its permissions. What is no regular file (a device, a pipe)
    is written to, not replaced.

    Raises:
        SettingsError: the folder is not there.
        OSError: it cannot be written, or the file that is there may not be; `filename` names it.
    """
    mode = path.stat().st_mode if path.exists() else None
    if mode is None or stat.S_ISREG(mode):  # an open pipe (/dev/stdout) has no other name than that link
        path = Path(os.path.realpath(path))  # unlike `resolve`, it bears links that lead in a circle
    if not path.parent.is_dir():
        raise SettingsError(f"{path.parent}: no such folder: make it first")
    if mode is not None and not os.access(
        path, os.W_OK
    ):  # a folder that may be written lets it be replaced all the same
        raise PermissionError(errno.EACCES, "may not be written", str(path))
    content = text.encode("utf-8", "surrogatepass")
    try:
        if mode is None or stat.S_ISREG(mode):
            _replace(path, content, PRIVATE_FILE if mode is None else stat.S_IMODE(mode))
        else:
            path.write_bytes(content)
    except OSError as error:  # what fails while it is written names no file
        error.filename = str(path)
        raise


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Not `click.open_file(atomic=True)`: it puts the new file in place also when writing it failed halfway."""
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
    """Make the folder `path` and what is missing above it, for their owner alone under any umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_FOLDER)
        folder.chmod(PRIVATE_FOLDER)
