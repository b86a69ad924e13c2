"""`compactor log`: what was done to histories of this store, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from applier.cli.options import as_json, store_option
from applier.cli.screen import clean, plain_table, print_json, screen
from applier.cli.stores import existing_store

__all__ = ["command"]


@click.command
@click.option("--session", help="Only events of this session.")
@click.option("-n", "count", type=click.IntRange(1), default=50, show_default=True, help="The newest N events.")
@store_option
@as_json
def command(session: str | None, count: int, store: str | None, as_json: bool) -> None:
    """Print the events of the store, oldest first."""
    with existing_store(store) as opened:
        events = opened.events(session)[-count:]
    if as_json:
        print_json(list(events))
        return
    table = plain_table("time (UTC)", "session", "what", "before", "after", "", right=("before", "after"))
    for event in events:
        table.add_row(*(clean(cell) for cell in _cells(event)))
    screen().print(table if events else f"no events of session {session}" if session else "no events")


def _cells(event: Mapping[str, Any]) -> Iterator[str]:
    yield _time(event["time"])
    yield str(event.get("session") or event.get("session_id") or "")
    yield str(event.get("kind", ""))
    for key in ("tokens_before", "tokens_after"):
        yield f"{event[key]:,}" if isinstance(event.get(key), int) and event[key] else ""
    yield str(event.get("message", ""))


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # before year 1 or after 9999, whatever clock that was
        return f"{seconds:g}"
