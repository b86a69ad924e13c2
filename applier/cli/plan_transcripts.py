"""Plans one transcript, and writes its compacted form (the view); or plans many, with one row of results for each.

A row is a line of JSON with the sizes of one file's plan, or with the reason why there is none. A run over many files
can be continued: a file is not planned again if a row has the sizes of a plan for its present content.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import click

from applier.adapters.transcripts import Transcript, transcript_files, write_transcript
from applier.adapters.transcripts.document import file_content
from applier.cli.files import make_folder, write_whole
from applier.cli.options import MOST_FAILURES, SHARE, check_cap, task, together
from applier.cli.screen import echo, print_data, print_table, progress, shorten
from applier.fleet import DIED, EMPTY_ROW, PlanOptions, Row, content_digest, plan_row
from applier.plan_review import PlanReview
from applier.processes import in_processes
from applier.settings import load_settings
from applier.store.opening import open_store
from applier.view import apply
from planner.api import asks_model, name_of_planner
from planner.errors import PlanError, PlannerUnavailable, SettingsError, TranscriptError
from planner.placeholders import history_key
from planner.plan import CompactionPlan, Usage
from planner.prices import assumed_dollars, money
from planner.settings import PlannerName

planning_options = together(
    task,
    click.option("--target-tokens", type=click.IntRange(1, 10**9), metavar="N", help="Most tokens of the view."),
    click.option(
        "--target-ratio",
        type=SHARE,
        metavar="R",
        help="Most tokens of the view, as a share of the history (default: 0.25).",
    ),
    click.option("--focus", metavar="TEXT", help="Subject to keep above all."),
    click.option(
        "--planner",
        type=click.Choice(get_args(PlannerName)),
        help="Planner (default: auto, which is the model if there is a key, else rules).",
    ),
    click.option("--model", help="Planner model, or an instructor provider string."),
    click.option("--target-model", metavar="MODEL", help="Model that will read the view; decides token counts."),
    click.option(
        "--prompts",
        "prompts_dir",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="Your own folder of prompts.",
    ),
)
"""Options of several commands about how to plan. The function `planned` takes their values as keyword arguments."""


def plan_options(*, planner: Any = None, target_model: str | None = None, **more: Any) -> PlanOptions:
    """Return how to plan: by the values of `planning_options`, and by the user's settings where one is missing."""
    if more.get("target_tokens") and more.get("target_ratio"):
        raise click.UsageError("--target-tokens and --target-ratio exclude each other: use one.")
    user = load_settings()
    settings = user.plan.model_copy(update={"target_model": target_model or user.plan.target_model})
    model = more.pop("model", None) or user.planner_model or None
    return PlanOptions(
        planner=planner or user.planner, model=model, settings=settings, tool_uses=user.tool_uses, **more
    )


def planned(transcript: Transcript, name: object, **planning: Any) -> CompactionPlan:
    """Plan a compaction of `transcript`, from the file `name`, with the values of `planning_options` (`planning`). If a
    model should plan but failed, so that rules planned, print the reason on standard error."""
    options = plan_options(**planning)
    if transcript.messages and not options.task_of(transcript):
        raise click.UsageError(f"{name} has no task: name it with --task.")
    plan = options.plan(transcript)
    if plan.provenance.planner == "rules" and asks_model(options.planner, options.model):
        echo("\n".join(plan.provenance.notes), err=True)
    return plan


def write_view(
    review: PlanReview, transcript: Transcript, output: Path, store: str | None, session_id: str = ""
) -> None:
    """Apply the reviewed plan to `transcript`: store the originals, the plan and its facts in `store`, then write the
    compacted transcript (the view) to `output` (``-``: standard output) in the same format. A client's session log
    becomes the log of a new session with the id `session_id`; if that is empty, with a random one."""
    view, plan, now = transcript.messages, review.plan, time.time()
    session_id = session_id or (str(uuid4()) if transcript.client else "")
    if review.changes:
        with open_store(store) as opened:
            key = history_key(plan.history.digest)
            view = apply(plan, transcript.messages, store=opened)
            opened.note_origin(key, transcript.working_folder, now)
            plan_id = opened.save_plan(plan)
            opened.save_facts(plan.extracted_facts, key, plan.secrets)
            sizes = {"tokens_before": plan.history.tokens, "tokens_after": plan.estimated_tokens}
            event = {"time": now, "kind": "apply", "history": key, "plan": plan_id, **sizes}
            event |= {"message": f"{key} to {output}", "dollars": review.cost["dollars"]}
            opened.record_event(event | ({"session": session_id} if session_id else {}))
    text = write_transcript(view, transcript, session_id=session_id)
    if str(output) == "-":
        print_data(text)
    else:
        write_whole(output, text)


TOKENS_A_BYTE = 0.3
"""Rough number of tokens in a byte of a transcript, to estimate costs without counting."""
SHOWN_REASONS = 10
"""Largest number of reasons for missing plans that are printed at the end of a run."""
SUMMED_FIELDS = ("messages", "tokens_before", "tokens_after", "keep", "summarize", "reference", "drop", "failures")
"""Fields of rows that are added up in the table printed at the end of a run."""
_ROW = b'{"path": '
"""Beginning of each row in a file."""
_PLACE = re.compile(r"line \d+(?:, column \d+)?: ")
"""Place in an error text (``line 3: ``), which is removed to count equal errors of different files."""


