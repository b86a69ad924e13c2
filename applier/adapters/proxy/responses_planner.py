"""Planner that asks a conversation's own provider in the Responses API, with the credentials of its requests.

The question follows the conversation's items while the provider has them cached; else it consists of cards. The answer
is streamed and not stored there, because a ChatGPT login allows nothing else. It is untrusted, like any planner's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from applier.adapters.proxy.wires import MAX_READ_BYTES, RESPONSES
from planner.errors import PlannerUnavailable
from planner.model.planners import RelayedAnswer, RelayedPlanner, RelayedQuestion, Unanswered
from planner.plan import Usage
from planner.prices import is_warm
from planner.proposal import PlanRequest, Proposal

__all__ = ["OwnRequest", "ResponsesPlanner"]

MOST_PARALLEL = 4
"""Largest number of questions asked at the same time."""
_REQUEST_HEADERS = ("accept", "connection", "content-", "host", "keep-alive", "proxy-", "transfer-", "x-compactor-")
"""Beginnings of headers that describe one request or belong to the proxy; all others are the client's."""
_ENDS = {"response.completed": "", "response.incomplete": "", "response.failed": "it failed", "error": "it failed"}
"""Types of the last event of an answer, each with the fault it reports."""
_LATE = "no answer in time: raise settings.timeout_seconds"
_WORK_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "include", "prompt_cache_key", "text")
"""Fields for the conversation's own answers; a question that follows its items keeps them, for the cache."""


@dataclass(frozen=True)
class OwnRequest:
    """The agent's newest request in a conversation; questions to the provider are made from it."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    """Body with the conversation as it would go out."""

    def asking(self, question: RelayedQuestion) -> dict[str, Any]:
        """Return the body of `question`, after the items of this request or alone."""
        words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question.prompt}]}
        body = {**self.body, "stream": True, "store": False}
        body.pop("max_output_tokens", None)  # it bounds the conversation's answers
        if question.via == "fork":
            return {**body, "input": [*self.body["input"], words]}
        alone = {key: value for key, value in body.items() if key not in _WORK_FIELDS}
        return {**alone, "model": question.model, "instructions": question.system, "input": [words]}


class ResponsesPlanner:
    """Planner of a session that asks the conversation's own provider; gets each request before it is sent."""

    def __init__(self, model: str = "") -> None:
        """Ask `model` with cards; empty: the conversation's own model."""
        self.model = model
        self._request: OwnRequest | None = None
        self._cached_at: float | None = None
        """Time when the provider last received the conversation as the client has it; None if it received another
        list."""

    @property
    def name(self) -> str:
        """Name of the model that plans."""
        return self.model or (str(self._request.body.get("model")) if self._request else "")

    def is_due(self, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Take the request that is about to go to `url`: planners send its `headers` and continue its `body`."""
        repeated = {name: value for name, value in headers.items() if not name.startswith(_REQUEST_HEADERS)}
        self._request = OwnRequest(url, repeated, body)

    def went_out(self, *, as_it_came: bool) -> None:
        """Note that the request was sent, unchanged (`as_it_came`) or with another list than the client has."""
        self._cached_at = time.monotonic() if as_it_came else None

    def propose(self, request: PlanRequest) -> Proposal:
        """Return a proposal for ``request.history`` by the provider's model.

        Raises:
            PlannerUnavailable: no answer can be used.
        """
        own, deadline = self._request, time.monotonic() + request.settings.timeout_seconds
        if own is None:
            raise PlannerUnavailable("planner model: no request of this conversation has come yet")
        model, answers = str(own.body.get("model") or ""), dict[str, RelayedAnswer]()
        warm = self._cached_at is not None and is_warm(time.monotonic() - self._cached_at)
        tokens = request.analysis.tokens if warm and self.model in ("", model) else 0
        planner = RelayedPlanner(answers, self.model or model, model, tokens)
        while True:  # each round answers what the one before it asked
            try:
                return planner.propose(request)
            except Unanswered as asked:
                with ThreadPoolExecutor(MOST_PARALLEL) as threads:
                    new = threads.map(lambda question: _answer(own, question, deadline), asked.questions)
                    answers |= {question.id: one for question, one in zip(asked.questions, new, strict=True)}


def _answer(own: OwnRequest, question: RelayedQuestion, deadline: float) -> RelayedAnswer:
    """Ask `question` like the agent's `own` request, and return the answer; a failure is returned as an answer, too."""
    left = deadline - time.monotonic()
    if left <= 0:
        return RelayedAnswer(failure=_LATE)
    try:
        with (
            httpx.Client(timeout=left) as client,
            client.stream("POST", own.url, headers=own.headers, json=own.asking(question)) as answer,
        ):
            if not answer.is_success:
                return RelayedAnswer(failure=f"the provider answered {answer.status_code}")
            return _read(answer.iter_lines(), deadline)
    except httpx.TimeoutException:
        return RelayedAnswer(failure=_LATE)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return RelayedAnswer(failure=f"the answer cannot be read ({type(error).__name__})")


def _read(lines: Iterable[str], deadline: float) -> RelayedAnswer:
    """Return the text in a stream of events, with the provider's usage."""
    pieces, size = list[str](), 0
    for line in lines:
        size += len(line)
        if time.monotonic() > deadline or size > MAX_READ_BYTES:
            return RelayedAnswer(failure=_LATE)
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        kind = event.get("type") if isinstance(event, dict) else ""
        if kind == "response.output_text.delta":
            pieces.append(str(event["delta"]))
        elif kind in _ENDS:
            counted = RESPONSES.observed(event) or {}
            usage = Usage(**counted.get("usage", {}), requests=1)
            return RelayedAnswer("".join(pieces), usage, _ENDS[kind])
    return RelayedAnswer(failure="the answer broke off")
