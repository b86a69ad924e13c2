"""Conversion between the rows in which Claude Code exchanges transcripts with a mod, and the Messages API's messages.

A row is a message or a part of one: the client keeps thinking, text and calls of an assistant apart. Rows hold text
only; images and documents come from the API's form of the same transcript, and go back by the handle of their row.
Neighbouring rows of one role are one message. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from planner.placeholders import clean
from planner.reading.media import media_mark
from planner.reading.messages import Block, Message, blocks

__all__ = ["Row", "RowTranscript", "read_rows", "rows_of", "without_tail"]

IN_ROWS = ("text", "tool_use", "tool_result")
"""Types of block that rows can contain; a result in a row has only its text."""


class RowToolUse(BaseModel):
    """Tool call in a row; unknown fields of a newer client are ignored, here and below."""

    tool_use_id: str
    tool: str
    input: dict[str, Any] = {}


class ToolResult(BaseModel):
    """Result of a call, as the model read it."""

    tool_use_id: str
    text: str = ""
    isError: bool = False  # noqa: N815 - the client's name


class Row(BaseModel):
    """One row of the transcript."""

    role: Literal["user", "assistant"]
    text: str = ""
    toolUses: tuple[RowToolUse, ...] = ()  # noqa: N815
    toolResults: tuple[ToolResult, ...] | None = ()  # noqa: N815
    handle: str = Field(default="", max_length=200)
    """Client's name for the row."""


@dataclass(frozen=True)
class RowTranscript:
    """A transcript's rows as messages, and the client's handles for them."""

    messages: list[Message]
    handles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Handles by content: those of all rows that make an assistant's message, by its content; and that of a user's row
    with media, by the row's content."""
    firsts: Sequence[str] = ()
    """Handle of each message's first row."""

    @property
    def open_calls(self) -> list[str]:
        """Ids of the calls at the end that have no result yet."""
        end = [block for message in self.messages[-2:] for block in message["content"]]
        answered = {block["tool_use_id"] for block in end if block["type"] == "tool_result"}
        return [block["id"] for block in end if block["type"] == "tool_use" and block["id"] not in answered]


def read_rows(rows: Sequence[Row], api: Sequence[Mapping[str, Any]] = ()) -> RowTranscript:
    """Return the messages of `rows` with the media of `api`, the same transcript in the API's form. Interrupted calls
    and results without a call are left out. Calls at the end without a result stay: the client adds their results after
    the view."""
    media, handles, parts = _Media(api), dict[str, tuple[str, ...]](), list[_Part]()
    for row in rows:
        content = _content(row, media)
        parts.append(_Part(row.role, content, (row.handle,)))
        if any(map(_has_media, content)):
            handles[_key(content)] = (row.handle,)
    joined = _joined(_paired(_joined(parts)))  # again, as a part may have lost all of its content
    handles |= {_key(one.content): one.handles for one in joined if one.role == "assistant"}
    messages: list[Message] = [{"role": one.role, "content": one.content} for one in joined]
    complete = {key: names for key, names in handles.items() if all(names)}
    return RowTranscript(messages, complete, [one.handles[0] for one in joined])


@dataclass(frozen=True)
class _Part:
    """Neighbouring rows of one role, joined: their blocks and their handles."""

    role: str
    content: list[Block]
    handles: tuple[str, ...]


def _content(row: Row, media: _Media) -> list[Block]:
    """Return a row as blocks: text and calls, or results and text, with their media."""
    if row.role == "assistant":
        calls = (
            {"type": "tool_use", "id": use.tool_use_id, "name": use.tool, "input": use.input} for use in row.toolUses
        )
        return [*_text(row.text), *calls]
    results = (_result(result, media) for result in row.toolResults or ())
    return [*results, *(media.sent_with(row) or _text(row.text))]


def _joined(parts: Iterable[_Part]) -> list[_Part]:
    """Return `parts` with neighbours of one role joined, results first. The handles of a part without content, such as
    thinking, go to the next part of its role."""
    joined: list[_Part] = []
    role, new_handles = "", tuple[str, ...]()
    for part in parts:
        new_handles = (*(new_handles if part.role == role else ()), *part.handles)
        role = part.role
        if not part.content:
            continue
        before = joined.pop() if joined and joined[-1].role == role else _Part(role, [], ())
        content = [*before.content, *part.content]
        if role == "user":
            content.sort(key=lambda block: block["type"] != "tool_result")
        joined.append(_Part(role, content, (*before.handles, *new_handles)))
        new_handles = ()
    return joined


