"""Tiers that work on single tool results: demote large ones, clear old ones, answer unchanged re-reads.

Every removed result leaves its call in place and a stand-in behind it, so pairs are never split.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from applier.session.edits import Edits, StandIn
from applier.session.frame import Place
from applier.session.ledger import Ledger, Result
from applier.session.tiers.excerpts import ends_of, obligations_of
from applier.session.tiers.situation import Situation
from planner.evidence.calls import CallKind

__all__ = ["BudgetResults", "ClearResults", "DemoteLarge", "StubRereads"]

CURE_CHARACTERS = 70
"""About as long is the line on how to restore a result; what is not longer with it gains nothing."""
PREVIEW_SHARE = 0.08
"""A preview has at most so many characters for each token of the limit: in a small window less is shown."""
TAIL_SHARE = 0.25
"""How much of a preview shows the end of a result: an error mostly stands there."""


@dataclass(frozen=True, slots=True)
class DemoteLarge:
    """Any new result over `over_tokens` goes to the store and leaves a preview."""

    over_tokens: int
    preview_characters: int = 2_000
    """Three-layer and s08 both show 2,000."""
    window_share: float = 0.25
    """In a small window already from this share of the limit on."""
    name: str = "demote_large"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote what has just arrived."""
        most = min(self.over_tokens, situation.limit_tokens * self.window_share)
        large = [result for result in situation.new_results() if situation.meter.prompt(result.tokens) > most]
        return _previews(situation, large, self.preview_characters, "large output")


@dataclass(frozen=True, slots=True)
class BudgetResults:
    """Results of the newest message over `characters` together: the largest go first, until the rest fit."""

    characters: int = 200_000
    preview_characters: int = 2_000
    window_share: float = 0.5
    """And never more than this share of the limit, whatever they count in characters."""
    name: str = "budget_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote the largest results of the last message."""
        last = len(situation.ledger) - 1
        results = [result for result in situation.new_results() if result.message == last]
        chosen: list[Result] = []
        for result in sorted(results, key=lambda result: -len(result.text)):
            if self._fits(situation, [r for r in results if r not in chosen]):
                break
            chosen.append(result)
        return _previews(situation, chosen, self.preview_characters, "results of one message over budget")

    def _fits(self, situation: Situation, results: Sequence[Result]) -> bool:
        tokens = situation.meter.prompt(sum(result.tokens for result in results))
        characters = sum(len(result.text) for result in results)
        return characters <= self.characters and tokens <= situation.limit_tokens * self.window_share


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Old results give way to a line that says what they were, the newest stay."""

    keep_last: int = 3
    """The newest results (of `kinds`) that stay."""
    protect_tokens: int = 0
    """And all results within so many newest tokens of the history."""
    over_tokens: int = 0
    over_characters: int = 0
    """Only larger ones are worth a stand-in."""
    kinds: frozenset[CallKind] = frozenset()
    """Kinds of calls whose results may go; none: all."""
    min_free_tokens: int = 0
    """Do nothing for less."""
    preview_characters: int = 0
    """How much of each stays; 0: nothing but what must."""
    name: str = "clear_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Clear old results."""
        known = [result for result in situation.ledger.results if not self.kinds or result.kind in self.kinds]
        newest = {result.place for result in known[-self.keep_last :]} if self.keep_last else set()
        border = self._border(situation)
        old = [
            result
            for result in situation.standing()
            if result.place not in newest
            and result.message < border
            and (not self.kinds or result.kind in self.kinds)
            and result.tokens > self.over_tokens
            and len(result.text) > max(self.over_characters, self.preview_characters)
        ]
        if not old or sum(result.tokens for result in old) < self.min_free_tokens:
            return None
        cleared = tuple(self._cleared(situation.ledger, old))
        return Edits(f"{len(cleared)} old results", stand_ins=cleared) if cleared else None

    def _border(self, situation: Situation) -> int:
        """Messages from here on are protected; what the model has not answered yet always is."""
        ledger = situation.ledger
        border = len(ledger) - 1
        left = self.protect_tokens - ledger.counted[border]
        while left > 0 and border > 0:
            border -= 1
            left -= ledger.counted[border]
        return border

    def _cleared(self, ledger: Ledger, old: Iterable[Result]) -> Iterable[StandIn]:
        for result in old:
            if self.preview_characters:
                made = _preview(ledger, result, self.preview_characters)
            else:
                shown = f"[Previous: used {result.tool or 'a tool'}]\n{obligations_of(ledger, result)}"
                made = StandIn(*result.place, shown.rstrip())
            if len(made.text) + CURE_CHARACTERS < len(result.text):
                yield made


@dataclass(frozen=True, slots=True)
class StubRereads:
    """A call made again with the same answer, while the first answer still stands, is answered by a stub."""

    over_characters: int = 400
    name: str = "stub_rereads"

    def __call__(self, situation: Situation) -> Edits | None:
        """Stub what has just arrived."""
        stubbed: dict[Place, StandIn] = {}
        for result in situation.new_results():
            if len(result.text) <= self.over_characters:
                continue
            earlier = situation.ledger.repeated_by(result)
            first = next((r for r in earlier if situation.stands(r) and r.place not in stubbed), None)
            if first is not None:
                turn_id = situation.ledger.turn_id(first.message)
                text = f"[Unchanged: the same result as in {turn_id}, above]"
                stubbed[result.place] = StandIn(*result.place, text)
        if not stubbed:
            return None
        return Edits(f"{len(stubbed)} unchanged re-reads", stand_ins=tuple(stubbed.values()))


def _previews(situation: Situation, results: Sequence[Result], characters: int, reason: str) -> Edits | None:
    most = min(characters, int(situation.limit_tokens * PREVIEW_SHARE))
    made = ((result, _preview(situation.ledger, result, most)) for result in results)
    shorter = tuple(p for result, p in made if len(p.text) + CURE_CHARACTERS < len(result.text))
    return Edits(f"{len(shorter)} results: {reason}", stand_ins=shorter) if shorter else None


def _preview(ledger: Ledger, result: Result, characters: int) -> StandIn:
    tail = int(characters * TAIL_SHARE)
    shown = ends_of(ledger, result, characters - tail, tail)
    return StandIn(*result.place, f"{shown}\n[{len(result.text):,} characters in all]")
