"""What turns hold, read from the turns alone: words, specifics, failures, what became outdated."""

from planner.evidence.gather import Evidence, TurnEvidence, gather_evidence

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]
