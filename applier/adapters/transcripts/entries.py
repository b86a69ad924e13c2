"""Converts entries of a foreign log or dump to Anthropic messages; writes nothing back.

Each form has one function that returns roles and blocks of an entry; pairing, ids and order are the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from applier.adapters.transcripts.message_lists import Conversations, Data, MessageList
from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from applier.adapters.transcripts.transcript import Pairing, Piece, marked_as_host
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, result_text, to_json

__all__ = [
    "THINKING",
    "Spoken",
    "as_blocks",
    "beside",
    "called",
    "dicts",
    "images",
    "lists",
    "read_only",
    "result",
]

Spoken = Iterator[tuple[str, list[Block]]]
"""Roles (``user``, ``assistant``, ``system``, and ``host`` for text of neither) and blocks. A call may lack its id; a
result may have the ``name`` of its tool instead of its call's id."""
THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""Character that the API refuses in ids: ``|`` in ``call_1|fc_2``."""


def paired(
    say: Callable[[Data], Spoken], entries: Sequence[Any], places: Sequence[str]
) -> Iterator[tuple[int, Message]]:
    """Yield `entries` as messages, each with the number of its first entry; `say` converts one entry."""
    made = _Entries()
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        try:
            for role, content in say(entry):
                for block in content:
                    made.take(number, role, block)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TranscriptError(f"{place}: not an entry of this form ({error!r:.60})") from None
    return ((piece.lines[0], piece.message) for piece in made.answered())


class _Entries(Pairing):
    """Conversation under construction in which each call gets its own id."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Block] = {}
        """Calls without a result, by their ids in the dump."""
        self._answers: dict[str, Any] = {}
        self._ids: set[str] = set()

    def take(self, number: int, role: str, block: Block) -> None:
        """Add a block of an entry; the user's blocks in one entry make one message."""
        last = self.pieces[-1] if self.pieces else None
        if block["type"] == "tool_use":
            self._call(number, block)
        elif block["type"] == "tool_result":
            self._result(number, block)
        elif role == "assistant":
            self.assistant([block], number)
        elif role == "system" and (last is None or last.role == "system"):
            self.pieces.append(Piece("system", [block], [number]))
        elif role == "user" or block["type"] != "text":
            self.user([block], number, joins=last is not None and number in last.lines)
        elif block["text"].strip():  # the host said it to the model: no words of the user
            self.take(number, "user", {"type": "text", "text": marked_as_host(block["text"])})

    def _call(self, number: int, block: Block) -> None:
        """Add a call; ignore a repetition before its result, as in some dumps."""
        key = str(block.get("id") or f"call_{len(self._ids) + 1}")
        if key not in self._open:
            own = _NOT_IN_IDS.sub("_", key)
            own = f"{own}_{len(self._ids) + 1}" if own in self._ids else own
            self._ids.add(own)
            self._open[key] = {**block, "id": own}
            self.assistant([self._open[key]], number)

    def _result(self, number: int, block: Block) -> None:
        """Add the result of the call with its id, else of its tool's oldest open call, else as the host's text."""
        content, name = block.get("content") or "", block.get("name")
        oldest = (key for key, call in self._open.items() if name in (None, call["name"]))
        key = str(block.get("tool_use_id") or next(oldest, ""))
        call = self._open.pop(key, None)
        if call is not None:
            flag = {"is_error": True} if block.get("is_error") else {}
            self.user([{"type": "tool_result", "tool_use_id": call["id"], "content": content, **flag}], number)
            self._answers[key] = content
        elif self._answers.get(key) != content:
            self.take(number, "host", {"type": "text", "text": result_text(block)})


def as_blocks(content: Any) -> list[Block]:
    """Return any content as blocks: texts, parts of any form, other values as JSON."""
    parts = [one for part in (content if isinstance(content, list) else [content]) for one in images(part)]
    made = [_block(part) for part in parts if part not in (None, "", {})]
    return [block for block in made if block and (block["type"] != "text" or block["text"].strip())]


def images(part: Any) -> list[Any]:
    """Return the images in a part, of which OpenHands lists several in one part; else the part itself."""
    several = part.get("image_urls") if isinstance(part, dict) else None
    return [{"type": "image", "url": url} for url in several] if isinstance(several, list) else [part]


def _block(part: Any) -> Block | None:
    if not isinstance(part, dict):
        return {"type": "text", "text": part if isinstance(part, str) else to_json(part)}
    kind = str(part.get("type") or part.get("kind")).replace("-", "_")
    if kind in THINKING or part.get("thought") is True:
        return None
    if kind in ("tool_use", "tool_result") or isinstance(part.get("source"), dict):
        return part
    if kind == "refusal" or isinstance(part.get("image_url"), dict) or isinstance(part.get("file"), dict):
        return block_of_part(part)
    text = part.get("content") if kind == "text_content" else part.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) else _medium(part, kind)


def _medium(part: Data, kind: str) -> Block:
    """Return an image, the kind of another medium, or the part as JSON."""
    held = part.get("inlineData") or part.get("inline_data") or part
    data, url = held.get("data") or held.get("base64"), part.get("image_url") or part.get("url")
    mime = str(held.get("media_type") or held.get("mime_type") or held.get("mimeType") or "")
    if isinstance(data, str) and mime.startswith("image/"):
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if isinstance(url, str) and "image" in kind:
        return block_of_part({"type": "image_url", "image_url": {"url": url}})
    return {"type": "text", "text": f"[{mime}]" if data and mime else to_json(part)}


def called(key: Any, name: Any, arguments: Any) -> Block:
    """Return a call; `arguments` is an object, or its JSON text."""
    value = arguments_as_object(arguments) if isinstance(arguments, str) else arguments or {}
    return {"type": "tool_use", "id": key, "name": str(name), "input": value}


def result(key: Any, name: Any, content: Any, failed: Any = False) -> Block:
    """Return a result of the call `key`, or of the oldest open one of the tool `name`."""
    held = content if isinstance(content, str) else as_blocks(content)
    return {"type": "tool_result", "tool_use_id": key, "name": name, "content": held, "is_error": bool(failed)}


def dicts(value: Any) -> list[Data]:
    """Return the objects in a list, or the value itself if it is one."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def lists(is_entry: Callable[[Data], bool], *keys: str) -> Callable[[Any], Conversations]:
    """Return a reader of lists with such entries under one of `keys` of each value; else of the values as entries."""

    def conversations(value: Any) -> Conversations:
        held = [(one, key) for one in dicts(value) for key in keys if any(map(is_entry, dicts(one.get(key))))]
        alone = isinstance(value, list) and any(map(is_entry, dicts(value)))
        return [(beside(one), one[key]) for one, key in held] or [({}, value)] * alone

    return conversations


def beside(holder: Data) -> Data:
    """Return the fields around the entries, with the system prompt always under the same name."""
    keys = ("system", "instructions", "systemInstruction", "system_instruction")
    system = next((holder[key] for key in keys if holder.get(key)), None)
    parts = system.get("parts", system) if isinstance(system, dict) else system
    return {**holder, "system": as_blocks(parts) or None}


def read_only(
    name: str, title: str, conversations: Callable[[Any], Conversations], say: Callable[[Data], Spoken]
) -> MessageList:
    """Return a form of message lists that can be read but not written; `say` converts one entry."""
    return MessageList(name, title, partial(paired, say), conversations=conversations)
