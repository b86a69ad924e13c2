"""Arguments and options that several commands share, the types behind them, and what they open: a store, an extra.

A command that only reads makes no new store.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce, wraps
from pathlib import Path
from typing import Any

import click

from applier.store.opening import STORE_VARIABLE, open_store, store_file
from applier.store.store import Store
from planner.errors import SettingsError, StoreError
from planner.prices import money

__all__ = [
    "EXISTING_FILE",
    "MOST_FAILURES",
    "OUTPUT_FILE",
    "SHARE",
    "age",
    "agreed",
    "as_csv",
    "as_json",
    "change_options",
    "check_cap",
    "existing_store",
    "import_extra",
    "naming_store",
    "output_option",
    "part",
    "show_all",
    "since",
    "size",
    "store_anywhere",
    "store_option",
    "task",
    "together",
    "transcript",
    "turn_ranges",
    "with_store",
]

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

transcript: Decorator = click.argument("transcript", type=EXISTING_FILE)
part: Decorator = click.option(
    "--part", type=int, metavar="N", help="Of a file with several conversations or a session log: only part N."
)
as_csv: Decorator = click.option("--csv", "as_csv", is_flag=True, help="Print every row as CSV, for a spreadsheet.")
as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
show_all: Decorator = click.option("--all", "show_all", is_flag=True, help="One row a turn; fold nothing.")
store_option: Decorator = click.option(
    "--store", metavar="FILE|URL", help="Where originals live (default: $COMPACTOR_STORE, or your own)."
)
task: Decorator = click.option("--task", help="What the agent is to do now (default: the transcript's own).")

_TURNS = re.compile(r"t?([1-9][0-9]{0,8})(?:-t?([1-9][0-9]{0,8}))?")
"""``t12``, ``12``, ``t12-t14``, ``12-14``; not ``t0``, ``t12-``."""

SHARE = click.FloatRange(0, 1, min_open=True)
"""Of the whole: more than nothing, at most all of it."""


def together(*options: Decorator) -> Decorator:
    """All of `options` at once, in this order in the help."""
    return lambda command: reduce(lambda own, option: option(own), reversed(options), command)


change_options: Decorator = together(
    click.option("--dry-run", is_flag=True, help="Show the change; write nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)


def agreed(*, yes: bool, as_json: bool) -> bool:
    """True once a person agreed to the change that was shown, or said so before.

    Raises:
        click.UsageError: there is nobody to ask.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody to ask here: say --yes to make this change.")
    return yes or click.confirm("Make this change?", abort=True, err=as_json)


MOST_FAILURES = 3
"""So many in a row for which a model gave no answer end the asking."""


def check_cap(what: str, model: str, reckoned: float, cap: float) -> None:
    """Nothing if asking `model` costs no more than `cap` dollars, as it was reckoned.

    Raises:
        SettingsError: `what` may cost more.
    """
    if reckoned > cap:
        price = f"{money(reckoned)} with {model}, more than --cap {cap:g}"
        raise SettingsError(f"{what} may cost {price}: raise it, or say --planner rules")


def turn_ranges(text: str) -> list[tuple[int, int]]:
    """The turns that ``t12-t14,t20`` names, as first and last numbers; none if it names no turns.

    Raises:
        BadParameter: a range runs backwards.
    """
    matches = [_TURNS.fullmatch(item.strip()) for item in text.split(",")]
    ranges = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    for first, last in ranges:
        if last < first:
            raise click.BadParameter(f"{text[:60]!r}: the range runs backwards; expected t{last}-t{first}.")
    return ranges if len(ranges) == len(matches) else []


def since(text: str) -> float:
    """A time in seconds since the epoch, given as a day or as so many days ago."""
    try:
        if text.endswith("d"):
            return time.time() - 86_400 * int(text[:-1])
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        expected = "expected a day like 2026-11-01, or a number of days like 7d."
        raise click.BadParameter(f"{text[:40]!r}: {expected}") from None


def age(text: str) -> float:
    """How long ago, in seconds."""
    return _measure(text, "a time like 30d or 12h", {"d": 86_400, "h": 3_600})


def size(text: str) -> float:
    """In bytes."""
    return _measure(text, "a size like 2GB or 500MB", {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12})


def _measure(text: str, example: str, units: Mapping[str, float]) -> float:
    """A number with one of `units` behind it, in the first of these."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([A-Za-z]{1,2})", text.strip())
    unit = units.get(match[2].lower()) if match else None
    if match is None or unit is None or not float(match[1]):
        raise click.BadParameter(f"{text[:40]!r}: expected {example}.")
    return float(match[1]) * unit


class _OutputFile(click.Path):
    """A file to be written: its folder is there, and it is none itself; said before any work is done."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.absolute().parent.is_dir():
            self.fail(f"'{path.parent}': no such folder: make it first.", param, ctx)
        return path


OUTPUT_FILE = _OutputFile(dir_okay=False, path_type=Path)


def output_option(text: str | None = None, *, required: bool = False, allow_dash: bool = False) -> Decorator:
    """Where the result goes; `text` is its help. With `allow_dash`, ``-`` is standard output."""
    file = _OutputFile(dir_okay=False, allow_dash=allow_dash, path_type=Path)
    return click.option("-o", "--output", metavar="FILE", type=file, required=required, help=text)


def import_extra(module: str, extra: str) -> Any:
    """Our own `module`, which needs packages of `extra`.

    Raises:
        ClickException: they are not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        cure = f"pip install 'relevance-compactor[{extra}]', or in a clone pip install '.[{extra}]'"
        raise click.ClickException(f"{error.name} is missing: {cure}") from None


def existing_store(name: str | None) -> Store:
    """The store `name` (None: the default), which must be there.

    Raises:
        StoreError: there is none, or it cannot be opened.
    """
    file = store_file(name)
    if file is not None and not file.is_file():
        missing = "no store there yet: `compactor apply` makes it; --store names another"
        raise StoreError(f"{file}: {'a folder, not a store: --store names its file' if file.is_dir() else missing}")
    return open_store(name)


def with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with the option, its store, which must be there, open while it runs."""

    @store_option
    @wraps(command)
    def run(*arguments: Any, store: str | None, **more: Any) -> Any:
        with existing_store(store) as opened:
            return command(*arguments, store=opened, **more)

    return run


def store_anywhere(name: str) -> str:
    """The store `name` as it is called from any folder: a file by its whole path."""
    return str(store_file(name) or name)


def naming_store() -> str:
    """The command, for a shell that has not the variable by which this process was given its store.

    An address may hold a password, and what reads this is a model: only a file is named.
    """
    file = store_file(os.environ[STORE_VARIABLE]) if os.environ.get(STORE_VARIABLE) else None
    return f"{STORE_VARIABLE}={shlex.quote(str(file))} compactor" if file else "compactor"
