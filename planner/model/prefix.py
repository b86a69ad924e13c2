"""Asks the agent's own model behind the prefix that the provider has cached: all of the history, for a cache read.

Sends what the agent sent, unchanged, and one question more; the answer never becomes part of the conversation. A
different model, tool choice, thinking mode or output format would lose the cache, so the answer is plain text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import PlannerUnavailable
from planner.evidence import TurnEvidence
from planner.model.answer import Scope, answer_in, read_answer, spans
from planner.model.asking import Deadline, Outcome, in_time, reading_notes
from planner.model.cards import turn_head
from planner.model.client import (
    for_planning,
    is_refusal,
    keys_of,
    response_text,
    response_usage,
    sdk_timeout,
    unavailable,
)
from planner.model.index import turn_index
from planner.model.meter import Meter
from planner.model.prompts import Prompts, one_line, safe_text
from planner.model.question import Sizes, sizes_text
from planner.plan import Usage
from planner.proposal import AgentRequest, PlanRequest, earlier_plan, read_and_new
from planner.reading.families import model_family

__all__ = ["ask_behind_prefix", "prefix_cost", "prefix_question", "request_behind_prefix", "why_not_prefix"]

SHORT_TTL_SECONDS, LONG_TTL_SECONDS = 300, 3_600
"""How long a provider keeps a prefix that is marked, by default and with ``ttl: 1h``; counted anew at each read."""
MARGIN_SECONDS = 15
"""A prefix that goes cold while the question is under way is cold already."""
INDEX_SHARE = 0.03
"""Of the history's tokens, what the index of turns may take: it is the part of the question that no cache holds."""
INDEX_FLOOR_TOKENS, EARLIER_TOKENS = 2_000, 1_000
"""And of that what was chosen behind the last compaction."""


def why_not_prefix(agent: AgentRequest, model: str | None) -> str:
    """Why the planner cannot be asked behind the agent's prefix; empty if it can.

    `model` is the planner's own, if the caller named one.
    """
    body = agent.body
    if model is not None and model.removeprefix("anthropic/") != body.get("model"):
        return "another model plans"
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return "the agent's request forces a tool"
    if _drops_thinking(body):
        return "the agent's model drops earlier thinking when a user speaks, and the cache behind it"
    ttl = _ttl_seconds(body)
    if not ttl:
        return "the agent's request marks no cache"
    if agent.seconds_since + MARGIN_SECONDS > ttl:
        return f"the agent's cache went cold {agent.seconds_since:.0f} s after its last call"
    if not body.get("messages") or _waits_for_results(body["messages"][-1]):
        return "the agent's request waits for results of calls"
    return ""


def _drops_thinking(body: Mapping[str, Any]) -> bool:
    """True for a model with manual thinking that has thought: words of the user among results strip all of it.

    Source: Anthropic, "Prompt caching", what invalidates the cache. The same table names tool choice, thinking
    parameters and effort, "Structured outputs" the output format; none of them is touched here.
    """
    thinking = body.get("thinking")
    enabled = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
    return enabled and model_family(str(body.get("model", ""))).thinks_manually


def _ttl_seconds(body: Mapping[str, Any]) -> int:
    """How long the newest mark holds; 0 without one."""
    marks = [body["cache_control"]] if body.get("cache_control") else []
    marks = marks or list(_marks([body.get("tools"), body.get("system"), body.get("messages")]))
    if not marks:
        return 0
    return LONG_TTL_SECONDS if isinstance(marks[-1], Mapping) and marks[-1].get("ttl") == "1h" else SHORT_TTL_SECONDS


def _marks(value: object) -> Iterator[object]:
    """The cache marks in the lists of a request, in the order in which the provider reads them."""
    for item in value if isinstance(value, list | tuple) else ():
        if isinstance(item, Mapping):
            yield from _marks(item.get("content"))
            if item.get("cache_control"):
                yield item["cache_control"]
        else:
            yield from _marks(item)


