"""`compactor plan`, `review`, `apply` and `undo`: a plan is made, shown, changed by hand, carried out, taken back.

Nothing is written but the plan and the transcript that were asked for, and to the store before a transcript without
the originals.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import click

from applier.adapters.transcripts import Transcript, write_transcript
from applier.cli.files import digest_of, read_file, read_plan, read_text, refuse_changed, write_whole
from applier.cli.options import (
    EXISTING_FILE,
    OutputFile,
    as_json,
    existing_store,
    import_extra,
    part,
    show_all,
    store_option,
    together,
    transcript,
    turn_ranges,
)
from applier.cli.planning import first_removed, planned, planning_options, view_text
from applier.cli.print_sheet import finding_line, print_sheet
from applier.cli.screen import echo, print_data, print_json, screen, show_page, working
from applier.sheet import Edit, Sheet, review_sheet, reviewed
from applier.store.secrets import redact_data
from applier.store.store import Store
from applier.view import look_in, preview
from planner.errors import ReferenceNotFound, StalePlan
from planner.layout import joined_messages
from planner.plan import CompactionPlan, Strategy
from planner.reading.messages import Message, blocks, message_digest

__all__ = ["apply_command", "plan_command", "review_command", "undo_command"]

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
_NOTE = re.compile(r'<compacted history="(h[0-9a-f]{8,64})"')
"""How what stands in place of a history begins; not the same without the attribute."""


class _EditType(click.ParamType[list[Edit]]):
    name = "TURNS=STRATEGY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Edit]:
        if isinstance(value, list):
            return value
        turns, _, wanted = str(value).partition("=")
        strategy = next((known for known in STRATEGIES if wanted == known), None)
        ranges = turn_ranges(turns) if strategy else []
        if strategy is None or not ranges:
            expected = (
                f"expected t12=STRATEGY, t12-t20=STRATEGY or t3,t12-t20=STRATEGY, one of {', '.join(STRATEGIES)}."
            )
            self.fail(f"{str(value)[:60]!r}: {expected}", param, ctx)
        return [Edit(first, last, strategy) for first, last in ranges]


_plan_file = click.argument("plan_file", metavar="PLAN", type=EXISTING_FILE)
_edits = click.option(
    "--set",
    "edits",
    type=_EditType(),
    multiple=True,
    callback=lambda _context, _option, values: tuple(chain.from_iterable(values)),
    help="Change decisions; the guards check again.",
)
_showing = together(
    part,
    show_all,
    as_json,
    click.option("--web", is_flag=True, help="Review in a browser on this machine: read, change, save and apply."),
    store_option,
)


@click.command
@transcript
@planning_options
@click.option("-o", "--output", metavar="FILE", type=OutputFile(), help="Write the plan there.")
@_edits
@_showing
def plan_command(
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
    _spare("transcript", transcript, output)
    read = read_file(transcript, part)
    look_in(store)
    with working("planning…"):
        sheet = reviewed(planned(read, transcript, **how), read.messages, edits, fold=not show_all)
    if web:
        place = output or transcript.with_name(f"{transcript.stem}.plan.json")
        _review_in_browser(sheet.plan, read, transcript, output=place, seen=digest_of(place), store=store)
        return
    _show(sheet, output, show_all=show_all, as_json=as_json)
    if output and not as_json:
        echo(f"\nThe plan is in {output}. Next: compactor apply {output} {transcript} -o VIEW")


@click.command
@_plan_file
@click.argument("transcript", required=False, type=EXISTING_FILE)
@click.option("-o", "--output", metavar="FILE", type=OutputFile(), help="Write the checked plan.")
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

    Changes are made in the file, by --set or --brief (kept with -o), or by --edit. With TRANSCRIPT the guards check
    it again, and what removed turns leave in their place is shown. With --web all of it is shown in a browser, where
    saving writes PLAN (or -o), and applying writes the view beside TRANSCRIPT, originals to --store first.
    """
    _spare("transcript", transcript, output)
    place = output or plan_file
    seen, plan = digest_of(place), read_plan(plan_file)
    if transcript is None:
        if edits or output or brief_file or edit or web:
            need = "--set, --brief, --edit, --web and -o need TRANSCRIPT too: the guards check against it."
            raise click.UsageError(need)
        _show(review_sheet(plan, fold=not show_all), None, show_all=show_all, as_json=as_json)
        return
    brief = read_text(brief_file) if brief_file else None
    if edit:
        edited = click.edit(plan.brief if brief is None else brief, extension=".md")
        output, brief = (output, brief) if edited is None else (place, edited)
    read = read_file(transcript, part)
    look_in(store)
    with working("checking…"):
        sheet = reviewed(plan, read.messages, edits, brief=brief, fold=not show_all)
    if web:
        _review_in_browser(sheet.plan, read, transcript, output=place, seen=seen, store=store)
        return
    if output:
        refuse_changed(output, seen)
    _show(sheet, output, show_all=show_all, as_json=as_json)
    if edit and output:
        echo(f"saved: {output}", err=True)


def _spare(what: str, path: Path | None, output: Path | None) -> None:
    """Refuse an `output` that is the input `path`, by what each is: it would be lost."""
    if output and path and output.exists() and output.samefile(path):
        raise click.UsageError(f"-o {output}: is the {what}, which would be lost: give another file.")


def _show(sheet: Sheet, output: Path | None, *, show_all: bool, as_json: bool) -> None:
    if output:
        write_whole(output, sheet.plan.to_json())
    if as_json:
        print_json(sheet.to_json())
    else:
        print_sheet(screen(), sheet, whole=show_all)


