"""`compactor review`: show a plan again, with changes of a person checked by the guards."""

from __future__ import annotations

from pathlib import Path

import click

from applier.cli.files import read_file, read_plan, read_text, write_whole
from applier.cli.options import OutputFile, as_json, brief, edits, part, plan_file, show_all, spare, store_option, web
from applier.cli.review import print_sheet, review_sheet, reviewed
from applier.cli.review.in_browser import review_in_browser
from applier.cli.screen import print_json, screen, working
from applier.sheet import Edit

__all__ = ["command"]


@click.command
@plan_file
@click.argument("transcript", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", metavar="FILE", type=OutputFile(), help="Write the checked plan.")
@edits
@brief
@click.option("--edit", is_flag=True, help="Change the brief in your editor.")
@part
@show_all
@as_json
@web
@store_option
def command(
    plan_file: Path,
    transcript: Path | None,
    output: Path | None,
    edits: tuple[Edit, ...],
    brief_file: Path | None,
    edit: bool,
    part: int | None,
    show_all: bool,
    as_json: bool,
    web: bool,
    store: str | None,
) -> None:
    """Print the review of a plan, as changed by hand.

    Changes are made in the file, by --set, --brief or --edit. With TRANSCRIPT the guards check it again, and what
    removed turns leave in their place is shown. With --web all of it is shown in a browser, where saving writes PLAN
    (or -o), and applying writes the view beside TRANSCRIPT, originals to --store first.
    """
    spare({"transcript": transcript}, output)
    plan = read_plan(plan_file)
    if transcript is None and (edits or output or brief_file or edit or web):
        raise click.UsageError("--set, --brief, --edit, --web and -o need TRANSCRIPT too: the guards check against it.")
    if transcript is None:
        sheet = review_sheet(plan, fold=not show_all)
    else:
        text = read_text(brief_file) if brief_file else None
        if edit:
            text = click.edit(plan.brief if text is None else text, extension=".md") or text
        read = read_file(transcript, part)
        with working("checking…"):
            sheet = reviewed(plan, read.messages, edits, brief=text, fold=not show_all)
        if web:
            review_in_browser(sheet.plan, read, transcript, plan_file=output or plan_file, store=store)
            return
    if output:
        write_whole(output, sheet.plan.to_json())
    if as_json:
        print_json(sheet.to_json())
    else:
        print_sheet(screen(), sheet, whole=show_all)
