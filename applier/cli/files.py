"""Reading transcripts and texts, writing results: whole files or nothing, readable by their owner alone."""

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

__all__ = ["digest_of", "make_folder", "read_file", "read_text", "write_unchanged", "write_whole"]

PRIVATE_FILE = 0o600


def read_file(path: Path, part: int | None = None) -> Transcript:
    """The transcript in the file `path`; what was odd about it goes to standard error, a line each.

    Raises:
        TranscriptError: it is none; the text names the line and what was expected.
    """
    read = read_transcript(path, part=part)
    for warning in read.warnings:
        echo(f"compactor: note: {warning}", err=True)
    return read


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


def write_unchanged(path: Path, text: str, digest: str) -> str:
    """Write `text` to `path` unless somebody else wrote there since it was of `digest`; its new digest.

    Raises:
        SettingsError: it is another file now; one that is gone loses nothing.
    """
    if digest_of(path) not in ("", digest):
        raise SettingsError(f"{path}: was changed meanwhile and is not overwritten: move that file away, then save")
    write_whole(path, text)
    return digest_of(path)


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part.

    A new file is its owner's alone, an old one keeps its permissions. What is no regular file (a device, a pipe)
    is written to, not replaced.

    Raises:
        OSError: it cannot be written, or the file that is there may not be; `filename` names it.
    """
    content = text.encode("utf-8", "surrogatepass")
    try:
        mode = path.stat().st_mode if path.exists() else PRIVATE_FILE
        if path.exists() and not path.is_file():  # an open pipe (/dev/stdout) has no other name than that link
            path.write_bytes(content)
        elif path.exists() and not os.access(path, os.W_OK):  # its folder would let it be replaced all the same
            raise PermissionError(errno.EACCES, "may not be written")
        else:  # unlike `resolve`, `realpath` bears links that lead in a circle
            _replace(Path(os.path.realpath(path)), content, stat.S_IMODE(mode))
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
    """Make the folder `path` and what is missing above it, for their owner alone."""
    for folder in reversed((path, *path.parents)):
        folder.mkdir(mode=0o700, exist_ok=True)
