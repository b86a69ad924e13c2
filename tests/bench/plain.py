"""Plain ways to make a list smaller, as methods: ``--method tests.bench.plain:best_lines``.

What a compactor has to beat beside the newest messages and cleared results. They know of no plan and no guard.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from applier.eval.texts import message_tokens, pieces, specifics, text_tokens
from planner.reading.messages import Block, Message, blocks, result_text

__all__ = ["best_lines", "head_and_tail", "specifics_list"]


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
    lines = [line[:400] for piece in pieces(messages) for line in piece.splitlines() if line.strip()]
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
    texts = pieces(messages)
    weights = _weights([specifics(line) for text in texts for line in text.splitlines()])
    ranked = sorted(weights, key=lambda name: -weights[name])
    kept, room = [], target_tokens
    for name in ranked:
        room -= text_tokens(name) + 1
        if room < 0:
            break
        kept.append(name)
    return [{"role": "user", "content": "\n".join(kept)}]