def _paired(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Yield `parts` without unanswered calls, except those that can still be answered, and without unpaired results. A
    part that nothing but results follows can still be answered."""
    seen_ids: set[str] = set()
    kept_ids: set[str] = set()  # of the calls in the newest assistant part, and of their results
    for at, part in enumerate(parts):
        if part.role == "assistant":
            after = [block for one in parts[at + 1 :][:1] for block in one.content]
            is_open = at + 2 >= len(parts) and all(block["type"] == "tool_result" for block in after)
            call_ids = {str(block["id"]) for block in part.content if block["type"] == "tool_use"}
            answered = call_ids if is_open else call_ids & {block.get("tool_use_id") for block in after}
            kept_ids = answered - seen_ids
            seen_ids |= kept_ids
        not_yet, content = set(kept_ids), []  # each id once in a part
        for block in part.content:
            call_id = block.get("id") if block["type"] == "tool_use" else block.get("tool_use_id")
            if block["type"] not in ("tool_use", "tool_result") or call_id in not_yet:
                content.append(block)
                not_yet.discard(str(call_id))
        yield _Part(part.role, content, part.handles)


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _result(result: ToolResult, media: _Media) -> Block:
    content = media.results.get(result.tool_use_id, result.text)
    marked = {"is_error": True} if result.isError else {}
    return {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content, **marked}


class _Media:
    """Images and documents of a transcript, which only its API form contains."""

    def __init__(self, api: Sequence[Mapping[str, Any]]) -> None:
        """Index the messages of `api`."""
        self.results: dict[str, list[Block]] = {}
        """Contents of results with media, by the id of the call."""
        self._typed: dict[str, list[list[Block]]] = {}
        """For each text that a user sent together with media: the blocks of the text and the media, in their order, for
        each message with it."""
        for message in api:
            content = [block for block in _list(message.get("content")) if isinstance(block, dict)]
            for block in content:
                inside = block.get("content")
                if block.get("type") == "tool_result" and isinstance(inside, list) and any(map(_is_medium, inside)):
                    self.results[str(block.get("tool_use_id"))] = inside
            if message.get("role") == "user" and any(map(_is_medium, content)):
                for text in {str(block.get("text", "")).strip() for block in content}:
                    sent = [
                        one for one in content if _is_medium(one) or (text and str(one.get("text", "")).strip() == text)
                    ]
                    self._typed.setdefault(text, []).append(sent)
        self._used: set[int] = set()

    def sent_with(self, row: Row) -> list[Block]:
        """Return the text of the user's `row` with the media sent in the same message, each once; empty without any."""
        typed = [] if row.toolResults else self._typed.get(row.text.strip(), [])
        sent = [block for block in (typed.pop(0) if typed else ()) if id(block) not in self._used]
        self._used.update(id(block) for block in sent if _is_medium(block))
        return sent if any(map(_is_medium, sent)) else []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_medium(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") not in IN_ROWS


def _has_media(block: Block) -> bool:
    return _is_medium(block) or any(map(_is_medium, _list(block.get("content"))))


def _key(content: Sequence[Block]) -> str:
    return json.dumps(content, sort_keys=True)


def rows_of(view: Sequence[Message], transcript: RowTranscript, *, thinking: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of `view`: the client's own by handle, the rest as text and calls. With `thinking`, unchanged
    messages of the assistant go back by handle, thinking included. Without it they become new rows, since the API
    refuses their thinking after a changed list."""
    used_handles: set[str] = set()
    for message in view:
        content = _unmarked(message)
        if thinking and message["role"] == "assistant" and (handles := transcript.handles.get(_key(content))):
            yield from ({"handle": handle} for handle in handles)
        elif message["role"] == "assistant":
            yield from _assistant_rows(content)
        else:
            yield from _user_rows(content, transcript, used_handles)


def _unmarked(message: Message) -> list[Block]:
    return [{name: value for name, value in one.items() if name != "cache_control"} for one in blocks(message)]


def without_tail(view: Sequence[Message], transcript: RowTranscript) -> tuple[list[Message], str]:
    """Return `view` without the unchanged messages at its end, which the client keeps itself, and the handle of the
    first row of that end; empty if there is none. Text that the view added to the newest message, or before the
    unchanged end, is returned as messages of the user."""
    ours, original = [_unmarked(message) for message in view], [message["content"] for message in transcript.messages]
    last = len(original[-1])
    ends = [at for at in range(last, len(ours[-1])) if ours[-1][at - last : at] == original[-1]]
    added = ours[-1][ends[0] :] if ends else []
    ours[-1] = ours[-1][: len(ours[-1]) - len(added)]
    kept, before = 0, list[Block]()  # messages of the unchanged end; blocks that the view joined to its first one
    for one, other in zip(reversed(ours), reversed(original), strict=False):
        at = len(one) - len(other)
        if before or one[at:] != other:
            break
        kept, before = kept + 1, one[:at]
    while kept and original[-kept][0]["type"] == "tool_result":  # never without its call
        kept, before = kept - 1, []
    front = [*view[: len(view) - kept], *({"role": "user", "content": one} for one in (before, added) if one)]
    return front, transcript.firsts[-kept] if kept else ""


def _assistant_rows(content: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Yield the rows of an assistant's message: one for each text, with the calls up to the next text."""
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


def _user_rows(content: Sequence[Block], transcript: RowTranscript, used_handles: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a user's message: one for each result and text; for media the client's own row, by its handle,
    if there is one that is not in `used_handles`, which grows."""
    at = 0
    while at < len(content):
        stop, handle = _own_row(content, at, transcript, used_handles)
        if handle:
            used_handles.add(handle)
            yield {"handle": handle}
        else:
            block = content[at]
            results = [_shown_result(block)] if block["type"] == "tool_result" else []
            text = "" if results else str(block.get("text", "")) or media_mark(block)
            yield {"role": "user", "text": text, "toolUses": [], **({"toolResults": results} if results else {})}
        at = stop


def _own_row(content: Sequence[Block], at: int, transcript: RowTranscript, used_handles: set[str]) -> tuple[int, str]:
    """Return the index of the block after the longest run of blocks from `at` on that is a row of the client with
    media, and the row's handle; without one, the next index and no handle."""
    for stop in range(len(content), at, -1):
        if any(map(_has_media, content[at:stop])):
            for handle in transcript.handles.get(_key(content[at:stop]), ()):
                if handle not in used_handles:
                    return stop, handle
    return at + 1, ""


def _shown_result(block: Block) -> dict[str, Any]:
    """Return a ``tool_result`` block in the form of rows, with marks instead of media."""
    inside = block.get("content")
    parts = [{"type": "text", "text": inside}] if isinstance(inside, str) else _list(inside)
    text = "\n".join(str(part.get("text", "")) or clean(media_mark(part)) for part in parts)
    return {"tool_use_id": block["tool_use_id"], "text": text, "isError": bool(block.get("is_error"))}
