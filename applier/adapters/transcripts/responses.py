"""Converts items of OpenAI's Responses API to Anthropic messages and back; unchanged messages give the same items.

Items that define tools, instructions or settings keep their places. An item of an unknown type is passed on unchanged.
A provider's encrypted compaction replaces everything before it, so nothing up to it is changed. Data of an item that
has no place in an Anthropic block, the *remainder*, is kept under an additional key of the block (see `_blocks`).

Codex may call its tools from a script. If a script only calls one tool, with literal arguments, it is read as that
call, and its output as the tool's output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from applier.adapters.transcripts.openai_chat import REMAINDER, arguments_as_object, block_of_part, url_of
from applier.adapters.transcripts.transcript import opaque_block
from planner.errors import TranscriptError
from planner.reading.messages import OPAQUE, THINKING, Block, Message, blocks, call_ids, result_ids
from planner.reading.secrets import quoted

CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Types of items that call a tool of the client, each with the name of the field that contains the input."""
TYPED_CALLS = {"shell_call": "shell", "apply_patch_call": "apply_patch", "computer_call": "computer"}
"""Types of items that call a tool of OpenAI's own which the client runs, each with a name for the tool."""
OUTPUTS = frozenset(f"{kind}_output" for kind in (*CALLS, *TYPED_CALLS))
"""Types of items that contain a tool's result."""


class Item(BaseModel):
    """Item of the Responses API: a message, a tool call, a tool result or other; each type uses some of the fields."""

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


def sender_and_content(item: Item) -> tuple[str, list[Block]] | None:
    """Return the sender and the content of `item`, as Anthropic blocks. The sender is ``user``, ``assistant``,
    ``system``, or ``host`` for a tool's result. Return None for an item that is not part of the conversation."""
    if item.role and item.type in ("", "message"):  # a message may lack its type
        return "system" if item.role == "developer" else item.role, item_blocks(item.content)
    if (item.type in CALLS or item.type in TYPED_CALLS) and item.call_id:
        return "assistant", [item_block(item)]
    return ("host", [item_block(item)]) if item.type in OUTPUTS else None


_SCRIPT = "exec"
"""Name of Codex's tool that runs a script in JavaScript, which may call other tools."""
_SCRIPT_ARGUMENTS = {"exec_command": "cmd", "apply_patch": "input"}
"""Tools that scripts call, each with the name of its argument."""
_CALL = re.compile(r'\btools\.(exec_command|apply_patch)\(\s*(?:\{\s*"?cmd"?\s*:\s*)?("(?:[^"\\\n]|\\.)*")(?=\s*[,})])')
"""Call in a script with a literal argument: ``tools.exec_command({"cmd": "ls"})``; not ``{cmd: "cat " + name}``."""
_STDIN = re.compile(
    r'\btools\.write_stdin\(\s*\{\s*"?session_id"?: ?(\d+), ?"?chars"?: ?("(?:[^"\\\n]|\\.)*")[^{}]*\}\s*\)'
)
"""Call in a script that types into a running command: ``tools.write_stdin({session_id: 7, chars: "\\u0003"})``."""
_OPEN = re.compile(r"\btools\s*[.\[]|\b(?:if|for|while|switch|catch)\b|=>|\?|&&|\|\|")
"""Signs that a script's text does not show which calls it makes: ``tools[name]``, ``for (``; not ``text(r.output)``."""


def item_block(item: Item) -> Block:
    """Return a tool call or tool result as an Anthropic block. A script that only calls one tool becomes that call."""
    if item.type in OUTPUTS:
        return _result(item)
    name, value = item.name or TYPED_CALLS.get(item.type, "local_shell"), item.action or {}
    if item.type == "shell_call" and isinstance(value.get("commands"), list):
        value = {"command": "\n".join(map(str, value["commands"]))}
    elif item.type in TYPED_CALLS:  # ``{"operation": {…}}`` of a patch, or fields such as the ``actions`` on a screen
        fields = item.model_dump(exclude_unset=True, exclude={"type", "id", "call_id", "status"})
        value = fields["operation"] if isinstance(fields.get("operation"), dict) else fields
    elif item.type == "function_call":
        arguments = item.arguments
        value = arguments if isinstance(arguments, dict) else arguments_as_object(arguments)
    elif item.type == "custom_tool_call":
        script_call = _script_call(item.input) if name == _SCRIPT else None
        name, value = script_call or (name, {"input": item.input})
    return {"type": "tool_use", "id": item.call_id, "name": name, "input": value}


