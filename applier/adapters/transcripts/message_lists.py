"""Reads lists of messages in any library's format from JSON, JSONL or Python objects, and writes two of the formats.

An entry is one item of such a list. Lists of OpenAI and Anthropic messages are read and written: every message is
checked, an error names its place, and everything around the list is written back. Other formats are only read. For
each there is one function that converts one entry; how calls and results are matched is the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from applier.adapters.transcripts.document import Document, json_text
from applier.adapters.transcripts.openai_chat import (
    NumberedMessage,
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

Data = dict[str, Any]
KeyPath = tuple[str | int, ...]
"""Keys and indexes that lead from a file's value to something inside it: ``(1, "messages")``."""


class EntryList(NamedTuple):
    """One conversation in a file: a list of messages, or of other entries that are converted to messages."""

    container: Data
    """JSON object around the list of messages, perhaps with system prompt and tools; empty for a list alone."""
    entries: list[Any]
    path: KeyPath = ()
    """Path from the file's value to the list; empty if the value is the list, or the format can only be read."""


@dataclass(frozen=True)
class MessageList:
    """File format that stores a conversation as a list of messages or other entries."""

    name: str
    title: str
    messages: Callable[[Sequence[Any], Sequence[str]], Iterator[NumberedMessage]]
    """Function that converts entries, with the place of each in the file (for errors), to Anthropic messages."""
    conversations: Callable[[Any], list[EntryList]] | None = None
    """Function that finds the lists in the JSON value of a file; None for a format that can also be written."""
    recognises: Callable[[Sequence[Any], Data], bool | None] = lambda _entries, _container: True
    """Function that returns True if entries, inside this container, have this format; None if it cannot decide."""
    leading: Callable[[Sequence[Any]], int] = leading_system
    """Function that counts the system messages at the front of a list, which are not part of the conversation."""
    entries: Callable[[Sequence[Message]], Sequence[Any]] = list
    """Function that converts Anthropic messages back to entries."""

    def detects(self, document: Document) -> bool:
        """Return True if `document` has this format, by the first list in it that is enough to decide."""
        answers = (self.recognises(found.entries, found.container) for found in self._lists(document))
        return next((answer for answer in answers if answer is not None), False)

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the conversation number `part` of `document`, counted from 0; None for the first, with a warning if
        there are others.

        Raises:
            TranscriptError: There is no such conversation, or a message is not valid. A damaged file is refused too if
                its format can be written, because writing it back would lose the damaged lines.
        """
        found = self._lists(document)
        if document.damage and self.conversations is None:
            raise document.damage[0]
        if not -len(found) <= (part or 0) < len(found):
            raise TranscriptError(f"{document.name}: no part {part}; it holds {len(found)} (0 to {len(found) - 1})")
        chosen = found[part or 0]
        entry_places = [self._place(document, (*chosen.path, number)) for number in range(len(chosen.entries))]
        numbered = list(self.messages(chosen.entries, entry_places))
        lead = self.leading([one.message for one in numbered])
        leading = [one.message["content"] for one in numbered[:lead]]
        messages = [one.message for one in numbered[lead:]]
        places = [entry_places[one.first_entry] for one in numbered[lead:]]
        warnings = document.damage_notes
        if part is None and len(found) > 1:
            which = f"this is the first (part=0 to {len(found) - 1})"
            warnings.insert(0, f"{document.name}: holds {len(found)} conversations; {which}")
        for message, place in zip(messages, places, strict=True):
            if message["role"] not in ("user", "assistant"):
                warnings.append(f"{place}: a {message['role']} message inside the conversation stays where it is")
        warnings += pairing_warnings(messages, places)
        task, tools = chosen.container.get("task"), chosen.container.get("tools")
        return Transcript(
            messages=messages,
            system=_system(document.name, chosen.container.get("system"), leading),
            tools=tools if isinstance(tools, list) else None,
            task=task if isinstance(task, str) and task.strip() else guess_task(messages),
            format=f"{self.name}_jsonl" if document.lines else self.name,
            warnings=tuple(warnings),
            source={"path": document.path, "document": document, "list": chosen},
        )

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:  # noqa: ARG002
        """Return the content of the file that `like` was read from, with `messages` in place of its own. For a format
        that is only read, return a JSON object with Anthropic `messages`, system prompt and tools."""
        if self.conversations:
            around = {"system": like.system, "tools": like.tools}
            return json_text({**{k: v for k, v in around.items() if v}, "messages": list(messages)}, indent=2)
        document, old = like.source["document"], like.source["list"]
        entries = [*old.entries[: self.leading(old.entries)], *self.entries(messages)]
        value = _replaced(document.value, old.path, entries)
        return json_text(value, indent=2) if not document.lines else "".join(map(json_text, value))

    def _place(self, document: Document, path: KeyPath) -> str:
        """Return the place of an entry for people: ``chat.json, [1].messages[3]``, ``log.jsonl, line 7``."""
        if document.lines and self.conversations is None:  # JSONL: the path begins with the index of a line
            line_number, _ = document.lines[int(path[0])]
            return f"{document.name}, line {line_number}{_path_text(path[1:])}"
        full = path if len(path) > 1 else ("messages", *path)  # a list without an object around it is `messages`
        return f"{document.name}, {_path_text(full).lstrip('.')}"

    def _lists(self, document: Document) -> list[EntryList]:
        """Return the conversations in `document`."""
        if self.conversations is None:
            return _message_lists(document)
        try:
            return self.conversations(document.value)
        except (AttributeError, KeyError, TypeError, ValueError):  # the file only looks as if it had this format
            return []


def _path_text(path: KeyPath) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _message_lists(document: Document) -> list[EntryList]:
    """Return the lists of messages in `document`. Its value may be such a list, a record (an object with a list of
    ``messages``), or a list of records, as in a file with one conversation a line."""
    value, records = document.value, dict[KeyPath, Data]()
    # a single object that is neither a message nor a record: a log of one line
    is_other = len(document.lines) == 1 and isinstance(value[0], dict) and not {"role", "messages"} & value[0].keys()
    if _is_record(value):
        records = {("messages",): value}
    elif is_other or not isinstance(value, list):
        return []
    elif value and all(map(_is_record, value)):
        records = {(number, "messages"): record for number, record in enumerate(value)}
    else:  # a list of messages, unless it contains only texts, numbers and lists
        has_entries = not value or not all(isinstance(item, str | int | float | list) for item in value)
        return [EntryList({}, list(map(plain_entry, value)))] if has_entries else []
    return [EntryList(record, list(map(plain_entry, record["messages"])), path) for path, record in records.items()]


def _is_record(entry: object) -> bool:
    """Return True if `entry` is an object with a list of ``messages``, and not a message itself."""
    return isinstance(entry, dict) and isinstance(entry.get("messages"), list) and "role" not in entry


def _system(name: str, field_value: Any, leading: Sequence[Any]) -> str | list[Block] | None:
    """Return the system prompt of the file `name`: the value of its field ``system``, then the contents of its
    `leading` system messages. Return a single text as it is, several contents as blocks, and None without any."""
    if not isinstance(field_value, str | list | None):
        wanted = "expected 'system' to be text or a list of blocks"
        raise TranscriptError(f"{name}: {wanted}, found {type(field_value).__name__}")
    contents = [content for content in (field_value, *leading) if content]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _replaced(value: Any, path: KeyPath, entries: Sequence[Any]) -> Any:
    """Return a copy of the JSON `value` with the list `entries` at `path`; what is not on the path is not copied."""
    if not path:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], entries)
    return copy


def _anthropic(entries: Sequence[Any], places: Sequence[str]) -> Iterator[NumberedMessage]:
    """Check Anthropic messages and yield them. `places`: the place of each in its file, for errors."""
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        message = checked_message(entry, place)
        if message.get("type") == "message":  # a whole response: the API refuses its other fields in a request
            message = {"role": message["role"], "content": message["content"]}
        yield NumberedMessage(number, message)


MESSAGE_LISTS = (
    MessageList("openai", "OpenAI chat messages", chat_messages, recognises=is_chat, entries=to_openai),
    MessageList(
        "anthropic", "a list of messages, or an object with 'messages'", _anthropic, leading=lambda _messages: 0
    ),
)
"""Formats that can be read and written, in the order in which they are tried."""


EntryContent = Iterator[tuple[str, list[Block]]]
"""Content of an entry: pairs of a sender and blocks. The sender is ``user``, ``assistant``, ``system``, or ``host`` for
results and for text that the agent's program added. A call may lack its id. A result may have the ``name`` of its tool
instead of the id of its call."""
THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of parts that contain the model's thinking."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""Character that the API refuses in ids of calls: ``|`` in ``call_1|fc_2``."""


