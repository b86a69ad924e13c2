"""Several compactions in a row: what of the earliest turns still stands after each.

Counts lines of failures and of the user's binding words, word for word; calls no model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from applier.session.session import Session
from planner.evidence import Evidence, gather_evidence
from planner.layout.placeholders import clean
from planner.reading.history import read_history
from planner.reading.lines import Line
from planner.reading.messages import blocks, plain_message, result_text
from planner.reading.tokens import TokenCounter

__all__ = ["Round", "compact_in_rounds"]

FIRST_SHARE = 0.4
"""The first compaction comes when so much of the transcript is there, the last at its end."""
EARLIEST_SHARE = 0.5
"""Of what is there at the first compaction, this share of the turns is called early."""


@dataclass(frozen=True, slots=True)
class Round:
    """After one compaction."""

    history_tokens: int
    sent_tokens: int
    constraints: tuple[int, int]
    """Lines of the user's binding words in the early turns: how many still stand, of how many."""
    failures: tuple[int, int]
    """Lines that show a failure there, likewise."""


def compact_in_rounds(
    messages: Sequence[object], task: str, *, rounds: int = 5, preset: str = "relevance", window_tokens: int = 200_000
) -> list[Round]:
    """Let a transcript grow through a session and compact it `rounds` times, each time from the originals."""
    counter = TokenCounter.for_model()
    lengths = [int(len(messages) * (FIRST_SHARE + (1 - FIRST_SHARE) * n / max(1, rounds - 1))) for n in range(rounds)]
    early = _early_lines(messages[: lengths[0]], counter)
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(
            task, preset=preset, store=Path(folder, "store.db"), planner="rules", window_tokens=window_tokens
        ) as session,
    ):
        return [_round(session, messages[:length], early, counter) for length in lengths]


def _round(
    session: Session, messages: Sequence[object], early: tuple[list[str], list[str]], counter: TokenCounter
) -> Round:
    sent = session.compact(messages).messages
    text = _plain_text(sent)
    evidence = gather_evidence(read_history(messages), counter)
    constraints, failures = ((sum(line in text for line in lines), len(lines)) for lines in _shown(evidence, early))
    tokens = counter.messages(map(plain_message, messages)), counter.messages(map(plain_message, sent))
    return Round(*tokens, constraints, failures)


def _early_lines(messages: Sequence[object], counter: TokenCounter) -> tuple[list[str], list[str]]:
    """Binding words and failure lines of the early turns."""
    turns = list(gather_evidence(read_history(messages), counter).turns.values())
    early = turns[: int(len(turns) * EARLIEST_SHARE)]
    constraints = [turn.lines[number - 1] for turn in early for number in turn.constraint_lines]
    failures = [turn.lines[number - 1] for turn in early for number in turn.failure_lines]
    return _texts(constraints), _texts(failures)


def _texts(lines: Sequence[Line]) -> list[str]:
    return [line.text for line in lines if line.text.strip()]


def _shown(evidence: Evidence, parts: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """The lines as a view says them, which leaves the root of the history out of paths."""
    for texts in parts:
        yield [" ".join(evidence.shown(clean(text)).split()) for text in texts]


def _plain_text(messages: Sequence[object]) -> str:
    """Everything that is said, with white space folded."""
    texts = (
        block.get("text") or result_text(block) or str(block.get("input", ""))
        for message in messages
        for block in blocks(plain_message(message))
    )
    return " ".join(" ".join(str(text).split()) for text in texts)