def _script_call(script: str) -> tuple[str, dict[str, Any]] | None:
    """Return name and input of the only tool that `script` calls; None if it calls others, or uses loops, variables."""
    calls, typed = _CALL.findall(script), _STDIN.findall(script)
    tools = [*{tool for tool, _ in calls}]
    rest = _STDIN.sub("", _CALL.sub("", script))
    if len(tools) + len(typed) != 1 or _OPEN.search(rest):
        return None
    try:
        if typed:
            session_id, characters = typed[0]
            return "write_stdin", {"session_id": int(session_id), "chars": json.loads(characters)}
        # several calls of the same tool are one call with an argument of several lines
        return tools[0], {_SCRIPT_ARGUMENTS[tools[0]]: "\n".join(json.loads(literal) for _, literal in calls)}
    except ValueError:
        return None


def _result(item: Item) -> Block:
    """Return the tool result in `item` as a block, with exit codes as text, and ``is_error`` for a failure."""
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    failed = failed or (item.model_extra or {}).get("status") == "failed"
    if isinstance(output, dict):
        is_screenshot = output.get("type") == "computer_screenshot"
        content = [{**output, "type": "input_image"}] if is_screenshot else output.get("content")
    else:
        content = output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if isinstance(inner, list):  # its first block may be the header of a script's output
        failed = failed or any(str(block.get("text")).startswith("Script failed\n") for block in inner[:1])
        inner = _with_exit_codes(inner)
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _with_exit_codes(parts: Sequence[Block]) -> list[Block]:
    """Return the parts of a script's output with each command's exit code as text. If one of several commands failed,
    its code is also added to the first part, which is the header of the output."""
    shown, codes = list[Block](), list[int]()
    for part in parts:
        text, code = _command_output(part["text"]) if part["type"] == "text" else ("", None)
        shown.append({**part, "text": text} if text else part)
        codes += [] if code is None else [code]
    if len(codes) > 1 and any(codes) and shown[0]["type"] == "text":
        shown[0]["text"] += f"Process exited with code {next(filter(None, codes))}\n"
    return shown


def _command_output(text: str) -> tuple[str, int | None]:
    """Return the output of a command and its exit code (None if it still runs), from the JSON `text` that a script gets
    for the command; any other text is returned unchanged, with None."""
    try:
        chunk = json.loads(text) if text.startswith('{"chunk_id":') else {}
        code = chunk.get("exit_code")
        ended = f"running with session ID {chunk['session_id']}" if code is None else f"exited with code {code}"
        return f"Process {ended}\nOutput:\n{chunk['output']}", code
    except (ValueError, KeyError, RecursionError):
        return text, None


def item_blocks(content: str | list[dict[str, Any]] | None) -> list[Block]:
    """Return the `content` of an item (a text, parts or None) as Anthropic blocks."""
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    return [part_block(part) for part in content]


def part_block(part: dict[str, Any]) -> Block:
    """Return a part of an item's content as an Anthropic block; a part of an unknown type keeps its fields."""
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    if kind == "input_file":
        return _document(part)
    if kind is None and ("stdout" in part or "stderr" in part):  # output of one command of a shell call
        outcome = part.get("outcome")
        code = outcome.get("exit_code", outcome.get("type")) if isinstance(outcome, dict) else None
        ended = f"Process exited with code {code}\n" if code else ""
        text = "\n".join([ended + str(part.get("stdout") or ""), str(part.get("stderr") or "")]).rstrip("\n")
        return {"type": "text", "text": text or ended}
    return {"type": "unknown", **part}


def _document(part: dict[str, Any]) -> Block:
    """Return `part`, a file in an item's content, as a document block; a copy of it if it has no data, URL or id."""
    title = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    if isinstance(part.get("file_data"), str):
        block = block_of_part({"type": "file", "file": {key: value for key, value in part.items() if key != "type"}})
        return block if block["type"] == "document" else {**part}
    for key, kind in (("file_url", "url"), ("file_id", "file")):
        if isinstance(part.get(key), str):
            return {"type": "document", "source": {"type": kind, key.replace("file_url", "url"): part[key]}, **title}
    return {**part}


Data = dict[str, Any]
VIEW = "compactor_view"
"""Type of the proxy's own item, never sent to the provider: it contains the messages of a compacted conversation."""
_SERVER_CALLS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
"""Types of items for tool calls that the provider ran itself; each item contains the result."""
_SETUP_ITEMS = frozenset(
    {
        *("additional_tools", "configuration_update", "mcp_list_tools", "tool_search_call", "tool_search_output"),
        "compaction_trigger",
    }
)
"""Types of items by which the client defines tools or settings; they are not part of the conversation."""
_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills?_instructions|skill)>|# AGENTS\.md instructions for )"
)
"""Beginning of Codex's own texts in a user's message: ``<environment_context>``; not ``See <skill>``."""
_ITEM = "item"
"""Type of a block that contains a whole item, unchanged."""
_NO_PARTS = frozenset({_ITEM, OPAQUE, "tool_use", "tool_result", *THINKING})
"""Block types that a part of a message item must not have, because each stands for an item of its own."""


