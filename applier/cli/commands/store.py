"""`compactor store`: look after the store itself."""

from __future__ import annotations

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, print_json, screen
from applier.cli.stores import existing_store

__all__ = ["command"]


@click.group
def command() -> None:
    """Verify the store."""


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
        screen().print(f"{size.histories} histories, {size.messages} messages, {size.file_bytes:,} bytes: {verdict}")
    context.exit(1 if findings else 0)
