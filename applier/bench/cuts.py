"""Where a transcript is cut for the measure, and what its agent needed from before the cut.

The compactor is shown the part before the cut only; what is needed is read from the part after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from applier.bench.labels import Labels
from applier.bench.specifics import occurrences, path_splits, specifics, stands
from applier.bench.texts import agent_values, message_tokens, pieces, plain_text
from planner.reading.messages import Message

__all__ = [
    "CUT_SHARES",
    "LEAST_PREFIX_TOKENS",
    "WINDOW_CHARACTERS",
    "Cut",
    "Need",
    "cut_points",
    "find_needs",
]

CUT_SHARES = (0.5, 0.8)
"""By default a transcript is cut where the part before holds these shares of its tokens."""
LEAST_PREFIX_TOKENS = 15_000
"""A shorter part before the cut needs no compaction and is not measured."""
WINDOW_CHARACTERS = 60
"""How far around a specific its context reaches, either side."""

_CONTEXT_WORD = re.compile(r"[^\W\d_]{3,}")
_BARE_VALUE = re.compile(r"[\d.,:\-]+|[a-z]+")


CutKind = Literal["cut", "labelled", "own summary"]
"""``cut``: at a share of the transcript; ``labelled``: where its labels are for; ``own summary``: where its own
agent compacted it."""


@dataclass(frozen=True)
class Need:
    """One specific the agent wrote after the cut that it could only know from before."""

    specific: str
    contexts: frozenset[frozenset[str]]
    """The words around each of its original occurrences."""


@dataclass(frozen=True)
class Cut:
    """One transcript cut at one point."""

    name: str
    """Transcript and share, to tell rows apart."""
    task: str
    messages: tuple[Message, ...]
    """Before the cut: what a method compacts."""
    after: tuple[Message, ...]
    """What no method is shown."""
    tokens: int
    """Of `messages`, by o200k."""
    needs: tuple[Need, ...]
    kind: CutKind = "cut"
    labels: Labels | None = None
    own_summary: str = ""
    """What the transcript's own agent kept of `messages`."""


def cut_points(messages: Sequence[Message], shares: Sequence[float] = CUT_SHARES) -> list[int]:
    """Indexes of assistant messages to cut before, one per share, pairs whole, without doubles."""
    sizes = [message_tokens([message]) for message in messages]
    total, points = sum(sizes), []
    for share in shares:
        held = 0
        for index, message in enumerate(messages):
            if held >= share * total and message["role"] == "assistant":
                if held >= LEAST_PREFIX_TOKENS and index not in points:
                    points.append(index)
                break
            held += sizes[index]
    return points


def find_needs(before: Sequence[Message], after: Sequence[Message], task: str) -> tuple[Need, ...]:
    """What the agent writes in `after`, before it is shown again, that `before` holds and `task` does not."""
    texts = [text for _, text in pieces(before)]
    held = "\n".join(texts)
    return tuple(
        Need(specific, _contexts(specific, texts))
        for specific in _written_unseen(after)
        if stands(specific, held) and not stands(specific, task)
    )


def _written_unseen(after: Sequence[Message]) -> list[str]:
    """Specifics in the order the agent first writes them, without those shown to it before it did."""
    shown, found, known = "", [], set[str]()
    for message in after:
        if message["role"] == "assistant":
            for specific in _written(message):
                if specific not in known and not stands(specific, shown):
                    found.append(specific)
                known.add(specific)
        shown += "\n" + plain_text([message] if message["role"] == "user" else [])
    return found


def _written(message: Message) -> Iterator[str]:
    for value, is_input in agent_values(message):
        if not (is_input and _BARE_VALUE.fullmatch(value.strip())):
            yield from specifics(value)


def _contexts(specific: str, texts: Sequence[str]) -> frozenset[frozenset[str]]:
    return frozenset(
        context_words(text, at, at + len(specific)) for text in texts for at in occurrences(specific, text)
    )


def context_words(text: str, start: int, end: int) -> frozenset[str]:
    """The words of three letters or more within `WINDOW_CHARACTERS` either side of ``text[start:end]``."""
    around = text[max(0, start - WINDOW_CHARACTERS) : start] + " \n " + text[end : end + WINDOW_CHARACTERS]
    return frozenset(word.lower() for word in _CONTEXT_WORD.findall(around))


def placings(specific: str, text: str) -> Iterator[tuple[int, int]]:
    """Where `specific` stands in `text`: itself, or for a path its rest while its root stands elsewhere."""
    for at in occurrences(specific, text):
        yield at, at + len(specific)
    for root, rest in path_splits(specific):
        if stands(root, text):
            for at in occurrences(rest, text):
                yield at, at + len(rest)
