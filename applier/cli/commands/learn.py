"""`compactor learn` and `commits`: propose lessons from a project's finished conversations, and list their commits.

Conversations are read from the store or from agents' session logs, if they are over, and the agent worked in the
project's folders. If a conversation's folder is unknown, it is guessed from the paths in it. Conversations that are
left out are reported with the reason. The project's files are written only after the user's yes, and a model is asked
only as long as it costs less than the user's limit.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from applier.adapters.transcripts import Transcript, read_transcript, transcript_files
from applier.cli import options
from applier.cli.files import make_folder, write_unchanged
from applier.cli.screen import day, echo, print_json, print_table, progress, shorten
from applier.learning.learned import FinishedConversation, LearnedFiles, Memory, difference, digest_of
from applier.learning.propose import MOST_CANDIDATES, ProposedLine, proposed_lines
from applier.learning.readers import ReadLessons, open_model, read_lessons, reading_cost, review_cost
from applier.processes import all_cores, in_processes
from applier.store.listing import is_within
from applier.store.opening import open_store, store_exists, temporary_store
from applier.store.store import Store
from planner.analysis import analyze
from planner.errors import CompactorError, PlannerUnavailable
from planner.plan import Usage
from planner.prices import money
from planner.reading.messages import History, read_history
from planner.settings import PlannerName

if TYPE_CHECKING:
    from planner.model.lessons import LessonsModel, ReviewedLine

OPEN_SECONDS = 3_600.0
"""A conversation with words that are less than these seconds old counts as unfinished."""
MANY = 32
"""Number of conversations from which they are read in several processes, as that is faster then."""
TOKENS_A_CHARACTER = 0.3
"""Rough number of tokens in a character, to estimate costs without counting."""


@dataclass(frozen=True)
class Unread:
    """Conversation from which no lessons are read, and the reason."""

    name: str
    """Name of its log, or its key in the store."""
    why: str
    """Reason: ``worked in /srv/other``, or the text of an error."""
    bad: bool = False
    """True if reading failed; False if the conversation is left out on purpose."""


def conversations_in(logs: Sequence[Path], projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations in the session logs `logs` (files and folders), except those that another one continues.

    A conversation is returned as `Unread`, with the reason, if its agent worked in none of the folders `projects`, if
    its last words are less than an hour old at the time `now`, or if it cannot be read.
    """
    paths, read = transcript_files(logs), partial(_from_log, projects=projects)
    pairs = in_processes(read, paths, all_cores()) if len(paths) >= MANY else ((path, read(path)) for path in paths)
    by_path = {path: found or Unread(path.name, "the process that read it died", bad=True) for path, found in pairs}
    return _finished([by_path[path] for path in paths], now)


