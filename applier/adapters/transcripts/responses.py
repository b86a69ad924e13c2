"""Items of OpenAI's Responses API to Anthropic messages and back: ``to_items(read_items(x), its messages) == x``.

Items of the host (tools, instructions, settings) keep their places. An item of an unknown type becomes an opaque
message. A provider's encrypted compaction replaces everything before it, so nothing up to it is changed. Data of an
item without a place in a block, the *remainder*, is kept under an additional key of the block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from applier.adapters.opaque import carried_by, opaque_block
from applier.adapters.transcripts.openai_chat import REMAINDER, url_of
from applier.adapters.transcripts.response_items import CALLS, OUTPUTS, TYPED_CALLS, Item, item_block, part_block
from planner.errors import TranscriptError
from planner.reading.messages import OPAQUE, THINKING, Block, Message, blocks, call_ids, result_ids
from planner.reading.secrets import quoted

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
"""Types of items of the host: they define tools or settings and belong to no turn."""
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills?_instructions|skill)>|# AGENTS\.md instructions for )"
)
"""Beginning of Codex's own texts in a user's message: ``<environment_context>``; not ``See <skill>``."""
_ITEM = "item"
"""Type of a block that contains a whole item, unchanged."""
_NO_PARTS = frozenset({_ITEM, OPAQUE, "tool_use", "tool_result", *THINKING})
"""Types that a message part cannot have here, because they are items themselves."""


class HostItem(NamedTuple):
    """Item of the host, or of the part that a provider's compaction replaces, and its place."""

    messages_before: int
    """Number of messages in front of it."""
    item: Data


@dataclass
class ReadItems:
    """Conversation in a list of items, and the items that do not belong to it."""

    messages: list[Message] = field(default_factory=list)
    fixed: list[HostItem] = field(default_factory=list)
    has_foreign: bool = False
    """True if the list begins with a provider's own compaction; then `messages` begins after it."""


def read_items(items: Sequence[Any]) -> ReadItems:
    """Return the conversation in `items`, the ``input`` of a request; raise TranscriptError if an item is malformed.

    Neighbouring items of the assistant make one message, and so do neighbouring results.
    """
    kinds = [_kind(item, f"input[{at}]") for at, item in enumerate(items)]
    unpaired = _unpaired(items, kinds)
    start = 1 + max((at for at, kind in enumerate(kinds) if kind == "foreign"), default=-1)
    replaced = [HostItem(0, one) for item in items[:start] for one in _without_view(item)]
    read = ReadItems(fixed=replaced, has_foreign=start > 0)
    open_kind, open_calls = "", set[str]()  # kind of the newest message; ids of calls whose result has not come yet
    for at in range(start, len(items)):
        item, kind = items[at], kinds[at]
        if item.get("call_id") in unpaired:
            kind = "opaque"
        if kind == VIEW:
            read.messages += item["messages"]
        elif kind == "host":
            read.fixed.append(HostItem(len(read.messages), item))
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
    """Return the items of the view if `item` is our own item that contains a view; else `item` alone in a list."""
    return [one for message in item["messages"] for one in _items(message)] if item.get("type") == VIEW else [item]


def _kind(item: Any, place: str) -> str:
    """Return the kind of `item`: ``user``, ``assistant``, ``result``, ``host``, `VIEW` for our own item, ``foreign``
    for a provider's compaction, or ``opaque`` for one that is not understood. Errors begin with `place`."""
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
    """Return the ids of calls whose items are all treated as opaque. Those are calls with an opaque item, results
    without a call, and calls of tools that the provider defines (`TYPED_CALLS`) without a result."""
    ids: dict[str, set[str]] = {kind: set() for kind in ("assistant", "result", "opaque")}
    typed_calls: set[str] = set()
    for item, kind in zip(items, kinds, strict=True):
        call_id = str(item.get("call_id"))
        ids.get(kind, set()).add(call_id)
        if item.get("type") in TYPED_CALLS:
            typed_calls.add(call_id)
    return (typed_calls - ids["result"]) | (ids["result"] - ids["assistant"]) | ids["opaque"]


