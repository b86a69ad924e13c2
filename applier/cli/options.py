"""Arguments and options that several commands share, the types behind them, and packages that an extra brings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = [
    "EXISTING_FILE",
    "SHARE",
    "OutputFile",
    "as_json",
    "import_extra",
    "part",
    "show_all",
    "store_option",
    "task",
    "transcript",
]

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

transcript: Decorator = click.argument("transcript", type=EXISTING_FILE)
part: Decorator = click.option(
    "--part", type=int, metavar="N", help="Of a file with several conversations or a session log: only part N."
)
as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
show_all: Decorator = click.option("--all", "show_all", is_flag=True, help="One row a turn; fold nothing.")
store_option: Decorator = click.option(
    "--store", metavar="FILE|URL", help="Where originals live (default: $COMPACTOR_STORE, or your own)."
)
task: Decorator = click.option("--task", help="What the agent is to do now (default: the transcript's own).")


SHARE = click.FloatRange(0, 1, min_open=True)
"""Of the whole: more than nothing, at most all of it."""


class OutputFile(click.Path):
    """A file to be written: its folder is there, and it is none itself; said before any work is done."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        """With `allow_dash`, ``-`` is standard output."""
        super().__init__(dir_okay=False, allow_dash=allow_dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`value` as a path."""
        path = Path(str(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.absolute().parent.is_dir():
            self.fail(f"'{path.parent}': no such folder: make it first.", param, ctx)
        return path


def import_extra(module: str, extra: str) -> Any:
    """Our own `module`, which needs packages of `extra`.

    Raises:
        ClickException: they are not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'relevance-compactor[{extra}]'") from None
