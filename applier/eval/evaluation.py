"""Evaluates methods of compaction at several target sizes, on transcripts that were cut, and by exams.

A cut divides a transcript at one message. A method compacts only the messages before it; then the agent's later
messages show which of the names before it were needed. An exam has questions about a conversation: its score is the
share of questions with an accepted string in the compacted list. No model is asked for an answer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, product, takewhile
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from applier.adapters.transcripts import read_transcript
from applier.eval.methods import Method, NotRecorded, methods_for
from applier.eval.survival import (
    Need,
    NeedRecall,
    Survival,
    find_needs,
    measure_recall,
    measure_survival,
    message_tokens,
    plain_text,
    text_tokens,
)
from applier.processes import in_processes
from planner.errors import TranscriptError
from planner.prices import payback_calls
from planner.reading.lines import one_line
from planner.reading.messages import Message, message_digest
from planner.validity import check_messages

Value = TypeVar("Value")

CUT_SHARES = (0.5, 0.8)
"""Shares of a transcript's tokens at which it is cut, by default."""
LEAST_PREFIX_TOKENS = 15_000
"""Smallest size of the messages before a cut, as fewer tokens need no compaction."""
LEAST_NEEDS = 8
"""Smallest number of needs (names that the agent uses again) after a cut; fewer would prove nothing."""


@dataclass(frozen=True)
class Cut:
    """Transcript cut at one message: methods compact what is before; what is after shows which names were needed."""

    name: str
    """Name of the transcript and index of the message, such as ``run@120``."""
    task: str
    messages: tuple[Message, ...]
    """Messages before the cut, which a method compacts."""
    tokens: int
    """Number of o200k tokens in `messages`."""
    needs: tuple[Need, ...]
    """Names and values that the agent wrote after the cut and could know only from before it."""


@dataclass(frozen=True)
class EvaluationRow:
    """Measurements of the list that a method of compaction made for one target size of the messages before one cut."""

    method: str
    ratio: float
    """Target size, as a share of the tokens before the cut."""
    cut: str
    size: float
    """Tokens of the compacted list, divided by the tokens before the cut."""
    recall: NeedRecall
    """Names that the agent uses after the cut (needs), and which of them the compacted list contains."""
    survival: Survival
    """Failures, and demands of the user, before the cut, and which of them the compacted list contains."""
    violations: int
    """Number of rules of the Messages API that the compacted list breaks."""
    payback_calls: float | None
    """Number of calls until the smaller prompts have saved the cost of rewriting the cache; None if they never do."""


@dataclass(frozen=True)
class EvaluationMean:
    """Mean results of one method of compaction at one target size, over all cuts. Sizes are shares of the tokens before
    the cut, `plain` to `demands_kept` are shares of what the lists should contain (see `NeedRecall`, `Survival`)."""

    method: str
    ratio: float
    """Target size, as a share of the tokens before the cut."""
    cuts: int
    """Number of cuts in the mean."""
    size: float
    largest: float
    """Largest size of a compacted list."""
    plain: float
    in_context: float
    failures_kept: float
    demands_kept: float
    violations: int
    """Number of broken rules of the API in all compacted lists."""
    payback_calls: float | None
    """Mean of `EvaluationRow.payback_calls`, without those that are None; None if all are."""


def cut_transcript(
    name: str, messages: Sequence[Message], task: str, shares: Sequence[float] = CUT_SHARES
) -> list[Cut]:
    """Cut a transcript at these `shares` of its tokens, to see what compaction would lose. Leave out cuts with too few
    tokens before them, or fewer than `LEAST_NEEDS` names that the agent needs after them."""
    cuts = [cut_at(name, messages, task, point) for point in cut_points(messages, shares)]
    return [cut for cut in cuts if len(cut.needs) >= LEAST_NEEDS]


def cut_at(name: str, messages: Sequence[Message], task: str, point: int) -> Cut:
    """Cut the transcript `name` before the message at index `point`; `task` is its agent's task."""
    before = tuple(messages[:point])
    return Cut(f"{name}@{point}", task, before, message_tokens(before), find_needs(before, messages[point:], task))


def cut_points(messages: Sequence[Message], shares: Sequence[float] = CUT_SHARES) -> list[int]:
    """Return the indices of the messages before which to cut a transcript: for each of the `shares`, the first message
    of the assistant with this share of all tokens before it, if these are enough (`LEAST_PREFIX_TOKENS`)."""
    totals = list(accumulate((message_tokens([message]) for message in messages), initial=0))
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    points = [next((at for at in answers if totals[at] >= share * totals[-1]), None) for share in shares]
    return [at for at in dict.fromkeys(points) if at is not None and totals[at] >= LEAST_PREFIX_TOKENS]


