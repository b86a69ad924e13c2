"""Model planner: asks a model which turns of a conversation matter, and reads its short answer as a `Proposal`.

The only folder of `planner` that imports anthropic and instructor, and only when a model is asked.
"""

from planner.model.client import DEFAULT_MODEL, has_credentials
from planner.model.planners import ModelPlanner

__all__ = ["DEFAULT_MODEL", "ModelPlanner", "has_credentials"]
