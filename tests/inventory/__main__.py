"""What a user has, as text: ``python -m tests.inventory`` says what is not as ``kept/`` says; exit code 1 if anything.

``--update`` writes them anew, ``--only NAME`` (more than once) does some alone, ``--quick`` what is read off the code.
That are names, help, settings and declarations, and each guarantee with the tests that hold it; plans, views, logs,
replays and commands of the project's own transcripts are made. Nothing here knows where a thing stands inside, only
what it is called outside. Two branches that changed one text are merged by taking either and running ``--update``.
"""

import contextlib
import difflib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import click

from tests.inventory import commands, declared, digests, guarantees, names
from tests.inventory.product import ROOT

KEPT = Path(__file__).with_name("kept")
SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "names": names.public_names,
    "help": commands.helps,
    "settings": declared.settings,
    "words": declared.words,
    "findings": declared.findings,
    "violations": declared.violations,
    "errors": declared.errors,
    "events": declared.events,
    "presets": declared.presets,
    "formats": declared.formats,
    "tools": declared.tools,
    "prompts": declared.prompts,
    "guarantees": guarantees.guarantees,
    "plans": digests.plans,
    "logs": digests.logs,
    "replays": digests.replays,
    "commands": commands.played,
}
MADE = ("plans", "logs", "replays", "commands")
"""What takes half a minute: the rest is read off the code in ten seconds."""
CONTEXT_LINES = 1


@contextlib.contextmanager
def nobodys_machine() -> Iterator[None]:
    """An empty folder without settings, keys or a store, a terminal of 100 columns, and no way out but loopback's."""
    mine = ("ANTHROPIC_", "OPENAI_", "COMPACTOR_", "CLAUDE_", "XDG_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"COLUMNS": str(commands.COLUMNS), "COMPACTOR_STORE": f"{folder}/store.db", "TZ": "UTC"}
        environment |= {"XDG_STATE_HOME": folder, "NO_COLOR": "1"}
        with patch.dict(os.environ, environment, clear=True):
            os.chdir(folder)
            try:
                yield
            finally:
                os.chdir(before)


def differences(section: str, update: bool) -> list[str]:
    """What one text says that the kept one does not, as a diff; with `update` it is kept from now on."""
    path = KEPT / f"{section}.txt"
    now = "\n".join(line.rstrip() for line in SECTIONS[section]()).rstrip("\n") + "\n"
    before = path.read_text("utf-8") if path.exists() else ""
    if update and now != before:
        KEPT.mkdir(exist_ok=True)
        path.write_text(now, "utf-8")
    place = str(path.relative_to(ROOT))
    lines = (before.splitlines(), now.splitlines())
    return list(difflib.unified_diff(*lines, place, "the tree", n=CONTEXT_LINES, lineterm=""))


@click.command
@click.option("--update", is_flag=True, help="Keep what the tree has now.")
@click.option("--only", type=click.Choice(list(SECTIONS)), multiple=True, help="Some texts alone.")
@click.option("--quick", is_flag=True, help=f"All but {', '.join(MADE)}.")
def inventory(update: bool, only: tuple[str, ...], quick: bool) -> None:
    """Compare what a user has with what is kept."""
    if not only:
        only = tuple(section for section in SECTIONS if not (quick and section in MADE))
    different = []
    with nobodys_machine():
        for section in only:
            lines = differences(section, update)
            different += [section] if lines else []
            for line in lines:
                click.echo(line)
    if different and not update:
        click.echo(f"\ndifferent: {', '.join(different)}; what is meant to change is kept by --update", err=True)
        sys.exit(1)
    click.echo(f"kept anew: {', '.join(different)}" if different else "as it was")


if __name__ == "__main__":
    inventory()
