"""Lists of messages, or of the entries of another tool's log: as JSON, JSONL or Python objects, alone or in an object.

An entry is one item of such a list. Lists of OpenAI and Anthropic messages are read and written: every message is
checked, an error names its place, and everything around the list is written back. Lists of other entries are only read.
Each form has a function that returns the roles and blocks of one entry; pairing, ids and order are the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
Where = tuple[str | int, ...]


class EntryList(NamedTuple):
    """A list of entries in a file: one conversation."""

    container: Data
    """Object that contains the list; empty if there is none."""
    entries: list[Any]


@dataclass(frozen=True)
class MessageList:
    """A form of messages that are stored as a list."""

    name: str
    title: str
    messages: Callable[[Sequence[Any], Sequence[str]], Iterator[NumberedMessage]]
    """Function that converts entries to Anthropic messages. Its second argument is the place of each entry in the file,
    for errors."""
    conversations: Callable[[Any], list[EntryList]] | None = None
    """Function that finds the lists of a read-only form in a file's value; None for a form that is also written."""
    recognises: Callable[[Sequence[Any], Data], bool | None] = lambda _entries, _container: True
    """Function that returns True if entries, inside this container, are of this form; None if it cannot decide."""
    leading: Callable[[Sequence[Any]], int] = leading_system
    """Function that returns the number of system messages at the front."""
    entries: Callable[[Sequence[Message]], Sequence[Any]] = list
    """Function that converts messages back to entries."""

    def detects(self, document: Document) -> bool:
        """Return True if a list in `document` is of this form; the first list that shows its form decides."""
        answers = (self.recognises(found.entries, found.container) for found in self._found(document))
        return next((answer for answer in answers if answer is not None), False)

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the conversation number `part` of `document`, counted from 0; None for the first, with a warning if
        there are others.

        Raises:
            TranscriptError: There is no such conversation, a message is not valid, or the file is damaged and of a form
                that is written back, which would lose the damaged lines.
        """
        found = self._found(document)
        if document.damage and self.conversations is None:
            raise document.damage[0]
        if not -len(found) <= (part or 0) < len(found):
            raise TranscriptError(f"{document.name}: no part {part}; it holds {len(found)} (0 to {len(found) - 1})")
        chosen = found[part or 0]
        entry_places = [chosen.place_of(number) for number in range(len(chosen.entries))]
        numbered = list(self.messages(chosen.entries, entry_places))
        lead = self.leading([one.message for one in numbered])
        leading = [one.message["content"] for one in numbered[:lead]]
        messages = [one.message for one in numbered[lead:]]
        places = [entry_places[one.first_entry] for one in numbered[lead:]]
        warnings = [*document.damage_notes, *_odd_roles(messages, places), *pairing_warnings(messages, places)]
        if part is None and len(found) > 1:
            which = f"this is the first (part=0 to {len(found) - 1})"
            warnings.insert(0, f"{document.name}: holds {len(found)} conversations; {which}")
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
        """Return the file of `like` with `messages` in place of its own. For a read-only form, return an object with
        the Anthropic `messages`, the system prompt and the tools."""
        if self.conversations:
            around = {"system": like.system, "tools": like.tools}
            return json_text({**{k: v for k, v in around.items() if v}, "messages": list(messages)}, indent=2)
        old: _Conversation = like.source["conversation"]
        entries = [*old.entries[: self.leading(old.entries)], *self.entries(messages)]
        value = _replaced(old.document.value, old.where, entries)
        return json_text(value, indent=2) if not old.document.lines else "".join(map(json_text, value))

    def _found(self, document: Document) -> list[_Conversation]:
        """Return the lists of entries in `document` that may be of this form."""
        if self.conversations is None:
            return _conversations(document)
        whole = replace(document, lines=())
        try:
            return [
                _Conversation(whole, (), found.container, found.entries) for found in self.conversations(document.value)
            ]
        except (AttributeError, KeyError, TypeError, ValueError):  # only looks like one of its files
            return []


@dataclass(frozen=True)
class _Conversation:
    """List of messages in a document, with its place."""

    document: Document
    where: Where
    """Keys and indexes that lead from the document's value to the list; empty if the value is the list."""
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
    """Return the lists of messages in `document`: its only list, that of its only record, or that of each record. A
    record is an object with a list of ``messages``."""
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


