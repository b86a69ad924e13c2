"""``python -m tests.bench general FOLDER``: answers kept by the rules planner and by plain methods of the same size.

FOLDER holds sessions as ``ID.json`` and their exams as ``ID.exam.json``. Each session is compacted by a method to each
target. The plain methods get as many tokens as that view really has: the newest messages only, and every tool result
cut to the same length. A question counts as kept if the view's text contains an accepted answer, white space folded.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from applier.eval.evaluation import ExamQuestion, ExamSample, exam_samples, read_exams
from applier.eval.methods import Method, methods_for
from applier.eval.survival import message_tokens, plain_text
from planner.reading.messages import Message
from tests.bench.plain import equal_cut, newest_text

PLAIN: dict[str, Method] = {"newest text": newest_text, "equal cut": equal_cut}
"""The methods to beat, by column."""
RATIOS = (0.25, 0.1, 0.05)
SIZE_SLACK = 1.1
"""Allowed size of a view, as a multiple of its target."""


@dataclass(frozen=True)
class Comparison:
    """Session at one target."""

    transcript: str
    ratio: float
    """The target, as a share of the session's tokens."""
    size: float
    """The size of the planner's view, as a share of the session's tokens."""
    questions: int
    kept: dict[str, int]
    """Questions kept by method: the planner's first, then `PLAIN`."""
    lost: tuple[ExamQuestion, ...]
    """The questions that the planner's view does not answer."""

    @property
    def is_below_plain(self) -> bool:
        """True if a plain method of the same size answers more."""
        own, *plain = self.kept.values()
        return own < max(plain)


def compare(sample: ExamSample, method: str, ratio: float) -> Comparison:
    """Compact one session by `method` and by the plain methods, and score them."""
    compact = methods_for(f"{sample.exam.transcript}@{ratio:g}", [method])[method]
    own = compact(sample.messages, sample.task, max(1, int(ratio * sample.tokens)))
    tokens = message_tokens(own)
    views = {method: own} | {name: plain(sample.messages, sample.task, tokens) for name, plain in PLAIN.items()}
    lost = {name: _lost(sample, view) for name, view in views.items()}
    asked = len(sample.exam.questions)
    kept = {name: asked - len(missing) for name, missing in lost.items()}
    return Comparison(sample.exam.transcript, ratio, tokens / sample.tokens, asked, kept, tuple(lost[method]))


def _lost(sample: ExamSample, view: Sequence[Message]) -> list[ExamQuestion]:
    scores = sample.exam.literal_scores(plain_text(view))
    return [question for question in sample.exam.questions if not scores[question.number]]


def comparisons(
    folder: Path, method: str, ratios: Sequence[float], only: Container[str] = (), without: Container[str] = ()
) -> Iterator[list[Comparison]]:
    """Compare the sessions of `folder` one after the other, each at all `ratios`."""
    exams = read_exams(sorted(folder.glob("*.exam.json")))
    wanted = [exam for exam in exams if exam.transcript not in without and (not only or exam.transcript in only)]
    for sample in exam_samples(wanted, sorted(folder.glob("*.json"))):
        yield [compare(sample, method, ratio) for ratio in ratios]


def add_command(commands: Any) -> None:
    """Add `general` to the commands of ``python -m tests.bench``."""
    parser = commands.add_parser("general", help="exams of any field: the planner beside plain methods of its size")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", default="rules", help="rules, model, recorded:DIR, or module:function")
    parser.add_argument("--ratio", action="append", type=float, help="0.25, 0.1 and 0.05 by default")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="only this session")
    parser.add_argument("--without", action="append", default=[], metavar="ID", help="not this session")
    parser.add_argument("--lost", action="store_true", help="list the questions that the planner's view lost")
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    ratios = options.ratio or list(RATIOS)
    rows = list(comparisons(options.folder, options.method, ratios, options.only, options.without))
    console.print(_table(rows, options.method, ratios))
    for one in (one for row in rows for one in row) if options.lost else ():
        for question in one.lost:
            line = f"{one.transcript} at {one.ratio:g}: {question.number} ({question.kind}) {question.text} "
            console.print(f"{line}— {question.answer}", highlight=False, markup=False, soft_wrap=True)


def _table(rows: Sequence[Sequence[Comparison]], method: str, ratios: Sequence[float]) -> Table:
    table = Table(
        title=f"Questions kept at {', '.join(f'{ratio:g}' for ratio in ratios)} of the history's tokens",
        caption=f"size: of the planner's view in % of the history, ! if over {SIZE_SLACK:g} times the target; "
        "*: a plain method of that size keeps more",
    )
    for name in ("session", "questions", "size", method, *PLAIN):
        table.add_column(name, justify="left" if name == "session" else "right")
    for row in rows:
        sizes = (f"{one.size:.0%}{'!' if one.size > SIZE_SLACK * one.ratio else ''}" for one in row)
        own = (f"{one.kept[method]}{'*' if one.is_below_plain else ''}" for one in row)
        plain = (" ".join(str(one.kept[name]) for one in row) for name in PLAIN)
        table.add_row(row[0].transcript, str(row[0].questions), " ".join(sizes), " ".join(own), *plain)
    if rows:
        table.add_section()
        columns = list(zip(*rows, strict=True))
        sizes = (f"{fmean(one.size for one in column):.0%}" for column in columns)
        asked = sum(row[0].questions for row in rows)
        sums = {name: [sum(one.kept[name] for one in column) for column in columns] for name in (method, *PLAIN)}
        table.add_row("all", str(asked), " ".join(sizes), *(" ".join(map(str, kept)) for kept in sums.values()))
        shares = (" ".join(f"{kept / asked:.2f}" for kept in own) for own in sums.values())
        table.add_row("share", "", "", *shares)
    return table
