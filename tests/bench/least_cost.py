"""The least cost of compactions with knowledge of the whole session, beside the cost of presets.

New results are sent whole, and each compaction leaves a share of the history; every choice of moments is weighed, with
the left part rewritten each time, and once. A preset that costs more can be improved by its triggers; one that costs
less leaves less, or shortens new content. Plans nothing and calls no model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import read_transcript
from applier.session.pressure import prompt_limit_tokens
from planner.prices import CACHE_READ_PRICES, WRITE_5_MINUTES
from planner.reading.messages import plain_message
from planner.reading.tokens import TokenCounter
from tests.bench.preset_costs import measure_presets, preset_totals

WINDOW_TOKENS, OUTPUT_TOKENS = 200_000, 20_000


@dataclass(frozen=True)
class Arrivals:
    """New tokens at each call of a session, and the tokens before all messages."""

    new: tuple[int, ...]
    fixed: int = 0


def arrivals(path: Path) -> Arrivals:
    """Return the arrivals of the transcript at `path`."""
    transcript, counter = read_transcript(path), TokenCounter.for_model()
    new, tokens = list[int](), 0
    for at, message in enumerate(map(plain_message, transcript.messages)):
        if at and message["role"] == "assistant":
            new.append(tokens)
            tokens = 0
        tokens += counter.message(message)
    return Arrivals(tuple(new), counter.request((), transcript.system))


def least_cost(of: Arrivals, read_price: float, kept_share: float, room_tokens: int, *, appends: bool = False) -> float:
    """Return the input cost of the whole session with the best moments, in units of one uncached input token.

    A compaction before a call leaves `kept_share` of the history so far, and at most of `room_tokens`; the new messages
    of the call follow whole. With `appends`, the left part stays and is read; otherwise it is rewritten.
    """
    calls = len(of.new)
    history = [0]
    for tokens in of.new:
        history.append(history[-1] + tokens)
    kept = [kept_share * min(tokens, room_tokens) for tokens in history]
    rest = [0.0] * (calls + 1)
    """Least cost from a call on, if a compaction comes before it."""
    for first in reversed(range(calls)):
        prompt = kept[first] + of.new[first]
        cost = (read_price if first else WRITE_5_MINUTES) * of.fixed + WRITE_5_MINUTES * of.new[first]
        rest[first] = math.inf
        for call in range(first + 1, calls):
            same = kept[first] if appends else 0
            switch = WRITE_5_MINUTES * (kept[call] - same) + read_price * same
            rest[first] = min(rest[first], cost + switch + rest[call])
            cost += read_price * (of.fixed + prompt) + WRITE_5_MINUTES * of.new[call]
            prompt += of.new[call]
            if prompt > room_tokens:
                break
        else:
            rest[first] = min(rest[first], cost)
    return rest[0]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``least``."""
    least = commands.add_parser("least", help="the cheapest moments for compactions, known beforehand, beside presets")
    least.add_argument("places", nargs="+", type=Path)
    least.add_argument("--kept", action="append", type=float, help="share of the history that a compaction leaves")
    least.add_argument("--preset", action="append", default=[])
    least.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    paths = [path for place in options.places for path in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
    sessions, room = [arrivals(path) for path in paths], prompt_limit_tokens(WINDOW_TOKENS, OUTPUT_TOKENS)
    table = Table(f"{len(paths)} transcripts", *(f"at {price:g}" for price in CACHE_READ_PRICES), "names", box=None)
    for kept in options.kept or (0.2, 0.15, 0.1, 0.05, 0.0):
        for appends in (False, True):
            least = partial(least_cost, kept_share=kept, room_tokens=room, appends=appends)
            costs = [sum(least(one, price) for one in sessions) for price in CACHE_READ_PRICES]
            table.add_row(f"moments known, {kept:.0%} kept{', written once' * appends}", *_millions(costs), "")
    rows = measure_presets(paths, options.preset, [WINDOW_TOKENS], processes=2) if options.preset else ()
    for total in preset_totals(rows):
        names = total.sum("met") / max(1, total.sum("needed"))
        table.add_row(total.preset, *_millions(total.costs), f"{names:.3f}")
    console.print(table)


def _millions(costs: Sequence[float]) -> list[str]:
    return [f"{cost / 1e6:.2f}" for cost in costs]
