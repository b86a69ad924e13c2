"""OpenAI chat messages to Anthropic messages and back: ``to_openai(from_openai(x)) == x``.

Tool messages that follow each other are one user message of results. System, developer and (older) function
messages stay as they are; part types without an Anthropic block pass through untouched. Of Anthropic content only
thinking has no way over. What a conversion cannot say in the other format's words, the *remainder*, is kept beside
it, so that it can be undone exactly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, blocks

__all__ = [
    "arguments_as_object",
    "block_of_part",
    "chat_messages",
    "from_openai",
    "is_chat",
    "leading_system",
    "strip_openai",
    "to_openai",
]

ChatMessage = dict[str, Any]
Data = dict[str, Any]


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""``function`` is the older form of a tool's answer: it passes through untouched."""
_ONLY_CHAT = frozenset({"tool", "developer", "function", "image_url", "input_audio", "refusal", "file"})
"""Roles and types of parts that Anthropic's messages do not have."""
_ONLY_ANTHROPIC = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use"}
)
REMAINDER = "openai"
"""The key that holds what a conversion cannot say in Anthropic's words, on a message or a block. The API refuses it."""


@dataclass(frozen=True)
class _Pair:
    """A conversion and its way back; what the way back lacks of the original stays beside what was made of it."""

    made: Callable[[Data], Data]
    back: Callable[[Data], Data | None]
    """None: OpenAI's form has no place for it (thinking)."""

    def over(self, original: Data) -> Data:
        """`original` in Anthropic's form; the same object if nothing differs."""
        converted = self.made(original)
        plain = self.back(converted)
        if converted == original == plain:
            return original
        rest = _difference(original, plain or {})
        return {**converted, REMAINDER: rest} if rest else converted

    def home(self, converted: Data) -> Data | None:
        """What `converted` was made of; its plain way back if it was made of nothing or changed since."""
        rest = converted.get(REMAINDER)
        if not isinstance(rest, dict):
            return self.back(converted)
        plain = self.back({key: value for key, value in converted.items() if key != REMAINDER})
        original = _restored(plain or {}, rest)
        return original if self.over(original) == converted else plain


def _difference(full: Data, plain: Data) -> Data:
    """How to get from `plain` to `full`: keys to set, keys to drop, and the same for dicts inside."""
    inside = {
        key: _difference(value, plain[key])
        for key, value in full.items()
        if isinstance(value, dict) and isinstance(plain.get(key), dict)
    }
    steps = {
        "set": {k: v for k, v in full.items() if k not in inside and (k not in plain or plain[k] != v)},
        "drop": [key for key in plain if key not in full],
        "inside": {key: steps for key, steps in inside.items() if steps},
    }
    return {name: step for name, step in steps.items() if step}


def _restored(plain: Data, rest: Data) -> Data:
    kept = {key: value for key, value in plain.items() if key not in rest.get("drop", ())}
    inside = {key: _restored(kept[key], steps) for key, steps in rest.get("inside", {}).items() if key in kept}
    return {**kept, **rest.get("set", {}), **inside}


def from_openai(messages: Sequence[object]) -> list[Message]:
    """OpenAI chat `messages` (dicts or SDK objects) as Anthropic messages.

    What the Anthropic form cannot say (the exact arguments text, a name, a null content) stays beside it
    under the key ``openai``; before such messages go to the Anthropic API, `strip_openai` takes it off.

    Raises:
        TranscriptError: an entry is no chat message; the text names its index and field.
    """
    return [message for _, message in chat_messages(messages, [f"messages[{i}]" for i in range(len(messages))])]


def chat_messages(entries: Sequence[object], places: Sequence[str]) -> Iterator[tuple[int, Message]]:
    """As `from_openai`, each message with the number of its first entry; an error names the entry by its place."""
    plain = enumerate(map(_checked, entries, places))
    for is_tool, group in groupby(plain, key=lambda numbered: numbered[1]["role"] == "tool"):
        numbers, messages = zip(*group, strict=True)
        if is_tool:
            yield numbers[0], {"role": "user", "content": list(map(_TOOL.over, messages))}
        else:
            yield from zip(numbers, map(_over, messages), strict=True)


def _over(message: ChatMessage) -> Message:
    pair = _SPOKEN.get(message["role"])
    return pair.over(message) if pair else message


