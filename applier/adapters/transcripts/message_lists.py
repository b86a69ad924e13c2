"""Lists of messages: as JSON, as JSONL or as Python objects, alone or in an object. Each form is one row here.

Checks every message and names the place of a bad one; everything around the messages in a file is written back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from applier.adapters.transcripts.document import Document, json_text
from applier.adapters.transcripts.openai_chat import chat_messages, is_chat, leading_system, plain_entry, to_openai
from applier.adapters.transcripts.transcript import Transcript, guess_task, pairing_warnings
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, checked_message

__all__ = ["MESSAGE_LISTS", "Conversations", "Data", "MessageList"]

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
