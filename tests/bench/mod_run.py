"""The real Claude Code for hundreds of rounds on the test server, compacted by the mod, by itself, and by the proxy.

All three compact amid the work, by a window that is set small; the first two also on command. The server scripts agent,
planner and the client's own summary. Needs no account: ``npm install @anthropic-ai/claude-code``, then ``python -m
tests.bench mod --client node_modules/.bin/claude``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console

from applier.processes import program
from applier.testing import CACHE_READ_PRICES, Exchange, MessagesServer, PromptUsage
from tests.mod.client import BUILT_IN, BY_CARDS, FORKED, Model, install_mod, opened, refused

PROMPTS = ("Build the modules and never delete a file", "Go on with the modules", "And the rest of them")
COMMAND = "/compact keep what the tests say"
WINDOW_TOKENS, PERCENT = 100_000, 50
"""Smallest window of the client, and the share at which it compacts."""
SHORTER = 0.85
"""Share of the prompt before, below which something was compacted."""
REPORT = "report.json"


@dataclass(frozen=True)
class ModRun:
    """Numbers of a run, as the provider and the person saw it."""

    seconds: float
    rounds: int
    largest_prompt: int
    compactions: Counter[str]
    """Compactions by their cause."""
    asked: Counter[str]
    """Requests for a plan or a summary, by form."""
    violations: tuple[str, ...]
    bill: PromptUsage
    log: tuple[str, ...]
    """Lines for the person."""
    firsts: tuple[PromptUsage, ...]
    """The agent's first request after each compaction."""
    waited: tuple[float, ...]
    """Seconds for which the agent waited for each compaction."""


By = Literal["the mod", "Claude Code itself", "the proxy"]


def run_client(client: str, rounds: int, by: By) -> ModRun:
    """Let `client` work for `rounds` rounds, compacted by one of three; the first two also compact on command."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "work").mkdir()
        model = Model(rounds // len(PROMPTS), folder / "work", output=900)
        plugin = install_mod(folder) if by == "the mod" else None
        env = {
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(WINDOW_TOKENS),
            "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": str(PERCENT),
        }
        if by == "the proxy":
            client = _behind_proxy(client, folder)
            env = {"DISABLE_AUTO_COMPACT": "1", "COMPACTOR_STORE": str(folder / "store.db")}
        started = time.monotonic()
        with MessagesServer(model, window_tokens=10 * WINDOW_TOKENS) as server:
            with opened(folder, server, plugin, client=client, seconds=1_800, **env) as process:
                for prompt in PROMPTS:
                    process.type(prompt)
                    if by != "the proxy":
                        process.type(COMMAND)
            report = json.loads((folder / REPORT).read_text("utf-8")) if by == "the proxy" else {}
            own = [one.get("duration_ms", 0) / 1_000 for one in process.compactions]
            causes = [str(one["trigger"]) for one in process.compactions]
            return ModRun(
                time.monotonic() - started,
                model.number,
                max(exchange.usage.prompt_tokens for exchange in server.exchanges),
                Counter(causes or {"window": report.get("compactions", 0)}),
                Counter({name: model.asked[kind] for name, kind in KINDS.items()}),
                tuple(refused(server)),
                server.bill,
                tuple(process.log),
                tuple(_firsts(server.exchanges)),
                tuple(report.get("waited_seconds", own)),
            )


def _behind_proxy(client: str, folder: Path) -> str:
    """Return a program that runs `client` under `compactor wrap` and writes the report into `folder`."""
    wrap = program("wrap", "--json", "--window", str(WINDOW_TOKENS * PERCENT // 100), client)
    script = folder / "wrapped"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(wrap)} "$@" 2> {shlex.quote(str(folder / REPORT))}\n', "utf-8")
    script.chmod(0o700)
    return str(script)


def _firsts(exchanges: Sequence[Exchange]) -> Iterator[PromptUsage]:
    """Yield the usage of each of the agent's requests that has a much shorter prompt than the one before it."""
    before = 0
    for exchange in exchanges:
        body = exchange.request.body
        if (
            exchange.status != 200
            or not body.get("tools")
            or any(kind in str(body["messages"][-1]) for kind in KINDS.values())
        ):
            continue
        tokens = exchange.usage.prompt_tokens
        if tokens < SHORTER * before:
            yield exchange.usage
        before = tokens


KINDS = {"behind the transcript": FORKED, "by cards": BY_CARDS, "for the client's own summary": BUILT_IN}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``mod``."""
    mod = commands.add_parser("mod", help="the real Claude Code, compacted by the mod, by itself and by the proxy")
    mod.add_argument("--by", action="append", choices=get_args(By), help="one of the three; all by default")
    mod.add_argument("--log", action="store_true", help="also the lines that the mod shows to the person")
    mod.add_argument("--client", default="claude", help="the program")
    mod.add_argument("--rounds", type=int, default=200)
    mod.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    for by in options.by or get_args(By):
        run = run_client(options.client, options.rounds, by)
        costs = ", ".join(f"{run.bill.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
        firsts = run.firsts or (PromptUsage(),)
        mean = sum(firsts, PromptUsage())
        written, read = (mean.written_5m + mean.written_1h + mean.input_tokens, mean.cache_read_input_tokens)
        lines = (
            f"compacted by {by}: {run.rounds} rounds in {run.seconds:.0f} s; largest prompt {run.largest_prompt:,}",
            f"compactions {dict(run.compactions)}; asked {dict(run.asked)}",
            f"the first request after one: {written // len(firsts):,} tokens written, {read // len(firsts):,} read",
            f"the agent waited {sum(run.waited):.1f} s for them, at most {max(run.waited, default=0):.1f} s",
            f"violations {dict(Counter(run.violations))}",
            f"{run.bill}",
            f"input in uncached tokens, by the price of a cache read: {costs}",
            *(run.log if options.log else ()),
            "",
        )
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
