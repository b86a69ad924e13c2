"""Evidence of turns, computed from the turns alone: words, names, failures, effects, repetition."""

from planner.evidence.turns import Evidence, TurnEvidence, gather_evidence

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]
