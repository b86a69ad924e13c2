"""The `compactor` command: the edge where files are read, the store is opened and people are told.

It begins by leaving the folder it is run in, then loads all else. Until then only what Python itself has loaded is
imported here: any other module might be the folder's. Ctrl-C is one line from the start.
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
    """Import no more from PYTHONPATH and from where ``-m`` or a script was run: either may be an agent's project.

    What the interpreter has anyway and the place of our own packages stay, whoever names them, too. The variable
    itself stays as it is, for a client that is run from here.
    """
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
    """`place` as the module path has it; as it is where there is no folder to begin from."""
    try:
        return os.path.normcase(os.path.abspath(place))
    except OSError:
        return place
