"""The command line by which other programs run this one (a client's settings, its agent's shell, a benchmark), and the
file by which this one runs another.

Nothing is ever imported from the folder it is run in, nor from PYTHONPATH, and no program of that folder is meant by a
bare name. Runs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
from importlib import metadata
from pathlib import Path

__all__ = ["program", "program_file"]


def program(*arguments: str) -> list[str]:
    """An absolute interpreter, isolated (``-I``: https://docs.python.org/3/using/cmdline.html), running `compactor`.

    ``-I`` finds what stands in the interpreter's own folders, as in any virtual environment. Where this installation
    is elsewhere (``pip install --user``, ``--target``) the command line names the place, before those folders.
    """
    place = _place()
    if any(place == Path(own).resolve() for own in site.getsitepackages()):
        return [sys.executable, "-I", "-m", "applier.cli", *arguments]
    folder = json.dumps(str(place), ensure_ascii=False)
    code = f"import site; site.addsitedir({folder}); site.main(); from applier.cli import main; main()"
    return [sys.executable, "-IS", "-c", code, *arguments]


def _place() -> Path:
    """The folder in which an installer put this distribution; else the one that holds our packages."""
    try:
        return Path(str(metadata.distribution("relevance-compactor").locate_file(""))).resolve()
    except metadata.PackageNotFoundError:
        return Path(__file__).resolve().parents[1]


def program_file(name: str) -> str:
    """The file that the bare `name` means on PATH, empty if there is none.

    An entry relative to the working folder names a stranger's program and does not count; Windows looks there unasked.
    """
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    place = shutil.which(name, path=os.pathsep.join(entries)) or ""
    return place if os.path.isabs(place) else ""
