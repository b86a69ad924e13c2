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
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import pytest

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
MADE = ("plans", "replays", "commands", "logs")
"""What takes half a minute, the longest first: the rest is read off the code in ten seconds."""
PROCESSES = 2
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
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            os.chdir(folder)
            try:
                yield
            finally:
                os.chdir(before)


def made(sections: Sequence[str]) -> dict[str, str | None]:
    """The text of each section as the tree has it; None where that failed, once it was said how."""
    texts: dict[str, str | None] = {}
    with nobodys_machine():
        for section in sections:
            try:
                texts[section] = "\n".join(line.rstrip() for line in SECTIONS[section]()).rstrip("\n") + "\n"
            except Exception:  # noqa: BLE001 - what is broken in the middle of a change must not hide the rest
                click.echo(f"{section} cannot be made:\n{traceback.format_exc(limit=-3)}", err=True)
                texts[section] = None
    return texts


def difference(section: str, now: str) -> list[str]:
    """How the text of a section differs from the kept one."""
    path = KEPT / f"{section}.txt"
    before = path.read_text("utf-8") if path.exists() else ""
    lines = (before.splitlines(), now.splitlines())
    return list(difflib.unified_diff(*lines, str(path.relative_to(ROOT)), "the tree", n=CONTEXT_LINES, lineterm=""))


@click.command
@click.option("--update", is_flag=True, help="Keep what the tree has now.")
@click.option("--only", type=click.Choice(list(SECTIONS)), multiple=True, help="Some texts alone.")
@click.option("--quick", is_flag=True, help=f"All but {', '.join(MADE)}.")
def inventory(update: bool, only: tuple[str, ...], quick: bool) -> None:
    """Compare what a user has with what is kept."""
    wanted = [name for name in SECTIONS if name in only or not (only or (quick and name in MADE))]
    jobs = [[name] for name in MADE if name in wanted] + [[name for name in wanted if name not in MADE]]
    with ProcessPoolExecutor(PROCESSES) as pool:
        texts = {name: text for done in pool.map(made, jobs) for name, text in done.items()}
    failed, different = [name for name in wanted if texts[name] is None], []
    for name in wanted:
        lines = difference(name, texts[name] or "") if name not in failed else []
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
        different += [name] if lines else []
        if lines and update:
            KEPT.mkdir(exist_ok=True)
            (KEPT / f"{name}.txt").write_text(texts[name] or "", "utf-8")
    if failed or (different and not update):
        verdict = f"different: {', '.join(different) or 'none'}; what is meant to change is kept by --update"
        click.echo(f"\n{verdict}" + (f"; failed: {', '.join(failed)}" if failed else ""), err=True)
        sys.exit(1)
    click.echo(f"kept anew: {', '.join(different)}" if different else "as it was")


if __name__ == "__main__":
    inventory()