def _is_context(item: Data) -> bool:
    """Return True if Codex wrote all parts of the user's message `item`."""
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
    """Return a block for each part of a message, with its remainder."""
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
    """Return the block of a call or a result, with its remainder."""
    if item["type"].removesuffix("_output") in TYPED_CALLS:
        return {**item_block(Item.model_validate(item)), REMAINDER: {"whole": item}}
    key = CALLS.get(item["type"], "output")
    block, head = item_block(Item.model_validate(item)), _without(item, key)
    exact = {} if _value(block, head) == item[key] else {key: item[key]}
    return {**block, REMAINDER: {"item": head, **exact}}


def _without(data: Mapping[str, Any], *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


def to_items(read: ReadItems, messages: Sequence[Message]) -> list[Data]:
    """Return `messages`, those of `read` or a view of them, as items together with the fixed items of `read`.

    Fixed items at the front, and those in the end that both lists share, keep their places. The others follow the last
    message in front of that end.
    """
    tail = _common_tail(read.messages, messages)
    old_front, new_front = len(read.messages) - tail, len(messages) - tail
    placed: dict[int, list[Data]] = {}
    for fixed in read.fixed:
        messages_before = new_front + max(0, fixed.messages_before - old_front) if fixed.messages_before else 0
        placed.setdefault(messages_before, []).append(fixed.item)
    items = list(placed.get(0, ()))
    for at, message in enumerate(messages, 1):
        items += [*_items(message), *placed.get(at, ())]
    return _with_types_that_match(items)


def _with_types_that_match(items: Sequence[Data]) -> list[Data]:
    """Return `items` in which a call and its result have matching types. If one of them is a function's, the other half
    of a pair of a provider's tool is turned into a function's too."""
    functions = {item["call_id"] for item in items if str(item.get("type")).startswith("function_call")}
    return [
        _function_item(item_block(Item.model_validate(item)))
        if str(item.get("type")).removesuffix("_output") in TYPED_CALLS and item["call_id"] in functions
        else item
        for item in items
    ]


def _function_item(block: Block) -> Data:
    """Return a call or a result as an item of a function."""
    if block["type"] == "tool_result":
        head: Data = {"type": "function_call_output", "call_id": block["tool_use_id"]}
        return {**head, "output": _value(block, head)}
    head = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
    return {**head, "arguments": _value(block, head)}


def _common_tail(read: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return the number of messages at the end that both lists share. A message with the same calls or results counts
    as shared even if its content was edited."""
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
    """Return the items of one message. Blocks that did not change become the original items."""
    items: list[Data] = []
    parts: list[_MessagePart] = []
    for block in blocks(message):
        rest, bare = block.get(REMAINDER) or {}, _without(block, REMAINDER)
        first = parts[0].rest if parts else {}
        is_next_part = rest.get("at") == len(parts) and rest.get("item") == first.get("item") if rest else not first
        item = _item(bare, rest)
        if parts and (item is not None or not is_next_part):
            items.append(_message(message["role"], parts))
            parts = []
        if item is None:
            parts.append(_MessagePart(rest, bare))
        elif item:
            items.append(item)
    return [*items, _message(message["role"], parts)] if parts else items


class _MessagePart(NamedTuple):
    """Block that becomes a part of a message item, and its remainder."""

    rest: Data
    block: Block


def _item(bare: Block, rest: Data) -> Data | None:
    """Return the item of the block `bare` with the remainder `rest`. Return None for a block that is a part of a
    message, and an empty dict for a block that items cannot express."""
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


def _message(role: str, parts: Sequence[_MessagePart]) -> Data:
    """Return the message item with `parts`. An unchanged block becomes its original part. The item keeps its id only if
    none of its parts is missing."""
    rest = parts[0].rest
    head = rest.get("item") or {"type": "message", "role": role}
    if "item" in rest and "at" not in rest:  # its content was one text, without parts
        return {**head, "content": parts[0].block["text"]}
    content = []
    for part in parts:
        original = part.rest.get("part")
        is_unchanged = original is not None and part_block(original) == part.block
        content.append(original if is_unchanged else _part(part.block, role))
    return {**(head if rest.get("of") == len(parts) else _without(head, "id")), "content": content}


def _value(block: Block, head: Data) -> Any:
    """Return the input of the call `block`, or the content of the result `block`, as an item with the fields `head`
    contains it."""
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
