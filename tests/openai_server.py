"""The test server with OpenAI's Responses and chat completions: their refusals and their forms of answers.

Written from the documentation and from the requests of Codex 0.169. In Responses a call has one output and an output
its call, no item occurs twice, reasoning leads to something of the same answer and comes back as issued, and so does a
compaction.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from applier.testing import Exchange, Failure, MessagesServer, PromptUsage, Refusal, Request
from applier.testing.api_forms import Block
from applier.testing.messages_server import Response, event_line
from applier.testing.prompt_cache import text_tokens

_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_TYPES = frozenset(
    {
        *("message", "reasoning", "compaction", "compaction_trigger", "additional_tools", "configuration_update"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"),
        *("mcp_list_tools", "tool_search_call", "tool_search_output", *_CALLS, *_OUTPUTS),
    }
)
_MADE_BY_THE_MODEL = frozenset({*_CALLS, "reasoning", "web_search_call", "file_search_call", "mcp_call", "compaction"})
_SEAL = "gAAAA"
"""Prefix of encrypted content."""
_PIECE = 40
_UNREAD = ("id", "status", "internal_chat_message_metadata_passthrough")
_MOST_CACHED = 8


class OpenAIServer(MessagesServer):
    """Server that answers these APIs, too, from the same script."""

    def __init__(self, *script: Any, **options: Any) -> None:
        """Take the arguments of `MessagesServer`."""
        super().__init__(*script, **options)
        self._items = ItemCache()

    def endpoint(self, path: str) -> Callable[[Request], Response] | None:
        """Return the endpoint at `path`."""
        if path.endswith("/responses"):
            return self.respond
        return self.complete if path.endswith("/chat/completions") else super().endpoint(path)

    def respond(self, request: Request) -> Response:
        """Answer by the rules of that API, with the cost of the uncached part."""
        violations = judge_items(request, self.window_tokens)
        return self._answered(request, violations, response, lambda output: self._items.charge(request, output))

    def complete(self, request: Request) -> Response:
        """Answer a request for a chat completion, billed without a cache; refuse calls without answers."""
        problem = unanswered_calls(request.body["messages"])
        violations = (Refusal(1, problem),) if problem else ()
        read = text_tokens(request.raw.decode())
        return self._answered(request, violations, completion, lambda output: PromptUsage(read, output_tokens=output))

    def _answered(
        self,
        request: Request,
        violations: tuple[Refusal, ...],
        form: Callable[[Block, Request], Block],
        charge: Callable[[int], PromptUsage],
    ) -> Response:
        """Return the response to a request, in the `form` of its API, and record both. `charge` returns the billed
        tokens for a number of output tokens."""
        with self._lock:
            reply = self._next(request, violations)
            if isinstance(reply, Failure):
                return self._fail(request, reply, violations)
            content = self._with_ids(reply.content)
            usage = charge(text_tokens(json.dumps(content)))
            self.exchanges.append(Exchange(request, (), usage, 200, tuple(content)))
            return form(self._message(request, content, "", usage, reply), request), reply

    def streamed(self, answer: Block) -> list[str]:
        """Return the lines that stream `answer`."""
        if "choices" in answer:
            return [*(f"data: {json.dumps(chunk)}\n\n" for chunk in completion_chunks(answer)), "data: [DONE]\n\n"]
        if answer.get("object") != "response":
            return super().streamed(answer)
        return list(map(event_line, response_events(answer)))


def items_of(request: Request) -> list[Block]:
    """Return the items of the request's ``input``; text alone is a message of the user."""
    given = request.body.get("input")
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given or ())


class ItemCache:
    """Cost of prompts if the longest beginning shared with an earlier one is read from a cache."""

    def __init__(self) -> None:
        """Begin with an empty cache."""
        self._known: list[list[str]] = []

    def charge(self, request: Request, output_tokens: int) -> PromptUsage:
        """Return the cost of `request` and cache it."""
        parts = _parts(request)
        same = max((sum(1 for _ in takewhile(_are_equal, zip(parts, k, strict=False))) for k in self._known), default=0)
        self._known = [*self._known[-_MOST_CACHED:], parts]
        full, read = (sum(map(text_tokens, some)) for some in (parts[same:], parts[:same]))
        return PromptUsage(full, read, output_tokens=output_tokens)


