"""README cannot rot: its Python runs, its commands run, and what it shows is what they print.

Numbers may drift as planning improves; words may not. ``REWRITE_README=1 pytest tests/test_readme.py`` puts the
commands' present output in.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import anthropic
import pytest

from applier.settings import SessionSettings
from planner import PlanSettings
from tests.loopback import KEY, Loopback

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text("utf-8")
REWRITE = os.environ.get("REWRITE_README")
LONG = ("compactor watch", "compactor eval")
"""Commands of over ten seconds: run when README is rewritten, and by CI."""
CONSOLES = re.compile(r"```console\n(.*?)```", re.S)


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT, re.S)


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console block with the output shown under it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_python_runs(tmp_path, monkeypatch):
    whole = json.loads(files("applier.bench").joinpath("transcript.json").read_text("utf-8"))
    names = {"messages": whole["messages"][:41], "task": whole["task"]}
    with Loopback(["Done."]) as server:
        monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "store.db"))
        for block in python_blocks():
            if "anthropic.Anthropic(" in block:
                monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
                monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            exec(compile(block, "README.md", "exec"), names)
    assert names["plan"].estimated_tokens < names["plan"].history.tokens
    assert names["messages"][-1]["content"][0].text == "Done."
    assert names["result"]["type"] == "tool_result"
    names["session"].close()
    for client in [value for value in names.values() if isinstance(value, anthropic.Anthropic)]:
        client.close()


def run(command: str, folder: Path) -> str:
    """What `command` prints in `folder`, with this environment's `compactor`."""
    environment = {
        **os.environ,
        "COMPACTOR_STORE": str(folder / "store.db"),
        "COLUMNS": "100",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    ran = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.stderr == ""  # also of a command whose output `head` cut short
    assert ran.returncode == 0, command
    return "\n".join(line.rstrip() for line in ran.stdout.splitlines()) + "\n" if ran.stdout else ""


@pytest.mark.skipif(importlib.util.find_spec("bpe_openai") is None, reason="needs the extra `offline`")
def test_commands_print_what_is_shown(tmp_path):
    printed: dict[str, str] = {}
    for block in CONSOLES.findall(TEXT):
        for command, shown in commands(block):
            if command.startswith(LONG) and not (os.environ.get("CI") or REWRITE):
                continue
            printed[command] = run(command, tmp_path)
            said = {line for line in shown.splitlines() if line and not re.search(r"\d|…", line)}
            if not REWRITE:
                assert said <= set(printed[command].splitlines()), command
    if REWRITE:
        README.write_text(CONSOLES.sub(lambda block: _rewritten(block[1], printed), TEXT), "utf-8")


def _rewritten(block: str, printed: dict[str, str]) -> str:
    lines = "".join(f"$ {command}\n{printed[command]}" for command, _ in commands(block))
    return f"```console\n{lines}```"


@pytest.mark.parametrize("model", [SessionSettings, PlanSettings])
def test_every_setting_is_described(model):
    assert not [name for name in model.model_fields if f"`{name}`" not in TEXT]
