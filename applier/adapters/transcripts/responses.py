"""Items of OpenAI's Responses API to Anthropic messages and back: ``to_items(read_items(x), its messages) == x``.

Items of the host (tools, instructions, settings) keep their places. An item of an unknown type becomes an opaque
message. Nothing before a provider's encrypted compaction is touched, as it replaces all that. Fields without a place in
a block are kept beside it. A script of Codex that calls one tool is read as that call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from applier.adapters.opaque import carried_by, opaque_block
from applier.adapters.transcripts.openai_chat import REMAINDER, arguments_as_object, block_of_part
from planner.errors import TranscriptError
from planner.reading.messages import OPAQUE, THINKING, Block, Message, blocks, call_ids, result_ids

__all__ = ["CALLS", "OUTPUTS", "VIEW", "Item", "ReadItems", "item_blocks", "read_items", "spoken", "to_items"]

Data = dict[str, Any]
VIEW = "compactor_view"
"""Type of our own item, which never leaves the proxy: it contains the ``messages`` that it represents."""
_SERVER_CALLS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
"""Calls that the provider ran itself, with their result inside."""
_HOSTS = frozenset(
    {
        *("additional_tools", "configuration_update", "mcp_list_tools", "tool_search_call", "tool_search_output"),
        "compaction_trigger",
    }
)
"""Items outside the conversation: without them later calls would lack their tools."""
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills?_instructions|skill)>|# AGENTS\.md instructions for )"
)
"""Beginning of Codex's texts before the user's first words, and again after a compaction: ``<environment_context>``;
not ``See <skill>``."""
_ITEM = "item"
"""Type of a block that is a whole item."""
_NO_PARTS = frozenset({_ITEM, OPAQUE, "tool_use", "tool_result", *THINKING})
"""Types that no part of a message may have: here these are items of their own."""
CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Types of calls of the client's tools, and the field with their input."""
TYPED_CALLS = {"shell_call": "shell", "apply_patch_call": "apply_patch", "computer_call": "computer"}
"""Types of calls of tools that the provider defines and the client runs, and the names of these tools."""
OUTPUTS = frozenset(f"{kind}_output" for kind in (*CALLS, *TYPED_CALLS))
_FRAME = ("type", "id", "call_id", "status")


class Item(BaseModel):
    """A response item, or an event; each type uses some of the fields."""

    model_config = ConfigDict(extra="allow")

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
    """Return the sender of `item` (``user``, ``assistant``, ``system``, ``host`` for a result) and its blocks; None for
    an item of the provider or client."""
    if item.role and item.type in ("", "message"):
        return "system" if item.role == "developer" else item.role, item_blocks(item.content)
    if (item.type in CALLS or item.type in TYPED_CALLS) and item.call_id:
        return "assistant", [item_block(item)]
    return ("host", [item_block(item)]) if item.type in OUTPUTS else None


_SCRIPT = "exec"
"""Tool of Codex that takes a script, in JavaScript."""
_CALLED = {"exec_command": "cmd", "apply_patch": "input"}
"""Tools that scripts call, and the key of their argument."""
_CALL = re.compile(r'\btools\.(exec_command|apply_patch)\(\s*(?:\{\s*"?cmd"?\s*:\s*)?("(?:[^"\\\n]|\\.)*")(?=\s*[,})])')
"""``tools.exec_command({"cmd": "ls"})``, ``tools.apply_patch("*** Begin Patch…")``; not ``{cmd: "cat " + name}``."""
_STDIN = re.compile(
    r'\btools\.write_stdin\(\s*\{\s*"?session_id"?: ?(\d+), ?"?chars"?: ?("(?:[^"\\\n]|\\.)*")[^{}]*\}\s*\)'
)
"""``tools.write_stdin({session_id: 7, chars: "\\u0003"})``."""
_OPEN = re.compile(r"\btools\s*[.\[]|\b(?:if|for|while|switch|catch)\b|=>|\?|&&|\|\|")
"""Signs that a script's text does not show which calls it makes: ``tools[name]``, ``for (``; not ``text(r.output)``."""


def item_block(item: Item) -> Block:
    """Return `item` as a result or a call; a script that only calls one tool with literal arguments is that call."""
    if item.type in OUTPUTS:
        return _result(item)
    name, value = item.name or TYPED_CALLS.get(item.type, "local_shell"), item.action or {}
    if item.type in TYPED_CALLS:
        value = _typed_input(item)
    if item.type == "function_call":
        written = item.arguments
        value = written if isinstance(written, dict) else arguments_as_object(written)
    elif item.type == "custom_tool_call":
        called = _script_call(item.input) if name == _SCRIPT else None
        name, value = called or (name, {"input": item.input})
    return {"type": "tool_use", "id": item.call_id, "name": name, "input": value}


