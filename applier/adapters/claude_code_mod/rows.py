"""Conversion between the rows in which Claude Code exchanges transcripts with a mod, and the Messages API's messages.

A row is a message or a part of one: the client keeps thinking, text and calls of an assistant apart. Neighbouring rows
of one role are one message. A handle is the client's name for a row; a row that we return by its handle stays as it is
in the client. Rows hold text only. Images and documents ("media") are read from the API's form of the same transcript,
and are returned by the handle of their row. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from planner.placeholders import clean, media_mark
from planner.reading.messages import Block, Message, blocks

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
    """Handles by content. An assistant's message has the handles of all its rows; a user's row with media has its
    own. `_key` turns the content into the key."""
    firsts: Sequence[str] = ()
    """Handle of each message's first row."""

    @property
    def open_calls(self) -> list[str]:
        """Ids of the calls at the end that have no result yet."""
        end = [block for message in self.messages[-2:] for block in message["content"]]
        answered = {block["tool_use_id"] for block in end if block["type"] == "tool_result"}
        return [block["id"] for block in end if block["type"] == "tool_use" and block["id"] not in answered]


def read_rows(rows: Sequence[Row], api: Sequence[Mapping[str, Any]] = ()) -> RowTranscript:
    """Return the messages of `rows` with the media of `api`, which is the same transcript in the API's form.

    Calls without a result and results without a call are left out. Calls at the end may still get a result and stay.
    """
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
    """Return `parts` with neighbours of one role joined to one part, in which results come first. A part without
    content, such as thinking, is left out, and its handles go to the part of the same role that follows it."""
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
    """Yield `parts` without unanswered calls and without results that have no call. Calls of the last assistant part
    stay if nothing but results follows, because they can still be answered."""
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
        expected_ids, content = set(kept_ids), []  # the API refuses a part that has an id twice
        for block in part.content:
            call_id = block.get("id") if block["type"] == "tool_use" else block.get("tool_use_id")
            if block["type"] not in ("tool_use", "tool_result") or call_id in expected_ids:
                content.append(block)
                expected_ids.discard(str(call_id))
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
        """Blocks to put in place of a user's text, by the text. Each message with the text and media adds a list: the
        blocks of the text and all its media, in their order."""
        for message in api:
            content = [block for block in _list(message.get("content")) if isinstance(block, dict)]
            for block in content:
                inside = block.get("content")
                if block.get("type") == "tool_result" and isinstance(inside, list) and any(map(_is_medium, inside)):
                    self.results[str(block.get("tool_use_id"))] = inside
            if message.get("role") == "user" and any(map(_is_medium, content)):
                self._add_typed(content)
        self._used: set[int] = set()
        """Identities of the media that `sent_with` already returned."""

    def _add_typed(self, content: Sequence[Block]) -> None:
        """Index a user's message with media by each of its texts."""
        texts = [str(block.get("text", "")).strip() for block in content]
        for text in set(texts):
            pairs = zip(content, texts, strict=True)
            blocks_of_text = [block for block, own in pairs if _is_medium(block) or (text and own == text)]
            self._typed.setdefault(text, []).append(blocks_of_text)

    def sent_with(self, row: Row) -> list[Block]:
        """Return the text of the user's `row` with the media of the same message; empty if it has none. No medium is
        returned twice."""
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
    """Return the text under which `RowTranscript.handles` lists `content`."""
    return json.dumps(content, sort_keys=True)


def rows_of(view: Sequence[Message], transcript: RowTranscript, *, thinking: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of `view`. A user's row with media is returned by its handle, everything else as text and calls.

    `thinking`: True if the model accepts old thinking after a changed list. Then unchanged messages of the assistant
    are returned by their handles too, which keeps their thinking.
    """
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
    """Return the front of `view`, and the handle of the first row that the client keeps. The front is the view without
    the unchanged messages at its end, which the client has itself. The handle is empty if there are none.

    The view may have added blocks in front of the unchanged end, and after the newest message. They are returned at the
    end of the front, as messages of the user.
    """
    ours, original = [_unmarked(message) for message in view], [message["content"] for message in transcript.messages]
    size = len(original[-1])
    ends = [at for at in range(size, len(ours[-1])) if ours[-1][at - size : at] == original[-1]]
    added_after = ours[-1][ends[0] :] if ends else []
    ours[-1] = ours[-1][: len(ours[-1]) - len(added_after)]
    kept, added_before = 0, list[Block]()  # number of unchanged messages; blocks joined in front of the first of them
    for our_content, content in zip(reversed(ours), reversed(original), strict=False):
        at = len(our_content) - len(content)
        if added_before or our_content[at:] != content:
            break
        kept, added_before = kept + 1, our_content[:at]
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
    """Yield the rows of a user's message: one for each result, text and medium. A medium is returned by the handle of
    the client's row with it, if that is not in `used_handles` yet, else as a text that names it. Returned handles are
    added to `used_handles`."""
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
    """Return the client's row with media that begins at block `at`: the index of the first block after it, and its
    handle. Without such a row, return the next index and an empty handle. The longest row is preferred."""
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
