"""What a short answer of the user chose: the option or question of the assistant's text before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from planner.reading.lines import Statement
from planner.reading.patterns import lazy_pattern

__all__ = ["Choice", "answered_option"]

SHORT_REPLY_CHARACTERS = 120
"""A reply that needs what it answers to be understood is no longer."""
CHOICE_CHARACTERS = 400
"""Of what was chosen so much stands beside the answer."""

_OPTION = lazy_pattern(
    r"\s{0,6}(?:[-*] +)?(?:#{1,4} +)?(?:\*\*)?(?:Option +|Approach +)?\(?(?P<key>\d{1,2}"
    r"|[A-Ha-h])[.):]\)?(?:\*\*)? +(?P<text>\S.*)"
)
"""An option in a list: ``1. Use a queue``, ``**B)** Both``, ``### Option 2: Poll``; not ``1.5 s``, ``e.g. this``."""
_KEY = lazy_pattern(
    r"(?:(?:let'?s |we |i'?d |i )?(?:go|do|take|use|pick|choose|like|prefer)?(?: with| for)? ?)?(?:option|number"
    r"|approach|#|no\.?)? ?"
    r"\(?(?P<key>\d{1,2}|[a-h])\)?(?=$|[\s.,:;!)])",
    re.I,
)
"""A reply that names an option: ``2``, ``option B``, ``let's go with option 1, …``; not ``a test``, ``3 files``."""
_ARTICLE = lazy_pattern(
    r"(?:a|\d{1,2}) +(?!and\b|or\b|but\b|please\b|is\b|sounds\b|looks\b|then\b|with\b)[a-z]{2,}", re.I
)
_ALL = lazy_pattern(r"(?:both|all(?: of (?:them|it|the above))?|everything|each|do (?:both|all))\b", re.I)
_ASSENT = lazy_pattern(
    r"(?:y|yes|yeah|yep|yup|ok|okay|sure|right|correct|agreed?|please(?: do)?|go(?: ahead| for it)?|do (?:it|that)|"
    r"sounds good|looks good|lgtm|perfect|great|n|no|nope|nah|don'?t|not yet)\b",
    re.I,
)
"""A reply that says yes or no to what was asked last: ``yeah, do it``; not ``yesterday``."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a short answer of the user refers to."""

    turn_id: str
    """Where it was offered or asked."""
    text: str
    """The option chosen, or the question answered; of several options, one a line."""
    lines: tuple[int, ...]
    """Numbers of its lines in that turn."""


def answered_option(reply: str, offer: Sequence[Statement], turn_id: str = "") -> Choice | None:
    """What `reply` chose among the options, or answered of the questions, in the assistant's text `offer`.

    None if the reply is long enough to stand alone, or nothing was offered or asked.
    """
    reply = reply.strip()
    if not reply or len(reply) > SHORT_REPLY_CHARACTERS:
        return None
    if _ALL.match(reply) and (every := _last_list(offer)):
        return _choice(turn_id, [statement for _, statement in every])
    key = None if _ARTICLE.match(reply) else _KEY.match(reply)
    if key:
        wanted = key["key"].lower()
        return _choice(turn_id, [one for named, one in _last_list(offer) if named == wanted][-1:])
    return _choice(turn_id, _last_question(offer)) if _ASSENT.match(reply) else None


def _choice(turn_id: str, chosen: Sequence[Statement]) -> Choice | None:
    if not chosen:
        return None
    text = "\n".join(one.text.strip()[:CHOICE_CHARACTERS] for one in chosen)
    return Choice(turn_id, text, tuple(number for one in chosen for number in one.numbers))


def _last_list(offer: Sequence[Statement]) -> list[tuple[str, Statement]]:
    """The last list of options, each with the number or letter it goes by, in lower case."""
    options: list[tuple[str, Statement]] = []
    for statement in offer:
        if match := _OPTION.match(statement.text):
            key = match["key"].lower()
            if key in ("1", "a"):
                options = []
            options.append((key, statement))
    return options


def _last_question(offer: Sequence[Statement]) -> list[Statement]:
    return [one for one in offer if one.text.rstrip().rstrip("*_").endswith("?")][-1:]
