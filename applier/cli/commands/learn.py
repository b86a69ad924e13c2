"""`compactor learn` and `commits`: lessons of a project's finished conversations, and the commits they made.

Reads those conversations of a store or of client logs that worked in the project's folders and are over. If the folder
of a conversation is unknown, the paths in it decide. A conversation that is not read becomes a line of the report.
Writes the project's files only after a yes, and asks a model only within the cap.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click

from applier.adapters.transcripts import Transcript, read_transcript, transcript_files
from applier.cli import options
from applier.cli.files import make_folder, write_unchanged
from applier.cli.screen import day, echo, print_json, print_table, progress, shorten
from applier.learning.learned import FinishedConversation, LearnedFiles, Memory, difference, digest_of
from applier.learning.propose import MOST_CANDIDATES, ProposedLine, proposed_lines
from applier.learning.readers import Reader, ReadLessons, open_reader
from applier.processes import all_cores, in_processes
from applier.store.listing import is_within
from applier.store.opening import open_store, store_file, temporary_store
from applier.store.store import Store
from planner.analysis import analyze
from planner.errors import CompactorError, PlannerUnavailable
from planner.plan import Usage
from planner.prices import money
from planner.reading.messages import History, read_history
from planner.settings import PlannerName

OPEN_SECONDS = 3_600.0
"""Age below which a conversation counts as unfinished."""
MANY = 32
"""Number of files from which several processes pay."""
TOKENS_A_CHARACTER = 0.3
"""Tokens a character, for the cost before counting."""


@dataclass(frozen=True)
class Unread:
    """Conversation that is not read, and the reason."""

    name: str
    why: str
    bad: bool = False
    """True if the conversation could not be read; False if it is left out on purpose."""


def conversations_in(logs: Sequence[Path], projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations in the files and folders `logs`, without those that another one continues. One is
    `Unread` if it worked in none of the folders `projects`, if its last words are less than an hour old at the time
    `now`, or if it cannot be read."""
    paths, work = transcript_files(logs), partial(_logged, projects=projects)
    pairs = in_processes(work, paths, all_cores()) if len(paths) >= MANY else ((path, work(path)) for path in paths)
    found = {path: one or Unread(path.name, "the process that read it died", bad=True) for path, one in pairs}
    return _finished([found[path] for path in paths], now)


def stored_conversations(store: Store, projects: Sequence[str], now: float) -> list[FinishedConversation | Unread]:
    """Return the conversations in `store`, chosen in the same way as by `conversations_in`."""
    return _finished([_stored(store, history.key, projects) for history in store.histories()], now)


def _logged(path: Path, projects: Sequence[str]) -> FinishedConversation | Unread:
    """Return the conversation in the log at `path`; `Unread` if it worked in none of the folders `projects`."""
    try:
        read = read_transcript(path)
        history, end = read_history(read.messages), _end(read)
        name = re.sub(r"[^\w.-]+", "-", path.stem)  # the lines of the project's files contain the name
        here = _conversation(name, history, end, partial(_load, path))
        return _elsewhere(path.name, read.working_folder or _root(history), projects) or here
    except (CompactorError, OSError) as error:
        return Unread(path.name, str(error), bad=True)


def _load(path: Path) -> History:
    return read_history(read_transcript(path).messages)


def _stored(store: Store, key: str, projects: Sequence[str]) -> FinishedConversation | Unread:
    """Return the stored conversation `key`; `Unread` if it worked in none of the folders `projects`."""
    folder, end = store.origin(key)
    if folder and (elsewhere := _elsewhere(key, folder, projects)):
        return elsewhere
    try:
        history = store.load_history(key)
    except CompactorError as error:
        return Unread(key, str(error), bad=True)
    here = _conversation(key, history, end, partial(store.load_history, key))
    return _elsewhere(key, folder or _root(history), projects) or here


def _conversation(name: str, history: History, end: float, load: Callable[[], History]) -> FinishedConversation:
    """Return a conversation that ended at the time `end` (0: unknown); `load` reads its history again when needed."""
    tokens = int(TOKENS_A_CHARACTER * sum(len(str(message["content"])) for message in history.messages))
    return FinishedConversation(name, tuple(history.digests), history.digest, tokens, end, day(end), load)


def _root(history: History) -> str:
    """Return the folder that the paths of a conversation share."""
    return analyze(history.messages).evidence.root


def _elsewhere(name: str, place: str, projects: Sequence[str]) -> Unread | None:
    """Return None if the folder `place` is in one of `projects`; else the conversation `name` as `Unread`."""
    if any(is_within(place, project) for project in projects):
        return None
    return Unread(name, f"worked in {place}" if place else "do not name a folder")


