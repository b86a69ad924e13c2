"""Where the command line prints: tables for people, JSON for machines, never control characters.

Plain text when standard output is not a terminal; the width is the terminal's, or $COLUMNS, or 80.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.status import Status
from rich.table import Table
from rich.text import Text

__all__ = ["clean", "one_line", "plain_table", "print_json", "progress", "screen", "shorten", "working"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What could move a terminal's cursor, recolour it or reorder its text; and lone surrogates."""


def screen() -> Console:
    """A console on standard output that never interprets markup found in content."""
    return Console(markup=False, emoji=False, highlight=False)


def working(what: str) -> Status:
    """Shows on a terminal's standard error that something is being done, until it is left; else nothing."""
    return Console(stderr=True, markup=False).status(what)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal's standard error; call what it gives once a step. Shows nothing elsewhere."""
    console = Console(stderr=True, markup=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def plain_table(*titles: str, right: Collection[str] = ()) -> Table:
    """A table that is as easy to read for a person as for `grep`; columns named in `right` are numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left")
    return table


def clean(text: str, style: str = "") -> Text:
    """`text` from a transcript or a model as printable text: what could steer the terminal shows as a dot."""
    return Text(_CONTROLS.sub("·", text), style=style)


def one_line(text: str) -> str:
    """`text` with each run of white space as one space."""
    return " ".join(text.split())


def shorten(text: str, width: int) -> str:
    """The first `width` characters of `text` on one line, the last of them "…" if something is missing."""
    line = one_line(text)
    return line if len(line) <= width else line[: max(0, width - 1)].rstrip() + "…"


def print_json(value: object) -> None:
    """`value` as indented JSON on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False))
