"""Items of OpenAI's Responses API to Anthropic messages and back: ``to_items(read_items(x), its messages) == x``.

Items of the host (tools, instructions, settings) keep their places. An item of an unknown type becomes an opaque
message. A provider's encrypted compaction replaces everything before it, so nothing up to it is changed. Data of an
item without a place in a block, the *remainder*, is kept under an additional key of the block.

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
from applier.adapters.transcripts.transcript import carried_by, opaque_block
from planner.errors import TranscriptError
from planner.reading.messages import OPAQUE, THINKING, Block, Message, blocks, call_ids, result_ids
from planner.reading.secrets import quoted

CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Types of calls of the client's tools, and the field with their input."""
TYPED_CALLS = {"shell_call": "shell", "apply_patch_call": "apply_patch", "computer_call": "computer"}
"""Names of tools that the provider defines and the client runs, by the types of their calls."""
OUTPUTS = frozenset(f"{kind}_output" for kind in (*CALLS, *TYPED_CALLS))
_FRAME = ("type", "id", "call_id", "status")
"""Fields of a call that are not its input."""


class Item(BaseModel):
    """Response item, or event; each type uses some of the fields."""

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
    """Return the sender and the blocks of `item`; None for an item outside the conversation. The sender is ``user``,
    ``assistant``, ``system``, or ``host`` for a result."""
    if item.role and item.type in ("", "message"):
        return "system" if item.role == "developer" else item.role, item_blocks(item.content)
    if (item.type in CALLS or item.type in TYPED_CALLS) and item.call_id:
        return "assistant", [item_block(item)]
    return ("host", [item_block(item)]) if item.type in OUTPUTS else None


_SCRIPT = "exec"
"""Tool of Codex that takes a script, in JavaScript."""
_CALLED = {"exec_command": "cmd", "apply_patch": "input"}
"""Argument of each tool that scripts call."""
_CALL = re.compile(r'\btools\.(exec_command|apply_patch)\(\s*(?:\{\s*"?cmd"?\s*:\s*)?("(?:[^"\\\n]|\\.)*")(?=\s*[,})])')
"""``tools.exec_command({"cmd": "ls"})``, ``tools.apply_patch("*** Begin Patch…")``; not ``{cmd: "cat " + name}``."""
_STDIN = re.compile(
    r'\btools\.write_stdin\(\s*\{\s*"?session_id"?: ?(\d+), ?"?chars"?: ?("(?:[^"\\\n]|\\.)*")[^{}]*\}\s*\)'
)
"""``tools.write_stdin({session_id: 7, chars: "\\u0003"})``."""
_OPEN = re.compile(r"\btools\s*[.\[]|\b(?:if|for|while|switch|catch)\b|=>|\?|&&|\|\|")
"""Signs that a script's text does not show which calls it makes: ``tools[name]``, ``for (``; not ``text(r.output)``."""


def item_block(item: Item) -> Block:
    """Return `item`, which is a call or a result, as a block. A script that only calls one tool becomes that call."""
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
    """Return the input of a call of a tool that the provider defines, named as the client's own tools name theirs."""
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
    """Return the tool result in `item`, with ``is_error`` if the item reports a failure. If a script's commands report
    exit codes, these become text."""
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    failed = failed or (item.model_extra or {}).get("status") == "failed"
    if isinstance(output, dict):
        is_screenshot = output.get("type") == "computer_screenshot"
        content = [{**output, "type": "input_image"}] if is_screenshot else output.get("content")
    else:
        content = output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if isinstance(inner, list):
        failed = failed or any(str(block.get("text")).startswith("Script failed\n") for block in inner[:1])
        inner = _with_exit_codes(inner)
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _with_exit_codes(parts: Sequence[Block]) -> list[Block]:
    """Return the parts of a script's output with the exit code of each command as text. If there are several commands
    and one failed, add the code of the first failure to the first part."""
    shown, codes = list[Block](), list[int]()
    for part in parts:
        text, code = _command_output(part["text"]) if part["type"] == "text" else ("", None)
        shown.append({**part, "text": text} if text else part)
        codes += [] if code is None else [code]
    if len(codes) > 1 and any(codes) and shown[0]["type"] == "text":
        shown[0]["text"] += f"Process exited with code {next(filter(None, codes))}\n"
    return shown


def _command_output(text: str) -> tuple[str, int | None]:
    """Return the output of a command in a script, as Codex writes it outside scripts, and the exit code. The code is
    None if the command still runs. A `text` that is no such output is returned unchanged, with None."""
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
    return [part_block(part) for part in content]


def part_block(part: dict[str, Any]) -> Block:
    """Return the block for a part of an item's content; a part of an unknown type keeps its fields."""
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
    """Return the file in `part` as a document block with its data, URL or id; `part` unchanged if it has none."""
    title = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    if isinstance(part.get("file_data"), str):
        block = block_of_part({"type": "file", "file": {key: value for key, value in part.items() if key != "type"}})
        return block if block["type"] == "document" else {**part}
    for key, kind in (("file_url", "url"), ("file_id", "file")):
        if isinstance(part.get(key), str):
            return {"type": "document", "source": {"type": kind, key.replace("file_url", "url"): part[key]}, **title}
    return {**part}


def _shell_text(chunk: dict[str, Any]) -> str:
    """Return the output of one command of a shell call as text."""
    outcome = chunk.get("outcome")
    code = outcome.get("exit_code", outcome.get("type")) if isinstance(outcome, dict) else None
    ended = f"Process exited with code {code}\n" if code else ""
    return "\n".join([ended + str(chunk.get("stdout") or ""), str(chunk.get("stderr") or "")]).rstrip("\n") or ended


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
