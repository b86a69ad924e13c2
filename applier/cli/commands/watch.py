"""`compactor watch`: replays a transcript through a session and shows each compaction."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, get_args

import click

from applier.cli.files import read_file
from applier.cli.options import as_json, import_extra, part, transcript
from applier.cli.screen import echo, print_json, print_table, progress, screen, show_page
from applier.eval.replay import Replay, replay
from applier.session.events import Event
from applier.session.presets import PRESETS, preset_named
from applier.settings import load_settings
from applier.store.opening import open_store
from planner.errors import TranscriptError
from planner.prices import CACHE_READ_PRICES, WRITE_5_MINUTES, cached_prompt, dollars, money, switch_money
from planner.settings import PlannerName

__all__ = ["curve_lines", "watch_command"]

HEIGHT = 8
"""Lines of the curve."""
BLOCKS = " ▁▂▃▄▅▆▇█"
CALL_FIELDS = ("history_tokens", "sent_tokens", "cached_tokens", "invalidated_tokens", "level")


@click.command
@transcript
@click.option(
    "--preset",
    "presets",
    type=click.Choice([*PRESETS, "all"]),
    multiple=True,
    help="Preset; several, or `all`, are compared (default: $COMPACTOR_PRESET, the project's, or relevance).",
)
@click.option(
    "--window",
    type=click.IntRange(2_000),
    help="Window in tokens (default: $COMPACTOR_WINDOW_TOKENS, the project's, or 200,000).",
)
@click.option("--task", help="Task of the agent (default: the transcript's own).")
@click.option("--model", default="", help="Model of the agent; decides counts, thinking and prices.")
@click.option("--planner", type=click.Choice(get_args(PlannerName)), default="rules", show_default=True)
@part
@as_json
@click.option(
    "--web",
    is_flag=True,
    help="Show it in a browser on this machine: prompt sizes, compactions, restored content and cost.",
)
def watch_command(
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

    Shows the size of each prompt and each compaction. No agent model is called, and nothing is stored.
    """
    if web and as_json:
        raise click.UsageError("--json and --web exclude each other: use one.")
    read = read_file(transcript, part)
    if not any(message["role"] == "assistant" for message in read.messages[1:]):
        raise TranscriptError(f"{transcript}: contains no answer of an agent, so there is no call to replay")
    task = task or read.task
    settings = load_settings(background=False, window_tokens=window)
    names = tuple(PRESETS) if "all" in presets else presets or (preset_named(settings.preset).name,)
    how = {"task": task, "model": model, "planner": planner, "system": read.system, "settings": settings}
    runs = []
    with progress("replaying", len(names)) as done:
        for name in names:
            with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
                runs.append(replay(read.messages, name, settings.window_tokens, store=store, **how))
            done()
    data = [_data(run, model) for run in runs]
    if web:
        show_page(import_extra("applier.web", "web").PageServer({"task": task, "runs": data}))
    elif as_json:
        print_json(data)
    elif len(runs) == 1:
        _print_one(runs[0], model)
    else:
        _print_comparison(runs, model)


def _print_one(run: Replay, model: str) -> None:
    sent = [call.sent_tokens for call in run.calls]
    top = max([call.limit_tokens for call in run.calls[-1:]] + sent, default=1)
    for index, line in enumerate(curve_lines(sent, screen().width - 10, HEIGHT, top)):
        echo(f"{top * (HEIGHT - index) // HEIGHT:>9,} {line}")
    echo(f"tokens sent in each of {len(sent)} calls; limit of a prompt: {top:,}\n")
    numbers = ("before", "after", "from", "invalidated")
    titles = ("call", "tier", "why", *numbers, "")
    print_table(titles, starmap(_cells, _compactions(run)), right=("call", *numbers), empty="no compaction")
    echo("")
    for line in _totals(run, model):
        screen().print(line)


