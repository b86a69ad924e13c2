"""Which lines the lessons of all conversations of a project come to: what came back, what replaced what, what is over.

Pure; picks no side where two wishes of the user are against each other: both are shown, each with the other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from hashlib import sha256
from itertools import chain, combinations

from applier.learning.kinds import Kind, Lesson, sentence_key
from planner.evidence.state import shortened

__all__ = ["Heard", "Line", "age_of", "is_over", "proposed_lines", "replacing"]

FAILURE_DAYS, ENVIRONMENT_DAYS = 90, 30
"""After so many days an error that did not come back is no longer told; sooner one of the machine that it was on."""
MOST_SOURCES = 3
"""The newest ones are named."""
FEWEST = 2
"""Conversations in which an error came back, or a wish that does not say by itself that it lasts was said again."""
ALIKE = 0.8
"""Of the words of two wishes that are about the same."""
REPLACED_CHARACTERS = 120

_ENVIRONMENT = re.compile(
    r"command not found|no such file|enoent|eacces|econn|permission denied|connection refused|not installed"
    r"|cannot find module|no module named|in use\b|certificate|could not resolve|timed? ?out|disk|version",
    re.I,
)
"""What another machine, or this one next month, need not have: ``biome: command not found``."""
_DENIES = re.compile(
    r"\b(?:never|not|no|don'?t|avoid|without|stop|no longer|instead of|isn'?t|shouldn'?t|won'?t)\b", re.I
)
_WEIGHTLESS_TEXT = (
    "a an and always any be do don for forward from going i in instead is it longer more must never no not now of on "
    "please should t the to we you"
)
_WEIGHTLESS = frozenset(_WEIGHTLESS_TEXT.split())
_CHANGES = re.compile(r"\b(?:no longer|from now on|instead|any ?more|going forward|now)\b", re.I)
"""A wish that says itself that another one was before."""
_DAY = re.compile(r", (\d{4}-\d\d-\d\d)\)$")


@dataclass(frozen=True, slots=True)
class Heard:
    """A lesson, and the conversation that it is from."""

    lesson: Lesson
    conversation: str
    day: str
    """On which the conversation ended; empty if it does not say."""
    place: str = ""
    """The same in all conversations that go on from that turn."""
    time: float = 0.0
    """When the conversation ended, in seconds since the epoch: of two of one day the later one is newer."""

    @property
    def source(self) -> str:
        """``h1a2b3c4d:t12``."""
        return f"{self.conversation}:{self.lesson.turn}"

    @property
    def sources(self) -> list[str]:
        """It, and the other turn that the text rests on, if there is one."""
        return [self.source, *([f"{self.conversation}:{self.lesson.also}"] if self.lesson.also else [])]


@dataclass(frozen=True, slots=True)
class Line:
    """One line that a person may approve."""

    kind: Kind
    text: str
    sources: tuple[Heard, ...]
    """The one that is told, then the others, newest first."""
    replaced: tuple[str, ...] = ()
    """The keys of the lines in whose place it stands."""

    @property
    def key(self) -> str:
        """The same for every form of the line: by it what a person deleted stays deleted."""
        return sha256(f"{self.kind} {self.sources[0].lesson.subject}".encode()).hexdigest()[:16]

    @property
    def line(self) -> str:
        """As it stands in a file."""
        cited = ", ".join(dict.fromkeys(source for one in self.sources[:MOST_SOURCES] for source in one.sources))
        return f"- {self.text} ({_dated(cited, max(one.day for one in self.sources))})"


def _dated(source: str, day: str) -> str:
    return f"{source}, {day}" if day else source


def proposed_lines(heard: Sequence[Heard], today: date) -> list[Line]:
    """The lines, kind by kind, each by its newest source, the newest first."""
    by_subject: dict[tuple[str, str], list[Heard]] = defaultdict(list)
    for one in sorted(_once(heard), key=age_of, reverse=True):
        by_subject[one.lesson.kind, one.lesson.subject].append(one)
    lines = [_line(kind, same) for (kind, _), same in by_subject.items() if _is_worth(kind, same)]
    wishes = _beside_each_other([line for line in lines if line.kind == "wish"])
    errors = [line for line in lines if line.kind == "error" and not is_over(line.line, today)]
    others = ([line for line in lines if line.kind == kind] for kind in ("decision", "fact"))
    commands = [line for line in lines if line.kind == "command"]
    return [*chain(*others), *wishes, *commands, *errors]


def age_of(heard: Heard) -> tuple[str, float, str, int]:
    """By which the older comes first, as far as that is known."""
    return heard.day, heard.time, heard.conversation, int(heard.lesson.turn[1:])


def _once(heard: Sequence[Heard]) -> Iterable[Heard]:
    """What stands in what conversations share counts once: where it shows mended, or else where it was said first."""
    in_order = sorted(heard, key=lambda one: (not one.lesson.mended, *age_of(one)), reverse=True)
    return {(one.place or one.source, one.lesson.kind, one.lesson.words): one for one in in_order}.values()


def _is_worth(kind: str, same: Sequence[Heard]) -> bool:
    conversations = {one.conversation for one in same}
    if kind == "error":
        came_back = len(conversations) >= FEWEST or any(one.lesson.lasting for one in same)
        return came_back and any(one.lesson.mended for one in same)
    is_form = len(conversations) >= FEWEST and all(one.lesson.is_long for one in same)
    return not is_form and (len(conversations) >= FEWEST or any(one.lesson.lasting for one in same))


def _line(kind: str, same: Sequence[Heard]) -> Line:
    """The newest form; of an error the newest that was mended; of a decision with what it replaces."""
    told = next((one for one in same if one.lesson.mended), same[0])
    alike = [one for one in same if kind == "error" or one.lesson.text == told.lesson.text]
    others = {one.conversation: one for one in reversed(alike) if one.conversation != told.conversation}
    sources = (told, *reversed(others.values()))
    text = told.lesson.text
    if kind == "decision" and (older := next((one for one in same if one.lesson.text != text), None)):
        is_newer = older.conversation == told.conversation or (told.day and older.day)
        text += replacing(older) if is_newer else _against(older)
    return Line(told.lesson.kind, text, sources)


def replacing(older: Heard) -> str:
    """What a line says of the one in whose place it stands."""
    return f"; replaces “{shortened(older.lesson.words, REPLACED_CHARACTERS)}” ({_dated(older.source, older.day)})"


def _against(other: Heard) -> str:
    return f"; CONTRADICTS “{shortened(other.lesson.words, REPLACED_CHARACTERS)}” ({_dated(other.source, other.day)})"


def _beside_each_other(wishes: Sequence[Line]) -> list[Line]:
    """`wishes`, newest first: those that are against each other say so; one that says that it changes something stands
    in the older's place."""
    lines = dict(enumerate(wishes))
    for new, old in combinations(range(len(wishes)), 2):
        if new not in lines or old not in lines or not _are_opposed(wishes[new], wishes[old]):
            continue
        newer, older = wishes[new].sources[0], wishes[old].sources[0]
        if _CHANGES.search(newer.lesson.words) and newer.day > older.day > "":
            lines[new] = replace(lines[new], text=lines[new].text + replacing(older), replaced=(wishes[old].key,))
            del lines[old]
        else:
            for at, other in ((new, older), (old, newer)):
                lines[at] = replace(lines[at], text=lines[at].text + _against(other))
    return list(lines.values())


def _are_opposed(one: Line, other: Line) -> bool:
    """True for wishes about the same of which one demands what the other forbids."""
    texts = [line.sources[0].lesson.words for line in (one, other)]
    words = [set(sentence_key(text).split()) - _WEIGHTLESS for text in texts]
    shared = len(words[0] & words[1]) / max(1, len(words[0] | words[1]))
    return shared >= ALIKE and bool(_DENIES.search(texts[0])) != bool(_DENIES.search(texts[1]))


def is_over(line: str, today: date) -> bool:
    """True for the line of an error that has not been seen for so long that it may no longer hold, or without a day."""
    match = _DAY.search(line)
    days = ENVIRONMENT_DAYS if _ENVIRONMENT.search(line) else FAILURE_DAYS
    return match is None or date.fromisoformat(match[1]) + timedelta(days=days) < today
