"""Items of OpenAI's Responses API to Anthropic messages and back: ``to_items(read_items(x), its messages) == x``.

Items of the host (tools, instructions, settings) keep their places. An item of an unknown type becomes an opaque
message. Nothing before a provider's encrypted compaction is changed, as the compaction replaces it. Fields without a
place in a block are kept in an additional key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from applier.adapters.opaque import carried_by, opaque_block
from applier.adapters.transcripts.openai_chat import REMAINDER, url_of
from applier.adapters.transcripts.response_items import CALLS, OUTPUTS, TYPED_CALLS, Item, item_block, part_block
from planner.errors import TranscriptError
from planner.reading.messages import OPAQUE, THINKING, Block, Message, blocks, call_ids, result_ids
from planner.reading.secrets import quoted

__all__ = ["VIEW", "ReadItems", "read_items", "to_items"]

Data = dict[str, Any]
VIEW = "compactor_view"
"""Type of our own item, which never leaves the proxy: it contains the ``messages`` that it replaces."""
_SERVER_CALLS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
"""Calls that the provider ran itself; each item contains the result."""
_HOSTS = frozenset(
    {
        *("additional_tools", "configuration_update", "mcp_list_tools", "tool_search_call", "tool_search_output"),
        "compaction_trigger",
    }
)
"""Types of items outside the conversation, without which later calls would lack their tools."""
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills?_instructions|skill)>|# AGENTS\.md instructions for )"
)
"""Beginning of Codex's own texts in a user's message: ``<environment_context>``; not ``See <skill>``."""
_ITEM = "item"
"""Type of a block that is a whole item."""
_NO_PARTS = frozenset({_ITEM, OPAQUE, "tool_use", "tool_result", *THINKING})
"""Types that a message part cannot have here, because they are items themselves."""


@dataclass
class ReadItems:
    """Conversation in a list of items, and the host's items, each with the number of messages before it."""

    messages: list[Message] = field(default_factory=list)
    fixed: list[tuple[int, Data]] = field(default_factory=list)
    has_foreign: bool = False
    """True if the list begins with a provider's own compaction; then `messages` begins after it."""


def read_items(items: Sequence[Any]) -> ReadItems:
    """Read the `items` of a request's ``input``."""
    kinds = [_kind(item, f"input[{at}]") for at, item in enumerate(items)]
    unpaired = _unpaired(items, kinds)
    behind = 1 + max((at for at, kind in enumerate(kinds) if kind == "foreign"), default=-1)
    read = ReadItems(fixed=[(0, one) for item in items[:behind] for one in _without_view(item)], has_foreign=behind > 0)
    open_kind, open_calls = "", set[str]()
    for at in range(behind, len(items)):
        item, kind = items[at], kinds[at]
        if item.get("call_id") in unpaired:
            kind = "opaque"
        if kind == VIEW:
            read.messages += item["messages"]
        elif kind == "host":
            read.fixed.append((len(read.messages), item))
        elif kind == "opaque":
            role = "assistant" if open_calls else "user"
            read.messages.append({"role": role, "content": [opaque_block(str(item.get("type")), item)]})
        elif kind == open_kind != "user":
            read.messages[-1]["content"] += _blocks(item, f"input[{at}]")
        else:
            role = "assistant" if kind == "assistant" else "user"
            read.messages.append({"role": role, "content": _blocks(item, f"input[{at}]")})
        if kind in ("assistant", "result"):
            open_calls ^= {item["call_id"]} if isinstance(item.get("call_id"), str) else set()
        open_kind = kind
    return read


def _without_view(item: Data) -> list[Data]:
    """Return `item` in a list; for an item of ours, the items that it replaces."""
    return [one for message in item["messages"] for one in _items(message)] if item.get("type") == VIEW else [item]


def _kind(item: Any, place: str) -> str:
    """Return the kind of an item: ``user``, ``assistant``, ``result``, ``host``, our own type, ``foreign`` for a
    provider's compaction, or ``opaque``."""
    if not isinstance(item, dict):
        raise TranscriptError(f"{place}: expected an item as an object, found {quoted(item)}")
    kind, role = str(item.get("type") or "message"), item.get("role")
    if kind == "message":
        is_spoken = role == "assistant" or (role == "user" and not _is_context(item))
        return str(role) if is_spoken and item.get("content") else "host"
    if kind in _HOSTS or kind == VIEW:
        return "host" if kind in _HOSTS else VIEW
    if kind == "reasoning" or kind in _SERVER_CALLS:
        return "assistant"
    key = CALLS.get(kind, "output" if kind in OUTPUTS else "call_id")
    is_whole = isinstance(item.get("call_id"), str) and (item.get(key) is not None or kind == "apply_patch_call_output")
    if is_whole and (kind in CALLS or kind in TYPED_CALLS or kind in OUTPUTS):
        return "result" if kind in OUTPUTS else "assistant"
    return "foreign" if "compaction" in kind else "opaque"


