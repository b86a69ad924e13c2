"""`compactor plan`, `review`, `apply`, `undo`, `demo`: a plan is made, shown, changed by hand, applied, taken back.

Nothing is written but the plan and the transcript that were asked for, and to the store before a transcript without
the originals.
"""

from __future__ import annotations

import importlib.resources
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

import click

from applier.adapters.transcripts import Transcript, read_transcript, write_transcript
from applier.cli import options
from applier.cli.files import digest_of, read_file, read_text, write_unchanged, write_whole
from applier.cli.planning import plan_files, plan_options, planned, planning_options, write_view
from applier.cli.print_sheet import finding_line, print_sheet
from applier.cli.screen import echo, print_json, screen, show_page, working
from applier.processes import all_cores
from applier.sheet import Edit, Sheet, review_sheet, reviewed
from applier.store.opening import open_store
from applier.store.views import holds_view, originals_behind
from applier.view import apply, look_in
from planner.api import plan_compaction
from planner.errors import ReferenceNotFound, StalePlan, StoreDamaged
from planner.placeholders import history_key
from planner.plan import CompactionPlan, Strategy
from planner.reading.history import read_history
from planner.reading.messages import Message
from planner.validity import check_messages

__all__ = ["apply_command", "demo_command", "plan_command", "review_command", "undo_command"]

_PLACE = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def _edits_of(text: str) -> list[Edit]:
    turns, _, wanted = text.partition("=")
    ranges = options.turn_ranges(turns) if wanted in STRATEGIES else []
    if not ranges:
        expected = f"expected t12=STRATEGY or t3,t12-t20=STRATEGY, STRATEGY one of {', '.join(STRATEGIES)}."
        raise click.BadParameter(f"{text[:60]!r}: {expected}")
    return [Edit(first, last, cast("Strategy", wanted)) for first, last in ranges]


_plan_file = click.argument("plan_file", metavar="PLAN", type=options.EXISTING_FILE)
_edits = click.option(
    "--set",
    "edits",
    type=_edits_of,
    metavar="TURNS=STRATEGY",
    multiple=True,
    callback=lambda _context, _option, values: tuple(chain.from_iterable(values)),
    help="Change decisions; the guards check again.",
)
_showing = options.together(
    options.part,
    options.show_all,
    options.as_json,
    click.option("--web", is_flag=True, help="Review in a browser on this machine: read, change, save and apply."),
    options.store_option,
)


@click.command
@click.argument("transcripts", metavar="TRANSCRIPT...", nargs=-1, required=True, type=_PLACE)
@planning_options
@options.output_option("Write the plan there; of many files the rows.")
@_edits
@_showing
@click.option("--plans", metavar="DIR", type=_FOLDER, help="Of many files: write each plan into DIR, too.")
@click.option("--workers", type=click.IntRange(1), help="Of many files: processes (default: as many as cores).")
@click.option("--cap", type=click.FloatRange(0), default=1.0, show_default=True, help="Of many: dollars it may cost.")
def plan_command(
    transcripts: tuple[Path, ...],
    output: Path | None,
    edits: Sequence[Edit],
    part: int | None,
    show_all: bool,
    as_json: bool,
    web: bool,
    store: str | None,
    plans: Path | None,
    workers: int | None,
    cap: float,
    **how: Any,
) -> None:
    """Plan a compaction and print the review.

    TRANSCRIPT holds Anthropic or OpenAI messages (JSON or JSONL), a Claude Code session or a Codex rollout.
    Nothing is written but, with -o, the plan; edit it or change it by --set, then `compactor apply` it.
    With --web the review opens in a browser, where both can be done (--store says where originals go).

    Of several, or of all in and below a folder, each is planned to one row of JSON, on all cores, with a table of all
    behind them. Run again with the same -o, it goes on where it was ended.
    """
    transcript = transcripts[0]
    if len(transcripts) > 1 or transcript.is_dir():
        if edits or web or show_all or part is not None:
            raise click.UsageError("--set, --web, --all and --part are of one transcript.")
        how_each = replace(plan_options(**how), store=store)
        plan_files(transcripts, output, plans, how_each, workers=workers or all_cores(), cap=cap)
        return
    if plans or workers:
        raise click.UsageError("--plans and --workers are of many transcripts.")
    _spare(output, transcript=transcript)
    place = output or transcript.with_name(f"{transcript.stem}.plan.json")
    seen, read = digest_of(place), read_file(transcript, part)
    look_in(store)
    with working("planning…"):
        sheet = reviewed(planned(read, transcript, **how), read.messages, edits)
    if web:
        _review_in_browser(sheet, read, transcript, how, output=place, seen=seen, store=store)
        return
    _show(sheet, output, seen, show_all=show_all, as_json=as_json)
    if output and not as_json:
        echo(f"\nThe plan is in {output}. Next: compactor apply {output} {transcript} -o VIEW")


