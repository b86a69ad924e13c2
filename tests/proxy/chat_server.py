"""A provider of OpenAI's chat completions for a long talk of tool calls; records what it was sent."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """Calls the first tool again and again; refuses lists whose calls and answers do not match."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, raw: bytes) -> tuple[int, dict[str, Any]]:
        body = json.loads(raw)
        self.raw.append(raw)
        self.bodies.append(body)
        if problem := unmatched(body["messages"]):
            return 400, {"error": {"type": "invalid_request_error", "message": problem}}
        number = len(self.bodies)
        function = {"name": "bash", "arguments": json.dumps({"command": f"seq {number} {number + 300}"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message = {"role": "assistant", "content": f"Step {number}", "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        usage = {"prompt_tokens": len(raw) // 3, "completion_tokens": 20, "total_tokens": len(raw) // 3 + 20}
        return 200, {"id": f"c{number}", "object": "chat.completion", "choices": [choice], "usage": usage}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                status, answer = server.answer(raw)
                streams = status == 200 and json.loads(raw).get("stream")
                data = events(answer) if streams else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if streams else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler


def events(answer: dict[str, Any]) -> bytes:
    """`answer` as OpenAI streams it: pieces of the message, the reason of its end, then the usage in its own event."""
    message = answer["choices"][0]["message"]
    call = {"index": 0, **message["tool_calls"][0]}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"content": message["content"]},
        {"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": call["function"]["arguments"]}}]},
    ]
    chunk = {"id": answer["id"], "object": "chat.completion.chunk", "model": "m", "created": 0}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    chunks.append({**chunk, "choices": [], "usage": answer["usage"]})
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in chunks) + b"data: [DONE]\n\n"


def unmatched(messages: list[dict[str, Any]]) -> str:
    """What OpenAI refuses: a call without its answers right behind it, or an answer without its call."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"{message['tool_call_id']}: no such call"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"calls without an answer: {sorted(open_calls)}"
        open_calls |= {call["id"] for call in message.get("tool_calls") or ()}
    return f"calls without an answer: {sorted(open_calls)}" if open_calls else ""
