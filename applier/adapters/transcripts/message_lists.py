"""Lists of messages, Anthropic's or OpenAI's: as JSON, as JSONL or as Python objects, alone or in an object.

Checks every message and names the place of what is none. Changes no message that is plain already; what stands
around the messages in a file (system, tools, other fields and conversations) is kept when it is written back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from applier.adapters.transcripts.document import Document, json_text
from applier.adapters.transcripts.openai_chat import chat_messages, is_chat, leading_system, to_openai
from applier.adapters.transcripts.transcript import Format, Transcript, guess_task, pairing_warnings, seconds
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, given_message

__all__ = ["ANTHROPIC", "OPENAI"]

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class _Place:
    """Where in a document one conversation stands."""

    document: Document
    where: Where

    @property
    def container(self) -> dict[str, Any]:
        """The object that holds the list; an empty one if none does."""
        holder = self._at(self.where[:-1]) if self.where else None
        return holder if isinstance(holder, dict) else {}

    @property
    def entries(self) -> list[Any]:
        """Its messages as they stand there."""
        return [_dumped(entry) for entry in self._at(self.where)]

    def of_entry(self, number: int) -> str:
        """One of its messages, for people: ``chat.json, [1].messages[3]``, ``log.jsonl, line 7``."""
        name, where = self.document.name, (*self.where, number)
        if _is_jsonl(self.document):
            return f"{name}, line {self.document.log_lines[int(where[0])][0]}{_steps(where[1:])}"
        return f"{name}, {_steps(where if len(where) > 1 else ('messages', *where)).lstrip('.')}"

    def _at(self, where: Where) -> Any:
        value = _value(self.document)
        for step in where:
            value = value[step]
        return value


class _AnthropicMessages:
    name = "anthropic"
    title = "a list of messages, or an object with 'messages'"

    def detects(self, document: Document) -> bool:
        return bool(_places(document))

    def read(self, document: Document, part: int | None) -> Transcript:
        place, entries = _chosen(document, part)
        messages = [_anthropic_message(entry, place.of_entry(i)) for i, entry in enumerate(entries)]
        system = place.container.get("system")
        if system is not None and not isinstance(system, str | list):
            wanted = "expected 'system' to be text or a list of blocks"
            raise TranscriptError(f"{document.name}: {wanted}, found {type(system).__name__}")
        return _transcript(self.name, place, part, messages, range(len(entries)), system)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:  # noqa: ARG002
        return _written(messages, like)


class _OpenAIChat:
    """What the system says in front is no part of the conversation."""

    name = "openai"
    title = "OpenAI chat messages"

    def detects(self, document: Document) -> bool:
        conversations = [(place.entries, place.container) for place in _places(document)]
        for entries, _ in conversations:
            chat = is_chat(entries)
            if chat is not None:
                return chat
        return any(leading_system(entries) and "system" not in container for entries, container in conversations)

    def read(self, document: Document, part: int | None) -> Transcript:
        place, entries = _chosen(document, part)
        messages = chat_messages(entries, [place.of_entry(i) for i in range(len(entries))])
        lead = leading_system(entries)
        return _transcript(self.name, place, part, messages[lead:], _starts(entries, lead), _system(entries[:lead]))

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:  # noqa: ARG002
        entries = like.source["place"].entries
        return _written([*entries[: leading_system(entries)], *to_openai(messages)], like)


ANTHROPIC: Format = _AnthropicMessages()
"""Messages as the Messages API takes them."""
OPENAI: Format = _OpenAIChat()
"""Messages of OpenAI's chat completions."""


def _is_jsonl(document: Document) -> bool:
    """True if each line is an entry; one message alone is such a line."""
    return document.lines is not None or any("role" in value for _, value in document.log_lines)


def _value(document: Document) -> Any:
    """The value in which lists of messages stand."""
    return [value for _, value in document.log_lines] if _is_jsonl(document) else document.value


def _places(document: Document) -> list[_Place]:
    """Where lists of messages stand in `document`."""
    value = _value(document)
    if _is_record(value):
        return [_Place(document, ("messages",))]
    if isinstance(value, list) and value and all(map(_is_record, value)):
        return [_Place(document, (i, "messages")) for i in range(len(value))]
    if isinstance(value, list) and (not value or not all(isinstance(v, str | int | float | list) for v in value)):
        return [_Place(document, ())]
    return []


def _is_record(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("messages"), list) and "role" not in entry


def _chosen(document: Document, part: int | None) -> tuple[_Place, list[Any]]:
    """The conversation to read, and its messages."""
    places = _places(document)
    if document.torn:
        raise document.torn
    if not -len(places) <= (part or 0) < len(places):
        raise TranscriptError(f"{document.name}: no part {part}; it holds {len(places)} (0 to {len(places) - 1})")
    place = places[part or 0]
    return place, place.entries


def _transcript(
    name: str,
    place: _Place,
    part: int | None,
    messages: list[Message],
    starts: Sequence[int],
    system: str | list[Block] | None,
) -> Transcript:
    """`starts`: the entry that each of `messages` begins with."""
    document, container, entries = place.document, place.container, place.entries
    task, tools = container.get("task"), container.get("tools")
    places = [place.of_entry(i) for i in starts]
    count, several = len(_places(document)), []
    if part is None and count > 1:
        several = [f"{document.name}: holds {count} conversations; this is the first (part=0 to {count - 1})"]
    return Transcript(
        messages=messages,
        system=system,
        tools=tools if isinstance(tools, list) else None,
        task=task if isinstance(task, str) and task.strip() else guess_task(messages),
        format=f"{name}_jsonl" if _is_jsonl(document) else name,
        warnings=(*several, *_odd_roles(messages, places), *pairing_warnings(messages, places)),
        timestamps=tuple(seconds(entries[i].get("timestamp")) for i in starts),
        source={"path": document.path, "place": place},
    )


def _odd_roles(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    for message, place in zip(messages, places, strict=True):
        if message["role"] not in ("user", "assistant"):
            yield f"{place}: a {message['role']} message inside the conversation stays where it is"


def _anthropic_message(entry: Any, place: str) -> Message:
    message = given_message(entry, place)
    if message.get("type") == "message":  # a whole response; the API takes back only these two
        return {"role": message["role"], "content": message["content"]}
    return message


def _starts(entries: Sequence[dict[str, Any]], lead: int) -> list[int]:
    """The entry each converted message begins with: tool messages in a row are one message."""
    tool = [entry["role"] == "tool" for entry in entries]
    return [i for i in range(lead, len(entries)) if not (tool[i] and i and tool[i - 1])]


def _system(lead: Sequence[dict[str, Any]]) -> str | list[Block] | None:
    contents = [entry["content"] for entry in lead]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _dumped(entry: Any) -> Any:
    dump = getattr(entry, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else entry


def _steps(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)


def _written(entries: Sequence[Any], like: Transcript) -> str:
    """The file that `like` was read from, with `entries` in place of its messages."""
    place: _Place = like.source["place"]
    document = place.document
    value = _replaced(_value(document), place.where, entries)
    if _is_jsonl(document):
        return "".join(json_text(entry, ascii_only=document.ascii) for entry in value)
    return json_text(value, document.indent, ascii_only=document.ascii)


def _replaced(value: Any, where: Sequence[str | int], entries: Sequence[Any]) -> Any:
    """A copy of `value` with `entries` at `where`; nothing else is copied."""
    if not where:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[where[0]] = _replaced(value[where[0]], where[1:], entries)
    return copy