@click.command
@_plan_file
@click.argument("transcript", required=False, type=options.EXISTING_FILE)
@options.output_option("Write the checked plan.")
@_edits
@click.option(
    "--brief",
    "brief_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Put the text of FILE (- for standard input) in place of the brief; the guards check each statement.",
)
@click.option("--edit", is_flag=True, help="Change the brief in your editor; the plan is saved, in PLAN without -o.")
@_showing
def review_command(
    plan_file: Path,
    transcript: Path | None,
    output: Path | None,
    edits: Sequence[Edit],
    brief_file: Path | None,
    edit: bool,
    part: int | None,
    web: bool,
    store: str | None,
    **how: bool,
) -> None:
    """Print the review of a plan, as changed by hand.

    Changes are made in the file, by --set or --brief (kept with -o), or by --edit. With TRANSCRIPT the guards check
    it again, and what removed turns leave in their place is shown. With --web all of it is shown in a browser, where
    saving writes PLAN (or -o), and applying writes the view beside TRANSCRIPT, originals to --store first.
    """
    _spare(output, transcript=transcript)
    place = output or plan_file
    seen, plan = digest_of(place), CompactionPlan.from_json(plan_file.read_bytes(), str(plan_file))
    if transcript is None:
        if edits or output or brief_file or edit or web:
            need = "--set, --brief, --edit, --web and -o need TRANSCRIPT too: the guards check against it."
            raise click.UsageError(need)
        _show(review_sheet(plan), None, seen, **how)
        return
    brief = read_text(brief_file) if brief_file else None
    if edit:
        edited = click.edit(plan.brief if brief is None else brief, extension=".md")
        output, brief = (output, brief) if edited is None else (place, edited)
    read = read_file(transcript, part)
    look_in(store)
    with working("checking…"):
        sheet = reviewed(plan, read.messages, edits, brief=brief)
    if web:
        planning = {"task": plan.task, "model": plan.provenance.model or None, "target_model": plan.target_model}
        _review_in_browser(sheet, read, transcript, planning, output=place, seen=seen, store=store)
        return
    _show(sheet, output, seen, **how)
    if edit and output:
        echo(f"saved: {output}", err=True)


def _spare(output: Path | None, **inputs: Path | None) -> None:
    """Refuse an `output` that is one of the `inputs`, by what each is: it would be lost."""
    for what, path in inputs.items():
        if output and path and output.exists() and output.samefile(path):
            raise click.UsageError(f"-o {output}: is the {what}, which would be lost: give another file.")


def _show(sheet: Sheet, output: Path | None, seen: str, *, show_all: bool, as_json: bool) -> None:
    """Print the review, its plan written to `output` first unless that is not what was `seen` there any more."""
    if output:
        write_unchanged(output, sheet.plan.to_json(), seen)
    if as_json:
        print_json(sheet.to_json())
    else:
        print_sheet(screen(), sheet, whole=show_all)


def _review_in_browser(
    sheet: Sheet,
    read: Transcript,
    transcript: Path,
    how: Mapping[str, Any],
    *,
    output: Path,
    seen: str,
    store: str | None,
) -> None:
    """Show the review until the page is finished or Ctrl-C: saving writes `output`, applying a view beside the old.

    A plan is made anew as `how` says, but for the target and the planner that are chosen there.
    """
    web = options.import_extra("applier.web", "web")
    view_file = transcript.with_name(f"{transcript.stem}.view{transcript.suffix}")

    def save(guarded: CompactionPlan) -> dict[str, str]:
        nonlocal seen
        seen = write_unchanged(output, guarded.to_json(), seen)
        echo(f"saved: {output}", err=True)
        return {"message": f"The plan is in {output.name}", "detail": ""}

    def write(sheet: Sheet) -> dict[str, str]:
        if not sheet.changes:
            return {"message": "Nothing changes: nothing was written", "detail": ""}
        write_view(sheet, read, view_file, store)
        sizes, originals = _outcome(sheet).split(". ")
        echo(f"applied: {view_file}; {originals}", err=True)
        return {"message": f"{sizes}: the view is in {view_file.name}", "detail": originals}

    def replan(wanted: Any) -> CompactionPlan:
        return planned(read, transcript, **{**how, "target_ratio": None, **wanted.model_dump()})

    with working("checking…"):
        names = {"plan": output.name, "view": view_file.name}
        page = web.Review(sheet.plan, read.messages, names, save=save, apply=write, replan=replan)
    show_page(web.PageServer(page))


