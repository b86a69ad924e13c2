"""``python -m tests.bench clients``: what works in each coding client that is installed here, by trying it.

Each client runs in a clean home of its own on a scripted model on loopback, with a dummy key, and really runs its
tools. A cell says "works", "not possible" with the reason, or "FAILS" with what happened. ``--older DIR`` tries the
clients of another folder of programs, too: they must start and answer, and compact by themselves if not with us.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import read_transcript
from applier.processes import program, program_file
from applier.testing import Request, say, use
from tests.mod.client import ANSWER, BY_CARDS, FORKED
from tests.mod.client import opened as claude_opened
from tests.openai_server import OpenAIServer

PROMPT = "Count in steps, and never delete a file"
ROUNDS, LINES, WINDOW, SECONDS = 24, 700, 60_000, 240
SHELLS = ("Bash", "bash", "run_shell_command")
COLUMNS = ("install", "wrap or proxy", "log read", "log resumed", "restore by the agent")
ONLY_LOGS = "not possible: `resume` writes logs of Claude Code and Codex"
TOO_OLD = ("is too old", "compacts by itself")
"""Parts of the line by which a plugin reports that its client lacks what it needs."""
IS_TOO_OLD = "not possible: too old; it compacts by itself, and a line says so"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "COPILOT_OFFLINE": "true",
    "COMPACTOR_PLANNER": "rules",
}


class Counter:
    """A scripted model that counts by the client's shell and, once it has a view, restores a turn of it."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self.rounds, self.number = rounds, 0
        self.view, self.restored, self.asks_to_restore = "", "", False

    def __call__(self, request: Request) -> str | list[dict[str, Any]]:
        raw = request.raw.decode()
        is_codex = "input" in request.body
        if any(question in raw for question in (FORKED, BY_CARDS)):
            return ANSWER
        if not (is_codex or request.tools):
            return "## Goal\nCounting in steps."
        if self.asks_to_restore and not self.restored:
            self.restored = json.dumps(request.body["input"] if is_codex else request.messages)[-6_000:]
        if not self.view and "<compacted history=" in raw:
            self.view, self.asks_to_restore = raw, True
            if call := _restore(request, is_codex):
                return [call]
        self.number += 1
        if self.number % self.rounds == 0:
            return "All steps are done."
        return [say(f"Step {self.number}."), _count(request, is_codex, self.number)]

    @property
    def answer_to_restore(self) -> str:
        """What the agent got, in one line of the table."""
        if not self.view:
            return "FAILS: nothing was compacted"
        return "works" if re.search(r"\bt\d+ lines 1 to 3 of", self.restored) else f"FAILS: {self.restored[-160:]}"


def _count(request: Request, is_codex: bool, number: int) -> dict[str, Any]:
    command = f"seq {number}000 {number * 1000 + LINES}"
    if is_codex:
        return use("exec", custom=f"text(await tools.exec_command({json.dumps({'cmd': command})}))")
    name = next(tool["name"] for tool in request.tools if tool["name"] in SHELLS)
    return use(name, command=command, description="Count")


def _restore(request: Request, is_codex: bool) -> dict[str, Any] | None:
    if is_codex:
        return use("exec", custom="text(await tools.mcp__compactor__restore_context({reference: 't3', last_line: 3}))")
    names = [tool["name"] for tool in request.tools if tool["name"].endswith("restore_context")]
    return use(names[0], reference="t3", last_line=3) if names else None