def _unpaired(items: Sequence[Data], kinds: Sequence[str]) -> set[str]:
    """Return the ids of calls that stay opaque with their results, as half of the pair is opaque or missing."""
    by_kind: dict[str, set[str]] = {kind: set() for kind in ("assistant", "result", "opaque", "typed")}
    for item, kind in zip(items, kinds, strict=True):
        for own in (kind, "typed" if item.get("type") in TYPED_CALLS else ""):
            by_kind.get(own, set()).add(str(item.get("call_id")))
    calls, results = by_kind["assistant"], by_kind["result"]
    return (by_kind["typed"] - results) | (results - calls) | by_kind["opaque"]


def _is_context(item: Data) -> bool:
    """Return True for a message from Codex under the user's name: every part of it is the host's."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return all(isinstance(part, dict) and _CONTEXT.match(str(part.get("text") or "")) for part in parts)


def _blocks(item: Data, place: str) -> list[Block]:
    try:
        if item.get("type", "message") == "message":
            return _message_blocks(item)
        if item["type"] == "reasoning":
            return [_thought(item)]
        if item["type"] in _SERVER_CALLS:
            return [{"type": _ITEM, "item": item}]
        return [_call_or_result(item)]
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TranscriptError(f"{place}: no item of the type that it names ({error!r:.60})") from None


def _message_blocks(item: Data) -> list[Block]:
    """Return a block for each part, each with the data to restore the item."""
    head = _without(item, "content")
    content = Item.model_validate({"content": item["content"]}).content
    if isinstance(content, str):
        return [{"type": "text", "text": content, REMAINDER: {"item": head}}]
    made = []
    for at, part in enumerate(content or ()):
        block = part_block(part)
        if block["type"] in _NO_PARTS:
            raise ValueError(block["type"])
        exact = {} if _part(block, item["role"]) == part else {"part": part}
        made.append({**block, REMAINDER: {"item": head, "at": at, "of": len(content or ()), **exact}})
    return made


def _thought(item: Data) -> Block:
    sealed = item.get("encrypted_content")
    head = _without(item, "encrypted_content") if isinstance(sealed, str) else item
    return {"type": "redacted_thinking", "data": sealed or "", REMAINDER: {"item": head}}


def _call_or_result(item: Data) -> Block:
    """Return a call or a result with the data to restore the item."""
    if item["type"].removesuffix("_output") in TYPED_CALLS:
        return {**item_block(Item.model_validate(item)), REMAINDER: {"whole": item}}
    key = CALLS.get(item["type"], "output")
    block, head = item_block(Item.model_validate(item)), _without(item, key)
    exact = {} if _value(block, head) == item[key] else {key: item[key]}
    return {**block, REMAINDER: {"item": head, **exact}}


def _without(data: Mapping[str, Any], *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


def to_items(read: ReadItems, messages: Sequence[Message]) -> list[Data]:
    """Return `messages`, the same as in `read` or compacted, as items, with the host's items in their places."""
    tail = _common_tail(read.messages, messages)
    border, gone = len(messages) - tail, len(read.messages) - tail
    placed: dict[int, list[Data]] = {}
    for at, item in read.fixed:
        behind = at - gone + border if at >= gone else border
        placed.setdefault(behind if at else 0, []).append(item)
    items = list(placed.get(0, ()))
    for at, message in enumerate(messages, 1):
        items += [*_items(message), *placed.get(at, ())]
    return _with_types_that_match(items)


def _with_types_that_match(items: Sequence[Data]) -> list[Data]:
    """Return `items` with a call of a provider's tool written as a function call if its other half was."""
    functions = {item["call_id"] for item in items if str(item.get("type")).startswith("function_call")}
    return [
        _function_item(item_block(Item.model_validate(item)))
        if str(item.get("type")).removesuffix("_output") in TYPED_CALLS and item["call_id"] in functions
        else item
        for item in items
    ]


def _function_item(block: Block) -> Data:
    """Return a call or a result as that of a function."""
    if block["type"] == "tool_result":
        head: Data = {"type": "function_call_output", "call_id": block["tool_use_id"]}
        return {**head, "output": _value(block, head)}
    head = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
    return {**head, "arguments": _value(block, head)}