@click.command
@_plan_file
@options.transcript
@options.output_option("Where the new transcript goes; - for standard output.", allow_dash=True)
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@_edits
@options.part
@options.store_option
@options.as_json
def apply_command(
    plan_file: Path,
    transcript: Path,
    output: Path | None,
    dry_run: bool,
    edits: Sequence[Edit],
    part: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Apply a plan and write the new transcript.

    FILE has the format of TRANSCRIPT; of a session log it is a log with a session id of its own (`compactor resume`
    puts it where the client looks). Every original is in the store before the view is written.
    """
    if output is None and not dry_run:
        raise click.UsageError("say by -o where the new transcript goes, or --dry-run.")
    _spare(output, plan=plan_file, transcript=transcript)
    read = read_file(transcript, part)
    look_in(store)
    with working("applying…"):
        plan = CompactionPlan.from_json(plan_file.read_bytes(), str(plan_file))
        sheet = reviewed(plan, read.messages, edits)
        if output and not dry_run:
            write_view(sheet, read, output, store)
    aside = str(output) == "-"
    if as_json:
        print_json({**sheet.to_json(), "applied": not dry_run, "output": str(output or "")}, err=aside)
        return
    for finding in sheet.plan.findings:
        if finding not in plan.findings:
            echo(finding_line(finding), err=True)
    echo(_outcome(sheet, dry_run=dry_run), err=aside)


def _outcome(sheet: Sheet, *, dry_run: bool = False) -> str:
    plan = sheet.plan
    before, after = plan.history.tokens, plan.estimated_tokens
    if not sheet.changes:
        return f"Nothing changes: all {before:,} tokens stay."
    if dry_run:
        return f"{before:,} tokens would become {after:,}."
    removed = next(own.turn_id for own in plan.turns if own.strategy != "keep")
    originals = f"compactor restore {history_key(plan.history.digest)}:{removed}"
    return f"{before:,} tokens became {after:,}. Originals: {originals}"


@click.command
@click.argument("view", type=options.EXISTING_FILE)
@options.output_option(required=True)
@options.store_option
@options.as_json
def undo_command(view: Path, output: Path, store: str | None, as_json: bool) -> None:
    """Write the whole history behind a view again.

    VIEW is a transcript that `compactor apply` wrote; the agent may have gone on with it. FILE gets the originals
    and, behind them, what was added to VIEW since.
    """
    read = read_file(view)
    if not holds_view(read.messages):
        raise ReferenceNotFound(f"{view}: holds no compacted part: nothing to undo")
    with options.existing_store(store) as opened:
        earlier = originals_behind(opened, read.messages)
        if earlier is None:
            cure = "was edited since, or is of another store: --store names it; `compactor restore` still works"
            raise StalePlan(f"{view}: what stands in place of the originals {cure}")
        key, originals = earlier.key, len(opened.load_history(earlier.key).messages)
        write_whole(output, write_transcript(earlier.messages, read))
        opened.record_event({"time": time.time(), "kind": "undo", "history": key, "message": f"{key} to {output}"})
    added = len(earlier.messages) - originals
    if as_json:
        print_json({"history": key, "originals": originals, "added": added, "output": str(output)})
    else:
        echo(f"{originals} original messages and {added} added since are in {output}")


@click.command
@click.option(
    "--copy",
    metavar="FILE",
    type=options.OUTPUT_FILE,
    help="Only write the demo's transcript to FILE, to try the other commands on.",
)
@options.show_all
@options.as_json
def demo_command(copy: Path | None, show_all: bool, as_json: bool) -> None:
    """Do all of it on a real agent's run.

    Plans, reviews, applies and restores a transcript that ships with the package. Works
    offline, by rules; the store is a temporary one.
    """
    text = importlib.resources.files("applier.eval").joinpath("transcript.json").read_text("utf-8")
    if copy:
        write_whole(copy, text)
        return
    with working("planning…"):
        read = read_transcript(text)
        messages = read.messages[:-1]  # as it stood when the model was called for the last time: then one compacts
        sheet = reviewed(plan_compaction(messages, read.task, planner="rules", target_ratio=0.25), messages)
        view, removed = _apply_and_restore(sheet.plan, messages)
    if as_json:
        print_json({**sheet.to_json(), "restored_turns": len(removed)})
        return
    print_sheet(screen(), sheet, whole=show_all)
    violations = len(check_messages(view))
    breaches = f"breaks {violations} rules" if violations else "breaks no rule"
    echo(
        f"\nApplied: {len(messages)} messages of {sheet.plan.history.tokens:,} tokens became "
        f"{len(view)} of {sheet.plan.estimated_tokens:,}; the list {breaches} of the Messages API."
    )
    echo(f"Restored: all {len(removed)} removed turns came back byte-exact, {removed[0]} for one.")
    echo("Your own: compactor plan TRANSCRIPT --task '…'")


def _apply_and_restore(plan: CompactionPlan, messages: Sequence[Message]) -> tuple[list[Any], list[str]]:
    """The view, and the references of all removed turns, each of which came back as it was."""
    history = read_history(messages)
    removed = {f"{history_key(history.digest)}:{own.turn_id}": own for own in plan.turns if own.strategy != "keep"}
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        view = apply(plan, messages, store=store)
        for reference, own in removed.items():
            if store.restore(reference).messages != history.messages_of(history.by_id[own.turn_id]):
                raise StoreDamaged(f"{reference} did not come back as it was")
    return view, list(removed)
