"""The model planner: shows a model turn cards, reads its short answer, and returns a `Proposal`.

The only importer of anthropic and instructor, and only once a model is really asked.
"""

from planner.model.client import DEFAULT_MODEL, has_credentials
from planner.model.planners import ModelPlanner

__all__ = ["DEFAULT_MODEL", "ModelPlanner", "has_credentials"]
