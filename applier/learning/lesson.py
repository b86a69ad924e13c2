"""Lessons: their kinds, the keys by which they are equal, and whether a conversation supports them.

`by_rules` collects lessons from words and calls, `readers` from a model's answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from planner.evidence import Evidence
from planner.reading.lines import join_lines
from planner.reading.secrets import redact

Kind = Literal["decision", "fact", "wish", "command", "error"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LEAST_ERROR_WORDS = 3
"""Fewest words of an error, not counting names and numbers: ``exit code 1`` is too common."""
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
"""Place of an error: ``[lint] a/b.go:12:3: ``."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'")
_IDENTIFIER = re.compile(r"\b[a-z]+[A-Z]\w*|\b[A-Z]\w+[A-Z]\w*")
"""``getUser``, ``HTTPClient``; not ``User``."""
_NAME = re.compile(r"\A[^\d_/\\.]*+[\d_/\\.]\W*+\w")
"""Word with a mark or digit before its last letter: ``a/b.go``, ``v1.2``; not ``done.``."""
_NUMBERED = re.compile(r"[/\d]")
"""Part of a word that differs at another time: a path, a number, a time."""
_RULE = re.compile(r"\((?!typecheck)[a-z][a-z-]{3,30}\)\s*$|\b[A-Z]{1,4}\d{3,4}\b|\berror TS\d+")
"""Rule of a linter: ``… is not checked (errcheck)``, ``E501``; not ``(typecheck)``."""
_NO_ERROR = re.compile(
    r"exit(?:ed)? (?:with )?(?:code|status)|task failed|^\W*(?:\d+ )?(?:fail|failed|errors?)\W*$|<tool_use_error>", re.I
)
"""Line that reports only the fact of a failure, or an error of the agent's own tools."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Something that one conversation shows and that later ones on the project can use."""

    kind: Kind
    text: str
    """Text on one line, with the user's words in quotes."""
    words: str
    """Words of the turn that support the lesson, with single spaces: what the user or the agent wrote, or the error."""
    turn: str
    """Id of the turn with these words."""
    subject: str
    """Key that is equal for lessons on one matter: an error that comes back, or a decision that replaces another."""
    mended: str = ""
    """Id of the turn that shows the error solved; empty if it is not solved, or no error."""
    lasting: bool = True
    """False for a lesson that counts only if another conversation shows it, too."""
    also: str = ""
    """Id of another turn, with names that the first turn lacks; empty if it lacks none."""
    is_long: bool = False
    """True for words from a message that is too long to be typed, perhaps a form."""


def sentence_key(text: str) -> str:
    """Return the words of `text` as a key: in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text on one line."""
    return _SENTENCE.split(text)


def beginnings(text: str) -> tuple[str, str]:
    """Return `text`, and `text` with a small first letter, because a capital at the beginning may not mark a name."""
    return text, text[:1].lower() + text[1:]


def stated(kind: Kind, claim: str, words: str) -> str:
    """Return a lesson's text: the `claim`, then in quotes the `words` that support it; an error's words are code."""
    return f"{claim}: `{words.replace('`', '')}`" if kind == "error" else f"{claim}: “{words}”"


def long_words(text: str) -> list[str]:
    """Return the words of `text` that are long enough to be meaningful alone."""
    return _WORD.findall(text)


def stems(text: str) -> set[str]:
    """Return the first six letters of each long, uncommon word of `text`, so that inflected forms are equal."""
    return {word[:_STEM_CHARACTERS].casefold() for word in long_words(text)} - _COMMON


def folded(text: str) -> str:
    """Return `text` on one line, with single spaces."""
    return " ".join(text.split())


def error_subject(text: str) -> str:
    """Return the key of an error: its text without places and numbers, or a linter's rule; empty if too common."""
    text = _PLACE.sub("", folded(text))
    if len(text) > ERROR_CHARACTERS:
        return ""
    rule = _RULE.search(text)
    words = (_without_names(text) if rule else text).split()
    bare = sentence_key(" ".join(word for word in words if not _NUMBERED.search(word)))
    is_specific = len(bare.split()) >= LEAST_ERROR_WORDS
    return bare if is_specific and not _NO_ERROR.search(text) else ""


def _without_names(text: str) -> str:
    """Return a linter's line without quoted words, paths and identifiers."""
    words = _QUOTED.sub(" ", text).split()
    return _IDENTIFIER.sub(" ", " ".join(word for word in words if not _NAME.match(word)))


def is_plain(text: str) -> bool:
    """Return True for text without secrets, invisible characters, and HTML comments such as the marks in our files."""
    return text.isprintable() and "<!--" not in text and redact(text) == text


def in_the_record(lesson: Lesson, evidence: Evidence) -> bool:
    """Return True if the turn of `lesson` contains its words, and its text is plain (`is_plain`).

    The words of a wish must be the user's, those of an error may be anywhere in the turn, and all others must be the
    user's or the agent's. Secrets of the turn are redacted first.
    """
    turn = evidence.turns.get(lesson.turn)
    if turn is None or not lesson.words.strip() or not is_plain(lesson.text):
        return False
    spoken = tuple(turn.lines.of_sources("user", "agent"))  # pages and tools decide nothing
    lines = {"wish": turn.user_lines, "error": turn.lines}.get(lesson.kind, spoken)
    return is_quoted(lesson.words, redact(join_lines(lines)), evidence)


def is_quoted(words: str, text: str, evidence: Evidence) -> bool:
    """Return True if `text` contains `words` literally, or if its paths are made relative to the project's root."""
    return folded(words) in folded(text) or folded(words) in folded(evidence.shown(text))