class FixedItem(NamedTuple):
    """Item that is sent unchanged and never compacted: it defines tools or settings, or a provider compacted it."""

    messages_before: int
    """Number of messages of the conversation before the item."""
    item: Data


@dataclass
class ReadItems:
    """Conversation that was read from a list of items, and the items that are not part of it."""

    messages: list[Message] = field(default_factory=list)
    fixed: list[FixedItem] = field(default_factory=list)
    has_foreign: bool = False
    """True if the items contain a compaction by the provider (encrypted); then `messages` begins after it."""


def read_items(items: Sequence[Any]) -> ReadItems:
    """Convert `items`, the ``input`` of a request, to Anthropic messages; raise TranscriptError if one is malformed.

    Consecutive items of the assistant become one message, and so do consecutive tool results. Items up to the
    provider's newest compaction are fixed: they are sent unchanged.
    """
    kinds = [_kind(item, f"input[{at}]") for at, item in enumerate(items)]
    unpaired = _unpaired(items, kinds)
    start = 1 + max((at for at, kind in enumerate(kinds) if kind == "foreign"), default=-1)
    read = ReadItems(has_foreign=start > 0)
    for item in items[:start]:
        is_view = item.get("type") == VIEW
        plain = [one for message in item["messages"] for one in _items(message)] if is_view else [item]
        read.fixed += [FixedItem(0, one) for one in plain]
    last_kind, open_calls = "", set[str]()  # kind of the item before; ids of calls whose result has not come yet
    for at in range(start, len(items)):
        item, kind = items[at], kinds[at]
        if item.get("call_id") in unpaired:
            kind = "opaque"
        if kind == VIEW:
            read.messages += item["messages"]
        elif kind == "host":
            read.fixed.append(FixedItem(len(read.messages), item))
        elif kind == "opaque":
            role = "assistant" if open_calls else "user"  # no user's message may come between a call and its result
            read.messages.append({"role": role, "content": [opaque_block(str(item.get("type")), item)]})
        elif kind == last_kind and kind in ("assistant", "result"):
            read.messages[-1]["content"] += _blocks(item, f"input[{at}]")
        else:
            role = "assistant" if kind == "assistant" else "user"
            read.messages.append({"role": role, "content": _blocks(item, f"input[{at}]")})
        if kind in ("assistant", "result") and isinstance(item.get("call_id"), str):
            open_calls ^= {item["call_id"]}  # a call adds its id, and its result removes it
        last_kind = kind
    return read


def _kind(item: Any, place: str) -> str:
    """Return how to treat `item`: as a message or result (``user``, ``assistant``, ``result``), a definition or text of
    the client (``host``), the proxy's item (`VIEW`), a provider's compaction (``foreign``), or unknown (``opaque``)."""
    if not isinstance(item, dict):
        raise TranscriptError(f"{place}: expected an item as an object, found {quoted(item)}")
    kind, role = str(item.get("type") or "message"), item.get("role")
    if kind == "message":
        content = item.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        is_context = all(isinstance(part, dict) and _CONTEXT.match(str(part.get("text") or "")) for part in parts)
        is_spoken = role == "assistant" or (role == "user" and not is_context)
        return str(role) if is_spoken and content else "host"
    if kind in _SETUP_ITEMS or kind == VIEW:
        return "host" if kind in _SETUP_ITEMS else VIEW
    if kind == "reasoning" or kind in _SERVER_CALLS:
        return "assistant"
    key = CALLS.get(kind, "output" if kind in OUTPUTS else "call_id")  # the field without which it cannot be converted
    may_lack_it = kind == "apply_patch_call_output"
    is_whole = isinstance(item.get("call_id"), str) and (may_lack_it or item.get(key) is not None)
    if is_whole and (kind in CALLS or kind in TYPED_CALLS or kind in OUTPUTS):
        return "result" if kind in OUTPUTS else "assistant"
    return "foreign" if "compaction" in kind else "opaque"