def curve_lines(values: Sequence[int], width: int, height: int, top: int) -> list[str]:
    """Return `values` as `height` lines of block characters in at most `width` columns, with `top` at the upper edge.

    A column for several values shows the highest.
    """
    count = min(len(values), width)
    edges = [index * len(values) // count for index in range(count + 1)] if count else [0]
    columns = [max(values[first:last]) for first, last in pairwise(edges)]
    eighths = [min(height * 8, round(value / max(1, top) * height * 8)) for value in columns]
    return [
        "".join(BLOCKS[max(0, min(8, level - 8 * row))] for level in eighths).rstrip()
        for row in reversed(range(height))
    ]


def _cells(number: int, event: Event) -> Sequence[str]:
    counts = (event.tokens_before, event.tokens_after, event.first_changed_message, event.invalidated_tokens)
    cells = ("" if n is None else f"{n:,}" for n in counts)
    return str(number), event.tier, event.trigger, *cells, switch_money(event.dollars)


def _compactions(run: Replay) -> Iterator[tuple[int, Event]]:
    """Yield each compaction with the number of its call, from 1."""
    for number, call in enumerate(run.calls, 1):
        yield from ((number, event) for event in call.events if event in run.compactions)


def _totals(run: Replay, model: str) -> Iterator[str]:
    history = sum(call.history_tokens for call in run.calls)
    bill, without = (money(amount) for amount in _dollars(run, model))
    yield (
        f"{run.preset}: {len(run.compactions)} compactions, {run.sent_tokens:,} tokens sent "
        f"({history:,} without), {run.invalidated_tokens:,} cached tokens invalidated, peak {run.peak_tokens:,}"
    )
    prices = ", ".join(f"{run.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
    yield f"input cost in uncached tokens, by the price of a cache read: {prices}"
    if bill:
        yield f"input with {model}: {bill}, {without} without compaction"
    yield f"{len(run.violations)} invalid lists, {run.exceeded} over the window, {len(run.unrestorable)} unrestorable"
    yield from run.violations
    yield from run.unrestorable


def _print_comparison(runs: Sequence[Replay], model: str) -> None:
    costs = [f"at {price:g}" for price in CACHE_READ_PRICES]
    bill = "input" if _dollars(runs[0], model)[0] else ""
    titles = ("times", "sent", "invalidated", "peak", *costs, "over", "invalid", "lost", bill)
    print_table(("preset", *titles), (_row(run, model) for run in runs), right=titles)
    echo("tokens and costs in thousands")


def _row(run: Replay, model: str) -> Iterator[str]:
    yield from (run.preset, str(len(run.compactions)))
    tokens = (run.sent_tokens, run.invalidated_tokens, run.peak_tokens, *map(run.cost, CACHE_READ_PRICES))
    yield from (f"{number / 1000:,.0f}" for number in tokens)
    yield from map(str, (run.exceeded, len(run.violations), len(run.unrestorable)))
    yield money(_dollars(run, model)[0])


def _data(run: Replay, model: str) -> dict[str, Any]:
    """Return `run` as JSON data; costs are in uncached tokens, by the price of a cache read."""
    bill, without = _dollars(run, model)
    return {
        "preset": run.preset,
        "window_tokens": run.window_tokens,
        "limit_tokens": run.calls[-1].limit_tokens if run.calls else run.window_tokens,
        "calls": [{name: getattr(call, name) for name in CALL_FIELDS} for call in run.calls],
        "compactions": [
            {"call": at, **event.as_json(), "money": switch_money(event.dollars)} for at, event in _compactions(run)
        ],
        "cost": {str(price): run.cost(price) for price in CACHE_READ_PRICES},
        "cost_without": {
            str(price): sum(price * before + WRITE_5_MINUTES * new for before, new in _growth(run))
            for price in CACHE_READ_PRICES
        },
        "dollars": bill,
        "dollars_without": without,
        "money": [money(bill), money(without)],
        "violations": run.violations,
        "exceeded": run.exceeded,
        "unrestorable": list(run.unrestorable),
    }


def _growth(run: Replay) -> Iterator[tuple[int, int]]:
    """Yield the cached and the new tokens of each prompt without compaction."""
    return (
        (before, max(0, now - before)) for before, now in pairwise([0, *(call.history_tokens for call in run.calls)])
    )


def _dollars(run: Replay, model: str) -> tuple[float | None, float | None]:
    """Return the dollars for the input of all calls with `model`, as sent and without compaction; None if unknown."""
    sent = (cached_prompt(call.cached_tokens, call.sent_tokens - call.cached_tokens) for call in run.calls)
    without = (cached_prompt(*grown) for grown in _growth(run))
    return dollars(model, *sent), dollars(model, *without)
