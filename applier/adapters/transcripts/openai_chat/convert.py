"""OpenAI chat messages to Anthropic messages and back: ``to_openai(from_openai(x)) == x``.

Tool messages that follow each other are one user message of results. System, developer and (older) function
messages stay as they are. Of Anthropic content only thinking has no way over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from applier.adapters.transcripts.openai_chat.parts import block_of_call, block_of_part, call_of_block, part_of_block
from applier.adapters.transcripts.openai_chat.remainder import REMAINDER, with_remainder, without_remainder
from applier.adapters.transcripts.openai_chat.shape import check_chat_message
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, blocks

__all__ = ["from_openai", "strip_openai", "to_openai"]

ChatMessage = dict[str, Any]


def from_openai(messages: Sequence[object]) -> list[Message]:
    """OpenAI chat `messages` (dicts or SDK objects) as Anthropic messages.

    What the Anthropic form cannot say (the exact arguments text, a name, a null content) stays beside it
    under the key ``openai``; before such messages go to the Anthropic API, `strip_openai` takes it off.

    Raises:
        TranscriptError: an entry is no chat message; the text names its index and field.
    """
    converted: list[Message] = []
    results: list[Block] = []
    for i, entry in enumerate(messages):
        message = _plain(entry, f"messages[{i}]")
        if message["role"] == "tool":
            results.append(with_remainder(_result(message), message, _tool))
            continue
        if results:
            converted.append({"role": "user", "content": results})
            results = []
        converted.append(_converted(message))
    return [*converted, {"role": "user", "content": results}] if results else converted


def to_openai(messages: Sequence[Message]) -> list[ChatMessage]:
    """Anthropic `messages` as OpenAI chat messages; what `from_openai` made comes back as it was.

    Results become tool messages ahead of the rest of their message; thinking is left out.
    """
    return [back for message in messages for back in _back(message)]


def strip_openai(messages: Sequence[Message]) -> list[Message]:
    """`messages` without what `from_openai` laid beside them, as the Anthropic API takes them."""
    return [_stripped(message) for message in messages]


def _plain(entry: object, place: str) -> ChatMessage:
    dump = getattr(entry, "model_dump", None)
    message = dump(mode="json", exclude_unset=True) if callable(dump) else entry
    if not isinstance(message, dict):
        raise TranscriptError(f"{place}: expected a message as a dict, found {type(entry).__name__}")
    check_chat_message(message, place)
    return message


def _converted(message: ChatMessage) -> Message:
    if message["role"] == "assistant":
        return with_remainder(_assistant(message), message, _chat_assistant)
    if message["role"] == "user":
        return with_remainder(_user(message), message, _chat_user)
    return message


def _user(message: ChatMessage) -> Message:
    content = message["content"]
    return {
        "role": "user",
        "content": content if isinstance(content, str) else [block_of_part(part) for part in content],
    }


def _chat_user(message: Message) -> ChatMessage:
    content = message["content"]
    return {"role": "user", "content": content if isinstance(content, str) else _parts(content)}


def _assistant(message: ChatMessage) -> Message:
    content, calls, refusal = message.get("content"), message.get("tool_calls"), message.get("refusal")
    if isinstance(content, str) and not calls and not refusal:
        return {"role": "assistant", "content": content}
    said: list[Block] = ([{"type": "text", "text": content}] if isinstance(content, str) and content else []) or [
        block_of_part(part) for part in content or ()
    ]
    refused: list[Block] = [{"type": "text", "text": refusal}] if refusal else []
    return {"role": "assistant", "content": [*said, *refused, *map(block_of_call, calls or ())]}


def _chat_assistant(message: Message) -> ChatMessage:
    content = message["content"]
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    calls = [call_of_block(block) for block in content if block["type"] == "tool_use"]
    parts = _parts(block for block in content if block["type"] != "tool_use")
    alone = len(parts) == 1 and parts[0]["type"] == "text" and set(parts[0]) == {"type", "text"}
    said = parts[0]["text"] if alone else parts or None
    return {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}


def _result(message: ChatMessage) -> Block:
    content = message.get("content") or ""
    told = content if isinstance(content, str) else [block_of_part(part) for part in content]
    return {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": told}


def _tool(block: Block) -> ChatMessage:
    content = block.get("content") or ""
    told = content if isinstance(content, str) else _parts(content)
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": told}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [part for part in map(part_of_block, content) if part is not None]


def _back(message: Message) -> Iterator[ChatMessage]:
    if message["role"] == "assistant":
        yield without_remainder(message, _converted, _chat_assistant) or message
        return
    if message["role"] != "user":
        yield message
        return
    results = [block for block in blocks(message) if block["type"] == "tool_result"]
    for block in results:
        yield without_remainder(block, _tool_block, _tool) or _tool(block)
    if results:
        rest = [block for block in message["content"] if block["type"] != "tool_result"]
        message = {**message, "content": rest}
    if not results or message["content"]:
        yield without_remainder(message, _converted, _chat_user) or message


def _tool_block(message: ChatMessage) -> Block:
    return with_remainder(_result(message), message, _tool)


def _stripped(message: Message) -> Message:
    content = message["content"]
    inner = content if isinstance(content, str) else [_bare(block) for block in content]
    same = isinstance(content, str) or all(a is b for a, b in zip(inner, content, strict=True))
    if same and REMAINDER not in message:
        return message
    return {**_bare(message), "content": inner}


def _bare(data: dict[str, Any]) -> dict[str, Any]:
    """`data` without its remainder, and what stands inside its content without theirs."""
    inner = data.get("content")
    if data.get("type") == "tool_result" and isinstance(inner, list):
        bare = [_bare(block) if isinstance(block, dict) else block for block in inner]
        if any(a is not b for a, b in zip(bare, inner, strict=True)):
            data = {**data, "content": bare}
    return {k: v for k, v in data.items() if k != REMAINDER} if REMAINDER in data else data
