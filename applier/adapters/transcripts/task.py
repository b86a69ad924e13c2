"""Guesses what the user wants now from their own words. Never reads what the host put into their messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from planner.evidence.user_words import own_words
from planner.reading.history import read_history
from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import Message, blocks

__all__ = ["guess_task"]

FEWEST_WORDS = 4
"""Shorter words of the user ("yes", "go on", "please push") answer something; they set no task."""
LONGEST_CHARACTERS = 2_000
"""A guessed task is cut here: what stands behind it is a paste."""
SEARCHED_CHARACTERS = 50_000
"""Of one text no more is searched for the user's words."""

_ANSWER = re.compile(
    r"\W*(?:thanks|thank you|great|perfect|awesome|nice|that'?s all|no,? that|yes|yep|sure|correct)\b", re.I
)
LONGEST_ANSWER_WORDS = 25
"""Longer words that begin like an answer ("thanks, now …") go on to a task."""


def guess_task(messages: Sequence[Message], skip: Collection[int] = ()) -> str:
    """The last words of the user that set a task, else their first words, else an empty text.

    `skip`: indexes of messages known to be the host's.
    """
    own = [i for i in range(len(messages)) if i not in skip]
    newest = (text for i in reversed(own) for text in reversed(list(_words(messages[i]))))
    task = next(filter(_sets_a_task, newest), None)
    if task is None:
        task = next((text for i in own for text in _words(messages[i])), "")
    return task if len(task) <= LONGEST_CHARACTERS else task[:LONGEST_CHARACTERS].rstrip() + " …"


def _sets_a_task(text: str) -> bool:
    words = len(text.split())
    answers = words < LONGEST_ANSWER_WORDS and _ANSWER.match(text) and "?" not in text
    return words >= FEWEST_WORDS and not answers


def _words(message: Message) -> Iterator[str]:
    """The user's own words in `message`, one text per block."""
    if message["role"] != "user":
        return
    for block in blocks(message):
        if block["type"] == "text" and isinstance(block.get("text"), str):
            history = read_history([{"role": "user", "content": block["text"][:SEARCHED_CHARACTERS]}])
            words = join_lines(own_words(turn_lines(history, history.turns[0]))).strip()
            if words:
                yield words
