"""Items of OpenAI's Responses API to Anthropic messages and back: ``to_items(read_items(x), its messages) == x``.

Decides which items are the conversation and which are the host's own (tools, instructions, settings of a turn): those
stand where they are, whatever becomes of the conversation around them. Before an item that nobody here knows, as the
encrypted compaction of a provider, nothing is touched. What an item says beyond its block is kept beside that, so that
it can be undone exactly. Reasoning stays sealed, in the message that it led to. In requests, logs and dumps alike a
script of Codex that calls one tool is read as the call of that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from applier.adapters.transcripts.openai_chat import REMAINDER, arguments_as_object, block_of_part
from planner.errors import TranscriptError
from planner.reading.messages import THINKING, Block, Message, blocks, call_ids, result_ids

__all__ = ["CALLS", "OUTPUTS", "VIEW", "Item", "ReadItems", "item_blocks", "read_items", "spoken", "to_items"]

Data = dict[str, Any]
VIEW = "compactor_view"
"""The type of an item of ours, which never leaves the proxy: under ``messages`` it has those that it stands for."""
_SERVER_CALLS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
"""What the provider ran itself, with its result inside."""
_HOSTS = frozenset(
    {
        *("additional_tools", "configuration_update", "mcp_list_tools", "tool_search_call", "tool_search_output"),
        "compaction_trigger",
    }
)
"""Items that are no part of the conversation: without one of them later calls have no tools."""
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills?_instructions|skill)>|# AGENTS\.md instructions for )"
)
"""What Codex puts before the user's first words, and anew behind a compaction: ``<environment_context>``; not ``See
<skill>``, nor an earlier summary."""
_ITEM = "item"
"""The type of a block that is a whole item."""
_NO_PARTS = frozenset({_ITEM, "tool_use", "tool_result", *THINKING})
"""What no part of a message may call itself: here these are items of their own."""
CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Calls of the client's tools, and where each has its input."""
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


class Item(BaseModel):
    """A response item, or an event; each type uses some of the fields."""

    type: str = ""
    role: str = ""
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str | dict[str, Any] = ""
    input: str = ""
    action: dict[str, Any] | None = None
    output: str | list[dict[str, Any]] | dict[str, Any] | None = None
    num_turns: int = 0


def spoken(item: Item) -> tuple[str, list[Block]] | None:
    """Whose words `item` is (``user``, ``assistant``, ``system``, ``host`` for a result) and what it says; None: it is
    the provider's own, or the client's."""
    if item.role and item.type in ("", "message"):
        return "system" if item.role == "developer" else item.role, item_blocks(item.content)
    if item.type in CALLS and item.call_id:
        return "assistant", [item_block(item)]
    return ("host", [item_block(item)]) if item.type in OUTPUTS else None


_SCRIPT = "exec"
"""The tool that takes a script, in JavaScript."""
_CALLED = {"exec_command": "cmd", "apply_patch": "input"}
"""Tools that scripts call, and the key of what they are called with."""
_CALL = re.compile(r'\btools\.(exec_command|apply_patch)\(\s*(?:\{\s*"?cmd"?\s*:\s*)?("(?:[^"\\\n]|\\.)*")(?=\s*[,})])')
"""``tools.exec_command({"cmd": "ls"})``, ``tools.apply_patch("*** Begin Patch…")``; not ``{cmd: "cat " + name}``."""
_STDIN = re.compile(
    r'\btools\.write_stdin\(\s*\{\s*"?session_id"?: ?(\d+), ?"?chars"?: ?("(?:[^"\\\n]|\\.)*")[^{}]*\}\s*\)'
)
"""``tools.write_stdin({session_id: 7, chars: "\\u0003"})``."""
_OPEN = re.compile(r"\btools\s*[.\[]|\b(?:if|for|while|switch|catch)\b|=>|\?|&&|\|\|")
"""What leaves open which calls a script makes: ``tools[name]``, ``for (``; not ``text(r.output)``."""


def item_block(item: Item) -> Block:
    """The result that `item` is, or the call; of a script that calls one tool, with words that stand in it, the call of
    that: several commands are one of several lines, as a shell would be given them."""
    if item.type in OUTPUTS:
        return _result(item)
    name, value = item.name or "local_shell", item.action or {}
    if item.type == "function_call":
        told = item.arguments
        value = told if isinstance(told, dict) else arguments_as_object(told)
    elif item.type == "custom_tool_call":
        called = _script_call(item.input) if name == _SCRIPT else None
        name, value = called or (name, {"input": item.input})
    return {"type": "tool_use", "id": item.call_id, "name": name, "input": value}


