"""`compactor watch`: a transcript turn by turn through a session, each compaction as it would have happened."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import Transcript
from applier.cli.browser import show_page, web_pages
from applier.cli.curve import curve_lines
from applier.cli.files import read_file
from applier.cli.options import as_json, part, transcript
from applier.cli.screen import clean, plain_table, print_json, progress, screen
from applier.eval.replay import Replay, ReplayedCall, replay
from applier.session.presets import PRESETS, preset_named
from applier.settings import SessionSettings, load_settings
from applier.store.opening import open_store
from planner.prices import CACHE_READ_PRICES, WRITE_5_MINUTES

__all__ = ["command"]

HEIGHT = 8
"""Lines of the curve."""


@click.command
@transcript
@click.option(
    "--preset",
    "presets",
    type=click.Choice([*PRESETS, "all"]),
    multiple=True,
    help="Several, or `all`, are compared in a table (default: $COMPACTOR_PRESET, or the project's, or relevance).",
)
@click.option(
    "--window",
    type=click.IntRange(2_000),
    help="In tokens (default: $COMPACTOR_WINDOW_TOKENS, or the project's, or 200,000).",
)
@click.option("--task", help="What the agent works on (default: the transcript's own).")
@click.option("--model", default="", help="The model the agent calls: decides counts, thinking and prices.")
@click.option("--planner", type=click.Choice(["rules", "model", "auto"]), default="rules", show_default=True)
@part
@as_json
@click.option(
    "--web",
    is_flag=True,
    help="Show it in a browser on this machine: the size of each prompt, each compaction, what came back, the bill.",
)
def command(
    transcript: Path,
    presets: tuple[str, ...],
    window: int | None,
    task: str | None,
    model: str,
    planner: Any,
    part: int | None,
    as_json: bool,
    web: bool,
) -> None:
    """Replay a transcript through a session, call by call.

    Shows what would have been sent, and each compaction as it would have happened. No agent model is called, and
    nothing is kept.
    """
    read = read_file(transcript, part)
    settings = load_settings(background=False, window_tokens=window)
    names = tuple(PRESETS) if "all" in presets else presets or (preset_named(settings.preset).name,)
    with progress("replaying", len(names)) as done:
        runs = []
        for name in names:
            runs.append(_run(read, name, settings, task=task or read.task, model=model, planner=planner))
            done()
    if web:
        show_page(web_pages().Report(task or read.task, [_session(run) for run in runs]))
    elif as_json:
        print_json([_json(run) for run in runs])
    elif len(runs) == 1:
        _print_one(screen(), runs[0])
    else:
        screen().print(_comparison(runs))


def _run(read: Transcript, preset: str, settings: SessionSettings, **more: Any) -> Replay:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        window = settings.window_tokens
        return replay(read.messages, preset, window, store=store, system=read.system, settings=settings, **more)


def _print_one(console: Console, run: Replay) -> None:
    sent = [call.sent_tokens for call in run.calls]
    top = max([call.limit_tokens for call in run.calls[-1:]] + sent, default=1)
    for index, line in enumerate(curve_lines(sent, console.width - 10, HEIGHT, top)):
        label = f"{top * (HEIGHT - index) // HEIGHT:>9,}"
        console.print(f"{label} {line}")
    console.print(f"tokens sent in each of {len(sent)} calls; a prompt may have {top:,}\n")
    console.print(_compactions(run) if run.compactions else "no compaction")
    console.print()
    for line in _totals(run):
        console.print(clean(line))


def _compactions(run: Replay) -> Table:
    numbers = ("before", "after", "from", "invalidated")
    table = plain_table("call", "tier", "why", *numbers, right=("call", *numbers))
    for number, call in enumerate(run.calls, 1):
        for event in (event for event in call.events if event in run.compactions):
            counts = (event.tokens_before, event.tokens_after, event.first_changed_message, event.invalidated_tokens)
            before, after, first, invalidated = ("" if n is None else f"{n:,}" for n in counts)
            table.add_row(str(number), event.tier, event.trigger, before, after, first, invalidated)
    return table


def _totals(run: Replay) -> Iterator[str]:
    history = sum(call.history_tokens for call in run.calls)
    yield (
        f"{run.preset}: {len(run.compactions)} compactions, {run.sent_tokens:,} tokens sent "
        f"({history:,} without), {run.invalidated_tokens:,} cached tokens invalidated, peak {run.peak_tokens:,}"
    )
    prices = ", ".join(f"{run.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
    yield f"input cost in uncached tokens, by the price of a cache read: {prices}"
    yield f"{len(run.violations)} invalid lists, {run.exceeded} over the window, {len(run.unrestorable)} unrestorable"
    yield from run.violations
    yield from run.unrestorable


def _comparison(runs: Sequence[Replay]) -> Table:
    """One row a preset; tokens and costs in thousands."""
    costs = [f"at {price:g}" for price in CACHE_READ_PRICES]
    titles = ("times", "sent", "invalidated", "peak", *costs, "over", "invalid", "lost")
    table = plain_table("preset", *titles, right=titles)
    table.caption = "tokens and costs in thousands"
    for run in runs:
        tokens = (run.sent_tokens, run.invalidated_tokens, run.peak_tokens, *map(run.cost, CACHE_READ_PRICES))
        counts = (run.exceeded, len(run.violations), len(run.unrestorable))
        thousands = (f"{number / 1000:,.0f}" for number in tokens)
        table.add_row(run.preset, str(len(run.compactions)), *thousands, *map(str, counts))
    return table


def _json(run: Replay) -> dict[str, Any]:
    return {
        "preset": run.preset,
        "window_tokens": run.window_tokens,
        "calls": [_call(call) for call in run.calls],
        "compactions": [asdict(event) for event in run.compactions],
        "cost": {str(price): run.cost(price) for price in CACHE_READ_PRICES},
        "violations": run.violations,
        "exceeded": run.exceeded,
        "unrestorable": list(run.unrestorable),
    }


def _call(call: ReplayedCall) -> dict[str, Any]:
    return {
        "history_tokens": call.history_tokens,
        "sent_tokens": call.sent_tokens,
        "cached_tokens": call.cached_tokens,
        "level": call.level,
    }


def _session(run: Replay) -> Any:
    """`run` as the page of a session shows it."""
    pages = importlib.import_module("applier.web.report")
    history = [call.history_tokens for call in run.calls]
    happenings = [
        pages.Happening(
            number,
            event.kind,
            event.trigger,
            event.tier,
            event.tokens_before,
            event.tokens_after,
            event.invalidated_tokens,
            event.message,
        )
        for number, call in enumerate(run.calls, 1)
        for event in call.events
        if event in run.compactions or event.kind == "recalled"
    ]
    return pages.SessionRun(
        run.preset,
        run.calls[-1].limit_tokens if run.calls else run.window_tokens,
        [call.sent_tokens for call in run.calls],
        history,
        happenings,
        [pages.Bill(price, run.cost(price), _cost_without(history, price)) for price in CACHE_READ_PRICES],
        [*run.violations, *run.unrestorable],
    )


def _cost_without(history_tokens: Sequence[int], read_price: float) -> float:
    """Input cost of sending the growing history each time: what the call before had is read, what is new is written."""
    pairs = pairwise([0, *history_tokens])
    return sum(read_price * before + WRITE_5_MINUTES * max(0, now - before) for before, now in pairs)
