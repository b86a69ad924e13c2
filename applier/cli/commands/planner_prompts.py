"""`compactor prompts`: read, check and copy the prompts of the planner model."""

from __future__ import annotations

from pathlib import Path

import click

from applier.cli.files import read_file, write_whole
from applier.cli.options import SHARE, as_json, output_option, part, task, transcript
from applier.cli.screen import echo, print_json
from planner.api import plan_compaction
from planner.errors import SettingsError
from planner.model.planners import PromptReader
from planner.model.prompts import PROMPTS, check_prompts, load_prompts

__all__ = ["prompts_command"]

_folder = click.option(
    "--prompts",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Your own folder of prompts; what is not in it is the packaged one.",
)


@click.group
def prompts_command() -> None:
    """Read, check and copy the planner's prompts."""


@prompts_command.command(name="list")
@_folder
@as_json
def list_(folder: Path | None, as_json: bool) -> None:
    """List the prompts in use, each with its file."""
    prompts = load_prompts(folder)
    if as_json:
        print_json({"hash": prompts.hash, "files": {name: str(path) for name, path in prompts.files.items()}})
        return
    for name, path in prompts.files.items():
        echo(f"{name}  {path}")
    echo(prompts.hash)


@prompts_command.command
@click.argument("name", type=click.Choice(sorted(PROMPTS)))
@_folder
def show(name: str, folder: Path | None) -> None:
    """Print the prompt NAME."""
    echo(load_prompts(folder).texts[name])


@prompts_command.command
@_folder
def check(folder: Path | None) -> int:
    """Say what keeps the prompts from being used; exit 1 if anything does."""
    findings = check_prompts(folder)
    for finding in findings:
        echo(finding.problem)
    if not findings:
        echo(f"{len(PROMPTS)} prompts: all well")
    return 1 if findings else 0


@prompts_command.command
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def copy(folder: Path) -> None:
    """Copy the packaged prompts to FOLDER, to be edited and used by --prompts FOLDER."""
    taken = [name for name in sorted(PROMPTS) if (folder / f"{name}.md").exists()]
    if taken:
        raise SettingsError(f"{folder / taken[0]}.md is there already: name a new folder, or delete it first")
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in load_prompts().files.items():
        write_whole(folder / f"{name}.md", path.read_text("utf-8"))
    echo(f"{len(PROMPTS)} prompts copied; use them by --prompts {folder}")


@prompts_command.command
@transcript
@part
@_folder
@task
@click.option("--target-ratio", type=SHARE, metavar="R", default=0.25, show_default=True)
@output_option("Write it there.")
def render(
    transcript: Path, part: int | None, folder: Path | None, task: str | None, target_ratio: float, output: Path | None
) -> None:
    """Print all that the planner model would read to plan TRANSCRIPT, and ask no model."""
    read = read_file(transcript, part)
    reader = PromptReader(folder)
    plan_compaction(read.messages, task or read.task, planner=reader, target_ratio=target_ratio)
    text = "\n\n".join(reader.texts)
    if output:
        write_whole(output, text)
    else:
        echo(text)
