"""Items of OpenAI's Responses API, in requests, logs and dumps: what one says, in blocks.

A script of Codex that calls one tool is read as the call of that. Writes nothing: `responses` does, which undoes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from planner.reading.messages import Block

__all__ = ["CALLS", "OUTPUTS", "Item", "item_block", "item_blocks", "spoken"]

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
        called = _called(item.input) if name == _SCRIPT else None
        name, value = called or (name, {"input": item.input})
    return {"type": "tool_use", "id": item.call_id, "name": name, "input": value}


def _called(script: str) -> tuple[str, dict[str, Any]] | None:
    """The one tool that a `script` calls, whatever it finds, and its input; None if its text does not say that."""
    calls = _CALL.findall(script)
    tools = [*{tool for tool, _ in calls}]
    if len(tools) != 1 or _OPEN.search(_CALL.sub("", script)):
        return None
    try:
        return tools[0], {_CALLED[tools[0]]: "\n".join(json.loads(literal) for _, literal in calls)}
    except ValueError:
        return None


def _result(item: Item) -> Block:
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    content = output.get("content") if isinstance(output, dict) else output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if item.type == "custom_tool_call_output" and isinstance(inner, list):
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
    return [_block(part) for part in content]


def _block(part: dict[str, Any]) -> Block:
    if part.get("type") in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    return {"type": "unknown", **part}
