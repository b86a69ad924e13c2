"""`PageServer`: a page on a port of this machine, for one browser, until it is finished.

Runs in a thread, or as a program of its own until it is told to stop. Listens on loopback, never elsewhere.
"""

from __future__ import annotations

import logging
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn

from applier.web.app import page_app
from applier.web.guard import Keys
from applier.web.report import Report
from applier.web.review import Review

__all__ = ["PageServer"]

HOST = "127.0.0.1"
_STOP_SECONDS = 2
"""How long answers under way may still run after the end."""


class PageServer:
    """One page; a context manager that answers until it is left."""

    def __init__(self, content: Review | Report, port: int = 0) -> None:
        """Open `port` (0: any that is free); nothing is answered yet.

        Raises:
            OSError: the port is taken.
        """
        self._socket = socket.create_server((HOST, port))
        self._keys = Keys()
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            page_app(content, self._keys, self.port, self.stop),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, daemon=True)

    @property
    def link(self) -> str:
        """Where the page is; opens it once. The token is in the fragment, which no log and no other site sees."""
        return f"http://{HOST}:{self.port}/#{self._keys.token}"

    def run(self) -> None:
        """Answer until told to stop: by `stop`, the page, or in the main thread by SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End, once answers under way are out."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Answer, in a thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for it."""
        self.stop()
        self._thread.join()
