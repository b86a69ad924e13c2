"""`MessagesServer`: a Messages API on a local port, for tests of agents and of code that changes their requests.

It sends the replies of a script, refuses requests that break a rule of the API, simulates the bill with a prompt cache,
and records all requests.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from applier.testing.api_forms import Answer, Block, Failure, Refusal, Reply, Request, Script, events, say
from applier.testing.judge import has_no_result, judge, sealed, thinking_and_rest, without_unbound_thinking
from applier.testing.prompt_cache import PromptCache, PromptUsage, request_tokens

_THOUGHT = "Request {number}: let me think about what is asked, what is known, and what to do next."
"""Text of the thinking with which the test server's answers begin."""
Response = tuple[Block, Answer | Failure]
"""Body of the server's answer, and the script's reply from which it was made, which has status, headers and faults."""


@dataclass(frozen=True)
class Exchange:
    """Request to the test server, with the answer or refusal that it sent."""

    request: Request
    violations: tuple[Refusal, ...]
    """Rules of the API that the request breaks."""
    usage: PromptUsage
    """Tokens that the API would bill for the request."""
    status: int
    content: tuple[Block, ...] = ()
    """Blocks of the answer; empty for a refusal."""


class MessagesServer:
    """Messages API for tests, which keeps the real API's rules; a context manager.

    ::

        with MessagesServer(["Hello", "Bye"], window_tokens=60_000) as server:
            client = anthropic.Anthropic(base_url=server.url, api_key="any")
            ...
        assert server.violations == []

    A reply is a text, an `Answer`, a `Failure`, or a list of blocks as `say` and `use` make them. The script is one
    reply to all requests, a function that returns the reply to a `Request`, or a list of both in order:
    ``[[say("I look."), use("bash", command="ls")], "Done."]``. The last entry of a list answers all further requests.
    Requests that break a rule are answered 400 and do not use up the script. If a request switches thinking on,
    answers begin with thinking.
    """

    def __init__(
        self,
        script: Script = "ok",
        *,
        window_tokens: int = 200_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the server; its port opens at ``with``. `window_tokens`: size of the model's context window. `clock`
        returns the present time in seconds, for the prompt cache."""
        self.window_tokens = window_tokens
        self.exchanges: list[Exchange] = []
        """Requests for a message, with their answers, in order of arrival."""
        self.paths: list[tuple[str, str]] = []
        """Method and path of every request that arrived."""
        self.closing = threading.Event()
        """Event that is set when the server stops, to end answers that hang on purpose."""
        self._script = [script] if callable(script) or isinstance(script, Answer | Failure | str) else list(script)
        self._clock, self._replies = clock, 0
        self._cache = PromptCache()
        self._issued: dict[str, list[list[str]]] = {}
        """Thinking in each answer that the server sent, by the other content of the answer."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Start listening."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop listening."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Base URL for a client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[Request]:
        """Requests for a message, in order of arrival."""
        return [exchange.request for exchange in self.exchanges]

    @property
    def violations(self) -> list[Refusal]:
        """Rules that requests broke, in order."""
        return [violation for exchange in self.exchanges for violation in exchange.violations]

    @property
    def bill(self) -> PromptUsage:
        """Billed tokens of all requests together; refused ones cost nothing."""
        return sum((exchange.usage for exchange in self.exchanges), PromptUsage())

    def endpoint(self, path: str) -> Callable[[Request], Response] | None:
        """Return the function that answers requests at `path`; None for an unknown path."""
        return {"/v1/messages": self.reply, "/v1/messages/count_tokens": self.count}.get(path)

    def streamed(self, answer: Block) -> list[str]:
        """Return the lines in which a stream sends the message `answer`, one text for each event."""
        return list(map(event_line, events(answer)))

    def count(self, request: Request) -> Response:
        """Answer a request to count tokens, which is not recorded."""
        request = Request({"max_tokens": 1, **request.body}, request.headers, request.raw)
        violations = judge(request, None, self._issued)
        if violations:
            return failed(_refusal(violations[0]))
        return {"input_tokens": request_tokens(request)}, Answer()

    def reply(self, request: Request) -> Response:
        """Answer as the real API would: with an error if the request breaks a rule, else with the script's next reply.
        Compute the bill, and record the exchange."""
        with self._lock:
            violations = judge(request, self.window_tokens, self._issued)
            reply = self._next(request, violations)
            if isinstance(reply, Failure):
                return self._fail(request, reply, violations)
            seen_by_model = without_unbound_thinking(request)
            content, stop_reason = self._content(seen_by_model, reply)
            usage = self._cache.charge(seen_by_model, self._clock())
            output = request_tokens(Request({"messages": [{"role": "assistant", "content": content}]}, {}))
            if usage.prompt_tokens + output > self.window_tokens:  # the window has no room for the answer
                content, stop_reason, output = [say("…")], "model_context_window_exceeded", 1
            usage = replace(usage, output_tokens=output)
            thinking, rest = thinking_and_rest(content)
            if thinking:
                self._issued.setdefault(rest, []).append(thinking)
            self.exchanges.append(Exchange(request, (), usage, 200, tuple(content)))
            return self._message(request, content, stop_reason, usage, reply), reply

    def _fail(self, request: Request, failure: Failure, violations: tuple[Refusal, ...]) -> Response:
        """Record that the `request` gets an error, which costs nothing; return the error as an answer."""
        self.exchanges.append(Exchange(request, violations, PromptUsage(), failure.status))
        return failed(failure)

    def _next(self, request: Request, violations: Sequence[Refusal]) -> Answer | Failure:
        """Return the script's next reply. Return an error 400 for the first of `violations` (rules that the request
        breaks), if there is any, or an error 500 if the script raises an error."""
        if violations:
            return _refusal(violations[0])
        entry = self._script[min(self._replies, len(self._script) - 1)]
        try:
            reply: Reply = entry(request) if callable(entry) else entry
        except Exception as error:  # noqa: BLE001 - whatever a test's script raises
            problem = f"the script raised {type(error).__name__}: {error}"
            return Failure(500, "api_error", problem, (("x-should-retry", "false"),))
        self._replies += 1
        if isinstance(reply, Answer | Failure):
            return reply
        if isinstance(reply, str):
            return Answer([say(reply)] if reply else [])
        return Answer(list(reply))

    def _content(self, request: Request, answer: Answer) -> tuple[list[Block], str]:
        """Return the blocks of the script's `answer` with ids, thinking and signatures, and why the answer ends."""
        content = self._with_ids(answer.content)
        has_thinking = bool(thinking_and_rest(content)[0])
        if _is_time_to_think(request) and not has_thinking:
            is_shown = (request.body["thinking"].get("display") or "") != "omitted"
            thought = _THOUGHT.format(number=len(self.exchanges) + 1) if is_shown else ""
            content.insert(0, {"type": "thinking", "thinking": thought})
        has_calls = any(block["type"] == "tool_use" for block in content)
        return sealed(request, content), answer.stop_reason or ("tool_use" if has_calls else "end_turn")

    def _with_ids(self, content: Sequence[Block]) -> list[Block]:
        """Return the blocks of an answer, with an id in each call that has none: ``toolu_00001_0``."""
        number = len(self.exchanges) + 1
        return [
            {**block, "id": block.get("id") or f"toolu_{number:05}_{index}"} if block["type"] == "tool_use" else block
            for index, block in enumerate(content)
        ]

    def _message(
        self, request: Request, content: list[Block], stop_reason: str, usage: PromptUsage, answer: Answer
    ) -> Block:
        """Return an answer with this `content` as a message in the API's form. It has the computed `usage`, or the
        fields in the ``usage`` of the script's `answer`."""
        billed = PromptUsage(output_tokens=usage.output_tokens) if answer.usage else usage
        return {
            "id": f"msg_{len(self.exchanges):06}",
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "category": None} if stop_reason == "refusal" else None,
            "usage": {**billed.as_json(), **answer.usage},
        }