def _finished(every: Sequence[FinishedConversation | Unread], now: float) -> list[FinishedConversation | Unread]:
    """Return `every` conversation, without those that another one continues, each with a name of its own. One whose
    last words are less than `OPEN_SECONDS` old at the time `now` is returned as `Unread`."""
    in_order = sorted((one for one in every if isinstance(one, FinishedConversation)), key=lambda one: one.digests)
    # in this order, a continuation comes directly after the conversation that it continues
    continued = {id(one) for one, after in pairwise(in_order) if after.digests[: len(one.digests)] == one.digests}
    names: set[str] = set()
    finished: list[FinishedConversation | Unread] = []
    for one in every:
        if isinstance(one, Unread):
            finished.append(one)
        elif now - one.time < OPEN_SECONDS:
            finished.append(Unread(one.name, "are not over: their last words are less than an hour old"))
        elif id(one) not in continued:
            finished.append(replace(one, name=f"{one.name}-{one.digest[7:13]}") if one.name in names else one)
            names.add(one.name)
    return finished


def _end(read: Transcript) -> float:
    """Return the time of a log's last line; 0 if unknown."""
    for line in reversed(read.source.get("log", {}).values()):
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
    **asked: Any,
) -> None:
    """Propose lessons from finished conversations for later ones.

    Reads the conversations of the store that worked in the project, or clients' logs in LOGS (files or folders).
    Decisions, lasting wishes and repeated errors become lines of .compactor/learned/decisions.md and errors.md, each
    with its source. The change is shown and made after your yes; your own edits of these files are kept.
    """
    now = time.time()
    report: dict[str, Any] = {"lines": []}
    with ExitStack() as stack:
        memory = Memory(stack.enter_context(_store(store, dry_run=dry_run)), str(project), writes=not dry_run)
        files = LearnedFiles(project, into)
        learned, texts = _Learned(memory, files, datetime.fromtimestamp(now, UTC).date()), files.texts()
        if approve:
            changes = texts
            keys = {line: digest_of(line)[:16] for line in files.lines(texts)}
        else:
            places = [str(project), *also]
            every = conversations_in(logs, places, now) if logs else stored_conversations(memory.store, places, now)
            reader = stack.enter_context(open_reader(**asked))
            report, lines = _read_all(every, learned, reader, cap, apart=bool(logs))
            report["lines"] = [line.line for line in lines]
            keys = {line.line: line.key for line in lines}
            changes = learned.merged(texts, lines)
        new = [line for line in files.lines(changes) if line in keys and not memory.knows(line)]
        shown = "".join(f"{line}\n" for line in new) if approve else difference(texts, changes)
        if as_json:
            print_json({**report, "change": shown})
        else:
            _print(report)
            echo(shown or "Nothing new to propose.\n", nl=False)
        if shown and not dry_run and options.agreed(yes=yes, as_json=as_json):
            learned.write(texts, changes, {keys[line]: digest_of(line) for line in new})


@dataclass(frozen=True)
class _Learned:
    """Lessons of a project, and the files for them."""

    memory: Memory
    files: LearnedFiles
    today: date

    def unwritten(self) -> list[ProposedLine]:
        """Return the lines to propose, without those that the project's instructions contain word for word."""
        return self.files.unwritten(proposed_lines(self.memory.heard, self.today))

    def merged(self, texts: Mapping[str, str], lines: Sequence[ProposedLine]) -> dict[str, str]:
        """Return the `texts` of the files, by name, with these `lines` merged in."""
        return self.files.merged(texts, lines, self.memory.approved, self.today)

    def write(self, texts: Mapping[str, str], changes: Mapping[str, str], approved: Mapping[str, str]) -> None:
        """Write the files whose text in `changes` is not that in `texts`, and record approved and removed lines.
        `approved` has the digest of each approved line by its key."""
        for name in (name for name in changes if changes[name] != texts[name]):
            make_folder((self.files.project / name).parent)
            write_unchanged(self.files.project / name, changes[name], sha256(texts[name].encode()).hexdigest())
        gone = {*self.files.lines(texts)}.difference(self.files.lines(changes))
        self.memory.approve(approved, ended=set(map(digest_of, gone)))


def _print(report: Mapping[str, Any]) -> None:
    """Print the report's lines, and its problems on standard error."""
    for line in _report_lines(report) if "unread" in report else ():
        echo(line)
    bad = [f"{one['name']}: {shorten(one['why'], SHOWN_CHARACTERS)}" for one in report.get("unread", ()) if one["bad"]]
    for problem in (*report.get("problems", ()), *bad):
        echo(f"compactor: {problem}", err=True)


