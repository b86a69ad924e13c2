"""Single items of OpenAI's Responses API as Anthropic blocks: words, calls, results, files.

Codex may call its tools from a script. If a script only calls one tool, with literal arguments, it is read as that
call, and its output as the tool's output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from planner.reading.messages import Block

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
