"""`compactor facts`: what was extracted from a history and is worth carrying."""

from __future__ import annotations

from typing import get_args

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, plain_table, print_json, screen
from applier.cli.stores import existing_store, known_history, latest_history
from planner.plan import FactType

__all__ = ["command"]


@click.command
@click.argument("history", required=False)
@click.option("--type", "kind", type=click.Choice(get_args(FactType)), help="Only facts of this type.")
@store_option
@as_json
def command(history: str | None, kind: str | None, store: str | None, as_json: bool) -> None:
    """Print the facts that were extracted.

    HISTORY is a key like h1a2b3c4d; without it, the one saved last.
    """
    with existing_store(store) as opened:
        found = opened.facts(known_history(opened, history) if history else latest_history(opened))
    facts = [fact for fact in found if kind in (None, fact.type)]
    if as_json:
        print_json([fact.model_dump(mode="json") for fact in facts])
        return
    table = plain_table("type", "from", "fact")
    for fact in facts:
        table.add_row(fact.type, fact.source, clean(fact.quote or fact.content))
    screen().print(table if facts else "no facts")
