"""Whether the Messages API would take a list: the rules of the API, apart from the code that builds lists."""

from planner.validity.calls import CALL_RULES
from planner.validity.check import check_messages
from planner.validity.violation import Violation

__all__ = ["CALL_RULES", "Violation", "check_messages"]