def _system(name: str, own: Any, leading: Sequence[Any]) -> str | list[Block] | None:
    """Return the system prompt: the container's field `own`, then the contents of the `leading` system messages. It is
    a text if there is only one and that is a text; None if there is none."""
    if not isinstance(own, str | list | None):
        wanted = "expected 'system' to be text or a list of blocks"
        raise TranscriptError(f"{name}: {wanted}, found {type(own).__name__}")
    contents = [content for content in (own, *leading) if content]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _odd_roles(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each message whose role is neither the user's nor the assistant's."""
    for message, place in zip(messages, places, strict=True):
        if message["role"] not in ("user", "assistant"):
            yield f"{place}: a {message['role']} message inside the conversation stays where it is"


def _replaced(value: Any, where: Where, entries: Sequence[Any]) -> Any:
    """Return `value` with `entries` in place of what is at `where`. `value` itself does not change; only the containers
    on the way are copied."""
    if not where:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[where[0]] = _replaced(value[where[0]], where[1:], entries)
    return copy


def _is_openai(entries: Sequence[Any], container: Data) -> bool | None:
    """Return True for chat messages, None if undecided. A list that begins with a system message is chat unless another
    sign is against it, as Anthropic's lists have no such message in front."""
    chat = is_chat(entries)
    return True if chat is None and "system" not in container and leading_system(entries) else chat


def _anthropic(entries: Sequence[Any], places: Sequence[str]) -> Iterator[NumberedMessage]:
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        message = checked_message(entry, place)
        if message.get("type") == "message":  # a whole response: the API refuses its other fields in a request
            message = {"role": message["role"], "content": message["content"]}
        yield NumberedMessage(number, message)


MESSAGE_LISTS = (
    MessageList("openai", "OpenAI chat messages", chat_messages, recognises=_is_openai, entries=to_openai),
    MessageList(
        "anthropic", "a list of messages, or an object with 'messages'", _anthropic, leading=lambda _messages: 0
    ),
)
"""Forms that are read and written, in the order in which they are tried."""


Spoken = Iterator[tuple[str, list[Block]]]
"""Content of an entry: pairs of a role and blocks. The role is ``user``, ``assistant``, ``system``, or ``host`` for
text that the agent's program added and for results. A call may lack its id. A result may have the ``name`` of its tool
instead of the id of its call."""
THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""Character that the API refuses in ids: ``|`` in ``call_1|fc_2``."""


def paired(
    convert: Callable[[Data], Spoken], entries: Sequence[Any], places: Sequence[str]
) -> Iterator[NumberedMessage]:
    """Return `entries` as messages in which calls and results are paired. `convert` reads one entry. `places`: the
    place of each entry in the file, for errors."""
    made = _Entries()
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        try:
            for role, content in convert(entry):
                for block in content:
                    made.take(number, role, block)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TranscriptError(f"{place}: not an entry of this form ({error!r:.60})") from None
    return (NumberedMessage(piece.lines[0], piece.message) for piece in made.answered())


class _Entries(Pairing):
    """Conversation under construction in which each call gets its own id."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Block] = {}
        """Calls without a result, by their ids in the file."""
        self._answers: dict[str, Any] = {}
        """Contents of results, by the ids of their calls in the file."""
        self._ids: set[str] = set()
        """New ids of all calls."""

    def take(self, number: int, role: str, block: Block) -> None:
        """Add a block of the entry `number`. The user's blocks in one entry make one message; text of the host becomes
        a marked text of the user."""
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
        elif block["text"].strip():
            self.take(number, "user", {"type": "text", "text": marked_as_host(block["text"])})

    def _call(self, number: int, block: Block) -> None:
        """Add a call under an id that is valid and unique. Some files repeat a call before its result; the repetition
        is ignored."""
        key = str(block.get("id") or f"call_{len(self._ids) + 1}")
        if key not in self._open:
            new_id = _NOT_IN_IDS.sub("_", key)
            new_id = f"{new_id}_{len(self._ids) + 1}" if new_id in self._ids else new_id
            self._ids.add(new_id)
            self._open[key] = {**block, "id": new_id}
            self.assistant([self._open[key]], number)

    def _result(self, number: int, block: Block) -> None:
        """Add a result to the open call that has its id. A result without an id belongs to the oldest open call of its
        tool. A result without an open call becomes text of the host, unless it repeats an earlier one."""
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
    """Return the content of an entry as blocks: a text, a part or a list of these. A part is an object for a text, an
    image or a file in any library's form; other values become JSON texts. Thinking and blank texts are left out."""
    parts = [one for part in (content if isinstance(content, list) else [content]) for one in images(part)]
    made = [_block(part) for part in parts if part not in (None, "", {})]
    return [block for block in made if block and (block["type"] != "text" or block["text"].strip())]


def images(part: Any) -> list[Any]:
    """Return a part for each image in `part`, as OpenHands puts several in one part; any other part alone in a list."""
    several = part.get("image_urls") if isinstance(part, dict) else None
    return [{"type": "image", "url": url} for url in several] if isinstance(several, list) else [part]


def _block(part: Any) -> Block | None:
    """Return `part` as a block; None for thinking."""
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
    """Return `part`, which has the type `kind`, as an image block if it is an image. Another medium becomes a text with
    its media type, and a part of an unknown form its JSON."""
    holder = part.get("inlineData") or part.get("inline_data") or part
    data, url = holder.get("data") or holder.get("base64"), part.get("image_url") or part.get("url")
    mime = str(holder.get("media_type") or holder.get("mime_type") or holder.get("mimeType") or "")
    if isinstance(data, str) and mime.startswith("image/"):
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if isinstance(url, str) and "image" in kind:
        return block_of_part({"type": "image_url", "image_url": {"url": url}})
    return {"type": "text", "text": f"[{mime}]" if data and mime else to_json(part)}


def called(key: Any, name: Any, arguments: Any) -> Block:
    """Return the block for the call `key` of the tool `name`. `key` may be None; `arguments` is an object, or its JSON
    text."""
    value = arguments_as_object(arguments) if isinstance(arguments, str) else arguments or {}
    return {"type": "tool_use", "id": key, "name": str(name), "input": value}


def result(key: Any, name: Any, content: Any, failed: Any = False) -> Block:
    """Return the block for the result of the call `key`; if `key` is None, of the oldest open call of the tool `name`,
    or of any tool if `name` is None too. `content` may have any form; `failed` may be any value."""
    inner = content if isinstance(content, str) else as_blocks(content)
    return {"type": "tool_result", "tool_use_id": key, "name": name, "content": inner, "is_error": bool(failed)}


def dicts(value: Any) -> list[Data]:
    """Return the objects in `value` if it is a list; `value` alone if it is an object; else an empty list."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def lists(is_entry: Callable[[Data], bool], *keys: str) -> Callable[[Any], list[EntryList]]:
    """Return a function that finds lists of entries in a file's value. A list counts if `is_entry` is True for one of
    its objects. The function looks under `keys` of each object in the value; the value itself is the last resort."""

    def conversations(value: Any) -> list[EntryList]:
        holders = [(one, key) for one in dicts(value) for key in keys if any(map(is_entry, dicts(one.get(key))))]
        if not holders and isinstance(value, list) and any(map(is_entry, dicts(value))):
            return [EntryList({}, value)]
        return [EntryList(beside(one), one[key]) for one, key in holders]

    return conversations


def beside(holder: Data) -> Data:
    """Return the object around a list of entries, with its system prompt as blocks under ``system``."""
    keys = ("system", "instructions", "systemInstruction", "system_instruction")
    system = next((holder[key] for key in keys if holder.get(key)), None)
    parts = system.get("parts", system) if isinstance(system, dict) else system
    return {**holder, "system": as_blocks(parts) or None}


def read_only(
    name: str, title: str, conversations: Callable[[Any], list[EntryList]], convert: Callable[[Data], Spoken]
) -> MessageList:
    """Return a form that can be read but not written. `name` and `title` are those of `MessageList`; `conversations`
    finds the lists of entries in a file's value; `convert` reads one entry."""
    return MessageList(name, title, partial(paired, convert), conversations=conversations)