def to_openai(messages: Sequence[Message]) -> list[ChatMessage]:
    """Anthropic `messages` as OpenAI chat messages; what `from_openai` made comes back as it was.

    Results become tool messages ahead of the rest of their message; thinking is left out.
    """
    return [back for message in messages for back in _back(message)]


def _back(message: Message) -> Iterator[ChatMessage]:
    pair = _SPOKEN.get(message["role"])
    if pair is None:
        yield message
        return
    results = [block for block in blocks(message) if block["type"] == "tool_result"] if pair is _USER else []
    yield from (_TOOL.home(block) or {} for block in results)
    if results:
        message = {**message, "content": [block for block in message["content"] if block["type"] != "tool_result"]}
    if not results or message["content"]:
        yield pair.home(message) or message


def strip_openai(messages: Sequence[Message]) -> list[Message]:
    """`messages` without what `from_openai` laid beside them, as the Anthropic API takes them."""
    return [_bare(message) for message in messages]


def _bare(data: Data) -> Data:
    """`data` without its remainder, and what stands inside its content without theirs; the same object if none is."""
    inner = data.get("content")
    if isinstance(inner, list):
        bare = [_bare(block) if isinstance(block, dict) else block for block in inner]
        if any(a is not b for a, b in zip(bare, inner, strict=True)):
            data = {**data, "content": bare}
    return {key: value for key, value in data.items() if key != REMAINDER} if REMAINDER in data else data


def leading_system(messages: Sequence[object]) -> int:
    """How many of `messages` stand in front as the system's; they are no part of the conversation."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    return next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(roles))


def is_chat(messages: Sequence[object]) -> bool | None:
    """Whether `messages` are OpenAI chat messages, by the first thing that only one of the two formats has.

    None: nothing in them tells.
    """
    for message in messages:
        if not isinstance(message, dict):
            continue
        content = message.get("content", "")
        parts = content if isinstance(content, list) else ()
        kinds = {str(part.get("type")) for part in parts if isinstance(part, dict)}
        calls = "tool_calls" in message or "function_call" in message
        if calls or content is None or _ONLY_CHAT & {str(message.get("role")), *kinds}:
            return True
        if _ONLY_ANTHROPIC & kinds:
            return False
    return None


def _checked(entry: object, place: str) -> ChatMessage:
    """`entry` as a dict that holds all that its conversion reads."""
    dump = getattr(entry, "model_dump", None)
    message = dump(mode="json", exclude_unset=True) if callable(dump) else entry
    if not isinstance(message, dict):
        raise TranscriptError(f"{place}: expected a message as a dict, found {type(entry).__name__}")
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in _ROLES:
        raise TranscriptError(f"{place}: role: expected one of {', '.join(_ROLES)}, found {role!r:.60}")
    if not isinstance(content, str | list) and not (content is None and role in ("assistant", "tool")):
        raise TranscriptError(f"{place}: expected 'content' to be text or a list of parts, found {content!r:.60}")
    for key in ("tool_call_id",) if role == "tool" else ("refusal",) if message.get("refusal") else ():
        _need(message, place, key)
    for at, part in enumerate(content if isinstance(content, list) else ()):
        _check_part(part, f"{place}: content.{at}")
    if not isinstance(calls, list | None):
        raise TranscriptError(f"{place}: expected 'tool_calls' to be a list, found {calls!r:.60}")
    for at, call in enumerate(calls or ()):
        _check_call(call, f"{place}: tool_calls.{at}")
    return message


def _check_part(part: object, place: str) -> None:
    kind = _need(part, place, "type")
    if kind in ("text", "refusal"):
        _need(part, place, kind)
    elif kind == "image_url":
        _need(_need(part, place, "image_url", dict), f"{place}.image_url", "url")


def _check_call(call: object, place: str) -> None:
    _need(call, place, "id")
    kind = next((kind for kind in _TEXT_OF_CALL if isinstance(call, dict) and call.get(kind)), None)
    if kind is None:
        raise TranscriptError(f"{place}: expected a 'function' or a 'custom' tool in a tool call")
    for key in ("name", _TEXT_OF_CALL[kind]):
        _need(_need(call, place, kind, dict), f"{place}.{kind}", key)


_TEXT_OF_CALL = {"function": "arguments", "custom": "input"}


def _need(holder: object, place: str, key: str, kind: type = str) -> Any:
    value = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(value, kind):
        raise TranscriptError(f"{place}: {key}: expected {'text' if kind is str else 'an object'}, found {value!r:.60}")
    return value


def _user(message: ChatMessage) -> Message:
    content = message["content"]
    return {"role": "user", "content": content if isinstance(content, str) else list(map(_PART.over, content))}


def _chat_user(message: Message) -> ChatMessage:
    content = message["content"]
    return {"role": "user", "content": content if isinstance(content, str) else _parts(content)}


def _assistant(message: ChatMessage) -> Message:
    content, calls, refusal = message.get("content"), message.get("tool_calls"), message.get("refusal")
    if isinstance(content, str) and not calls and not refusal:
        return {"role": "assistant", "content": content}
    parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or ()
    refusals: list[Block] = [{"type": "text", "text": refusal}] if refusal else []
    return {"role": "assistant", "content": [*map(_PART.over, parts), *refusals, *map(_CALL.over, calls or ())]}


def _chat_assistant(message: Message) -> ChatMessage:
    content = message["content"]
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    calls = [_CALL.home(block) for block in content if block["type"] == "tool_use"]
    parts = _parts(block for block in content if block["type"] != "tool_use")
    alone = len(parts) == 1 and parts[0]["type"] == "text" and set(parts[0]) == {"type", "text"}
    content_parts = parts[0]["text"] if alone else parts or None
    return {"role": "assistant", "content": content_parts, **({"tool_calls": calls} if calls else {})}


def _result(message: ChatMessage) -> Block:
    content = message.get("content") or ""
    inner = content if isinstance(content, str) else list(map(_PART.over, content))
    return {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": inner}


def _tool(block: Block) -> ChatMessage:
    content = block.get("content") or ""
    inner = content if isinstance(content, str) else _parts(content)
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": inner}


def _parts(content: Iterable[Block]) -> list[Data]:
    return [part for part in map(_PART.home, content) if part is not None]


_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.S)
"""``data:image/png;base64,iVBORw0=``; not ``https://example.org/a.png``."""
_HAS_NO_PART = frozenset({"thinking", "redacted_thinking"})


