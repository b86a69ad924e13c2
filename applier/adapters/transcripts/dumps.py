"""Reads files that other libraries (LangChain, Gemini …) and coding agents (OpenHands, OpenCode, Pi …) saved.

Each format has a function that yields the content of one entry of its list as pairs of a sender and blocks. Some also
have a function that returns the conversations in a file, none if the file has another form. If an entry lacks a field,
KeyError is raised, which `paired` turns into an error that names the entry's place.
"""

from __future__ import annotations

import re
from typing import Any

from applier.adapters.transcripts.message_lists import (
    THINKING,
    Data,
    EntryContent,
    EntryList,
    as_blocks,
    call_block,
    images,
    list_finder,
    objects_in,
    read_only,
    result_block,
    with_system_blocks,
)
from applier.adapters.transcripts.openai_chat import arguments_as_object
from applier.adapters.transcripts.responses import CALLS, OUTPUTS, Item, sender_and_content
from planner.reading.messages import Block

_ROLES = {
    "human": "user",
    "HumanMessageChunk": "user",
    "gpt": "assistant",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "developer": "system",
}
"""Anthropic's roles by the names that other libraries use."""


def _chat(role: str, entry: Data) -> EntryContent:
    """Yield the content of a chat message in the form that most libraries use. `role`: its role or type."""
    if role in ("tool", "function", "observation"):
        failed = entry.get("status") == "error"
        yield "host", [result_block(entry.get("tool_call_id"), entry.get("name"), entry.get("content"), failed)]
        return
    extra = entry.get("additional_kwargs") or {}
    only_call = entry.get("function_call") or extra.get("function_call")
    calls = entry.get("tool_calls") or extra.get("tool_calls") or ([only_call] if only_call else [])
    texts = [block for key in ("content", "refusal", "invalid_tool_calls") for block in as_blocks(entry.get(key))]
    yield _ROLES.get(role, role), [*texts, *map(_call_of, calls)]


def _call_of(call: Data) -> Block:
    """Return a tool call in OpenAI's or LangChain's form as a ``tool_use`` block."""
    function = call.get("function") or call
    arguments = function["args"] if "args" in function else function["arguments"]
    return call_block(call.get("id"), function["name"], arguments)


def _langchain_fields(entry: Data) -> Data:
    """Return the fields of a LangChain message in one flat dict: ``messages_to_dict``, ``dumpd`` and the states of
    graphs nest them differently."""
    inner = entry.get("data") or entry.get("kwargs") or entry
    return {"type": entry.get("type"), **inner} if isinstance(inner, dict) else entry


def _is_langchain(entry: Data) -> bool:
    plain = _langchain_fields(entry)
    kinds = (*_ROLES, "system", "tool", "function", "chat")
    return "role" not in entry and "content" in plain and plain.get("type") in kinds


def _langchain(entry: Data) -> EntryContent:
    """Yield the sender and blocks of a LangChain message."""
    plain = _langchain_fields(entry)
    return _chat(plain.get("role") or plain["type"], plain)


def _pydantic_ai(entry: Data) -> EntryContent:
    """Yield the sender and block of each part of a pydantic-ai request or response, without thinking."""
    for part in entry["parts"]:
        kind, content = part["part_kind"], part.get("content")
        key, name = part.get("tool_call_id"), part.get("tool_name")
        if kind.endswith("tool-call"):
            yield "assistant", [call_block(key, name, part.get("args"))]
        elif name and (kind.endswith("tool-return") or kind == "retry-prompt"):
            # a retry prompt is pydantic-ai's answer to a failed call; older files have no outcome
            failed = kind == "retry-prompt" or part.get("outcome", "success") != "success"
            yield "host", [result_block(key, name, content, failed)]
        elif kind not in THINKING:
            sender = {"user-prompt": "user", "system-prompt": "system"}.get(kind, "host")
            role = "assistant" if entry["kind"] == "response" else sender
            yield role, as_blocks(part if content is None else content)


