"""Server of a web application (ASGI) on a port, in a thread of another program or as a program of its own."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from typing import Any, Self

import uvicorn

_INTERRUPTED_SECONDS = 1
"""Time for unfinished answers after Ctrl-C, in seconds; it is short, as a person waits at the terminal."""


class AppServer:
    """Server of a web application on an open socket. It answers in `run` until a signal, or in a ``with`` block."""

    def __init__(self, app: Any, listening: socket.socket, stop_seconds: int) -> None:
        """Use the socket `listening`, but do not answer yet. `stop_seconds`: time for open answers after a stop."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",  # the application answers an upgrade like any other request
            timeout_graceful_shutdown=stop_seconds,
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it logs an error when a client hangs up
        self._socket = listening
        self._server = uvicorn.Server(config)
        # a daemon, as are the threads that it starts: one that waits for a planner must not keep the process alive
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which the server answers."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    @property
    def is_stopping(self) -> bool:
        """True after the server stopped accepting connections."""
        return self._server.should_exit

    @property
    def grace_seconds(self) -> int:
        """Seconds that unfinished answers have after a stop."""
        return self._server.config.timeout_graceful_shutdown or 0

    def run(self) -> None:
        """Answer requests until SIGINT or SIGTERM arrives, in the main thread; then raise the signal again."""
        received = list[int]()

        def end(number: int, _frame: object) -> None:
            """Stop the server after a signal; at a second one, without waiting for answers."""
            received.append(number)
            if number == signal.SIGINT:
                self._server.config.timeout_graceful_shutdown = min(self.grace_seconds, _INTERRUPTED_SECONDS)
            self._server.force_exit = len(received) > 1
            self.stop()

        before = {int(number): signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._thread.start()
            self._thread.join()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for number in received[:1]:  # so that the process ends as the signal demands
            signal.raise_signal(number)

    def stop(self) -> None:
        """Accept no more requests, and end after unfinished answers."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Answer requests, in a thread of its own."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop, and wait for unfinished answers."""
        self.stop()
        self._thread.join()
