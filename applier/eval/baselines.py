"""What a compactor has to beat: plain ways to make a list smaller, and other people's packages (extra ``eval``).

Each takes messages, task and target tokens (o200k, as the measures count) and returns a message list. They know
nothing of plans or guards. For a package messages are translated to its form and back, so that what it leaves alone
stays as it was; nothing is added to what it does.
"""

from __future__ import annotations

import heapq
import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from applier.eval.specifics import specifics
from applier.eval.texts import message_tokens, pieces, text_tokens
from planner.errors import SettingsError
from planner.reading.history import read_history
from planner.reading.messages import Block, Message, blocks, result_text

__all__ = [
    "PEERS",
    "PLAIN_METHODS",
    "Baseline",
    "best_lines",
    "clear_results",
    "clear_tool_uses",
    "head_and_tail",
    "headroom",
    "newest",
    "specifics_list",
    "trim_messages",
]

Baseline = Callable[[Sequence[Message], str, int], list[Message]]
CLEARED = "[cleared]"


def newest(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """The newest turns that fit, pairs whole."""
    history = read_history(messages)
    kept: list[Message] = []
    room = target_tokens
    for turn in reversed(history.turns):
        own = list(history.messages_of(turn))
        room -= message_tokens(own)
        if room < 0:
            break
        kept = own + kept
    return kept


def clear_results(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Oldest tool results replaced by a word until the list fits, the newest too if it must be."""
    total, done = message_tokens(messages), list(messages)
    for place, message in enumerate(messages):
        if total <= target_tokens:
            break
        done[place] = _with_results(message, lambda _: CLEARED)
        total += message_tokens([done[place]]) - message_tokens([message])
    return done


def head_and_tail(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Every tool result cut to the same length, head and tail, as long as fits."""
    low, high = 0, max((len(result_text(b)) for m in messages for b in blocks(m) if _is_result(b)), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if message_tokens(_truncated(messages, middle)) <= target_tokens:
            low = middle
        else:
            high = middle - 1
    return _truncated(messages, low)


def _truncated(messages: Sequence[Message], characters: int) -> list[Message]:
    half = characters // 2
    return [
        _with_results(m, lambda t: t if len(t) <= characters else f"{t[:half]}\n[…]\n{t[len(t) - half :]}")
        for m in messages
    ]


def _is_result(block: Block) -> bool:
    return bool(block["type"] == "tool_result")


def _with_results(message: Message, change: Callable[[str], str]) -> Message:
    if not any(map(_is_result, blocks(message))):
        return message
    changed = [{**b, "content": change(result_text(b))} if _is_result(b) else b for b in blocks(message)]
    return {**message, "content": changed}


def best_lines(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """The lines richest in specifics not yet covered, by frequency and recency: a bag of lines."""
    lines = [line[:400] for _, piece in pieces(messages) for line in piece.splitlines() if line.strip()]
    names = [frozenset(specifics(line)) for line in lines]
    tokens = [text_tokens(line) + 1 for line in lines]
    weights = _weights(names)
    chosen, covered, room = list[int](), set[str](), target_tokens

    def worth(place: int) -> float:
        return sum(weights[name] for name in names[place] if name not in covered) / math.sqrt(tokens[place])

    queue = [(-worth(place), -place) for place in range(len(lines)) if names[place]]
    heapq.heapify(queue)
    while queue:
        place = -heapq.heappop(queue)[1]
        now = worth(place)
        if now <= 0 or tokens[place] > room:
            continue
        if queue and now < -queue[0][0]:
            heapq.heappush(queue, (-now, -place))
            continue
        chosen.append(place)
        covered |= names[place]
        room -= tokens[place]
    return [{"role": "user", "content": "\n".join(lines[place] for place in sorted(chosen))}]


def _weights(names: Sequence[Iterable[str]]) -> dict[str, float]:
    """More for the more frequent and the more recent, by the places where each name stands."""
    counts = Counter(name for own in names for name in own)
    last = {name: place for place, own in enumerate(names) for name in own}
    return {name: count * (1 + last[name] / len(names)) for name, count in counts.items()}


def specifics_list(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """A bare list of the specifics, the most frequent and recent first."""
    texts = [piece for _, piece in pieces(messages)]
    weights = _weights([specifics(line) for text in texts for line in text.splitlines()])
    ranked = sorted(weights, key=lambda name: -weights[name])
    kept, room = [], target_tokens
    for name in ranked:
        room -= text_tokens(name) + 1
        if room < 0:
            break
        kept.append(name)
    return [{"role": "user", "content": "\n".join(kept)}]


PLAIN_METHODS: dict[str, Baseline] = {
    "newest": newest,
    "clear": clear_results,
    "head-tail": head_and_tail,
    "best-lines": best_lines,
    "list": specifics_list,
}
"""By the names of the command line."""


HEADROOM_MODEL = "claude-sonnet-4-5"
"""Only names the form of the messages; nothing is sent to it."""


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = "pip install 'relevance-compactor[eval]'"
        raise SettingsError(f"this method needs the package of {name}: {remedy} ({error})") from error


def trim_messages(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """langchain-core's `trim_messages`: the newest messages that fit, no result without its call."""
    kept = _package("langchain_core.messages").trim_messages(
        _to_langchain(messages),
        max_tokens=target_tokens,
        token_counter=lambda listed: message_tokens(_originals(listed, messages)),
        strategy="last",
        start_on=("human", "ai"),
    )
    return _originals(kept, messages)


def clear_tool_uses(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """langchain's `ClearToolUsesEdit`: results older than the last three, cleared until enough is free."""
    editing = _package("langchain.agents.middleware.context_editing")
    listed = _to_langchain(messages)

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


def _to_langchain(messages: Sequence[Message]) -> list[Any]:
    """One langchain message per message, or per tool result; each carries the index it came from as its id."""
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


def _originals(listed: Sequence[Any], messages: Sequence[Message]) -> list[Message]:
    kept = {int(message.id) for message in listed}
    return [message for index, message in enumerate(messages) if index in kept]


PEERS: dict[str, Baseline] = {
    "trim_messages": trim_messages,
    "clear_tool_uses": clear_tool_uses,
    "headroom": headroom,
}
"""By the names of the command line."""
