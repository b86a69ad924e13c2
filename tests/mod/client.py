"""The real Claude Code with the mod, on the test server, with a home of its own; and a model that the server scripts.

Whatever asks as our planner is answered as a planner, whatever asks for the client's own summary by one, and the agent
writes, reads and tests modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from applier.adapters.client_plugin import plugin_files, put_plugin
from applier.processes import program
from applier.testing import Answer, MessagesServer, Request, say, use
from tests.patience import PATIENCE_SECONDS

LOOK_UPS = tuple(f"mcp__compactor__{name}" for name in ("restore_context", "search_context", "facts", "note"))
FORKED, BY_CARDS, BUILT_IN = "your conversation is about to be compacted", "<latest>", "TEXT ONLY"
"""How the questions begin that are not of the agent's work."""
BRIEF = ["REQUEST", "- build the modules (t1)", "STATE", "- modules were written and tested one by one (t2)"]
ANSWER = json.dumps({"brief": BRIEF, "turns": ["t2 summarize 7 | it wrote the first module"]})
SUMMARY = f"<analysis>x</analysis>\n<summary>{'Modules were built and looked at one by one. ' * 120}</summary>"
"""About 1,100 tokens: of real sessions the client's own has 4.5 %."""
BROKEN = {
    "missing": {"argv": ["/nowhere/python"]},
    "killed": {"argv": ["sh", "-c", "kill -9 $$"]},
    "slow": {"argv": ["sleep", "20"], "timeoutMs": 300},
    "garbage": {"argv": ["echo", "all is well"]},
    "refusing": {"argv": ["sh", "-c", "echo 'no such store' >&2; exit 1"]},
    "no program": {},
}
"""What becomes of program.json."""
_QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")


class Model:
    """Works for `rounds` calls after each message of the user, then says that it is done."""

    def __init__(self, rounds: int, folder: Path, *, output: int = 300) -> None:
        self.rounds, self.folder, self.output = rounds, folder, output
        self.number, self.asked = 0, Counter[str]()
        self.looks: list[dict[str, Any]] = []
        """Calls that it makes before all others, once it has a view."""
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Answer | str | list[dict[str, Any]]:
        last = _last_words(request.messages)
        kind = next((kind for kind in (FORKED, BUILT_IN) if kind in last), "")
        kind = kind or (BY_CARDS if not request.tools and BY_CARDS in last else "")
        with self._lock:
            self.asked[kind] += 1
            if kind == FORKED:
                return ANSWER
            if kind:
                return ANSWER if kind == BY_CARDS else SUMMARY
            return self._work(request) if request.tools else "Numbered modules"

    def _work(self, request: Request) -> str | list[dict[str, Any]]:
        if self.looks and "<compacted history=" in json.dumps(request.messages[0]):
            look = self.looks.pop(0)
            return [use(look.pop("name"), **look)]
        self.number += 1
        if self.number % (self.rounds + 1) == 0:
            return "All modules are done."
        n, step = divmod(self.number, 3)
        path = str(self.folder / f"module_{n}.py")
        call = (
            use("Write", file_path=path, content=f"LIMIT_{n} = {n}\n" * 40),
            use("Bash", command=f"cat {path}; test {n % 4} -gt 0", description="Look at it"),
            use("Bash", command=f"seq {n} {n + self.output}", description="Count"),
        )[step]
        return [say(f"Module {n}, step {step + 1} of 3."), call]


def _last_words(messages: Sequence[Mapping[str, Any]]) -> str:
    content = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
    return content if isinstance(content, str) else "\n".join(str(block.get("text", "")) for block in content)


@dataclass
class Client:
    """One process of the client that takes what a person types."""

    process: subprocess.Popen[str]
    seconds: float = PATIENCE_SECONDS
    lines: list[dict[str, Any]] = field(default_factory=list)
    """What it has printed."""
    _results: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            said = json.loads(line)
            self.lines.append(said)
            if said.get("type") == "result":
                self._results.release()

    def type(self, text: str) -> None:
        """Type `text` and wait until the client is done with it."""
        assert self.process.stdin is not None
        message = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        assert self._results.acquire(timeout=self.seconds), f"no answer to {text!r}"

    @property
    def log(self) -> list[str]:
        """The lines that the mod showed to the person."""
        return [line["text"] for line in self.lines if line.get("subtype") == "ui_log"]

    @property
    def compactions(self) -> list[dict[str, Any]]:
        """What the client says of each compaction."""
        return [line["compact_metadata"] for line in self.lines if line.get("subtype") == "compact_boundary"]


def install_mod(folder: Path, **more: Any) -> Path:
    """The plugin as an installer would leave it in `folder`; `more` for program.json."""
    place = folder / "compactor"
    environment = {"COMPACTOR_STORE": str(folder / "store.db")}
    put_plugin(plugin_files(program("mod"), environment), place)
    settings = {"argv": program("mod"), "environment": environment, **more}
    (place / "program.json").write_text(json.dumps(settings), "utf-8")
    return place


@contextmanager
def opened(
    folder: Path,
    server: MessagesServer,
    plugin: Path | None,
    *more: str,
    client: str = "claude",
    seconds: float = PATIENCE_SECONDS,
    **env: str,
) -> Iterator[Client]:
    """A client at work in ``folder/work``, with the mod in `plugin`, if any; `more` are words of its command."""
    home, work = folder / "home", folder / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    own = {"HOME": str(home), "ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": server.url}
    tools = ",".join(("Bash", "Read", "Write", *LOOK_UPS))
    command = [client, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    with subprocess.Popen(
        [*command, *(("--plugin-dir", str(plugin)) if plugin else ()), "--allowedTools", tools, *more],
        cwd=work, env={"PATH": os.environ["PATH"], **dict.fromkeys(_QUIET, "1"), **own, **env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            yield Client(process, seconds)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE_SECONDS)


def refused(server: MessagesServer) -> list[str]:
    """What the server calls invalid, but for what it does not know yet: effort per turn, which the client leaves out
    when it is refused."""
    found = map(str, server.violations)
    return [text for text in found if "output_config" not in text and "system messages must have" not in text]
