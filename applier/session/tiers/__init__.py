"""The steps of the pipeline, cheapest first: plain callables of one signature that return edits."""

from applier.session.tiers.plans import PlanTurns, RetreatHead, SnipMiddle
from applier.session.tiers.results import BudgetResults, ClearResults, DemoteLarge, StubRereads
from applier.session.tiers.situation import MakePlan, Situation, Tier

__all__ = [
    "BudgetResults",
    "ClearResults",
    "DemoteLarge",
    "MakePlan",
    "PlanTurns",
    "RetreatHead",
    "Situation",
    "SnipMiddle",
    "StubRereads",
    "Tier",
]
