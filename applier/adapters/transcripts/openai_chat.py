"""Converts OpenAI chat messages to Anthropic messages and back without loss: ``to_openai(from_openai(x)) == x``.

Consecutive tool messages become one user message of results. System, developer and function messages, and parts without
an Anthropic block, stay unchanged. Thinking is lost on the way to OpenAI. Data that has no place in the other format,
the *remainder*, is kept under an additional key, so that a conversion can be undone exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, starmap
from typing import Any, NamedTuple

from planner.errors import TranscriptError
from planner.reading.messages import THINKING, Block, Message, blocks
from planner.reading.secrets import quoted

Data = dict[str, Any]
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles of OpenAI's messages. ``function`` is the older form of a tool's result, which is passed on unchanged."""
_ONLY_CHAT = frozenset({"tool", "developer", "function", "image_url", "input_audio", "refusal", "file"})
"""Roles and types of content parts that only OpenAI's messages have; one of them identifies the format."""
_ONLY_ANTHROPIC = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use"}
)
"""Types of content blocks that only Anthropic's messages have."""
REMAINDER = "openai"
"""Additional key for data that Anthropic's format lacks. The API refuses it, so it is removed before sending."""


@dataclass(frozen=True)
class _Converter:
    """Conversion between OpenAI's and Anthropic's form of a message or part, made exactly reversible.

    For this, a converted value carries a remainder: how the original differs from what `revert` returns. Its key
    ``set`` contains the values that `revert` loses; ``drop`` lists the keys that it adds.
    """

    convert: Callable[[Data], Data]
    """Function that converts OpenAI's form to Anthropic's."""
    revert: Callable[[Data], Data | None]
    """Function that converts back. It returns None for thinking, which OpenAI's form cannot express."""

    def to_anthropic(self, original: Data) -> Data:
        """Return `original` in Anthropic's form, with the data that restores it; unchanged if both forms are equal."""
        converted = self.convert(original)
        plain = self.revert(converted) or {}
        if converted == original == plain:
            return original
        steps = {"set": _differences(original, plain), "drop": [key for key in plain if key not in original]}
        remainder = {name: step for name, step in steps.items() if step}
        return {**converted, REMAINDER: remainder} if remainder else converted

    def to_openai(self, converted: Data) -> Data | None:
        """Return the exact original from which `to_anthropic` made `converted`. If `converted` was edited since, return
        its conversion without the remainder, or None if OpenAI's form cannot express it."""
        remainder = converted.get(REMAINDER)
        if not isinstance(remainder, dict):
            return self.revert(converted)
        plain = self.revert({key: value for key, value in converted.items() if key != REMAINDER})
        kept = {key: value for key, value in (plain or {}).items() if key not in remainder.get("drop", ())}
        original = _with_values(kept, remainder.get("set", {}))
        return original if self.to_anthropic(original) == converted else plain


def _differences(full: Data, plain: Data) -> Data:
    """Return the items of `full` that `plain` lacks or has with another value; of nested dicts only such items."""
    nested = {key: value for key, value in full.items() if isinstance(value, dict) and isinstance(plain.get(key), dict)}
    differs = {key: value for key, value in full.items() if key not in plain or plain[key] != value}
    return {key: _differences(nested[key], plain[key]) if key in nested else value for key, value in differs.items()}


def _with_values(plain: Data, values: Data) -> Data:
    """Return `plain` with `values` set, in nested dicts too. This undoes `_differences`."""
    nested = {key for key, value in values.items() if isinstance(value, dict) and isinstance(plain.get(key), dict)}
    changed = {key: _with_values(plain[key], value) if key in nested else value for key, value in values.items()}
    return {**plain, **changed}


def from_openai(messages: Sequence[object]) -> list[Message]:
    """Return OpenAI chat `messages` (dicts or SDK objects) as Anthropic messages.

    Data without a place in Anthropic's form (the exact text of arguments, a name, a null content) is kept under the key
    ``openai``. The Anthropic API refuses this key: remove it by `strip_openai` before you send such messages there.

    Raises:
        TranscriptError: An entry is not a chat message; the text names its index and field.
    """
    return [numbered.message for numbered in chat_messages(messages, [f"messages[{i}]" for i in range(len(messages))])]


class NumberedMessage(NamedTuple):
    """Message, with the index of the first entry of the list that it was made from."""

    first_entry: int
    message: Message


def chat_messages(entries: Sequence[object], places: Sequence[str]) -> Iterator[NumberedMessage]:
    """Yield OpenAI's `entries` as Anthropic messages; results in a row become one user message. `places`: the place of
    each entry in its file, for errors."""
    converted = starmap(NumberedMessage, enumerate(map(_converted, entries, places)))
    for is_message, group in groupby(converted, key=lambda numbered: "role" in numbered.message):
        run = list(group)
        if is_message:
            yield from run
        else:
            results = [numbered.message for numbered in run]
            yield NumberedMessage(run[0].first_entry, {"role": "user", "content": results})


