"""`compactor plan`: plan a transcript's compaction and show it. Writes nothing but the plan, when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from applier.cli.files import read_file, write_whole
from applier.cli.options import Edit, as_json, edits, part, show_all, transcript
from applier.cli.review import print_sheet, reviewed
from applier.cli.screen import print_json, screen, working
from applier.settings import load_settings
from planner.api import plan_compaction

__all__ = ["command"]


@click.command
@transcript
@click.option("--task", help="What the agent is to do now (default: the transcript's own).")
@click.option("--target-tokens", type=click.IntRange(1), metavar="N", help="How many tokens may stay.")
@click.option(
    "--target-ratio",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="R",
    help="The share of the tokens that may stay (default: 0.25).",
)
@click.option("--focus", metavar="TEXT", help="What to keep above all.")
@click.option(
    "--planner",
    type=click.Choice(["auto", "rules", "model"]),
    help="Who plans (default: auto, the model if there is a key, else rules).",
)
@click.option("--model", help="The model that plans, or an instructor provider string.")
@click.option("--target-model", metavar="MODEL", help="The model that will read the view: decides token counts.")
@click.option(
    "--prompts",
    "prompts_dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Your own folder of prompts.",
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the plan there.")
@edits
@part
@show_all
@as_json
def command(
    transcript: Path,
    task: str | None,
    planner: Any,
    model: str | None,
    target_model: str | None,
    output: Path | None,
    edits: tuple[Edit, ...],
    part: int | None,
    show_all: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Plan a compaction and print the review.

    TRANSCRIPT holds Anthropic or OpenAI messages (JSON or JSONL), a Claude Code session or a Codex rollout.
    Nothing is written but, with -o, the plan; edit it or change it by --set, then `compactor apply` it.
    """
    if how["target_tokens"] and how["target_ratio"]:
        raise click.UsageError("--target-tokens and --target-ratio exclude each other: give one.")
    read = read_file(transcript, part)
    task = task or read.task
    if not task:
        raise click.UsageError(f"{transcript} names no task: say by --task what the agent is to do now.")
    own = load_settings()
    how["planner"], how["model"] = planner or own.planner, model or own.planner_model or None
    how["settings"] = own.plan.model_copy(update={"target_model": target_model or own.plan.target_model})
    with working("planning…"):
        plan = plan_compaction(read.messages, task, system=read.system, tools=read.tools, **how)
        sheet = reviewed(plan, read.messages, edits, fold=not show_all)
    if output:
        write_whole(output, sheet.plan.to_json())
    if as_json:
        print_json(sheet.to_json())
        return
    print_sheet(screen(), sheet, whole=show_all)
    if output:
        click.echo(f"\nThe plan is in {output}. Next: compactor apply {output} {transcript} -o VIEW")