def _unpaired(items: Sequence[Data], kinds: Sequence[str]) -> set[str]:
    """Return the ids of tool calls whose items cannot be converted and are passed on unchanged: one of their items is
    unknown, a result has no call, or a call of a tool that OpenAI defines has no result."""
    ids: dict[str, set[str]] = {kind: set() for kind in ("assistant", "result", "opaque")}
    typed_calls: set[str] = set()
    for item, kind in zip(items, kinds, strict=True):
        call_id = str(item.get("call_id"))
        ids.get(kind, set()).add(call_id)
        if item.get("type") in TYPED_CALLS:
            typed_calls.add(call_id)
    return (typed_calls - ids["result"]) | (ids["result"] - ids["assistant"]) | ids["opaque"]


def _blocks(item: Data, place: str) -> list[Block]:
    """Return the blocks for `item`, each with the data that restores the item exactly (its remainder).

    Keys of a remainder: ``item``, the item's fields that are not in the block; ``part``, or the name of the item's
    main field, with its exact value if the block does not give it back; ``at`` and ``of``, the index of the block among
    the parts of a message item and their number; ``whole``, the complete item.
    """
    try:
        if item.get("type", "message") == "message":
            return _message_blocks(item)
        if item["type"] == "reasoning":
            sealed = item.get("encrypted_content")
            head = _without(item, "encrypted_content") if isinstance(sealed, str) else item
            return [{"type": "redacted_thinking", "data": sealed or "", REMAINDER: {"item": head}}]
        if item["type"] in _SERVER_CALLS:
            return [{"type": _ITEM, "item": item}]
        block = item_block(Item.model_validate(item))
        if item["type"].removesuffix("_output") in TYPED_CALLS:
            return [{**block, REMAINDER: {"whole": item}}]
        key = CALLS.get(item["type"], "output")
        head = _without(item, key)
        exact = {} if _value(block, head) == item[key] else {key: item[key]}
        return [{**block, REMAINDER: {"item": head, **exact}}]
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TranscriptError(f"{place}: no item of the type that it names ({error!r:.60})") from None


def _message_blocks(item: Data) -> list[Block]:
    """Return a block for each part of a message item, with its remainder (see `_blocks`)."""
    head = _without(item, "content")
    content = Item.model_validate({"content": item["content"]}).content
    if isinstance(content, str):
        return [{"type": "text", "text": content, REMAINDER: {"item": head}}]
    made = []
    for at, part in enumerate(content or ()):
        block = part_block(part)
        if block["type"] in _NO_PARTS:  # `_items` would make an item of it
            raise ValueError(block["type"])
        exact = {} if _part(block, item["role"]) == part else {"part": part}
        made.append({**block, REMAINDER: {"item": head, "at": at, "of": len(content or ()), **exact}})
    return made