def _typed_input(item: Item) -> dict[str, Any]:
    """Return the input of a call of a provider's tool, in the words of other tools where these exist."""
    fields = item.model_dump(exclude_unset=True, exclude=set(_FRAME))
    commands = (item.action or {}).get("commands")
    if item.type == "shell_call" and isinstance(commands, list):
        return {"command": "\n".join(map(str, commands))}
    operation = fields.get("operation")
    return operation if isinstance(operation, dict) else fields


def _script_call(script: str) -> tuple[str, dict[str, Any]] | None:
    """Return the only tool that a `script` calls, and its input; None if its text does not show that."""
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
    failed = (isinstance(output, dict) and output.get("success") is False) or (item.model_extra or {}).get(
        "status"
    ) == "failed"
    if isinstance(output, dict):
        screen = output.get("type") == "computer_screenshot"
        content = [{**output, "type": "input_image"}] if screen else output.get("content")
    else:
        content = output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if isinstance(inner, list):
        failed = failed or any(str(block.get("text")).startswith("Script failed\n") for block in inner[:1])
        inner = _with_exit_codes(inner)
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _with_exit_codes(parts: Sequence[Block]) -> list[Block]:
    """Return a script's output with the ends of its commands as text; a failure among several comes first."""
    shown, codes = list[Block](), list[int]()
    for part in parts:
        text, code = _ended(part["text"]) if part["type"] == "text" else ("", None)
        shown.append({**part, "text": text} if text else part)
        codes += [] if code is None else [code]
    if len(codes) > 1 and any(codes) and shown[0]["type"] == "text":
        shown[0]["text"] += f"Process exited with code {next(filter(None, codes))}\n"
    return shown


def _ended(text: str) -> tuple[str, int | None]:
    """Return the output and exit code of a script's command in Codex's usual form; any other text unchanged."""
    try:
        chunk = json.loads(text) if text.startswith('{"chunk_id":') else {}
        code = chunk.get("exit_code")
        ended = f"running with session ID {chunk['session_id']}" if code is None else f"exited with code {code}"
        return f"Process {ended}\nOutput:\n{chunk['output']}", code
    except (ValueError, KeyError, RecursionError):
        return text, None


def item_blocks(content: str | list[dict[str, Any]] | None) -> list[Block]:
    """Return the blocks of an item's content."""
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    return [_part_block(part) for part in content]


def _part_block(part: dict[str, Any]) -> Block:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    if kind == "input_file":
        return _document(part)
    if kind is None and ("stdout" in part or "stderr" in part):
        return {"type": "text", "text": _shell_text(part)}
    return {"type": "unknown", **part}


def _document(part: dict[str, Any]) -> Block:
    named = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    if isinstance(part.get("file_data"), str):
        block = block_of_part({"type": "file", "file": _without(part, "type")})
        return block if block["type"] == "document" else {**part}
    for key, kind in (("file_url", "url"), ("file_id", "file")):
        if isinstance(part.get(key), str):
            return {"type": "document", "source": {"type": kind, key.replace("file_url", "url"): part[key]}, **named}
    return {**part}


def _shell_text(chunk: dict[str, Any]) -> str:
    """Return the output of one command of a shell call as text."""
    outcome = chunk.get("outcome")
    code = outcome.get("exit_code", outcome.get("type")) if isinstance(outcome, dict) else None
    ended = f"Process exited with code {code}\n" if code else ""
    return "\n".join([ended + str(chunk.get("stdout") or ""), str(chunk.get("stderr") or "")]).rstrip("\n") or ended


@dataclass
class ReadItems:
    """The conversation in a list of items, and the host's own items, each with the number of messages before it."""

    messages: list[Message] = field(default_factory=list)
    fixed: list[tuple[int, Data]] = field(default_factory=list)
    has_foreign: bool = False
    """True if the list begins with a provider's own compaction; `messages` has nothing of that and before it."""


def read_items(items: Sequence[Any]) -> ReadItems:
    """Read the `items` of a request's ``input``."""
    kinds = [_kind(item, f"input[{at}]") for at, item in enumerate(items)]
    unpaired = _unpaired(items, kinds)
    behind = 1 + max((at for at, kind in enumerate(kinds) if kind == "foreign"), default=-1)
    read = ReadItems(fixed=[(0, one) for item in items[:behind] for one in _shown(item)], has_foreign=behind > 0)
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


def _shown(item: Data) -> list[Data]:
    """Return `item` in a list; an item of ours gives the items that it represents."""
    return [one for message in item["messages"] for one in _items(message)] if item.get("type") == VIEW else [item]


