"""Two folders of planner prompts on the same transcripts: how much each keeps, and what only one of them keeps.

Those places are what to read when editing a prompt. Asks the planner model, or uses answers that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from applier.eval.evaluation import Cut, EvaluationRow, evaluate
from applier.eval.methods import FolderPlanner, Method, compact_by
from applier.eval.texts import occurrences, one_space, pieces
from planner.errors import SettingsError
from planner.model import ModelPlanner
from planner.reading.history import History, read_history

__all__ = ["DEFAULT_RATIO", "Difference", "PromptVariant", "compare_prompts"]

DEFAULT_RATIO = 0.10
"""Tight enough that it matters what is chosen."""
PLACE_CHARACTERS = 200
"""How much is shown of the line where something stood."""


@dataclass(frozen=True)
class PromptVariant:
    """One folder of prompts, and what answers them."""

    prompts_dir: Path | None = None
    """None: the packaged prompts."""
    answers: Path | None = None
    """A folder of recorded answers: ``NAME@CUT.answer.txt``, or ``NAME@CUT.answer-1.txt`` and on, one a piece; where
    they are missing, the prompts to answer are written there. None: the model is asked."""
    model: str | None = None

    @property
    def name(self) -> str:
        """What rows call it."""
        return str(self.prompts_dir or "packaged") if self.answers is None else str(self.answers)

    def method(self, cut: Cut) -> Method:
        """What compacts `cut` by these prompts."""
        if self.answers is not None:
            return partial(compact_by, planner=FolderPlanner(self.answers, cut.name, self.prompts_dir))
        return partial(compact_by, planner=ModelPlanner(None, self.model, self.prompts_dir))


@dataclass(frozen=True)
class Difference:
    """Something that one variant kept and the other lost."""

    cut: str
    kept_by: str
    what: str
    """A specific the agent needed, the line of a failure, or words of the user."""
    turn_id: str
    """Where it stood last."""
    line: str
    """The line it stood on there."""


def compare_prompts(
    first: PromptVariant,
    second: PromptVariant,
    cuts: Sequence[Cut],
    ratio: float = DEFAULT_RATIO,
    done: Callable[[], None] = lambda: None,
) -> tuple[list[EvaluationRow], list[Difference]]:
    """Plan `cuts` by both variants and by rules at the same target; `done` is called as each cut is finished.

    The rows are the first variant's, the second's and the rules planner's, cut by cut. With recorded answers, cuts that
    one of them has none for are left out.

    Raises:
        SettingsError: both are the same, a folder's prompts cannot be used, or no cut has recorded answers.
        PlannerUnavailable: the model could not be used, or a recorded answer cannot be.
    """
    if first.name == second.name:
        raise SettingsError(f"{first.name}: compared with itself: name two folders of prompts, or of answers")
    rows: list[EvaluationRow] = []
    differences: list[Difference] = []
    for cut in cuts:
        own = evaluate({one.name: one.method(cut) for one in (first, second)} | {"rules": compact_by}, [cut], [ratio])
        if len(own) == 3:
            rows += own
            differences += _differences(cut, own[0], own[1])
        done()
    if cuts and not rows:
        wanted = f"{cuts[0].name}.answer.txt"
        raise SettingsError(
            f"no recorded answers for any cut of these transcripts: the prompts were written to {first.answers} and "
            f"{second.answers}: answer each beside it, as {wanted} and the like"
        )
    return rows, differences


def _differences(cut: Cut, one: EvaluationRow, other: EvaluationRow) -> Iterator[Difference]:
    history = read_history(cut.messages)
    for keeper, loser in ((one, other), (other, one)):
        for what in (what for what in _lost(loser) if what not in _lost(keeper)):
            yield Difference(cut.name, keeper.method, what, *_last_place(history, what))


def _lost(row: EvaluationRow) -> dict[str, None]:
    """Everything `row` lost: specifics (also those without their context), failures, words of the user."""
    parts = (row.recall.lost, row.recall.bare, row.survival.failures_lost, row.survival.demands_lost)
    return dict.fromkeys(what for part in parts for what in part)


def _last_place(history: History, what: str) -> tuple[str, str]:
    for turn in reversed(history.turns):
        for text in reversed(pieces(history.messages_of(turn))):
            for line in reversed(text.splitlines()):
                at = next(occurrences(what, one_space(line)), None)
                if at is not None:
                    return turn.id, one_space(line)[max(0, at - PLACE_CHARACTERS // 2) :][:PLACE_CHARACTERS]
    return "", ""
