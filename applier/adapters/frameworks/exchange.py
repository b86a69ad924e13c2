"""One attempt of one request of the anthropic SDK in a session: what goes out, what came back, what goes out instead.

Sends nothing itself, so that the synchronous and the asynchronous middleware share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anthropic

from applier.adapters.frameworks.stream_usage import listening
from applier.session.length_errors import WINDOW_EXCEEDED, stop_reason_of

if TYPE_CHECKING:
    from anthropic import APIResponse, AsyncAPIResponse
    from anthropic._request import APIRequest

    from applier.session import Session

__all__ = ["Exchange"]


@dataclass
class Exchange:
    """A request, and what became of it."""

    session: Session
    request: APIRequest
    body: Mapping[str, Any]
    answer: Any = None

    def first(self) -> APIRequest:
        """The request with the messages the session prepared."""
        given = self.body
        self.session.set_request(
            system=given.get("system"), tools=given.get("tools"), max_output_tokens=given.get("max_tokens")
        )
        return self._with(self.session.prepare(given["messages"]))

    def second(self, response: APIResponse[Any] | AsyncAPIResponse[Any]) -> APIRequest | None:
        """A shorter request, if `response` says that the first was too long and there is a shorter one."""
        too_long: object = None
        if not response.http_response.is_success:
            http = response.http_response
            too_long = anthropic.APIStatusError(http.text, response=http, body=http.text)
        elif stop_reason_of(self.answer) == WINDOW_EXCEEDED:
            too_long = self.answer
        shorter = None if too_long is None else self.session.recover(self.body["messages"], too_long)
        return None if shorter is None else self._with(shorter)

    def observe(self, answer: object) -> None:
        """Tell the session of the usage in `answer`."""
        self.answer = answer
        self.session.observe(answer)

    def _with(self, messages: list[Any]) -> APIRequest:
        changed = copy(self.request)  # APIRequest.copy would first deep-copy the whole conversation
        changed.options = changed.options.model_copy(update={"json_data": {**self.body, "messages": messages}})
        if changed.stream_cls is not None:
            changed.stream_cls = listening(changed.stream_cls, self.session.observe)
        return changed