def _pydantic_ai_lists(values: Any) -> list[EntryList]:
    """Return the conversation in a dump of pydantic-ai, an empty list if `values` is none. The newest instructions
    become the system prompt, as each request repeats them."""
    entries = values if isinstance(values, list) else []
    has_form = any(isinstance(e, dict) and e.get("kind") in ("request", "response") and "parts" in e for e in entries)
    newest = next((e["instructions"] for e in reversed(entries) if has_form and e.get("instructions")), None)
    return [EntryList(container={"system": as_blocks(newest) or None}, entries=entries)] if has_form else []


def _gemini(entry: Data) -> EntryContent:
    """Yield the sender and block of each part of one of Gemini's contents."""
    role = "assistant" if entry.get("role") == "model" else "user"
    for part in entry["parts"]:
        call, answer = part.get("functionCall") or part.get("function_call"), _gemini_answer(part)
        if call:
            yield "assistant", [call_block(call.get("id"), call["name"], call.get("args"))]
        elif role == "user" and _GEMINI_HOST.match(str(part.get("text", ""))):
            yield "host", as_blocks(part)
        else:
            yield role, [answer] if answer else as_blocks(part)


_GEMINI_HOST = re.compile(
    r"\s*(?:<session_context>|This is the Gemini CLI\. We are setting up the context for our chat)"
)
"""Beginning of the text that Gemini CLI sends before the user's first words; not ``Explain <session_context>``."""


def _gemini_answer(part: Any) -> Block | None:
    """Return the tool result in `part` of a Gemini message; None if the part is something else."""
    answer = (part.get("functionResponse") or part.get("function_response")) if isinstance(part, dict) else None
    if not answer:
        return None
    response = answer.get("response") or {}
    content = response.get("output", response.get("result", response.get("error")))
    plain = content if isinstance(content, str) and len(response) == 1 else response  # a text alone, or the object
    return result_block(answer.get("id"), answer["name"], plain, "error" in response)


def _sharegpt(entry: Data) -> EntryContent:
    """Yield the sender and blocks of an entry of ShareGPT: ``{"from": "human", "value": "Hello"}``."""
    role, value = entry["from"], entry["value"]
    if role == "function_call":
        role, value = "gpt", {"tool_calls": [{"function": arguments_as_object(value)}]}
    return _chat(role, value if isinstance(value, dict) else {"content": value, "name": entry.get("name")})


def _response_item(entry: Data) -> EntryContent:
    """Yield the sender and blocks of an item of OpenAI's Responses API; an item of an unknown type becomes text, and
    thinking is left out."""
    item = Item.model_validate(entry)
    content = sender_and_content(item)
    if content or item.type not in THINKING:
        yield content or ("assistant", as_blocks({"item": entry}))


def _is_item(entry: Data) -> bool:
    """Return True if `entry` is a call, a result or a message in the form of OpenAI's Responses API."""
    content = entry.get("content")
    parts = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return entry.get("type") in {*CALLS, *OUTPUTS} or "input_text" in parts or "output_text" in parts


def _responses(value: Any) -> list[EntryList]:
    """Return the conversation in each saved request or response of the Responses API in `value`; if there is none, in
    `value` as a list of items."""
    found: list[EntryList] = []
    for holder in objects_in(value):
        items = [*_messages(holder, "user", "input"), *_messages(holder, "assistant", "output")]
        if any(map(_is_item, items)) or (items and "instructions" in holder):
            found.append(EntryList(with_system_blocks(holder), items))
    return found or list_finder(_is_item)(value)


def _messages(holder: Data, role: str, *keys: str) -> list[Any]:
    """Return the messages under `keys` of `holder`: under a key is one message, a list of them, or a list of lists, of
    which the first is read. A plain text becomes a message of `role`."""
    messages: list[Any] = []
    for value in filter(None, map(holder.get, keys)):
        entries = value if isinstance(value, list) else [value]
        flat = entries[0] if isinstance(entries[0], list) else entries
        messages += [{"role": role, "content": item} if isinstance(item, str) else item for item in flat]
    return messages


