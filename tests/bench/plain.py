"""Plain ways to make a list smaller, as methods: ``--method tests.bench.plain:best_lines``.

What a compactor has to beat beside the newest messages and cleared results. They know of no plan and no guard.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from applier.eval.survival import message_tokens, pieces, plain_text, specifics, text_tokens
from planner.reading.messages import Block, Message, blocks, result_text


def equal_cut(messages: Sequence[Message], task: str, target_tokens: int) -> list[Message]:
    """Cut every tool result to the same length, its start and end kept; drop messages after the first if too long."""
    low, high = 0, max((len(result_text(b)) for m in messages for b in blocks(m) if _is_result(b)), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if message_tokens(_truncated(messages, middle)) <= target_tokens:
            low = middle
        else:
            high = middle - 1
    cut = _truncated(messages, low)
    if message_tokens(cut) <= target_tokens:
        return cut
    first = message_tokens(cut[:1])
    kept = cut[:1] if first < target_tokens else []
    return [*kept, *newest_text(cut[len(kept) :], task, target_tokens - (first if kept else 0))]


def newest_text(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Keep the end of the text, to the last character that fits."""
    text = plain_text(messages)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if text_tokens(text[len(text) - middle :]) <= target_tokens:
            low = middle
        else:
            high = middle - 1
    return [{"role": "user", "content": text[len(text) - low :]}]


def _truncated(messages: Sequence[Message], characters: int) -> list[Message]:
    return [_with_results(message, partial(_ends, characters=characters)) for message in messages]


def _ends(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[…]\n{text[len(text) - half :]}" if half else ""


def _is_result(block: Block) -> bool:
    return bool(block["type"] == "tool_result")


def _with_results(message: Message, change: Callable[[str], str]) -> Message:
    if not any(map(_is_result, blocks(message))):
        return message
    changed = [{**b, "content": change(result_text(b))} if _is_result(b) else b for b in blocks(message)]
    return {**message, "content": changed}


def best_lines(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Return the lines richest in specifics not yet covered, by frequency and recency: a bag of lines."""
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
    """Return weights of names, more for frequent and recent ones."""
    counts = Counter(name for own in names for name in own)
    last = {name: place for place, own in enumerate(names) for name in own}
    return {name: count * (1 + last[name] / len(names)) for name, count in counts.items()}


def specifics_list(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Return a bare list of the specifics, the most frequent and recent first."""
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
