"""The command line as a user meets it: help of every command, exit codes, and what commands print, by digest."""

import contextlib
import importlib.metadata
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import click
import pytest

from tests.inventory.product import ROOT, modules

COLUMNS = 100
TODAYS = re.compile(r'(?<="timestamp": )[0-9.]+|(?<= )\d{4}-\d\d-\d\d(?= )|[0-9,]+(?= bytes)')
"""Time of a fact's extraction, in JSON and in a table, and size of a database's file, by its library."""
DEMO = "run.json"
SMALL = "failing.json"
"""A tenth of it, kept beside the tests."""
SCENES = (
    ("--version",),
    ("nonsense",),
    ("plan", "missing.json"),
    ("restore", "t1"),
    ("facts",),
    ("demo",),
    ("demo", "--copy", DEMO),
    ("plan", DEMO, "--planner", "rules", "--all", "--target-ratio", "0.1"),
    ("plan", SMALL, "--planner", "rules", "-o", "plan.json"),
    ("plan", SMALL, "--planner", "rules", "--json", "--target-tokens", "3000", "--focus", "the parser"),
    ("plan", SMALL, "--planner", "rules", "--target-tokens", "1", "--target-ratio", "0.1"),
    ("review", "plan.json", "--all"),
    ("review", "plan.json", SMALL, "--set", "t10-t11=keep", "--set", "t12=drop", "-o", "plan.json"),
    ("apply", "plan.json", SMALL, "--dry-run"),
    ("apply", "plan.json", SMALL, "-o", "view.json"),
    ("restore", "t10"),
    ("restore", "t10", "--lines", "1-3"),
    ("restore", "t10", "--search", "Alabama"),
    ("restore", "t10", "--search", "nowhere"),
    ("facts", "--type", "constraint"),
    ("undo", "view.json", "-o", "whole.json"),
    ("store", "verify"),
    ("watch", SMALL, "--window", "8000"),
    ("watch", SMALL, "--window", "8000", "--preset", "codex", "--preset", "s06"),
)
"""One after the other, in one folder with one store. Each is what the others leave; none prints a time or an id."""
WRITTEN = (DEMO, "view.json", "whole.json")
"""Files of the folder that are the same each time; a plan has times in it."""


def helps() -> Iterator[str]:
    """The help of every command."""
    root = next(
        value
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, click.Group) and value.name == "compactor"
    )
    yield from _helps(root, "compactor", None)


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**command.context_settings, "terminal_width": COLUMNS, "max_content_width": COLUMNS}
    with click.Context(command, info_name=name, parent=parent, **settings) as context:
        yield from (f"## {context.command_path}", *command.get_help(context).splitlines(), "")
        for below in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from _helps(command.get_command(context, below), below, context)


def played() -> Iterator[str]:
    """Each command of `SCENES` with its exit code and what it printed: short things whole, long ones by digest."""
    shutil.copy(ROOT / "tests" / "example" / SMALL, SMALL)
    for arguments in SCENES:
        code, printed, complained = run(*arguments)
        yield f"$ compactor {' '.join(arguments)}"
        yield from (f"  exit {code}: {_short(printed)}", *(f"  ! {line}" for line in complained.splitlines()))
    for name in WRITTEN:
        yield f"{name}: {_short(Path(name).read_text('utf-8'))}"


def _short(text: str) -> str:
    lines = text.splitlines()
    if len(lines) == 1 and len(text) <= COLUMNS:
        return lines[0]
    return f"{len(lines)} lines, {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}" if text else "-"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command, in this process."""
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="compactor")
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    code: int | str | None = 0
    asked = pytest.MonkeyPatch.context()
    with asked as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        patch.setattr(sys, "argv", ["compactor", *arguments])
        try:
            entry.load()()
        except SystemExit as end:
            code = end.code
    texts = []
    for stream in (out, error):
        stream.flush()
        text = TODAYS.sub("0", stream.buffer.getvalue().decode())
        texts.append("\n".join(line.rstrip() for line in text.splitlines()))
    return int(code or 0), texts[0], texts[1].replace(os.getcwd(), "…")