def prompt_tokens(request: Request) -> int:
    """Return the tokens of the prompt of `request`."""
    return sum(map(text_tokens, _parts(request)))


def _parts(request: Request) -> list[str]:
    """Return the parts of the request that the model reads, in order."""
    beside = [request.body.get(name) or "" for name in ("tools", "instructions")]
    items = ({key: value for key, value in item.items() if key not in _UNREAD} for item in items_of(request))
    return [json.dumps(part, sort_keys=True) for part in (*beside, *items)]


def _are_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def judge_items(request: Request, window_tokens: int | None = None) -> tuple[Refusal, ...]:
    """Return the violations for which the API would answer 400, the first one first."""
    items = items_of(request)
    if not items or not all(isinstance(item, dict) for item in items):
        return (Refusal(0, "Invalid type for 'input': expected a string or a list of items"),)
    broken = tuple(Refusal(number, text) for number, text in _broken(items))
    if not broken and window_tokens is not None and (tokens := prompt_tokens(request)) > window_tokens:
        return (Refusal(22, f"context_length_exceeded: {tokens} tokens > {window_tokens} maximum"),)
    return broken


def _broken(items: Sequence[Block]) -> Iterator[tuple[int, str]]:
    kinds = [str(item.get("type") or "message") for item in items]
    for at, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        if kind not in _TYPES:
            yield (
                0,
                f"Invalid value: '{kind}'. Supported values for 'input[{at}].type' are: {', '.join(sorted(_TYPES))}",
            )
        if kind == "message" and not (item.get("role") and item.get("content") is not None):
            yield 0, f"Missing required parameter: 'input[{at}].content'"
        if kind in _CALLS and _CALLS[kind] not in item:
            yield 0, f"Missing required parameter: 'input[{at}].{_CALLS[kind]}'"
        if kind in ("reasoning", "compaction") and not str(item.get("encrypted_content") or _SEAL).startswith(_SEAL):
            yield 11, f"The encrypted content of item {item.get('id')} could not be verified."
    for name, count in Counter(item["id"] for item in items if item.get("id")).items():
        if count > 1:
            yield 6, f"Duplicate item found with id {name}. Remove duplicate items from your input and try again."
    yield from _unpaired(items, kinds)
    for at, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        behind = next((i for i in range(at + 1, len(items)) if kinds[i] != "reasoning"), None)
        is_led = behind is not None and (
            kinds[behind] in _MADE_BY_THE_MODEL or items[behind].get("role") == "assistant"
        )
        if kind == "reasoning" and not is_led:
            yield 10, f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."


def _unpaired(items: Sequence[Block], kinds: Sequence[str]) -> Iterator[tuple[int, str]]:
    called: dict[str, str] = {}
    answered: set[str] = set()
    for item, kind in zip(items, kinds, strict=True):
        name = str(item.get("call_id"))
        if kind in _CALLS:
            if name in called:
                yield 6, f"Duplicate call_id {name}."
            called[name] = kind
        elif kind in _OUTPUTS:
            if name not in called:
                yield 2, f"No tool call found for function call output with call_id {name}."
            elif (called[name] == "custom_tool_call") != (kind == "custom_tool_call_output"):
                yield 2, f"The output of {name} is of another kind than its call."
            if name in answered:
                yield 5, f"Duplicate function call output with call_id {name}."
            answered.add(name)
    for name in called.keys() - answered:
        yield 1, f"No tool output found for function call {name}."