@dataclass(frozen=True)
class _Report:
    """Results of a run over many files: one row for each, in a file or on standard output."""

    rows: dict[str, Row]
    """Rows of this and of earlier runs, by the path of the transcript."""
    output: Path | None = None
    """File of the rows; None means standard output."""
    file: int = -1
    """Descriptor of the open and locked file; -1 without a file."""

    def add(self, row: Row) -> None:
        """Write `row` at the end of the file, whole or not at all, or print it. Keep it in `rows`, without its plan."""
        line = json.dumps(row).encode() + b"\n"
        if self.output is None:
            print_data(line.decode())
        else:
            size = os.fstat(self.file).st_size
            try:
                while line:  # the system may write only a part
                    line = line[os.write(self.file, line) :]
            except BaseException as error:  # also Ctrl-C
                with suppress(OSError):
                    os.ftruncate(self.file, size)
                if isinstance(error, OSError):
                    error.filename = str(self.output)
                raise
        self.rows[row["path"]] = row | {"plan": ""}


def plan_files(
    places: Sequence[Path], output: Path | None, plans: Path | None, options: PlanOptions, *, workers: int, cap: float
) -> None:
    """Plan all transcripts in `places` (files and folders) in `workers` processes, and write a row for each to the file
    `output`, or on standard output if it is None. A transcript with a row of an earlier run is not planned again, if
    its content is still the same.

    `plans`: folder for the plans themselves; None to write none. The run does not begin if a model may cost more than
    `cap` dollars, and stops when it has cost more.
    """
    options = _resolved(replace(options, with_plan=plans is not None))
    excluded = [os.path.realpath(place) for place in (output, plans) if place]  # may be in a folder of `places`
    all_paths = transcript_files(places)
    paths = [
        str(path)
        for path in all_paths
        if not any(Path(os.path.realpath(path)).is_relative_to(result) for result in excluded)
    ]
    if not paths:
        raise TranscriptError(f"{places[0]}: contains no transcripts (.json, .jsonl)")
    finished, size = _finished_rows(output, options.digest) if output and output.is_file() else ({}, 0)
    due = [path for path in paths if not _is_current(finished.get(path), path)]
    _check_cost(due, options, cap)
    for path in due:
        finished.pop(path, None)
    with _report(output, finished, size) as report:
        try:
            _plan_due(due, options, report, plans, workers=workers, cap=cap)
        finally:
            rows = [report.rows[path] for path in paths if path in report.rows]
            _print_table(rows, planned_before=len(paths) - len(due), left=len(paths) - len(rows))
    if failed := sum(bool(row["error"]) for row in rows):
        raise TranscriptError(f"not planned: {failed} of {len(paths)} files; the reasons are in their rows")


def _resolved(options: PlanOptions) -> PlanOptions:
    """Return `options` with the planner ``model`` or ``rules`` in place of ``auto``, so that the same one plans all
    files. With a model they also contain the digest of its prompts, because other prompts give other plans."""
    if not asks_model(options.planner, options.model):
        return replace(options, planner="rules", model=None)
    from planner.model.prompts import load_prompts

    return replace(options, planner="model", prompts=load_prompts(options.prompts_dir).hash)


def _finished_rows(output: Path, options: str) -> tuple[dict[str, Row], int]:
    """Return the rows of earlier runs in the file `output`, by the transcript's path, and the file's size in bytes.

    An incomplete row at the end, of an interrupted run, is ignored. Raise SettingsError if another line is not a row,
    or was made with other options than the present ones (`options`: their digest).
    """
    content = output.read_bytes()
    *lines, last = content.split(b"\n")  # a whole row ends with a line end, so that the last is empty or incomplete
    is_incomplete_row = last[: len(_ROW)] == _ROW[: len(last)]  # begins as a row does, as far as it goes
    rows: dict[str, Row] = {}
    for number, line in enumerate(lines if is_incomplete_row else [*lines, last], 1):
        row = None
        with suppress(ValueError):
            row = json.loads(line)
        if not isinstance(row, dict) or row.keys() != EMPTY_ROW.keys():
            raise SettingsError(f"{output}, line {number}: is not a row of planned files: name another file with -o")
        if row["options"] != options:
            raise SettingsError(f"{output}, line {number}: planned with other options: name another file with -o")
        rows[row["path"]] = row
    return rows, len(content)


def _is_current(row: Row | None, path: str) -> bool:
    """Return True if the file `path` need not be planned again, as `row` has no error and is about the file's present
    content. `row`: row of an earlier run; None without one."""
    try:
        return row is not None and not row["error"] and row["digest"] == content_digest(file_content(Path(path)))
    except TranscriptError:
        return False


