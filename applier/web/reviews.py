"""Review of a plan by a person in a browser: the page's data and actions, as JSON.

With each request the page sends all changes that the person has made, so an answer depends only on them and on the
plan. Files are written only by the functions that the caller passes in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from applier.plan_review import Edit, PlanReview, reviewed
from planner.analysis import Analysis
from planner.brief import CheckedStatement, check_statements
from planner.errors import SettingsError
from planner.evidence import TurnEvidence
from planner.placeholders import line_numbers, ranges_of
from planner.plan import CompactionPlan, Strategy
from planner.prices import money
from planner.reading.messages import plain_message
from planner.reading.secrets import redact

MOST_WORD_LINES = 12
"""Largest number of lines of the user's words that the page shows of one turn."""
_WORDS = ("turns", "failed", "findings", "statements", "open")
"""Fields of an answer to the page that contain words of the conversation, so that secrets are removed from them."""


class TurnRevision(BaseModel, extra="forbid", frozen=True):
    """A person's change to what the plan does with one turn."""

    strategy: Strategy
    lines: tuple[int, ...] | None = Field(default=None, max_length=1_000_000)
    """Numbers of the lines to keep of a summarized turn; None keeps those of the plan."""


class Revision(BaseModel, extra="forbid", frozen=True):
    """All changes that the person has made since the plan was opened."""

    turns: dict[str, TurnRevision] = Field(default_factory=dict, max_length=1_000_000)
    brief: str | None = Field(default=None, max_length=200_000)
    """Changed brief (the page of memory in the compacted list); None keeps that of the plan."""
    open: str = ""
    """Id of the turn that the page displays, to get the text that replaces this turn; empty if it displays none."""


class Search(BaseModel, extra="forbid", frozen=True):
    """Text to look for in the original messages."""

    text: str = Field(min_length=1, max_length=1_000)


class Replan(BaseModel, extra="forbid", frozen=True):
    """Options for a new plan that the person asks for."""

    target_tokens: int = Field(ge=1, le=10**9)
    """Wanted size of the compacted list in tokens."""
    planner: Literal["rules", "model"]


