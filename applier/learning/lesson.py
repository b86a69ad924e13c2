"""What a lesson is, of which kinds there are, when two say the same, and whether a record bears one.

Finds none: what the user says is read in `wishes`, what the agent did in `agent_calls`, what a model noted in
`readers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from applier.store.secrets import redact
from planner.evidence import Evidence
from planner.reading.lines import join_lines

__all__ = [
    "KINDS",
    "Kind",
    "Lesson",
    "beginnings",
    "error_subject",
    "folded",
    "in_the_record",
    "is_plain",
    "is_said",
    "long_words",
    "sentence_key",
    "sentences",
    "stated",
    "stems",
]

Kind = Literal["decision", "fact", "wish", "command", "error"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LEAST_ERROR_WORDS = 3
"""Of an error without names and numbers: ``exit code 1`` is everybody's."""
ERROR_CHARACTERS = 240

_WORD = re.compile(r"[^\W\d_]{4,}")
_STEM_CHARACTERS = 6
_COMMON_TEXT = (
    "about after also before code does error file from have into just like make more must need only please should some "
    "test tests than that them then there these this using want what when where which will with without would"
)
_COMMON = frozenset(word[:_STEM_CHARACTERS] for word in _COMMON_TEXT.split())
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_PLACE = re.compile(r"^\s*(?:\[[\w:.-]+\] )?(?:[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)*\)?:? *)?")
"""Where an error stands: ``[lint] a/b.go:12:3: ``."""
_NAMED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\S*[\d_/\\.]\S*\w|\b[a-z]+[A-Z]\w*|\b[A-Z]\w+[A-Z]\w*")
"""Names in what a linter says: quoted, a path, an identifier."""
_NUMBERED = re.compile(r"\S*[/\d]\S*")
"""What another time differs: a path, a number, a time."""
_RULE = re.compile(r"\((?!typecheck)[a-z][a-z-]{3,30}\)\s*$|\b[A-Z]{1,4}\d{3,4}\b|\berror TS\d+")
"""The rule of a linter: ``… is not checked (errcheck)``, ``E501``; not ``(typecheck)``."""
_NO_ERROR = re.compile(
    r"exit(?:ed)? (?:with )?(?:code|status)|task failed|^\W*(?:\d+ )?(?:fail|failed|errors?)\W*$|<tool_use_error>", re.I
)
"""Lines that only say that something failed, and errors of the agent's own tools, which every project has."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing worth knowing in another conversation."""

    kind: Kind
    text: str
    """In one line; the user's words in it stand in quotes."""
    words: str
    """What stands in the turn to the letter, white space aside: the user's words, or the error."""
    turn: str
    subject: str
    """The same for what is about the same: by it errors come back, and a newer decision replaces an older one."""
    mended: str = ""
    """Of an error: the turn that shows it mended."""
    lasting: bool = True
    """False for what counts only if another conversation shows it, too."""
    also: str = ""
    """Another turn, which holds names of the text that the turn itself does not."""
    is_long: bool = False
    """Of words: they stand in a message too long to be typed, which may be a form."""


def sentence_key(text: str) -> str:
    """The same for sentences that say the same but for marks, letter case and names of no weight."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def sentences(text: str) -> list[str]:
    """Those of a text in one line."""
    return _SENTENCE.split(text)


def beginnings(text: str) -> tuple[str, str]:
    """`text`, and as it is if the name that it begins with got a capital for that."""
    return text, text[:1].lower() + text[1:]


def stated(kind: Kind, claim: str, words: str) -> str:
    """A line that says `claim`, with the words that it rests on."""
    return f"{claim}: `{words.replace('`', '')}`" if kind == "error" else f"{claim}: “{words}”"


def long_words(text: str) -> list[str]:
    """The words of `text` that may mean something alone."""
    return _WORD.findall(text)


def stems(text: str) -> set[str]:
    """The beginnings of those of them that are not everybody's."""
    return {word[:_STEM_CHARACTERS].casefold() for word in long_words(text)} - _COMMON


def folded(text: str) -> str:
    """`text` in one line, with single spaces."""
    return " ".join(text.split())


def error_subject(text: str) -> str:
    """What an error says whatever the line and the number; of a linter its rule. Empty if it is everybody's."""
    text = _PLACE.sub("", folded(text))
    rule = _RULE.search(text)
    bare = sentence_key(_NUMBERED.sub(" ", _NAMED.sub(" ", text) if rule else text))
    is_own = len(bare.split()) >= LEAST_ERROR_WORDS and len(text) <= ERROR_CHARACTERS
    return bare if is_own and not _NO_ERROR.search(text) else ""


def is_plain(text: str) -> bool:
    """True for what hides nothing: no secret, no character that is not seen, no mark of a file."""
    return text.isprintable() and "<!--" not in text and redact(text) == text


def in_the_record(lesson: Lesson, evidence: Evidence) -> bool:
    """True if the turn that `lesson` cites holds its words once all secrets are out, and its text hides nothing."""
    turn = evidence.turns.get(lesson.turn)
    if turn is None or not lesson.words.strip() or not is_plain(lesson.text):
        return False
    spoken = tuple(turn.lines.of_sources("user", "agent"))  # what a page or a tool says decides nothing
    own = {"wish": turn.user_lines, "error": turn.lines}.get(lesson.kind, spoken)
    return is_said(lesson.words, redact(join_lines(own)), evidence)


def is_said(words: str, text: str, evidence: Evidence) -> bool:
    """True if `words` stand in `text` to the letter, or as a card shows it: paths below the root without it."""
    return folded(words) in folded(text) or folded(words) in folded(evidence.shown(text))
