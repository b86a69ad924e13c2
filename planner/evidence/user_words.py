"""User's own words: the lines of a message that they typed, and the offer that a short reply answers.

The sender of each line was decided before, by `evidence.hosts`. Typed text is distinguished from pasted text by its
size and shape alone, so that the rule works in any language. An offer is a list of options or a question by the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple
from unicodedata import category

from planner.evidence.calls import Call
from planner.evidence.hosts import attributed
from planner.reading.history import History, Turn
from planner.reading.lines import Line, Lines, Statement, join_lines, text_width, turn_lines
from planner.reading.patterns import lazy_pattern

LONG_MESSAGE = 2_000
"""Smallest width of a message that is searched for pasted parts; a shorter one counts as typed."""
LONG_PASTE = 800
"""Smallest width of a run of lines that counts as pasted because the lines look like data."""
PASTED_TIMES = 3
"""Smallest number of occurrences of a line in a message that make it look like data."""
WORDS_SHARE = 0.7
"""Smallest share of letters, marks and blanks in a line of prose, in any script; rows, logs and JSON have less."""
_FENCE = lazy_pattern(r"\s*(```|~~~)")

SHORT_REPLY = 120
"""Largest width of a reply that may be impossible to understand without the offer that it answers."""
OFFER_CHARACTERS = 400
"""Largest length of an offer that is shown with its reply."""
_OPTION = lazy_pattern(
    r"\s{0,6}(?:[-*] +)?(?:#{1,4} +)?(?:\*\*)?(?:\w{1,12} +)?\(?(?P<key>\d{1,2}|[A-Ha-h])[.):]\)?(?:\*\*)? +\S"
)
"""An option in a list: ``1. Use a queue``, ``**B)** Both``, ``### Option 2: Poll``; not ``1.5 s``."""
_KEY = lazy_pattern(r"(?<![\w.,:/-])(\d{1,2}|[A-H]|[a-h](?=\W*$|\)))(?![\w%€$£]|[.,:/-]\w)")
"""Number or letter that may choose an option: ``2``, ``option B``, ``(b)``; not ``10:30``, ``3.5``."""
_QUESTION = lazy_pattern(r".*[?？؟;՞]\W*$")
"""Line that asks, in any script."""
_BINDING = lazy_pattern(
    r"\b(?:must|never|always|don'?t|do not|only|without|should(?:n'?t)?|make sure|ensure|avoid|instead|cannot|can'?t"
    r"|unless|important|exactly|at (?:least|most)|forbidden|mandatory)\b",
    0,
)
"""English words of obligation. They only select among the lines of a message that is too long to stay whole."""
_LABEL = lazy_pattern(r"[ \t]{0,8}[A-Z][A-Z _-]{2,30}:\s")
"""A label in capitals: ``LIMIT: 3``, ``GOAL STATE: …``."""


class _ShapedLine(NamedTuple):
    """Line of the user's message, by its shape."""

    line: Line
    is_data: bool
    """True if the line looks like data: it is in a closed code fence, is repeated, or is no prose."""


def typed_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return those of the `lines` of the user's message that they typed, without empty ones.

    In a short message these are all lines. In a long message, a run of lines that look like data is left out if it is
    at least `LONG_PASTE` wide.
    """
    filled = [line for line in lines if line.text.strip()]
    if sum(text_width(line.text) for line in lines) < LONG_MESSAGE:
        return tuple(filled)
    fenced, times = _fenced(lines), Counter(line.text.strip() for line in filled)
    shaped = [
        _ShapedLine(line, line.number in fenced or times[line.text.strip()] >= PASTED_TIMES or not _is_prose(line.text))
        for line in filled
    ]
    typed: list[Line] = []
    for is_data, group in groupby(shaped, key=attrgetter("is_data")):
        run = [one.line for one in group]
        if not (is_data and sum(text_width(line.text) for line in run) >= LONG_PASTE):
            typed += run
    return tuple(typed)


def _fenced(lines: Sequence[Line]) -> set[int]:
    """Return the numbers of the lines from a code fence to its closing fence."""
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
    """Return the lines of one turn that the user wrote; `calls`: the calls of this turn."""
    return tuple(line for line in attributed(lines, calls) if line.source == "user" and line.text.strip())


def first_words(history: History, most: int) -> str:
    """Return the user's words in their first and last message, cut to `most` characters. They are the task of a
    conversation if the caller gives none."""
    turns = [turn for turn in history.turns if turn.kind == "user"]
    first, last = _first_text(history, turns), _first_text(history, reversed(turns))
    return "\n".join(dict.fromkeys(filter(None, (first, last))))[:most]


def _first_text(history: History, turns: Iterable[Turn]) -> str:
    """Return the user's words in the first of `turns` that has some, else ""."""
    texts = (join_lines(own_words(turn_lines(history, turn))).strip() for turn in turns)
    return next(filter(None, texts), "")


@dataclass(frozen=True, slots=True)
class Choice:
    """Option or question of the agent that a short reply of the user answers."""

    turn_id: str
    """Id of the agent's turn."""
    text: str
    """The chosen option, or the question."""
    lines: tuple[int, ...]
    """Numbers of its lines in the agent's turn."""


def answered_offer(reply: str, statements: Sequence[Statement], turn_id: str = "") -> Choice | None:
    """Return the option that the user's `reply` chose, or the question that it answered.

    `statements`: the agent's text before the reply; `turn_id`: its turn. None if the reply is long or a question, or if
    the text has neither an option that the reply chooses nor a question.
    """
    reply = reply.strip()
    if not reply or text_width(reply) > SHORT_REPLY or is_question(reply):
        return None
    keys = {key.lower() for key in _KEY.findall(reply)}
    options = [option for option in _last_options(statements) if option.key in keys]
    questions = [one for one in statements if is_question(one.text)]
    if len(options) == 1:
        chosen = options[0].statement
    elif questions:
        chosen = questions[-1]
    else:
        return None
    return Choice(turn_id, chosen.text.strip()[:OFFER_CHARACTERS], chosen.numbers)


class _Option(NamedTuple):
    """Option in a list."""

    key: str
    """Its number or letter, in lower case."""
    statement: Statement


def _last_options(statements: Sequence[Statement]) -> list[_Option]:
    """Return the options of the last list; a list begins with 1 or a."""
    options: list[_Option] = []
    for statement in statements:
        if match := _OPTION.match(statement.text):
            key = match["key"].lower()
            if key in ("1", "a"):
                options = []
            options.append(_Option(key, statement))
    return options
