"""Tools by which the model itself restores and searches removed turns, writes notes and asks for a compaction.

They are plain definitions and a function that answers a call, for any client. The model reads the docstrings and
descriptions of the inputs (the classes after `_ToolInput`). A record is the place where a tool looks: a session, or the
visible part of a store. Answers are short by default, so that a look-up costs less than it saves. No tool changes the
history.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from applier.adapters.visible import Visible
from applier.session import Session
from applier.store.excerpt import LAST_LINE, SearchResult
from planner.errors import CompactorError, ReferenceNotFound
from planner.evidence.effects import MOST_CHARACTERS, NoteKind, note_id
from planner.plan import FactType
from planner.reading.lines import Part
from planner.reading.messages import Block

__all__ = [
    "AGENT_TOOLS",
    "AGENT_TOOL_NAMES",
    "LOOK_UP_TOOLS",
    "MCP_PREFIX",
    "PROJECT_TOOLS",
    "Answer",
    "answer_call",
    "definitions",
    "handle_tool_use",
]

MCP_PREFIX = "mcp__compactor__"
"""Prefix that clients give the tools of a server or plugin called ``compactor``."""
Answer = str | list[Block]
"""Content of a tool result: text, or blocks if it contains images or documents."""
SEARCH_TURNS, TURN_CHARACTERS = 3, 400
"""Number of turns that a search shows unless the agent asks for more or fewer, and average characters for each."""
MATCHES_CHARACTERS = 3_000
"""Largest number of characters that a search within one turn returns."""
ELSEWHERE_TURNS = 2
"""Number of turns that a search shows if nothing matches its filters, from matches without them."""
MOST_NAMED = 3
"""Largest number of further matching turns that a search lists only by their ids."""

_HIT = re.compile(r"^\d+: \s*(.*)$", re.MULTILINE)
"""Line of an excerpt that matches: ``12: return None``; not ``11- near``. The group is the line without its number."""
_Record = Session | Visible


class _ToolInput(BaseModel):
    """The input of a tool; unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid")


class RestoreContext(_ToolInput):
    """Bring back the exact original of a turn that was compacted, images included.

    Use the id that the conversation shows, for example t12. A long turn comes in pages; each one ends with where the
    next begins. Ask for lines, or search within it, when you know what you need.
    """

    reference: str = Field(description="id of the turn: t12, or with a history's key before it, h1a2b3c4d:t12")
    first_line: int | None = Field(default=None, ge=1, description="first line to show, from 1")
    last_line: int | None = Field(default=None, ge=1, description="last line to show, included")
    search: str | None = Field(
        default=None, min_length=1, description="show only lines with this text, or the best lines for these words"
    )

    @model_validator(mode="after")
    def _in_order(self) -> RestoreContext:
        if self.first_line is not None and self.last_line is not None and self.last_line < self.first_line:
            raise ValueError("last_line is before first_line")
        return self


class SearchContext(_ToolInput):
    """Find a text in the whole conversation so far, compacted turns included.

    Exact matches of the text come first; a question or several words find the turns that fit best. Shows
    the best lines, with the turn's id and line numbers for restore_context.
    """

    text: str = Field(min_length=1, description="a text, or several words; quotes keep words together")
    part: Part | None = Field(
        default=None, description="only words of the user or the assistant, only calls, or only results of tools"
    )
    tool: str | None = Field(default=None, description="only calls of this tool and their results")
    limit: int = Field(default=SEARCH_TURNS, ge=1, le=100, description="how many turns at most")


class Compact(_ToolInput):
    """Make room: have older parts of the conversation compacted before your next turn.

    Worth it when a piece of work is finished and its details are no longer needed. Nothing is lost: compacted
    turns can be brought back with restore_context.
    """

    focus: str = Field(default="", description="what the work needs from here on, kept above all else")


class WriteNote(_ToolInput):
    """Write down one thing that must survive when older parts of this conversation are shortened.

    Notes have a section of their own in what is left. Worth it for a decision with its reason, a fact that was hard to
    find, and what is still open; not for what a file or the user's words already say.
    """

    kind: NoteKind = Field(default="fact", description="decision, fact, or open (still to do)")
    text: str = Field(default="", max_length=MOST_CHARACTERS, description="the note, in one or two sentences")
    remove: str = Field(default="", description="id of an earlier note that is no longer valid, such as n1a2b3c")

    @model_validator(mode="after")
    def _is_not_empty(self) -> WriteNote:
        if not self.text.strip() and not self.remove:
            raise ValueError("give a text, or the id of a note to remove")
        return self


