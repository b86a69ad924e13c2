"""Tools by which the model itself restores and searches turns, writes notes and asks for a compaction.

They are plain definitions and a function that answers a call, for any client. The model reads the docstrings and
descriptions of the inputs (the classes after `_ToolInput`). A record is what a tool looks into: a session, or the
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
from applier.store.excerpt import SearchResult
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
"""Number of turns that a search shows unless the agent asks for another, and characters for each on average."""
MATCHES_CHARACTERS = 3_000
"""Most characters of a turn that a search within the turn returns."""
ELSEWHERE_TURNS = 2
"""Number of turns that a search without its filters shows if nothing matches with them."""
MOST_NAMED = 3
"""Largest number of matching turns that are listed by id only."""
LAST_LINE = 10**9
"""Line number beyond the last line of any turn."""

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


def _noted(_record: _Record, wanted: WriteNote) -> Answer:
    """Return a confirmation. The note itself is the call, which the conversation contains."""
    removed = f"Removed {wanted.remove}. " if wanted.remove else ""
    return f"{removed}Noted as {note_id(wanted.kind, wanted.text)}." if wanted.text.strip() else removed.strip()


def _restored(record: _Record, wanted: RestoreContext) -> Answer:
    """Return a line with the reference, then the wanted lines of the turn, at most one page. If a search matches only
    in other turns, return the error and these turns."""
    lines = (wanted.first_line or 1, wanted.last_line or LAST_LINE) if wanted.first_line or wanted.last_line else None
    page = record.page_characters if wanted.search is None else min(record.page_characters, MATCHES_CHARACTERS)
    try:
        restored = record.restore(wanted.reference.strip(), lines=lines, search=wanted.search, max_characters=page)
    except ReferenceNotFound as error:
        if not error.elsewhere:
            raise
        return "\n".join((str(error), *error.elsewhere))
    (first, last), total = restored.lines, restored.total_lines
    is_whole = not total or (first, last) == (1, total)
    heading = wanted.reference.strip() + ("" if is_whole else f" lines {first} to {last} of {total}")
    more = "" if restored.next_line is None else f"\n… goes on: ask again with first_line={restored.next_line}"
    if all(block["type"] == "text" for block in restored.blocks):
        return f"{heading}\n{restored.text}{more}"
    ending = [{"type": "text", "text": more.strip()}] if more else []
    content = [block for block in restored.blocks if block.get("text") != ""]  # the API refuses an empty text
    return [{"type": "text", "text": heading}, *content, *ending]


def _matching(record: _Record, wanted: SearchContext) -> str:
    """Return lines of the best matches, the ids of the others, and a hint to narrow the search. If nothing matches with
    the filters (`part` and `tool`), return matches without them. Raise ReferenceNotFound if there are none either."""
    limit = wanted.limit + MOST_NAMED
    result = record.search(wanted.text, part=wanted.part, tool=wanted.tool, limit=limit)
    if result.matches:
        return _shown(result, wanted.limit, record.page_characters)
    filters = " ".join(f"{name}={value}" for name, value in (("part", wanted.part), ("tool", wanted.tool)) if value)
    elsewhere = record.search(wanted.text, part=None, tool=None, limit=limit) if filters else result
    if not elsewhere.matches:
        raise ReferenceNotFound(f"nothing in this conversation matches {wanted.text!r}: try fewer words")
    shown = _shown(elsewhere, ELSEWHERE_TURNS, record.page_characters)
    return f"nothing with {filters}; without it:\n{shown}"


def _shown(result: SearchResult, most: int, page: int) -> str:
    """Return the lines of at most `most` matches, and list the others by id. The first match is always shown, the next
    ones while they fit into `page` characters. A match whose lines were all shown, such as those of a file that was
    read again, is only listed."""
    room = min(page, most * TURN_CHARACTERS)
    shown: list[str] = []
    listed_ids: list[str] = []
    shown_lines: set[str] = set()
    for match in result.matches:
        hits, entry = set(_HIT.findall(match.excerpt)), f"{match.turn_id}\n{match.excerpt}"
        if shown and (hits <= shown_lines or len(entry) > room or len(shown) == most):
            listed_ids.append(match.turn_id)
            continue
        shown_lines |= hits
        shown.append(entry)
        room -= len(entry) + 1
    if others := result.turns - len(shown):
        names = f" ({', '.join(listed_ids[:MOST_NAMED])})" if listed_ids else ""
        more = "1 more turn matches" if others == 1 else f"{others} more turns match"
        shown.append(f"… {more}{names}: narrow it by words, part or tool")
    return "\n".join(shown)


def _compact(session: Session, wanted: Compact) -> Answer:
    session.request_compaction(wanted.focus)
    return "Older parts of the conversation will be compacted before your next turn."


class Facts(_ToolInput):
    """Facts, decisions, requests and prohibitions of this project, each with the turn it came from."""

    type: FactType | None = Field(default=None, description="only facts of this type")
    words: str = Field(default="", description="only facts that contain some of these words, best first")
    days: int | None = Field(default=None, ge=1, description="only facts of the last N days")


def _facts(record: Visible, wanted: Facts) -> Answer:
    since = 0.0 if wanted.days is None else time.time() - 86_400 * wanted.days
    facts = record.facts(kind=wanted.type, since=since, words=wanted.words)
    text = "\n".join(f"{one.fact.type} ({record.short(one.reference)}): {one.fact.content}" for one in facts)
    if len(text) > record.page_characters:
        text = text[: record.page_characters].rpartition("\n")[0] + "\n… cut here; ask for less"
    return text or "No facts yet."


class AgentTool(NamedTuple):
    """A tool for the agent."""

    input: type[BaseModel]
    """Model of the arguments; its docstring describes the tool."""
    answer: Callable[[Any, Any], Answer]
    """Function that returns the answer, by the record and the arguments."""


LOOK_UP_TOOLS: Mapping[str, AgentTool] = {
    "restore_context": AgentTool(RestoreContext, _restored),
    "search_context": AgentTool(SearchContext, _matching),
}
"""Tools that look into a record, by name."""
_NOTE = AgentTool(WriteNote, _noted)
PROJECT_TOOLS: Mapping[str, AgentTool] = {**LOOK_UP_TOOLS, "facts": AgentTool(Facts, _facts), "note": _NOTE}
"""Tools of a server or plugin, which may also show facts from other conversations of the project."""
_TOOLS: Mapping[str, AgentTool] = {**LOOK_UP_TOOLS, "compact": AgentTool(Compact, _compact), "note": _NOTE}
"""Tools of an agent in a session."""
AGENT_TOOL_NAMES = frozenset(_TOOLS)
"""Names of the tools that `handle_tool_use` answers."""


def definitions(tools: Mapping[str, AgentTool]) -> list[dict[str, Any]]:
    """Return the definitions of `tools` for the Messages API."""
    schemas = {name: tool.input.model_json_schema() for name, tool in tools.items()}
    return [
        {"name": name, "description": schema.pop("description"), "input_schema": schema}
        for name, schema in schemas.items()
    ]


AGENT_TOOLS = definitions(_TOOLS)
"""Definitions for the ``tools`` of a request; keep them in the same place every time, for the cache."""


def answer_call(
    record: _Record, name: str, arguments: Mapping[str, Any], tools: Mapping[str, AgentTool] | None = None
) -> Answer:
    """Return the answer to a call of the tool `name` with `arguments`, from the session or store `record`. `tools`: the
    tools that there are; None for those of an agent in a session.

    Raises:
        CompactorError: the call failed; the text explains what to do instead.
    """
    known = tools or _TOOLS
    if name not in known:
        raise CompactorError(f"{name}: no such tool; there are {', '.join(known)}")
    tool = known[name]
    try:
        return tool.answer(record, tool.input.model_validate(arguments))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, wrong["loc"])) or name
        raise CompactorError(f"{name}: {place}: {wrong['msg']}") from None


def handle_tool_use(session: Session, block: Any) -> dict[str, Any]:
    """Return the ``tool_result`` block for `block`, a ``tool_use`` block as a dict or SDK object."""
    call = block if isinstance(block, dict) else block.model_dump(mode="json")
    result = {"type": "tool_result", "tool_use_id": call["id"]}
    try:
        return {**result, "content": answer_call(session, call["name"], call["input"])}
    except CompactorError as error:
        return {**result, "content": str(error), "is_error": True}
