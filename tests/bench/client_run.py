"""A real coding client at work for hundreds of rounds, behind the proxy and without it, on the test server.

The server scripts the model, the client really runs the tools. Needs no account: ``npm install
@anthropic-ai/claude-code @openai/codex``, then ``python -m tests.bench.client_run --client node_modules/.bin/claude``
or ``…/codex``.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click

from applier.processes import program
from applier.testing import CACHE_READ_PRICES, PromptUsage, Request, say, use
from tests.mod.client import ANSWER as PLAN
from tests.mod.client import BY_CARDS, FORKED
from tests.openai_server import OpenAIServer

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_AUTO_COMPACT": "1",
    "ANTHROPIC_API_KEY": "sk-ant-loopback",
    "CODEX_API_KEY": "sk-loopback",
    "OPENAI_API_KEY": "sk-loopback",
}
"""Settings without account, network and the client's own compaction."""
_PROMPT = "Build the numbered modules one after the other, test each, and never delete a file. Say when you are done."
_WINDOW_WITHOUT = 10_000_000
_MODULE = '''"""Module {n}."""

LIMIT_{n} = {limit}


def handle_{n}(rows):
    """Rows below the limit, doubled."""
    return [row * 2 for row in rows if row < LIMIT_{n}]
'''


class _Developer:
    """Scripted model: writes a module, reads it, tests it, repairs it, tests again, looks around."""

    def __init__(self, rounds: int, folder: Path) -> None:
        self.rounds, self.folder, self.done = rounds, folder, 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> str | list[dict[str, object]]:
        is_codex = "input" in request.body
        if any(asks in request.raw.decode() for asks in (FORKED, BY_CARDS)):
            return PLAN
        if not (is_codex or request.tools):
            return "Numbered modules"
        with self._lock:
            self.done += 1
            number = self.done
        if number > self.rounds:
            return "All modules are done."
        n, step = divmod(number - 1, 6)
        call = self._call(n, step)
        return [say(f"Module {n}, step {step + 1} of 6."), _in_codex(call) if is_codex else call]

    def _call(self, n: int, step: int) -> dict[str, object]:
        path = str(self.folder / f"module_{n}.py")
        largest = 2 * (n + 9) if n % 5 else 0  # every fifth test fails at first
        check = f"python3 -c 'import module_{n} as m; r = m.handle_{n}(range(2000)); assert r[-1] == {largest}, r'"
        return (
            use("Write", file_path=path, content=_MODULE.format(n=n, limit=n + 10)),
            use("Read", file_path=path),
            use("Bash", command=check, description="Test the module"),
            use("Edit", file_path=path, old_string=f"LIMIT_{n} = {n + 10}", new_string=f"LIMIT_{n} = {n + 11}"),
            use("Bash", command=check.replace(f"== {largest}", "> 0"), description="Test it again"),
            use("Bash", command="for i in $(seq 60); do echo \"$i $(ls | wc -l) modules, "
                f"case $i of module {n} ok\"; done", description="Look around"),
        )[step]  # fmt: skip


def _in_codex(call: dict[str, object]) -> dict[str, object]:
    """Return `call` in the form of a current Codex: a script that runs a command."""
    given = cast(dict[str, str], call["input"])
    path, text = given.get("file_path", ""), json.dumps(given.get("content", ""))
    command = {
        "Write": f'python3 -c \'open("{path}", "w").write({text})\' && echo written {path}',
        "Read": f"cat {path}",
        "Edit": f"sed -i 's/{given.get('old_string')}/{given.get('new_string')}/' {path} && echo edited {path}",
        "Bash": given.get("command", ""),
    }[str(call["name"])]
    return use("exec", custom=f"text(await tools.exec_command({json.dumps({'cmd': command})}))")


@dataclass(frozen=True)
class ClientRun:
    """Numbers of a run, as the provider saw it."""

    exit_code: int
    seconds: float
    rounds: int
    largest_prompt: int
    violations: tuple[str, ...]
    bill: PromptUsage
    report: str
    """Last output of `compactor wrap`."""
    paths: Counter[str]
    """Requests at the provider by path."""