def _script_call(script: str) -> tuple[str, dict[str, Any]] | None:
    """The one tool that a `script` calls, whatever it finds, and its input; None if its text does not say that."""
    calls, typed = _CALL.findall(script), _STDIN.findall(script)
    tools = [*{tool for tool, _ in calls}]
    if len(tools) + len(typed) != 1 or _OPEN.search(_STDIN.sub("", _CALL.sub("", script))):
        return None
    try:
        for session_id, characters in typed:
            return "write_stdin", {"session_id": int(session_id), "chars": json.loads(characters)}
        return tools[0], {_CALLED[tools[0]]: "\n".join(json.loads(literal) for _, literal in calls)}
    except ValueError:
        return None


def _result(item: Item) -> Block:
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    content = output.get("content") if isinstance(output, dict) else output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if isinstance(inner, list):
        failed = failed or any(str(block.get("text")).startswith("Script failed\n") for block in inner[:1])
        inner = _told(inner)
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _told(parts: Sequence[Block]) -> list[Block]:
    """What a script printed, with how its commands ended; that one of several failed is said first of all."""
    told, codes = list[Block](), list[int]()
    for part in parts:
        text, code = _ended(part["text"]) if part["type"] == "text" else ("", None)
        told.append({**part, "text": text} if text else part)
        codes += [] if code is None else [code]
    if len(codes) > 1 and any(codes) and told[0]["type"] == "text":
        told[0]["text"] += f"Process exited with code {next(filter(None, codes))}\n"
    return told


def _ended(text: str) -> tuple[str, int | None]:
    """How a command ended that a script ran and what it printed, as Codex says it of one without a script around it,
    and its code; any other text as it is."""
    try:
        told = json.loads(text) if text.startswith('{"chunk_id":') else {}
        code = told.get("exit_code")
        ended = f"running with session ID {told['session_id']}" if code is None else f"exited with code {code}"
        return f"Process {ended}\nOutput:\n{told['output']}", code
    except (ValueError, KeyError, RecursionError):
        return text, None


def item_blocks(content: str | list[dict[str, Any]] | None) -> list[Block]:
    """The blocks of an item's content."""
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    return [_part_block(part) for part in content]


def _part_block(part: dict[str, Any]) -> Block:
    if part.get("type") in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    return {"type": "unknown", **part}


@dataclass
class ReadItems:
    """The conversation in a list of items, and the host's own items, each with how many messages stand before it."""

    messages: list[Message] = field(default_factory=list)
    fixed: list[tuple[int, Data]] = field(default_factory=list)
    has_foreign: bool = False
    """Something stands in front that nobody here knows, and all before it: it belongs to who issued it."""


def read_items(items: Sequence[Any]) -> ReadItems:
    """The `items` of a request's ``input``.

    Raises:
        TranscriptError: an entry is no item; the text names its index.
    """
    kinds = [_kind(item, f"input[{at}]") for at, item in enumerate(items)]
    known = 1 + max((at for at, kind in enumerate(kinds) if not kind), default=-1)
    read = ReadItems(fixed=[(0, one) for item in items[:known] for one in _shown(item)], has_foreign=known > 0)
    open_role = ""
    for at in range(known, len(items)):
        item, kind = items[at], kinds[at]
        if kind == VIEW:
            read.messages += item["messages"]
        elif kind == "host":
            read.fixed.append((len(read.messages), item))
        elif kind == open_role != "user":
            read.messages[-1]["content"] += _blocks(item, f"input[{at}]")
        else:
            role = "assistant" if kind == "assistant" else "user"
            read.messages.append({"role": role, "content": _blocks(item, f"input[{at}]")})
        open_role = kind
    return read


def _shown(item: Data) -> list[Data]:
    """`item`; of ours, what it stands for."""
    return [one for message in item["messages"] for one in _items(message)] if item.get("type") == VIEW else [item]


def _kind(item: Any, place: str) -> str:
    """Whose an item is: ``user``, ``assistant``, ``result`` (of a call), ``host``, or that of ours; empty if nobody
    knows."""
    if not isinstance(item, dict):
        raise TranscriptError(f"{place}: expected an item as an object, found {item!r:.60}")
    kind, role = str(item.get("type") or "message"), item.get("role")
    key = CALLS.get(kind) or ("output" if kind in OUTPUTS else "")
    is_whole = isinstance(item.get("call_id"), str) and item.get(key) is not None
    if kind == "message":
        said = role == "assistant" or (role == "user" and not _is_context(item))
        return ("host" if not said else str(role)) if item.get("content") and role else "host"
    if kind == "reasoning" or kind in _SERVER_CALLS or (kind in CALLS and is_whole):
        return "assistant"
    if kind in OUTPUTS and is_whole:
        return "result"
    return "host" if kind in _HOSTS else VIEW if kind == VIEW else ""