@dataclass
class Trial:
    """One client in a home of its own."""

    name: str
    title: str
    folder: Path
    path: str
    cells: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The person's home."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """The project's folder."""
        return self.folder / "work"

    def environment(self, **more: str) -> dict[str, str]:
        """What the client inherits."""
        own = {"HOME": str(self.home), "PATH": self.path, "COMPACTOR_STORE": str(self.folder / "store.db")}
        return {**own, **QUIET, **more}

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project's folder to its end."""
        return subprocess.run(
            [*map(str, command)], cwd=self.work, env=self.environment(**more), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def compactor(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run our command."""
        return self.run(*program(*words), **more)

    def version(self) -> str:
        """What the client prints for its version."""
        printed = self.run(self.name, "--version").stdout
        return next(iter(re.findall(r"\d+\.\d+\.\d+", printed)), "?")

    @contextmanager
    def upstream(self, model: Counter) -> Iterator[OpenAIServer]:
        """The provider, which answers by `model`."""
        with OpenAIServer(model, window_tokens=10_000_000) as server:
            yield server

    def note(self, column: str, problem: str) -> None:
        """Write a cell: "works" without a problem, else its end; a client that is too old must say so and compact by
        itself."""
        if all(words in problem for words in TOO_OLD):
            problem = IS_TOO_OLD
        self.cells[column] = (
            problem if problem.startswith("not possible") else f"FAILS: {problem[-300:]}" if problem else "works"
        )

    def restores(self, *models: Counter) -> None:
        """Note whether the agent got a turn back in each run; a client that is too old may have no tool for it."""
        answers = (model.answer_to_restore for model in models)
        problem = next((answer for answer in answers if answer != "works"), "works")
        is_too_old = problem != "works" and self.cells["install"] == IS_TOO_OLD
        self.cells["restore by the agent"] = IS_TOO_OLD if is_too_old else problem

    def wrapped(self, *client: str, upstream: tuple[str, ...] = (), **more: str) -> Counter:
        """Run the client under `compactor wrap`, and note whether its prompts were compacted."""
        model = Counter()
        with self.upstream(model) as server:
            more = {name: value.replace("UPSTREAM", server.url) for name, value in more.items()}
            options = [word.replace("UPSTREAM", server.url) for word in upstream]
            done = self.compactor("wrap", "--window", str(WINDOW), "--planner", "rules", *options, *client, **more)
            problem = "" if model.view and not done.returncode else f"{done.returncode} {done.stderr}"
            self.note("wrap or proxy", problem or "; ".join(map(str, server.violations[:1])))
        return model

    def reads(self, log: Path | None) -> None:
        """Note whether the client's log is read: the person's words alone as the request, and every result."""
        if log is None:
            return self.note("log read", "no log was written")
        read = read_transcript(log)
        blocks = [block for message in read.messages for block in message["content"] if isinstance(block, dict)]
        results = sum(block["type"] == "tool_result" for block in blocks)
        task = read.task.strip().strip('"')  # `opencode run` quotes a prompt of several words
        problem = "" if task == PROMPT else f"the request is read as {read.task[:80]!r}"
        return self.note("log read", problem or ("" if results >= ROUNDS - 1 else f"{results} results of {ROUNDS - 1}"))

    def newest(self, pattern: str) -> Path | None:
        """The newest file of the home."""
        files = [path for path in self.home.glob(pattern) if path.is_file()]
        return max(files, key=lambda path: path.stat().st_mtime, default=None)

    def resumes(self, log: Path | None, go_on: Callable[[str, str], list[str]], **more: str) -> None:
        """Note whether the client goes on with our view of its log; `go_on` is its command, by session and address."""
        model = Counter(1)
        told = self.compactor("resume", str(log), "--in-client", "--target-ratio", "0.3", "--json")
        if told.returncode:
            return self.note("log resumed", told.stderr)
        with self.upstream(model) as server:
            more = {name: value.replace("UPSTREAM", server.url) for name, value in more.items()}
            done = self.run(*go_on(json.loads(told.stdout)["session_id"], server.url), **more)
            sent = server.exchanges[-1].request.raw.decode() if server.exchanges else ""
        is_ours = "<compacted history=" in sent and PROMPT in sent and "And now?" in sent
        return self.note("log resumed", "" if is_ours else f"{done.returncode} {done.stderr}")


def claude_code(trial: Trial) -> None:
    """The mod is installed, and stays so under wrap, where its tools answer for the proxy's view."""
    trial.compactor("install", "claude-code", "--yes")
    status = trial.compactor("status", "claude-code")
    model = Counter()
    with trial.upstream(model) as server:
        more = {"PATH": trial.path, "COMPACTOR_STORE": str(trial.folder / "store.db")}
        with claude_opened(trial.folder, server, None, **more) as client:
            client.type(PROMPT)
            client.type("/compact")
            client.type("Go on")
        ours = [line for line in client.log if line.startswith("Compacted")]
    trial.note("install", "" if ours and not status.returncode else f"{client.log[-1:]} {status.stdout}")
    key = {"ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": "UPSTREAM"}
    command = ("claude", "-p", PROMPT, "--allowedTools", "Bash,mcp__compactor__restore_context")
    trial.restores(model, trial.wrapped(*command, **key))
    log = trial.newest(".claude/projects/*/*.jsonl")
    trial.reads(log)
    trial.resumes(log, lambda session, _: ["claude", "-p", "--resume", session, "And now?"], **key)


def codex(trial: Trial) -> None:
    """The plugin's page stands beside Codex' own summary; under wrap the view takes its place."""
    key, rest, installed = {"CODEX_API_KEY": "sk-none"}, ("--skip-git-repo-check",), Counter()
    trial.compactor("install", "codex", "--yes")
    status = trial.compactor("status", "codex")
    with trial.upstream(installed) as server:
        options = ("-c", f'openai_base_url="{server.url}/v1"', "-c", f"model_auto_compact_token_limit={WINDOW}")
        trial.run("codex", "exec", *options, *rest, "--dangerously-bypass-hook-trust", PROMPT, **key)
    problem = installed.answer_to_restore.removeprefix("FAILS: ")
    trial.note("install", status.stdout if status.returncode else problem.removeprefix("works"))
    trial.compactor("uninstall", "codex", "--yes")
    model = trial.wrapped("codex", "exec", *rest, PROMPT, upstream=("--openai-upstream", "UPSTREAM"), **key)
    trial.restores(model)
    log = trial.newest(".codex/sessions/**/rollout-*.jsonl")
    trial.reads(log)

    def go_on(session: str, url: str) -> list[str]:
        return ["codex", "exec", "-c", f'openai_base_url="{url}/v1"', *rest, "resume", session, "And now?"]

    trial.resumes(log, go_on, **key)


def opencode(trial: Trial) -> None:
    """The plugin owns the compaction; under wrap the proxy does."""
    trial.compactor("install", "opencode", "--yes")
    status = trial.compactor("status", "opencode")
    config = trial.home / ".config/opencode/opencode.json"
    model = {"name": "a model", "tool_call": True, "limit": {"context": 48_000, "output": 4_000}}
    settings = {"permission": "allow", "provider": {"anthropic": {"models": {"claude-sonnet-5-5": model}}}}
    config.write_text(json.dumps(settings))
    command = ("opencode", "run", "-m", "anthropic/claude-sonnet-5-5")
    counter = Counter()
    with trial.upstream(counter) as server:
        key = {"ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": f"{server.url}/v1"}
        done = trial.run(*command, PROMPT, **key)
    is_compacted = "Compacted: " in done.stderr and not status.returncode
    trial.note("install", "" if is_compacted else done.stderr + status.stdout)
    trial.restores(counter)
    trial.compactor("uninstall", "opencode", "--yes")
    config.write_text(config.read_text().replace("48000", "400000"))
    trial.wrapped(*command, PROMPT, ANTHROPIC_API_KEY="sk-ant-none", ANTHROPIC_BASE_URL="UPSTREAM")
    session = re.search(r"ses_\w+", trial.run("opencode", "session", "list").stdout)
    log = trial.folder / "session.json"
    trial.run("sh", "-c", f"opencode export {session[0] if session else ''} > {log}")  # into a pipe it breaks off
    trial.reads(log)
    trial.note("log resumed", f"{ONLY_LOGS}; /compact in OpenCode itself")


def pi(trial: Trial) -> None:
    """The extension makes the summary; the proxy serves Pi by the address in models.json."""
    trial.compactor("install", "pi", "--yes")
    status = trial.compactor("status", "pi")
    model, counter = {"id": "claude-sonnet-5-5", "maxTokens": 4_000, "contextWindow": 40_000}, Counter()

    def at(url: str, **more: int) -> None:
        provider = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "none", "models": [{**model, **more}]}
        (trial.home / ".pi/agent/models.json").write_text(json.dumps({"providers": {"loop": provider}}))

    command = ("pi", "-p", "--offline", "--model", "loop/claude-sonnet-5-5", PROMPT)
    with trial.upstream(counter) as server:
        at(server.url)
        done = trial.run(*command)
    trial.note("install", "" if "Compacted: " in done.stderr and not status.returncode else done.stderr)
    trial.compactor("uninstall", "pi", "--yes")
    proxied = Counter()
    with trial.upstream(proxied) as server:
        options = ("--port", "0", "--window", str(WINDOW), "--planner", "rules", "--upstream", server.url)
        with subprocess.Popen(
            program("proxy", *options), cwd=trial.work, env=trial.environment(), stderr=subprocess.PIPE, text=True
        ) as proxy:
            assert proxy.stderr is not None
            first_line = proxy.stderr.readline().strip()
            at(first_line.partition("=")[2] or server.url, contextWindow=400_000)
            done = trial.run(*command)
            proxy.terminate()
    trial.note("wrap or proxy", "" if proxied.view and not done.returncode else f"{first_line} {done.stderr}")
    trial.restores(counter)
    trial.reads(trial.newest(".pi/agent/sessions/**/*.jsonl"))
    trial.note("log resumed", f"{ONLY_LOGS}; /compact in Pi itself")


def copilot(trial: Trial) -> None:
    """With a provider and key of the person's own; a GitHub login has no address to change."""
    trial.note("install", "not possible: no hook of Copilot replaces its summary; use wrap")
    server = json.loads(trial.compactor("mcp", "--config").stdout)
    entry = {"type": "local", "command": server["command"], "args": server["args"], "tools": ["*"]}
    settings = trial.home / ".copilot/mcp-config.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mcpServers": {"compactor": entry}}))
    own = {"COPILOT_PROVIDER_TYPE": "anthropic", "COPILOT_PROVIDER_API_KEY": "sk-ant-none"}
    own |= {"COPILOT_MODEL": "claude-sonnet-5-5", "COPILOT_PROVIDER_BASE_URL": "UPSTREAM"}
    trial.restores(trial.wrapped("copilot", "--allow-all-tools", "-p", PROMPT, **own))
    trial.reads(trial.newest(".copilot/session-state/*/events.jsonl"))
    trial.note("log resumed", ONLY_LOGS)


