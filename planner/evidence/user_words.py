"""What the user's words oblige to: which lines bind the agent, and what a short answer chose of what was offered.

Binding are the user's own words, what an earlier summary quotes of them, and rules of the project. Whose words a line
is was decided before (`evidence.hosts`); nothing here turns foreign text into the user's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from planner.evidence.calls import Call
from planner.evidence.hosts import attributed
from planner.reading.lines import Line, Lines, Statement, numbers_of
from planner.reading.patterns import lazy_pattern

__all__ = ["Choice", "answered_option", "constraints_of", "own_words", "typed_lines"]

_QUOTED = lazy_pattern(r"\s*(?:[-*]|\d+\.)?\s*[\"“][^\"”]{4,}[\"”]")
"""A whole line in quotes: ``- "never touch main"``; not ``the word "main" is``."""
_BINDING = lazy_pattern(
    r"\b(?:must|never|always|don'?t|do not|doesn'?t|(?<!is )only|without|"
    r"should(?:n'?t)?|make sure|ensure|avoid|instead|"
    r"prefers?|require[sd]?|needs? to|have to|cannot|can'?t|won'?t|no longer|not|wants?|exactly|at least|at most|"
    r"unless|important|remember|from now on|keep|stop|leave|rather|forbidden|allowed|mandatory|strictly|"
    r"final|decided|go(?:ing)? with|settled? on|forget)\b"
    r"|(?:^|[.,;:(!]\s*|\b(?:and|but|so|please)\s)no\b"
    r"|(?:^|[.!?]\s+)(?:before|after|when|whenever|(?:each|every) time) you\b"
    r"|\b(?:each|every) (?:reply|answer|message)\b"
    r"|^\s*(?-i:[A-Z][A-Z _-]{2,30}):\s",
    re.I,
)
"""Words that oblige or decide: ``never push``, ``final answer: B``, ``please no mocks``, ``LIMIT: 3``, ``Before you run
it, …``, ``End every reply with``; not ``is only a test``, ``I know``, ``the one before you came``."""
_RULE = lazy_pattern(
    r"^\s*(?:[-*]|\d+\.)\s+(?:\*\*)?(?:use|do not|don'?t|never|always|must|prefer|avoid|only|keep|run)\b"
    r"|^[^|`#]{0,60}\b(?:must|should|never|always)\b",
    re.I,
)
"""How project rules are written: ``- Use bun``, ``Commits must be signed``; not ``# Usage``, ``| must | cell |``."""
RULE_WORDS = 3
"""A rule has at least so many; what is shorter is a heading."""
PROJECT_RULES = 16
"""Of rules that the host quoted at most this many bind."""
SHORT_MESSAGE_CHARACTERS = 1_500
"""Own words up to this length bind in full; of longer ones only the sentences that say so."""
LONG_MESSAGE_LINES = 24
"""Of a pasted document at most this many binding statements bind: a document is not a demand."""
QUOTED_LINES = 48
"""Of a message, or of an earlier summary, at most this many quoted lines bind."""
PINNED_CHARACTERS = 6_000
"""Of one turn at most so much is pinned, the first words first: two pages of orders must not fill a view."""

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

TYPED_CHARACTERS = 1_500
"""Of one message so much counts as typed: what is longer was mostly pasted or dictated."""
LETTERS_SHARE = 0.75
"""A sentence in any language has at least this share of letters and blanks; rows, logs and JSON have less."""
DATA_CHARACTERS = 60
"""A shorter line is not judged by its letters; an ASCII word of twice the length is data."""
_FENCE = lazy_pattern(r"\s*(?:```|~~~)")
_MATERIAL = lazy_pattern(
    r"\s*(?:[{\[<|>]|\d+[→|\t]|\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d|File \"|Traceback \("
    r"|at (?:async )?\S+(?: ?\(|:\d+:\d+$)|\S+ @ \S+:\d+$|\S+:\d+ (?:Warning|Error|Uncaught)\b"
    r"|[+-]{3} |@@ |\$ |[^\s,;]*(?:[,;][^\s,;]+){2,}$)"
)
"""How pasted lines begin: ``{"a": 1``, ``2026-01-05 10:00:01 INFO``, ``  File "a.py"``, ``at run (app.js:3:1)``,
``beginWork @ app.js:17``, ``app.js:2 Warning: …``, ``| a | b |``, ``> quoted``, ``$ make``, ``1,must,not``; not
``- a point``, ``12 of them``, ``2026 is late``, ``at 5 pm``."""
PASTED_TIMES = 3
"""A line that stands so often in one message was not typed: nobody says a thing thrice to the letter, and a trace of
300 lines that a browser printed six times had filled half of a planner's cards."""