def plain_entry(entry: Any) -> Any:
    """Return a message object of an SDK as a dict without its unset fields; return other entries unchanged."""
    dump = getattr(entry, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else entry


def _converted(entry: object, place: str) -> Message | Block:
    """Return the OpenAI message `entry` in Anthropic's form; a tool's message becomes a ``tool_result`` block. Errors
    begin with `place`, where the message is in its file."""
    message = plain_entry(entry)
    if not isinstance(message, dict):
        raise TranscriptError(f"{place}: expected a message as a dict, found {type(entry).__name__}")
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise TranscriptError(f"{place}: role: expected one of {', '.join(_ROLES)}, found {quoted(role)}")
    if not isinstance(content, str | list) and not (content is None and role in ("assistant", "tool")):
        raise TranscriptError(f"{place}: expected 'content' to be text or a list of parts, found {quoted(content)}")
    try:
        for part in content if isinstance(content, list) else ():
            _required(part, "type")
        converter = _RESULT if role == "tool" else _BY_ROLE.get(role)
        return converter.to_anthropic(message) if converter else message
    except TranscriptError as error:
        raise TranscriptError(f"{place}: {error}") from None


def _required(holder: object, key: str, kind: type = str) -> Any:
    """Return ``holder[key]``; raise TranscriptError if it is missing or its type is not `kind`."""
    value = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(value, kind):
        raise TranscriptError(f"{key}: expected {_KINDS[kind]}, found {quoted(value)}")
    return value


_KINDS: dict[type, str] = {str: "text", dict: "an object", list: "a list"}


def to_openai(messages: Sequence[Message]) -> list[Data]:
    """Return Anthropic `messages` as OpenAI chat messages; those made by `from_openai` come back unchanged.

    Each tool result in a message becomes a message of its own, before the message with the other blocks. Thinking is
    left out.
    """
    made: list[Data] = []
    for message in messages:
        converter = _BY_ROLE.get(message["role"])
        if converter is None:  # a role, such as ``system``, whose messages are the same in both forms
            made.append(message)
            continue
        results = [block for block in blocks(message) if block["type"] == "tool_result"] if converter is _USER else []
        made += filter(None, map(_RESULT.to_openai, results))  # each has a form: None comes only of thinking
        others = [block for block in message["content"] if block["type"] != "tool_result"] if results else []
        if others or not results:
            made += filter(None, [converter.to_openai({**message, "content": others} if results else message)])
    return made


def strip_openai(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` without the fields added by `from_openai`, as the Anthropic API accepts them."""
    return [_without_remainder(message) for message in messages]


def _without_remainder(data: Data) -> Data:
    """Return a message or block without the key `REMAINDER` in it or its content; the same object if none has it."""
    inner = data.get("content")
    if isinstance(inner, list):
        bare = [_without_remainder(block) if isinstance(block, dict) else block for block in inner]
        if any(a is not b for a, b in zip(bare, inner, strict=True)):
            data = {**data, "content": bare}
    return {key: value for key, value in data.items() if key != REMAINDER} if REMAINDER in data else data


def leading_system(messages: Sequence[object]) -> int:
    """Count the system messages at the front of `messages`, which are instructions and not part of the conversation."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    return next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(roles))


def is_chat(messages: Sequence[object], container: Data) -> bool | None:
    """Return True if `messages` are OpenAI's, False if they are Anthropic's, None if they could be either. The first
    role, field or type that only one of the two has decides. Without one, a system message in front makes them OpenAI's
    unless the `container`, the object around the list, has a field ``system``."""
    for message in messages:
        if not isinstance(message, dict):
            continue
        content = message.get("content", "")
        parts = content if isinstance(content, list) else ()
        kinds = {str(part.get("type")) for part in parts if isinstance(part, dict)}
        has_calls = "tool_calls" in message or "function_call" in message
        if has_calls or content is None or _ONLY_CHAT & {str(message.get("role")), *kinds}:
            return True
        if _ONLY_ANTHROPIC & kinds:
            return False
    return True if "system" not in container and leading_system(messages) else None


def _anthropic_assistant(message: Data) -> Message:
    """Return OpenAI's assistant `message` in Anthropic's form: content, refusal and tool calls become blocks."""
    content = message.get("content")
    calls = _required(message, "tool_calls", list) if message.get("tool_calls") else []
    refusals = [{"type": "text", "text": _required(message, "refusal")}] if message.get("refusal") else []
    if isinstance(content, str) and not calls and not refusals:
        return {"role": "assistant", "content": content}
    parts = content or ()
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    return {
        "role": "assistant",
        "content": [*map(_PART.to_anthropic, parts), *refusals, *map(_CALL.to_anthropic, calls)],
    }


def _openai_assistant(message: Message) -> Data:
    """Return Anthropic's assistant `message` in OpenAI's form: calls become ``tool_calls``; a lone text stays text."""
    content = message["content"]
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    calls = [_CALL.to_openai(block) for block in content if block["type"] == "tool_use"]
    parts = _parts([block for block in content if block["type"] != "tool_use"])
    is_plain = len(parts) == 1 and parts[0]["type"] == "text" and set(parts[0]) == {"type", "text"}
    content_parts = parts[0]["text"] if is_plain else parts or None
    return {"role": "assistant", "content": content_parts, **({"tool_calls": calls} if calls else {})}


def _blocks(content: str | Sequence[Data]) -> Any:
    return content if isinstance(content, str) else list(map(_PART.to_anthropic, content))


def _parts(content: str | Sequence[Block]) -> Any:
    """Return an Anthropic message's `content` as OpenAI's parts, without thinking; a text stays the same text."""
    return content if isinstance(content, str) else [part for part in map(_PART.to_openai, content) if part is not None]


_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.S)
"""URL that contains the data itself: ``data:image/png;base64,iVBORw0=``; not ``https://example.org/a.png``."""


def _block_of_part(part: Data) -> Block:
    """Return the Anthropic block for a `part` of OpenAI's content; the same object if it has the form of a block, or no
    block can express it."""
    kind, file = part["type"], part.get("file")
    if kind in ("text", "refusal"):
        text = _required(part, kind)
        return part if kind == "text" else {"type": "text", "text": text}
    if kind == "image_url":
        return {"type": "image", "source": _source(_required(_required(part, "image_url", dict), "url"))}
    if kind == "file" and isinstance(file, dict) and _DATA_URL.fullmatch(str(file.get("file_data"))):
        title = {"title": file["filename"]} if "filename" in file else {}
        return {"type": "document", "source": _source(file["file_data"]), **title}
    return part


def _source(url: str) -> Data:
    """Return the ``source`` of an Anthropic block for a `url`: the data itself for a ``data:`` URL."""
    data_url = _DATA_URL.fullmatch(url)
    if data_url is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": data_url[1], "data": data_url[2]}


def url_of(source: Mapping[str, Any]) -> Any:
    """Return the URL of an image or document from the ``source`` of its block; base64 data becomes a ``data:`` URL."""
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return source.get("url")


def _openai_part(block: Block) -> Data | None:
    """Return an Anthropic `block` as a part of OpenAI's content; None for thinking, as OpenAI's form has none. A block
    that no part can express is returned unchanged."""
    kind, source = block["type"], block.get("source")
    if kind in THINKING:
        return None
    if kind not in ("image", "document") or not isinstance(source, dict):
        return block
    if kind == "image" and source.get("type") in ("base64", "url"):
        return {"type": "image_url", "image_url": {"url": url_of(source)}}
    if kind == "document" and source.get("type") == "base64":
        name = {"filename": block["title"]} if "title" in block else {}
        return {"type": "file", "file": {"file_data": url_of(source), **name}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data", ""))}
    return block


def _block_of_call(call: Data) -> Block:
    """Return an item of OpenAI's ``tool_calls`` as a ``tool_use`` block. A custom tool's input is text, not JSON."""
    call_id, function, custom = _required(call, "id"), call.get("function"), call.get("custom")
    if function:
        name, value = _required(function, "name"), arguments_as_object(_required(function, "arguments"))
    elif custom:
        name, value = _required(custom, "name"), {"input": _required(custom, "input")}
    else:
        raise TranscriptError("expected a 'function' or a 'custom' tool in a tool call")
    return {"type": "tool_use", "id": call_id, "name": name, "input": value}


def _openai_call(block: Block) -> Data:
    arguments = json.dumps(block.get("input"), ensure_ascii=False, separators=(",", ":"))
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def arguments_as_object(text: str) -> Data:
    """Return the object in the JSON `text`, the arguments of a tool call. A `text` that is not a JSON object becomes
    ``{"arguments": text}``, because an Anthropic block needs an object."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)  # NaN, and numbers larger than every float, cannot be sent
    except (ValueError, RecursionError):
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": text}


_PART = _Converter(_block_of_part, _openai_part)
block_of_part = _PART.to_anthropic
"""Function that returns the Anthropic block for a part of an OpenAI message, with the data that undoes this."""
_CALL = _Converter(_block_of_call, _openai_call)
_RESULT = _Converter(
    lambda message: {
        "type": "tool_result",
        "tool_use_id": _required(message, "tool_call_id"),
        "content": _blocks(message.get("content") or ""),
    },
    lambda block: {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": _parts(block.get("content") or ""),
    },
)
_USER = _Converter(
    lambda message: {"role": "user", "content": _blocks(message["content"])},
    lambda message: {"role": "user", "content": _parts(message["content"])},
)
_ASSISTANT = _Converter(_anthropic_assistant, _openai_assistant)
_BY_ROLE = {"user": _USER, "assistant": _ASSISTANT}
"""Converters by role; messages of other roles are the same in both forms."""
