"""Lessons: things that a conversation shows and that later ones can use. Decides what kinds there are, when two lessons
are equal, and whether the conversation proves a lesson.

`by_rules` finds lessons by rules, `readers` in a model's answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from planner.evidence import Evidence
from planner.reading.lines import join_lines, one_line
from planner.reading.secrets import redact

Kind = Literal["decision", "fact", "wish", "command", "error"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of lessons (things that a conversation shows and later ones can use)."""

LEAST_ERROR_WORDS = 3
"""Smallest number of words, besides names and numbers, of an error that can be recognized again; ``exit 1`` has 1."""
ERROR_CHARACTERS = 240
"""Largest length in characters of an error line that can be recognized again."""

_WORD = re.compile(r"[^\W\d_]{4,}")
"""Word of at least four letters."""
_STEM_CHARACTERS = 6
"""Number of letters at the beginning of two words that must be equal for the words to count as equal."""
_COMMON_TEXT = (
    "about after also before code does error file from have into just like make more must need only please should some "
    "test tests than that them then there these this using want what when where which will with without would"
)
_COMMON = frozenset(word[:_STEM_CHARACTERS] for word in _COMMON_TEXT.split())
"""First letters of words that are too common to show what a text is about."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
"""Space between two sentences."""
_PLACE = re.compile(r"^\s*(?:\[[\w:.-]+\] )?(?:[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)*\)?:? *)?")
"""Place in a file at the beginning of an error: ``[lint] a/b.go:12:3: ``."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'")
_IDENTIFIER = re.compile(r"\b[a-z]+[A-Z]\w*|\b[A-Z]\w+[A-Z]\w*")
"""Identifier with a capital inside: ``getUser``, ``HTTPClient``; not ``User``."""
_NAME = re.compile(r"\A[^\d_/\\.]*+[\d_/\\.]\W*+\w")
"""Word with a mark or digit inside, such as a path or version: ``a/b.go``, ``v1.2``; not ``done.``."""
_NUMBERED = re.compile(r"[/\d]")
"""Slash or digit, in words that may differ each time an error occurs: paths, numbers, times."""
_RULE = re.compile(r"\((?!typecheck)[a-z][a-z-]{3,30}\)\s*$|\b[A-Z]{1,4}\d{3,4}\b|\berror TS\d+")
"""Name of the rule in a linter's error: ``… is not checked (errcheck)``, ``E501``; not ``(typecheck)``."""
_NO_ERROR = re.compile(
    r"exit(?:ed)? (?:with )?(?:code|status)|task failed|^\W*(?:\d+ )?(?:fail|failed|errors?)\W*$|<tool_use_error>", re.I
)
"""Error line that reports only that something failed, or an error of the agent's own tools; no lesson is made of it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Something that a conversation shows and that later conversations in the project can use."""

    kind: Kind
    text: str
    """Text of the lesson in one line, for a person; the user's words are in quotes."""
    words: str
    """Words that prove the lesson and occur literally in its turn: the user's, the agent's, or an error's."""
    turn: str
    """Id (``t12``) of the turn that contains `words`."""
    subject: str
    """Key of what the lesson is about. It is the same for the same error, and for decisions on the same matter."""
    mended: str = ""
    """Id of the turn in which the error was solved; empty if it was not, or if the lesson is no error."""
    lasting: bool = True
    """True if this conversation is enough to propose the lesson; False if another one must show it, too."""
    also: str = ""
    """Id of another turn, which contains the names in `text` that the first turn does not; empty if there are none."""
    is_long: bool = False
    """True if `words` are an item of a list of rules in the user's message, which may be a form that they pasted."""


def sentence_key(text: str) -> str:
    """Return the words of `text` in lower case and without punctuation, by which equal sentences are recognized."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def sentences(text: str) -> list[str]:
    """Return the sentences of `text`, a text in one line."""
    return _SENTENCE.split(text)


def beginnings(text: str) -> tuple[str, str]:
    """Return `text` as it is, and with a small first letter: ``Mutex`` may be a name, or just begin the sentence."""
    return text, text[:1].lower() + text[1:]


def claim_with_words(kind: Kind, claim: str, words: str) -> str:
    """Return the text of a lesson: a `claim`, then in quotes (or as code) the literal `words` that prove it."""
    return f"{claim}: `{words.replace('`', '')}`" if kind == "error" else f"{claim}: “{words}”"


def long_words(text: str) -> list[str]:
    """Return the words of `text` with at least four letters, which show what it is about."""
    return _WORD.findall(text)


def stems(text: str) -> set[str]:
    """Return the first six letters of each long, uncommon word of `text`, to compare words with different endings."""
    return {word[:_STEM_CHARACTERS].casefold() for word in long_words(text)} - _COMMON


def error_subject(text: str) -> str:
    """Return a key by which the error line `text` is recognized when it comes back; empty if the line is too long or
    too common. The key is the text without places and numbers; of a linter's line also without names."""
    text = _PLACE.sub("", one_line(text))
    if len(text) > ERROR_CHARACTERS:
        return ""
    words = text.split()
    if _RULE.search(text):  # a linter reports the same error for many names
        words = [word for word in _QUOTED.sub(" ", text).split() if not _NAME.match(word)]
        words = _IDENTIFIER.sub(" ", " ".join(words)).split()
    key = sentence_key(" ".join(word for word in words if not _NUMBERED.search(word)))
    is_specific = len(key.split()) >= LEAST_ERROR_WORDS
    return key if is_specific and not _NO_ERROR.search(text) else ""


def is_plain(text: str) -> bool:
    """Return True for text that may be written to a file: without secrets, invisible characters and HTML comments."""
    return text.isprintable() and "<!--" not in text and redact(text) == text


def is_proven(lesson: Lesson, evidence: Evidence) -> bool:
    """Return True if a conversation (`evidence`, what was read from it) proves a lesson, as a model may have invented
    it.

    The turn of the lesson must contain its `words`, and its text must be plain (`is_plain`). The words of a wish must
    be the user's, those of an error may be anywhere in the turn, and all others must be the user's or the agent's.
    Secrets of the turn are removed before the comparison.
    """
    turn = evidence.turns.get(lesson.turn)
    if turn is None or not lesson.words.strip() or not is_plain(lesson.text):
        return False
    spoken = tuple(turn.lines.of_sources("user", "agent"))  # a web page or tool result may be a stranger's
    lines = {"wish": turn.user_lines, "error": turn.lines}.get(lesson.kind, spoken)
    return is_quoted(lesson.words, redact(join_lines(lines)), evidence)


def is_quoted(words: str, text: str, evidence: Evidence) -> bool:
    """Return True if `text` contains `words`, except for white space. Paths may be relative to the project's folder."""
    return one_line(words) in one_line(text) or one_line(words) in one_line(evidence.shown(text))