class _Gemini(BaseHTTPRequestHandler):
    """Google's API as far as Gemini CLI needs it to count."""

    number = 0

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer with the next call, and at last with a text."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _Gemini.number += bool(asked.get("tools"))
        command = f"seq {_Gemini.number}000 {_Gemini.number * 1000 + LINES}"
        call = {"functionCall": {"name": "run_shell_command", "args": {"command": command, "description": "Count"}}}
        part = call if asked.get("tools") and _Gemini.number % ROUNDS else {"text": "All steps are done."}
        answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}
        answer["usageMetadata"] = {"promptTokenCount": 1_000, "candidatesTokenCount": 10, "totalTokenCount": 1_010}
        streams = "stream" in self.path
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.end_headers()
        text = json.dumps(answer)
        self.wfile.write((f"data: {text}\r\n\r\n" if streams else text).encode())


def gemini(trial: Trial) -> None:
    """Gemini CLI speaks an API that the proxy does not serve, and its hooks cannot replace its summary."""
    trial.note("install", "not possible: its PreCompress hook cannot replace the summary")
    trial.note("wrap or proxy", "not possible: it speaks generateContent, which the proxy does not serve")
    trial.note("log resumed", ONLY_LOGS)
    trial.note("restore by the agent", "not possible: nothing is compacted")
    settings = trial.home / ".gemini/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Gemini) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        own = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        trial.run("gemini", "-y", "--skip-trust", "-m", "gemini-4-neon", "-p", PROMPT, **own)
        server.shutdown()
    trial.reads(trial.newest(".gemini/tmp/*/chats/*"))


