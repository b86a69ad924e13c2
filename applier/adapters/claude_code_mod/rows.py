"""The rows in which Claude Code shows a mod its transcript and takes one back, and the Messages API's messages.

A row is a message or a part of one: a client keeps what an assistant thought, said and called apart. Rows hold texts
only; what else there is (images, documents) is taken from the API's form of the same transcript, and goes back by the
handle of its row. Neighbours of one role are one message. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.placeholders import clean
from planner.reading.messages import Block, Message, blocks, media_mark

__all__ = ["Row", "Transcript", "read_rows", "rows_of"]

MEDIA = ("image", "document")
"""Blocks that a row cannot show."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")  # newer clients say more


class ToolUse(_Part):
    """A call, as a row shows it."""

    tool_use_id: str
    tool: str
    input: dict[str, Any] = {}


class ToolResult(_Part):
    """A call's result, as the model read it."""

    tool_use_id: str
    text: str = ""
    isError: bool = False  # noqa: N815 - the client's name


class Row(_Part):
    """One row of the transcript."""

    role: Literal["user", "assistant"]
    text: str = ""
    toolUses: tuple[ToolUse, ...] = ()  # noqa: N815
    toolResults: tuple[ToolResult, ...] | None = ()  # noqa: N815
    handle: str = Field(default="", max_length=200)
    """By which the client knows it as its own."""


@dataclass(frozen=True)
class Transcript:
    """What rows say, as messages."""

    messages: list[Message]
    handles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By what stands in them: rows with something that only the client has, and all rows of an assistant's message."""


def read_rows(rows: Sequence[Row], api: Sequence[Mapping[str, Any]] = ()) -> Transcript:
    """The messages of `rows`, with the media of `api`, the same transcript in the API's form as far as it is there.

    A call without a result, and a result without its call, are of a call that was interrupted: they are left out.
    """
    media, messages, own = _Media(api), list[Message](), list[list[str]]()
    answered = {result.tool_use_id for row in rows for result in row.toolResults or ()}
    called = {use.tool_use_id for row in rows if row.role == "assistant" for use in row.toolUses}
    handles: dict[str, tuple[str, ...]] = {}
    role, waiting = "", list[str]()
    for row in rows:
        role, waiting = row.role, [*(waiting if row.role == role else ()), row.handle]
        content = _content(row, media, answered & called)
        if not content:  # what was only thought goes with what is said next
            continue
        if not messages or messages[-1]["role"] != row.role:
            messages.append({"role": row.role, "content": []})
            own.append([])
        messages[-1]["content"] += content
        own[-1] += waiting
        waiting = []
        if any(map(_holds_media, content)):
            handles[_key(content)] = (row.handle,)
    for message, rows_of_it in zip(messages, own, strict=True):
        if message["role"] == "user":
            message["content"].sort(key=lambda block: block["type"] != "tool_result")
        else:
            handles[_key(message["content"])] = tuple(rows_of_it)
    return Transcript(messages, {key: found for key, found in handles.items() if all(found)})


def _content(row: Row, media: _Media, answered: set[str]) -> list[Block]:
    if row.role == "assistant":
        uses = [use for use in row.toolUses if use.tool_use_id in answered]
        calls = [{"type": "tool_use", "id": use.tool_use_id, "name": use.tool, "input": use.input} for use in uses]
        return [*_text(row.text), *calls]
    results = [_result(result, media) for result in row.toolResults or () if result.tool_use_id in answered]
    return [*results, *media.beside(row), *_text(row.text)]


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _result(result: ToolResult, media: _Media) -> Block:
    content = media.results.get(result.tool_use_id, result.text)
    marked = {"is_error": True} if result.isError else {}
    return {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content, **marked}