def _without(data: Mapping[str, Any], *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


def to_items(read: ReadItems, messages: Sequence[Message]) -> list[Data]:
    """Return `messages`, usually the compacted form of `read.messages`, as items, with the fixed items of `read`
    (definitions of tools and settings) among them.

    Fixed items at the front keep their places, and so do those between the last messages, as far as these are the same
    in both lists. The others are put just before these last messages.
    """
    tail_count = _common_tail(read.messages, messages)
    old_front, new_front = len(read.messages) - tail_count, len(messages) - tail_count
    placed: dict[int, list[Data]] = {}  # fixed items by the number of messages before them
    for fixed in read.fixed:
        place_in_tail = max(0, fixed.messages_before - old_front)
        messages_before = new_front + place_in_tail if fixed.messages_before else 0
        placed.setdefault(messages_before, []).append(fixed.item)
    items = list(placed.get(0, ()))
    for count, message in enumerate(messages, 1):
        items += [*_items(message), *placed.get(count, ())]
    # the API demands matching types of a call and its result, and `_item` makes changed ones a function's item
    functions = {item["call_id"] for item in items if str(item.get("type")).startswith("function_call")}
    for at, item in enumerate(items):
        if str(item.get("type")).removesuffix("_output") in TYPED_CALLS and item["call_id"] in functions:
            items[at] = _function_item(item_block(Item.model_validate(item)))
    return items


def _function_item(block: Block) -> Data:
    """Return a ``tool_use`` or ``tool_result`` block as a ``function_call`` or ``function_call_output`` item."""
    if block["type"] == "tool_result":
        head: Data = {"type": "function_call_output", "call_id": block["tool_use_id"]}
        return {**head, "output": _value(block, head)}
    head = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
    return {**head, "arguments": _value(block, head)}


def _common_tail(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Count the equal messages at the end of both lists; edited ones count if they have the same calls or results."""
    count = 0
    for before, after in zip(reversed(old), reversed(new), strict=False):
        ids_before, ids_after = ((call_ids(message), result_ids(message)) for message in (before, after))
        has_same_ids = before["role"] == after["role"] and ids_before == ids_after and ids_before != ([], [])
        if before != after and not has_same_ids:
            break
        count += 1
    return count


def _items(message: Message) -> list[Data]:
    """Return the items of one Anthropic message. Blocks that did not change become the original items."""
    items: list[Data] = []
    parts: list[tuple[Data, Block]] = []  # blocks of the same message item, each with its remainder
    for block in blocks(message):
        remainder, bare = block.get(REMAINDER) or {}, _without(block, REMAINDER)
        first = parts[0][0] if parts else {}
        continues = remainder.get("at") == len(parts) and remainder.get("item") == first.get("item")
        is_next_part = continues if remainder else not first  # new blocks (no remainder) only follow new ones
        item = _item(bare, remainder)
        if parts and (item is not None or not is_next_part):
            items.append(_message(message["role"], parts))
            parts = []
        if item is None:
            parts.append((remainder, bare))
        elif item:
            items.append(item)
    return [*items, _message(message["role"], parts)] if parts else items


def _item(bare: Block, remainder: Data) -> Data | None:
    """Return the item for a block, or None if the block is a part of a message item. `bare`: the block without its
    `remainder` (the data that restores the original item). An empty dict means that no item can express the block."""
    kind, head = bare["type"], remainder.get("item") or {}
    if kind == OPAQUE:
        return dict(bare["carried"])
    if "whole" in remainder:
        is_same = item_block(Item.model_validate(remainder["whole"])) == bare
        return dict(remainder["whole"]) if is_same else _function_item(bare)
    if kind == _ITEM:  # a call that the provider ran itself
        return dict(bare["item"])
    if kind in THINKING:  # only the provider can make such an item, so new thinking has none
        return {**head, **({"encrypted_content": bare["data"]} if bare.get("data") else {})}
    if kind not in ("tool_use", "tool_result"):
        return None
    if not head:  # a block that a compaction made
        return _function_item(bare)
    key = CALLS.get(head["type"], "output")
    exact = key in remainder and item_block(Item.model_validate({**head, key: remainder[key]})) == bare
    return {**head, key: remainder[key] if exact else _value(bare, head)}


def _message(role: str, parts: Sequence[tuple[Data, Block]]) -> Data:
    """Return the message item with `parts`, each a remainder and a block; unchanged blocks get their original form. If
    the original item had other parts, too, the new one has no id."""
    first, block = parts[0]
    head = first.get("item") or {"type": "message", "role": role}
    if "item" in first and "at" not in first:  # its content was one text, without parts
        return {**head, "content": block["text"]}
    content = [
        remainder["part"] if "part" in remainder and part_block(remainder["part"]) == block else _part(block, role)
        for remainder, block in parts
    ]
    return {**(head if first.get("of") == len(parts) else _without(head, "id")), "content": content}


def _value(block: Block, head: Data) -> Any:
    """Return the input of a tool call, or the content of a tool result, in the form for its item. `head`: the other
    fields of this item; their ``type`` decides the form (JSON text, script, object)."""
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        return content if isinstance(content, str) else [_part(inner, "user") for inner in content]
    value = block["input"]
    if head["type"] == "function_call":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if head["type"] == "custom_tool_call":
        free_text = value.get("input", "") if isinstance(value, dict) else ""
        if block["name"] == head.get("name"):
            return free_text
        # the call was read from a script (`_script_call`), so it becomes one again
        return f"text(await tools.{block['name']}({json.dumps(free_text or value, ensure_ascii=False)}))"
    return value


_FILES = {"base64": "file_data", "url": "file_url", "file": "file_id"}
"""Field of a file in an item that holds its content, by the type of the ``source`` in the Anthropic block."""


def _part(block: Block, role: str) -> Data:
    """Return an Anthropic `block` as a part of a message item by `role`; a block of another type as JSON text."""
    kind, source = block["type"], block.get("source")
    if kind.startswith(("input_", "output_")):  # a part that `part_block` left as it was
        return _without(block, REMAINDER)
    if kind in ("image", "document") and isinstance(source, dict) and source.get("type") in _FILES:
        form, title = source["type"], block.get("title")
        value = source.get("file_id") if form == "file" else url_of(source)
        if kind == "image":
            return {"type": "input_image", "file_id" if form == "file" else "image_url": value}
        return {"type": "input_file", **({"filename": title} if title else {}), _FILES[form]: value}
    text = block["text"] if kind == "text" else json.dumps(_without(block, REMAINDER), ensure_ascii=False)
    output: Data = {"type": "output_text", "text": text, "annotations": []}
    return output if role == "assistant" else {"type": "input_text", "text": text}
