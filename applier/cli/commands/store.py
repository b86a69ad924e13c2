"""`compactor store`: look after the store itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, echo, plain_table, print_json, screen
from applier.cli.stores import existing_store
from planner.plan import Finding

__all__ = ["command"]


@click.group
def command() -> None:
    """List what the store holds, verify it, and forget a conversation."""


@command.command(name="list")
@store_option
@as_json
def list_(store: str | None, as_json: bool) -> None:
    """List the histories, oldest first."""
    with existing_store(store) as opened:
        known = opened.histories()
    if as_json:
        print_json([asdict(history) for history in known])
        return
    table = plain_table("history", "messages", "turns", right=("messages", "turns"))
    for history in known:
        table.add_row(history.key, f"{history.messages:,}", f"{history.turns:,}")
    screen().print(table if known else "no history")


@command.command
@click.argument("history")
@click.option("--yes", is_flag=True, help="Yes, for good.")
@store_option
@as_json
@click.pass_context
def forget(context: click.Context, history: str, yes: bool, store: str | None, as_json: bool) -> None:
    """Delete a conversation for good, with its plans, facts, events and session states.

    HISTORY is a key like h1a2b3c4d, or a plan's id like p1a2b3c4d. Exit 1 if something of it is left.
    """
    if not yes:
        raise click.UsageError(f"what is forgotten never comes back: say --yes to delete {history}.")
    with existing_store(store) as opened:
        left = opened.forget(history)
    if not as_json:
        echo(f"{history} is forgotten; its references restore nothing any more")
    _report(context, left, as_json=as_json)


@command.command
@store_option
@as_json
@click.pass_context
def flush(context: click.Context, store: str | None, as_json: bool) -> None:
    """Take what was forgotten out of the database's logs, too; exit 1 if something is left there."""
    with existing_store(store) as opened:
        left = opened.flush()
    _report(context, left, as_json=as_json)


def _report(context: click.Context, left: Sequence[Finding], *, as_json: bool) -> None:
    """Say what is left of what was forgotten."""
    if as_json:
        print_json({"left": [finding.model_dump(mode="json") for finding in left]})
    for finding in () if as_json else left:
        repair = f": {finding.repair}" if finding.repair else ""
        echo(f"compactor: left: {clean(finding.problem)}{repair}", err=True)
    context.exit(1 if left else 0)


@command.command
@store_option
@as_json
@click.pass_context
def verify(context: click.Context, store: str | None, as_json: bool) -> None:
    """Recompute every digest in the store; exit 1 if anything is damaged."""
    with existing_store(store) as opened:
        findings, size = opened.verify(), opened.size()
    if as_json:
        print_json({"findings": [finding.model_dump(mode="json") for finding in findings]})
    else:
        for finding in findings:
            screen().print(clean(f"{finding.code}: {finding.problem}"))
        verdict = f"{len(findings)} damaged" if findings else "all whole"
        histories = f"{size.histories} {'history' if size.histories == 1 else 'histories'}"
        screen().print(f"{histories}, {size.messages} messages, {size.file_bytes:,} bytes: {verdict}")
    context.exit(1 if findings else 0)
