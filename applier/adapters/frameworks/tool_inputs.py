"""What the model may pass to the context tools; docstrings and descriptions are what it reads of them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["Compact", "RestoreContext", "SearchContext", "ToolInput"]


class ToolInput(BaseModel):
    """An input; unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid")


class RestoreContext(ToolInput):
    """Bring back the exact original of a turn that was compacted.

    Give the id that stands in the conversation (for example h1a2b3c4d:t12, or t12). Ask for lines or search
    within it when you know what you need: the whole turn may be long.
    """

    reference: str = Field(description="id of the turn: h1a2b3c4d:t12, or t12")
    first_line: int | None = Field(default=None, ge=1, description="first line to show, from 1")
    last_line: int | None = Field(default=None, ge=1, description="last line to show, included")
    search: str | None = Field(default=None, min_length=1, description="show only lines that hold this text")

    @model_validator(mode="after")
    def _in_order(self) -> RestoreContext:
        if self.first_line is not None and self.last_line is not None and self.last_line < self.first_line:
            raise ValueError("last_line stands before first_line")
        return self


class SearchContext(ToolInput):
    """Find where a text stands in the whole conversation so far, compacted turns included.

    Each hit names the turn and the line, for restore_context.
    """

    text: str = Field(min_length=1, description="what to look for, whatever its case")
    limit: int = Field(default=20, ge=1, le=100, description="how many hits at most")


class Compact(ToolInput):
    """Make room: have older parts of the conversation compacted before your next turn.

    Worth it when a piece of work is finished and its details are no longer needed. Nothing is lost: compacted
    turns can be brought back with restore_context.
    """

    focus: str = Field(default="", description="what the work needs from here on, kept above all else")
