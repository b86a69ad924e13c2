"""`compactor plan`, `review`, `apply`, `demo`, `prompts`: make, show, change and apply a plan; copy the prompts for it.

A plan decides for each turn of a conversation whether it is kept, summarized or replaced. Only files that the user
named are written; and, from the page of ``--web``, a plan and a transcript beside the user's. The original turns are
stored before a compacted transcript is written.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

import click
from rich.console import Console

from applier.adapters.transcripts import Transcript, read_transcript
from applier.cli import options
from applier.cli.files import digest_of, read_file, read_plan, read_text, write_unchanged, write_whole
from applier.cli.plan_transcripts import plan_files, plan_options, planned, planning_options, write_view
from applier.cli.screen import echo, print_json, print_sections, screen, show_page
from applier.plan_review import Edit, PlanReview, reviewed
from applier.processes import all_cores
from applier.store.opening import temporary_store
from applier.view import apply, look_in
from planner.api import plan_compaction
from planner.errors import SettingsError, StalePlan, StoreDamaged
from planner.model.prompts import PROMPTS, load_prompts
from planner.placeholders import history_key
from planner.plan import CompactionPlan, Strategy
from planner.reading.messages import Message, read_history
from planner.reading.secrets import redact
from planner.review_text import finding_line, plan_notes, review_sections
from planner.validity import check_messages

_PLACE = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
DEMO_LINES = 3
"""Number of lines that `demo` shows of each section of the review, so that all sections fit on about two screens."""
DEMO_BRIEF_LINES = 6
"""Number of lines that `demo` shows of the brief (the page of memory at the top of the compacted conversation)."""


def _edits_of(text: str) -> list[Edit]:
    """Return the changes of a plan in a value of the option ``--set``: ``t12=keep`` or ``t3,t20-t25=drop``."""
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
    help="Change decisions, such as t12=keep or t3,t20-t25=drop; the guards check again.",
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
@options.output_option("Write the plan to FILE; for several transcripts, the rows.")
@_edits
@_showing
@click.option("--plans", metavar="DIR", type=_FOLDER, help="With several transcripts: also write each plan into DIR.")
@click.option("--workers", type=click.IntRange(1), help="With several transcripts: processes (default: one a core).")
@click.option(
    "--cap", type=click.FloatRange(0), default=1.0, show_default=True, help="With several: dollars a model may cost."
)
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
    **planning: Any,
) -> None:
    """Plan a compaction and print the review.

    TRANSCRIPT holds Anthropic or OpenAI messages (JSON or JSONL), a Claude Code session or a Codex rollout.
    Only the plan is written, to the file named by -o. Edit that file or use --set, then run `compactor apply`.
    With --web the review opens in a browser; originals of an applied plan go to --store.

    Several transcripts, or a folder of them, are planned on all cores, with one row of JSON each and a table at the
    end. The same command with the same -o continues an interrupted run.
    """
    transcript = transcripts[0]
    if len(transcripts) > 1 or transcript.is_dir():
        if edits or web or show_all or part is not None:
            raise click.UsageError("--set, --web, --all and --part need a single transcript.")
        options_of_all = replace(plan_options(**planning), store=store)
        plan_files(transcripts, output, plans, options_of_all, workers=workers or all_cores(), cap=cap)
        return
    if plans or workers:
        raise click.UsageError("--plans and --workers need several transcripts or a folder.")
    options.check_output(output, transcript=transcript)
    plan_place = output or transcript.with_name(f"{transcript.stem}.plan.json")
    digest, conversation = digest_of(plan_place), read_file(transcript, part)
    look_in(store)
    with screen(stderr=True).status("planning…"):
        review = reviewed(planned(conversation, transcript, **planning), conversation.messages, edits)
    if web:
        _review_in_browser(review, conversation, transcript, planning, output=plan_place, digest=digest, store=store)
        return
    _show(review, output, digest, show_all=show_all, as_json=as_json)
    if output and not as_json:
        echo(f"\nWrote the plan to {output}. Next: compactor apply {output} {transcript} -o VIEW")


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
    help="Replace the brief by the text of FILE (- for standard input); the guards check each statement.",
)
@click.option("--edit", is_flag=True, help="Change the brief in your editor, then save the plan (-o, else PLAN).")
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
    **display: bool,
) -> None:
    """Print the review of a plan, with changes made by hand.

    Change a plan in its file, with --set or --brief (saved by -o), or with --edit. With TRANSCRIPT the guards check
    the plan again, and the review shows the text that replaces removed turns. With --web the review opens in a
    browser: saving writes PLAN (or -o), applying writes the view beside TRANSCRIPT after storing the originals.
    """
    options.check_output(output, transcript=transcript)
    plan_place = output or plan_file
    digest, plan = digest_of(plan_place), read_plan(plan_file)
    if transcript is None:
        if edits or output or brief_file or edit or web:
            need = "--set, --brief, --edit, --web and -o need TRANSCRIPT too, for the guards to check the plan."
            raise click.UsageError(need)
        _show(PlanReview(plan, plan_notes(plan)), None, digest, **display)
        return
    brief = read_text(brief_file) if brief_file else None
    if edit:
        edited = click.edit(plan.brief if brief is None else brief, extension=".md")
        if edited is not None:  # else the user closed the editor without saving
            output, brief = plan_place, edited
    conversation = read_file(transcript, part)
    look_in(store)
    with screen(stderr=True).status("checking…"), _named_in_error(transcript):
        review = reviewed(plan, conversation.messages, edits, brief=brief)
    if web:
        planning = {"task": plan.task, "model": plan.provenance.model or None, "target_model": plan.target_model}
        _review_in_browser(review, conversation, transcript, planning, output=plan_place, digest=digest, store=store)
        return
    _show(review, output, digest, **display)
    if edit and output:
        echo(f"saved: {output}", err=True)


@contextmanager
def _named_in_error(transcript: Path) -> Iterator[None]:
    """Add the name of the file `transcript` to the block's error that a plan was made for another conversation."""
    try:
        yield
    except StalePlan as error:
        raise StalePlan(f"{transcript}: {error}, or name the transcript that it was made for") from None