def _note(record: _Record, call: WriteNote) -> Answer:
    """Return a confirmation to the model, with a warning if the name of its conversation may be wrong. The note need
    not be stored: the conversation contains the call."""
    doubt = record.doubt() if isinstance(record, Visible) else ""
    removed = f"Removed {call.remove}." if call.remove else ""
    noted = f"Noted as {note_id(call.kind, call.text)}." if call.text.strip() else ""
    return " ".join(filter(None, (removed, noted, doubt and f"But {doubt}")))


def _restore(record: _Record, call: RestoreContext) -> Answer:
    """Return the turn with the id in `call`: a heading with this id, then the wanted lines, at most one page. If `call`
    searches for a text that only other turns contain, return an error text and the lines with it in these turns."""
    lines = (call.first_line or 1, call.last_line or LAST_LINE) if call.first_line or call.last_line else None
    page = record.page_characters if call.search is None else min(record.page_characters, MATCHES_CHARACTERS)
    try:
        restored = record.restore(call.reference.strip(), lines=lines, search=call.search, max_characters=page)
    except ReferenceNotFound as error:
        if not error.elsewhere:
            raise
        return "\n".join((str(error), *error.elsewhere))
    (first, last), total = restored.lines, restored.total_lines
    is_whole = not total or (first, last) == (1, total)
    heading = call.reference.strip() + ("" if is_whole else f" lines {first} to {last} of {total}")
    more = "" if restored.next_line is None else f"\n… goes on: ask again with first_line={restored.next_line}"
    if all(block["type"] == "text" for block in restored.blocks):
        return f"{heading}\n{restored.text}{more}"
    ending = [{"type": "text", "text": more.strip()}] if more else []
    content = [block for block in restored.blocks if block.get("text") != ""]  # the API refuses an empty text
    return [{"type": "text", "text": heading}, *content, *ending]


def _search(record: _Record, call: SearchContext) -> str:
    """Return lines of the turns that match `call` best, and the ids of others. If nothing matches with the filters
    `part` and `tool`, return matches without these filters; raise ReferenceNotFound if there are none either."""
    limit = call.limit + MOST_NAMED
    result = record.search(call.text, part=call.part, tool=call.tool, limit=limit)
    if result.matches:
        return _matches_text(result, call.limit, record.page_characters)
    filters = " ".join(f"{name}={value}" for name, value in (("part", call.part), ("tool", call.tool)) if value)
    unfiltered = record.search(call.text, part=None, tool=None, limit=limit) if filters else result
    if not unfiltered.matches:
        raise ReferenceNotFound(f"nothing in this conversation matches {call.text!r}: try fewer words")
    shown = _matches_text(unfiltered, ELSEWHERE_TURNS, record.page_characters)
    return f"nothing with {filters}; without it:\n{shown}"


def _matches_text(result: SearchResult, most: int, page: int) -> str:
    """Return a search result as text for the model: lines of up to `most` turns, then the ids of other matches.

    The first match is always shown, the next ones as long as they fit into `page` characters. A match without new
    lines, such as a file that was read again, is only listed by its id.
    """
    room = min(page, most * TURN_CHARACTERS)  # characters that are left
    shown: list[str] = []
    listed_ids: list[str] = []
    shown_lines: set[str] = set()
    for match in result.matches:
        hits, entry = set(_HIT.findall(match.excerpt)), f"{match.turn_id}\n{match.excerpt}"
        if shown and (hits <= shown_lines or len(entry) > room or len(shown) == most):
            listed_ids.append(match.turn_id)
        else:
            shown_lines |= hits
            shown.append(entry)
            room -= len(entry) + 1
    if others := result.turns - len(shown):
        names = f" ({', '.join(listed_ids[:MOST_NAMED])})" if listed_ids else ""
        more = "1 more turn matches" if others == 1 else f"{others} more turns match"
        shown.append(f"… {more}{names}: narrow it by words, part or tool")
    return "\n".join(shown)


def _compact(session: Session, call: Compact) -> Answer:
    """Have the session compact before its next request, and return a confirmation to the model."""
    session.request_compaction(call.focus)
    return "Older parts of the conversation will be compacted before your next turn."