def _is_context(item: Data) -> bool:
    """True for a user's message of Codex's own: all that is in it was put there by the host."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return all(isinstance(part, dict) and _CONTEXT.match(str(part.get("text") or "")) for part in parts)


def _blocks(item: Data, place: str) -> list[Block]:
    try:
        if item.get("type", "message") == "message":
            return _said(item)
        if item["type"] == "reasoning":
            return [_thought(item)]
        if item["type"] in _SERVER_CALLS:
            return [{"type": _ITEM, "item": item}]
        return [_paired(item)]
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TranscriptError(f"{place}: no item of the type that it names ({error!r:.60})") from None


def _said(item: Data) -> list[Block]:
    """A block for each part, with what is needed to put them together again."""
    head = _without(item, "content")
    content = Item.model_validate({"content": item["content"]}).content
    if isinstance(content, str):
        return [{"type": "text", "text": content, REMAINDER: {"item": head}}]
    made = []
    for at, part in enumerate(content or ()):
        block = _part_block(part)
        if block["type"] in _NO_PARTS:
            raise ValueError(block["type"])
        exact = {} if _part(block, item["role"]) == part else {"part": part}
        made.append({**block, REMAINDER: {"item": head, "at": at, "of": len(content or ()), **exact}})
    return made


def _thought(item: Data) -> Block:
    sealed = item.get("encrypted_content")
    head = _without(item, "encrypted_content") if isinstance(sealed, str) else item
    return {"type": "redacted_thinking", "data": sealed or "", REMAINDER: {"item": head}}


def _paired(item: Data) -> Block:
    """A call or a result, with what is needed to say it again as it was said."""
    key = CALLS.get(item["type"], "output")
    block, head = item_block(Item.model_validate(item)), _without(item, key)
    exact = {} if _value(block, head) == item[key] else {key: item[key]}
    return {**block, REMAINDER: {"item": head, **exact}}


def _without(data: Mapping[str, Any], *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


def to_items(read: ReadItems, messages: Sequence[Message]) -> list[Data]:
    """`messages`, the conversation that was `read` or what it was compacted to, as items; the host's own go where they
    stood, those in the compacted part right behind what stands for it."""
    tail = _common_tail(read.messages, messages)
    border, gone = len(messages) - tail, len(read.messages) - tail
    placed: dict[int, list[Data]] = {}
    for at, item in read.fixed:
        behind = at - gone + border if at >= gone else border
        placed.setdefault(behind if at else 0, []).append(item)
    items = list(placed.get(0, ()))
    for at, message in enumerate(messages, 1):
        items += [*_items(message), *placed.get(at, ())]
    return items


def _common_tail(read: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages at the end of both are the same ones, edited or not."""
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
    """The items of one message: those that its blocks were, where they say what they said."""
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
    """The item that a block is; None for a part of a message, empty for what has no place in items."""
    kind, head = bare["type"], rest.get("item") or {}
    if kind == _ITEM:
        return dict(bare["item"])
    if kind in THINKING:
        return {**head, **({"encrypted_content": bare["data"]} if bare.get("data") else {})}
    if kind == "tool_use":
        head = head or {"type": "function_call", "call_id": bare["id"], "name": bare["name"]}
    elif kind == "tool_result":
        head = head or {"type": "function_call_output", "call_id": bare["tool_use_id"]}
    else:
        return None
    key = CALLS.get(head["type"], "output")
    exact = key in rest and item_block(Item.model_validate({**head, key: rest[key]})) == bare
    return {**head, key: rest[key] if exact else _value(bare, head)}


def _message(role: str, parts: Sequence[tuple[Data, Block]]) -> Data:
    """A message of these parts; one that lacks some is a new one without an id."""
    rest, first = parts[0]
    head = rest.get("item") or {"type": "message", "role": role}
    if "item" in rest and "at" not in rest:
        return {**head, "content": first["text"]}
    content = [rest["part"] if _is_exact(rest, bare) else _part(bare, role) for rest, bare in parts]
    return {**(head if rest.get("of") == len(parts) else _without(head, "id")), "content": content}


def _is_exact(rest: Data, bare: Block) -> bool:
    return "part" in rest and _part_block(rest["part"]) == bare


def _value(block: Block, head: Data) -> Any:
    """What a call was called with, or what came of it, as an item that begins with `head` says it."""
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
    """What a block of text or an image is in an item; of an assistant's text with the notes that it always has."""
    source = block.get("source")
    if block["type"] == "text":
        text = block["text"]
        own: Data = {"type": "output_text", "text": text, "annotations": []}
        return own if role == "assistant" else {"type": "input_text", "text": text}
    if block["type"] == "image" and isinstance(source, dict):
        media, data = source.get("media_type"), source.get("data")
        url = source.get("url") if source.get("type") == "url" else f"data:{media};base64,{data}"
        return {"type": "input_image", "image_url": url}
    text = json.dumps(_without(block, REMAINDER), ensure_ascii=False)
    return {"type": "input_text" if role != "assistant" else "output_text", "text": text}
