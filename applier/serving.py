"""An ASGI application on a port: in a thread beside what uses it, or as a program of its own until it is stopped."""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any, Self

import uvicorn

__all__ = ["AppServer"]


class AppServer:
    """Answers on an open socket; a context manager that answers until it is left."""

    def __init__(self, app: Any, listening: socket.socket, stop_seconds: int) -> None:
        """Take over `listening`; nothing is answered yet. Answers under way may run `stop_seconds` after the end."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",  # an upgrade is a request like another: what it is told is the application's to say
            timeout_graceful_shutdown=stop_seconds,
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # an answer that broke off is no news of ours
        self._socket = listening
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    @property
    def is_stopping(self) -> bool:
        """It was told to stop, and takes no more connections."""
        return self._server.should_exit

    def run(self) -> None:
        """Answer until told to stop: by `stop`, or in the main thread by SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Take no more requests, and end once answers under way are out."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Answer, in a thread."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop, and wait for it."""
        self.stop()
        self._thread.join()
