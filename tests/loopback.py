"""A real HTTP server on 127.0.0.1 that speaks the Messages API, for tests over the real SDKs.

It answers from a script, records what it was sent, streams when asked to, counts tokens, and, when told so,
refuses what the API refuses: lists that break a rule, forced tools, sampling parameters, prompts over a window.
It also takes OpenAI's chat completions, with the same script.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import anthropic

from planner.reading.tokens import TokenCounter
from tests.wire import as_completion, as_events, as_message

__all__ = ["Answer", "Loopback", "Recorded", "error", "hang_up", "overloaded", "refusal", "say", "stall", "use"]

KEY = "sk-ant-loopback-0123456789abcdef"
"""The key its clients use; no error text and no log may ever hold it."""


@dataclass(frozen=True)
class Answer:
    """What the server answers to one request."""

    content: Sequence[dict[str, Any]] = ()
    stop_reason: str = "end_turn"
    status: int = 200
    error_type: str = ""
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    stalls: bool = False
    """Never answers: the client must give up by itself."""
    hangs_up: Literal["", "at once", "halfway"] = ""
    """Closes the connection instead of the answer, or in the middle of it."""
    usage: tuple[tuple[str, int], ...] = ()
    """Fields of ``usage`` that are not to be counted from what was really sent."""


def say(text: str, stop_reason: str = "end_turn", **usage: int) -> Answer:
    """A text answer."""
    content = ({"type": "text", "text": text},) if text else ()
    return Answer(content, stop_reason, usage=tuple(usage.items()))


def use(name: str, arguments: dict[str, Any], call_id: str, text: str = "") -> Answer:
    """A tool call, with words before it."""
    words = [{"type": "text", "text": text}] if text else []
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return Answer([*words, call], "tool_use")


def error(status: int, error_type: str, message: str = "", **headers: str) -> Answer:
    """An error as the API words it; the SDK retries 408, 409, 429 and 5xx."""
    quick = {"retry-after-ms": "1"} if status in (408, 409, 429) or status >= 500 else {}
    return Answer(
        status=status,
        error_type=error_type,
        message=message or error_type.replace("_", " "),
        headers=tuple({**quick, **{k.replace("_", "-"): v for k, v in headers.items()}}.items()),
    )


def overloaded() -> Answer:
    """529."""
    return error(529, "overloaded_error", "Overloaded")


def refusal(category: str = "cyber") -> Answer:
    """The model declines; the API sends no text with it."""
    return Answer(stop_reason="refusal", message=category)


def stall() -> Answer:
    """No answer at all."""
    return Answer(stalls=True)


def hang_up(when: Literal["at once", "halfway"] = "at once") -> Answer:
    """The request was read, and the connection breaks off."""
    return Answer(({"type": "text", "text": "half of it"},), hangs_up=when)


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes

    @property
    def prompt(self) -> str:
        """The text of all its user messages."""
        return "\n".join(
            block if isinstance(block, str) else str(block.get("text", ""))
            for message in self.body["messages"]
            if message["role"] == "user"
            for block in ([message["content"]] if isinstance(message["content"], str) else message["content"])
        )


Scripted = Answer | str | Callable[[dict[str, Any]], "Answer | str"]


@dataclass
class Loopback:
    """The server; a context manager.

    `script` is answered in order, its last entry again and again. An entry is an `Answer`, a text, or a function
    of the request's body. With `enforce`, requests that the API would refuse are answered 400 and do not use up
    the script; `window_tokens` limits prompts.
    """

    script: Sequence[Scripted] = ("ok",)
    enforce: bool = False
    window_tokens: int | None = None
    counter: TokenCounter = field(default_factory=TokenCounter)
    requests: list[Recorded] = field(default_factory=list)
    """Every message request, in order of arrival."""
    refused: list[str] = field(default_factory=list)
    """Why requests were answered 400."""

    def __enter__(self) -> Loopback:
        """Start listening."""
        self._used = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self._clients: list[anthropic.Anthropic] = []
        return self

    def __exit__(self, *_: object) -> None:
        """Let stalled requests go, and stop."""
        self._closing.set()
        for client in self._clients:
            client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def client(self, **options: Any) -> anthropic.Anthropic:
        """A client of the real SDK that talks to this server; closed with it."""
        client = anthropic.Anthropic(**{"api_key": KEY, "base_url": self.url, **options})
        self._clients.append(client)
        return client

    def answer(self, body: dict[str, Any]) -> Answer:
        """The next answer of the script for `body`, or the API's refusal of it."""
        problem = self._problem(body) if self.enforce or self.window_tokens else ""
        if problem:
            with self._lock:
                self.refused.append(problem)
            return error(400, "invalid_request_error", problem)
        with self._lock:
            entry = self.script[min(self._used, len(self.script) - 1)]
            self._used += 1
        found = entry(body) if callable(entry) else entry
        return say(found) if isinstance(found, str) else found

    def input_tokens(self, body: dict[str, Any]) -> int:
        """What the request counts."""
        return self.counter.request(body["messages"], body.get("system"), body.get("tools"))

    def message(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """`answer` as a message of the API."""
        usage = {
            "input_tokens": self.input_tokens(body),
            "output_tokens": sum(map(self.counter.block, answer.content)),
            **dict(answer.usage),
        }
        return as_message(len(self.requests), answer.content, answer.stop_reason, answer.message, usage, body)

    def _problem(self, body: dict[str, Any]) -> str:
        if self.window_tokens is not None:
            tokens = self.input_tokens(body)
            if tokens > self.window_tokens:
                return f"prompt is too long: {tokens} tokens > {self.window_tokens} maximum"
        return next(_broken_rules(body), "") if self.enforce else ""


def _broken_rules(body: dict[str, Any]) -> Iterator[str]:
    """What current models refuse, and what breaks a rule of the API."""
    from planner.validity import check_messages

    sampling = {"temperature": 1.0, "top_p": None, "top_k": None}
    for name, default in sampling.items():
        if body.get(name, default) != default:
            yield f"{name}: is not supported by this model"
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "tool_choice: forced tool use is not supported by this model"
    thinking = body.get("thinking")
    enabled = None if thinking is None else thinking.get("type") != "disabled"
    found = check_messages(
        body["messages"],
        model=body.get("model", ""),
        thinking_enabled=enabled,
        system=body.get("system"),
        tools=body.get("tools"),
    )
    yield from (str(violation) for violation in found if violation.refused)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no error here."""


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(raw)
            if self.path.startswith("/v1/messages/count_tokens"):
                self._json(200, {"input_tokens": loopback.input_tokens(body)})
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            with loopback._lock:
                loopback.requests.append(Recorded(self.path, headers, body, raw))
            answer = loopback.answer(body)
            message = loopback.message(answer, body)
            if answer.stalls:
                loopback._closing.wait()
                self.close_connection = True
            elif answer.hangs_up == "at once":
                self.close_connection = True
            elif answer.hangs_up == "halfway":
                data = json.dumps(message).encode()
                self._head(200, "application/json", len(data), ())
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif answer.status != 200:
                said = {"type": answer.error_type, "message": answer.message}
                self._json(answer.status, {"type": "error", "error": said}, answer.headers)
            elif "chat/completions" in self.path:
                self._json(200, as_completion(answer.content, body))
            elif body.get("stream"):
                self._stream(message)
            else:
                self._json(200, message, answer.headers)

        def _json(self, status: int, data: dict[str, Any], headers: Sequence[tuple[str, str]] = ()) -> None:
            self._send(status, "application/json", json.dumps(data).encode(), headers)

        def _stream(self, message: dict[str, Any]) -> None:
            text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in as_events(message))
            self._send(200, "text/event-stream", text.encode(), ())

        def _send(self, status: int, content_type: str, data: bytes, headers: Sequence[tuple[str, str]]) -> None:
            self._head(status, content_type, len(data), headers)
            self.wfile.write(data)

        def _head(self, status: int, content_type: str, length: int, headers: Sequence[tuple[str, str]]) -> None:
            self.send_response(status)
            for name, value in (("content-type", content_type), ("content-length", str(length)), *headers):
                self.send_header(name, value)
            self.end_headers()

    return Handler