def _common_tail(read: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return the number of messages at the end that both share, edited or not."""
    count = 0
    for one, other in zip(reversed(read), reversed(messages), strict=False):
        is_same = one == other or (
            one["role"] == other["role"]
            and (call_ids(one), result_ids(one)) == (call_ids(other), result_ids(other)) != ([], [])
        )
        if not is_same:
            break
        count += 1
    return count


def _items(message: Message) -> list[Data]:
    """Return the items of one message: the original ones for blocks that did not change."""
    items: list[Data] = []
    parts: list[tuple[Data, Block]] = []
    for block in blocks(message):
        rest, bare = block.get(REMAINDER) or {}, _without(block, REMAINDER)
        first = parts[0][0] if parts else {}
        goes_on = rest.get("at") == len(parts) and rest.get("item") == first.get("item") if rest else not first
        item = _item(bare, rest)
        if parts and (item is not None or not goes_on):
            items.append(_message(message["role"], parts))
            parts = []
        if item is None:
            parts.append((rest, bare))
        elif item:
            items.append(item)
    return [*items, _message(message["role"], parts)] if parts else items


def _item(bare: Block, rest: Data) -> Data | None:
    """Return the item of a block; None for a part of a message, empty for a block that items cannot express."""
    kind, head = bare["type"], rest.get("item") or {}
    if kind == OPAQUE:
        return dict(carried_by(bare))
    if "whole" in rest:
        is_same = item_block(Item.model_validate(rest["whole"])) == bare
        return dict(rest["whole"]) if is_same else _function_item(bare)
    if kind == _ITEM:
        return dict(bare["item"])
    if kind in THINKING:
        return {**head, **({"encrypted_content": bare["data"]} if bare.get("data") else {})}
    if kind not in ("tool_use", "tool_result"):
        return None
    if not head:
        return _function_item(bare)
    key = CALLS.get(head["type"], "output")
    exact = key in rest and item_block(Item.model_validate({**head, key: rest[key]})) == bare
    return {**head, key: rest[key] if exact else _value(bare, head)}


def _message(role: str, parts: Sequence[tuple[Data, Block]]) -> Data:
    """Return the message item for `parts`, each the data that restores a part and its block: the original parts where
    the blocks are unchanged, and the original id only if no part is missing."""
    rest, first = parts[0]
    head = rest.get("item") or {"type": "message", "role": role}
    if "item" in rest and "at" not in rest:
        return {**head, "content": first["text"]}
    content = []
    for original, block in parts:
        is_unchanged = "part" in original and part_block(original["part"]) == block
        content.append(original["part"] if is_unchanged else _part(block, role))
    return {**(head if rest.get("of") == len(parts) else _without(head, "id")), "content": content}


def _value(block: Block, head: Data) -> Any:
    """Return the input of a call, or its result, in the form of an item with the fields of `head`."""
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        return content if isinstance(content, str) else [_part(one, "user") for one in content]
    value = block["input"]
    if head["type"] == "function_call":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if head["type"] == "custom_tool_call":
        words = value.get("input", "") if isinstance(value, dict) else ""
        if block["name"] == head.get("name"):
            return words
        return f"text(await tools.{block['name']}({json.dumps(words or value, ensure_ascii=False)}))"
    return value


def _part(block: Block, role: str) -> Data:
    """Return a block as a part of an item; assistant text gets the annotations that the API requires."""
    kind, source = block["type"], block.get("source")
    if kind.startswith(("input_", "output_")):
        return _without(block, REMAINDER)
    if kind in ("image", "document") and isinstance(source, dict) and source.get("type") in _FILES:
        return _medium_part(block, source)
    text = block["text"] if kind == "text" else json.dumps(_without(block, REMAINDER), ensure_ascii=False)
    own: Data = {"type": "output_text", "text": text, "annotations": []}
    return own if role == "assistant" else {"type": "input_text", "text": text}


_FILES = {"base64": "file_data", "url": "file_url", "file": "file_id"}
"""Fields of a file's part, by the type of the block's source."""


def _medium_part(block: Block, source: Mapping[str, Any]) -> Data:
    """Return an image or a document as a part of an item."""
    kind, title = source["type"], block.get("title")
    value = source.get("file_id") if kind == "file" else url_of(source)
    if block["type"] == "image":
        return {"type": "input_image", "file_id" if kind == "file" else "image_url": value}
    return {"type": "input_file", **({"filename": title} if title else {}), _FILES[kind]: value}
