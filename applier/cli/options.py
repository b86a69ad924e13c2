"""Arguments and options that several commands share, and functions that check their values, or open the store that they
name. A command that only reads from the store does not create one.
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
from planner.prices import has_prices, money

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""Type of an argument that names an existing file."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Decorator that adds an option or argument to a command's function."""

transcript: Decorator = click.argument("transcript", type=EXISTING_FILE)
part: Decorator = click.option(
    "--part", type=int, metavar="N", help="Only part N of a file with several conversations, or of a session log."
)
as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
show_all: Decorator = click.option(
    "--all", "show_all", is_flag=True, help="Show every line, and one row for each turn."
)
store_option: Decorator = click.option(
    "--store", metavar="FILE|URL", help="Store of the originals (default: $COMPACTOR_STORE, or your own file)."
)
task: Decorator = click.option("--task", help="Current task of the agent (default: the transcript's own).")

_TURNS = re.compile(r"t?([1-9][0-9]{0,8})(?:-t?([1-9][0-9]{0,8}))?")
"""Turn or range of turns: ``t12``, ``12``, ``t12-t14``, ``12-14``; not ``t0``, ``t12-``."""

SHARE = click.FloatRange(0, 1, min_open=True)
"""Type of an option for a share of a whole: more than 0, at most 1."""


def together(*options: Decorator) -> Decorator:
    """Return a decorator that adds all `options` to a command, in this order in the help."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


change_options: Decorator = together(
    click.option("--dry-run", is_flag=True, help="Show the change; write nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)


def agreed(*, yes: bool, as_json: bool) -> bool:
    """Return True if the user agrees to the change that was printed: by the option ``--yes`` (`yes`), or by an answer
    to a question; a no ends the command. If the output is JSON (`as_json`), ask on standard error."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is no terminal: use --yes to make this change.")
    return yes or click.confirm("Make this change?", abort=True, err=as_json)


MOST_FAILURES = 3
"""Number of failed calls of the model in a row after which a run over many files stops."""


def check_cap(what: str, model: str, estimated_cost: float, cap: float) -> str:
    """Return the `estimated_cost` in dollars of work with `model` as a text: ``at most ≈ $0.12``. Raise SettingsError
    if it is more than `cap`, the user's limit. `what`: name of the work, such as ``3 files``, for the error."""
    cost = money(estimated_cost)
    limit, note = ("at most", "") if has_prices(model) else ("perhaps", f" (the prices of {model} are not known)")
    if estimated_cost > cap:
        price = f"{cost} with {model}{note}, more than --cap {cap:g}"
        raise SettingsError(f"{what} may cost {price}: raise --cap, or use --planner rules")
    return f"{limit} {cost}{note}"


def check_output(output: Path | None, **inputs: Path | None) -> None:
    """Raise a usage error if the file `output` is the same as one of the `inputs` (by their names for the error)."""
    for name, path in inputs.items():
        if output and path and output.exists() and output.samefile(path):
            raise click.UsageError(f"-o {output}: is the {name} itself and would be lost: name another file.")


def turn_ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges in a list of turns: ``[(12, 14), (20, 20)]`` for ``t12-t14,t20``. Return an empty list for a
    text of another form; raise a usage error for a range like ``t14-t12``."""
    matches = [_TURNS.fullmatch(item.strip()) for item in text.split(",")]
    ranges = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    for first, last in ranges:
        if last < first:
            raise click.BadParameter(f"{text[:60]!r}: the range runs backwards; expected t{last}-t{first}.")
    return ranges if len(ranges) == len(matches) else []


def since(text: str) -> float:
    """Return the time in `text`, a day (``2026-11-01``) or days ago (``7d``), in seconds since the epoch."""
    try:
        if text.endswith("d"):
            return time.time() - 86_400 * int(text[:-1])
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        expected = "expected a day like 2026-11-01, or a number of days like 7d."
        raise click.BadParameter(f"{text[:40]!r}: {expected}") from None


def age(text: str) -> float:
    """Return the seconds in a duration such as ``30d`` or ``12h``."""
    return _measure(text, "a time like 30d or 12h", {"d": 86_400, "h": 3_600})


def size(text: str) -> float:
    """Return the bytes in a size such as ``2GB`` or ``500MB``."""
    return _measure(text, "a size like 2GB or 500MB", {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12})


def _measure(text: str, example: str, units: Mapping[str, float]) -> float:
    """Return the number in `text` times the value of the unit after it: 2e9 for ``2GB``. `units`: values of the allowed
    units by name. `example`: expected form, for the error."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([A-Za-z]{1,2})", text.strip())
    unit = units.get(match[2].lower()) if match else None
    if match is None or unit is None or not float(match[1]):
        raise click.BadParameter(f"{text[:40]!r}: expected {example}.")
    return float(match[1]) * unit


class _OutputFile(click.Path):
    """Type of an option for an output file. It must be in an existing folder, which is checked before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value` as a path; raise a usage error if its folder does not exist."""
        path = Path(str(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.absolute().parent.is_dir():
            self.fail(f"'{path.parent}': no such folder: make it first.", param, ctx)
        return path


OUTPUT_FILE = _OutputFile(dir_okay=False, path_type=Path)
"""Type of an argument that names a file to write."""


def output_option(text: str | None = None, *, required: bool = False, allow_dash: bool = False) -> Decorator:
    """Return the option ``-o FILE`` with the help `text`. `allow_dash`: True if ``-`` means standard output."""
    file = _OutputFile(dir_okay=False, allow_dash=allow_dash, path_type=Path)
    return click.option("-o", "--output", metavar="FILE", type=file, required=required, help=text)


def import_extra(module: str, extra: str) -> Any:
    """Import and return `module` of this project. If a package that it needs is not installed, raise an error with the
    command that installs the `extra` (such as ``web``)."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        cure = f"pip install 'relevance-compactor[{extra}]', or in a clone pip install '.[{extra}]'"
        raise click.ClickException(f"{error.name} is missing: {cure}") from None


def existing_store(name: str | None) -> Store:
    """Open the store `name` (None: the default one). Raise StoreError if its file does not exist; do not create it."""
    file = store_file(name)
    if file is not None and not file.is_file():
        missing = "no store there yet: `compactor apply` makes it; --store names another"
        raise StoreError(f"{file}: {'a folder, not a store: --store names its file' if file.is_dir() else missing}")
    return open_store(name)


def with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--store`` to `command`, and pass it the open store, which must exist; close it afterwards."""

    @store_option
    @wraps(command)
    def run(*arguments: Any, store: str | None, **more: Any) -> Any:
        """Open the store, and call the command with it."""
        with existing_store(store) as opened:
            return command(*arguments, store=opened, **more)

    return run


def store_anywhere(name: str) -> str:
    """Return `name`, a store's file or URL, in a form that works in any folder: a file by its absolute path."""
    return str(store_file(name) or name)


def naming_store() -> str:
    """Return the shell command ``compactor``, to be shown to the user. If this process has another store than the
    default one, put its variable before it: ``COMPACTOR_STORE=/srv/a.db compactor``. A store on a server is not named,
    because its address may contain a password."""
    file = store_file(os.environ[STORE_VARIABLE]) if os.environ.get(STORE_VARIABLE) else None
    return f"{STORE_VARIABLE}={shlex.quote(str(file))} compactor" if file else "compactor"
