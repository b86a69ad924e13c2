"""Declarations of what tools do, by their authors: by settings, or by the annotations of a tool definition (MCP).

A tool without a declaration counts as one that may act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from planner.settings import CheckedSettings

__all__ = ["ToolUse", "declared_uses"]


class ToolUse(CheckedSettings):
    """One tool's declaration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: Literal["reads", "acts"] = "acts"
    """``reads``: it only looks, so a later look replaces an earlier one. ``acts``: it changes something outside of the
    conversation, so what came of it is listed as an effect."""
    object_arguments: tuple[str, ...] = Field(default=())
    """Names of the arguments that say what it is about; all of them if empty."""
    keep_fields: tuple[str, ...] = Field(default=())
    """Names of fields of its JSON result that are shown beside the call."""


def declared_uses(uses: Mapping[str, ToolUse], tools: Sequence[Mapping[str, Any]] = ()) -> dict[str, ToolUse]:
    """Return what is known of tools by name: `uses` before the annotations of the definitions in `tools`.

    A ``readOnlyHint`` of true is believed as a hint of what repeats, never as a licence to drop an effect; false, or a
    ``destructiveHint``, declares that the tool acts (MCP specification, ToolAnnotations).
    """
    hinted: dict[str, ToolUse] = {}
    for tool in tools:
        hints = tool.get("annotations")
        if isinstance(hints, Mapping) and isinstance(hints.get("readOnlyHint"), bool):
            hinted[str(tool.get("name", ""))] = ToolUse(effect="reads" if hints["readOnlyHint"] else "acts")
        elif isinstance(hints, Mapping) and hints.get("destructiveHint") is True:
            hinted[str(tool.get("name", ""))] = ToolUse(effect="acts")
    return {**hinted, **uses}
