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
    """Anything this project raises on purpose."""


class PlanError(CompactorError):
    """No plan was made."""


class PlannerUnavailable(PlanError):  # noqa: N818 - reads as what happened
    """The planner model could not be reached or used: retry later, or plan with ``planner="rules"``."""

    def __init__(self, message: str, usage: object = None) -> None:
        """Keep the one-line message, and `usage`: a `planner.plan.Usage` with the cost so far."""
        super().__init__(message)
        self.usage = usage


class PlanRejected(PlanError):  # noqa: N818
    """The planner's answer, or a plan file, is not a plan; `findings` names each place."""

    def __init__(self, message: str, findings: Sequence[object] = ()) -> None:
        """Keep the one-line message, and `findings`, one for each wrong place."""
        super().__init__(message)
        self.findings = tuple(findings)


class ApplyError(CompactorError):
    """The plan was not applied; the messages are unchanged."""


class StalePlan(ApplyError):  # noqa: N818
    """The plan was made for another history: plan again."""


class StoreError(CompactorError):
    """The store failed; nothing was written in part."""


class ReferenceNotFound(StoreError):  # noqa: N818
    """No such reference in this store; `elsewhere` has other turns that match, each with its best line."""

    def __init__(self, message: str, elsewhere: Sequence[str] = ()) -> None:
        """Keep the one-line message, and `elsewhere`: lines like ``t12 4: text``."""
        super().__init__(message)
        self.elsewhere = tuple(elsewhere)


class StoreDamaged(StoreError):  # noqa: N818
    """Stored content does not match its digest."""


class StoreReplaced(StoreError):  # noqa: N818
    """The file of an open store was removed or replaced: open the store again."""


class TranscriptError(CompactorError):
    """The input is not a list of messages; the text names the place and the expected form."""


class SettingsError(CompactorError, ValueError):
    """A setting, prompt or option is wrong; the text names it and the remedy."""
