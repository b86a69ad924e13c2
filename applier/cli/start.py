"""Where the `compactor` command begins: all else is loaded from here, so that Ctrl-C is one line from the start."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from applier.cli.app import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("compactor: interrupted; nothing was half-written\n")
        code = 130
    sys.exit(code)