class Facts(_ToolInput):
    """Facts, decisions, requests and prohibitions of this project, each with the turn it came from."""

    type: FactType | None = Field(default=None, description="only facts of this type")
    words: str = Field(default="", description="only facts that contain some of these words, best first")
    days: int | None = Field(default=None, ge=1, description="only facts of the last N days")


def _facts(record: Visible, call: Facts) -> Answer:
    """Return the facts that `call` asks for, one a line, at most one page."""
    since = 0.0 if call.days is None else time.time() - 86_400 * call.days
    facts = record.facts(kind=call.type, since=since, words=call.words)
    text = "\n".join(f"{one.fact.type} ({record.short(one.reference)}): {one.fact.content}" for one in facts)
    if len(text) > record.page_characters:
        text = text[: record.page_characters].rpartition("\n")[0] + "\n… cut here; ask for less"
    return text or "No facts yet."


class AgentTool(NamedTuple):
    """Tool that a model can call: its arguments, and the function that answers a call."""

    input: type[BaseModel]
    """Class of the arguments; its docstring describes the tool to the model."""
    answer: Callable[[Any, Any], Answer]
    """Function that takes the session or store to look into and the arguments, and returns the answer."""


LOOK_UP_TOOLS: Mapping[str, AgentTool] = {
    "restore_context": AgentTool(RestoreContext, _restore),
    "search_context": AgentTool(SearchContext, _search),
}
"""Tools that restore and search removed turns, by name."""
_NOTE = AgentTool(WriteNote, _note)
PROJECT_TOOLS: Mapping[str, AgentTool] = {**LOOK_UP_TOOLS, "facts": AgentTool(Facts, _facts), "note": _NOTE}
"""Tools of a server or plugin, by name; one also shows facts from other conversations of the project."""
_TOOLS: Mapping[str, AgentTool] = {**LOOK_UP_TOOLS, "compact": AgentTool(Compact, _compact), "note": _NOTE}
"""Tools of an agent that runs in a session, by name; one asks for a compaction."""
AGENT_TOOL_NAMES = frozenset(_TOOLS)
"""Names of the tools that `handle_tool_use` answers."""


def definitions(tools: Mapping[str, AgentTool]) -> list[dict[str, Any]]:
    """Return `tools` in the form that a request of the Messages API needs: name, description, schema of the input."""
    schemas = {name: tool.input.model_json_schema() for name, tool in tools.items()}
    return [
        {"name": name, "description": schema.pop("description"), "input_schema": schema}
        for name, schema in schemas.items()
    ]


AGENT_TOOLS = definitions(_TOOLS)
"""Definitions of an agent's tools for the ``tools`` of a request. Keep them in the same place every time, because the
provider caches a prompt only while its beginning stays the same."""


def answer_call(
    record: _Record, name: str, arguments: Mapping[str, Any], tools: Mapping[str, AgentTool] | None = None
) -> Answer:
    """Answer a model's call of the tool `name` with `arguments`, from the session or store `record`. `tools`: all tools
    that the model has; None for those of an agent in a session.

    Raises:
        CompactorError: The call failed; the text explains to the model what to do instead.
    """
    known = tools or _TOOLS
    if name not in known:
        raise CompactorError(f"{name}: no such tool; there are {', '.join(known)}")
    tool = known[name]
    try:
        return tool.answer(record, tool.input.model_validate(arguments))
    except ValidationError as error:
        raise CompactorError(wrong_argument(name, error)) from None


def wrong_argument(name: str, error: ValidationError) -> str:
    """Return one line for the model about the first wrong argument of its call of the tool `name`."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"])) or name
    return f"{name}: {place}: {first['msg']}"


def handle_tool_use(session: Session, block: Any) -> dict[str, Any]:
    """Answer a model's call of one of the `AGENT_TOOLS`, and return the ``tool_result`` block for the next request.
    `block`: the ``tool_use`` block, as a dict or SDK object."""
    call = block if isinstance(block, dict) else block.model_dump(mode="json")
    result = {"type": "tool_result", "tool_use_id": call["id"]}
    try:
        return {**result, "content": answer_call(session, call["name"], call["input"])}
    except CompactorError as error:
        return {**result, "content": str(error), "is_error": True}
