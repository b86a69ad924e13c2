"""Many compactions in a row on a growing history: tokens the planner reads, and early content left after each.

Counts lines of the early turns word for word, and runs an exam on the last view. With recorded answers, missing ones
are written as prompts, one round at a time, since each prompt depends on earlier answers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from applier.eval.evaluation import Exam
from applier.eval.methods import FolderPlanner, NotRecorded, compact_by
from applier.eval.survival import message_tokens, plain_text
from applier.session.session import Session
from planner.analysis import analyze
from planner.evidence import Evidence
from planner.placeholders import clean
from planner.plan import Planner, PlanRequest, Proposal, Usage
from planner.reading.lines import one_line
from planner.reading.messages import Message
from planner.reading.tokens import TokenCounter

FIRST_SHARE = 0.4
"""Share of the transcript at the first compaction; the last is at its end."""
EARLIEST_SHARE = 0.5
"""Share of the turns at the first compaction that count as early."""


@dataclass
class MeteredPlanner:
    """Planner that adds up the usage of `planner`."""

    planner: Planner
    usages: list[Usage] = field(default_factory=list)
    """Usage of each proposal, in order."""

    @property
    def input_tokens(self) -> int:
        """Input tokens of all proposals together."""
        return sum(usage.read_tokens for usage in self.usages)

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the proposal of the inner planner.

        Raises:
            PlannerUnavailable: as the inner planner does.
        """
        proposal = self.planner.propose(request)
        self.usages.append(proposal.provenance.usage)
        return proposal


@dataclass(frozen=True)
class AnsweredRounds:
    """Planner by answers recorded for the length of a history: ``NAME@MESSAGES.answer.txt``."""

    folder: Path
    transcript: str

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the recorded proposal.

        Raises:
            NotRecorded: there is none for this length; the prompt was written.
            PlannerUnavailable: an answer cannot be used.
        """
        sample = f"{self.transcript}@{len(request.history.messages)}"
        return FolderPlanner(self.folder, sample).propose(request)


@dataclass(frozen=True, slots=True)
class CompactionRound:
    """Numbers after one compaction."""

    history_tokens: int
    sent_tokens: int
    """Tokens sent, by the counter of plans, which never undercounts."""
    planner_input_tokens: int
    """Tokens read by the planner in all rounds so far."""
    demands: tuple[int, int]
    """Lines of demands in the early turns: left, and all."""
    failures: tuple[int, int]
    """Lines of failures in the early turns: left, and all."""


@dataclass(frozen=True, slots=True)
class CompactionRounds:
    """All compactions of one transcript."""

    rounds: tuple[CompactionRound, ...]
    unplanned: int
    """Rounds without a plan."""
    exam_score: float | None
    """Literal score of the last view; None without an exam."""
    exam_score_from_scratch: float | None
    """Literal score of one plan of the whole history at the same size; None without one."""

    @property
    def planner_input_ratio(self) -> float:
        """Tokens read by the planner in all rounds, divided by those of the history."""
        return self.rounds[-1].planner_input_tokens / max(1, self.rounds[-1].history_tokens)


def compact_in_rounds(
    messages: Sequence[Message],
    task: str,
    planner: Planner,
    *,
    rounds: int = 10,
    exam: Exam | None = None,
    from_scratch: Planner | None = None,
    preset: str = "relevance",
    window_tokens: int = 200_000,
) -> CompactionRounds:
    """Let a transcript grow through a session and compact it `rounds` times, each time from the originals.

    With `exam` the last view is held against it, beside one plan of all `messages` by the planner `from_scratch`.
    """
    lengths = [int(len(messages) * (FIRST_SHARE + (1 - FIRST_SHARE) * n / max(1, rounds - 1))) for n in range(rounds)]
    metered, early = MeteredPlanner(planner), _early_lines(messages[: lengths[0]])
    done: list[CompactionRound] = []
    sent: list[Message] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(
            task, preset=preset, store=Path(folder, "store.db"), planner=metered, window_tokens=window_tokens
        ) as session,
    ):
        for length in lengths:
            sent = session.compact(messages[:length]).messages
            done.append(_round(messages[:length], sent, early, metered.input_tokens))
    scratch = _from_scratch(messages, task, message_tokens(sent), from_scratch) if exam and from_scratch else None
    return CompactionRounds(
        rounds=tuple(done),
        unplanned=rounds - len(metered.usages),
        exam_score=_score(exam, sent),
        exam_score_from_scratch=_score(exam, scratch),
    )


def _score(exam: Exam | None, view: Sequence[Message] | None) -> float | None:
    return fmean(exam.literal_scores(plain_text(view)).values()) if exam and view else None


def _from_scratch(messages: Sequence[Message], task: str, target_tokens: int, planner: Planner) -> list[Message] | None:
    try:
        return compact_by(messages, task, target_tokens, planner=planner)
    except NotRecorded:
        return None


def _round(
    messages: Sequence[Message], sent: Sequence[Message], early: _EarlyLines, planner_input_tokens: int
) -> CompactionRound:
    text = one_line(plain_text(sent))
    evidence = analyze(messages).evidence
    demands, failures = (
        (sum(_stands(line, evidence, text) for line in lines), len(lines)) for lines in (early.demands, early.failures)
    )
    count = TokenCounter().messages
    return CompactionRound(count(messages), count(sent), planner_input_tokens, demands, failures)


@dataclass(frozen=True, slots=True)
class _EarlyLines:
    """Lines of the early turns to look for after each round."""

    demands: tuple[str, ...]
    failures: tuple[str, ...]


def _early_lines(messages: Sequence[Message]) -> _EarlyLines:
    turns = list(analyze(messages).evidence.turns.values())
    early = turns[: int(len(turns) * EARLIEST_SHARE)]
    demands = [line.text for turn in early for line in turn.typed_lines]
    failures = [turn.lines[number - 1].text for turn in early for number in turn.failure_lines]
    return _EarlyLines(tuple(filter(str.strip, demands)), tuple(filter(str.strip, failures)))


def _stands(line: str, evidence: Evidence, text: str) -> bool:
    """Return True if `text` contains `line`, in a kept turn or, without the root of paths, in a note."""
    return any(one_line(form) in text for form in (line, evidence.shown(clean(line))))
