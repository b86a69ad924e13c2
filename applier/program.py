"""The command line by which other programs run this one: a client's settings, its agent's shell, a benchmark.

Nothing is ever imported from the folder it is run in, nor from PYTHONPATH. Pure; runs nothing.
"""

from __future__ import annotations

import json
import site
import sys
from importlib import metadata
from pathlib import Path

__all__ = ["program"]


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
