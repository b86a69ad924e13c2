"""The `compactor` command: parses the command line, reads files, opens the store and prints.

Before it imports anything else, it removes the working folder from Python's search path, because that may be a
stranger's project. Up to then it uses only modules that Python itself has loaded. Ctrl-C ends it with one line.
"""

import os
import site
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        _leave_folder()
        from applier.cli.app import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("compactor: interrupted; nothing was half-written\n")
        code = 130
    sys.exit(code)


def _leave_folder() -> None:
    """Remove from ``sys.path`` the folders in PYTHONPATH and the one of ``-m`` or a script. They may be the project of
    an agent, with a file such as ``json.py`` that would run here. Keep the folders of the interpreter and this
    package."""
    variable = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    untrusted = {*map(_absolute, variable.split(os.pathsep) if variable else ())}
    if not sys.flags.safe_path:  # else Python has not added the folder of ``-m`` or the script
        untrusted.add(_absolute(sys.path[0]))
    library = os.path.dirname(os.__file__)
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    installed = (*site.getsitepackages(), site.USER_SITE or package)
    trusted = (package, library, os.path.join(library, "lib-dynload"), *installed)
    untrusted -= {*map(_absolute, trusted)}
    sys.path[:] = [place for place in sys.path if _absolute(place) not in untrusted]


def _absolute(place: str) -> str:
    """Return `place` as an absolute path in normal form; unchanged if the current folder was deleted."""
    try:
        return os.path.normcase(os.path.abspath(place))
    except OSError:
        return place
