"""`compactor restore`: the exact original behind a reference, whole or in part."""

from __future__ import annotations

import re
from typing import Any

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, print_json, screen
from applier.cli.stores import existing_store

__all__ = ["command"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class _Range(click.ParamType[tuple[int, int]]):
    name = "FIRST-LAST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = _RANGE.fullmatch(str(value))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last:
            self.fail(f"{value!r}: expected lines like 3-9 or 3, counted from 1.", param, ctx)
        return first, last


@click.command
@click.argument("reference", metavar="REF")
@click.option("--lines", type=_Range(), help="Only these lines, first and last included.")
@click.option("--search", metavar="TEXT", help="Only lines that hold TEXT or match it as a pattern.")
@store_option
@as_json
def command(
    reference: str, lines: tuple[int, int] | None, search: str | None, store: str | None, as_json: bool
) -> None:
    """Print the exact original behind a reference.

    REF is h1a2b3c4d:t12, or t12 where the store has one conversation.
    """
    with existing_store(store) as opened:
        found = opened.restore(reference, lines=lines, search=search)
    if as_json:
        print_json({"reference": found.reference, "messages": list(found.messages), "text": found.text})
    elif search is not None and not found.matches:
        raise click.ClickException(f"{found.reference}: no line holds {search!r}")
    elif (console := screen()).is_terminal:
        console.print(clean(found.text), soft_wrap=True)
    else:
        click.echo(found.text.encode("utf-8", "surrogatepass"))
