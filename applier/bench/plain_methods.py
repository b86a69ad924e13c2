"""Plain ways to make a message list smaller: the starting points that a compactor has to beat.

Each takes messages, task and target tokens (o200k, as the measure counts) and returns a message list. They
know nothing of plans or guards.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from applier.bench.outcome import Method
from applier.bench.specifics import specifics
from applier.bench.texts import message_tokens, pieces, text_tokens
from planner.reading.history import read_history
from planner.reading.messages import Block, Message, blocks, result_text

__all__ = [
    "PLAIN_METHODS",
    "best_lines",
    "clear_results",
    "head_and_tail",
    "newest",
    "specifics_list",
]

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


PLAIN_METHODS: dict[str, Method] = {
    "newest": newest,
    "clear": clear_results,
    "head-tail": head_and_tail,
    "best-lines": best_lines,
    "list": specifics_list,
}
"""By the names of the command line."""
