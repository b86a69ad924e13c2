"""How much of what the agent needed still stands in a compacted list: plain, and in its context.

Pure: needs and messages in, shares out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.bench.cuts import Need, context_words, placings
from applier.bench.texts import pieces
from planner.reading.messages import Message

__all__ = ["Recall", "measure_recall"]


@dataclass(frozen=True)
class Recall:
    """What of `needed` specifics survived."""

    needed: int
    lost: tuple[str, ...]
    """Needed specifics that stand nowhere in the result."""
    bare: tuple[str, ...]
    """Those that stand, but without the words that were around them."""

    @property
    def plain(self) -> float:
        """The share that still stands; 1 when nothing was needed."""
        return 1 - len(self.lost) / self.needed if self.needed else 1.0

    @property
    def in_context(self) -> float:
        """The share that stands with at least half of the words around one original occurrence."""
        return 1 - (len(self.lost) + len(self.bare)) / self.needed if self.needed else 1.0


def measure_recall(needs: Sequence[Need], messages: Sequence[Message]) -> Recall:
    """The recall of `needs` in `messages`, a compacted list."""
    text = "\n".join(piece for _, piece in pieces(messages))
    lost, bare = [], []
    for need in needs:
        places = list(placings(need.specific, text))
        if not places:
            lost.append(need.specific)
        elif not any(_keeps_context(need, context_words(text, *place)) for place in places):
            bare.append(need.specific)
    return Recall(len(needs), tuple(lost), tuple(bare))


def _keeps_context(need: Need, words: frozenset[str]) -> bool:
    return words in need.contexts or any(2 * len(words & c) >= len(c) for c in need.contexts)
