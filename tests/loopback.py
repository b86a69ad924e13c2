"""The test server with clients of the real SDK, and the most common answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from applier.testing import Answer, say
from tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    import anthropic

KEY = "sk-ant-loopback-0123456789abcdef"
"""Key of its clients; no error and no log may contain it."""
STALL = Answer(fault="stalls")
HANG_UP = Answer(fault="hangs_up_at_once")
HANG_UP_HALFWAY = Answer([say("half of it")], fault="hangs_up")


def billed(text: str, **usage: int) -> Answer:
    """Return an answer of one text with the usage set instead of counted."""
    return Answer([say(text)] if text else [], usage=usage)


class Loopback(OpenAIServer):
    """A server with clients for a test."""

    def __exit__(self, *error: Any) -> None:
        """Close the server and its clients."""
        for client in self._clients:
            client.close()
        super().__exit__(*error)

    def __enter__(self) -> Loopback:
        """Start listening."""
        self._clients: list[anthropic.Anthropic] = []
        return super().__enter__()

    def client(self, **options: Any) -> anthropic.Anthropic:
        """Return a client of the real SDK that talks to this server and is closed with it."""
        import anthropic  # takes two seconds, and most tests of a folder need none

        self._clients.append(anthropic.Anthropic(**{"api_key": KEY, "base_url": self.url, **options}))
        return self._clients[-1]
