"""Labels that a person made by reading a transcript, and their literal survival in a compacted list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from applier.eval.evaluation import read_checked
from applier.eval.survival import plain_text
from planner.analysis import analyze
from planner.reading.lines import one_line
from planner.reading.messages import Message


class _Label(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FailedApproach(_Label):
    """Attempt that failed."""

    what: str = ""
    tried: str
    """Literal words of the attempt."""
    outcome: str
    """Literal words of its end."""


class LabelledQuestion(_Label):
    """Question of somebody who continues the work."""

    question: str
    answers: tuple[str, ...]
    """Literal strings that together are the answer."""


class Labels(BaseModel):
    """The labels of one transcript, for one cut."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    transcript: str
    """Name of the transcript's file, without its suffix."""
    cut: int
    """Index of the message after the cut."""
    failed: tuple[FailedApproach, ...] = ()
    constraints: tuple[str, ...] = ()
    """The user's words."""
    questions: tuple[LabelledQuestion, ...] = ()
    failing_messages: tuple[int, ...] | None = None
    """Indices of all messages before the cut with a failed result; None if not all were labelled."""


@dataclass(frozen=True)
class Labelled:
    """Labels in a list: one truth value for each, in order."""

    failed: tuple[bool, ...]
    constraints: tuple[bool, ...]
    answers: tuple[bool, ...]
    lost: tuple[str, ...]
    """Labels that are missing."""


@dataclass(frozen=True)
class FailureFlags:
    """Agreement of the planner's evidence with a reader about failed turns."""

    right: tuple[str, ...]
    """Ids of turns that both name."""
    false: tuple[str, ...]
    """Ids that only the evidence names."""
    missed: tuple[str, ...]
    """Ids that only the reader names."""

    @property
    def precision(self) -> float:
        """Share of flagged turns that are labelled; 1 when none is flagged."""
        flagged = len(self.right) + len(self.false)
        return len(self.right) / flagged if flagged else 1.0

    @property
    def recall(self) -> float:
        """Share of labelled turns that are flagged; 1 when none is labelled."""
        labelled = len(self.right) + len(self.missed)
        return len(self.right) / labelled if labelled else 1.0


def read_labels(places: Sequence[Path]) -> dict[str, Labels]:
    """The label files among and in `places`, by transcript name.

    Raises:
        TranscriptError: a file is not a label file; the text names the file and the field.
    """
    paths = [path for place in places for path in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
    return {labels.transcript: labels for labels in (read_checked(path, TypeAdapter(Labels)) for path in paths)}


def failure_flags(labels: Labels, messages: Sequence[Message]) -> FailureFlags | None:
    """Return the agreement of the evidence before the cut with the labels; None if not all were labelled."""
    if labels.failing_messages is None:
        return None
    analysis = analyze(messages[: labels.cut])
    turns = analysis.history.turns
    flagged = {turn.id for turn in turns if analysis.evidence.turns[turn.id].failed}
    labelled = {turn.id for turn in turns for at in labels.failing_messages if turn.start <= at < turn.stop}

    def named(ids: set[str]) -> tuple[str, ...]:
        return tuple(turn.id for turn in turns if turn.id in ids)

    return FailureFlags(named(flagged & labelled), named(flagged - labelled), named(labelled - flagged))


def measure_labels(labels: Labels, result: Sequence[Message]) -> Labelled:
    """Return the labels found in `result`, white space folded; an answer needs all of its strings."""
    text = one_line(plain_text(result))

    def stands(*strings: str) -> bool:
        return all(one_line(string) in text for string in strings)

    failed = tuple(stands(f.tried, f.outcome) for f in labels.failed)
    constraints = tuple(map(stands, labels.constraints))
    answers = tuple(stands(*q.answers) for q in labels.questions)
    names = [
        *(f.what or f.outcome for f in labels.failed),
        *labels.constraints,
        *(q.question for q in labels.questions),
    ]
    standing = (*failed, *constraints, *answers)
    return Labelled(
        failed, constraints, answers, tuple(name for name, stands in zip(names, standing, strict=True) if not stands)
    )
