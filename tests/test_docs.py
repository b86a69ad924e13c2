"""README and the pages of docs/ cannot rot: their Python runs, their commands run and print what the pages show.

``REWRITE_DOCS=1 pytest --real tests/test_docs.py -k commands_print`` writes the present output into the pages.
"""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import click
import pytest

from applier.adapters.agent_tools import AGENT_TOOL_NAMES
from applier.cli.app import COMMANDS, compactor
from applier.settings import SessionSettings
from planner import PlanSettings
from planner.model.prompts import PROMPTS
from tests.loopback import KEY, Loopback
from tests.transcripts.session_logs import ClaudeCodeLog

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = {path.name: path for path in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))}
TEXT = "\n".join(path.read_text("utf-8") for path in PAGES.values())
WITH_PYTHON = (README, ROOT / "docs" / "agents.md")
"""Pages with Python, run in this order in one interpreter."""
OWN_PARTS = ROOT / "docs" / "extending.md"
"""Page with Python that is run after them, on freshly loaded messages."""
README_BYTES = 10_000
REWRITE = os.environ.get("REWRITE_DOCS")
SLOW = set() if REWRITE else {"clients.md", "learning.md", "reviewing.md"}
"""Pages of many commands, which CI leaves out; README and the rest stay."""
PRINTED = [pytest.param(page, marks=pytest.mark.slow if name in SLOW else ()) for name, page in PAGES.items()]
LONG = ("compactor watch", "compactor eval")
"""Commands that take over ten seconds; only CI and a rewrite run them."""
VARIABLE = re.compile(
    r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d)?|[\d,]+(?= bytes)|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Parts of an output that differ in each run: today's date, the time, the size of a store's file, a session's id."""
CONSOLES = re.compile(r"```console\n(.*?)```", re.S)
COMMAND_LINE = re.compile(r"^(?:\$ )?compactor .*$", re.M)
HOSTS = {"agents": ["/v1/responses"], "deepagents": ["/v1/messages"]}
"""Requests of the examples of agents that are not installed everywhere."""
EXTRAS = {"anthropic", "langchain", "pydantic_ai", "openai", "starlette"}
"""Packages of extras that the pages' Python imports."""
MACHINE = re.compile(r"/(?:home|root|work|tmp|Users)/|https?://(?:10\.|192\.168\.)")
"""A path or an address of one machine; not ``/workspace``, the demo's own."""


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def hosts_of(block: str) -> set[str]:
    """Return the hosts that a block of Python imports from."""
    return {*HOSTS, "claude_agent_sdk"} & set(re.findall(r"^from (\w+) import", block, re.M))


