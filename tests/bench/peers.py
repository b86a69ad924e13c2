"""Other people's packages as methods: ``PYTHONPATH=. compactor eval RUN.json --method tests.bench.peers:headroom``.

Each takes messages, task and target tokens (o200k, as the measures count) and returns a message list. Messages are
translated to a package's form and back, so that what it leaves alone stays as it was; nothing is added to what it does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from applier.eval.survival import message_tokens, text_tokens
from planner.errors import SettingsError
from planner.reading.messages import Message, blocks, result_text

Peer = Callable[[Sequence[Message], str, int], list[Message]]
HEADROOM_MODEL = "claude-sonnet-4-5"
"""Model that only names the form of the messages; nothing is sent to it."""


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = "pip install '.[bench]'"
        raise SettingsError(f"this method needs the package of {name}: {remedy} ({error})") from error


def trim_messages(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """langchain-core's `trim_messages`: the newest messages that fit, no result without its call."""
    kept = _package("langchain_core.messages").trim_messages(
        to_langchain(messages),
        max_tokens=target_tokens,
        token_counter=lambda listed: message_tokens(original_messages(listed, messages)),
        strategy="last",
        start_on=("human", "ai"),
    )
    return original_messages(kept, messages)


def clear_tool_uses(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """langchain's `ClearToolUsesEdit`: results older than the last three, cleared until enough is free."""
    editing = _package("langchain.agents.middleware.context_editing")
    listed = to_langchain(messages)

    def count(several: Sequence[Any]) -> int:
        return sum(text_tokens(str(message.content)) for message in several) + calls

    calls = message_tokens(messages) - sum(text_tokens(str(message.content)) for message in listed)
    total = count(listed)
    edit = editing.ClearToolUsesEdit(trigger=target_tokens, clear_at_least=max(1, total - target_tokens), keep=3)
    edit.apply(listed, count_tokens=count)
    cleared = {m.tool_call_id: str(m.content) for m in listed if m.type == "tool" and m.content == edit.placeholder}
    return [_with_cleared(message, cleared) for message in messages]


def _with_cleared(message: Message, cleared: dict[str, str]) -> Message:
    changed = [
        {**block, "content": cleared[block["tool_use_id"]]} if block.get("tool_use_id") in cleared else block
        for block in blocks(message)
    ]
    return {**message, "content": changed} if changed != list(blocks(message)) else message


def headroom(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """headroom-ai's `compress`, asked for the target; its own protections hold, and often stop far above it."""
    package, estimator = _package("headroom"), _package("headroom.tokenizers.estimator")
    # Its counter for this model would load a vocabulary from the network.
    counter = type("Counter", (estimator.EstimatingTokenCounter,), {"count_text": lambda _, text: text_tokens(text)})
    _package("headroom.tokenizers").register_tokenizer(HEADROOM_MODEL, counter())
    ratio = target_tokens / max(1, message_tokens(messages))
    done = package.compress(
        [dict(message) for message in messages], model=HEADROOM_MODEL, target_ratio=ratio, model_limit=1_000_000
    )
    return list(done.messages)


def to_langchain(messages: Sequence[Message]) -> list[Any]:
    """Return a message of langchain for each message, or for each result; its id is the index of the message."""
    kinds = _package("langchain_core.messages")
    listed: list[Any] = []
    for index, message in enumerate(messages):
        text = "\n".join(str(block.get("text") or "") for block in blocks(message) if block["type"] == "text")
        if message["role"] == "assistant":
            calls = [
                {"name": block["name"], "args": dict(block.get("input") or {}), "id": block["id"]}
                for block in blocks(message)
                if block["type"] == "tool_use"
            ]
            listed.append(kinds.AIMessage(content=text, tool_calls=calls, id=str(index)))
            continue
        results = [block for block in blocks(message) if block["type"] == "tool_result"]
        listed += [
            kinds.ToolMessage(content=result_text(block), tool_call_id=block["tool_use_id"], id=str(index))
            for block in results
        ]
        if text or not results:
            listed.append(kinds.HumanMessage(content=text, id=str(index)))
    return listed


def original_messages(listed: Sequence[Any], messages: Sequence[Message]) -> list[Message]:
    """Return the messages from which `listed` messages of langchain came."""
    kept = {int(message.id) for message in listed}
    return [message for index, message in enumerate(messages) if index in kept]


PEERS: dict[str, Peer] = {
    "trim_messages": trim_messages,
    "clear_tool_uses": clear_tool_uses,
    "headroom": headroom,
}
"""Peers by name."""
