"""Programming: shells, test runners, editors, git and files, behind the interface of `planner.evidence.field`."""

from planner.programming.programming_field import PROGRAMMING

__all__ = ["PROGRAMMING"]
