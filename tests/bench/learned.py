"""``python -m tests.bench learned TRANSCRIPTS…``: what conversations teach, for readers who judge it.

Transcripts whose names begin alike (``project__…``) are of one project. Prints each line that `compactor learn` would
propose, with the conversation and turn that it is from, and what is cited there; with ``--answers`` from what a model
answered to the prompts that ``--prompts`` writes, one file a conversation, and with ``--reviews`` from what it answered
to those that ``--review-prompts`` writes of these, one file a project. With ``--task`` it prints what a new
conversation with this task would begin with, had all of its project's lines been approved. Judges nothing itself.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import Path

from rich.console import Console

from applier.adapters.transcripts import read_transcript
from applier.learning.learned import opening_text, relevant_lines
from applier.learning.lesson import Lesson
from applier.learning.propose import Heard, ProposedLine, Review, proposed_lines
from applier.learning.readers import lessons_of, with_written
from planner.analysis import Analysis, analyze_history
from planner.model.answer import json_in
from planner.model.lessons import ReviewedLine, WrittenLesson, lessons_question, review_question
from planner.model.prompts import load_prompts
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from planner.settings import PlanSettings

MOST_TOKENS = 500
"""Largest value of `learned_tokens`."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``learned``."""
    parser = commands.add_parser("learned", help="what conversations teach, for a reader to judge")
    parser.add_argument("places", nargs="+", type=Path, help="transcripts, or folders of them")
    parser.add_argument("--prompts", type=Path, help="write there what a model would be asked, and read nothing")
    parser.add_argument("--answers", type=Path, help="what a model answered, NAME.json each; rules read the others")
    parser.add_argument("--review-prompts", type=Path, help="write there what it would be asked about all answers")
    parser.add_argument("--reviews", type=Path, help="what it answered to these, PROJECT.json each")
    parser.add_argument("--task", help="print what a new conversation with this task begins with")
    parser.add_argument("--tokens", type=int, default=MOST_TOKENS, help="which may be so large")
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    found = [sorted(place.glob("*.json")) if place.is_dir() else [place] for place in options.places]
    paths = sorted(path for group in found for path in group)
    if options.prompts:
        options.prompts.mkdir(parents=True, exist_ok=True)
        for path in paths:
            (options.prompts / f"{path.stem}.txt").write_text(prompt_of(_analysis(path)), "utf-8")
            print(options.prompts / f"{path.stem}.txt")
        return
    if options.review_prompts:
        options.review_prompts.mkdir(parents=True, exist_ok=True)
        for project, lines in _projects(paths, options.answers):
            asked: list[str] = []
            Review().grown(lines, lambda candidates, asked=asked: asked.append(candidates) or [])
            question, prompts = review_question(asked[0]), load_prompts()
            text = f"{question.system(prompts)}\n\n{question.text(prompts)}"
            (options.review_prompts / f"{project}.txt").write_text(text, "utf-8")
            print(options.review_prompts / f"{project}.txt", len(lines))
        return
    lines = list(lines_of_projects(paths, options.answers, options.reviews))
    if options.task:
        counter = TokenCounter.for_model("")
        for project, own in groupby(lines, lambda one: one[0]):
            near = relevant_lines([line.line for _, line in own], options.task)
            text, count = opening_text(near, counter, options.tokens)
            print(f"{project}: {count} of {len(near)} lines, {counter.text(text)} tokens\n{text}")
        return
    for project, line in lines:
        cited = line.sources[0].lesson
        print(f"{project} [{line.kind}] {line.line}")
        print(f"    cited: {cited.words}" + f" · mended at {cited.mended}" * bool(cited.mended))
    console.print(f"{len(lines)} lines of {len(paths)} transcripts")


def prompt_of(analysis: Analysis) -> str:
    """Return the text that a model reads of a conversation, the system prompt first."""
    prompts, question = load_prompts(), lessons_question(analysis, PlanSettings())
    return f"{question.system(prompts)}\n\n{question.text(prompts)}"


def lines_of_projects(
    paths: Sequence[Path], answers: Path | None = None, reviews: Path | None = None
) -> Iterator[tuple[str, ProposedLine]]:
    """Yield the lines of each project, as of the day of its last conversation."""
    for project, lines in _projects(paths, answers):
        review = reviews / f"{project}.json" if reviews else None
        if review is not None and review.is_file():
            answer = [ReviewedLine(**one) for one in json.loads(review.read_text("utf-8"))["lines"]]
            lines = [line for _, line in Review().grown(lines, lambda _, answer=answer: answer).reviewed_lines(lines)]
        yield from ((project, line) for line in lines)


def _projects(paths: Sequence[Path], answers: Path | None) -> Iterator[tuple[str, list[ProposedLine]]]:
    for project, own in groupby(paths, lambda path: path.stem.partition("__")[0]):
        times = {path: _time(path) for path in own}
        heard = [
            Heard(lesson, path.stem.partition("__")[2], _day(time), time=time)
            for path, time in times.items()
            for lesson in _lessons(path, answers)
        ]
        yield project, proposed_lines(heard, date.fromisoformat(_day(max(times.values())) or "1970-01-01"))


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d") if time else ""


def _time(path: Path) -> float:
    """Return the start of a conversation, by its file or its id (a UUID of version 7); 0 if unknown."""
    match = re.search(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-", path.stem)
    started = json.loads(path.read_text("utf-8")).get("meta", {}).get("started", "")
    if started:
        return datetime.fromisoformat(started).replace(tzinfo=UTC).timestamp()
    return int(match[1] + match[2], 16) / 1_000 if match else 0.0


def _lessons(path: Path, answers: Path | None) -> list[Lesson]:
    answer = answers / f"{path.stem}.json" if answers else None
    evidence = _analysis(path).evidence
    if answer is None or not answer.is_file():
        return lessons_of(evidence)
    return with_written(lessons_in(answer.read_text("utf-8")) or [], evidence)


def _analysis(path: Path) -> Analysis:
    return analyze_history(read_history(read_transcript(path).messages), TokenCounter.for_model(""))


def lessons_in(text: str) -> list[WrittenLesson] | None:
    """Return the lessons of a saved answer, among words or cut off; None if it is no answer."""
    fields = json_in(text[max(0, text.find("{")) :])
    lessons = fields.get("lessons") if isinstance(fields, dict) else None
    return [WrittenLesson.model_validate(own) for own in lessons] if isinstance(lessons, list) else None