def _kind(item: Any, place: str) -> str:
    """Return the kind of an item: ``user``, ``assistant``, ``result``, ``host``, our own type, ``foreign`` for a
    provider's compaction, or ``opaque``."""
    if not isinstance(item, dict):
        raise TranscriptError(f"{place}: expected an item as an object, found {item!r:.60}")
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
    """Return the ids of calls that stay opaque with their results: half a pair is opaque or missing."""
    by_kind: dict[str, set[str]] = {kind: set() for kind in ("assistant", "result", "opaque", "typed")}
    for item, kind in zip(items, kinds, strict=True):
        for own in (kind, "typed" if item.get("type") in TYPED_CALLS else ""):
            by_kind.get(own, set()).add(str(item.get("call_id")))
    calls, results = by_kind["assistant"], by_kind["result"]
    return (by_kind["typed"] - results) | (results - calls) | by_kind["opaque"]


def _is_context(item: Data) -> bool:
    """Return True for a message that Codex wrote in the user's name: every part of it is the host's."""
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
    """Return a block for each part, each with what it takes to restore the item."""
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
    """Return a call or a result with what it takes to restore the item."""
    if item["type"].removesuffix("_output") in TYPED_CALLS:
        return {**item_block(Item.model_validate(item)), REMAINDER: {"whole": item}}
    key = CALLS.get(item["type"], "output")
    block, head = item_block(Item.model_validate(item)), _without(item, key)
    exact = {} if _value(block, head) == item[key] else {key: item[key]}
    return {**block, REMAINDER: {"item": head, **exact}}


def _without(data: Mapping[str, Any], *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


def to_items(read: ReadItems, messages: Sequence[Message]) -> list[Data]:
    """Return `messages` (those that were `read`, or their compacted form) as items among the host's own, which keep
    their places."""
    tail = _common_tail(read.messages, messages)
    border, gone = len(messages) - tail, len(read.messages) - tail
    placed: dict[int, list[Data]] = {}
    for at, item in read.fixed:
        behind = at - gone + border if at >= gone else border
        placed.setdefault(behind if at else 0, []).append(item)
    items = list(placed.get(0, ()))
    for at, message in enumerate(messages, 1):
        items += [*_items(message), *placed.get(at, ())]
    return _paired_alike(items)


def _paired_alike(items: Sequence[Data]) -> list[Data]:
    """Return `items` with calls of a provider's tools as calls of functions where the other half became one."""
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
    """Return how many messages at the end of both are the same ones, edited or not."""
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
    """Return the item of a block; None for a part of a message, empty for a block that has no place in items."""
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
    """Return a message of these parts; one that lacks some is a new one without an id."""
    rest, first = parts[0]
    head = rest.get("item") or {"type": "message", "role": role}
    if "item" in rest and "at" not in rest:
        return {**head, "content": first["text"]}
    content = [rest["part"] if _is_exact(rest, bare) else _part(bare, role) for rest, bare in parts]
    return {**(head if rest.get("of") == len(parts) else _without(head, "id")), "content": content}


def _is_exact(rest: Data, bare: Block) -> bool:
    return "part" in rest and _part_block(rest["part"]) == bare


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
    """Return a block as a part of an item; text of an assistant has the annotations that it always has."""
    kind, source = block["type"], block.get("source")
    if kind.startswith(("input_", "output_")):
        return _without(block, REMAINDER)
    if block["type"] == "text":
        text = block["text"]
        own: Data = {"type": "output_text", "text": text, "annotations": []}
        return own if role == "assistant" else {"type": "input_text", "text": text}
    if block["type"] == "image" and isinstance(source, dict):
        media, data = source.get("media_type"), source.get("data")
        url = source.get("url") if source.get("type") == "url" else f"data:{media};base64,{data}"
        return {"type": "input_image", "image_url": url}
    if kind == "document" and isinstance(source, dict) and source.get("type") in _FILES:
        return _file(block, source)
    text = json.dumps(_without(block, REMAINDER), ensure_ascii=False)
    return {"type": "input_text" if role != "assistant" else "output_text", "text": text}


_FILES = {"base64": "file_data", "url": "file_url", "file": "file_id"}


def _file(block: Block, source: Mapping[str, Any]) -> Data:
    """Return a document as a part of an item."""
    kind, title = source["type"], block.get("title")
    value = {
        "base64": f"data:{source.get('media_type')};base64,{source.get('data')}",
        "url": source.get("url"),
        "file": source.get("file_id"),
    }[kind]
    return {"type": "input_file", **({"filename": title} if title else {}), _FILES[kind]: value}
