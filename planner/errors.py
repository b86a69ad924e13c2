"""All errors of this project in one tree, grouped by the caller's next step.

::

    CompactorError
    ├── PlanError                 no plan was made
    │   ├── PlannerUnavailable    the planner model could not be reached or used: retry, or planner="rules"
    │   └── PlanRejected          the answer or the plan file is not a plan; `.findings` says where
    ├── ApplyError                the plan was not applied; the messages are as they were
    │   └── StalePlan             the plan was made for another history: plan again
    ├── StoreError                the store could not do it; nothing was half-written
    │   ├── ReferenceNotFound     no such reference in this store
    │   ├── StoreDamaged          what is stored does not match its digest
    │   └── StoreReplaced         its file was removed or replaced while in use: open the store again
    ├── TranscriptError           the input is not a list of messages; the text has the place and the expected form
    └── SettingsError             a setting, prompt or option is wrong; the text has its name and the cure; a ValueError

"Nothing worth compacting" is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence


class CompactorError(Exception):
    """Base of all errors that this project raises on purpose, so that a caller can catch them all."""


class PlanError(CompactorError):
    """Error for a plan that could not be made."""


class PlannerUnavailable(PlanError):  # noqa: N818 - reads as what happened
    """Error for a planner model that could not be reached or used: retry later, or plan with ``planner="rules"``."""

    def __init__(self, message: str, usage: object = None) -> None:
        """Store the one-line message, and `usage`: a `planner.plan.Usage` with the tokens used until then."""
        super().__init__(message)
        self.usage = usage


class PlanRejected(PlanError):  # noqa: N818
    """Error for a planner's answer, or a plan file, that is no valid plan; `findings` names each wrong place."""

    def __init__(self, message: str, findings: Sequence[object] = ()) -> None:
        """Store the one-line message, and `findings`: remarks, one on each wrong place."""
        super().__init__(message)
        self.findings = tuple(findings)


class ApplyError(CompactorError):
    """Error for a plan that could not be applied; the messages are unchanged."""


class StalePlan(ApplyError):  # noqa: N818
    """Error for a plan that was made for another list of messages: plan again."""


class StoreError(CompactorError):
    """Error of the store, which saves removed messages; nothing was written in part."""


class ReferenceNotFound(StoreError):  # noqa: N818
    """Error for an id that the store does not have; `elsewhere` has other turns that match, each with its best line."""

    def __init__(self, message: str, elsewhere: Sequence[str] = ()) -> None:
        """Store the one-line message, and `elsewhere`: lines like ``t12 4: text`` (turn, line number, text)."""
        super().__init__(message)
        self.elsewhere = tuple(elsewhere)


class StoreDamaged(StoreError):  # noqa: N818
    """Error for stored content that does not match its digest, so that it must have changed."""


class StoreReplaced(StoreError):  # noqa: N818
    """Error for a store if its file was removed or replaced while it was open: open the store again."""


class TranscriptError(CompactorError):
    """Error for input that is no list of messages; the text names the place and the expected form."""


class SettingsError(CompactorError, ValueError):
    """Error for a wrong setting, prompt or option; the text names it and the remedy."""