def print_review(console: Console, review: PlanReview, *, whole: bool = False, **limits: Any) -> None:
    """Print the review of a plan, with all turns and facts if `whole`. `limits`: further arguments of
    `review_sections`, such as the number of lines in each section."""
    cost = review.cost_text
    print_sections(console, review_sections(review.plan, review.notes, whole=whole, cost=cost, **limits), whole=whole)


def _show(review: PlanReview, output: Path | None, digest: str, *, show_all: bool, as_json: bool) -> None:
    """Write the reviewed plan to the file `output` (None: nowhere), and print the review. Raise an error if the file
    was changed during the command. `digest`: digest of its content at the start."""
    if output:
        write_unchanged(output, review.plan.to_json(), digest)
    if as_json:
        print_json(review.to_json())
    else:
        print_review(screen(), review, whole=show_all)
        if not show_all and review.notes.left:
            echo("\n--all shows each turn, the text left in its place, and all facts")


def _review_in_browser(
    review: PlanReview,
    conversation: Transcript,
    transcript: Path,
    planning: Mapping[str, Any],
    *,
    output: Path,
    digest: str,
    store: str | None,
) -> None:
    """Show a review of `conversation`, from the file `transcript`, in the browser until the user has finished.

    The page can save the plan to `output`, unless somebody changed that file since it had the `digest`. It can apply
    the plan: store the originals and write the compacted transcript (the view) next to `transcript`. And it can plan
    again, with the options `planning`.
    """
    web = options.import_extra("applier.web", "web")
    view_file = transcript.with_name(f"{transcript.stem}.view{transcript.suffix}")

    def save(guarded: CompactionPlan) -> dict[str, str]:
        """Write the plan to `output`; return messages for the page."""
        nonlocal digest
        digest = write_unchanged(output, guarded.to_json(), digest)
        echo(f"saved: {output}", err=True)
        return {"message": f"Saved the plan to {output.name}", "detail": ""}

    def write(review: PlanReview) -> dict[str, str]:
        """Apply the plan, and write the compacted transcript; return messages for the page."""
        if not review.changes:
            return {"message": "Nothing changes: nothing was written", "detail": ""}
        write_view(review, conversation, view_file, store)
        originals = _originals(review)
        echo(f"applied: {view_file}; {originals}", err=True)
        return {"message": f"{_sizes(review)}. The view is in {view_file.name}", "detail": originals}

    def replan(page_options: Any) -> CompactionPlan:
        """Return a new plan with the options of the page, such as another target size."""
        return planned(conversation, transcript, **{**planning, "target_ratio": None, **page_options.model_dump()})

    with screen(stderr=True).status("checking…"):
        names = {"plan": output.name, "view": view_file.name}
        page = web.ReviewPage(review.plan, conversation.messages, names, save=save, apply=write, replan=replan)
    show_page(web.PageServer(page))


