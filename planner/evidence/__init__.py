"""Evidence of turns, computed from the turns alone: words, names, failures, effects, repetition."""

from planner.evidence.gather import gather_evidence
from planner.evidence.turns import Evidence, TurnEvidence

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]
