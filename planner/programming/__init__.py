"""Programming, a kind of work (`Field`): reads calls of shells, test runners, editors and git, and the files' state."""

from planner.evidence.turns import Field
from planner.programming.coding_tools import read_tool
from planner.programming.command_failures import read_run
from planner.programming.repository import project_record, work_folder

__all__ = ["PROGRAMMING"]


class _Programming(Field):
    read_call = staticmethod(read_tool)
    read_result = staticmethod(read_run)
    record = staticmethod(project_record)
    common_name = staticmethod(work_folder)


PROGRAMMING = _Programming()
