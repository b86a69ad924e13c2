"""Evidence of turns, read from the turns alone: words, names, failures, effects, repetition."""

from planner.evidence.gather import Evidence, TurnEvidence, gather_evidence

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]
