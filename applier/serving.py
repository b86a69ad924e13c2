"""An ASGI application on a port: in a thread beside its user, or as a program of its own until it is stopped."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from types import FrameType
from typing import Any, Self

import uvicorn

__all__ = ["AppServer"]

_INTERRUPTED_SECONDS = 1
"""Time that answers under way have after Ctrl-C: somebody waits for their terminal."""


class AppServer:
    """Answers on an open socket; a context manager that answers until it is left."""

    def __init__(self, app: Any, listening: socket.socket, stop_seconds: int) -> None:
        """Take over `listening`; nothing is answered yet. Answers under way have `stop_seconds` after the end."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",  # the application answers an upgrade like any other request
            timeout_graceful_shutdown=stop_seconds,
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it reports each answer that a client broke off
        self._socket = listening
        self._server = _Server(config)
        self._thread = threading.Thread(target=self.run, daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    @property
    def is_stopping(self) -> bool:
        """True once it takes no more connections."""
        return self._server.should_exit

    def run(self) -> None:
        """Answer until stopped: by `stop`, or in the main thread by SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Take no more requests, and end once answers under way are out."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Answer, in a thread."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self._thread.join()


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; after Ctrl-C at once, or nearly."""
        if sig == signal.SIGINT:
            most = self.config.timeout_graceful_shutdown or _INTERRUPTED_SECONDS
            self.config.timeout_graceful_shutdown = min(most, _INTERRUPTED_SECONDS)
        super().handle_exit(sig, frame)
