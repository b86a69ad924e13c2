"""Lists of messages: as JSON, as JSONL or as Python objects, alone or in an object. Each form of them is one row here.

Checks every message and names the place of what is none. Changes no message that is plain already; what stands
around the messages in a file (system, tools, other fields and conversations) is kept when it is written back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from applier.adapters.transcripts.document import Document, json_text
from applier.adapters.transcripts.openai_chat import chat_messages, is_chat, leading_system, plain_entry, to_openai
from applier.adapters.transcripts.transcript import Transcript, guess_task, pairing_warnings
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, given_message

__all__ = ["MESSAGE_LISTS", "MessageList"]

Data = dict[str, Any]
Where = tuple[str | int, ...]


@dataclass(frozen=True)
class MessageList:
    """A form of messages that are stored as a list."""

    name: str
    title: str
    recognises: Callable[[Sequence[Any], Data], bool | None]
    """Whether entries are of this form, by what is in them and in the object around them; None: nothing tells."""
    leading: Callable[[Sequence[Any]], int]
    """How many entries in front are the system's."""
    messages: Callable[[Sequence[Any], Sequence[str]], Iterator[tuple[int, Message]]]
    """Entries, each with its place, as Anthropic messages, each with the number of its first entry."""
    entries: Callable[[Sequence[Message]], Sequence[Any]]
    """The way back."""

    def detects(self, document: Document) -> bool:
        """Whether a list in `document` is of this form, by the first of them that tells."""
        answers = (self.recognises(held.entries, held.container) for held in _conversations(document))
        return next((answer for answer in answers if answer is not None), False)

    def read(self, document: Document, part: int | None) -> Transcript:
        """The first conversation of a document, or the `part`-th."""
        held = _conversations(document)
        if document.torn:
            raise document.torn
        if not -len(held) <= (part or 0) < len(held):
            raise TranscriptError(f"{document.name}: no part {part}; it holds {len(held)} (0 to {len(held) - 1})")
        chosen, several = held[part or 0], part is None and len(held) > 1
        first = f"{document.name}: holds {len(held)} conversations; this is the first (part=0 to {len(held) - 1})"
        places = [chosen.place_of(number) for number in range(len(chosen.entries))]
        lead, task, tools = self.leading(chosen.entries), chosen.container.get("task"), chosen.container.get("tools")
        numbered = [pair for pair in self.messages(chosen.entries, places) if pair[0] >= lead]
        messages = [message for _, message in numbered]
        places = [places[number] for number, _ in numbered]
        return Transcript(
            messages=messages,
            system=_system(chosen, lead),
            tools=tools if isinstance(tools, list) else None,
            task=task if isinstance(task, str) and task.strip() else guess_task(messages),
            format=f"{self.name}_jsonl" if document.lines else self.name,
            warnings=(
                *((first,) if several else ()),
                *_odd_roles(messages, places),
                *pairing_warnings(messages, places),
            ),
            source={"path": document.path, "conversation": chosen},
        )

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:  # noqa: ARG002
        """The file that `like` was read from, with `messages` in place of its own."""
        held: _Conversation = like.source["conversation"]
        entries = [*held.entries[: self.leading(held.entries)], *self.entries(messages)]
        value = _replaced(held.document.value, held.where, entries)
        return json_text(value) if not held.document.lines else "".join(map(json_text, value))


@dataclass(frozen=True)
class _Conversation:
    """One list of messages in a document, and where it stands."""

    document: Document
    where: Where
    container: Data
    """The object that holds the list; an empty one if none does."""
    entries: list[Any]

    def place_of(self, number: int) -> str:
        """One of its messages, for people: ``chat.json, [1].messages[3]``, ``log.jsonl, line 7``."""
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


def _system(held: _Conversation, lead: int) -> str | list[Block] | None:
    """The first `lead` entries, or what stands beside the list."""
    contents = [entry["content"] for entry in held.entries[:lead]] or [held.container.get("system")]
    if len(contents) == 1 and isinstance(contents[0], str | list | None):
        return contents[0]
    if not lead:
        wanted = "expected 'system' to be text or a list of blocks"
        raise TranscriptError(f"{held.document.name}: {wanted}, found {type(contents[0]).__name__}")
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _odd_roles(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    for message, place in zip(messages, places, strict=True):
        if message["role"] not in ("user", "assistant"):
            yield f"{place}: a {message['role']} message inside the conversation stays where it is"


def _replaced(value: Any, where: Where, entries: Sequence[Any]) -> Any:
    """A copy of `value` with `entries` at `where`; nothing else is copied."""
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
        message = given_message(entry, place)
        if message.get("type") == "message":  # a whole response; the API takes back only these two
            message = {"role": message["role"], "content": message["content"]}
        yield number, message


MESSAGE_LISTS = (
    MessageList("openai", "OpenAI chat messages", _is_openai, leading_system, chat_messages, to_openai),
    MessageList(
        "anthropic",
        "a list of messages, or an object with 'messages'",
        recognises=lambda _entries, _container: True,
        leading=lambda _entries: 0,
        messages=_anthropic,
        entries=list,
    ),
)
"""The forms that are read; the first that recognises a list reads it."""