def paired(
    convert: Callable[[Data], EntryContent], entries: Sequence[Any], places: Sequence[str]
) -> Iterator[NumberedMessage]:
    """Convert `entries` to messages in which the result of each tool call follows it. `convert` reads one entry.
    `places`: the place of each entry in the file, for errors."""
    made = _Entries()
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        try:
            for role, content in convert(entry):
                for block in content:
                    made.take(number, role, block)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TranscriptError(f"{place}: not an entry of this form ({error!r:.60})") from None
    return (NumberedMessage(piece.lines[0], piece.message) for piece in made.with_results())


class _Entries(Pairing):
    """Builder of a conversation that gives each tool call a valid and unique id, which files may lack."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Block] = {}
        """Calls that have no result yet, by their ids in the file."""
        self._answers: dict[str, Any] = {}
        """Contents of the results read so far, by the ids of their calls in the file."""
        self._ids: set[str] = set()
        """Valid and unique ids that the calls got so far."""

    def take(self, number: int, role: str, block: Block) -> None:
        """Add a block of the entry `number`, sent by `role`. The user's blocks in one entry make one message. Text of
        the agent's program (``host``) becomes a user's message that is marked as the program's."""
        last = self.pieces[-1] if self.pieces else None
        if block["type"] == "tool_use":
            self._add_call(number, block)
        elif block["type"] == "tool_result":
            self._add_result(number, block)
        elif role == "assistant":
            self.add_assistant([block], number)
        elif role == "system" and (last is None or last.role == "system"):
            self.pieces.append(GrowingMessage("system", [block], [number]))
        elif role == "user" or block["type"] != "text":  # an image of the agent's program cannot be marked as such
            self.add_user([block], number, joins=last is not None and number in last.lines)
        elif block["text"].strip():
            self.take(number, "user", {"type": "text", "text": marked_as_host(block["text"])})

    def _add_call(self, number: int, block: Block) -> None:
        """Add a tool call under a valid and unique id, unless it repeats a call that still has no result."""
        key = str(block.get("id") or f"call_{len(self._ids) + 1}")
        if key not in self._open:
            new_id = _NOT_IN_IDS.sub("_", key)
            new_id = f"{new_id}_{len(self._ids) + 1}" if new_id in self._ids else new_id
            self._ids.add(new_id)
            self._open[key] = {**block, "id": new_id}
            self.add_assistant([self._open[key]], number)

    def _add_result(self, number: int, block: Block) -> None:
        """Attach a result to the unanswered call with its id, or, if it has no id, to the oldest unanswered call of its
        tool. Without such a call it becomes a text of the agent's program, unless it repeats an earlier result."""
        content, name = block.get("content") or "", block.get("name")
        oldest = (key for key, call in self._open.items() if name in (None, call["name"]))
        key = str(block.get("tool_use_id") or next(oldest, ""))
        call = self._open.pop(key, None)
        if call is not None:
            flag = {"is_error": True} if block.get("is_error") else {}
            self.add_user([{"type": "tool_result", "tool_use_id": call["id"], "content": content, **flag}], number)
            self._answers[key] = content
        elif self._answers.get(key) != content:  # it repeats no earlier result
            self.take(number, "host", {"type": "text", "text": result_text(block)})


