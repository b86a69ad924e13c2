"""The real Claude Code with the mod, for hundreds of rounds on the test server, beside its built-in compaction alone.

Both compact amid the work, by a window that is told small, and once on command; the server scripts agent, planner and
the client's own summary. Needs no account: ``npm install @anthropic-ai/claude-code``, then ``python -m tests.bench mod
--client node_modules/.bin/claude``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from applier.testing import CACHE_READ_PRICES, MessagesServer, PromptUsage
from tests.mod.client import BUILT_IN, BY_CARDS, FORKED, Model, install_mod, opened, refused

__all__ = ["ModRun", "add_command", "run_client"]

PROMPTS = ("Build the modules and never delete a file", "Go on with the modules", "And the rest of them")
COMMAND = "/compact keep what the tests say"
WINDOW_TOKENS, PERCENT = 100_000, 50
"""Smallest window of the client, and the share at which it compacts."""


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
    """Messages of the mod to the person."""


def run_client(client: str, rounds: int, *, with_mod: bool) -> ModRun:
    """Let `client` work for `rounds` rounds, with a compaction on command after each third."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "work").mkdir()
        model = Model(rounds // len(PROMPTS), folder / "work", output=900)
        plugin = install_mod(folder) if with_mod else None
        env = {
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(WINDOW_TOKENS),
            "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": str(PERCENT),
        }
        started = time.monotonic()
        with MessagesServer(model, window_tokens=10 * WINDOW_TOKENS) as server:
            with opened(folder, server, plugin, client=client, seconds=1_800, **env) as process:
                for prompt in PROMPTS:
                    process.type(prompt)
                    process.type(COMMAND)
            return ModRun(
                time.monotonic() - started,
                model.number,
                max(exchange.usage.prompt_tokens for exchange in server.exchanges),
                Counter(str(one["trigger"]) for one in process.compactions),
                Counter({name: model.asked[kind] for name, kind in KINDS.items()}),
                tuple(refused(server)),
                server.bill,
                tuple(process.log),
            )


KINDS = {"behind the transcript": FORKED, "by cards": BY_CARDS, "for the client's own summary": BUILT_IN}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``mod``."""
    mod = commands.add_parser("mod", help="the mod in the real Claude Code, beside its own compaction")
    mod.add_argument("--client", default="claude", help="the program")
    mod.add_argument("--rounds", type=int, default=200)
    mod.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    for name, with_mod in (("with the mod", True), ("built-in alone", False)):
        run = run_client(options.client, options.rounds, with_mod=with_mod)
        costs = ", ".join(f"{run.bill.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
        lines = (
            f"{name}: {run.rounds} rounds in {run.seconds:.0f} s; largest prompt {run.largest_prompt:,}",
            f"compactions {dict(run.compactions)}; asked {dict(run.asked)}",
            f"violations {dict(Counter(run.violations))}",
            f"{run.bill}",
            f"input in uncached tokens, by the price of a cache read: {costs}",
            *run.log,
            "",
        )
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
