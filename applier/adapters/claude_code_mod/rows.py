"""Converts the rows in which Claude Code exchanges transcripts with a plugin to messages of the API, and back.

A row is a message or a part of one: the client keeps thinking, text and calls of an assistant apart. Consecutive rows
of one role are one message. A handle is the client's name for a row; a row that is returned by its handle stays as it
is in the client. Rows contain only text. Images and documents ("media") are read from the API's form of the same
transcript, and are returned by the handle of their row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from planner.placeholders import clean, media_mark
from planner.reading.messages import Block, Message, blocks, unmarked

IN_ROWS = ("text", "tool_use", "tool_result")
"""Types of block that rows can contain; all other types count as media. A result in a row has only its text."""


class RowToolUse(BaseModel):
    """Tool call in a row (one message of Claude Code's transcript). Here and below, unknown fields are ignored."""

    tool_use_id: str
    tool: str
    input: dict[str, Any] = {}


class ToolResult(BaseModel):
    """Result of a tool call in a row, the form in which the client stores a message, as the model read it."""

    tool_use_id: str
    text: str = ""
    isError: bool = False  # noqa: N815 - the client's name


class Row(BaseModel):
    """Row of a transcript in Claude Code's form: a message or a part of one."""

    role: Literal["user", "assistant"]
    text: str = ""
    toolUses: tuple[RowToolUse, ...] = ()  # noqa: N815
    toolResults: tuple[ToolResult, ...] | None = ()  # noqa: N815
    handle: str = Field(default="", max_length=200)
    """Name of the row in the client; a row that is returned by this name stays as it is there."""


@dataclass(frozen=True)
class RowTranscript:
    """Messages of the API made from a client's rows, with the client's names for these rows (handles)."""

    messages: list[Message]
    handles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Handles of rows by their content as JSON: of the assistant's messages, and of the user's rows with images."""
    firsts: Sequence[str] = ()
    """Handle of the first row of each message."""

    @property
    def open_calls(self) -> list[str]:
        """Ids of the tool calls at the end of the transcript that have no result yet."""
        end = [block for message in self.messages[-2:] for block in message["content"]]
        answered = {block["tool_use_id"] for block in end if block["type"] == "tool_result"}
        return [block["id"] for block in end if block["type"] == "tool_use" and block["id"] not in answered]


def read_rows(rows: Sequence[Row], api: Sequence[Mapping[str, Any]] = ()) -> RowTranscript:
    """Convert `rows` to messages, with the images and documents of `api` (the same transcript as messages of the API).

    A call without a result and a result without a call are left out, because the API refuses them. Calls at the end
    stay, as they may still get a result.
    """
    media, handles, parts = _Media(api), dict[str, tuple[str, ...]](), list[_Part]()
    for row in rows:
        content = _content(row, media)
        parts.append(_Part(row.role, content, (row.handle,)))
        if any(map(_has_media, content)):
            handles[_key(content)] = (row.handle,)
    joined = _joined(_paired(_joined(parts)))  # joined again, as pairing may have removed all content of a part
    handles |= {_key(part.content): part.handles for part in joined if part.role == "assistant"}
    messages: list[Message] = [{"role": part.role, "content": part.content} for part in joined]
    complete = {key: names for key, names in handles.items() if all(names)}
    return RowTranscript(messages, complete, [part.handles[0] for part in joined])


@dataclass(frozen=True)
class _Part:
    """Blocks and handles of one row, or of consecutive rows of the same role."""

    role: str
    content: list[Block]
    handles: tuple[str, ...]


def _content(row: Row, media: _Media) -> list[Block]:
    """Return the content of `row` as blocks of the API; its images and documents come from `media`."""
    if row.role == "assistant":
        calls = (
            {"type": "tool_use", "id": use.tool_use_id, "name": use.tool, "input": use.input} for use in row.toolUses
        )
        return [*_text(row.text), *calls]
    results = (
        {
            "type": "tool_result",
            "tool_use_id": result.tool_use_id,
            "content": media.results.get(result.tool_use_id, result.text),
            **({"is_error": True} if result.isError else {}),
        }
        for result in row.toolResults or ()
    )
    return [*results, *(media.sent_with(row) or _text(row.text))]


def _joined(parts: Iterable[_Part]) -> list[_Part]:
    """Join consecutive parts of the same role, with tool results first, as the API demands. A part without content,
    such as thinking, is left out; its handles go to the part of the same role that follows it."""
    joined: list[_Part] = []
    role, new_handles = "", tuple[str, ...]()
    for part in parts:
        new_handles = (*(new_handles if part.role == role else ()), *part.handles)
        role = part.role
        if not part.content:  # its handle waits in `new_handles` for the next part
            continue
        before = joined.pop() if joined and joined[-1].role == role else _Part(role, [], ())
        content = [*before.content, *part.content]
        if role == "user":
            content.sort(key=lambda block: block["type"] != "tool_result")
        joined.append(_Part(role, content, (*before.handles, *new_handles)))
        new_handles = ()
    return joined


def _paired(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Yield `parts` without tool calls that have no result, and without results that have no call. Calls of the last
    assistant part stay if nothing but results follows, because they can still get a result."""
    seen_ids: set[str] = set()
    kept_ids: set[str] = set()  # ids of the calls to keep in the newest assistant part, and of their results
    for at, part in enumerate(parts):
        if part.role == "assistant":
            after = parts[at + 1].content if at + 1 < len(parts) else []
            is_open = at + 2 >= len(parts) and all(block["type"] == "tool_result" for block in after)
            call_ids = {str(block["id"]) for block in part.content if block["type"] == "tool_use"}
            answered = call_ids if is_open else call_ids & {block.get("tool_use_id") for block in after}
            kept_ids = answered - seen_ids
            seen_ids |= kept_ids
        expected_ids, content = set(kept_ids), []
        for block in part.content:
            call_id = block.get("id") if block["type"] == "tool_use" else block.get("tool_use_id")
            if block["type"] not in ("tool_use", "tool_result") or call_id in expected_ids:
                content.append(block)
                expected_ids.discard(str(call_id))  # the API refuses a message that has an id twice
        yield _Part(part.role, content, part.handles)


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


class _Media:
    """Finder of the images and documents of a transcript, which its rows lack and its messages of the API contain."""

    def __init__(self, api: Sequence[Mapping[str, Any]]) -> None:
        """Index the messages `api`."""
        self.results: dict[str, list[Block]] = {}
        """Contents of tool results with media, by the id of the call."""
        self._typed: dict[str, list[list[Block]]] = {}
        """Content of the user's messages with images or documents, by each text in them: for each such message a list
        with the blocks of this text and all its images and documents, in their order."""
        for message in api:
            content = [block for block in _list(message.get("content")) if isinstance(block, dict)]
            for block in content:
                inside = block.get("content")
                if block.get("type") == "tool_result" and isinstance(inside, list) and any(map(_is_medium, inside)):
                    self.results[str(block.get("tool_use_id"))] = inside
            if message.get("role") != "user" or not any(map(_is_medium, content)):
                continue
            texts = [str(block.get("text", "")).strip() for block in content]
            for text in set(texts):  # a row has one text of the message, or none
                pairs = zip(content, texts, strict=True)
                sent = [block for block, its_text in pairs if _is_medium(block) or (text and its_text == text)]
                self._typed.setdefault(text, []).append(sent)
        self._used: set[int] = set()
        """Object identities (``id()``) of the images and documents that `sent_with` has returned so far."""

    def sent_with(self, row: Row) -> list[Block]:
        """Return the text of the user's `row` with the images and documents of the same message; empty if it has none.
        None of them is returned a second time, for another row of the message."""
        with_text = [] if row.toolResults else self._typed.get(row.text.strip(), [])  # messages with the row's text
        next_content = with_text.pop(0) if with_text else []
        sent = [block for block in next_content if id(block) not in self._used]
        self._used.update(id(block) for block in sent if _is_medium(block))
        return sent if any(map(_is_medium, sent)) else []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_medium(block: object) -> bool:
    """Return True for an image, a document, or another block that no row can contain."""
    return isinstance(block, dict) and block.get("type") not in IN_ROWS


def _has_media(block: Block) -> bool:
    return _is_medium(block) or any(map(_is_medium, _list(block.get("content"))))


def _key(content: Sequence[Block]) -> str:
    """Return `content` as JSON, under which `RowTranscript.handles` has its rows."""
    return json.dumps(content, sort_keys=True)


def rows_of(view: Sequence[Message], transcript: RowTranscript, *, thinking: bool = False) -> Iterator[dict[str, Any]]:
    """Yield `view`, a compacted conversation, as rows for the client. A row with an image or a document is yielded as
    ``{"handle": …}``, its name in `transcript`, so that the client keeps its own row; all others as text and calls.

    `thinking`: True if the model accepts old thinking in a changed list. Then unchanged messages of the assistant are
    yielded by their handles too, because only the client's rows contain the thinking.
    """
    used_handles: set[str] = set()
    for message in view:
        content = blocks(unmarked(message))
        if thinking and message["role"] == "assistant" and (handles := transcript.handles.get(_key(content))):
            yield from ({"handle": handle} for handle in handles)
        elif message["role"] == "assistant":
            yield from _assistant_rows(content)
        else:
            yield from _user_rows(content, transcript, used_handles)


def without_tail(view: Sequence[Message], transcript: RowTranscript) -> tuple[list[Message], str]:
    """Return the front of `view` (a compacted conversation), and the handle of the first row that the client keeps.

    The front is the view without the messages at its end that are unchanged and that the client therefore keeps; if
    there are none, the handle is empty. Blocks that the view added just before these messages, or after the newest one,
    are returned at the end of the front, as messages of the user.
    """
    compacted = [list(blocks(unmarked(message))) for message in view]
    original = [message["content"] for message in transcript.messages]
    # find the original newest message in the compacted one, and cut off what was added after it
    size, newest = len(original[-1]), compacted[-1]
    ends = [end for end in range(size, len(newest)) if newest[end - size : end] == original[-1]]
    added_after = newest[ends[0] :] if ends else []
    compacted[-1] = newest[: len(newest) - len(added_after)]
    kept, added_before = 0, list[Block]()  # number of unchanged messages; blocks joined in front of the first of them
    for content, original_content in zip(reversed(compacted), reversed(original), strict=False):
        start = len(content) - len(original_content)
        if added_before or content[start:] != original_content:
            break
        kept, added_before = kept + 1, content[:start]
    while kept and original[-kept][0]["type"] == "tool_result":  # the API refuses a result without its call
        kept, added_before = kept - 1, []
    added = [{"role": "user", "content": content} for content in (added_before, added_after) if content]
    return [*view[: len(view) - kept], *added], transcript.firsts[-kept] if kept else ""


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
    """Yield the rows of a user's message: one for each result, text and image. An image is yielded as the handle of the
    client's row with it, which is then added to `used_handles`; if it is in there already, as a text that names it."""
    at = 0
    while at < len(content):
        stop, handle = _row_with_media(content, at, transcript, used_handles)
        if handle:
            used_handles.add(handle)
            yield {"handle": handle}
        else:
            block = content[at]
            results = [_result_row(block)] if block["type"] == "tool_result" else []
            text = "" if results else str(block.get("text", "")) or media_mark(block)
            yield {"role": "user", "text": text, "toolUses": [], **({"toolResults": results} if results else {})}
        at = stop


def _row_with_media(
    content: Sequence[Block], at: int, transcript: RowTranscript, used_handles: set[str]
) -> tuple[int, str]:
    """Find the client's longest unused row with media that equals the blocks from index `at` on. Return the index of
    the first block after it, and its handle; if there is no such row, the next index and an empty handle."""
    for stop in range(len(content), at, -1):
        if any(map(_has_media, content[at:stop])):
            for handle in transcript.handles.get(_key(content[at:stop]), ()):
                if handle not in used_handles:
                    return stop, handle
    return at + 1, ""


def _result_row(block: Block) -> dict[str, Any]:
    """Return a ``tool_result`` block in the form of rows, which contain only text: a short mark names each image."""
    inside = block.get("content")
    parts = [{"type": "text", "text": inside}] if isinstance(inside, str) else _list(inside)
    text = "\n".join(str(part.get("text", "")) or clean(media_mark(part)) for part in parts)
    return {"tool_use_id": block["tool_use_id"], "text": text, "isError": bool(block.get("is_error"))}