def _runs(value: Any) -> list[EntryList]:
    """Return the conversation of each run of LangSmith: its inputs, unless its outputs repeat them, and its outputs."""
    runs: list[EntryList] = []
    for run in (run for run in objects_in(value) if "run_type" in run):
        inputs, outputs = (run.get(side) or {} for side in ("inputs", "outputs"))
        before = _messages(inputs, "user", "messages", "contents", "input", "question")
        choices = [*_messages(outputs, "", "generations"), *_messages(outputs, "", "choices")]
        # the outputs are a message, or have the choices of a model, or a list of messages, or a text
        after = [outputs] if "role" in outputs else [choice.get("message") or choice for choice in choices[:1]]
        after += _messages(outputs, "assistant", "messages", "output", "answer")
        repeats_inputs = before and after[: len(before)] == before
        runs.append(EntryList(inputs, after if repeats_inputs else [*before, *after]))
    return [run for run in runs if run.entries]


def _run_entry(entry: Data) -> EntryContent:
    """Yield the sender and blocks of a message in a run of LangSmith, which may have the form of any library."""
    forms = ((_is_langchain, _langchain), (_is_item, _response_item), (_is_content, _gemini))
    convert = next((convert for has_form, convert in forms if has_form(entry)), None)
    return convert(entry) if convert else _chat(entry.get("role") or "assistant", entry)


def _is_content(entry: Data) -> bool:
    """Return True if `entry` is one of Gemini's contents; pydantic-ai's messages have parts, too, but also a kind."""
    return isinstance(entry.get("parts"), list) and "kind" not in entry


def _gemini_session(entry: Data) -> EntryContent:
    """Yield the texts of a message in a session of Gemini CLI, then each tool call with its result; a call without a
    result gets the text that the screen showed for it, or else its status."""
    role = {"user": "user", "gemini": "model"}.get(entry["type"])
    if role:
        content = entry.get("content") or []
        parts = content if isinstance(content, list) else [content]
        yield from _gemini({"role": role, "parts": [{"text": p} if isinstance(p, str) else p for p in parts]})
    for call in entry.get("toolCalls") or ():
        yield "assistant", [call_block(call["id"], call["name"], call.get("args"))]
        parts = call.get("result") or [call.get("resultDisplay") or call.get("status")]
        answer = next(filter(None, map(_gemini_answer, parts)), None) or result_block(None, None, parts)
        failed = answer["is_error"] or call.get("status") in ("error", "cancelled")
        yield "host", [{**answer, "tool_use_id": call["id"], "is_error": failed}]


def _gemini_sessions(value: Any) -> list[EntryList]:
    """Return the conversation in a session of Gemini CLI: one object, or a list of changes to apply in order: new
    messages, complete lists of messages, and rewinds, which remove a message and all later ones."""
    session: Data = {}
    messages: dict[str, Any] = {}
    for line in value if isinstance(value, list) else [value]:
        change = (line.get("$set") or line) if isinstance(line, dict) else {}
        if "messages" in change:
            messages = {str(number): message for number, message in enumerate(change["messages"])}
        elif "$rewindTo" in change:
            ids = list(messages)
            count = ids.index(change["$rewindTo"]) if change["$rewindTo"] in ids else 0
            messages = {key: messages[key] for key in ids[:count]}
        elif "id" in change and "type" in change:
            messages[str(change["id"])] = change
        session |= change if "sessionId" in change else {}
    is_session = {"sessionId", "projectHash"} <= session.keys()
    return [EntryList(session, list(messages.values()))] if is_session and messages else []


_UNSPOKEN = frozenset({"change_agent_state", "agent_state_changed", "null", "condensation", "condensation_request"})
"""Types of OpenHands' actions and observations that its model never saw."""


def _openhands(entry: Data) -> EntryContent:
    """Yield senders and blocks of an event of OpenHands 1, or of an action or observation (result) before version 1."""
    if isinstance(entry.get("kind"), str):
        yield from _openhands_event(entry)
    elif "observation" in entry:
        meta = (entry.get("extras") or {}).get("metadata") or {}
        content = "".join(text or "" for text in (meta.get("prefix"), entry.get("content"), meta.get("suffix")))
        failed = entry["observation"] == "error" or (meta.get("exit_code") or 0) > 0
        if entry["observation"] not in _UNSPOKEN:
            yield "host", [result_block(entry.get("cause"), None, content, failed)]
    elif entry["action"] not in _UNSPOKEN:
        yield _openhands_action(entry["action"], entry.get("source") == "agent", entry)