class ReviewPage:
    """Data and actions of the page on which a person reviews a plan."""

    def __init__(
        self,
        plan: CompactionPlan,
        messages: Sequence[object],
        files: Mapping[str, str],
        *,
        save: Callable[[CompactionPlan], Mapping[str, str]],
        apply: Callable[[PlanReview], Mapping[str, str]],
        replan: Callable[[Replan], CompactionPlan],
    ) -> None:
        """Check `plan`, which was made for `messages`.

        `files`: names of the files for the ``plan`` and the ``view`` (compacted list). `save` writes a checked plan,
        and `apply` the compacted list; both return a ``message`` and a ``detail`` for the person. `replan` makes
        another plan for the same messages. Only one of these functions is called at a time.
        """
        self._messages = messages
        self._files = files
        self._save, self._apply, self._replan = save, apply, replan
        self._writing = threading.Lock()
        self._is_saved = True
        self._open(plan)

    def _open(self, plan: CompactionPlan) -> None:
        """Review `plan` from now on, after the guards (the checks that every plan must pass) have repaired it."""
        self._plan = reviewed(plan, self._messages).plan
        analysis = self._plan.bound_analysis
        assert analysis is not None
        self._analysis: Analysis = analysis

    def page(self) -> dict[str, Any]:
        """Return everything that the page shows at first: the plan without changes of the person, and data that changes
        do not affect, such as the user's words."""
        plan, review, turns = self._plan, self._reviewed(Revision()), self._analysis.evidence.turns
        page = {
            "task": plan.task,
            "files": self._files,
            "planner": " ".join(part for part in (plan.provenance.planner, plan.provenance.model) if part),
            "planners": ["model", "rules"] if plan.provenance.planner == "model" else ["rules"],
            "saved": self._is_saved,
            "notes": list(plan.provenance.notes),
            "brief": plan.brief,
            "turns": [
                {
                    "id": decision.turn_id,
                    "kind": turns[decision.turn_id].turn.kind,
                    "live": turns[decision.turn_id].turn.live,
                    "what": " ".join(review.notes.heads[decision.turn_id].split()),
                    "before": turns[decision.turn_id].tokens,
                    "score": decision.relevance_score,
                    "lines": len(turns[decision.turn_id].lines),
                }
                for decision in review.plan.turns
            ],
            "words": list(self._words()),
            "facts": [fact.model_dump(mode="json", exclude={"timestamp"}) for fact in plan.extracted_facts],
        }
        return {**redact(page, self._analysis.secrets), "checked": self._checked(review, Revision())}

    def check(self, revision: Revision) -> dict[str, Any]:
        """Return the plan with the person's changes, after the guards (checks of every plan) have repaired it: sizes,
        decisions, findings (remarks of the guards) and statements of the brief (page of memory)."""
        return self._checked(self._reviewed(revision), revision)

    def lines(self, turn_id: str) -> dict[str, Any] | None:
        """Return the lines of one original turn; None if there is no such turn."""
        turn = self._analysis.evidence.turns.get(turn_id)
        if turn is None:
            return None
        marks = dict.fromkeys((line.number for line in turn.typed_lines), "user")  # the page highlights these
        marks |= dict.fromkeys(turn.failure_lines, "failure")
        lines = [
            {"number": line.number, "part": line.part, "text": line.text, "continues": line.continues}
            | {"mark": marks.get(line.number, "")}
            for line in turn.lines
        ]
        return {"messages": [turn.turn.start, turn.turn.stop - 1], "lines": lines}

    def search(self, wanted: Search) -> dict[str, Any]:
        """Return the ids of the turns with a line that contains the searched text, in any letter case."""
        text, turns = wanted.text.casefold(), self._analysis.evidence.turns.items()
        return {"turns": [key for key, turn in turns if any(text in line.text.casefold() for line in turn.lines)]}

    def view(self, revision: Revision) -> dict[str, Any]:
        """Return the compacted list, with sizes and indices in the original list (None: new or changed message)."""
        preview, tokens = self._reviewed(revision).preview, self._analysis.counter.message
        index = {id(message): at for at, message in enumerate(self._messages)}
        compacted = preview.messages if preview else ()
        indexed = ((index.get(id(message)), plain_message(message)) for message in compacted)
        return {"messages": [{"index": at, "tokens": tokens(message), "message": message} for at, message in indexed]}

    def replan(self, wanted: Replan) -> dict[str, Any]:
        """Replace the plan by a new one, with the options `wanted`. The person's changes stay, as the page has them."""
        with self._writing:
            self._open(self._replan(wanted))
            self._is_saved = False
        return {}

    def save(self, revision: Revision) -> Mapping[str, str]:
        """Check the person's changes, write the plan, and return the ``message`` and ``detail`` to show."""
        with self._writing:
            saved = self._save(self._reviewed(revision).plan)
            self._is_saved = True
        return saved

    def apply(self, revision: Revision) -> Mapping[str, str]:
        """Check the person's changes, write the compacted list, and return the ``message`` and ``detail`` to show."""
        with self._writing:
            return self._apply(self._reviewed(revision))

    def _reviewed(self, revision: Revision) -> PlanReview:
        """Return the plan with the person's changes, after the guards (checks of every plan) have repaired it."""
        return reviewed(self._plan, self._messages, list(self._edits(revision)), brief=revision.brief)

    def _edits(self, revision: Revision) -> Iterator[Edit]:
        """Yield the person's decision for each turn that they changed; numbers of lines that do not exist are left out.
        Raise a SettingsError for a turn that does not exist."""
        for turn_id, revised in revision.turns.items():
            turn = self._analysis.evidence.turns.get(turn_id)
            if turn is None:
                raise SettingsError(f"{turn_id[:20]!r} is not a turn of this plan")
            lines, count = revised.lines, len(turn.lines)
            excerpts = None if lines is None else ranges_of(number for number in lines if 0 < number <= count)
            yield Edit(turn.turn.number, turn.turn.number, revised.strategy, excerpts)  # from a turn to itself

    def _words(self) -> Iterator[dict[str, Any]]:
        """Yield the user's words in each turn that has some: the lines that they typed, or if they pasted all, the
        first line. ``more`` is the number of lines that are not shown."""
        for turn_id, turn in self._analysis.evidence.turns.items():
            typed = [turn.lines[line.number - 1] for line in turn.typed_lines]
            lines = typed or list(turn.user_lines[:1])
            shown = [{"text": line.text, "binding": bool(typed)} for line in lines[:MOST_WORD_LINES]]
            if shown:
                yield {"turn": turn_id, "lines": shown, "more": len(turn.user_lines) - len(shown)}

    def _checked(self, review: PlanReview, revision: Revision) -> dict[str, Any]:
        """Return the reviewed plan, with the person's changes, as data for the page, without secrets. Findings (remarks
        of the guards) that result from the changes come first."""
        plan, earlier = review.plan, set(self._plan.findings)
        brief = self._plan.brief if revision.brief is None else revision.brief
        turn = self._analysis.evidence.turns.get(revision.open)
        checked: dict[str, Any] = {
            "totals": {
                **review.cost,
                "target": plan.target_tokens,
                "messages": len(review.preview.messages) if review.preview else 0,
                "money": {name: money(amount) for name, amount in review.cost["dollars"].items()},
            },
            "turns": [
                {"strategy": one.strategy, "after": one.tokens_after, "failed": one.failed_approach, "why": one.reason}
                for one in plan.turns
            ],
            "failed": review.notes.failures,
            "findings": [
                {**finding.model_dump(mode="json"), "new": finding not in earlier}
                for finding in sorted(plan.findings, key=earlier.__contains__)
            ],
            "statements": [_statement(one) for one in check_statements(brief, self._analysis.evidence)],
            "open": _replacement_of(review, revision.open, turn) if turn else None,
        }
        return {**checked, **redact({name: checked[name] for name in _WORDS}, self._analysis.secrets)}


def _replacement_of(review: PlanReview, turn_id: str, turn: TurnEvidence) -> dict[str, Any]:
    """Return the text that replaces the turn `turn_id` in the compacted list, and the ranges of its kept lines."""
    decision, count = review.plan.decisions[turn_id], len(turn.lines)
    kept = range(1, count + 1) if decision.strategy == "keep" else line_numbers(decision.excerpts, count)
    return {"turn": turn_id, "left": review.notes.left.get(turn_id, ""), "kept": ranges_of(kept)}


def _statement(checked: CheckedStatement) -> dict[str, Any]:
    """Return a statement of the brief (the page of memory), as the plan's guards (checks) left it, as JSON data. Its
    ``state``: ``holds``, ``mended`` (repaired) or ``struck`` (removed)."""
    written, sound = checked.written, checked.sound  # as written, and as repaired; None if removed
    return {
        "heading": written.heading,
        "text": (sound or written).text,
        "turns": list((sound or written).turns),
        "state": "struck" if sound is None else "mended" if checked.findings else "holds",
        "problems": [f"{finding.problem}; {finding.repair}" for finding in checked.findings],
    }
