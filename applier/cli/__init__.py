"""The `compactor` command: reads files, opens the store and prints.

At its start it stops importing from the working folder, then loads everything else. Until then it imports only modules
that Python itself has loaded, since any other could come from that folder. Ctrl-C ends it with one line from the start.
"""

import os
import site
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        _leave_folder()
        from applier.cli.app import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("compactor: interrupted; nothing was half-written\n")
        code = 130
    sys.exit(code)


def _leave_folder() -> None:
    """Stop importing from PYTHONPATH and from the folder of ``-m`` or a script, which may be an agent's project; keep
    the folders of the interpreter and of this package."""
    variable = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    strangers = {*map(_whole, variable.split(os.pathsep) if variable else ())}
    if not sys.flags.safe_path:
        strangers.add(_whole(sys.path[0]))
    library = os.path.dirname(os.__file__)
    own = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    ours = (own, library, os.path.join(library, "lib-dynload"), *site.getsitepackages(), site.USER_SITE or own)
    strangers -= {*map(_whole, ours)}
    sys.path[:] = [place for place in sys.path if _whole(place) not in strangers]


def _whole(place: str) -> str:
    """Return `place` as an absolute path; unchanged if there is no current folder."""
    try:
        return os.path.normcase(os.path.abspath(place))
    except OSError:
        return place