def block_of_part(part: Data) -> Block:
    """The content block for `part`; the same object if it is one already."""
    return _PART.over(part)


def _block(part: dict[str, Any]) -> Block:
    kind = part["type"]
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]}
    if kind == "image_url":
        return {"type": "image", "source": _source(part["image_url"]["url"])}
    file = part.get("file")
    if kind == "file" and isinstance(file, dict) and _DATA_URL.fullmatch(str(file.get("file_data"))):
        named = {"title": file["filename"]} if "filename" in file else {}
        return {"type": "document", "source": _source(file["file_data"]), **named}
    return part


def _source(url: str) -> dict[str, Any]:
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": data[1], "data": data[2]}


def _part(block: Block) -> dict[str, Any] | None:
    kind, source = block["type"], block.get("source")
    if kind in _HAS_NO_PART:
        return None
    if kind not in ("image", "document") or not isinstance(source, dict):
        return block
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        if kind == "document":
            named = {"filename": block["title"]} if "title" in block else {}
            return {"type": "file", "file": {"file_data": url, **named}}
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "image" and source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data", ""))}
    return block


def _use(call: dict[str, Any]) -> Block:
    if call.get("function"):
        name, value = call["function"]["name"], arguments_as_object(call["function"]["arguments"])
    else:
        name, value = call["custom"]["name"], {"input": call["custom"]["input"]}
    return {"type": "tool_use", "id": call["id"], "name": name, "input": value}


def _call(block: Block) -> dict[str, Any]:
    arguments = json.dumps(block.get("input"), ensure_ascii=False, separators=(",", ":"))
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def arguments_as_object(text: str) -> dict[str, Any]:
    """The object that `text` is as JSON; what is no JSON object stands whole under ``arguments``."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": text}


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


_PART, _CALL, _TOOL = _Pair(_block, _part), _Pair(_use, _call), _Pair(_result, _tool)
_USER, _ASSISTANT = _Pair(_user, _chat_user), _Pair(_assistant, _chat_assistant)
_SPOKEN = {"user": _USER, "assistant": _ASSISTANT}
"""By role; messages of others are the same in both forms."""
