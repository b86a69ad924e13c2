"""``python -m applier.bench.sessions presets|rounds|steady``: tables of what sessions cost and keep.

Prints only; the measuring is in the modules beside it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from applier.adapters.transcripts import read_transcript
from applier.bench.sessions.presets import Row, measure_presets, totals
from applier.bench.sessions.rounds import compact_in_rounds
from applier.bench.sessions.steady import steady_state
from applier.session.presets import PRESETS
from planner.layout.cache_cost import CACHE_READ_PRICES

__all__ = ["main"]

NAME_CHARACTERS = 20
"""Of a transcript's name, its end: parts of one session differ there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(prog="python -m applier.bench.sessions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    presets = commands.add_parser("presets", help="replay transcripts through every preset and window")
    presets.add_argument("folder", type=Path)
    presets.add_argument("--preset", action="append", choices=sorted(PRESETS))
    presets.add_argument("--window", action="append", type=int)
    presets.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    presets.add_argument("--replace", action="store_true", help="agents replace their lists by what they got")
    rounds = commands.add_parser("rounds", help="five compactions in a row on the longest transcripts")
    rounds.add_argument("folder", type=Path)
    rounds.add_argument("--longest", type=int, default=5)
    commands.add_parser("steady", help="what prepare costs when nothing is to be done")
    given = parser.parse_args(arguments)
    console = Console()
    if given.command == "presets":
        _presets(console, given)
    elif given.command == "rounds":
        _rounds(console, given)
    else:
        _steady(console)


def _transcripts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"), key=lambda path: path.stat().st_size)


def _presets(console: Console, given: argparse.Namespace) -> None:
    names, windows = given.preset or list(PRESETS), given.window or [32_000, 200_000]
    paths = _transcripts(given.folder)
    rows = measure_presets(paths, names, windows, replace=given.replace, processes=given.processes)
    count = len(paths) * len(names) * len(windows)
    console.print(_preset_table(track(rows, "replaying", count, console=console, transient=True)))


def _preset_table(rows: Iterable[Row]) -> Table:
    table = Table(
        title="Input cost in millions of uncached input tokens, at three cache-read prices",
        caption="names: of those the agent's messages take from before them, how many stood in what was sent; "
        "too long: transcripts with a prompt over the window (where system and unanswered messages alone were not)",
    )
    table.add_column("window")
    table.add_column("preset")
    prices = [f"cost at {price:g}" for price in CACHE_READ_PRICES]
    for name in ("calls", "compactions", "sent", "invalidated", *prices, "names", "too long", "invalid", "lost"):
        table.add_column(name, justify="right")
    for total in totals(rows):
        over, avoidable = total.exceeded_transcripts
        table.add_row(
            f"{total.window_tokens:,}",
            total.preset,
            *(f"{total.sum(name):,}" for name in ("calls", "compactions", "sent_tokens", "invalidated_tokens")),
            *(f"{cost / 1e6:.2f}" for cost in total.costs),
            f"{total.sum('met') / max(1, total.sum('needed')):.1%}",
            f"{over} ({avoidable})",
            *(f"{total.sum(name)}" for name in ("violations", "unrestorable")),
        )
    return table


def _rounds(console: Console, given: argparse.Namespace) -> None:
    table = Table(title="Lines of the earliest turns that stand after each compaction; history and sent in tokens")
    for name in ("transcript", "round", "history", "sent", "user's words", "failures"):
        table.add_column(name, justify="left" if name == "transcript" else "right")
    paths = _transcripts(given.folder)[::-1][: given.longest]
    for path in track(paths, "compacting", console=console, transient=True):
        transcript = read_transcript(path)
        for number, after in enumerate(compact_in_rounds(transcript.messages, transcript.task), 1):
            kept = ("{}/{}".format(*pair) for pair in (after.constraints, after.failures))
            name = path.stem[-NAME_CHARACTERS:] if number == 1 else ""
            table.add_row(name, str(number), f"{after.history_tokens:,}", f"{after.sent_tokens:,}", *kept)
    console.print(table)


def _steady(console: Console) -> None:
    table = Table(title="prepare with two new messages and nothing to do, median")
    for name in ("messages", "tokens", "ms, same objects", "ms, all messages made anew"):
        table.add_column(name, justify="right")
    for found in steady_state():
        times = f"{found.milliseconds:.2f}", f"{found.copied_milliseconds:.2f}"
        table.add_row(f"{found.messages:,}", f"{found.tokens:,}", *times)
    console.print(table)


if __name__ == "__main__":
    main()
