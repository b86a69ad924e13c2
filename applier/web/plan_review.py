"""The review as a page shows it: a plan, a person's revision of it, and what the guards make of both, as JSON data.

Every answer is made from the plan as it was opened and the whole revision, so nothing is kept between requests and
undoing is asking for less. What was read of the transcript is read once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from applier.sheet import Edit, Sheet, reviewed
from planner.analysis import Analysis
from planner.brief import CheckedStatement, check_statements
from planner.errors import SettingsError
from planner.placeholders import line_numbers, ranges_of
from planner.plan import CompactionPlan, Strategy, TurnDecision

__all__ = ["Review", "Revision", "Search"]

MOST_BRIEF_CHARACTERS = 200_000
MOST_WORD_LINES = 12
"""Of one turn's words of the user; the rest is seen in the turn."""


class _Untrusted(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TurnRevision(_Untrusted):
    """What a person wants done with one turn."""

    strategy: Strategy
    lines: tuple[int, ...] | None = Field(default=None, max_length=1_000_000)
    """Of a turn to be summarized: the numbers of the lines that are to stay; None: as planned."""


class Revision(_Untrusted):
    """All that a person changed since the plan was opened."""

    turns: dict[str, TurnRevision] = Field(default_factory=dict, max_length=1_000_000)
    brief: str | None = Field(default=None, max_length=MOST_BRIEF_CHARACTERS)
    open: str = ""
    """The turn that is looked at: what it leaves is told."""


class Search(_Untrusted):
    """What is looked for in the originals."""

    text: str = Field(min_length=1, max_length=1_000)


class Review:
    """A plan under review."""

    def __init__(
        self,
        plan: CompactionPlan,
        messages: Sequence[object],
        *,
        plan_name: str,
        view_name: str,
        save: Callable[[CompactionPlan], Mapping[str, str]],
        apply: Callable[[Sheet], Mapping[str, str]],
    ) -> None:
        """Read `messages` and check `plan`; `save` and `apply` write a guarded plan, and are called one at a time.

        They return what was written in words for a person: a ``message``, and ``detail``.

        Raises:
            StalePlan: the plan was made for other messages.
        """
        self._messages = messages
        self._plan = reviewed(plan, messages, fold=False).plan
        analysis = self._plan.bound_analysis
        assert analysis is not None
        self._analysis: Analysis = analysis
        self._names = {"plan": plan_name, "view": view_name}
        self._save, self._apply = save, apply
        self._writing = threading.Lock()

    def page(self) -> dict[str, Any]:
        """What does not change while the page is open, and the plan as it was opened."""
        plan, sheet = self._plan, self._sheet(Revision())
        return {
            "task": plan.task,
            "files": self._names,
            "planner": " ".join(part for part in (plan.provenance.planner, plan.provenance.model) if part),
            "notes": list(plan.provenance.notes),
            "brief": plan.brief,
            "turns": [
                self._turn(decision, row.what) for decision, row in zip(sheet.plan.turns, sheet.rows, strict=True)
            ],
            "words": list(self._words()),
            "facts": [fact.model_dump(mode="json", exclude={"timestamp"}) for fact in plan.extracted_facts],
            "checked": self._checked(sheet, Revision()),
        }

    def check(self, revision: Revision) -> dict[str, Any]:
        """What the guards make of `revision`: sizes, decisions, findings, the brief's statements.

        Raises:
            SettingsError: it names a turn that is not there.
        """
        return self._checked(self._sheet(revision), revision)

    def lines(self, turn_id: str) -> dict[str, Any] | None:
        """One turn as it was, line by line; None if there is no such turn."""
        turn = self._analysis.evidence.turns.get(turn_id)
        if turn is None:
            return None
        failing, binding = set(turn.failure_lines), set(turn.constraint_lines)
        return {
            "messages": [turn.turn.start, turn.turn.stop - 1],
            "lines": [
                {
                    "number": line.number,
                    "part": line.part,
                    "text": line.text,
                    "continues": line.continues,
                    "mark": "failure" if line.number in failing else "user" if line.number in binding else "",
                }
                for line in turn.lines
            ],
        }

    def search(self, wanted: Search) -> dict[str, Any]:
        """The turns that hold the text in one of their lines, in letters of any case."""
        text, turns = wanted.text.casefold(), self._analysis.evidence.turns.items()
        return {"turns": [key for key, turn in turns if any(text in line.text.casefold() for line in turn.lines)]}

    def save(self, revision: Revision) -> Mapping[str, str]:
        """Write the plan as revised and guarded."""
        with self._writing:
            return self._save(self._sheet(revision).plan)

    def apply(self, revision: Revision) -> Mapping[str, str]:
        """Write the view of the plan as revised and guarded."""
        with self._writing:
            return self._apply(self._sheet(revision))

    def _sheet(self, revision: Revision) -> Sheet:
        return reviewed(self._plan, self._messages, list(self._edits(revision)), brief=revision.brief, fold=False)

    def _edits(self, revision: Revision) -> Iterator[Edit]:
        for turn_id, own in revision.turns.items():
            turn = self._analysis.evidence.turns.get(turn_id)
            if turn is None:
                raise SettingsError(f"{turn_id[:20]!r} is no turn of this plan")
            lines = None if own.lines is None else {number for number in own.lines if 0 < number <= len(turn.lines)}
            excerpts = None if lines is None else ranges_of(lines)
            yield Edit(turn.turn.number, turn.turn.number, own.strategy, excerpts)

    def _turn(self, decision: TurnDecision, what: str) -> dict[str, Any]:
        turn = self._analysis.evidence.turns[decision.turn_id]
        return {
            "id": decision.turn_id,
            "kind": turn.turn.kind,
            "live": turn.turn.live,
            "what": " ".join(what.split()),
            "before": turn.tokens,
            "score": decision.relevance_score,
            "lines": len(turn.lines),
        }

    def _words(self) -> Iterator[dict[str, Any]]:
        """The user's words, turn by turn: what binds, else how they begin."""
        for turn_id, turn in self._analysis.evidence.turns.items():
            binding = set(turn.constraint_lines)
            lines = [turn.lines[number - 1] for number in sorted(binding)] or list(turn.user_lines[:1])
            if lines:
                shown = [{"text": line.text, "binding": line.number in binding} for line in lines[:MOST_WORD_LINES]]
                yield {"turn": turn_id, "lines": shown, "more": len(turn.user_lines) - len(shown)}

    def _checked(self, sheet: Sheet, revision: Revision) -> dict[str, Any]:
        plan, before = sheet.plan, set(self._plan.findings)
        brief = self._plan.brief if revision.brief is None else revision.brief
        return {
            "totals": {**sheet.cost, "target": plan.target_tokens},
            "turns": [
                {"strategy": row.strategy, "after": row.tokens_after, "failed": row.failed, "why": row.why}
                for row in sheet.rows
            ],
            "failed": [{"turn": own.turn_id, "what": own.what, "how": own.how} for own in sheet.failed],
            "findings": [  # what the changes brought up first
                {**finding.model_dump(mode="json"), "new": finding not in before}
                for finding in sorted(plan.findings, key=before.__contains__)
            ],
            "statements": [_statement(one) for one in check_statements(brief, self._analysis.evidence)],
            "open": self._open(sheet, revision.open),
        }

    def _open(self, sheet: Sheet, turn_id: str) -> dict[str, Any] | None:
        """What the open turn leaves, and which of its lines stand."""
        turn = self._analysis.evidence.turns.get(turn_id)
        if turn is None:
            return None
        decision = sheet.plan.decisions[turn_id]
        every = {line.number for line in turn.lines}
        standing = every if decision.strategy == "keep" else line_numbers(decision.excerpts, len(every))
        left = sheet.left.get(turn_id, "")
        return {"turn": turn_id, "left": left, "standing": ranges_of(standing), "summary": decision.summary}


def _statement(checked: CheckedStatement) -> dict[str, Any]:
    written, sound = checked.written, checked.sound
    return {
        "heading": written.heading,
        "text": (sound or written).text,
        "turns": list((sound or written).turns),
        "state": "struck" if sound is None else "mended" if checked.findings else "holds",
        "problems": [f"{finding.problem}; {finding.repair}" for finding in checked.findings],
    }
