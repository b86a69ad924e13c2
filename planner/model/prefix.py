"""Asks the agent's own model for a plan, cheaply, as the provider has the agent's last request in its cache.

That request, the *prefix*, is sent again unchanged with one question at its end, so the model reads the whole history
for the price of a cache read. Another model, tool choice, thinking mode or output format would lose the cache, so the
answer is plain text. The answer never becomes part of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import PlannerUnavailable
from planner.model.answer import Scope, read_answer
from planner.model.asking import AskedOutcome, Asking, left_seconds
from planner.model.cards import history_index
from planner.model.client import Meter, for_planning, is_refusal, keys_of, open_client, sdk_timeout
from planner.model.prompts import Prompts, safe_line
from planner.model.question import QuestionBasis, choice_tokens, sizes_text
from planner.plan import AgentRequest, PlanRequest, Usage
from planner.prices import CACHE_LIFETIME_SECONDS, is_warm
from planner.reading.messages import cache_marks
from planner.reading.tokens import model_family

LONG_TTL_SECONDS = 3_600
"""Seconds after each use for which a provider caches a request that is marked with ``ttl: 1h``."""


def why_not_prefix(agent: AgentRequest, model: str | None) -> str:
    """Return why a question cannot be added to the agent's cached request without losing the cache; empty if it can.
    `model`: the model that should answer; None for the agent's own."""
    body = agent.body
    if model is not None and model.removeprefix("anthropic/") != body.get("model"):
        return "another model plans"
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return "the agent's request forces a tool"
    thinking = body.get("thinking")
    is_enabled = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
    # the API drops manual thinking when user's text follows results (Anthropic, "Prompt caching", what invalidates it)
    if is_enabled and model_family(str(body.get("model", ""))).thinks_manually:
        return "the agent's model drops earlier thinking when a user speaks, and with it the cache"
    marks = list(cache_marks([body, *(body.get(name) for name in ("tools", "system", "messages"))]))
    if not marks:
        return "the agent's request marks no cache"
    ttl = LONG_TTL_SECONDS if all(mark.get("ttl") == "1h" for mark in marks) else CACHE_LIFETIME_SECONDS
    if not is_warm(agent.seconds_since, ttl):
        return f"the agent's cache went cold {agent.seconds_since:.0f} s after its last call"
    return ""


def request_behind_prefix(agent: AgentRequest, question: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a copy of the agent's request body with `question` at its end, so that the cached part is the same: as a
    block of the last message if that is a user's (such as tool results), else as a new message. An output limit lower
    than `max_output_tokens` is raised, as it is not part of the cache."""
    messages = list(agent.body["messages"])
    block = {"type": "text", "text": question}
    if messages[-1].get("role") == "user":
        content = messages[-1]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        messages[-1] = {**messages[-1], "content": [*blocks, block]}
    else:
        messages.append({"role": "user", "content": [block]})
    limit = max(int(agent.body.get("max_tokens") or 0), max_output_tokens)
    body = {key: value for key, value in agent.body.items() if key != "stream"}
    return {**body, "messages": messages, "max_tokens": limit}


def prefix_question(basis: QuestionBasis, prompts: Prompts) -> str:
    """Return the question to add to the agent's cached request: what to answer, how long the answer may be, and a list
    of all turns with their ids, as the request itself has none."""
    return prompts.render(
        "prefix",
        choice_tokens(basis, basis.turns) > 0,
        index=history_index(basis.request, basis.earlier),
        focus=basis.focus,
        sizes=sizes_text(basis, basis.turns),
    )


def prefix_cost(request: PlanRequest, agent: AgentRequest, question: str) -> Usage:
    """Estimate the tokens of asking `question` after the agent's last request: those of the question are new, and those
    of the request are read from the cache."""
    body, counter = agent.body, request.counter
    cached = counter.request(body["messages"], body.get("system"), body.get("tools"))
    return Usage(input_tokens=counter.text(question), cache_read_input_tokens=cached, requests=1)


class PrefixQuestion(Asking):
    """Question about the whole history that is added to the agent's own cached request. It is sent with the agent's
    client or account, because a cache belongs to an account."""

    def __init__(self, request: PlanRequest, agent: AgentRequest, text: str, deadline: float) -> None:
        """Prepare to send the request of `agent` with the question `text` added, before `deadline`."""
        self.agent, self.text, self.deadline = agent, text, deadline
        meter = Meter(lambda _body: prefix_cost(request, agent, text), request.input_left_tokens)
        scope = Scope(list(request.evidence.turns.values()))
        super().__init__(request, scope, str(agent.body.get("model", "")), keys_of(agent.client), meter)
        self.label = "not answered after the agent's prefix"

    def ask(self) -> AskedOutcome:
        """Ask once. Return the usable parts of the answer, or a failure; may raise an error of the SDK."""
        from anthropic.types import Message

        body = request_behind_prefix(self.agent, self.text, self.request.settings.max_output_tokens)
        with open_client(self.agent.client) as client:
            options = {"headers": dict(self.agent.headers), "timeout": sdk_timeout(left_seconds(self.deadline))}
            self.meter.sent(body)
            self.record(for_planning(client).post(self.agent.path, cast_to=Message, body=body, options=options))
        reading = read_answer(self.answer(), self.scope, self.request.now)
        if any(getattr(block, "type", "") == "tool_use" for block in getattr(self.last, "content", ())):
            problem = "called a tool instead"
        elif reading.is_usable:
            return self.used(reading)
        else:
            why = "it declined" if is_refusal(self.last) else (*reading.problems, "there is no brief, and no entry")[0]
            problem = f"its answer could not be used ({safe_line(why, 160)})"
        return self.failed(PlannerUnavailable(f"planner model {self.model}: {problem}", self.meter.usage))