CLIENTS: dict[str, tuple[str, Callable[[Trial], None]]] = {
    "claude": ("Claude Code", claude_code),
    "codex": ("Codex", codex),
    "opencode": ("OpenCode", opencode),
    "pi": ("Pi", pi),
    "copilot": ("Copilot CLI", copilot),
    "gemini": ("Gemini CLI", gemini),
}


def _tried(name: str, path: str) -> Trial:
    title, run = CLIENTS[name]
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:  # Codex wants no home in the system's own
        trial = Trial(name, title, Path(folder), path)
        trial.home.mkdir()
        trial.work.mkdir()
        trial.title = f"{title} {trial.version()}"
        try:
            run(trial)
        except Exception as error:  # noqa: BLE001 - one client's trouble is a cell of the table
            trial.cells |= {
                name: f"FAILS: {type(error).__name__}: {error}"[:300] for name in COLUMNS if name not in trial.cells
            }
    return trial


def add_command(commands: Any) -> None:
    """Add ``clients``."""
    parser = commands.add_parser("clients", help="what works in each client that is installed here")
    parser.add_argument("--only", action="append", choices=[*CLIENTS])
    parser.add_argument("--older", action="append", default=[], help="a folder of programs of older clients")
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    table = Table(title="What works in each client")
    for column in ("client", *COLUMNS):
        table.add_column(column, overflow="fold")
    for folder in ("", *options.older):
        path = os.pathsep.join(filter(None, (folder, os.environ["PATH"])))
        for name in options.only or CLIENTS:
            if not (Path(folder, name).exists() if folder else program_file(name)):
                continue
            trial = _tried(name, path)
            table.add_row(trial.title, *(trial.cells.get(column, "FAILS: not tried") for column in COLUMNS))
    console.print(table)
