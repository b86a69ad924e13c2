"""Whether the Messages API would take a list: the rules of the API, apart from the code that builds lists."""

from planner.validity.check import check_messages
from planner.validity.request import Violation

__all__ = ["Violation", "check_messages"]
