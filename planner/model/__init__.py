"""Model planner: shows turn cards to a model, reads its short answer, and returns a `Proposal`.

The only importer of anthropic and instructor, and only when a model is asked.
"""

from planner.model.client import DEFAULT_MODEL, has_credentials
from planner.model.planners import ModelPlanner

__all__ = ["DEFAULT_MODEL", "ModelPlanner", "has_credentials"]
