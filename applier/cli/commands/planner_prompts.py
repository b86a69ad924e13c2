"""`compactor prompts`: copies the prompts of the planner model, or renders them for a transcript."""

from __future__ import annotations

from pathlib import Path

import click

from applier.cli.files import read_file, write_whole
from applier.cli.options import SHARE, output_option, part, task, transcript
from applier.cli.screen import echo
from planner.api import plan_compaction
from planner.errors import SettingsError
from planner.model.planners import PromptReader
from planner.model.prompts import PROMPTS, load_prompts

__all__ = ["prompts_command"]


@click.group
def prompts_command() -> None:
    """Copy the planner's prompts, or render them for a transcript."""


@prompts_command.command
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def copy(folder: Path) -> None:
    """Copy the packaged prompts to FOLDER, for editing and for --prompts FOLDER."""
    taken = [name for name in sorted(PROMPTS) if (folder / f"{name}.md").exists()]
    if taken:
        raise SettingsError(f"{folder / taken[0]}.md exists already: name a new folder, or delete it first")
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in load_prompts().files.items():
        write_whole(folder / f"{name}.md", path.read_text("utf-8"))
    echo(f"{len(PROMPTS)} prompts copied; use them with --prompts {folder}")


@prompts_command.command
@transcript
@part
@click.option(
    "--prompts",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Your own folder of prompts; missing ones are the packaged ones.",
)
@task
@click.option("--target-ratio", type=SHARE, metavar="R", default=0.25, show_default=True)
@output_option("Write it there.")
def render(
    transcript: Path, part: int | None, folder: Path | None, task: str | None, target_ratio: float, output: Path | None
) -> None:
    """Print the text that the planner model would read for TRANSCRIPT, and ask no model."""
    read = read_file(transcript, part)
    reader = PromptReader(folder)
    plan_compaction(read.messages, task or read.task, planner=reader, target_ratio=target_ratio)
    text = "\n\n".join(reader.texts)
    if not text:
        echo(f"compactor: {transcript}: nothing to compact, so no model would be asked", err=True)
    elif output:
        write_whole(output, text)
    else:
        echo(text)
