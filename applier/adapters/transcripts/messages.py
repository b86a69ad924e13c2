"""Lists of messages, Anthropic's or OpenAI's, as a transcript: from JSON, from JSONL or from Python objects.

Checks every message and names the place of what is none. Changes no message that is plain already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from applier.adapters.transcripts.chat_shape import check_chat_message, is_chat
from applier.adapters.transcripts.openai_chat import from_openai
from applier.adapters.transcripts.task import guess_task
from applier.adapters.transcripts.transcript import Format, Transcript, pairing_warnings, seconds
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, plain_message

__all__ = ["MessageFile", "read_messages"]

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class MessageFile:
    """A parsed value in which there are messages, with what errors and writing back need."""

    name: str
    value: Any
    line_numbers: tuple[int, ...] | None
    """JSONL: the line of each entry of `value`."""
    source: dict[str, Any]
    """What becomes the transcript's `source`."""

    def place(self, where: Where) -> str:
        """`where` in `value`, for people: ``chat.json, [1].messages[3]``, ``log.jsonl, line 7``."""
        if self.line_numbers and where:
            return f"{self.name}, line {self.line_numbers[int(where[0])]}{_steps(where[1:])}"
        return f"{self.name}, {_steps(where if len(where) > 1 else ('messages', *where)).lstrip('.')}"


def read_messages(file: MessageFile, part: int | None) -> Transcript:
    """The conversation in `file`; of several the `part`-th (the first if none is named).

    Raises:
        TranscriptError: there is none, or an entry is not a message; the text names the place.
    """
    places = list(_conversations(file.value))
    if not places:
        wanted = "expected a list of messages, or an object with 'messages'"
        raise TranscriptError(f"{file.name}: {wanted}, found {_kind(file.value)}")
    if not -len(places) <= (part or 0) < len(places):
        raise TranscriptError(f"{file.name}: no part {part}; it holds {len(places)} (0 to {len(places) - 1})")
    several = (f"{file.name}: holds {len(places)} conversations; this is the first (part=0 to {len(places) - 1})",)
    return _transcript(file, places[part or 0], several if part is None and len(places) > 1 else ())


def _conversations(value: Any) -> Iterator[Where]:
    """Where in `value` a list of messages stands."""
    if _is_record(value):
        yield ("messages",)
    elif isinstance(value, list) and value and all(map(_is_record, value)):
        yield from ((i, "messages") for i in range(len(value)))
    elif isinstance(value, list) and (not value or not all(isinstance(v, str | int | float | list) for v in value)):
        yield ()


def _is_record(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("messages"), list) and "role" not in entry


def _transcript(file: MessageFile, where: Where, warnings: Sequence[str]) -> Transcript:
    container, entries = _at(file.value, where)
    entries = [_dumped(entry) for entry in entries]
    places = [file.place((*where, i)) for i in range(len(entries))]
    chat = _is_chat(entries, container)
    lifted = _leading_system(entries) if chat else 0
    kept = _conversation_starts(entries, lifted) if chat else range(len(entries))
    messages = _chat(entries, places)[lifted:] if chat else _anthropic(entries, places)
    kept_places = [places[i] for i in kept]
    task = container.get("task")
    return Transcript(
        messages=messages,
        system=_system(entries[:lifted]) if chat else _own_system(container, file.name),
        tools=container["tools"] if isinstance(container.get("tools"), list) else None,
        task=task if isinstance(task, str) and task.strip() else guess_task(messages),
        format=_format(chat, jsonl=file.line_numbers is not None),
        warnings=(*warnings, *_odd_roles(messages, kept_places), *pairing_warnings(messages, kept_places)),
        timestamps=tuple(seconds(entries[i].get("timestamp")) for i in kept),
        source={**file.source, "where": where, "lifted": entries[:lifted]},
    )


def _is_chat(entries: Sequence[Any], container: dict[str, Any]) -> bool:
    chat = is_chat(entries)
    return _leading_system(entries) > 0 and "system" not in container if chat is None else chat


def _anthropic(entries: Sequence[Any], places: Sequence[str]) -> list[Message]:
    return [_anthropic_message(entry, place) for entry, place in zip(entries, places, strict=True)]


def _anthropic_message(entry: Any, place: str) -> Message:
    message = plain_message(entry, place)
    if message["role"] not in ("user", "assistant", "system"):
        raise TranscriptError(f'{place}: expected a role "user" or "assistant", found {message["role"]!r}')
    if message.get("type") == "message":  # a whole response; the API takes back only these two
        return {"role": message["role"], "content": message["content"]}
    return message


def _chat(entries: Sequence[Any], places: Sequence[str]) -> list[Message]:
    for entry, place in zip(entries, places, strict=True):
        if not isinstance(entry, dict):
            raise TranscriptError(f"{place}: expected a message as a dict, found {type(entry).__name__}")
        check_chat_message(entry, place)
    return from_openai(entries)


def _leading_system(entries: Sequence[Any]) -> int:
    roles = [entry.get("role") if isinstance(entry, dict) else None for entry in entries]
    return next((i for i, role in enumerate(roles) if role not in ("system", "developer")), len(roles))


def _conversation_starts(entries: Sequence[dict[str, Any]], lifted: int) -> list[int]:
    """The entry each converted message begins with: tool messages in a row are one message."""
    tool = [entry["role"] == "tool" if isinstance(entry, dict) else False for entry in entries]
    return [i for i in range(lifted, len(entries)) if not (tool[i] and i and tool[i - 1])]


def _system(lifted: Sequence[dict[str, Any]]) -> str | list[Block] | None:
    contents = [entry["content"] for entry in lifted]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    texts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
    return [block for blocks in texts for block in blocks] or None


def _own_system(container: dict[str, Any], name: str) -> str | list[Block] | None:
    system = container.get("system")
    if system is None or isinstance(system, str | list):
        return system
    raise TranscriptError(f"{name}: expected 'system' to be text or a list of blocks, found {type(system).__name__}")


def _odd_roles(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    for message, place in zip(messages, places, strict=True):
        if message["role"] not in ("user", "assistant"):
            yield f"{place}: a {message['role']} message inside the conversation stays where it is"


def _at(value: Any, where: Where) -> tuple[dict[str, Any], list[Any]]:
    """The object that holds the list of messages, and the list."""
    container: Any = {}
    for step in where:
        container, value = value, value[step]
    return (container if isinstance(container, dict) else {}), value


def _dumped(entry: Any) -> Any:
    dump = getattr(entry, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else entry


def _format(chat: bool, *, jsonl: bool) -> Format:
    if chat:
        return "openai_jsonl" if jsonl else "openai"
    return "anthropic_jsonl" if jsonl else "anthropic"


def _steps(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)


def _kind(value: object) -> str:
    if isinstance(value, dict) and "messages" in value:
        return f"'messages' of type {type(value['messages']).__name__}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:6])) or 'nothing in it'}"
    return f"{type(value).__name__} {str(value)[:40]!r}"
