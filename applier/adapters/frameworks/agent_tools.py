"""Tools by which the model itself looks behind references and asks for a compaction.

As plain definitions and a function that answers a call; works with any client. Changes no history: what is
restored goes to the model as an ordinary tool result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from applier.adapters.frameworks.tool_inputs import Compact, RestoreContext, SearchContext, ToolInput
from planner.errors import CompactorError, ReferenceNotFound

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["AGENT_TOOLS", "AGENT_TOOL_NAMES", "RESULT_CHARACTERS", "answer_call", "handle_tool_use"]

RESULT_CHARACTERS = 20_000
"""What one answer may have; about 5,000 to 10,000 tokens, so that looking back never fills the window."""


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


_TOOLS: dict[str, tuple[type[ToolInput], Callable[[Session, Any], str]]] = {
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