def _is_time_to_think(request: Request) -> bool:
    """Return True if the answer to `request` should begin with thinking. With manual thinking, the model thinks only
    before the first call after the user's words, unless the request asks for more by a beta."""
    if request.thinking != "manual" or "interleaved-thinking-2025-05-14" in request.betas:
        return request.thinking != "off"
    return has_no_result(request.messages[-1])


def failed(failure: Failure) -> Response:
    """Return the answer to a request that gets an error."""
    return failure.as_json(), failure


def _refusal(violation: Refusal) -> Failure:
    """Return the error that the API sends for a broken rule."""
    kind = "request_too_large" if violation.status == 413 else "invalid_request_error"
    return Failure(violation.status, kind, violation.message)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    api: MessagesServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that break off the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # send each event when it is written
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer each other request, such as for the list of models, with an empty list."""
        self.server.api.paths.append(("GET", self.path))
        self._send(200, {"type": "list", "data": []})

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def do_POST(self) -> None:
        """Answer a request for a message or a count; refuse an unknown path, a missing key and invalid JSON."""
        self.server.api.paths.append(("POST", self.path))
        # read the whole body before any answer, as the next request comes on the same connection
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path, api = self.path.split("?")[0], self.server.api
        endpoint = api.endpoint(path)
        if endpoint is None:
            self._answer(failed(Failure(404, "not_found_error", f"{path}: not found", ())))
        elif isinstance(body := _body(headers, raw), Failure):
            self._answer(failed(body))
        else:
            is_streamed = bool(body.get("stream")) and endpoint != api.count
            self._answer(endpoint(Request(body, headers, raw)), streamed=is_streamed)

    def _answer(self, response: Response, *, streamed: bool = False) -> None:
        """Send `response` whole or as a stream, with the fault of the connection that the script asks for, if any."""
        message, reply = response
        if isinstance(reply, Failure):
            self._send(reply.status, message, reply.headers)
        elif reply.fault in ("stalls", "hangs_up_at_once"):
            self.close_connection = True
            if reply.fault == "stalls":
                self.server.api.closing.wait()
        elif streamed:
            self._stream(self.server.api.streamed(message), reply)
        else:
            self.close_connection = bool(reply.fault)
            self._send(200, message, reply.headers, 0.5 if reply.fault else 1)  # other faults cut the message in half

    def _stream(self, lines: list[str], answer: Answer) -> None:
        """Send the events `lines`, of which a fault cuts or replaces the second half; before it, call `Answer.hold`."""
        self._head(200, "text/event-stream; charset=utf-8", (("connection", "close"), *answer.headers))
        self.close_connection = True
        middle = len(lines) // 2
        self.wfile.writelines(map(str.encode, lines[:middle]))
        if answer.hold is not None:
            answer.hold()
        cut, garbage = lines[middle], ["event: content_block_delta\ndata: {not json\n\n", "\x00\xff\n\n"]
        rest_by_fault = {"": lines[middle:], "half_an_event": [cut[: len(cut) // 2]], "garbage": garbage}
        self.wfile.writelines(map(str.encode, rest_by_fault.get(answer.fault, [])))  # other faults send no second half

    def _send(self, status: int, data: Block, headers: Sequence[tuple[str, str]] = (), share: float = 1) -> None:
        """Send `data` as JSON; with a `share` below 1, only this share of its bytes, as if the connection broke."""
        content = json.dumps(data).encode()
        self._head(status, "application/json", (("content-length", str(len(content))), *headers))
        if self.command != "HEAD":
            self.wfile.write(content[: int(len(content) * share)])

    def _head(self, status: int, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
        """Send the status and the headers of an answer, with a number for the request."""
        self.send_response(status)
        number = f"req_{len(self.server.api.paths):06}"
        for name, value in (("content-type", content_type), ("request-id", number), *headers):
            self.send_header(name, value)
        self.end_headers()


def event_line(event: Block) -> str:
    """Return an event as a stream sends it."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _body(headers: Mapping[str, str], raw: bytes) -> dict[str, Any] | Failure:
    """Return the JSON object in the body `raw` of a request, or the error for a missing API key or invalid JSON."""
    if not (headers.get("x-api-key") or headers.get("authorization")):
        return Failure(401, "authentication_error", "x-api-key header is required", ())
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    problem = "The request body is not valid JSON"
    return body if isinstance(body, dict) else Failure(400, "invalid_request_error", problem, ())