@click.command
@_plan_file
@options.transcript
@options.output_option("Write the new transcript to FILE; - for standard output.", allow_dash=True)
@click.option("--dry-run", is_flag=True, help="Print the result; write nothing.")
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

    FILE gets the format of TRANSCRIPT. From a session log it becomes a log with a new session id, and
    `compactor resume` puts it where the client looks. The originals are stored before the view is written.
    """
    if output is None and not dry_run:
        raise click.UsageError("name the new transcript with -o FILE, or use --dry-run.")
    options.check_output(output, plan=plan_file, transcript=transcript)
    conversation = read_file(transcript, part)
    look_in(store)
    with screen(stderr=True).status("applying…"), _named_in_error(transcript):
        plan = read_plan(plan_file)
        review = reviewed(plan, conversation.messages, edits)
        if output and not dry_run:
            write_view(review, conversation, output, store)
    to_stderr = str(output) == "-"
    if as_json:
        print_json({**review.to_json(), "applied": not dry_run, "output": str(output or "")}, err=to_stderr)
        return
    for finding in review.plan.findings:
        if finding not in plan.findings:
            echo(redact(finding_line(finding), review.plan.secrets), err=True)
    before, after = review.plan.history.tokens, review.plan.estimated_tokens
    if not review.changes:
        echo(f"Nothing changes: all {before:,} tokens stay.", err=to_stderr)
    elif dry_run:
        echo(f"{before:,} tokens would become {after:,}.", err=to_stderr)
    else:
        echo(f"{_sizes(review)}. {_originals(review)}", err=to_stderr)


def _sizes(review: PlanReview) -> str:
    """Return ``9,000 tokens became 2,000``, with the sizes in the reviewed plan."""
    return f"{review.plan.history.tokens:,} tokens became {review.plan.estimated_tokens:,}"


def _originals(review: PlanReview) -> str:
    """Return a text with the command that restores the first turn that is not kept, as an example for all of them."""
    removed = next(decision.turn_id for decision in review.plan.turns if decision.strategy != "keep")
    return f"Originals: compactor restore {history_key(review.plan.history.digest)}:{removed}"


@click.command
@click.option(
    "--copy",
    metavar="FILE",
    type=options.OUTPUT_FILE,
    help="Only write the demo's transcript to a new FILE, for trying the other commands.",
)
@options.show_all
@options.as_json
def demo_command(copy: Path | None, show_all: bool, as_json: bool) -> None:
    """Plan, review, apply and restore a real agent's run.

    The transcript ships with the package. The rules planner works offline; the store is temporary.
    """
    text = importlib.resources.files("applier.eval").joinpath("transcript.json").read_text("utf-8")
    data = json.loads(text)
    data["messages"].pop()  # remove the last answer, as an agent compacts before a call of the model
    if copy:
        if copy.exists():
            raise click.UsageError(f"--copy {copy}: exists already: name a new file.")
        write_whole(copy, json.dumps(data, ensure_ascii=False, indent=1) + "\n")
        return
    with screen(stderr=True).status("planning…"):
        conversation = read_transcript(data)
        plan = plan_compaction(conversation.messages, conversation.task, planner="rules", target_ratio=0.25)
        review = reviewed(plan, conversation.messages)
        view, removed = _apply_and_restore(review.plan, conversation.messages)
    if as_json:
        print_json({**review.to_json(), "restored_turns": len(removed)})
        return
    print_review(screen(), review, whole=show_all, most=DEMO_LINES, brief_lines=DEMO_BRIEF_LINES)
    violations = len(check_messages(view))
    breaches = f"has {violations} violations" if violations else "breaks no rule"
    echo(
        f"\nApplied: {len(conversation.messages)} messages of {review.plan.history.tokens:,} tokens became "
        f"{len(view)} of {review.plan.estimated_tokens:,}; the list {breaches} of the Messages API."
    )
    echo(f"Restored: all {len(removed)} removed turns came back byte-exact, for example {removed[0]}.")
    echo("Next: compactor demo --all shows everything; compactor plan TRANSCRIPT --task '…' plans your own.")


def _apply_and_restore(plan: CompactionPlan, messages: Sequence[Message]) -> tuple[list[Any], list[str]]:
    """Apply `plan` to `messages` with a temporary store, and restore every turn that the plan does not keep. Return the
    compacted messages, and the references (``h1a2b3c4d:t12``) by which these turns were restored. Raise StoreDamaged if
    a restored turn is not as it was."""
    history = read_history(messages)
    turn_ids = (decision.turn_id for decision in plan.turns if decision.strategy != "keep")
    removed = {f"{history_key(history.digest)}:{turn_id}": turn_id for turn_id in turn_ids}
    with temporary_store() as store:
        view = apply(plan, messages, store=store)
        for reference, turn_id in removed.items():
            if store.restore(reference).messages != history.messages_of(history.by_id[turn_id]):
                raise StoreDamaged(f"{reference} was restored with other content")
    return view, list(removed)


@click.group
def prompts_command() -> None:
    """Copy the planner's prompts."""


@prompts_command.command
@click.argument("folder", type=_FOLDER)
def copy(folder: Path) -> None:
    """Copy the packaged prompts to FOLDER, for editing and for --prompts FOLDER."""
    present = [name for name in sorted(PROMPTS) if (folder / f"{name}.md").exists()]
    if present:
        raise SettingsError(f"{folder / present[0]}.md exists already: name a new folder, or delete it first")
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in load_prompts().files.items():
        write_whole(folder / f"{name}.md", path.read_text("utf-8"))
    echo(f"{len(PROMPTS)} prompts copied; use them with --prompts {folder}")
