"""What a person decides from, as data: rows, what removed turns leave in their place, what it costs.

Pure: everything comes from the plan, the evidence and the preview. Prints nothing, writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from applier.cli.review.rows import Row, table_rows
from applier.view import Preview
from planner.evidence import Evidence, TurnEvidence
from planner.layout.placeholders import entry_text
from planner.plan import CompactionPlan, Strategy, TurnDecision

__all__ = ["Failed", "Sheet", "StandIn", "review_sheet"]


@dataclass(frozen=True)
class Failed:
    """One failed approach and how it shows."""

    turn_id: str
    strategy: Strategy
    what: str
    how: str
    """The lines of the turn that show the failure, or the plan's words for it."""


@dataclass(frozen=True)
class StandIn:
    """What one turn leaves in its place."""

    turn_id: str
    strategy: Strategy
    tokens_before: int
    tokens_after: int
    text: str


@dataclass(frozen=True)
class Sheet:
    """A review, ready to be printed or dumped."""

    plan: CompactionPlan
    rows: tuple[Row, ...]
    failed: tuple[Failed, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    """Of every turn that leaves some text; empty without the transcript."""
    preview: Preview | None = None

    @property
    def changes(self) -> bool:
        """False if applying the plan would leave everything as it is."""
        return self.preview is None or self.preview.first_changed_message is not None

    def to_json(self) -> dict[str, Any]:
        """The review as JSON data: the whole plan, what is left in place by turn id, and what it costs."""
        shown: dict[str, Any] = {"plan": self.plan.model_dump(mode="json")}
        if self.preview:
            shown["left_in_place"] = {item.turn_id: item.text for item in self.stand_ins}
            shown["cost"] = _cost(self.preview)
        return shown


def _cost(preview: Preview) -> dict[str, Any]:
    calls = preview.payback_calls
    return {
        "tokens_before": preview.tokens_before,
        "tokens_after": preview.tokens_after,
        "first_changed_message": preview.first_changed_message,
        "invalidated_tokens": preview.invalidated_tokens,
        "payback_calls": calls if calls is None or math.isfinite(calls) else None,
        "thinking": preview.thinking,
    }


def review_sheet(
    plan: CompactionPlan,
    evidence: Evidence | None = None,
    preview: Preview | None = None,
    *,
    fold: bool = True,
) -> Sheet:
    """The review of `plan`; with `evidence` and `preview` also what each turn is and what it leaves."""
    heads = _heads(evidence) if evidence else {}
    left = _stand_ins(plan, evidence) if evidence else ()
    failed = _failed(plan, heads, evidence)
    return Sheet(plan, tuple(table_rows(plan, heads, fold=fold)), failed, left, preview)


def _heads(evidence: Evidence) -> Mapping[str, str]:
    return {turn_id: _head(turn) for turn_id, turn in evidence.turns.items()}


def _head(turn: TurnEvidence) -> str:
    """Its calls, or who speaks and the first words."""
    words = next((line.text.strip() for line in turn.lines if line.text.strip()), "")
    return turn.head if turn.calls else f"{turn.turn.kind}: {words}"


def _failed(plan: CompactionPlan, heads: Mapping[str, str], evidence: Evidence | None) -> tuple[Failed, ...]:
    return tuple(
        Failed(own.turn_id, own.strategy, heads.get(own.turn_id, ""), _how(own, evidence))
        for own in plan.turns
        if own.failed_approach
    )


def _how(decision: TurnDecision, evidence: Evidence | None) -> str:
    lines = evidence.turns[decision.turn_id].lines if evidence else ()
    failing = evidence.turns[decision.turn_id].failure_lines if evidence else ()
    shown = [line.text.strip() for line in lines if line.number in failing and line.part != "call"]
    telling = [text for text in shown if text and not text.startswith("Traceback (")]
    return " · ".join(dict.fromkeys(telling)) or decision.summary or decision.reason


def _stand_ins(plan: CompactionPlan, evidence: Evidence) -> tuple[StandIn, ...]:
    return tuple(
        StandIn(own.turn_id, own.strategy, own.tokens_before, own.tokens_after, text)
        for own in plan.turns
        if own.strategy in ("summarize", "reference") and (text := entry_text(evidence, own))
    )