def evaluate(methods: Mapping[str, Method], cuts: Sequence[Cut], ratios: Sequence[float]) -> list[EvaluationRow]:
    """Let each method (by name) compact the messages before each cut to each target size; return a row of measurements
    for each result. `ratios`: targets as shares of the tokens before the cut. A method that needs recorded answers of
    a model is left out where there are none."""
    rows = []
    for cut, (name, method), ratio in product(cuts, methods.items(), ratios):
        with suppress(NotRecorded):
            messages = method(list(cut.messages), cut.task, int(ratio * cut.tokens))
            rows.append(measured(cut, name, messages, ratio))
    return rows


def measured(cut: Cut, name: str, result: Sequence[Message], ratio: float) -> EvaluationRow:
    """Return measurements of the list `result`, which the method `name` made of the messages before `cut` for the
    target `ratio` (share of their tokens)."""
    return EvaluationRow(
        method=name,
        ratio=ratio,
        cut=cut.name,
        size=message_tokens(result) / cut.tokens,
        recall=measure_recall(cut.needs, result),
        survival=measure_survival(cut.messages, result),
        violations=count_violations(result),
        payback_calls=payback_of(cut.messages, result),
    )


def evaluate_files(
    paths: Sequence[Path],
    methods: Sequence[str],
    ratios: Sequence[float],
    *,
    model: str | None = None,
    workers: int = 1,
    done: Callable[[], None] = lambda: None,
) -> tuple[list[EvaluationRow], list[str]]:
    """Cut the transcripts in the files `paths`, and let the named methods compact them to each target size in `ratios`.
    Return the rows of measurements, and an error text for each file that cannot be read.

    `model`: planner model of the method ``model``; None for that of the settings. `workers`: number of processes that
    measure. `done` is called after each file, to show the progress.
    """
    work = partial(_file_rows, methods=methods, ratios=ratios, model=model)
    results_by_path = {}
    for path, result in in_processes(work, paths, workers) if workers > 1 else ((path, work(path)) for path in paths):
        results_by_path[path] = result or ([], f"{path}: the measuring process died")
        done()
    results = [results_by_path[path] for path in paths]
    return [row for rows, _ in results for row in rows], [problem for _, problem in results if problem]


def _file_rows(
    path: Path, methods: Sequence[str], ratios: Sequence[float], model: str | None
) -> tuple[list[EvaluationRow], str]:
    """Measure one transcript file; return its rows of measurements and an empty text, or no rows and an error text."""
    try:
        read = read_transcript(path)
    except TranscriptError as error:
        return [], str(error)
    cuts = cut_transcript(path.stem, read.messages, read.task)
    return [row for cut in cuts for row in evaluate(methods_for(cut.name, methods, model), [cut], ratios)], ""


def count_violations(result: Sequence[Message]) -> int:
    """Return the number of places in the list `result` for which the Messages API would refuse it."""
    return sum(violation.refused for violation in check_messages(result))


def payback_of(before: Sequence[Message], result: Sequence[Message]) -> float | None:
    """Return the number of calls after which the shorter list `result` has saved what it costs to write its changed
    part to the cache; None if it never does. `before`: the list that was compacted."""
    tokens = message_tokens(before)
    is_same = (message_digest(old) == message_digest(new) for old, new in zip(before, result, strict=False))
    unchanged_count = sum(takewhile(bool, is_same))
    cached_tokens = message_tokens(before[:unchanged_count])
    calls = payback_calls(tokens, tokens - message_tokens(result), cached_tokens)
    return calls if math.isfinite(calls) else None


def evaluation_means(rows: Sequence[EvaluationRow]) -> list[EvaluationMean]:
    """Return the mean results of each method at each target size, in order of first appearance."""
    means = []
    for method, ratio in dict.fromkeys((row.method, row.ratio) for row in rows):
        group = [row for row in rows if (row.method, row.ratio) == (method, ratio)]
        payback = [row.payback_calls for row in group if row.payback_calls is not None]
        mean = EvaluationMean(
            method=method,
            ratio=ratio,
            cuts=len(group),
            size=fmean(row.size for row in group),
            largest=max(row.size for row in group),
            plain=fmean(row.recall.plain for row in group),
            in_context=fmean(row.recall.in_context for row in group),
            failures_kept=fmean(row.survival.failures_kept for row in group),
            demands_kept=fmean(row.survival.demands_kept for row in group),
            violations=sum(row.violations for row in group),
            payback_calls=fmean(payback) if payback else None,
        )
        means.append(mean)
    return means


# Exams.

QuestionKind = Literal["artifact", "failed", "user", "decision", "state"]
"""Kind of a question in an exam. It asks for a name, path or value (``artifact``), a failure and its cause
(``failed``), a demand (``user``), a decision and its reason (``decision``), or the state of the work (``state``)."""
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)


class ExamQuestion(BaseModel, frozen=True):
    """Question about a conversation, to test a compacted list, which should contain one of the accepted answers."""

    number: int = Field(alias="n")
    kind: QuestionKind
    text: str = Field(alias="q")
    answer: str = Field(alias="a")
    evidence: tuple[int, ...] = ()
    """Indices of the messages that contain the answer."""
    answer_any: tuple[str, ...] = Field(min_length=1)
    """Accepted strings; a compacted list with one of them answers the question."""


