"""Tools by which the model itself looks behind references and asks for a compaction.

As plain definitions and a function that answers a call; works with any client. Changes no history: what is
restored goes to the model as an ordinary tool result. Docstrings and descriptions of inputs are what the model reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from applier.adapters.look_ups import MATCHES_CHARACTERS, SEARCH_TURNS, search_answer
from planner.errors import CompactorError, ReferenceNotFound
from planner.reading.lines import Part
from planner.reading.messages import Block

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["AGENT_TOOLS", "AGENT_TOOL_NAMES", "Answer", "answer_call", "handle_tool_use"]

Answer = str | list[Block]
"""Content of a tool result: text, or blocks where images or documents belong to it."""
LAST_LINE = 10**9
"""No turn has so many lines."""


class ToolInput(BaseModel):
    """An input; unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid")


class RestoreContext(ToolInput):
    """Bring back the exact original of a turn that was compacted, images included.

    Give the id that stands in the conversation (for example h1a2b3c4d:t12, or t12). A long turn comes in pages; each
    says where the next one begins. Ask for lines, or search within it, when you know what you need.
    """

    reference: str = Field(description="id of the turn: h1a2b3c4d:t12, or t12")
    first_line: int | None = Field(default=None, ge=1, description="first line to show, from 1")
    last_line: int | None = Field(default=None, ge=1, description="last line to show, included")
    search: str | None = Field(
        default=None, min_length=1, description="show only lines with this text, or the best lines for these words"
    )

    @model_validator(mode="after")
    def _in_order(self) -> RestoreContext:
        if self.first_line is not None and self.last_line is not None and self.last_line < self.first_line:
            raise ValueError("last_line stands before first_line")
        return self


class SearchContext(ToolInput):
    """Find where something stands in the whole conversation so far, compacted turns included.

    What stands there as you write it comes first; a question or several words find the turns that fit best. Shows
    the best lines, with the turn's id and line numbers for restore_context.
    """

    text: str = Field(min_length=1, description="a text, or several words; quotes keep words together")
    part: Part | None = Field(
        default=None, description="only words of the user or the assistant, only calls, or only results of tools"
    )
    tool: str | None = Field(default=None, description="only calls of this tool and their results")
    limit: int = Field(default=SEARCH_TURNS, ge=1, le=100, description="how many turns at most")


class Compact(ToolInput):
    """Make room: have older parts of the conversation compacted before your next turn.

    Worth it when a piece of work is finished and its details are no longer needed. Nothing is lost: compacted
    turns can be brought back with restore_context.
    """

    focus: str = Field(default="", description="what the work needs from here on, kept above all else")


def _restore(session: Session, asked: RestoreContext) -> Answer:
    lines = None
    if asked.first_line is not None or asked.last_line is not None:
        lines = (asked.first_line or 1, asked.last_line or LAST_LINE)
    page = session.page_characters if asked.search is None else min(session.page_characters, MATCHES_CHARACTERS)
    restored = session.restore(asked.reference, lines=lines, search=asked.search, max_characters=page)
    first, last = restored.lines
    whole = (first, last) == (1, restored.total_lines) or not restored.total_lines
    head = restored.reference if whole else f"{restored.reference} lines {first} to {last} of {restored.total_lines}"
    more = "" if restored.next_line is None else f"\n… goes on: ask again with first_line={restored.next_line}"
    if all(block["type"] == "text" for block in restored.blocks):
        return f"{head}\n{restored.text}{more}"
    text = [{"type": "text", "text": more.strip()}] if more else []
    return [{"type": "text", "text": head}, *(block for block in restored.blocks if block.get("text") != ""), *text]


def _search(session: Session, asked: SearchContext) -> Answer:
    def find(part: Part | None, tool: str | None) -> tuple[list[tuple[str, str]], int]:
        result = session.search(asked.text, part=part, tool=tool, limit=asked.limit)
        return [(match.turn_id, match.excerpt) for match in result.matches], result.turns

    answer = search_answer(find, asked.part, asked.tool, asked.limit, session.page_characters)
    if not answer:
        raise ReferenceNotFound(f"nothing in this conversation matches {asked.text!r}: try fewer words")
    return answer


def _compact(session: Session, asked: Compact) -> Answer:
    session.request_compaction(asked.focus)
    return "Older parts of the conversation will be compacted before your next turn."


_TOOLS: dict[str, tuple[type[ToolInput], Callable[[Session, Any], Answer]]] = {
    "restore_context": (RestoreContext, _restore),
    "search_context": (SearchContext, _search),
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