def _waits_for_results(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return (
        message.get("role") == "assistant"
        and isinstance(content, list)
        and any(isinstance(block, Mapping) and block.get("type") == "tool_use" for block in content)
    )


def request_behind_prefix(agent: AgentRequest, question: str, max_output_tokens: int) -> dict[str, Any]:
    """The body to send: the agent's, with `question` behind it. The agent's own lists and blocks are not changed.

    A last user message (results of calls, say) takes the question as one more block, so that what is cached before
    it stays the same. Only the output limit is raised where it is too low for an answer: it is no part of the cache.
    """
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


def prefix_question(request: PlanRequest, prompts: Prompts) -> str:
    """The question itself: what to write, how long, and an index of all turns."""
    sizes = Sizes.of(request, list(request.evidence.turns.values()))
    return prompts.render(
        "prefix",
        brief_rules=prompts.texts["brief"],
        index=_index(request),
        focus=safe_text(request.focus).strip() or "(nothing in particular)",
        sizes=sizes_text(request, sizes),
    )


def prefix_cost(request: PlanRequest, agent: AgentRequest, prompts: Prompts) -> Usage:
    """What asking behind the prefix would read: the question, and from the cache what the agent sent."""
    body, counter = agent.body, request.counter
    cached = counter.request(body["messages"], body.get("system"), body.get("tools"))
    question = counter.text(prefix_question(request, prompts))
    return Usage(input_tokens=question, cache_read_input_tokens=cached, requests=1)


def _index(request: PlanRequest) -> str:
    """A line for each turn, what was decided of those behind the last compaction, as long as there is room for."""
    earlier = earlier_plan(request)
    read, new = read_and_new(request, earlier)
    before = []
    if earlier is not None:
        others = f"{spans(turn.turn.number for turn in read)} · all others: the best of their lines stand"
        before = [line for line in (turn_index(request, earlier, EARLIER_TOKENS), others) if line]
    most = max(INDEX_FLOOR_TOKENS, request.analysis.tokens * INDEX_SHARE)
    text = ""
    for characters in (100, 60, 30, 12):
        lines = (
            f"{t.turn.id} · {t.tokens}/{len(t.lines)} · {_opening(request, t, characters)}{_stays(t)}" for t in new
        )
        text = "\n".join([*before, *lines])
        if request.counter.text(text) <= most:
            break
    return text


def _opening(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """What a turn calls, or how it begins: by this the model knows it again."""
    head = turn_head(turn, characters, request.evidence.shown)
    if not turn.calls and turn.lines:
        said = (turn.user_lines or turn.lines)[0].text
        head = one_line(f"{head}: {said}", characters)
    return head


def _stays(turn: TurnEvidence) -> str:
    """The mark of a turn that stays in any case, whole or in part."""
    return " · LIVE" if turn.turn.live else " · kept" if turn.obligations else ""


@dataclass(frozen=True)
class _Post:
    """One request with the agent's own client, whichever colour it has."""

    client: Any
    agent: AgentRequest
    loop: asyncio.AbstractEventLoop | None
    deadline: Deadline

    def send(self, body: Mapping[str, Any]) -> Any:
        from anthropic import AsyncAnthropic
        from anthropic.types import Message

        options = {"headers": dict(self.agent.headers), "timeout": sdk_timeout(self.deadline.left_seconds)}
        client = for_planning(self.client)
        sent = client.post(self.agent.path, cast_to=Message, body=dict(body), options=options)
        if not isinstance(client, AsyncAnthropic):
            return sent
        if self.loop is None:
            sent.close()
            raise PlannerUnavailable("planner model: an asynchronous client needs plan_compaction_async")
        return asyncio.run_coroutine_threadsafe(sent, self.loop).result(self.deadline.left_seconds)


def ask_behind_prefix(
    request: PlanRequest,
    agent: AgentRequest,
    prompts: Prompts,
    client: Any,
    loop: asyncio.AbstractEventLoop | None,
    deadline: Deadline,
) -> Outcome:
    """What the agent's model answers about all of the history, or why it did not; never raises."""
    scope = Scope(list(request.evidence.turns.values()))
    body = request_behind_prefix(agent, prefix_question(request, prompts), request.settings.max_output_tokens)
    model = str(agent.body.get("model", ""))
    meter = Meter(lambda _body: prefix_cost(request, agent, prompts), request.input_left_tokens)

    def failed(error: PlannerUnavailable, usage: Usage) -> Outcome:
        return Outcome(None, usage, model, (f"not answered behind the agent's prefix: {error}",), error)

    try:
        with meter.in_force():
            response = in_time(lambda: _Post(client, agent, loop, deadline).send(body), deadline)
    except Exception as failure:  # noqa: BLE001 - any SDK's: the cards are asked instead
        usage = meter.close()
        return failed(unavailable(failure, model, keys_of(client), usage), usage)
    meter.answered(response_usage(response))
    usage = meter.usage
    called = any(getattr(block, "type", "") == "tool_use" for block in getattr(response, "content", ()))
    answer = None if called or is_refusal(response) else answer_in(response_text(response))
    reading = read_answer(answer, scope, request.now) if answer is not None else None
    if reading is None or not reading.is_usable:
        problem = "it declined" if is_refusal(response) else "there is no brief, and no entry"
        problem = one_line(reading.problems[0], 160) if reading is not None and reading.problems else problem
        what = "called a tool instead" if called else f"its answer could not be used ({problem})"
        return failed(PlannerUnavailable(f"planner model {model}: {what}", usage), usage)
    return Outcome(reading, usage, model, reading_notes(reading, scope, cut_off=False))
