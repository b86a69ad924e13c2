"""The exam through the mod: what the real Claude Code sends after a compaction by the mod, beside the library's view.

Each transcript becomes a session that the client resumes; then ``/compact``, and one message more. The planner is the
rules, or what a model answered, so both views are of one plan; a difference is the door's. Asks no model: write the
views for readers and take up their grades as ``exams --write-views`` does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import Transcript, read_transcript, transcript_files
from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.eval.evaluation import (
    QUESTION_KINDS,
    ExamSample,
    ExamView,
    exam_means,
    exam_samples,
    exam_view,
    read_exams,
)
from applier.eval.methods import FolderPlanner
from applier.eval.survival import plain_text
from applier.session import Session
from applier.settings import SessionSettings
from applier.testing import MessagesServer, Request
from planner.api import PlannerChoice
from planner.model.planners import RelayedPlanner
from planner.reading.messages import Message, blocks
from tests.bench.answer_sheets import advance_round
from tests.mod.client import BUILT_IN, BY_CARDS, SUMMARY, install_mod, opened

MODEL, WINDOW_TOKENS = "claude-opus-5-5", 200_000
GO_ON = "Go on."
NO_RESPONSE: Message = {"role": "assistant", "content": [{"type": "text", "text": "No response requested."}]}
"""Message that the client adds after an unanswered result when it resumes."""


def library_view(messages: Sequence[Message], answers: Sequence[str]) -> list[Message]:
    """Return the result of `Session.compact` for `messages`, ended as the client ends them."""
    planner: PlannerChoice = RelayedPlanner(answers) if answers else "rules"
    settings = SessionSettings(window_tokens=WINDOW_TOKENS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(store=Path(folder, "store.db"), settings=settings, planner=planner, model=MODEL) as session,
    ):
        return session.compact([*messages, NO_RESPONSE]).messages


def client_view(client: str, transcript: Transcript, answers: Sequence[str]) -> list[Message]:
    """Return the next request of `client` after it resumed `transcript` and the mod compacted it.

    Raises:
        RuntimeError: the mod did not compact; the text has the client's output.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, session, given = Path(place), str(uuid4()), iter(answers)

        def model(request: Request) -> str:
            last = json.dumps(request.messages[-1])
            if BUILT_IN in last:
                return SUMMARY
            return next(given, "") if BY_CARDS in last and not request.tools else "Well."

        _write_log(folder, transcript, session)
        env = {"COMPACTOR_PLANNER": "auto" if answers else "rules", "COMPACTOR_WINDOW_TOKENS": str(WINDOW_TOKENS)}
        resume = ("--resume", session, "--model", MODEL)
        with MessagesServer(model, window_tokens=10 * WINDOW_TOKENS) as server:
            with opened(folder, server, install_mod(folder), *resume, client=client, seconds=90, **env) as process:
                process.type("/compact")
                process.type(GO_ON)
            sent = server.exchanges[-1].request.messages
            if "<compacted history=" not in json.dumps(sent):
                raise RuntimeError("\n".join(process.log) or "the mod did nothing")
            return [message for message in sent if message["role"] != "system"]


def _write_log(folder: Path, transcript: Transcript, session: str) -> None:
    """Write `transcript` as a session log of the client, a line for each block."""
    work, home = folder / "work", folder / "home"
    apart = [{**message, "content": [block]} for message in transcript.messages for block in blocks(message)]
    line = {"cwd": str(work), "version": "2.1.330", "userType": "external", "timestamp": "2026-11-01T12:00:00.000Z"}
    like = Transcript(
        apart, None, None, transcript.task, CLAUDE_CODE.name,
        source={"path": "", "log": {1: line}, "lines": [[] for _ in apart]}, client=CLAUDE_CODE,
    )  # fmt: skip
    log = CLAUDE_CODE.log_folder(str(work), datetime.now(UTC), {"CLAUDE_CONFIG_DIR": str(home / ".claude")})
    log.mkdir(parents=True)
    (log / f"{session}.jsonl").write_text(CLAUDE_CODE.write(apart, like, session), "utf-8")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``mod-exam``."""
    exam = commands.add_parser("mod-exam", help="exams on what Claude Code sends behind the mod, and on our own view")
    exam.add_argument("places", nargs="+", type=Path)
    exam.add_argument("--probes", type=Path, required=True)
    exam.add_argument("--client", default="claude", help="the program")
    exam.add_argument("--answers", type=Path, help="what a model answered: NAME.answer.txt; else the rules plan")
    exam.add_argument("--write-views", type=Path, help="write views for readers there, take up answers and grades")
    exam.set_defaults(run=_run)


def _views(options: argparse.Namespace) -> Iterator[ExamView]:
    paths = transcript_files(options.places)
    by_name = {path.stem: path for path in paths}
    for sample in exam_samples(read_exams([options.probes]), paths):
        yield from _pair(sample, read_transcript(by_name[sample.exam.transcript]), options)


def _pair(sample: ExamSample, transcript: Transcript, options: argparse.Namespace) -> Iterator[ExamView]:
    name = sample.exam.transcript
    answers = FolderPlanner(options.answers, name).answers if options.answers else []
    yield exam_view(sample, "library", 0.0, plain_text(library_view(sample.messages, answers)))
    yield exam_view(sample, "mod", 0.0, plain_text(client_view(options.client, transcript, answers)))


def _run(console: Console, options: argparse.Namespace) -> None:
    views = list(_views(options))
    table = Table("door", "exams", "size", "literal", *QUESTION_KINDS, box=None)
    for mean in exam_means([(view, view.scores) for view in views]):
        kinds = (f"{mean.by_kind[kind]:.2f}" if kind in mean.by_kind else "" for kind in QUESTION_KINDS)
        table.add_row(mean.method, f"{mean.exams}", f"{mean.size:.3f}", f"{mean.score:.2f}", *kinds)
    console.print(table)
    for view in views:
        scores = list(view.scores.values())
        lost = " ".join(str(question.number) for question in view.lost) or "none"
        row = f"{view.exam.transcript} {view.method}: {sum(scores):.0f} of {len(scores)}, lost {lost}; {view.size:.3f}"
        console.print(row, highlight=False, soft_wrap=True)
    if options.write_views:
        state = advance_round(options.write_views, views)
        console.print(f"{state.views} views, {len(state.to_answer)} to answer, {len(state.to_grade)} to grade")
