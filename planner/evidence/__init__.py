"""Evidence: what can be read from a conversation's turns without a model, such as failures, effects and repetition."""

from planner.evidence.turns import Evidence, TurnEvidence, gather_evidence

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]