def _openhands_action(kind: str, by_agent: bool, entry: Data) -> tuple[str, list[Block]]:
    """Return the sender and blocks of an OpenHands action: a tool call if the agent acted, else texts."""
    args = entry.get("args") or {}
    if by_agent and kind not in ("message", "system", "finish"):
        name = (entry.get("tool_call_metadata") or {}).get("function_name") or kind
        inputs = {key: value for key, value in args.items() if key != "thought" and value is not None}
        return "assistant", [*as_blocks(args.get("thought")), call_block(entry["id"], name, inputs)]
    if kind == "system":
        sender = "system"
    elif by_agent:
        sender = "assistant"
    else:
        sender = "user" if kind == "message" else "host"
    texts = [args.get(key) for key in ("content", "thought", "final_thought", "command", "code")]
    pictures = images({"image_urls": args.get("image_urls") or []})
    return sender, as_blocks([*texts, *pictures]) or as_blocks(entry.get("message"))


def _openhands_event(entry: Data) -> EntryContent:
    """Yield the senders and blocks of an event of OpenHands 1."""
    kind, key, name = entry["kind"], entry.get("tool_call_id"), entry.get("tool_name")
    if kind == "SystemPromptEvent":
        yield "system", as_blocks([entry["system_prompt"], entry.get("dynamic_context")])
    elif kind == "MessageEvent":
        yield from _chat("user" if entry["source"] == "user" else "assistant", entry["llm_message"])
    elif kind == "ActionEvent":
        call = entry.get("tool_call") or {}
        arguments = (call.get("function") or call).get("arguments") or entry.get("action")
        yield "assistant", [*as_blocks(entry.get("thought")), call_block(key, name, arguments)]
    elif name:  # the result of a call, or the reason why it did not run
        observation = entry.get("observation") or {}
        content = observation.get("content") or entry.get("error") or entry.get("rejection_reason") or observation
        yield "host", [result_block(key, name, content, observation.get("is_error") or not observation)]
    yield "host", as_blocks(entry.get("extended_content"))


def _opencode(entry: Data) -> EntryContent:
    """Yield the senders and blocks of an OpenCode message: for each step of the model its texts and calls, then the
    results of these calls."""
    role, results = entry["info"]["role"], list[Block]()
    for part in [*entry["parts"], {"type": "step-start"}]:  # the added part ends the last step
        kind, state = part["type"], part.get("state") or {}
        if kind == "step-start":
            yield "host", results
            results = []
        elif kind == "tool":
            yield role, [call_block(part["callID"], part["tool"], state.get("input"))]
            output = state.get("output") or state.get("error") or state.get("status")
            results.append(result_block(part["callID"], None, output, state.get("status") == "error"))
        elif kind == "file":
            yield role, as_blocks({**part, "type": part["mime"]})
        elif kind == "text":
            yield "host" if part.get("synthetic") else role, as_blocks(part)


_PI_NOTES = ("custom_message", "branch_summary")
"""Types of log lines, besides messages, that are read: texts that Pi or an extension of it sent to the model."""


def _pi(entry: Data) -> EntryContent:
    """Yield the senders and blocks of a line in a session log of Pi."""
    note: Data = {"role": "host", "content": entry.get("content") or entry.get("summary")}
    message: Data = note if entry["type"] in _PI_NOTES else entry["message"]
    role, content = message["role"], message.get("content") or []
    if role == "toolResult":
        yield "host", [result_block(message["toolCallId"], message["toolName"], content, message.get("isError"))]
    elif role == "bashExecution":
        ran = f"The user ran `{message['command']}`:\n{message['output']}"
        yield "host", [] if message.get("excludeFromContext") else as_blocks(ran)
    else:
        for part in content if isinstance(content, list) else [content]:
            is_call = isinstance(part, dict) and part.get("type") == "toolCall"
            yield role, [call_block(part["id"], part["name"], part["arguments"])] if is_call else as_blocks(part)