class _Media:
    """What of a transcript only the API's form holds."""

    def __init__(self, api: Sequence[Mapping[str, Any]]) -> None:
        self.results: dict[str, list[Block]] = {}
        """Contents of results that hold media, by the id of the call."""
        self._typed: dict[str, list[list[Block]]] = {}
        """Media that a user sent, by each of the texts beside it."""
        for message in api:
            content = [block for block in _list(message.get("content")) if isinstance(block, dict)]
            for block in content:
                inside = block.get("content")
                if block.get("type") == "tool_result" and isinstance(inside, list) and any(map(_is_media, inside)):
                    self.results[str(block.get("tool_use_id"))] = inside
            sent = [block for block in content if _is_media(block)]
            if message.get("role") == "user" and sent:
                texts = {str(block.get("text", "")).strip() for block in content if block.get("type") == "text"}
                for text in texts or {""}:
                    self._typed.setdefault(text, []).append(sent)

    def beside(self, row: Row) -> list[Block]:
        """What was sent with the words of `row`; each once."""
        sent = [] if row.toolResults else self._typed.get(row.text.strip(), [])
        return sent.pop(0) if sent else []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_media(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") in MEDIA


def _holds_media(block: Block) -> bool:
    return _is_media(block) or any(map(_is_media, _list(block.get("content"))))


def _key(content: Sequence[Block]) -> str:
    return json.dumps(content, sort_keys=True)


def rows_of(view: Sequence[Message], transcript: Transcript, *, thinking: bool = False) -> Iterator[dict[str, Any]]:
    """The rows that stand for `view`: what the client has itself by its handle alone, the rest as texts and calls.

    With `thinking` assistants' messages that are as they were go back by their handles, with what was thought; without
    it they are said anew, for what was thought would be refused behind another list.
    """
    given: set[str] = set()
    for message in view:
        content = [{name: value for name, value in one.items() if name != "cache_control"} for one in blocks(message)]
        if thinking and message["role"] == "assistant" and (own := transcript.handles.get(_key(content))):
            yield from ({"handle": handle} for handle in own)
        elif message["role"] == "assistant":
            yield from _assistant_rows(content)
        else:
            yield from _user_rows(content, transcript, given)


def _assistant_rows(content: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """A row for each text, with the calls behind it."""
    row: dict[str, Any] = {"role": "assistant", "text": "", "toolUses": []}
    for block in content:
        if block["type"] == "text" and (row["text"] or row["toolUses"]):
            yield row
            row = {"role": "assistant", "text": "", "toolUses": []}
        if block["type"] == "text":
            row["text"] = block["text"]
        elif block["type"] == "tool_use":
            row["toolUses"].append({"tool_use_id": block["id"], "tool": block["name"], "input": block["input"]})
    if row["text"] or row["toolUses"]:
        yield row


def _user_rows(content: Sequence[Block], transcript: Transcript, given: set[str]) -> Iterator[dict[str, Any]]:
    """A row for each result and each text; rows of the client's own where they hold what texts cannot say."""
    at = 0
    while at < len(content):
        stop, handle = _own_row(content, at, transcript, given)
        if handle:
            given.add(handle)
            yield {"handle": handle}
        else:
            block = content[at]
            results = [_shown_result(block)] if block["type"] == "tool_result" else []
            text = "" if results else str(block.get("text", "")) or media_mark(block)
            yield {"role": "user", "text": text, "toolUses": [], **({"toolResults": results} if results else {})}
        at = stop


def _own_row(content: Sequence[Block], at: int, transcript: Transcript, given: set[str]) -> tuple[int, str]:
    """How far the longest row of the client's own reaches from `at` on, and its handle; else one block, and none."""
    for stop in range(len(content), at, -1):
        if any(map(_holds_media, content[at:stop])):
            for handle in transcript.handles.get(_key(content[at:stop]), ()):
                if handle not in given:
                    return stop, handle
    return at + 1, ""


def _shown_result(block: Block) -> dict[str, Any]:
    inside = block.get("content")
    parts = [{"type": "text", "text": inside}] if isinstance(inside, str) else _list(inside)
    text = "\n".join(str(part.get("text", "")) or clean(media_mark(part)) for part in parts)
    return {"tool_use_id": block["tool_use_id"], "text": text, "isError": bool(block.get("is_error"))}
