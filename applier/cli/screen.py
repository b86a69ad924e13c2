"""Prints tables and lines for people and JSON for programs.

Control characters are removed, because content of a conversation could otherwise change the terminal. On a terminal
lines fit its width (or $COLUMNS); in a pipe they have any length. $NO_COLOR turns styles off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Literal

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.reading.lines import one_line

if TYPE_CHECKING:
    from planner.review_text import Section

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that could move a terminal's cursor, recolour it or reorder its text, and lone surrogates: ESC, a carriage
return, a right-to-left override; not a tab or a line feed."""
_LAST_SECOND = 253_402_300_799
"""Last second of the year 9999; later times have no date."""
_INDENT = 2
"""Number of spaces before each line of a section with a title."""
FULL_WIDTH = 100_000
"""Width in columns if the output is no terminal: more than any line has, so that none is wrapped."""


class _Screen(Console):
    """Console that removes control characters from plain strings, also from those in tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return `text` for the console, without control characters."""
        return super().render_str(printable(text), **options)


def screen(*, stderr: bool = False) -> Console:
    """Return a console on standard output (or error) that prints text as it is: ``[red]`` in it is no colour. With its
    `status`, a terminal shows a spinner as long as the ``with`` block runs."""
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = _Screen(stderr=stderr, markup=False, emoji=False, highlight=False, color_system=colors)
    console.width = shutil.get_terminal_size((FULL_WIDTH, 0)).columns  # `FULL_WIDTH` if there is no terminal
    return console


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print `text` without characters that could control the terminal."""
    click.echo(printable(text), err=err, nl=nl)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar `what` of `total` steps, if standard error is a terminal; yield a function for each step."""
    from rich.progress import Progress  # imported here, because most commands show no progress

    console = screen(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def print_table(
    titles: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    empty: str = "",
    err: bool = False,
) -> None:
    """Print a table, on standard error if `err`. If it has no rows, print the text `empty` in its place. `right`:
    titles of columns that are aligned to the right. `whole`: titles of columns that are never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", no_wrap=title in whole)
    for cells in rows:
        table.add_row(*cells)
    screen(stderr=err).print(table if table.row_count or not empty else empty)


def print_sections(console: Console, sections: Iterable[Section], *, whole: bool) -> None:
    """Print the sections of a plan's review. Lines of prose are wrapped; others, such as one for each turn, are cut to
    the screen's width, or also wrapped if `whole`."""
    for number, section in enumerate(sections):
        if number:
            console.print("")
        if section.title:
            console.print(Text(section.title, style="bold"))
        for line in section.lines:
            text, indent = clean(line, "" if number else "bold"), _INDENT if section.title else 0  # first section: bold
            if not (section.is_prose or whole):
                text.truncate(console.width - indent, overflow="ellipsis")
            for part in text.wrap(console, console.width - indent) or [text]:
                part.rstrip()
                console.print(Text(" " * indent) + part)


def printable(text: str) -> str:
    """Return `text` with a dot in place of each control character, so that it cannot change the terminal."""
    return _CONTROLS.sub("·", text)


def clean(text: str, style: str = "") -> Text:
    """Return `text` for rich's console, with a style (``bold``) and without control characters."""
    return Text(printable(text), style=style)


def shorten(text: str, width: int) -> str:
    """Return the first `width` characters of `text` on one line, with "…" at the end if something is missing."""
    line = one_line(text)
    return line if len(line) <= width else line[: max(0, width - 1)].rstrip() + "…"


def day(time: float) -> str:
    """Return the UTC date (``2026-11-03``) of `time` in seconds since the epoch; empty for 0, an unknown time."""
    return datetime.fromtimestamp(min(time, _LAST_SECOND), UTC).strftime("%Y-%m-%d") if time else ""


def print_json(value: object, *, err: bool = False) -> None:
    """Print `value` as indented JSON on standard output (or error); NaN and infinity are printed as in Python."""
    click.echo(json.dumps(value, indent=2), err=err)


def print_data(text: str) -> None:
    """Print `text` on standard output as UTF-8, exactly as it is, with control characters, for files and pipes."""
    click.echo(text.encode("utf-8", "surrogatepass"), nl=False)


def show_page(server: Any) -> None:
    """Print the link of a page and serve it by `server`, a `PageServer`, until the user finishes or presses Ctrl-C."""
    echo(f"Open this link in a browser on this machine; it works once: {server.link}", err=True)
    echo("Finish on the page, or press Ctrl-C here.", err=True)
    with suppress(KeyboardInterrupt):
        server.run()


def print_unknown_characters() -> None:
    """Make standard output and error print "?" for characters outside their encoding, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
