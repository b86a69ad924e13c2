"""Many compactions in a row on a growing history: what the planner reads for them, and what stands after each.

Counts lines of the early turns word for word, and holds an exam on the last view. With recorded answers, what a model
still has to answer is written beside them, one round at a time: each prompt depends on the answers before it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from applier.eval.exam import Exam
from applier.eval.methods import FolderPlanner, NotRecorded, compact_by
from applier.eval.texts import message_tokens, one_space, plain_text
from applier.session.session import Session
from planner.analysis import analyze
from planner.evidence import Evidence
from planner.placeholders import clean
from planner.plan import Usage
from planner.proposal import Planner, PlanRequest, Proposal
from planner.reading.messages import Message
from planner.reading.tokens import TokenCounter

__all__ = ["AnsweredRounds", "CompactionRound", "CompactionRounds", "MeteredPlanner", "compact_in_rounds"]

FIRST_SHARE = 0.4
"""The first compaction comes when so much of the transcript is there, the last at its end."""
EARLIEST_SHARE = 0.5
"""Of what is there at the first compaction, this share of the turns is called early."""


@dataclass
class MeteredPlanner:
    """Passes on to `planner` and adds up what it read and wrote."""

    planner: Planner
    usages: list[Usage] = field(default_factory=list)
    """Of each proposal, in order."""

    @property
    def input_tokens(self) -> int:
        """What was read for all proposals together."""
        return sum(usage.read_tokens for usage in self.usages)

    def propose(self, request: PlanRequest) -> Proposal:
        """The proposal of the planner inside.

        Raises:
            PlannerUnavailable: as the planner inside does.
        """
        proposal = self.planner.propose(request)
        self.usages.append(proposal.provenance.usage)
        return proposal


@dataclass(frozen=True)
class AnsweredRounds:
    """Plans each history of one transcript by the answers recorded for its length: ``NAME@MESSAGES.answer.txt``."""

    folder: Path
    transcript: str

    def propose(self, request: PlanRequest) -> Proposal:
        """The proposal that the answers are.

        Raises:
            NotRecorded: there are none for this length; the prompt was written.
            PlannerUnavailable: an answer cannot be used.
        """
        sample = f"{self.transcript}@{len(request.history.messages)}"
        return FolderPlanner(self.folder, sample).propose(request)


@dataclass(frozen=True, slots=True)
class CompactionRound:
    """After one compaction."""

    history_tokens: int
    sent_tokens: int
    """Both by the counter that plans use, which never counts less than a provider."""
    planner_input_tokens: int
    """What the planner has read so far, in all rounds together, as it says."""
    demands: tuple[int, int]
    """Lines of the user's binding words in the early turns: how many still stand, of how many."""
    failures: tuple[int, int]
    """Lines that show a failure there, likewise."""


@dataclass(frozen=True, slots=True)
class CompactionRounds:
    """All compactions of one transcript."""

    rounds: tuple[CompactionRound, ...]
    unplanned: int
    """Rounds in which the planner gave no plan, and the session went on without it."""
    exam_score: float | None
    """Literal, of the last view; None without an exam."""
    exam_score_from_scratch: float | None
    """Of one plan of the whole history, at the size of the last view; None without one."""

    @property
    def planner_input_ratio(self) -> float:
        """What the planner read for all rounds, over the tokens of the whole history."""
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
    text = one_space(plain_text(sent))
    evidence = analyze(messages).evidence
    demands, failures = (
        (sum(_stands(line, evidence, text) for line in lines), len(lines)) for lines in (early.demands, early.failures)
    )
    count = TokenCounter().messages
    return CompactionRound(count(messages), count(sent), planner_input_tokens, demands, failures)


@dataclass(frozen=True, slots=True)
class _EarlyLines:
    """What of the early turns is looked for after each round."""

    demands: tuple[str, ...]
    failures: tuple[str, ...]


def _early_lines(messages: Sequence[Message]) -> _EarlyLines:
    turns = list(analyze(messages).evidence.turns.values())
    early = turns[: int(len(turns) * EARLIEST_SHARE)]
    demands = [turn.lines[number - 1].text for turn in early for number in turn.constraint_lines]
    failures = [turn.lines[number - 1].text for turn in early for number in turn.failure_lines]
    return _EarlyLines(tuple(filter(str.strip, demands)), tuple(filter(str.strip, failures)))


def _stands(line: str, evidence: Evidence, text: str) -> bool:
    """True if `text` holds `line`: as it is, in a turn that is kept, or without the root of paths, in a note."""
    return any(one_space(form) in text for form in (line, evidence.shown(clean(line))))
