"""`compactor plan`: plan a transcript's compaction and show it. Writes nothing but the plan, when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from applier.cli.files import read_file, write_whole
from applier.cli.options import (
    OutputFile,
    as_json,
    edits,
    part,
    planning,
    show_all,
    spare,
    store_option,
    transcript,
    web,
)
from applier.cli.review import print_sheet, reviewed
from applier.cli.review.in_browser import review_in_browser
from applier.cli.screen import echo, print_json, screen, working
from applier.cli.work import planned
from applier.sheet import Edit

__all__ = ["command"]


@click.command
@transcript
@planning
@click.option("-o", "--output", metavar="FILE", type=OutputFile(), help="Write the plan there.")
@edits
@part
@show_all
@as_json
@web
@store_option
def command(
    transcript: Path,
    output: Path | None,
    edits: tuple[Edit, ...],
    part: int | None,
    show_all: bool,
    as_json: bool,
    web: bool,
    store: str | None,
    **how: Any,
) -> None:
    """Plan a compaction and print the review.

    TRANSCRIPT holds Anthropic or OpenAI messages (JSON or JSONL), a Claude Code session or a Codex rollout.
    Nothing is written but, with -o, the plan; edit it or change it by --set, then `compactor apply` it.
    With --web the review opens in a browser, where both can be done (--store says where originals go).
    """
    spare({"transcript": transcript}, output)
    read = read_file(transcript, part)
    with working("planning…"):
        sheet = reviewed(planned(read, transcript, **how), read.messages, edits, fold=not show_all)
    if web:
        review_in_browser(sheet.plan, read, transcript, plan_file=output, store=store)
        return
    if output:
        write_whole(output, sheet.plan.to_json())
    if as_json:
        print_json(sheet.to_json())
        return
    print_sheet(screen(), sheet, whole=show_all)
    if output:
        echo(f"\nThe plan is in {output}. Next: compactor apply {output} {transcript} -o VIEW")