def response(message: Block, request: Request) -> Block:
    """Return `message`, an answer of the Messages API, as a response; a compaction if the request ends by asking for
    one."""
    items, number = items_of(request), message["id"].removeprefix("msg_")
    if items[-1].get("type") == "compaction_trigger":
        sealed = hashlib.sha256(json.dumps(items).encode()).hexdigest()
        output: list[Block] = [{"type": "compaction", "id": f"cmp_{number}", "encrypted_content": _SEAL + sealed}]
    else:
        output = list(_output(message["content"], number, request))
    usage = message["usage"]
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "usage": {
            "input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"],
            "input_tokens_details": {"cached_tokens": usage["cache_read_input_tokens"]},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"],
        },
    }


def _output(content: Sequence[Block], number: str, request: Request) -> Iterator[Block]:
    if request.body.get("reasoning"):
        sealed = f"{_SEAL}{hashlib.sha256(number.encode()).hexdigest()}"
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": sealed}
    for at, block in enumerate(content):
        own = {"id": f"msg_{number}_{at}", "status": "completed"}
        if block["type"] == "text":
            part = {"type": "output_text", "text": block["text"], "annotations": []}
            yield {"type": "message", "role": "assistant", **own, "content": [part]}
        elif set(block["input"]) == {"custom"}:
            call = {"call_id": block["id"], "name": block["name"], "input": block["input"]["custom"]}
            yield {"type": "custom_tool_call", **own, "id": f"ctc_{number}_{at}", **call}
        else:
            call = {"call_id": block["id"], "name": block["name"], "arguments": json.dumps(block["input"])}
            yield {"type": "function_call", **own, "id": f"fc_{number}_{at}", **call}


def response_events(answer: Block) -> Iterator[Block]:
    """Yield the events that stream a response."""
    events = enumerate(_events(answer))
    yield from ({"sequence_number": number, **event} for number, event in events)


def _events(answer: Block) -> Iterator[Block]:
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(answer["output"]):
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        text = item["content"][0]["text"] if item["type"] == "message" else ""
        empty = {**item, "content": [], "status": "in_progress"} if text else item
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        if text:
            yield {"type": "response.content_part.added", **place, "part": {**item["content"][0], "text": ""}}
        for at in range(0, len(text), _PIECE):
            yield {"type": "response.output_text.delta", **place, "delta": text[at : at + _PIECE], "logprobs": []}
        if text:
            yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": item["content"][0]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}


def unanswered_calls(messages: list[Block]) -> str:
    """Return OpenAI's refusal of a call without an answer, or of an answer without a call; empty if there is
    neither."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"tool_call_id {message['tool_call_id']} is not found in 'tool_calls' of a preceding message"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            break
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return f"tool_call_ids did not have response messages: {', '.join(sorted(waiting))}" if waiting else ""


def completion(message: Block, request: Request) -> Block:
    """Return `message`, an answer of the Messages API, as a chat completion; a forced function gets its text as
    arguments."""
    text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    calls = [
        _call(block["id"], block["name"], json.dumps(block["input"]))
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    body = request.body
    forced = body.get("tool_choice")
    if isinstance(forced, dict) and text:
        calls, text = [_call(f"call_{message['id']}", forced["function"]["name"], text)], ""
    spoken: Block = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    usage = message["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    return {
        "id": f"chatcmpl-{message['id']}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": spoken}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": usage["output_tokens"],
            "total_tokens": read + usage["output_tokens"],
        },
    }


def _call(call_id: str, name: str, arguments: str) -> Block:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion_chunks(answer: Block) -> Iterator[Block]:
    """Yield the chunks that stream a completion: pieces of its message, its stop reason, then the usage alone."""
    (choice,) = answer["choices"]
    chunk = {**answer, "object": "chat.completion.chunk", "choices": [], "usage": None}
    for delta in _deltas(choice["message"]):
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**chunk, "usage": answer["usage"]}


def _deltas(message: Block) -> Iterator[Block]:
    yield {"role": "assistant", "content": ""}
    if message["content"]:
        yield {"content": message["content"]}
    for index, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}
