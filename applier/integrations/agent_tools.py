"""Tools by which the model itself looks behind references and asks for a compaction.

As plain definitions and a function that answers a call; works with any client. Changes no history: what is
restored goes to the model as an ordinary tool result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import CompactorError, ReferenceNotFound

if TYPE_CHECKING:
    from applier.session.session import Session

__all__ = ["AGENT_TOOLS", "AGENT_TOOL_NAMES", "RESULT_CHARACTERS", "answer_call", "handle_tool_use"]

RESULT_CHARACTERS = 20_000
"""What one answer may have; about 5,000 to 10,000 tokens, so that looking back never fills the window."""


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RestoreContext(_Input):
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


class SearchContext(_Input):
    """Find where a text stands in the whole conversation so far, compacted turns included.

    Each hit names the turn and the line, for restore_context.
    """

    text: str = Field(min_length=1, description="what to look for, whatever its case")
    limit: int = Field(default=20, ge=1, le=100, description="how many hits at most")


class Compact(_Input):
    """Make room: have older parts of the conversation compacted before your next turn.

    Worth it when a piece of work is finished and its details are no longer needed. Nothing is lost: compacted
    turns can be brought back with restore_context.
    """

    focus: str = Field(default="", description="what the work needs from here on, kept above all else")


def _restore(session: Session, given: RestoreContext) -> str:
    lines = None
    if given.first_line is not None or given.last_line is not None:
        lines = (given.first_line or 1, given.last_line or 10**9)
    found = session.restore(given.reference, lines=lines, search=given.search)
    return f"{found.reference}\n{found.text}"


def _search(session: Session, given: SearchContext) -> str:
    hits = session.search(given.text, given.limit)
    if not hits:
        raise ReferenceNotFound(f"nothing in this conversation holds {given.text!r}: try fewer words")
    return "\n".join(f"{reference} line {number}: {line}" for reference, number, line in hits)


def _compact(session: Session, given: Compact) -> str:
    session.request_compaction(given.focus)
    return "Older parts of the conversation will be compacted before your next turn."


_TOOLS: dict[str, tuple[type[_Input], Callable[[Session, Any], str]]] = {
    "restore_context": (RestoreContext, _restore),
    "search_context": (SearchContext, _search),
    "compact": (Compact, _compact),
}

AGENT_TOOL_NAMES = frozenset(_TOOLS)
"""Names of the calls that `handle_tool_use` answers."""


def _definition(name: str, model: type[_Input]) -> dict[str, Any]:
    schema = model.model_json_schema()
    description = schema.pop("description")
    return {"name": name, "description": description, "input_schema": schema}


AGENT_TOOLS: list[dict[str, Any]] = [_definition(name, model) for name, (model, _) in _TOOLS.items()]
"""Definitions for the ``tools`` of a request; keep them in the same place every time, for the cache."""


def answer_call(session: Session, name: str, given: Mapping[str, Any]) -> str:
    """What the model is to read after calling `name` with the input `given`.

    Raises:
        CompactorError: it could not be done; the text says what to do instead.
    """
    if name not in _TOOLS:
        raise CompactorError(f"{name}: no such tool; there are {', '.join(_TOOLS)}")
    model, run = _TOOLS[name]
    try:
        return _shortened(run(session, model.model_validate(dict(given))))
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


def _result(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text}


def _shortened(text: str) -> str:
    if len(text) <= RESULT_CHARACTERS:
        return text
    cut = text.rfind("\n", RESULT_CHARACTERS // 2, RESULT_CHARACTERS)
    kept = text[: cut if cut > 0 else RESULT_CHARACTERS]
    return f"{kept}\n… cut here after {kept.count(chr(10))} lines; ask for first_line and last_line, or search"