class Exam(BaseModel, frozen=True):
    """Questions about one transcript."""

    transcript: str
    """Name of the transcript's file, without its suffix."""
    questions: tuple[ExamQuestion, ...] = Field(min_length=1)

    def literal_scores(self, text: str) -> dict[int, float]:
        """Return a score for each question by its number: 1 if `text` contains an accepted string, else 0."""
        folded = one_line(text)
        return {
            question.number: float(any(one_line(accepted) in folded for accepted in question.answer_any))
            for question in self.questions
        }


@dataclass(frozen=True)
class ExamSample:
    """Exam together with the conversation that its questions are about, and that methods are to compact."""

    exam: Exam
    messages: Sequence[Message]
    task: str
    tokens: int
    """Number of o200k tokens in `messages`."""


@dataclass(frozen=True)
class ExamView:
    """Text of the list to which a method compacted a conversation, to look for the answers to an exam in it."""

    exam: Exam
    method: str
    ratio: float
    """Target size, as a share of the conversation's tokens."""
    size: float
    """Tokens of `text` (o200k), divided by those of the conversation."""
    text: str

    @property
    def sha(self) -> str:
        """Digest of the text, by which scores from elsewhere are matched with it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def scores(self) -> dict[int, float]:
        """Score of each question by its number: 1 if the text contains an accepted string, else 0."""
        return self.exam.literal_scores(self.text)

    @property
    def lost(self) -> list[ExamQuestion]:
        """Questions with no accepted answer in the text."""
        scores = self.scores
        return [question for question in self.exam.questions if not scores[question.number]]


@dataclass(frozen=True)
class ExamMean:
    """Mean score of one method of compaction at one target size, over all scored questions."""

    method: str
    ratio: float
    """Target size, as a share of the conversation's tokens."""
    exams: int
    """Number of exams in the mean."""
    size: float
    """Mean size of the compacted lists, as a share of the conversation's tokens."""
    score: float
    """Mean score of all questions, from 0 to 1."""
    by_kind: dict[QuestionKind, float]
    """Mean score of the questions of each kind; a kind without questions is left out."""


def read_exams(places: Sequence[Path]) -> list[Exam]:
    """Return the exams in `places`, which are JSON files, or folders with such files. Raise TranscriptError if there
    are none, or if one is not valid."""
    paths = [path for place in places for path in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
    if not paths:
        raise TranscriptError(f"{', '.join(map(str, places))}: contains no exams (.json)")
    cure = "; docs/evaluation.md describes an exam"
    return [read_checked(path, TypeAdapter(Exam), cure) for path in paths]


def read_checked(path: Path, form: TypeAdapter[Value], cure: str = "") -> Value:
    """Return the content of the JSON file `path` as a value of the type in `form`. Raise TranscriptError if it has
    another form; the text names the file and the field, and ends with `cure`."""
    try:
        return form.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise TranscriptError(f"{path}: {place}: {first['msg'].lower()}{cure}") from error


def exam_samples(exams: Sequence[Exam], paths: Sequence[Path]) -> Iterator[ExamSample]:
    """Yield each exam with its transcript, which is the file among `paths` with the name in the exam. Raise
    TranscriptError if an exam has no such file, or the file has no text."""
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
    """Let each method in `names` compact the sample's conversation to each share of its tokens in `ratios`; yield the
    texts. `model`: planner model of the method ``model``. A method without its recorded answers is left out."""
    for ratio in ratios:
        for name, method in methods_for(f"{sample.exam.transcript}@{ratio}", names, model).items():
            with suppress(NotRecorded):
                view = method(list(sample.messages), sample.task, max(1, int(ratio * sample.tokens)))
                yield exam_view(sample, name, ratio, plain_text(view))


def exam_view(sample: ExamSample, method: str, ratio: float, text: str) -> ExamView:
    """Return the compacted `text`, which `method` made of the sample's conversation for the target `ratio`, as a
    view."""
    return ExamView(sample.exam, method, ratio, text_tokens(text) / sample.tokens, text)


def exam_means(scored: Sequence[tuple[ExamView, Mapping[int, float]]]) -> list[ExamMean]:
    """Return the mean scores of each method at each target size. `scored`: compacted texts, each with the scores of the
    exam's questions by their numbers; a question may be without a score."""
    means = []
    for method, ratio in dict.fromkeys((view.method, view.ratio) for view, _ in scored):
        group = [(view, scores) for view, scores in scored if (view.method, view.ratio) == (method, ratio)]
        by_kind: dict[QuestionKind, list[float]] = {kind: [] for kind in QUESTION_KINDS}
        for view, scores in group:
            for question in view.exam.questions:
                if question.number in scores:
                    by_kind[question.kind].append(scores[question.number])
        size, score = fmean(view.size for view, _ in group), fmean(chain.from_iterable(by_kind.values()))
        kinds = {kind: fmean(kind_scores) for kind, kind_scores in by_kind.items() if kind_scores}
        means.append(ExamMean(method, ratio, len(group), size, score, kinds))
    return means