def as_blocks(content: Any) -> list[Block]:
    """Return the content of an entry as Anthropic blocks. `content`: a text, a part (an object for a text, image or
    file in any library's form), or a list of these. Other values become JSON texts; thinking is left out."""
    content_parts = content if isinstance(content, list) else [content]
    parts = [single for part in content_parts for single in images(part)]
    made = [_block(part) for part in parts if part not in (None, "", {})]
    return [block for block in made if block and (block["type"] != "text" or block["text"].strip())]


def images(part: Any) -> list[Any]:
    """Split a part with several images, as OpenHands writes it, into one for each; return another part in a list."""
    urls = part.get("image_urls") if isinstance(part, dict) else None
    return [{"type": "image", "url": url} for url in urls] if isinstance(urls, list) else [part]


def _block(part: Any) -> Block | None:
    """Return `part` of a message's content, in any library's form, as an Anthropic block; None for thinking."""
    if not isinstance(part, dict):
        return {"type": "text", "text": part if isinstance(part, str) else to_json(part)}
    kind = str(part.get("type") or part.get("kind")).replace("-", "_")
    if kind in THINKING or part.get("thought") is True:  # Gemini's form of thinking
        return None
    if kind in ("tool_use", "tool_result") or isinstance(part.get("source"), dict):  # it is an Anthropic block
        return part
    if kind == "refusal" or isinstance(part.get("image_url"), dict) or isinstance(part.get("file"), dict):  # OpenAI's
        return block_of_part(part)
    text = part.get("content") if kind == "text_content" else part.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) else _medium(part, kind)


