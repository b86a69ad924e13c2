"""What a plan says of one turn, and what text and numbers of a plan may be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from planner.reading.patterns import lazy_pattern

__all__ = ["MOST_TOKENS", "SURROGATE", "Count", "PlanPart", "Strategy", "Text", "TurnDecision", "whole_characters"]

Strategy = Literal["keep", "summarize", "reference", "drop"]
SURROGATE = lazy_pattern("[\ud800-\udfff]")


MOST_TOKENS = 10**12
"""No count is larger; a plan from disk that says so is damaged, and arithmetic on it would fail."""


def whole_characters(value: Any) -> Any:
    """Text of a history may hold half a character; a plan's own text may not."""
    return SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(whole_characters)]
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class PlanPart(BaseModel):
    """Never changed, and nothing in it that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    def model_post_init(self, _context: Any) -> None:
        """Parts of which the same fields were set share the set that says so: it is larger than all they hold."""
        object.__setattr__(self, "__pydantic_fields_set__", _shared(frozenset(self.model_fields_set)))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the fields in `update` changed, which are not validated."""
        copied = super().model_copy(update=update, deep=deep)
        copied.model_post_init(None)
        return copied


@cache
def _shared(fields: frozenset[str]) -> set[str]:
    """One set of these names, which nobody changes: parts are frozen, and their copies get sets of their own."""
    return set(fields)


class TurnDecision(PlanPart):
    """What the plan says of one turn."""

    turn_id: str = Field(pattern=r"^t[1-9][0-9]*$")
    strategy: Strategy
    relevance_score: float = Field(ge=0, le=1)
    reason: Text = ""
    failed_approach: bool = False
    summary: Text = ""
    """For ``summarize``: the gist that stands around the excerpts. Never empty without excerpts."""
    excerpts: tuple[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], ...] = ()
    """For ``summarize``: line ranges of the turn, first and last included, that stay verbatim."""
    tokens_before: Count = 0
    tokens_after: Count = 0