def _report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many conversations were read, how many were left out and why, and a hint if there was none."""
    count = report["conversations"]
    read = f"read now: {report['read_now']}, by {report['reader']}"
    yield f"{count} finished {'conversation' if count == 1 else 'conversations'} of this project; {read}"
    others = Counter(one["why"] for one in report["unread"] if not one["bad"])
    yield from (f"left out: {number} that {why}" for why, number in others.most_common())
    if not count and any(why.startswith("worked in") for why in others):
        yield "If one of these folders was this project, name it with --also."
    elif not (count or others):
        yield "Name logs of a client, such as ~/.claude/projects or ~/.codex/sessions."


def _store(name: str | None, *, dry_run: bool) -> AbstractContextManager[Store]:
    """Return the store; for a dry run without one, a temporary store."""
    file = store_file(name)
    is_missing = file is not None and not file.exists()
    return temporary_store() if dry_run and is_missing else open_store(name)


def _read_all(
    every: Sequence[FinishedConversation | Unread], learned: _Learned, reader: Reader, cap: float, *, apart: bool
) -> tuple[dict[str, Any], list[ProposedLine]]:
    """Read new conversations, and have a model, if the reader has one, review their lessons. Return a report and the
    lines to propose. Work that may cost more than `cap` dollars is an error before it begins. With `apart`, many
    conversations are read in several processes."""
    memory, readable = learned.memory, [one for one in every if isinstance(one, FinishedConversation)]
    due = [one for one in readable if not memory.is_read(one, reader.name)]
    if reader.model is not None:
        dollars = reader.estimated_cost(due, memory.review, len(memory.review.unseen(learned.unwritten())))
        options.check_cap(f"{len(due)} conversations, and a review of their lessons,", reader.name, dollars, cap)
        if dollars:
            what = f"{len(due)} conversations to read, and their lessons to review"
            echo(f"{what}, with {reader.name}: at most {money(dollars)}", err=True)
    report: dict[str, Any] = {"conversations": len(readable), "read_now": 0, "reader": reader.name, "dollars": 0.0}
    report |= {"problems": [], "unread": [vars(one) for one in every if isinstance(one, Unread)]}
    _read_due(due, _one_by_one(due, reader, apart=apart), memory, reader, cap, report)
    lines = learned.unwritten()
    if reader.model is not None:
        _review_lines(lines, memory, reader, cap, report)
    return report, memory.lines(lines)


def _review_lines(
    lines: Sequence[ProposedLine], memory: Memory, reader: Reader, cap: float, report: dict[str, Any]
) -> None:
    """Have the model review new `lines`, question by question, for at most `cap` dollars; add costs and problems to
    `report`."""
    while unseen := len(memory.review.unseen(lines)):
        estimated_cost = reader.estimated_review_cost(memory.review, min(unseen, MOST_CANDIDATES))
        why = f"that may cost {money(estimated_cost)} more: raise --cap"
        try:
            if report["dollars"] + estimated_cost <= cap:
                review, usage = reader.review(memory.review, lines)
                memory.keep_review(review)
                report["dollars"] += reader.cost(usage)
                continue
        except PlannerUnavailable as error:
            why = str(error)
            report["dollars"] += reader.cost(_spent(error))
        report["problems"].append(f"not reviewed and not shown: {unseen} lines; {why}; run the command again")
        return


def _read_due(
    due: Sequence[FinishedConversation],
    readings: Readings,
    memory: Memory,
    reader: Reader,
    cap: float,
    report: dict[str, Any],
) -> None:
    """Store each of the `readings` of the conversations in `due`, and add it to `report`. Stop over `cap` dollars, or
    after `MOST_FAILURES` failures in a row. A stop is a problem in the report."""
    usage, failures, problems = Usage(), 0, report["problems"]
    with progress("reading conversations", len(due)) as step, closing(readings):
        for one, reading in readings:
            if isinstance(reading, PlannerUnavailable):
                usage, failures = usage + _spent(reading), failures + 1
                problems.append(f"{one.name}: {reading}")
            else:
                lessons, evidence, used = reading
                memory.keep(one, reader.name, lessons, evidence)
                usage, failures = usage + used, 0
                report["read_now"] += 1
            step()
            report["dollars"] = reader.cost(usage)
            if failures >= options.MOST_FAILURES or report["dollars"] > cap:
                problems.append(f"stopped after {one.name}: run the command again to continue")
                break


def _spent(error: PlannerUnavailable) -> Usage:
    """Return the tokens that a failed question used."""
    return error.usage if isinstance(error.usage, Usage) else Usage()


Readings = Generator[tuple[FinishedConversation, ReadLessons | PlannerUnavailable]]


def _one_by_one(due: Sequence[FinishedConversation], reader: Reader, *, apart: bool) -> Readings:
    """Yield each conversation in `due` with its reading, or with the error. If `apart`, rules read many conversations
    in several processes."""
    if apart and reader.model is None and len(due) >= MANY:
        with closing(in_processes(reader.read, due, all_cores())) as pairs:
            yield from ((one, read or PlannerUnavailable("the process that read it died")) for one, read in pairs)
        return
    for one in due:
        try:
            yield one, reader.read(one)
        except PlannerUnavailable as error:
            yield one, error


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
