"""Lists of messages or of a foreign log's entries: as JSON, as JSONL or as Python objects, alone or in an object.

Checks every message and names the place of a bad one; everything around the messages in a file is written back. Forms
of entries are only read: a function for each returns roles and blocks of an entry; pairing, ids and order are the same
for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from applier.adapters.transcripts.document import Document, json_text
from applier.adapters.transcripts.openai_chat import (
    arguments_as_object,
    block_of_part,
    chat_messages,
    is_chat,
    leading_system,
    plain_entry,
    to_openai,
)
from applier.adapters.transcripts.transcript import (
    GrowingMessage,
    Pairing,
    Transcript,
    guess_task,
    marked_as_host,
    pairing_warnings,
)
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, checked_message, result_text, to_json

__all__ = [
    "MESSAGE_LISTS",
    "THINKING",
    "Conversations",
    "Data",
    "MessageList",
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

Data = dict[str, Any]
Where = tuple[str | int, ...]
Conversations = list[tuple[Data, list[Any]]]
"""Conversations, each as the object that contains it and its entries."""


@dataclass(frozen=True)
class MessageList:
    """A form of messages that are stored as a list."""

    name: str
    title: str
    messages: Callable[[Sequence[Any], Sequence[str]], Iterator[tuple[int, Message]]]
    """Function that converts entries, each with its place, to Anthropic messages, each with the number of its first
    entry."""
    conversations: Callable[[Any], Conversations] | None = None
    """Function that returns the lists of a read-only form in a file's value; None for a form that is also written."""
    recognises: Callable[[Sequence[Any], Data], bool | None] = lambda _entries, _container: True
    """Test whether entries are of this form, by them and the object around them; None if undecided."""
    leading: Callable[[Sequence[Any]], int] = leading_system
    """Function that counts the system's messages at the front."""
    entries: Callable[[Sequence[Message]], Sequence[Any]] = list
    """Function that converts messages back to entries."""

    def detects(self, document: Document) -> bool:
        """Return whether a list in `document` is of this form, by the first conclusive list."""
        answers = (self.recognises(held.entries, held.container) for held in self._held(document))
        return next((answer for answer in answers if answer is not None), False)

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the first conversation of a document, or the `part`-th."""
        held = self._held(document)
        if document.damage and self.conversations is None:  # its file would be written back without them
            raise document.damage[0]
        if not -len(held) <= (part or 0) < len(held):
            raise TranscriptError(f"{document.name}: no part {part}; it holds {len(held)} (0 to {len(held) - 1})")
        chosen = held[part or 0]
        places = [chosen.place_of(number) for number in range(len(chosen.entries))]
        numbered = list(self.messages(chosen.entries, places))
        lead = self.leading([message for _, message in numbered])
        leading = [message["content"] for _, message in numbered[:lead]]
        messages, places = [m for _, m in numbered[lead:]], [places[number] for number, _ in numbered[lead:]]
        warnings = [*document.damage_notes, *_odd_roles(messages, places), *pairing_warnings(messages, places)]
        if part is None and len(held) > 1:
            which = f"this is the first (part=0 to {len(held) - 1})"
            warnings.insert(0, f"{document.name}: holds {len(held)} conversations; {which}")
        task, tools = chosen.container.get("task"), chosen.container.get("tools")
        return Transcript(
            messages=messages,
            system=_system(document.name, chosen.container.get("system"), leading),
            tools=tools if isinstance(tools, list) else None,
            task=task if isinstance(task, str) and task.strip() else guess_task(messages),
            format=f"{self.name}_jsonl" if document.lines else self.name,
            warnings=tuple(warnings),
            source={"path": document.path, "conversation": chosen},
        )

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:  # noqa: ARG002
        """Return the file of `like` with other `messages`; for a read-only form, an object with them."""
        if self.conversations:
            beside = {"system": like.system, "tools": like.tools}
            return json_text({**{k: v for k, v in beside.items() if v}, "messages": list(messages)}, indent=2)
        held: _Conversation = like.source["conversation"]
        entries = [*held.entries[: self.leading(held.entries)], *self.entries(messages)]
        value = _replaced(held.document.value, held.where, entries)
        return json_text(value, indent=2) if not held.document.lines else "".join(map(json_text, value))

    def _held(self, document: Document) -> list[_Conversation]:
        if self.conversations is None:
            return _conversations(document)
        whole = replace(document, lines=())
        try:
            return [_Conversation(whole, (), *held) for held in self.conversations(document.value)]
        except (AttributeError, KeyError, TypeError, ValueError):  # only looks like one of its files
            return []


@dataclass(frozen=True)
class _Conversation:
    """List of messages in a document, with its place."""

    document: Document
    where: Where
    container: Data
    """Object that contains the list; empty if there is none."""
    entries: list[Any]

    def place_of(self, number: int) -> str:
        """Return the place of a message for people: ``chat.json, [1].messages[3]``, ``log.jsonl, line 7``."""
        name, where = self.document.name, (*self.where, number)
        if self.document.lines:
            return f"{name}, line {self.document.lines[int(where[0])][0]}{_steps(where[1:])}"
        return f"{name}, {_steps(where if self.where else ('messages', *where)).lstrip('.')}"


def _steps(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)


def _conversations(document: Document) -> list[_Conversation]:
    value = document.value
    if _is_record(value):
        return [_of_record(document, (), value)]
    if len(document.lines) == 1 and isinstance(value[0], dict) and not {"role", "messages"} & value[0].keys():
        return []
    if not isinstance(value, list) or (value and all(isinstance(item, str | int | float | list) for item in value)):
        return []
    if value and all(map(_is_record, value)):
        return [_of_record(document, (number,), record) for number, record in enumerate(value)]
    return [_Conversation(document, (), {}, list(map(plain_entry, value)))]


def _is_record(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("messages"), list) and "role" not in entry


def _of_record(document: Document, where: Where, record: Data) -> _Conversation:
    return _Conversation(document, (*where, "messages"), record, list(map(plain_entry, record["messages"])))


def _system(name: str, beside: Any, leading: Sequence[Any]) -> str | list[Block] | None:
    """Return the system prompt in the fields `beside` the list, and the contents of the `leading` messages."""
    if not isinstance(beside, str | list | None):
        wanted = "expected 'system' to be text or a list of blocks"
        raise TranscriptError(f"{name}: {wanted}, found {type(beside).__name__}")
    contents = [content for content in (beside, *leading) if content]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _odd_roles(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    for message, place in zip(messages, places, strict=True):
        if message["role"] not in ("user", "assistant"):
            yield f"{place}: a {message['role']} message inside the conversation stays where it is"


def _replaced(value: Any, where: Where, entries: Sequence[Any]) -> Any:
    """Return a copy of `value` with `entries` at `where`; nothing else is copied."""
    if not where:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[where[0]] = _replaced(value[where[0]], where[1:], entries)
    return copy


def _is_openai(entries: Sequence[Any], container: Data) -> bool | None:
    chat = is_chat(entries)
    return True if chat is None and "system" not in container and leading_system(entries) else chat


def _anthropic(entries: Sequence[Any], places: Sequence[str]) -> Iterator[tuple[int, Message]]:
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        message = checked_message(entry, place)
        if message.get("type") == "message":  # a whole response; the API takes back only these two
            message = {"role": message["role"], "content": message["content"]}
        yield number, message


MESSAGE_LISTS = (
    MessageList("openai", "OpenAI chat messages", chat_messages, recognises=_is_openai, entries=to_openai),
    MessageList(
        "anthropic", "a list of messages, or an object with 'messages'", _anthropic, leading=lambda _messages: 0
    ),
)
"""Forms that are read and written, in the order in which they are tried."""


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
            self.pieces.append(GrowingMessage("system", [block], [number]))
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
