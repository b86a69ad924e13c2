"""One line of a Claude Code session log: what a reader of the conversation needs of it.

The format is not documented; these fields are what versions 1 and 2 write. Other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import TranscriptError

__all__ = ["LogLine", "log_lines"]


class _LogMessage(BaseModel):
    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None


class LogLine(BaseModel):
    """A line that may belong to the conversation."""

    model_config = ConfigDict(frozen=True)

    number: int
    """Where it stands in the file, from 1."""
    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent: str | None = Field(default=None, alias="parentUuid")
    logical_parent: str | None = Field(default=None, alias="logicalParentUuid")
    is_sidechain: bool = Field(default=False, alias="isSidechain")
    parent_tool_use_id: str | None = None
    is_meta: bool | None = Field(default=False, alias="isMeta")
    is_summary: bool | None = Field(default=False, alias="isCompactSummary")
    is_api_error: bool | None = Field(default=False, alias="isApiErrorMessage")
    compaction: dict[str, Any] = Field(default_factory=dict, alias="compactMetadata")
    timestamp: str | None = None
    message: _LogMessage | None = None
    attachment: dict[str, Any] | None = None
    content: Any = None
    """Of a system line."""

    @property
    def names_no_parent(self) -> bool:
        """True if the writer kept no tree (``--output-format stream-json``): lines follow each other."""
        return "parent" not in self.model_fields_set

    @property
    def of_a_subagent(self) -> bool:
        """True for the conversation of a subagent."""
        return self.is_sidechain or self.parent_tool_use_id is not None

    @property
    def is_boundary(self) -> bool:
        """True where the agent compacted its context."""
        return self.type == "system" and self.subtype == "compact_boundary"

    @property
    def speaks(self) -> bool:
        """True if the model saw it: words, calls, results, attachments, output of local commands."""
        if self.type in ("user", "assistant"):
            return self.message is not None
        if self.type == "system":
            return self.subtype == "local_command" and isinstance(self.content, str)
        return self.type == "attachment" and self.attachment is not None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The blocks of its message; none if that is plain text."""
        content = self.message.content if self.message else ""
        return [] if isinstance(content, str) else content


def log_lines(values: Iterable[tuple[int, Any]], name: str) -> list[LogLine]:
    """The `values` (line number, JSON) of the log `name`.

    Raises:
        TranscriptError: a line has a field of another form; the text names the line and the field.
    """
    return [_line(number, value, name) for number, value in values]


def _line(number: int, value: Any, name: str) -> LogLine:
    place = f"{name}, line {number}"
    if not isinstance(value, dict):
        raise TranscriptError(f"{place}: expected a log entry as an object, found {type(value).__name__}")
    try:
        line = LogLine.model_validate({**value, "number": number})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise TranscriptError(f"{place}: {field}: {first['msg']}, found {first['input']!r:.60}") from None
    for block in line.blocks:
        if not isinstance(block.get("type"), str):
            raise TranscriptError(f"{place}: expected a block with a 'type', found {str(block)[:60]!r}")
    return line
