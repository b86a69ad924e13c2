"""What the entries of other libraries' and agents' dumps say, and how that becomes Anthropic messages.

Each form has one function that says an entry in roles and blocks; pairing, ids and order are made in one place for all.
Reasoning is left out: it is another model's, or sealed. Writes nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from applier.adapters.transcripts.codex import CALLS, OUTPUTS, Item, item_blocks, item_result, item_use
from applier.adapters.transcripts.message_lists import Conversations, Data, MessageList
from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, call_ids, result_text, to_json

__all__ = ["DUMPS"]

Spoken = Iterator[tuple[str, list[Block]]]
"""Roles (``user``, ``assistant``, ``system``, and ``host`` for what nobody said) and blocks. A call may lack its id,
a result its call's; it has the ``name`` of the tool then."""
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""``|`` in ``call_1|fc_2``: the API takes no id with it."""


def _paired(
    say: Callable[[Data], Spoken], entries: Sequence[Any], places: Sequence[str]
) -> Iterator[tuple[int, Message]]:
    """`entries`, each with its place, as messages, each with the number of its first entry; `say` tells one's words."""
    pairs = _Pairs()
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        try:
            for role, content in say(entry):
                pairs.take(number, role, content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TranscriptError(f"{place}: not an entry of this form ({error!r:.60})") from None
    return pairs.messages()


@dataclass
class _Piece:
    number: int
    role: str
    content: list[Block] = field(default_factory=list)
    results: list[Block] = field(default_factory=list)


class _Pairs:
    """A conversation in the making; each call gets an id of its own, each result stands behind its call."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._open: dict[str, tuple[_Piece, Block]] = {}
        """Calls without a result, by their ids in the dump."""
        self._answers: dict[str, Any] = {}
        self._ids: set[str] = set()

    def take(self, number: int, role: str, content: Sequence[Block]) -> None:
        """Take in what an entry says."""
        for block in content:
            if block["type"] == "tool_use":
                self._call(number, block)
            elif block["type"] == "tool_result":
                self._result(number, block)
            elif role in ("user", "assistant") or (role == "system" and self._is_front):
                self._add(number, role, block)
            elif block["type"] == "text":
                self._remind(number, block["text"])
            else:
                self._add(number, "user", block)

    def messages(self) -> Iterator[tuple[int, Message]]:
        for piece in self._pieces:
            message = {"role": piece.role, "content": piece.content}
            yield piece.number, message
            if piece.results:
                order = call_ids(message)
                results = sorted(piece.results, key=lambda result: order.index(result["tool_use_id"]))
                yield piece.number, {"role": "user", "content": results}

    @property
    def _is_front(self) -> bool:
        return all(piece.role == "system" for piece in self._pieces)

    def _add(self, number: int, role: str, block: Block) -> _Piece:
        """To the piece before, if it is of the same entry or the same answer of the model."""
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.role != role or last.results or (role != "assistant" and last.number != number):
            self._pieces.append(last := _Piece(number, role))
        last.content.append(block)
        return last

    def _remind(self, number: int, text: str) -> None:
        """What the host said to the model: no words of the user."""
        if text.strip():
            framed = f"<system-reminder>\n{text}\n</system-reminder>"
            self._add(number, "user", {"type": "text", "text": framed})

    def _call(self, number: int, block: Block) -> None:
        """A call; said again before it is answered, as some dumps do, it is the same one."""
        key = str(block.get("id") or f"call_{len(self._ids) + 1}")
        if key not in self._open:
            own = _NOT_IN_IDS.sub("_", key)
            own = f"{own}_{len(self._ids) + 1}" if own in self._ids else own
            self._ids.add(own)
            made = {**block, "id": own}
            self._open[key] = self._add(number, "assistant", made), made

    def _result(self, number: int, block: Block) -> None:
        """Of the call that it names, else of the oldest open one of its tool; without one it is told by the host."""
        content, name = block.get("content") or "", block.get("name")
        oldest = (key for key, (_, call) in self._open.items() if name in (None, call["name"]))
        key = str(block.get("tool_use_id") or next(oldest, ""))
        piece, call = self._open.pop(key, (None, block))
        if piece is not None:
            flag = {"is_error": True} if block.get("is_error") else {}
            piece.results.append({"type": "tool_result", "tool_use_id": call["id"], "content": content, **flag})
            self._answers[key] = content
        elif self._answers.get(key) != content:
            self._remind(number, result_text(block))


def _blocks(content: Any) -> list[Block]:
    """Whatever stands for content, as blocks: texts, parts of any form, other values as JSON."""
    parts = [one for part in (content if isinstance(content, list) else [content]) for one in _images(part)]
    made = [_block(part) for part in parts if part not in (None, "", {})]
    return [block for block in made if block and (block["type"] != "text" or block["text"].strip())]


def _images(part: Any) -> list[Any]:
    """A part, or each image of one that lists several (OpenHands)."""
    several = part.get("image_urls") if isinstance(part, dict) else None
    return [{"type": "image", "url": url} for url in several] if isinstance(several, list) else [part]


def _block(part: Any) -> Block | None:
    if not isinstance(part, dict):
        return {"type": "text", "text": part if isinstance(part, str) else to_json(part)}
    kind = str(part.get("type") or part.get("kind")).replace("-", "_")
    if kind in _THINKING or part.get("thought") is True:
        return None
    if kind in ("tool_use", "tool_result") or isinstance(part.get("source"), dict):
        return part
    if kind == "refusal" or isinstance(part.get("image_url"), dict) or isinstance(part.get("file"), dict):
        return block_of_part(part)
    text = part.get("content") if kind == "text_content" else part.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) else _medium(part, kind)


def _medium(part: Data, kind: str) -> Block:
    """An image, the kind of another medium, or the part as JSON."""
    held = part.get("inlineData") or part.get("inline_data") or part
    data, url = held.get("data") or held.get("base64"), part.get("image_url") or part.get("url")
    mime = str(held.get("media_type") or held.get("mime_type") or held.get("mimeType") or "")
    if isinstance(data, str) and mime.startswith("image/"):
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
    if isinstance(url, str) and "image" in kind:
        return block_of_part({"type": "image_url", "image_url": {"url": url}})
    return {"type": "text", "text": f"[{mime}]" if data and mime else to_json(part)}


def _call(key: Any, name: Any, arguments: Any) -> Block:
    value = arguments_as_object(arguments) if isinstance(arguments, str) else arguments or {}
    return {"type": "tool_use", "id": key, "name": str(name), "input": value}


def _result(key: Any, name: Any, content: Any, failed: Any = False) -> Block:
    held = content if isinstance(content, str) else _blocks(content)
    return {"type": "tool_result", "tool_use_id": key, "name": name, "content": held, "is_error": bool(failed)}


_ROLES = {
    "human": "user",
    "HumanMessageChunk": "user",
    "gpt": "assistant",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "developer": "system",
}


def _chat(role: str, entry: Data) -> Spoken:
    """A chat message as most libraries have it."""
    if role in ("tool", "function", "observation"):
        failed = entry.get("status") == "error"
        yield "host", [_result(entry.get("tool_call_id"), entry.get("name"), entry.get("content"), failed)]
        return
    more = entry.get("additional_kwargs") or {}
    alone = entry.get("function_call") or more.get("function_call")
    calls = entry.get("tool_calls") or more.get("tool_calls") or ([alone] if alone else [])
    texts = [block for key in ("content", "refusal", "invalid_tool_calls") for block in _blocks(entry.get(key))]
    yield _ROLES.get(role, role), [*texts, *map(_call_of, calls)]


def _call_of(call: Data) -> Block:
    function = call.get("function") or call
    return _call(call.get("id"), function["name"], function["args"] if "args" in function else function["arguments"])


def _of_langchain(entry: Data) -> Data:
    """Of ``messages_to_dict`` the data, of ``dumpd`` the arguments, of a state the message itself; with its type."""
    inner = entry.get("data") or entry.get("kwargs") or entry
    return {"type": entry.get("type"), **inner} if isinstance(inner, dict) else entry


def _is_langchain(entry: Data) -> bool:
    plain = _of_langchain(entry)
    kinds = (*_ROLES, "system", "tool", "function", "chat")
    return "role" not in entry and "content" in plain and plain.get("type") in kinds


def _langchain(entry: Data) -> Spoken:
    plain = _of_langchain(entry)
    return _chat(plain.get("role") or plain["type"], plain)


def _pydantic_ai(entry: Data) -> Spoken:
    for part in entry["parts"]:
        kind, content = part["part_kind"], part.get("content")
        key, name = part.get("tool_call_id"), part.get("tool_name")
        if kind.endswith("tool-call"):
            yield "assistant", [_call(key, name, part.get("args"))]
        elif name and (kind.endswith("tool-return") or kind == "retry-prompt"):
            yield "host", [_result(key, name, content, part.get("outcome") != "success")]
        elif kind not in _THINKING:
            role = {"user-prompt": "user", "system-prompt": "system"}.get(kind, "host")
            yield "assistant" if entry["kind"] == "response" else role, _blocks(part if content is None else content)


def _pydantic_ai_lists(values: Any) -> Conversations:
    """With the newest instructions beside the messages, for each request has them all."""
    found = values if isinstance(values, list) else []
    is_own = any(isinstance(e, dict) and e.get("kind") in ("request", "response") and "parts" in e for e in found)
    newest = next((e["instructions"] for e in reversed(found) if is_own and e.get("instructions")), None)
    return [(_beside({"system": newest}), found)] if is_own else []


def _gemini(entry: Data) -> Spoken:
    role = "assistant" if entry.get("role") == "model" else "user"
    for part in entry["parts"]:
        call, answer = part.get("functionCall") or part.get("function_call"), _answer(part)
        if call:
            yield "assistant", [_call(call.get("id"), call["name"], call.get("args"))]
        else:
            yield role, [answer] if answer else _blocks(part)


def _answer(part: Any) -> Block | None:
    answer = (part.get("functionResponse") or part.get("function_response")) if isinstance(part, dict) else None
    if not answer:
        return None
    response = answer.get("response") or {}
    content = response.get("output", response.get("result", response.get("error")))
    plain = content if isinstance(content, str) and len(response) == 1 else response
    return _result(answer.get("id"), answer["name"], plain, "error" in response)


def _gemini_session(entry: Data) -> Spoken:
    """A message of a Gemini CLI session; what only the screen showed says nothing."""
    role = {"user": "user", "gemini": "model"}.get(entry["type"])
    if role:
        content = entry.get("content") or []
        parts = content if isinstance(content, list) else [content]
        yield from _gemini({"role": role, "parts": [{"text": p} if isinstance(p, str) else p for p in parts]})
    for call in entry.get("toolCalls") or ():
        yield "assistant", [_call(call["id"], call["name"], call.get("args"))]
        parts = call.get("result") or [call.get("resultDisplay") or call.get("status")]
        answer = next(filter(None, map(_answer, parts)), None) or _result(None, None, parts)
        failed = answer["is_error"] or call.get("status") in ("error", "cancelled")
        yield "host", [{**answer, "tool_use_id": call["id"], "is_error": failed}]


def _gemini_sessions(value: Any) -> Conversations:
    """A session's file is one object, or its changes, a line each: messages anew, and where it was rewound to."""
    session: Data = {}
    messages: dict[str, Any] = {}
    for line in value if isinstance(value, list) else [value]:
        change = (line.get("$set") or line) if isinstance(line, dict) else {}
        if "messages" in change:
            messages = {str(number): message for number, message in enumerate(change["messages"])}
        elif "$rewindTo" in change:
            known = list(messages)
            behind = known.index(change["$rewindTo"]) if change["$rewindTo"] in known else 0
            messages = {key: messages[key] for key in known[:behind]}
        elif "id" in change and "type" in change:
            messages[str(change["id"])] = change
        session |= change if "sessionId" in change else {}
    return [(session, list(messages.values()))] if {"sessionId", "projectHash"} <= session.keys() and messages else []


def _sharegpt(entry: Data) -> Spoken:
    role, value = entry["from"], entry["value"]
    if role == "function_call":
        role, value = "gpt", {"tool_calls": [{"function": arguments_as_object(value)}]}
    return _chat(role, value if isinstance(value, dict) else {"content": value, "name": entry.get("name")})


_UNSPOKEN = frozenset({"change_agent_state", "agent_state_changed", "null", "condensation", "condensation_request"})
"""Actions and observations that the model never saw."""


def _openhands(entry: Data) -> Spoken:
    """An event of version 1; else an action, or the observation that has its id as the cause."""
    if isinstance(entry.get("kind"), str):
        yield from _openhands_event(entry)
    elif "observation" in entry:
        meta = (entry.get("extras") or {}).get("metadata") or {}
        content = "".join(text or "" for text in (meta.get("prefix"), entry.get("content"), meta.get("suffix")))
        failed = entry["observation"] == "error" or (meta.get("exit_code") or 0) > 0
        yield "host", [] if entry["observation"] in _UNSPOKEN else [_result(entry.get("cause"), None, content, failed)]
    elif entry["action"] not in _UNSPOKEN:
        yield _openhands_action(entry["action"], entry.get("source") == "agent", entry)


def _openhands_action(kind: str, is_agents: bool, entry: Data) -> tuple[str, list[Block]]:
    args = entry.get("args") or {}
    if is_agents and kind not in ("message", "system", "finish"):
        name = (entry.get("tool_call_metadata") or {}).get("function_name") or kind
        inputs = {key: value for key, value in args.items() if key != "thought" and value is not None}
        return "assistant", [*_blocks(args.get("thought")), _call(entry["id"], name, inputs)]
    role = "system" if kind == "system" else "assistant" if is_agents else "user" if kind == "message" else "host"
    texts = [args.get(key) for key in ("content", "thought", "final_thought", "command", "code")]
    images = _images({"image_urls": args.get("image_urls") or []})
    return role, _blocks([*texts, *images]) or _blocks(entry.get("message"))


def _openhands_event(entry: Data) -> Spoken:
    kind, key, name = entry["kind"], entry.get("tool_call_id"), entry.get("tool_name")
    if kind == "SystemPromptEvent":
        yield "system", _blocks([entry["system_prompt"], entry.get("dynamic_context")])
    elif kind == "MessageEvent":
        yield from _chat("user" if entry["source"] == "user" else "assistant", entry["llm_message"])
    elif kind == "ActionEvent":
        call = entry.get("tool_call") or {}
        given = (call.get("function") or call).get("arguments") or entry.get("action")
        yield "assistant", [*_blocks(entry.get("thought")), _call(key, name, given)]
    elif name:
        seen = entry.get("observation") or {}
        content = seen.get("content") or entry.get("error") or entry.get("rejection_reason") or seen
        yield "host", [_result(key, name, content, seen.get("is_error") or not seen)]
    yield "host", _blocks(entry.get("extended_content"))


def _response_item(entry: Data) -> Spoken:
    """An item; what the provider's own tools did, as it stands."""
    item = Item.model_validate(entry)
    if item.role:
        yield _ROLES.get(item.role, item.role), item_blocks(item.content)
    elif item.type in CALLS:
        yield "assistant", [item_use(item)]
    elif item.type in OUTPUTS:
        yield "host", [item_result(item)]
    elif item.type not in _THINKING:
        yield "assistant", _blocks({"item": entry})


def _is_item(entry: Data) -> bool:
    content = entry.get("content")
    parts = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return entry.get("type") in {*CALLS, *OUTPUTS} or "input_text" in parts or "output_text" in parts


def _responses(value: Any) -> Conversations:
    """Items alone, or a request with its ``input``, an answer with its ``output``, or both in one object."""
    held = [(v, [*_messages(v, "user", "input"), *_messages(v, "assistant", "output")]) for v in _dicts(value)]
    asked = [(v, entries) for v, entries in held if any(map(_is_item, entries)) or (entries and "instructions" in v)]
    return [(_beside(v), entries) for v, entries in asked] or _lists(_is_item)(value)


def _messages(holder: Data, role: str, *keys: str) -> list[Any]:
    """What stands under `keys`; a text there is the words of `role`."""
    made: list[Any] = []
    for value in map(holder.get, keys):
        held = value if isinstance(value, list) else [value] if value else []
        flat = held[0] if held and isinstance(held[0], list) else held
        made += [{"role": role, "content": one} if isinstance(one, str) else one for one in flat]
    return made


def _runs(value: Any) -> Conversations:
    """Runs that hold messages; what the outputs repeat of the inputs stands once."""
    made: Conversations = []
    for run in (run for run in _dicts(value) if "run_type" in run):
        inputs, outputs = (run.get(side) or {} for side in ("inputs", "outputs"))
        before = _messages(inputs, "user", "messages", "contents", "input", "question")
        choices = [*_messages(outputs, "", "generations"), *_messages(outputs, "", "choices")]
        after = [outputs] if "role" in outputs else [choice.get("message") or choice for choice in choices[:1]]
        after += _messages(outputs, "assistant", "messages", "output", "answer")
        made.append((inputs, after if before and after[: len(before)] == before else [*before, *after]))
    return [(holder, entries) for holder, entries in made if entries]


def _run_entry(entry: Data) -> Spoken:
    """A message of any library."""
    forms = ((_is_langchain, _langchain), (_is_item, _response_item), (_is_content, _gemini))
    say = next((say for is_own, say in forms if is_own(entry)), None)
    return say(entry) if say else _chat(entry.get("role") or "assistant", entry)


def _is_content(entry: Data) -> bool:
    return isinstance(entry.get("parts"), list) and "kind" not in entry


def _is_event(entry: Data) -> bool:
    return "source" in entry and any(isinstance(entry.get(key), str) for key in ("action", "observation", "kind"))


def _dicts(value: Any) -> list[Data]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _lists(is_entry: Callable[[Data], bool], *keys: str) -> Callable[[Any], Conversations]:
    """Lists with such entries under one of `keys` of each value; else the values themselves are the entries."""

    def conversations(value: Any) -> Conversations:
        held = [(one, key) for one in _dicts(value) for key in keys if any(map(is_entry, _dicts(one.get(key))))]
        alone = isinstance(value, list) and any(map(is_entry, _dicts(value)))
        return [(_beside(one), one[key]) for one, key in held] or [({}, value)] * alone

    return conversations


def _beside(holder: Data) -> Data:
    """What stands around the entries, with its system prompt under the one name for that."""
    keys = ("system", "instructions", "systemInstruction", "system_instruction")
    system = next((holder[key] for key in keys if holder.get(key)), None)
    parts = system.get("parts", system) if isinstance(system, dict) else system
    return {**holder, "system": _blocks(parts) or None}


def _row(
    name: str, title: str, conversations: Callable[[Any], Conversations], say: Callable[[Data], Spoken]
) -> MessageList:
    return MessageList(name, title, partial(_paired, say), conversations=conversations)


_EVENTS, _CONTENTS = ("trajectory", "history", "events", "items"), ("contents", "history", "messages")
DUMPS = (
    _row("langsmith", "runs of LangSmith", _runs, _run_entry),
    _row("langchain", "messages of LangChain", _lists(_is_langchain, "messages"), _langchain),
    _row("pydantic_ai", "messages of pydantic-ai", _pydantic_ai_lists, _pydantic_ai),
    _row("openhands", "a trajectory of OpenHands", _lists(_is_event, *_EVENTS), _openhands),
    _row("gemini_cli", "a session of Gemini CLI", _gemini_sessions, _gemini_session),
    _row("gemini", "contents of Gemini", _lists(_is_content, *_CONTENTS), _gemini),
    _row(
        "sharegpt",
        "conversations of ShareGPT",
        _lists(lambda e: {"from", "value"} <= e.keys(), "conversations"),
        _sharegpt,
    ),
    _row("responses", "items of the Responses API", _responses, _response_item),
)
"""The forms that are read only; the first that recognises a list reads it."""