def stored_conversations(store: Store, projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations in `store`, as `conversations_in` does for session logs."""
    return _finished([_from_store(store, history.key, projects) for history in store.histories()], now)


def _from_log(path: Path, projects: Sequence[str]) -> FinishedConversation | Unread:
    """Return the conversation in the log at `path`; as `Unread`, with the reason, if its agent worked in none of the
    folders `projects`, or if it cannot be read."""
    try:
        transcript = read_transcript(path)
        history, end = read_history(transcript.messages), _end_time(transcript)
        name = re.sub(r"[^\w.-]+", "-", path.stem)  # the lines of the project's files contain the name
        conversation = _conversation(name, history, end, partial(_load, path))
        folder = transcript.working_folder or _shared_folder(history)
        return _unread_if_elsewhere(path.name, folder, projects) or conversation
    except (CompactorError, OSError) as error:
        return Unread(path.name, str(error).removeprefix(str(path)).lstrip(",: "), bad=True)


def _load(path: Path) -> History:
    """Return the messages of the log at `path`."""
    return read_history(read_transcript(path).messages)


def _from_store(store: Store, key: str, projects: Sequence[str]) -> FinishedConversation | Unread:
    """Return the stored conversation `key`; as `Unread`, with the reason, if its agent worked in none of the folders
    `projects`, or if it cannot be read."""
    folder, end = store.origin(key)
    if folder and (elsewhere := _unread_if_elsewhere(key, folder, projects)):  # before its messages are read
        return elsewhere
    try:
        history = store.load_history(key)
    except CompactorError as error:
        return Unread(key, str(error), bad=True)
    conversation = _conversation(key, history, end, partial(store.load_history, key))
    return _unread_if_elsewhere(key, folder or _shared_folder(history), projects) or conversation


def _conversation(name: str, history: History, end: float, load: Callable[[], History]) -> FinishedConversation:
    """Return a conversation that ended at `end` (0: unknown), without its messages; the function `load` can read them
    again, so that many conversations do not fill the memory."""
    tokens = int(TOKENS_A_CHARACTER * sum(len(str(message["content"])) for message in history.messages))
    return FinishedConversation(name, tuple(history.digests), history.digest, tokens, end, day(end), load)


def _shared_folder(history: History) -> str:
    """Return the folder that contains most paths in a conversation, as a guess at where its agent worked; or empty."""
    return analyze(history.messages).evidence.root


def _unread_if_elsewhere(name: str, folder: str, projects: Sequence[str]) -> Unread | None:
    """Return the conversation `name` as `Unread` if its `folder` (or empty) is in none of `projects`, else None."""
    if any(is_within(folder, project) for project in projects):
        return None
    return Unread(name, f"worked in {folder}" if folder else "do not name a folder")


def _finished(found: Sequence[FinishedConversation | Unread], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations `found` without those that another one continues, and with different names. A
    conversation with words less than `OPEN_SECONDS` old at the time `now` is returned as `Unread`."""
    readable = [conversation for conversation in found if isinstance(conversation, FinishedConversation)]
    # sorted by the digests of their messages, a continuation comes directly after the conversation that it continues
    in_order = sorted(readable, key=lambda conversation: conversation.digests)
    continued = {id(one) for one, after in pairwise(in_order) if after.digests[: len(one.digests)] == one.digests}
    names: set[str] = set()
    finished: list[FinishedConversation | Unread] = []
    for one in found:
        if isinstance(one, Unread):
            finished.append(one)
        elif now - one.time < OPEN_SECONDS:
            finished.append(Unread(one.name, "are not over: their last words are less than an hour old"))
        elif id(one) not in continued:
            finished.append(replace(one, name=f"{one.name}-{one.digest[7:13]}") if one.name in names else one)
            names.add(one.name)
    return finished


def _end_time(transcript: Transcript) -> float:
    """Return the newest time in the lines of a session log, in seconds since the epoch; 0 if they have no times."""
    for line in reversed(transcript.source.get("log", {}).values()):
        try:
            return datetime.fromisoformat(str(line.get("timestamp"))).timestamp()
        except ValueError:
            continue
    return 0.0


SHOWN_CHARACTERS = 160
"""Longest reason for an unread conversation, in characters."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_PLACE = click.Path(exists=True, path_type=Path)


@click.command
@click.argument("logs", nargs=-1, type=_PLACE)
@click.option("--project", type=_FOLDER, default=".", help="The project's folder (default: this one).")
@click.option("--also", multiple=True, metavar="DIR", help="Another folder of the project, say on another machine.")
@click.option("--into", metavar="FILE", default="", help="Keep all lines in one file, between marks: AGENTS.md.")
@click.option("--planner", type=click.Choice(get_args(PlannerName)), help="Reader (default: auto).")
@click.option("--model", help="Reading model, or an instructor provider string.")
@click.option("--prompts", metavar="DIR", type=_FOLDER, help="Your own folder of prompts.")
@click.option(
    "--cap", type=click.FloatRange(0), default=1.0, show_default=True, help="Dollars that the model may cost."
)
@click.option(
    "--approve", is_flag=True, help="Only approve lines that the files already contain, such as a colleague's."
)
@options.change_options
@options.store_option
@options.as_json
def learn_command(
    project: Path,
    into: str,
    approve: bool,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
    logs: Sequence[Path],
    also: Sequence[str],
    cap: float,
    **reading: Any,
) -> None:
    """Propose lessons from finished conversations for later ones.

    Reads the conversations of the store that worked in the project, or clients' logs in LOGS (files or folders).
    Decisions, lasting wishes and repeated errors become lines of .compactor/learned/decisions.md and errors.md, each
    with its source. The change is shown and made after your yes; your own edits of these files are kept.
    """
    now = time.time()
    today = datetime.fromtimestamp(now, UTC).date()
    report: dict[str, Any] = {"lines": []}
    with ExitStack() as stack:
        is_missing = dry_run and not store_exists(store)  # a dry run makes no store
        opened = stack.enter_context(temporary_store() if is_missing else open_store(store))
        memory, files = Memory(opened, str(project), writes=not dry_run), LearnedFiles(project, into)
        texts = files.texts()
        if approve:
            changes = texts
            keys = {line: digest_of(line)[:16] for line in files.lines(texts)}  # the key of its subject is not known
        else:
            places = [str(project), *also]
            found = conversations_in(logs, places, now) if logs else stored_conversations(opened, places, now)
            model = stack.enter_context(open_model(**reading))
            report, lines = _read_all(found, memory, files, model, cap, today, in_parallel=bool(logs))
            keys = {line.line: line.key for line in lines}
            changes = files.merged(texts, lines, memory.approved, today)
        approved = set(memory.approved.values())
        new = [line for line in files.lines(changes) if line in keys and digest_of(line) not in approved]
        shown = "".join(f"{line}\n" for line in new) if approve else difference(texts, changes)
        if as_json:
            print_json({**report, "change": shown})
        else:
            _print(report)
            echo(shown or "Nothing new to propose.\n", nl=False)
        if shown and not dry_run and options.agreed(yes=yes, as_json=as_json):
            _write(project, texts, changes)
            removed = {*files.lines(texts)}.difference(files.lines(changes))  # expired, or replaced by another line
            memory.approve({keys[line]: digest_of(line) for line in new}, ended=set(map(digest_of, removed)))


def _write(project: Path, texts: Mapping[str, str], changes: Mapping[str, str]) -> None:
    """Write the files of the `project` with another text in `changes` than in `texts` (new and old text, by the file's
    name). Raise SettingsError if somebody else changed such a file meanwhile."""
    for name in (name for name in changes if changes[name] != texts[name]):
        make_folder((project / name).parent)
        write_unchanged(project / name, changes[name], sha256(texts[name].encode()).hexdigest())


def _print(report: Mapping[str, Any]) -> None:
    """Print how many conversations were read, how many were left out and why; print problems on standard error.
    `report`: data of `_read_all`; without conversations after ``--approve``."""
    if "unread" in report:
        count = report["conversations"]
        read = f"read now: {report['read_now']}, by {report['reader']}"
        echo(f"{count} finished {'conversation' if count == 1 else 'conversations'} of this project; {read}")
        reasons = Counter(unread["why"] for unread in report["unread"] if not unread["bad"])
        for why, number in reasons.most_common():
            echo(f"left out: {number} that {why}")
        if not count and any(why.startswith("worked in") for why in reasons):
            echo("If one of these folders was this project, name it with --also.")
        elif not (count or reasons):
            echo("Name logs of a client, such as ~/.claude/projects or ~/.codex/sessions.")
    failed = (unread for unread in report.get("unread", ()) if unread["bad"])
    failures = [f"{unread['name']}: {shorten(unread['why'], SHOWN_CHARACTERS)}" for unread in failed]
    for problem in (*report.get("problems", ()), *failures):
        echo(f"compactor: {problem}", err=True)


def _read_all(
    found: Sequence[FinishedConversation | Unread],
    memory: Memory,
    files: LearnedFiles,
    model: LessonsModel | None,
    cap: float,
    today: date,
    *,
    in_parallel: bool,
) -> tuple[dict[str, Any], list[ProposedLine]]:
    """Find lessons in the conversations that were not read before, and let the `model` (None: only rules find them)
    review the lessons of all. Return a report (its keys are those of ``--json``) and the lines to propose.

    Lines that the project's `files` contain already are not proposed again. Work that may cost more than `cap` dollars
    is refused before it begins. `in_parallel`: True to use several processes for many conversations.
    """

    def unwritten() -> list[ProposedLine]:
        """Return the lines that can be made of all lessons, without those in the project's files."""
        return files.unwritten(proposed_lines(memory.heard, today))

    readable = [one for one in found if isinstance(one, FinishedConversation)]
    reader = model.name if model else "rules"
    due = [conversation for conversation in readable if not memory.is_read(conversation, reader)]
    if model is not None:
        dollars = reading_cost(model, due, memory.review, len(memory.review.unseen(unwritten())))
        name = model.endpoint.model
        cost = options.check_cap(f"{len(due)} conversations, and a review of their lessons,", name, dollars, cap)
        if dollars:
            echo(f"{len(due)} conversations to read, and their lessons to review, with {name}: {cost}", err=True)
    report: dict[str, Any] = {"conversations": len(readable), "read_now": 0, "reader": reader, "dollars": 0.0}
    report |= {"problems": [], "unread": [vars(unread) for unread in found if isinstance(unread, Unread)]}
    _read_due(due, memory, model, cap, report, in_parallel=in_parallel)
    lines = unwritten()
    if model is not None:
        _review_lines(lines, memory, model, cap, report)
    lines = memory.lines(lines)
    report["lines"] = [line.line for line in lines]
    return report, lines


def _review_lines(
    lines: Sequence[ProposedLine], memory: Memory, model: LessonsModel, cap: float, report: dict[str, Any]
) -> None:
    """Let the model review the proposed `lines` that it has not seen, several in each question. Add costs and problems
    to `report`; stop before its costs exceed `cap` dollars."""

    def ask(candidates: str) -> Sequence[ReviewedLine]:
        """Ask the model about the text `candidates`, add the cost to the report, and return the answer."""
        answer, usage = model.review(candidates)
        report["dollars"] += model.price(usage)
        return answer

    while unseen := len(memory.review.unseen(lines)):
        estimated_cost = review_cost(model, memory.review, min(unseen, MOST_CANDIDATES))
        why = f"that may cost {money(estimated_cost)} more: raise --cap"
        try:
            if report["dollars"] + estimated_cost <= cap:
                memory.keep_review(memory.review.grown(lines, ask))
                continue
        except PlannerUnavailable as error:
            why = str(error)
            report["dollars"] += model.price(_spent(error))
        report["problems"].append(f"not reviewed and not shown: {unseen} lines; {why}; run the command again")
        return


def _read_due(
    due: Sequence[FinishedConversation],
    memory: Memory,
    model: LessonsModel | None,
    cap: float,
    report: dict[str, Any],
    *,
    in_parallel: bool,
) -> None:
    """Find lessons in the conversations `due` by rules, and by the `model` if it is not None. Store them in `memory`,
    and add costs and problems to `report`. Stop once they cost more than `cap` dollars, or `MOST_FAILURES` fail in a
    row. `in_parallel`: without a model, many conversations are read in several processes."""
    usage, failures, problems = Usage(), 0, report["problems"]
    are_many = in_parallel and model is None and len(due) >= MANY
    one_by_one = ((conversation, _lessons_or_error(conversation, model)) for conversation in due)
    readings: Generator[tuple[FinishedConversation, ReadLessons | PlannerUnavailable | None]]
    readings = in_processes(read_lessons, due, all_cores()) if are_many else one_by_one
    with progress("reading conversations", len(due)) as step, closing(readings):
        for conversation, reading in readings:
            if reading is None or isinstance(reading, PlannerUnavailable):
                failure = reading or PlannerUnavailable("the process that read it died")
                usage, failures = usage + _spent(failure), failures + 1
                problems.append(f"{conversation.name}: {failure}")
            else:
                lessons, evidence, used = reading
                memory.keep(conversation, report["reader"], lessons, evidence)
                usage, failures = usage + used, 0
                report["read_now"] += 1
            step()
            report["dollars"] = model.price(usage) if model else 0.0
            if failures >= options.MOST_FAILURES or report["dollars"] > cap:
                problems.append(f"stopped after {conversation.name}: run the command again to continue")
                break


def _spent(error: PlannerUnavailable) -> Usage:
    """Return the tokens that a failed question to a model used, as they are billed, too."""
    return error.usage if isinstance(error.usage, Usage) else Usage()


def _lessons_or_error(
    conversation: FinishedConversation, model: LessonsModel | None
) -> ReadLessons | PlannerUnavailable:
    """Return the lessons of a conversation (see `read_lessons`), or the error of a model that could not be asked."""
    try:
        return read_lessons(conversation, model)
    except PlannerUnavailable as error:
        return error


@click.command
@click.argument("commit", required=False)
@click.option("--project", type=_FOLDER, default=".", help="The project's folder (default: this one).")
@options.with_store
@options.as_json
def commits_command(commit: str | None, project: Path, store: Store, as_json: bool) -> None:
    """Print which conversation made which commit.

    COMMIT is a hash, or a conversation; without it, all commits of the conversations that `compactor learn` has read.
    """
    rows = [
        (sha, f"{name}:{turn}", str(read["day"]), subject)
        for name, read in Memory(store, str(project)).conversations.items()
        for sha, subject, turn in read["commits"]
        if not commit or commit == name or (len(commit) >= 7 and (sha.startswith(commit) or commit.startswith(sha)))
    ]
    if as_json:
        names = ("commit", "from", "date", "subject")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        ("commit", "from", "date", "subject"),
        rows,
        empty="no commits in the conversations that `compactor learn` has read",
    )
