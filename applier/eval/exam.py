"""Exams: questions about a history, answered from its compacted views.

The literal score is the share of questions with an accepted string in the view; no model is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from applier.adapters.transcripts import read_transcript
from applier.eval.methods import NotRecorded, methods_for
from applier.eval.survival import message_tokens, one_space, plain_text, text_tokens
from planner.errors import TranscriptError
from planner.reading.messages import Message

__all__ = [
    "QUESTION_KINDS",
    "Exam",
    "ExamMean",
    "ExamQuestion",
    "ExamSample",
    "ExamView",
    "QuestionKind",
    "exam_means",
    "exam_samples",
    "exam_view",
    "exam_views",
    "read_exams",
]

QuestionKind = Literal["artifact", "failed", "user", "decision", "state"]
"""Kinds of questions. ``artifact``: a name, path or value; ``failed``: a failure and its cause; ``user``: a demand;
``decision``: a decision and its reason; ``state``: the state of the work."""
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)


class ExamQuestion(BaseModel, frozen=True):
    """Question about a history."""

    number: int = Field(alias="n")
    kind: QuestionKind
    text: str = Field(alias="q")
    answer: str = Field(alias="a")
    evidence: tuple[int, ...] = ()
    """Indices of the messages with the answer."""
    answer_any: tuple[str, ...] = Field(min_length=1)
    """Accepted strings; one of them in a view counts as an answer."""


class Exam(BaseModel, frozen=True):
    """Questions about one transcript."""

    transcript: str
    """Name of the transcript's file, without its suffix."""
    questions: tuple[ExamQuestion, ...] = Field(min_length=1)

    def literal_scores(self, text: str) -> dict[int, float]:
        """Return 1 or 0 for each question number: whether `text` contains an accepted string."""
        folded = one_space(text)
        return {
            question.number: float(any(one_space(accepted) in folded for accepted in question.answer_any))
            for question in self.questions
        }


@dataclass(frozen=True)
class ExamSample:
    """Exam with the history that its questions are about."""

    exam: Exam
    messages: Sequence[Message]
    task: str
    tokens: int
    """Number of o200k tokens in `messages`."""


@dataclass(frozen=True)
class ExamView:
    """Text that a method made of a history for one target, as its reader gets it."""

    exam: Exam
    method: str
    ratio: float
    """Target, as a share of the history's tokens."""
    size: float
    """Tokens of `text` divided by those of the history, by o200k."""
    text: str

    @property
    def sha(self) -> str:
        """Digest of the text, to name the view."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def scores(self) -> dict[int, float]:
        """Literal scores by question number."""
        return self.exam.literal_scores(self.text)

    @property
    def lost(self) -> list[ExamQuestion]:
        """Questions without an answer in the view."""
        scores = self.scores
        return [question for question in self.exam.questions if not scores[question.number]]


@dataclass(frozen=True)
class ExamMean:
    """Mean score for one method at one target, over all scored questions."""

    method: str
    ratio: float
    exams: int
    size: float
    score: float
    by_kind: dict[QuestionKind, float]


def read_exams(places: Sequence[Path]) -> list[Exam]:
    """Return the exams in `places`, files or folders."""
    paths = [path for place in places for path in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
    if not paths:
        raise TranscriptError(f"{', '.join(map(str, places))}: contains no exams (.json)")
    return [_exam(path) for path in paths]


def _exam(path: Path) -> Exam:
    try:
        return Exam.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise TranscriptError(
            f"{path}: {place}: {first['msg'].lower()}; docs/evaluation.md describes an exam"
        ) from error


def exam_samples(exams: Sequence[Exam], paths: Sequence[Path]) -> Iterator[ExamSample]:
    """Yield each exam with its transcript, the file of `paths` with the same name."""
    known = {path.stem: path for path in paths}
    for exam in exams:
        path = known.get(exam.transcript)
        if path is None:
            raise TranscriptError(f"{exam.transcript}: the exam's transcript is not among the named files")
        transcript = read_transcript(path)
        tokens = message_tokens(transcript.messages)
        if not tokens:
            raise TranscriptError(f"{path}: contains no text for questions")
        yield ExamSample(exam, transcript.messages, transcript.task, tokens)


def exam_views(
    sample: ExamSample, names: Sequence[str], ratios: Sequence[float], model: str | None = None
) -> Iterator[ExamView]:
    """Yield the view of each method in `names` at each target; skip methods without a recorded answer."""
    for ratio in ratios:
        for name, method in methods_for(f"{sample.exam.transcript}@{ratio}", names, model).items():
            with suppress(NotRecorded):
                view = method(list(sample.messages), sample.task, max(1, int(ratio * sample.tokens)))
                yield exam_view(sample, name, ratio, plain_text(view))


def exam_view(sample: ExamSample, method: str, ratio: float, text: str) -> ExamView:
    """Return `text`, made by `method` from the sample's history for the target `ratio`, as a view."""
    return ExamView(sample.exam, method, ratio, text_tokens(text) / sample.tokens, text)


def exam_means(scored: Sequence[tuple[ExamView, Mapping[int, float]]]) -> list[ExamMean]:
    """Return the means by method and target; questions without a score do not count."""
    groups: dict[tuple[str, float], list[tuple[ExamView, Mapping[int, float]]]] = {}
    for view, scores in scored:
        groups.setdefault((view.method, view.ratio), []).append((view, scores))
    return [_mean(method, ratio, own) for (method, ratio), own in groups.items()]


def _mean(method: str, ratio: float, scored: Sequence[tuple[ExamView, Mapping[int, float]]]) -> ExamMean:
    by_kind: dict[QuestionKind, list[float]] = {kind: [] for kind in QUESTION_KINDS}
    for view, scores in scored:
        for question in view.exam.questions:
            if question.number in scores:
                by_kind[question.kind].append(scores[question.number])
    size, score = fmean(view.size for view, _ in scored), fmean(chain.from_iterable(by_kind.values()))
    means = {kind: fmean(own) for kind, own in by_kind.items() if own}
    return ExamMean(method, ratio, len(scored), size, score, means)