def _pi_sessions(value: Any) -> list[EntryList]:
    """Return the conversation in a session log of Pi. Its lines form a tree, as a user can go back and branch off; the
    branch of the last line is read. A log without parents is read whole."""
    lines = objects_in(value)
    types = [line.get("type") for line in lines]
    head = next((line for line, kind in zip(lines, types, strict=True) if kind in ("session", "message")), {})
    if "cwd" not in head or "message" not in types:  # a line with the title may come before the head
        return []
    by_id = {str(line["id"]): line for line in lines if "id" in line}
    branch, line = list[Data](), lines[-1] if "parentId" in lines[-1] else None
    while line:
        branch.append(line)
        line = by_id.pop(str(line.get("parentId")), None)  # removed, as a damaged log may contain a circle
    entries = [line for line in branch[::-1] or lines if line.get("type") in ("message", *_PI_NOTES)]
    return [EntryList(head, entries)]


_COPILOT_ROLES = {"user.message": "user", "system.notification": "host"}
"""Senders of texts by the type of the event."""


def _copilot(entry: Data) -> EntryContent:
    """Yield the sender and blocks of an event of Copilot CLI."""
    kind, data = entry["type"], entry["data"]
    if kind == "tool.execution_complete":
        answer = data.get("result") or data.get("error") or {}
        content = answer.get("content") or answer.get("message")
        yield "host", [result_block(data["toolCallId"], None, content, not data.get("success"))]
    elif kind == "assistant.message":
        calls = (call_block(call["toolCallId"], call["name"], call.get("arguments")) for call in data["toolRequests"])
        yield "assistant", [*as_blocks(data.get("content")), *calls]
    elif kind in _COPILOT_ROLES:
        yield _COPILOT_ROLES[kind], as_blocks(data.get("content"))


def _copilot_sessions(value: Any) -> list[EntryList]:
    """Return the conversation in a session of Copilot CLI. Subagents' events (with a parent call) are left out."""
    lines = objects_in(value)
    if not lines or lines[0].get("type") != "session.start":
        return []
    events = [line for line in lines if isinstance(line.get("data"), dict)]
    main = [line for line in events if "parentToolCallId" not in line["data"]]
    prompts = (line["data"].get("content") for line in reversed(main) if line.get("type") == "system.message")
    return [EntryList(container={"system": as_blocks(next(prompts, None)) or None}, entries=main)]


def _is_openhands(entry: Data) -> bool:
    return "source" in entry and any(isinstance(entry.get(key), str) for key in ("action", "observation", "kind"))


DUMPS = (
    read_only(
        "openhands",
        "a trajectory of OpenHands",
        list_finder(_is_openhands, "trajectory", "history", "events", "items"),
        _openhands,
    ),
    read_only("gemini_cli", "a session of Gemini CLI", _gemini_sessions, _gemini_session),
    read_only(
        "opencode",
        "an export of OpenCode",
        list_finder(lambda e: isinstance(e.get("parts"), list) and "role" in (e.get("info") or ()), "messages"),
        _opencode,
    ),
    read_only("pi", "a session of Pi", _pi_sessions, _pi),
    read_only("copilot_cli", "a session of Copilot CLI", _copilot_sessions, _copilot),
    read_only("langsmith", "runs of LangSmith", _runs, _run_entry),
    read_only("langchain", "messages of LangChain", list_finder(_is_langchain, "messages"), _langchain),
    read_only("pydantic_ai", "messages of pydantic-ai", _pydantic_ai_lists, _pydantic_ai),
    read_only("gemini", "contents of Gemini", list_finder(_is_content, "contents", "history", "messages"), _gemini),
    read_only(
        "sharegpt",
        "conversations of ShareGPT",
        list_finder(lambda e: {"from", "value"} <= e.keys(), "conversations"),
        _sharegpt,
    ),
    read_only("responses", "items of the Responses API", _responses, _response_item),
)
"""Formats that can only be read, in the order in which they are tried."""
