"""`compactor restore`: the exact original behind a reference, whole or in part."""

from __future__ import annotations

import re
from typing import Any

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, echo, print_json, screen
from applier.cli.stores import existing_store
from applier.store.protocol import Restored

__all__ = ["command"]

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
"""``3-9``, ``3``; not ``3-``."""


class _Range(click.ParamType[tuple[int, int]]):
    name = "FIRST-LAST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = _RANGE.fullmatch(str(value))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last:
            self.fail(f"{str(value)[:40]!r}: expected lines like 3-9 or 3, counted from 1.", param, ctx)
        return first, last


@click.command
@click.argument("reference", metavar="REF")
@click.option("--lines", type=_Range(), help="Only these lines, first and last included.")
@click.option("--search", metavar="TEXT", help="Only lines that hold TEXT, match it as a pattern, or hold its words.")
@store_option
@as_json
def command(
    reference: str, lines: tuple[int, int] | None, search: str | None, store: str | None, as_json: bool
) -> None:
    """Print the exact original behind a reference.

    REF is h1a2b3c4d:t12, or t12 where the store has one conversation. Lines are counted as the excerpts of a plan
    and a search count them.
    """
    with existing_store(store) as opened:
        restored = opened.restore(reference, lines=lines, search=search)
    if as_json:
        print_json(_as_json(restored))
        return
    media = [block["type"] for block in restored.blocks if block["type"] != "text"]
    if media:
        echo(f"compactor: note: not text, only with --json: {', '.join(media)}", err=True)
    if (console := screen()).is_terminal:
        console.print(clean(restored.text), soft_wrap=True)
    else:
        click.echo(restored.text.encode("utf-8", "surrogatepass"))


def _as_json(restored: Restored) -> dict[str, Any]:
    return {
        "reference": restored.reference,
        "messages": list(restored.messages),
        "text": restored.text,
        "lines": list(restored.lines),
        "total_lines": restored.total_lines,
    }