def run_client(
    client: str,
    rounds: int,
    *,
    window_tokens: int | None,
    asks_at: int | None = None,
    in_words: bool = False,
    planner: str = "rules",
    timeout_seconds: float = 3600.0,
) -> ClientRun:
    """Let `client` work for `rounds` rounds: behind the proxy in a window, or without both (None).

    Codex asks for a compaction itself once its prompt has `asks_at` tokens, by an item, or `in_words` of another
    provider; the provider's window is unbounded then.
    """
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "work")
        folder.mkdir()
        script = _Developer(rounds, folder)
        provider_window = _WINDOW_WITHOUT if asks_at else window_tokens or _WINDOW_WITHOUT
        with OpenAIServer(script, window_tokens=provider_window) as server:
            command = [client, "-p", _PROMPT, "--allowedTools", "Bash,Read,Edit,Write"]
            if Path(client).stem == "codex":
                command = _codex(client, Path(home), server.url, asks_at, window_tokens is None, in_words)
            if window_tokens is not None:
                options = ["--planner", planner, "--window", str(window_tokens)]
                options += [] if in_words else ["--openai-upstream", server.url]
                command = program("wrap", *options, *command)
            started = time.monotonic()
            done = subprocess.run(
                command, cwd=folder, env=_environment(home, server.url), capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=timeout_seconds, check=False,
            )  # fmt: skip
            return ClientRun(
                done.returncode,
                time.monotonic() - started,
                min(script.done, rounds),
                max((exchange.usage.prompt_tokens for exchange in server.exchanges), default=0),
                tuple(map(str, server.violations)),
                server.bill,
                "\n".join(line for line in done.stderr.splitlines() if line.startswith("compactor: ")),
                Counter(f"{method} {path}" for method, path in server.paths),
            )


def _codex(client: str, home: Path, url: str, asks_at: int | None, is_alone: bool, in_words: bool) -> list[str]:
    """Return the command of a Codex that compacts at this size, or never."""
    settings = Path(home, ".codex", "config.toml")
    settings.parent.mkdir()
    if in_words:
        other = f'name = "Other"\nbase_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
        settings.write_text(f'model_provider = "other"\n\n[model_providers.other]\n{other}')
    asks = ["-c", f"model_auto_compact_token_limit={asks_at or 100_000_000}"]
    place = ["-c", f'openai_base_url="{url}/v1"'] if is_alone else []
    return [client, *asks, *place, "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", _PROMPT]


def _environment(home: str, url: str) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {
        **kept,
        **_QUIET,
        "HOME": home,
        "ANTHROPIC_BASE_URL": url,
        "COMPACTOR_STORE": f"{home}/store.db",
        "CODEX_HOME": f"{home}/.codex",
    }


@click.command
@click.option("--client", default="claude", show_default=True, help="The program.")
@click.option("--rounds", default=300, show_default=True)
@click.option("--window", default=60_000, show_default=True)
@click.option("--asks-at", type=int, help="Codex asks for a compaction itself once its prompt has so many tokens.")
@click.option("--in-words", is_flag=True, help="It asks as it does a provider that is not OpenAI.")
@click.option("--planner", default="rules", show_default=True, help="Or auto: the scripted model is asked for plans.")
def _main(client: str, rounds: int, window: int, asks_at: int | None, in_words: bool, planner: str) -> None:
    """Print both runs side by side."""
    for name, tokens, asks in (("with the proxy", window, asks_at), ("without", None, None)):
        run = run_client(client, rounds, window_tokens=tokens, asks_at=asks, in_words=in_words, planner=planner)
        click.echo(f"{name}: exit {run.exit_code}, {run.rounds} rounds in {run.seconds:.0f} s")
        click.echo(f"largest prompt {run.largest_prompt:,}; violations {dict(Counter(run.violations))}")
        costs = ", ".join(f"{run.bill.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
        click.echo(f"{run.bill}\ninput in uncached tokens, by the price of a cache read: {costs}\n{run.report}")


if __name__ == "__main__":
    _main()
