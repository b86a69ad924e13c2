"""What the entries of other libraries' dumps say, in roles and blocks, a function a form."""

from __future__ import annotations

from typing import Any

from applier.adapters.transcripts.entries import (
    THINKING,
    Spoken,
    as_blocks,
    beside,
    called,
    dicts,
    lists,
    read_only,
    result,
)
from applier.adapters.transcripts.items import CALLS, OUTPUTS, Item, spoken
from applier.adapters.transcripts.message_lists import Conversations, Data
from applier.adapters.transcripts.openai_chat import arguments_as_object
from planner.reading.messages import Block

__all__ = ["DUMPS", "chat", "gemini", "gemini_answer"]

_ROLES = {
    "human": "user",
    "HumanMessageChunk": "user",
    "gpt": "assistant",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "developer": "system",
}


def chat(role: str, entry: Data) -> Spoken:
    """A chat message as most libraries have it."""
    if role in ("tool", "function", "observation"):
        failed = entry.get("status") == "error"
        yield "host", [result(entry.get("tool_call_id"), entry.get("name"), entry.get("content"), failed)]
        return
    more = entry.get("additional_kwargs") or {}
    alone = entry.get("function_call") or more.get("function_call")
    calls = entry.get("tool_calls") or more.get("tool_calls") or ([alone] if alone else [])
    texts = [block for key in ("content", "refusal", "invalid_tool_calls") for block in as_blocks(entry.get(key))]
    yield _ROLES.get(role, role), [*texts, *map(_call_of, calls)]


def _call_of(call: Data) -> Block:
    function = call.get("function") or call
    return called(call.get("id"), function["name"], function["args"] if "args" in function else function["arguments"])


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
    return chat(plain.get("role") or plain["type"], plain)


def _pydantic_ai(entry: Data) -> Spoken:
    for part in entry["parts"]:
        kind, content = part["part_kind"], part.get("content")
        key, name = part.get("tool_call_id"), part.get("tool_name")
        if kind.endswith("tool-call"):
            yield "assistant", [called(key, name, part.get("args"))]
        elif name and (kind.endswith("tool-return") or kind == "retry-prompt"):
            yield "host", [result(key, name, content, part.get("outcome") != "success")]
        elif kind not in THINKING:
            role = {"user-prompt": "user", "system-prompt": "system"}.get(kind, "host")
            yield (
                "assistant" if entry["kind"] == "response" else role,
                as_blocks(part if content is None else content),
            )


def _pydantic_ai_lists(values: Any) -> Conversations:
    """With the newest instructions beside the messages, for each request has them all."""
    found = values if isinstance(values, list) else []
    is_own = any(isinstance(e, dict) and e.get("kind") in ("request", "response") and "parts" in e for e in found)
    newest = next((e["instructions"] for e in reversed(found) if is_own and e.get("instructions")), None)
    return [(beside({"system": newest}), found)] if is_own else []


def gemini(entry: Data) -> Spoken:
    """A content, of the API or of an agent's session."""
    role = "assistant" if entry.get("role") == "model" else "user"
    for part in entry["parts"]:
        call, answer = part.get("functionCall") or part.get("function_call"), gemini_answer(part)
        if call:
            yield "assistant", [called(call.get("id"), call["name"], call.get("args"))]
        else:
            yield role, [answer] if answer else as_blocks(part)


def gemini_answer(part: Any) -> Block | None:
    """The result that `part` is, if it is one."""
    answer = (part.get("functionResponse") or part.get("function_response")) if isinstance(part, dict) else None
    if not answer:
        return None
    response = answer.get("response") or {}
    content = response.get("output", response.get("result", response.get("error")))
    plain = content if isinstance(content, str) and len(response) == 1 else response
    return result(answer.get("id"), answer["name"], plain, "error" in response)


def _sharegpt(entry: Data) -> Spoken:
    role, value = entry["from"], entry["value"]
    if role == "function_call":
        role, value = "gpt", {"tool_calls": [{"function": arguments_as_object(value)}]}
    return chat(role, value if isinstance(value, dict) else {"content": value, "name": entry.get("name")})


def _response_item(entry: Data) -> Spoken:
    """An item; what the provider's own tools did, as it stands."""
    item = Item.model_validate(entry)
    said = spoken(item)
    if said or item.type not in THINKING:
        yield said or ("assistant", as_blocks({"item": entry}))


def _is_item(entry: Data) -> bool:
    content = entry.get("content")
    parts = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return entry.get("type") in {*CALLS, *OUTPUTS} or "input_text" in parts or "output_text" in parts


def _responses(value: Any) -> Conversations:
    """Items alone, or a request with its ``input``, an answer with its ``output``, or both in one object."""
    held = [(v, [*_messages(v, "user", "input"), *_messages(v, "assistant", "output")]) for v in dicts(value)]
    asked = [(v, entries) for v, entries in held if any(map(_is_item, entries)) or (entries and "instructions" in v)]
    return [(beside(v), entries) for v, entries in asked] or lists(_is_item)(value)


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
    for run in (run for run in dicts(value) if "run_type" in run):
        inputs, outputs = (run.get(side) or {} for side in ("inputs", "outputs"))
        before = _messages(inputs, "user", "messages", "contents", "input", "question")
        choices = [*_messages(outputs, "", "generations"), *_messages(outputs, "", "choices")]
        after = [outputs] if "role" in outputs else [choice.get("message") or choice for choice in choices[:1]]
        after += _messages(outputs, "assistant", "messages", "output", "answer")
        made.append((inputs, after if before and after[: len(before)] == before else [*before, *after]))
    return [(holder, entries) for holder, entries in made if entries]


def _run_entry(entry: Data) -> Spoken:
    """A message of any library."""
    forms = ((_is_langchain, _langchain), (_is_item, _response_item), (_is_content, gemini))
    say = next((say for is_own, say in forms if is_own(entry)), None)
    return say(entry) if say else chat(entry.get("role") or "assistant", entry)


def _is_content(entry: Data) -> bool:
    return isinstance(entry.get("parts"), list) and "kind" not in entry


DUMPS = (
    read_only("langsmith", "runs of LangSmith", _runs, _run_entry),
    read_only("langchain", "messages of LangChain", lists(_is_langchain, "messages"), _langchain),
    read_only("pydantic_ai", "messages of pydantic-ai", _pydantic_ai_lists, _pydantic_ai),
    read_only("gemini", "contents of Gemini", lists(_is_content, "contents", "history", "messages"), gemini),
    read_only(
        "sharegpt",
        "conversations of ShareGPT",
        lists(lambda e: {"from", "value"} <= e.keys(), "conversations"),
        _sharegpt,
    ),
    read_only("responses", "items of the Responses API", _responses, _response_item),
)
"""The forms that are read only; the first that recognises a list reads it."""