def typed_lines(lines: Iterable[Line], most_characters: float = TYPED_CHARACTERS) -> Iterator[Line]:
    """Those of a message's `lines` that the user typed himself, by their shape alone and in any language: no pasted
    log, file, table or JSON."""
    left, fenced = most_characters, False
    lines = list(lines)
    times = Counter(line.text.strip() for line in lines)
    for line in lines:
        if _FENCE.match(line.text):
            fenced = not fenced
        elif not fenced and times[line.text.strip()] < PASTED_TIMES and not _is_material(line.text):
            left -= len(line.text)
            if left < 0:
                return
            yield line


def _is_material(text: str) -> bool:
    if _MATERIAL.match(text):
        return True
    if len(text) < DATA_CHARACTERS:
        return False
    words = sum(map(str.isalpha, text)) + sum(map(str.isspace, text))
    longest = max(text.split(), key=len, default="")
    return words < LETTERS_SHARE * len(text) or (longest.isascii() and len(longest) > 2 * DATA_CHARACTERS)


def own_words(lines: Lines, calls: Sequence[Call] = ()) -> tuple[Line, ...]:
    """The lines of one turn that the user wrote."""
    return tuple(line for line in attributed(lines, calls) if line.source == "user" and line.text.strip())


def constraints_of(statements: Sequence[Statement]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of the lines of one turn that bind the agent: words of the user, rules of the project; and of his words
    those that say so: what must, may not, is preferred, or was answered to a question.

    `statements` are all of the turn, with their sources.
    """
    own = [one for one in statements if one.source == "user" and one.text.strip()]
    typed = {line.number for line in typed_lines((line for one in own for line in one.lines), math.inf)}
    own = [one for one in own if typed.intersection(one.numbers)]
    quoted = [one for one in statements if one.source == "planner" and _QUOTED.match(one.text)]  # by a summary, of him
    bound = [*_binding(own), *quoted[:QUOTED_LINES]]
    pinned = [one for one in bound if says_so(one) or one.part == "result" or _QUOTED.match(one.text)]
    ends = accumulate(len(one.text) for one in pinned)
    quoted_by_host = (one for one in statements if one.source == "host" and one.part == "user")
    rules = [one for one in quoted_by_host if _RULE.match(one.text) and len(one.text.split()) >= RULE_WORDS]
    return (
        numbers_of([*bound, *rules[:PROJECT_RULES]]),
        numbers_of(one for one, end in zip(pinned, ends, strict=True) if end <= PINNED_CHARACTERS),
    )


def says_so(statement: Statement) -> bool:
    """True if a statement of the user says that it binds: must, never, only, instead."""
    return bool(_BINDING.search(statement.text) or _RULE.match(statement.text))


def _binding(own: Sequence[Statement]) -> Sequence[Statement]:
    if sum(len(one.text) for one in own) <= SHORT_MESSAGE_CHARACTERS:
        return own
    quoted = (one for one in own if _QUOTED.match(one.text))
    chosen = (*own[:2], *islice(quoted, QUOTED_LINES), *islice(filter(says_so, own), LONG_MESSAGE_LINES))
    return list(dict.fromkeys(chosen))


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
    questions = (one for one in offer if one.text.rstrip().rstrip("*_").endswith("?"))
    return _choice(turn_id, [*questions][-1:]) if _ASSENT.match(reply) else None


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