@contextmanager
def _report(output: Path | None, rows: dict[str, Row], size: int) -> Iterator[_Report]:
    """Yield a report that appends rows to the file `output`, or prints them if it is None.

    The file is locked, so that no second run writes to it. If it has other lines than the earlier `rows` that are still
    valid, it is first written again with these alone. `size`: its length in bytes when they were read.
    """
    if output is None:
        yield _Report({})
        return
    file = _locked(output, size)
    try:
        text = "".join(json.dumps(row) + "\n" for row in rows.values())
        if size != len(text):
            write_whole(output, text)  # replaces the file that is locked
            os.close(file)
            file = _locked(output, len(text))
        yield _Report(rows, output, file)
    finally:
        os.close(file)


def _locked(output: Path, size: int) -> int:
    """Open the file `output` and lock it against other runs (not on Windows); return its descriptor. Raise
    SettingsError if another run has locked it, or has changed its length, which was `size`."""
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_size != size:
            raise BlockingIOError
    except BlockingIOError:
        os.close(file)
        raise SettingsError(f"{output}: another run writes to it: wait for it, or name another file with -o") from None
    return file


def _check_cost(due: Sequence[str], options: PlanOptions, cap: float) -> None:
    """Print how much a model may cost for the files `due`; raise SettingsError if it is more than `cap` dollars."""
    if options.planner == "rules" or not due:
        return
    model = name_of_planner(options.planner, options.model)
    estimated_cost = sum(assumed_dollars(model, _usage_at_most(path, options)) for path in due)
    cost = check_cap(f"{len(due)} files", model, estimated_cost, cap)
    echo(f"{len(due)} files to plan with {model}: {cost}, each asked once", err=True)


def _usage_at_most(path: str, options: PlanOptions) -> Usage:
    """Estimate the tokens that a model uses to plan the file `path`, if it answers each question at once, and at full
    length. A long transcript is planned in several pieces, with a question for each."""
    settings = options.settings
    tokens = TOKENS_A_BYTE * os.path.getsize(path) if os.path.isfile(path) else 0
    input_tokens = settings.first_input_tokens(tokens)
    pieces = math.ceil(input_tokens / settings.piece_tokens)
    return Usage(input_tokens=input_tokens, output_tokens=pieces * settings.max_output_tokens, requests=pieces)


def _plan_due(
    due: Sequence[str], options: PlanOptions, report: _Report, plans: Path | None, *, workers: int, cap: float
) -> None:
    """Plan the files `due` in `workers` processes; write each plan into the folder `plans` (None: nowhere), then its
    row into `report`. Raise PlanError once the model has cost more than `cap` dollars, or has failed for
    `MOST_FAILURES` files in a row."""
    spent, failures = 0.0, 0
    work = partial(plan_row, options=options)
    with progress("planning", len(due)) as step, closing(in_processes(work, due, workers)) as planned_rows:
        for path, planned_row in planned_rows:
            row = planned_row or EMPTY_ROW | DIED | {"path": path, "options": options.digest}  # None: process died
            if plans and row["plan"]:
                name = f"{Path(path).stem}-{content_digest(os.fsencode(path))[:8]}.plan.json"
                make_folder(plans)
                write_whole(plans / name, row["plan"])
                row |= {"plan": name}
            report.add(row)
            step()
            usage = Usage(input_tokens=row["input_tokens"], output_tokens=row["output_tokens"])
            spent += assumed_dollars(row["model"], usage)
            failures = failures + 1 if row["cause"] == PlannerUnavailable.__name__ else 0
            if failures >= MOST_FAILURES or spent > cap:
                why = f"{money(spent)} were spent" if spent > cap else row["error"]
                raise PlanError(f"stopped after {path}: {why}; run the command again to continue")


def _print_table(rows: Sequence[Row], *, planned_before: int, left: int) -> None:
    """Print a summary of `rows` on standard error (rows may go to standard output): sums for each file format, the most
    frequent errors with an example, and how many files an earlier run planned, or are `left` to be planned."""
    planned = [row for row in rows if not row["error"]]
    formats = sorted({row["format"] for row in planned})
    groups = {name: [row for row in planned if row["format"] == name] for name in formats}
    if len(formats) > 1:
        groups["all"] = planned
    titles = ("format", "files", *(field.replace("_", " ") for field in SUMMED_FIELDS))
    sums = {name: [sum(row[field] for row in group) for field in SUMMED_FIELDS] for name, group in groups.items()}
    table = ([name, *(f"{number:,}" for number in (len(groups[name]), *numbers))] for name, numbers in sums.items())
    print_table(titles, table, right=titles[1:], empty="no file planned", err=True)
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        if row["error"]:
            reasons.setdefault(shorten(_PLACE.sub("", row["error"], 1), 80), []).append(row)
    for reason, failed in sorted(reasons.items(), key=lambda item: -len(item[1]))[:SHOWN_REASONS]:
        echo(f"not planned: {len(failed)}, {reason} ({failed[0]['path']})", err=True)
    if planned_before:
        echo(f"{planned_before} were planned before", err=True)
    if left:
        echo(f"{left} left: run the command again to continue", err=True)