def commands(block: str) -> list[tuple[str, str]]:
    """Return each command of a console block with the output below it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def demo() -> dict:
    return json.loads(files("applier.eval").joinpath("transcript.json").read_text("utf-8"))


LOADED = """
import json, os
from importlib.resources import files
whole = json.loads(files("applier.eval").joinpath("transcript.json").read_text("utf-8"))
messages, task = whole["messages"][:41], whole["task"]
"""
HISTORY = 'history = whole["messages"][:121]\n'
"""History that is long enough for a compaction."""
GO_ON = 'messages.append({"role": "user", "content": "Go on."})\n'
"""Message that lets a list be sent again: the API refuses one that ends with the assistant."""
CHECKED = """
assert plan.estimated_tokens < plan.history.tokens
assert messages[-2]["content"][0].text == "Done."
assert not done.applied and done.tokens_before
assert edited.decisions["t3"].strategy == "keep"
assert undone and len(found.matches) == 3 and turn.messages
assert [(name, use.effect) for name, use in declared.tool_uses.items()] == [
    ("lager_lesen", "reads"), ("termin_buchen", "acts")
]
"""
OWN_CHECKED = """
assert plan.provenance.planner == "newest first"
assert plan.estimated_tokens < plan.history.tokens == TokenCounter.for_model("my-llama").messages(messages)
"""


@pytest.mark.real
@pytest.mark.skipif(not all(map(importlib.util.find_spec, EXTRAS)), reason="needs the extras it shows")
def test_python_runs(tmp_path):
    """Run in an interpreter of its own, since frameworks leave their clients open."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    ours = {"COMPACTOR_STORE": str(tmp_path / "store.db"), "COMPACTOR_PLANNER": "rules", "OPENAI_API_KEY": "sk-none"}
    python = [block for page in WITH_PYTHON for block in blocks("python", page.read_text("utf-8"))]
    installed = {host for host in HOSTS if importlib.util.find_spec(host)}
    python = [block for block in python if hosts_of(block) <= installed]
    with Loopback(["Done."]) as server:
        keyed = f"os.environ.update(ANTHROPIC_API_KEY={KEY!r}, ANTHROPIC_BASE_URL={server.url!r})\n"
        parts = [keyed + block if "anthropic.Anthropic(" in block else block for block in python]
        parts = [HISTORY + part if "(history)  # now" in part else part for part in parts]
        parts = [GO_ON + part if "session.recover(" in part else part for part in parts]
        ours |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        own = [LOADED, *blocks("python", OWN_PARTS.read_text("utf-8")), OWN_CHECKED]
        script = "\n".join([LOADED, *parts, CHECKED, *own]).replace("https://api.openai.com", server.url)
        command = [sys.executable, "-c", script]
        ran = subprocess.run(command, cwd=tmp_path, env={**environment, **ours}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    paths = [path.split("?")[0] for _, path in server.paths]
    of_hosts = [path for host in installed for path in HOSTS[host]]
    assert sorted(paths) == sorted([*["/v1/messages"] * 6, "/v1/chat/completions", *of_hosts])


@pytest.mark.real
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("anthropic", "mypy"))), reason="needs what it is typed by")
def test_the_loop_of_the_readme_is_typed(tmp_path):
    """A reader pastes it into their own project, which may have a type checker as strict as ours."""
    (loop,) = (block for block in blocks("python", README.read_text("utf-8")) if "while True" in block)
    (tmp_path / "loop.py").write_text(loop, "utf-8")
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"  # which knows the libraries already
    command = [sys.executable, "-m", "mypy", f"--config-file={ROOT / 'pyproject.toml'}", cache, "loop.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[:2_000]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a client's session and the tests of a clone, where the commands of a page run."""
    folder = tmp_path
    log = ClaudeCodeLog()
    for number, message in enumerate(demo()["messages"]):
        if message["role"] == "user":
            log.user(message["content"], cwd="/code/logsift")
        for block in message["content"] if message["role"] == "assistant" else ():
            log.assistant(f"msg_{number}", block, cwd="/code/logsift")
    (folder / "session.jsonl").write_text(log.text(), "utf-8")
    (folder / "tests").symlink_to(ROOT / "tests")
    return folder


def run(command: str, folder: Path) -> str:
    """Return the output of `command` in `folder`, with this environment's `compactor`."""
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


@pytest.mark.real
@pytest.mark.skipif(importlib.util.find_spec("bpe_openai") is None, reason="needs the extra `offline`")
@pytest.mark.parametrize("page", PRINTED, ids=PAGES)
def test_commands_print_what_is_shown(page, folder):
    printed: dict[str, str] = {}
    text = page.read_text("utf-8")
    for block in CONSOLES.findall(text):
        for command, shown in commands(block):
            if command.startswith(LONG) and not (os.environ.get("CI") or REWRITE):
                continue
            printed[command] = run(command, folder)
            if not REWRITE:
                assert VARIABLE.sub("*", printed[command]) == VARIABLE.sub("*", shown), f"{command}: see REWRITE_DOCS"
    if REWRITE:
        page.write_text(CONSOLES.sub(lambda block: _rewritten(block[1], printed), text), "utf-8")


def _rewritten(block: str, printed: dict[str, str]) -> str:
    lines = "".join(f"$ {command}\n{printed[command]}" for command, _ in commands(block))
    return f"```console\n{lines}```"


@pytest.mark.parametrize("line", sorted({found[0] for found in COMMAND_LINE.finditer("".join(blocks("sh")))}))
def test_commands_that_need_a_client_have_the_options_they_show(line):
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = compactor
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    known = {name for parameter in command.params for name in parameter.opts}
    own = words[: words.index("claude")] if "claude" in words else words
    assert {word for word in own if word.startswith("-")} <= known


@pytest.mark.parametrize("model", [SessionSettings, PlanSettings])
def test_every_setting_is_described_with_its_default(model):
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    for name, field in model.model_fields.items():
        mine = [row for row in rows if f"`{name}`" in row.split(" | ")[0]]
        assert mine, name
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            numbers = [f"{field.default:,}", f"{field.default:g}"]
            assert any(number in row.split(" | ")[1] for row in mine for number in numbers), name


def test_every_command_and_dependency_is_described():
    assert not [name for name in COMMANDS if f"`{name}`" not in TEXT]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [re.split(r"[><=\[]", requirement)[0] for requirement in project["dependencies"]]
    assert not [name for name in needed if f"`{name}`" not in TEXT]
    shown = re.findall(r"extra `([\w-]+)`", TEXT)
    assert set(shown) <= set(project["optional-dependencies"])


def test_every_prompt_is_listed_with_its_reader():
    table = PAGES["settings.md"].read_text("utf-8").partition("| prompts | read by |")[2].partition("\n\n")[0]
    readers = "".join(row.split(" | ")[0] for row in table.splitlines())
    assert {name for name in PROMPTS if f"`{name}`" not in readers} == set()


def test_a_list_of_the_agents_tools_has_all_of_them():
    sentences = re.split(r"\n|\. ", PAGES["agents.md"].read_text("utf-8"))
    lists = [text for text in sentences if "`search_context`" in text and "`compact`" in text]
    assert len(lists) == 3
    assert [(name, line) for line in lists for name in AGENT_TOOL_NAMES if f"`{name}`" not in line] == []


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if "://" not in target and (ROOT / "docs").exists():  # a wheel's tests stand without sources
            assert (page.parent / target.split("#")[0]).exists(), target


def test_readme_is_read_in_ten_minutes():
    assert len(README.read_bytes()) <= README_BYTES


def test_nothing_of_one_machine_is_shown():
    assert not MACHINE.findall(TEXT)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:planner|applier|prompts|tests)/[\w./]*)`", TEXT))))
def test_a_path_of_the_sources_exists(path):
    assert (ROOT / path).exists()