def _medium(part: Data, kind: str) -> Block:
    """Return `part`, a piece of content of the type `kind`, as an image block if it is an image. Other data becomes a
    text with only its media type, ``[audio/wav]``; a part of an unknown form becomes its JSON as text."""
    holder = part.get("inlineData") or part.get("inline_data") or part
    data, url = holder.get("data") or holder.get("base64"), part.get("image_url") or part.get("url")
    mime = str(holder.get("media_type") or holder.get("mime_type") or holder.get("mimeType") or "")
    if isinstance(data, str) and mime.startswith("image/"):
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if isinstance(url, str) and "image" in kind:
        return block_of_part({"type": "image_url", "image_url": {"url": url}})
    return {"type": "text", "text": f"[{mime}]" if data and mime else to_json(part)}


def call_block(key: Any, name: Any, arguments: Any) -> Block:
    """Return a ``tool_use`` block. `key`: id of the call, or None; `arguments`: an object, or its JSON text."""
    value = arguments_as_object(arguments) if isinstance(arguments, str) else arguments or {}
    return {"type": "tool_use", "id": key, "name": str(name), "input": value}


def result_block(key: Any, name: Any, content: Any, failed: Any = False) -> Block:
    """Return the ``tool_result`` block for the call with the id `key`. If `key` is None, it answers the oldest call
    without a result of the tool `name`, or of any tool if `name` is None too. `content`: see `as_blocks`."""
    inner = content if isinstance(content, str) else as_blocks(content)
    return {"type": "tool_result", "tool_use_id": key, "name": name, "content": inner, "is_error": bool(failed)}


def objects_in(value: Any) -> list[Data]:
    """Return the objects in `value` if it is a list; `value` alone if it is an object; else an empty list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]


def list_finder(is_entry: Callable[[Data], bool], *keys: str) -> Callable[[Any], list[EntryList]]:
    """Return a function that finds the conversations in the JSON value of a file: each list under one of `keys` with
    an object for which `is_entry` returns True. Without such a list, the value itself is tried as a list."""

    def conversations(value: Any) -> list[EntryList]:
        """Return the conversations in the JSON `value`; an empty list if it has another form."""
        places = [(holder, key) for holder in objects_in(value) for key in keys]
        holders = [(holder, key) for holder, key in places if any(map(is_entry, objects_in(holder.get(key))))]
        if not holders and isinstance(value, list) and any(map(is_entry, objects_in(value))):
            return [EntryList({}, value)]
        return [EntryList(with_system_blocks(holder), holder[key]) for holder, key in holders]

    return conversations


def with_system_blocks(holder: Data) -> Data:
    """Return `holder`, the object around a list of entries, with the system prompt in it as blocks under ``system``,
    whichever key it has: ``{"instructions": "Be brief."}``."""
    keys = ("system", "instructions", "systemInstruction", "system_instruction")
    system = next((holder[key] for key in keys if holder.get(key)), None)
    parts = system.get("parts", system) if isinstance(system, dict) else system
    return {**holder, "system": as_blocks(parts) or None}


def read_only(
    name: str, title: str, conversations: Callable[[Any], list[EntryList]], convert: Callable[[Data], EntryContent]
) -> MessageList:
    """Return a file format that can only be read. `convert` returns the content of one entry; the other arguments are
    fields of `MessageList`."""
    return MessageList(name, title, partial(paired, convert), conversations=conversations)
