"""What agents of other packages send: langchain's summarization with two settings, and its clearing of results.

The real middleware works on a list that it keeps as an agent's state. The model of its summaries is a stand-in that
lists the names in what it reads, most frequent first; its call is not billed. Replays; calls no model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from applier.eval.replay import Replay, ReplayedCall
from applier.eval.survival import specifics
from applier.session.edits import first_difference
from applier.session.pressure import prompt_limit_tokens
from planner.reading.messages import Message, plain_message
from planner.reading.tokens import TokenCounter
from tests.bench.peers import original_messages, to_langchain

SUMMARY_NAMES = 250
"""Names in a summary of the stand-in, about 1,500 tokens."""
OUTPUT_TOKENS = 20_000
CLEAR_TRIGGER = 100_000
"""Default trigger of `ClearToolUsesEdit`."""

_Step = Callable[[list[Any]], list[Any]]
"""Changes an agent's list before a call of its model."""
_Count = Callable[[Sequence[Any]], int]


def _summarizing(keep: tuple[str, float]) -> Callable[[int, _Count], _Step]:
    def opened(window_tokens: int, count: _Count) -> _Step:
        middleware = importlib.import_module("langchain.agents.middleware")
        agent = middleware.SummarizationMiddleware(
            _stand_in(window_tokens), trigger=("fraction", 0.85), keep=keep, token_counter=count
        )

        def step(state: list[Any]) -> list[Any]:
            changed = agent.before_model({"messages": state}, None)
            return changed["messages"][1:] if changed else state

        return step

    return opened


def _stand_in(window_tokens: int) -> Any:
    models = importlib.import_module("langchain_core.language_models.fake_chat_models")
    kinds = importlib.import_module("langchain_core.messages")
    outputs = importlib.import_module("langchain_core.outputs")

    class Summarizer(models.GenericFakeChatModel):  # type: ignore[name-defined, misc]
        def _generate(self, messages: Sequence[Any], *_: Any, **__: Any) -> Any:
            read = "\n".join(str(message.content) for message in messages)
            text = " ".join(sorted(specifics(read), key=read.count, reverse=True)[:SUMMARY_NAMES])
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=kinds.AIMessage(content=text))])

    return Summarizer(messages=iter(()), profile={"max_input_tokens": window_tokens})


def _clearing(_window_tokens: int, count: _Count) -> _Step:
    edit = importlib.import_module("langchain.agents.middleware").ClearToolUsesEdit(trigger=CLEAR_TRIGGER)

    def step(state: list[Any]) -> list[Any]:
        sent = [message.model_copy() for message in state]  # each call edits the whole list anew
        edit.apply(sent, count_tokens=count)
        return sent

    return step


PEER_AGENTS: Mapping[str, Callable[[int, _Count], _Step]] = {
    "langchain-summarization": _summarizing(("messages", 20)),
    "deepagents-constants": _summarizing(("fraction", 0.1)),
    "langchain-clear-tool-uses": _clearing,
}
"""Agents by name: a function of the window and of a counter of tokens, for one conversation."""


def replay_peer(messages: Sequence[Message], name: str, window_tokens: int, system: Any = None) -> Replay:
    """Replay a whole transcript through the agent `name`."""
    counter = TokenCounter.for_model("")
    fixed = counter.request((), system)
    own: dict[str, tuple[Any, int]] = {}
    """The plain form of each of the agent's messages, and its tokens, by a key of the agent's."""

    def plain(message: Any) -> tuple[Any, int]:
        key = f"{message.id} {hash(str(message.content))}"
        if key not in own:
            form = _form(message, messages)
            own[key] = form, counter.message(form)
        return own[key]

    def count(listed: Sequence[Any]) -> int:
        return fixed + sum(plain(message)[1] for message in listed)

    calls = _replayed(messages, PEER_AGENTS[name](window_tokens, count), plain, fixed, window_tokens)
    return Replay(name, window_tokens, tuple(calls), ())


def _form(message: Any, messages: Sequence[Message]) -> dict[str, Any]:
    """Return one of the agent's messages in the Messages API's form; results are messages of their own."""
    if message.type == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": str(message.content)}
        return {"role": "user", "content": [result]}
    if str(message.id).isdigit() and message.type == "ai":
        return dict(original_messages([message], messages)[0])
    return {"role": "user", "content": str(message.content)}


def _replayed(
    messages: Sequence[Message],
    step: _Step,
    plain: Callable[[Any], tuple[Any, int]],
    fixed: int,
    window_tokens: int,
) -> Iterator[ReplayedCall]:
    state, before, known = list[Any](), list[Any](), 0
    limit = prompt_limit_tokens(window_tokens, OUTPUT_TOKENS)
    listed = to_langchain(messages)
    for at, message in enumerate(messages):
        if not at or plain_message(message)["role"] != "assistant":
            continue
        state += [one for one in listed if known <= int(one.id) < at]
        known = at
        state = step(state)
        sent, sizes = map(list, zip(*map(plain, state), strict=True))
        first = first_difference(before, sent)
        same = len(before) if first is None else first
        yield ReplayedCall(
            history_messages=at,
            history_tokens=0,
            sent_tokens=fixed + sum(sizes),
            cached_tokens=(fixed if before else 0) + sum(sizes[:same]),
            invalidated_tokens=0,
            limit_tokens=limit,
            level="normal",
            violations=(),
            events=(),
            sent=sent,
        )
        before = sent
