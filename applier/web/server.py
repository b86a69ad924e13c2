"""`PageServer`: a page on a port of this machine, for one browser, until it is finished.

Listens on loopback, never elsewhere.
"""

from __future__ import annotations

import socket

from applier.serving import AppServer
from applier.web.app import page_app
from applier.web.guard import Keys
from applier.web.report import Report
from applier.web.review import Review

__all__ = ["PageServer"]

HOST = "127.0.0.1"
_STOP_SECONDS = 2
"""How long answers under way may still run after the end."""


class PageServer(AppServer):
    """One page; it can end the server itself."""

    def __init__(self, content: Review | Report, port: int = 0) -> None:
        """Open `port` (0: any that is free); nothing is answered yet.

        Raises:
            OSError: the port is taken.
        """
        listening = socket.create_server((HOST, port))
        self._keys = Keys()
        self.port: int = listening.getsockname()[1]
        super().__init__(page_app(content, self._keys, self.port, self.stop), listening, _STOP_SECONDS)

    @property
    def link(self) -> str:
        """Where the page is; opens it once. The token is in the fragment, which no log and no other site sees."""
        return f"http://{HOST}:{self.port}/#{self._keys.token}"