def _review_in_browser(
    plan: CompactionPlan, read: Transcript, transcript: Path, *, output: Path, seen: str, store: str | None
) -> None:
    """Show the review until the page is finished or Ctrl-C: saving writes `output`, applying a view beside the old."""
    web = import_extra("applier.web", "web")
    view_file = transcript.with_name(f"{transcript.stem}.view{transcript.suffix}")

    def save(guarded: CompactionPlan) -> dict[str, str]:
        nonlocal seen
        refuse_changed(output, seen)
        write_whole(output, guarded.to_json())
        seen = digest_of(output)
        echo(f"saved: {output}", err=True)
        return {"message": f"The plan is in {output.name}", "detail": ""}

    def apply(sheet: Sheet) -> dict[str, str]:
        if not sheet.changes:
            return {"message": "Nothing changes: nothing was written", "detail": ""}
        _write_view(sheet, read, view_file, store)
        originals = f"compactor restore {first_removed(sheet.plan)}"
        echo(f"applied: {view_file}; originals: {originals}", err=True)
        sizes = f"{sheet.plan.history.tokens:,} tokens became {sheet.plan.estimated_tokens:,}"
        return {"message": f"{sizes}: the view is in {view_file.name}", "detail": f"Originals: {originals}"}

    with working("checking…"):
        page = web.Review(plan, read.messages, plan_name=output.name, view_name=view_file.name, save=save, apply=apply)
    show_page(web.PageServer(page))


@click.command
@_plan_file
@transcript
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=OutputFile(allow_dash=True),
    help="Where the new transcript goes; - for standard output.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@_edits
@part
@store_option
@as_json
def apply_command(
    plan_file: Path,
    transcript: Path,
    output: Path | None,
    dry_run: bool,
    edits: tuple[Edit, ...],
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
    _spare("plan", plan_file, output)
    _spare("transcript", transcript, output)
    read = read_file(transcript, part)
    look_in(store)
    with working("applying…"):
        plan = read_plan(plan_file)
        sheet = reviewed(plan, read.messages, edits)
        if output and not dry_run:
            _write_view(sheet, read, output, store)
    aside = str(output) == "-"
    for finding in () if as_json else sheet.plan.findings:
        if finding not in plan.findings:
            echo(finding_line(finding), err=True)
    if as_json:
        print_json({**sheet.to_json(), "applied": not dry_run, "output": str(output or "")}, err=aside)
    else:
        echo(_outcome(sheet, dry_run=dry_run), err=aside)


def _write_view(sheet: Sheet, read: Transcript, output: Path, store: str | None) -> None:
    text = view_text(sheet, read, output, store, session_id=str(uuid4()) if read.client else "")
    if str(output) == "-":
        print_data(text)
    else:
        write_whole(output, text)


def _outcome(sheet: Sheet, *, dry_run: bool) -> str:
    before, after = sheet.plan.history.tokens, sheet.plan.estimated_tokens
    if not sheet.changes:
        return f"Nothing changes: all {before:,} tokens stay."
    if dry_run:
        return f"{before:,} tokens would become {after:,}."
    return f"{before:,} tokens became {after:,}. Originals: compactor restore {first_removed(sheet.plan)}"


@click.command
@click.argument("view", type=EXISTING_FILE)
@click.option("-o", "--output", metavar="FILE", required=True, type=OutputFile())
@store_option
@as_json
def undo_command(view: Path, output: Path, store: str | None, as_json: bool) -> None:
    """Write the whole history behind a view again.

    VIEW is a transcript that `compactor apply` wrote; the agent may have gone on with it. FILE gets the originals
    and, behind them, what was added to VIEW since.
    """
    read = read_file(view)
    key = _compacted_history(read.messages, view)
    with existing_store(store) as opened:
        originals = list(opened.load_history(key).messages)
        added = _added(opened, key, read.messages, view)
        write_whole(output, write_transcript([*originals, *added], read))
        opened.record_event({"time": time.time(), "kind": "undo", "history": key, "message": f"{key} to {output}"})
    if as_json:
        print_json({"history": key, "originals": len(originals), "added": len(added), "output": str(output)})
    else:
        echo(f"{len(originals)} original messages and {len(added)} added since are in {output}")


def _compacted_history(messages: Sequence[Message], view: Path) -> str:
    """The key in the note that stands in place of the originals."""
    texts = (str(block.get("text", "")) for message in messages for block in blocks(message) if block["type"] == "text")
    note = next(filter(None, map(_NOTE.search, texts)), None)
    if note is None:
        raise ReferenceNotFound(f"{view}: holds no compacted part: nothing to undo")
    return note[1]


def _added(store: Store, key: str, messages: Sequence[Message], view: Path) -> list[Any]:
    """The messages behind the view, by the newest plan whose view `messages` begin with.

    A stored plan has no secrets, so views are compared without them. And neighbours of one role as one message, for
    OpenAI's form has results and the words beside them one by one.
    """
    history = store.load_history(key)
    ends = [at for at in range(1, len(messages)) if messages[at]["role"] != messages[at - 1]["role"]] + [len(messages)]
    single, joined = _digests(messages), _digests(joined_messages((), messages))
    for plan_id in reversed(store.plans(key)):
        shown = preview(store.load_plan(plan_id), history.messages).messages
        rendered = _digests(shown)
        if single[: len(rendered)] == rendered:
            return list(messages[len(rendered) :])
        rendered = _digests(joined_messages((), shown))
        if joined[: len(rendered)] == rendered and len(joined) == len(ends):
            return list(messages[ends[len(rendered) - 1] :])
    raise StalePlan(f"{view}: what stands in place of {key} was edited since: `compactor restore {key}:t1` still works")


def _digests(messages: Sequence[Message]) -> list[str]:
    return [message_digest(redact_data(message)) for message in messages]
