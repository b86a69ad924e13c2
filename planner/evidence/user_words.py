"""User's own words: the lines of a message that they typed, and the offer that a short reply answers.

`evidence.hosts` has decided the sender of each line before. Typed and pasted text are distinguished by size and shape
alone, so that the rule works in any language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from unicodedata import category

from planner.evidence.calls import Call
from planner.evidence.hosts import attributed
from planner.reading.history import History, Turn
from planner.reading.lines import Line, Lines, Statement, join_lines, text_width, turn_lines
from planner.reading.patterns import lazy_pattern

__all__ = [
    "Choice",
    "answered_offer",
    "binding_lines",
    "first_words",
    "introduces",
    "is_question",
    "own_words",
    "typed_lines",
]

LONG_MESSAGE = 2_000
"""Width from which a message is searched for pasted parts; a shorter one counts as typed, whatever its shape."""
LONG_PASTE = 800
"""Width from which a run of lines that look like data counts as pasted."""
PASTED_TIMES = 3
"""Number of occurrences from which a line of a long message looks like data."""
WORDS_SHARE = 0.7
"""Smallest share of letters, marks and blanks in a line of prose, in any script; rows, logs and JSON have less."""
_FENCE = lazy_pattern(r"\s*(```|~~~)")

SHORT_REPLY = 120
"""Largest width of a reply that is not understandable without its question."""
OFFER_CHARACTERS = 400
"""Length of the offer or question shown with the reply."""
_OPTION = lazy_pattern(
    r"\s{0,6}(?:[-*] +)?(?:#{1,4} +)?(?:\*\*)?(?:\w{1,12} +)?\(?(?P<key>\d{1,2}|[A-Ha-h])[.):]\)?(?:\*\*)? +\S"
)
"""An option in a list: ``1. Use a queue``, ``**B)** Both``, ``### Option 2: Poll``; not ``1.5 s``."""
_KEY = lazy_pattern(r"(?<![\w.,:/-])(\d{1,2}|[A-H]|[a-h](?=\W*$|\)))(?![\w%€$£]|[.,:/-]\w)")
"""Number or letter that is alone in a reply: ``2``, ``option B``, ``(b)``; not ``10:30``, ``3.5``."""
_QUESTION = lazy_pattern(r".*[?？؟;՞]\W*$")
"""Line that asks, in any script."""
_BINDING = lazy_pattern(
    r"\b(?:must|never|always|don'?t|do not|only|without|should(?:n'?t)?|make sure|ensure|avoid|instead|cannot|can'?t"
    r"|unless|important|exactly|at (?:least|most)|forbidden|mandatory)\b",
    0,
)
"""English words that oblige. They only select among the lines of a message that is too long to stay whole."""
_LABEL = lazy_pattern(r"[ \t]{0,8}[A-Z][A-Z _-]{2,30}:\s")
"""A label in capitals: ``LIMIT: 3``, ``GOAL STATE: …``."""


def typed_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines of the user's message that they typed, without empty ones; in a short message all of them.

    In a long message, runs of lines that look like data are left out if they are at least `LONG_PASTE` wide: lines in
    closed code fences, repeated lines, and lines that are no prose.
    """
    if sum(text_width(line.text) for line in lines) < LONG_MESSAGE:
        return tuple(line for line in lines if line.text.strip())
    fenced, times = _fenced(lines), Counter(line.text.strip() for line in lines)
    typed: list[Line] = []
    is_data_line = False
    classified = []
    for line in lines:
        if line.text.strip():  # a blank line goes with the line before it
            is_data_line = line.number in fenced or times[line.text.strip()] >= PASTED_TIMES or not _is_prose(line.text)
        classified.append((is_data_line, line))
    for is_data, run in groupby(classified, key=lambda one: one[0]):
        filled = [line for _, line in run if line.text.strip()]
        if not (is_data and sum(text_width(line.text) for line in filled) >= LONG_PASTE):
            typed += filled
    return tuple(typed)


def _fenced(lines: Sequence[Line]) -> set[int]:
    """Return the numbers of the lines between a code fence and its closing fence."""
    fences = [at for at, line in enumerate(lines) if _FENCE.match(line.text)]
    pairs = zip(fences[::2], fences[1::2], strict=False)
    return {line.number for first, last in pairs for line in lines[first : last + 1]}


def _is_prose(text: str) -> bool:
    """Return True for a line of words in any script."""
    words = sum(1 for character in text if character.isspace() or category(character)[0] in "LM")
    return words >= WORDS_SHARE * len(text)


def binding_lines(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with an English word of obligation, or a label in capitals."""
    return [line for line in lines if _BINDING.search(line.text.lower()) or _LABEL.match(line.text)]


def is_question(text: str) -> bool:
    """Return True for a line that ends like a question, in any script."""
    return _QUESTION.match(text) is not None


def introduces(text: str) -> bool:
    """Return True for a line that only announces the next one, in any script: ``For this page I want:``."""
    return text.rstrip().endswith((":", "："))


def own_words(lines: Lines, calls: Sequence[Call] = ()) -> tuple[Line, ...]:
    """Return the lines of one turn that the user wrote."""
    return tuple(line for line in attributed(lines, calls) if line.source == "user" and line.text.strip())


def first_words(history: History, most: int) -> str:
    """Return what the user wrote in their first and last message, cut to `most` characters, as the task of a
    conversation for which the caller has none."""
    turns = [turn for turn in history.turns if turn.kind == "user"]
    ends = (next(filter(None, (_own_text(history, turn) for turn in order)), "") for order in (turns, reversed(turns)))
    return "\n".join(dict.fromkeys(filter(None, ends)))[:most]


def _own_text(history: History, turn: Turn) -> str:
    return join_lines(own_words(turn_lines(history, turn))).strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """Offer or question that a short reply of the user answers."""

    turn_id: str
    """Turn of the offer or question."""
    text: str
    """The chosen option, or the question."""
    lines: tuple[int, ...]
    """Numbers of its lines in that turn."""


def answered_offer(reply: str, offer: Sequence[Statement], turn_id: str = "") -> Choice | None:
    """Return the option that `reply` chose, or the question that it answered, in the agent's text `offer`.

    None if the reply is understandable alone, or nothing was offered or asked.
    """
    reply = reply.strip()
    if not reply or text_width(reply) > SHORT_REPLY or is_question(reply):
        return None
    keys = {key.lower() for key in _KEY.findall(reply)}
    chosen = [one for key, one in _last_list(offer) if key in keys]
    if len(chosen) != 1:
        chosen = [one for one in offer if is_question(one.text)][-1:]
    if not chosen:
        return None
    numbers = tuple(number for one in chosen for number in one.numbers)
    return Choice(turn_id, chosen[0].text.strip()[:OFFER_CHARACTERS], numbers)


def _last_list(offer: Sequence[Statement]) -> list[tuple[str, Statement]]:
    """Return the last list of options, each with its number or letter, in lower case."""
    options: list[tuple[str, Statement]] = []
    for statement in offer:
        if match := _OPTION.match(statement.text):
            key = match["key"].lower()
            if key in ("1", "a"):
                options = []
            options.append((key, statement))
    return options
