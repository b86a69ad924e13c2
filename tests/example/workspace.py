"""The example agent's four tools on a folder of its own: commands really run, files are really written.

Answers with what the model is to read. Never touches a file outside its folder, which the model knows as
``/workspace``; what differs from run to run (the folder's real place, durations) reads the same each time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "/workspace"
OUTPUT_CHARACTERS = 30_000


def _tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    required = [key for key in properties if not key.endswith("_")]
    schema = {
        key.rstrip("_"): {"type": "integer" if key.endswith("_") else "string", "description": text}
        for key, text in properties.items()
    }
    return {
        "name": name,
        "description": description,
        "input_schema": {"type": "object", "properties": schema, "required": required},
    }


TOOLS: list[dict[str, Any]] = [
    _tool("bash", "Run a shell command in /workspace and return its output.", command="the command"),
    _tool(
        "read",
        "Read a text file with line numbers.",
        path="the file",
        offset_="first line, from 1",
        limit_="how many lines",
    ),
    _tool("write", "Write a whole text file.", path="the file", content="its new content"),
    _tool(
        "edit",
        "Replace a string that stands exactly once in a file.",
        path="the file",
        old_string="exact text to replace",
        new_string="what to put there",
    ),
]
"""The tool definitions the agent sends."""


class ToolFailed(Exception):  # noqa: N818 - reads as what happened
    """The call could not be done; the text goes to the model as an error result."""


@dataclass(frozen=True)
class Workspace:
    """A folder that the model sees as ``/workspace``."""

    root: Path
    command_seconds: float = 60.0
    """After which a command is stopped."""

    def answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The ``tool_result`` block of one ``tool_use`` block."""
        try:
            text, failed = self._run(call["name"], call["input"]), False
        except ToolFailed as error:
            text, failed = str(error), True
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": text or "(no output)"}
        return {**result, "is_error": True} if failed else result

    def _run(self, name: str, given: Mapping[str, Any]) -> str:
        try:
            if name == "bash":
                return self._bash(given["command"])
            if name == "read":
                return self._read(given["path"], int(given.get("offset", 1)), int(given.get("limit", 2000)))
            if name == "write":
                return self._write(given["path"], given["content"])
            if name == "edit":
                return self._edit(given["path"], given["old_string"], given["new_string"])
        except KeyError as missing:
            raise ToolFailed(f"{name}: missing argument {missing}") from None
        raise ToolFailed(f"no such tool: {name}")

    def _bash(self, command: str) -> str:
        output, code = self._output(command.replace(NAME, str(self.root)))
        text = self._stable(output.decode("utf-8", "replace")).rstrip("\n")
        if len(text) > OUTPUT_CHARACTERS:
            text = text[:OUTPUT_CHARACTERS] + f"\n… ({len(text) - OUTPUT_CHARACTERS} more characters)"
        if code is None:
            raise ToolFailed(f"Stopped after {self.command_seconds:g} seconds\n{text}")
        if code:
            raise ToolFailed(f"Exit code {code}\n{text}")
        return text

    def _output(self, command: str) -> tuple[bytes, int | None]:
        """What `command` prints, and its exit code; None if it had to be stopped, with all it started."""
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.root,
            env=_environment(self.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                return process.communicate(timeout=self.command_seconds)[0], process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return process.communicate()[0], None

    def _read(self, path: str, offset: int, limit: int) -> str:
        lines = self._text(path).splitlines()
        shown = enumerate(lines[offset - 1 : offset - 1 + limit], offset)
        return "\n".join(f"{number:6}\t{line}" for number, line in shown)

    def _write(self, path: str, content: str) -> str:
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        return f"Wrote {content.count(chr(10))} lines to {path}"

    def _edit(self, path: str, old: str, new: str) -> str:
        text = self._text(path)
        if text.count(old) != 1:
            raise ToolFailed(
                f"{path}: old_string stands there {text.count(old)} times, expected exactly once; no change was made"
            )
        self._inside(path).write_text(text.replace(old, new), encoding="utf-8")
        first = text[: text.index(old)].count("\n") + 1
        return f"Edited {path} at line {first}"

    def _text(self, path: str) -> str:
        target = self._inside(path)
        if not target.is_file():
            raise ToolFailed(f"{path}: no such file")
        return target.read_text(encoding="utf-8")

    def _inside(self, path: str) -> Path:
        target = (self.root / path.removeprefix(NAME).lstrip("/")).resolve()
        if not target.is_relative_to(self.root.resolve()):
            raise ToolFailed(f"{path}: outside {NAME}")
        return target

    def _stable(self, text: str) -> str:
        for place, name in (
            (self.root, NAME),
            (self.root.resolve(), NAME),
            (sys.prefix, "/venv"),
            (sys.base_prefix, "/usr"),
        ):
            text = text.replace(str(place), name)
        text = re.sub(r"\bin \d+\.\d+s", "in 0.10s", text)
        return re.sub(r"0x[0-9a-f]{8,}", "0x7f0000000000", text)


def _environment(root: Path) -> dict[str, str]:
    """The same for every run; the Python that runs this is ``python`` there."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "100",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-q --no-header -p no:cacheprovider",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "agent",
        "GIT_AUTHOR_EMAIL": "agent@example.com",
        "GIT_AUTHOR_DATE": "2026-03-02T09:00:00Z",
        "GIT_COMMITTER_NAME": "agent",
        "GIT_COMMITTER_EMAIL": "agent@example.com",
        "GIT_COMMITTER_DATE": "2026-03-02T09:00:00Z",
    }
