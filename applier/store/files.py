"""Files that only their owner reads, and reading files that lie beneath a folder, whatever links lead out of it.

Each step is made relative to a folder that is open already, so nothing can be exchanged between check and use.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["cause_of", "make_private_file", "open_beneath"]

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_private_file(path: Path) -> None:
    """An empty file, and the folders above it, that only the owner enters and reads, whatever the umask.

    What is there already keeps its mode and is not opened: closing a file takes every lock from it that the
    process holds, those of other connections too (POSIX; "How To Corrupt An SQLite Database File", 2.2).

    Raises:
        OSError: it cannot be made, or `path` is a link that leads nowhere.
    """
    for folder in [folder for folder in reversed(path.parents) if not folder.is_dir()]:
        try:
            os.mkdir(folder, FOLDER_MODE)
        except FileExistsError:
            continue  # another process was first
        os.chmod(folder, FOLDER_MODE)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
    except FileExistsError:
        path.stat()  # a link that leads nowhere ends here: what is written there is for another to read
        return
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, FILE_MODE)
    finally:
        os.close(handle)


def open_beneath(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> BinaryIO:
    """The regular file `path` beneath the folder `root`, open for reading; the caller closes it.

    `path` is relative to `root`, or absolute and begins with it. No link below `root` is followed, and a file with
    several names (hard links) is refused: one of them may lie elsewhere. ``os.fstat`` of the file says what was
    opened.

    Raises:
        OSError: there is none, it may not be read, or it is not certain that it lies beneath `root`.
    """
    if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        raise PermissionError("files beneath a folder cannot be opened safely on this system")
    parts = _parts_beneath(root, path)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        handle = os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=folder)  # a pipe must not wait for its writer
    finally:
        os.close(folder)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(handle)
        raise PermissionError(f"{os.fspath(path)}: not a regular file with one name")
    return os.fdopen(handle, "rb")


def _parts_beneath(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    """The names on the way from `root` to `path`."""
    name, top = os.fspath(path), os.fspath(root)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        name = "\0"
    if "\0" in name:
        raise FileNotFoundError("a path holds what no file name has")
    for start in dict.fromkeys((os.path.abspath(top), os.path.realpath(top))):
        inner = os.path.relpath(os.path.normpath(os.path.join(start, name)), start)
        parts = inner.split(os.sep)
        if inner != os.curdir and parts[0] != os.pardir:
            return parts
    raise PermissionError(f"{name}: not beneath {top}")


def cause_of(error: Exception) -> str:
    """What went wrong, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
