"""Tools by which the model itself looks behind references and asks for a compaction.

As plain definitions and a function that answers a call; works with any client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from applier.adapters.look_ups import (
    Answer,
    RestoreContext,
    SearchContext,
    ToolInput,
    restored_answer,
    search_answer,
)
from planner.errors import CompactorError

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["AGENT_TOOLS", "AGENT_TOOL_NAMES", "Answer", "answer_call", "handle_tool_use"]


class Compact(ToolInput):
    """Make room: have older parts of the conversation compacted before your next turn.

    Worth it when a piece of work is finished and its details are no longer needed. Nothing is lost: compacted
    turns can be brought back with restore_context.
    """

    focus: str = Field(default="", description="what the work needs from here on, kept above all else")


def _compact(session: Session, asked: Compact) -> Answer:
    session.request_compaction(asked.focus)
    return "Older parts of the conversation will be compacted before your next turn."


_TOOLS: dict[str, tuple[type[ToolInput], Callable[[Session, Any], Answer]]] = {
    "restore_context": (RestoreContext, restored_answer),
    "search_context": (SearchContext, search_answer),
    "compact": (Compact, _compact),
}

AGENT_TOOL_NAMES = frozenset(_TOOLS)
"""Names of the calls that `handle_tool_use` answers."""


def _definition(name: str, model: type[ToolInput]) -> dict[str, Any]:
    schema = model.model_json_schema()
    description = schema.pop("description")
    return {"name": name, "description": description, "input_schema": schema}


AGENT_TOOLS: list[dict[str, Any]] = [_definition(name, model) for name, (model, _) in _TOOLS.items()]
"""Definitions for the ``tools`` of a request; keep them in the same place every time, for the cache."""


def answer_call(session: Session, name: str, arguments: Mapping[str, Any]) -> Answer:
    """What the model is to read after calling `name` with `arguments`.

    Raises:
        CompactorError: it could not be done; the text says what to do instead.
    """
    if name not in _TOOLS:
        raise CompactorError(f"{name}: no such tool; there are {', '.join(_TOOLS)}")
    model, run = _TOOLS[name]
    try:
        return run(session, model.model_validate(dict(arguments) if isinstance(arguments, Mapping) else arguments))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, wrong["loc"])) or name
        raise CompactorError(f"{name}: {place}: {wrong['msg']}") from None


def handle_tool_use(session: Session, block: Any) -> dict[str, Any]:
    """The ``tool_result`` block for `block`, a ``tool_use`` block as a dict or SDK object."""
    call = block if isinstance(block, dict) else block.model_dump(mode="json")
    try:
        return _result(call, answer_call(session, call["name"], call["input"]))
    except CompactorError as error:
        return {**_result(call, str(error)), "is_error": True}


def _result(call: Mapping[str, Any], content: Answer) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": content}
