"""Reading plans and writing results: whole files or nothing, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from applier.adapters.transcripts import Transcript, read_transcript
from planner.errors import SettingsError
from planner.plan import CompactionPlan

__all__ = ["read_file", "read_plan", "write_whole"]


def read_file(path: Path, part: int | None = None) -> Transcript:
    """The transcript in the file `path`; what was odd about it goes to standard error, a line each.

    Raises:
        TranscriptError: it is none; the text names the line and what was expected.
    """
    read = read_transcript(path, part=part)
    for warning in read.warnings:
        click.echo(f"compactor: note: {warning}", err=True)
    return read


def read_plan(path: Path) -> CompactionPlan:
    """The plan in the file `path`.

    Raises:
        PlanRejected: it is not one; the text names the field.
    """
    return CompactionPlan.from_json(path.read_bytes(), str(path))


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part.

    Raises:
        SettingsError: the folder is not there.
    """
    path = path.resolve()
    if not path.parent.is_dir():
        raise SettingsError(f"{path.parent}: no such folder: make it first")
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, _mode(path))
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _mode(path: Path) -> int:
    """The permissions `path` has, or what a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
