"""Fake providers that record every request with its headers.

For laws about secrets: a secret is looked for in everything that a host has read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Arrival:
    """One request as it arrived."""

    method: str
    path: str
    headers: str
    body: str

    @property
    def is_planner(self) -> bool:
        """True for a planner's question; the agents here send no system prompt."""
        return '"system"' in self.body


@dataclass
class Host:
    """A provider; a context manager."""

    answer: Callable[[Body], Body] = lambda body: message("ok", body)
    redirects_to: str = ""
    """Another host to which planners are redirected, as by a host that was taken over."""
    arrivals: list[Arrival] = field(default_factory=list)

    def __enter__(self) -> Host:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def read(self) -> str:
        """Return everything that the host has read."""
        return "\n".join(f"{one.path}\n{one.headers}\n{one.body}" for one in self.arrivals)

    @property
    def questions(self) -> list[Arrival]:
        """Return the planners' questions."""
        return [one for one in self.arrivals if one.is_planner]


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Open `count` hosts."""
    with ExitStack() as stack:
        yield [stack.enter_context(Host()) for _ in range(count)]


def message(text: str, body: Body, **usage: int) -> Body:
    """Return an answer of the Messages API."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 900, "output_tokens": 70, **usage},
    }


def talk(marker: str, rounds: int = 40) -> list[Body]:
    """Return a conversation of about 12,000 tokens, with `marker` in each message."""
    messages = [{"role": "user", "content": f"{marker}: check the modules, one by one."}]
    for number in range(rounds):
        lines = "\n".join(f"module_{number}_{at}.py: {at * number} rows read" for at in range(24))
        messages += [
            {"role": "assistant", "content": f"{marker} {number}\n{lines}"},
            {"role": "user", "content": f"{marker}: go on with module {number + 1}."},
        ]
    return messages


def _handler(host: Host) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"] or 0))
            arrival = Arrival(self.command, self.path, str(self.headers), raw.decode("utf-8", "surrogateescape"))
            host.arrivals.append(arrival)
            away = bool(host.redirects_to) and arrival.is_planner
            data = json.dumps({} if away else host.answer(json.loads(raw) if raw[:1] == b"{" else {})).encode()
            self.send_response(307 if away else 200)
            for name, value in (("location", host.redirects_to + self.path),) if away else ():
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
