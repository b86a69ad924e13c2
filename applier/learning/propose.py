"""Which lines the lessons of all conversations of a project come to: what came back, what replaced what, what is over,
and what a model that has all lines before it makes of them.

Picks no side where two wishes of the user are against each other: both are shown, each with the other. The model's
answer is untrusted: no line comes of it that was none before, and each keeps the quote and the sources of those that it
is made of. New words stand only if they name nothing else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING, Any

from applier.learning.lesson import KINDS, Kind, Lesson, beginnings, folded, is_plain, sentence_key, stated
from planner.evidence.grounding import NameIndex, invented
from planner.evidence.state import shortened

if TYPE_CHECKING:
    from planner.model.lessons import ReviewedLine

__all__ = ["MOST_CANDIDATES", "Group", "Heard", "ProposedLine", "Review", "is_over", "proposed_lines"]

FAILURE_DAYS, ENVIRONMENT_DAYS = 90, 30
"""After so many days an error that did not come back is no longer told; sooner one of the machine that it was on."""
MOST_SOURCES = 3
"""The newest ones are named."""
FEWEST = 2
"""Conversations in which an error came back, or a wish that does not say by itself that it lasts was said again."""
ALIKE = 0.8
"""Of the words of two wishes that are about the same."""
REPLACES, CONTRADICTS, REPLACED_CHARACTERS = "replaces", "CONTRADICTS", 120

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
MOST_CANDIDATES = 200
"""Of one question: so many new ones, and as many that stand since an earlier review."""
MOST_CHARACTERS = 400
"""Of a line's new words."""

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
        """Reference to the turn: the conversation's key and ``:t12``."""
        return f"{self.conversation}:{self.lesson.turn}"

    @property
    def sources(self) -> list[str]:
        """It, and the other turn that the text rests on, if there is one."""
        return [self.source, *([f"{self.conversation}:{self.lesson.also}"] if self.lesson.also else [])]


@dataclass(frozen=True, slots=True)
class ProposedLine:
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


def proposed_lines(heard: Sequence[Heard], today: date) -> list[ProposedLine]:
    """The lines, kind by kind, each by its newest source, the newest first."""
    by_subject: dict[tuple[str, str], list[Heard]] = defaultdict(list)
    for one in sorted(_once(heard), key=_age, reverse=True):
        by_subject[one.lesson.kind, one.lesson.subject].append(one)
    lines = [_line(kind, same) for (kind, _), same in by_subject.items() if _is_worth(kind, same)]
    of = {kind: [line for line in lines if line.kind == kind] for kind in KINDS}
    errors = [line for line in of["error"] if not is_over(line.line, today)]
    return [*of["decision"], *of["fact"], *_beside_each_other(of["wish"]), *of["command"], *errors]


def _age(heard: Heard) -> tuple[str, float, str, int]:
    """By which the older comes first, as far as that is known."""
    return heard.day, heard.time, heard.conversation, int(heard.lesson.turn[1:])


def _once(heard: Sequence[Heard]) -> Iterable[Heard]:
    """What stands in what conversations share counts once: where it shows mended, or else where it was said first."""
    in_order = sorted(heard, key=lambda one: (not one.lesson.mended, *_age(one)), reverse=True)
    return {(one.place or one.source, one.lesson.kind, one.lesson.words): one for one in in_order}.values()


def _is_worth(kind: str, same: Sequence[Heard]) -> bool:
    came_back = len({one.conversation for one in same}) >= FEWEST
    lasts = came_back or any(one.lesson.lasting for one in same)
    if kind == "error":
        return lasts and any(one.lesson.mended for one in same)
    return lasts and not (came_back and all(one.lesson.is_long for one in same))


def _line(kind: str, same: Sequence[Heard]) -> ProposedLine:
    """The newest form; of an error the newest that was mended; of a decision with what it replaces."""
    told = next((one for one in same if one.lesson.mended), same[0])
    alike = [one for one in same if kind == "error" or one.lesson.text == told.lesson.text]
    others = {one.conversation: one for one in reversed(alike) if one.conversation != told.conversation}
    sources = (told, *reversed(others.values()))
    text = told.lesson.text
    if kind == "decision" and (older := next((one for one in same if one.lesson.text != text), None)):
        is_newer = older.conversation == told.conversation or (told.day and older.day)
        text += _beside(REPLACES if is_newer else CONTRADICTS, older)
    return ProposedLine(told.lesson.kind, text, sources)


def _beside(verb: str, other: Heard) -> str:
    """What a line says of another one that it is on one matter with."""
    words = shortened(other.lesson.words, REPLACED_CHARACTERS)
    return f"; {verb} “{words}” ({_dated(other.source, other.day)})"


def _beside_each_other(wishes: Sequence[ProposedLine]) -> list[ProposedLine]:
    """`wishes`, newest first: those that are against each other say so; one that says that it changes something stands
    in the older's place."""
    lines = dict(enumerate(wishes))
    for new, old in combinations(range(len(wishes)), 2):
        if new not in lines or old not in lines or not _are_opposed(wishes[new], wishes[old]):
            continue
        newer, older = wishes[new].sources[0], wishes[old].sources[0]
        if _CHANGES.search(newer.lesson.words) and newer.day > older.day > "":
            lines[new] = replace(
                lines[new], text=lines[new].text + _beside(REPLACES, older), replaced=(wishes[old].key,)
            )
            del lines[old]
        else:
            for at, other in ((new, older), (old, newer)):
                lines[at] = replace(lines[at], text=lines[at].text + _beside(CONTRADICTS, other))
    return list(lines.values())


def _are_opposed(one: ProposedLine, other: ProposedLine) -> bool:
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


@dataclass(frozen=True, slots=True)
class Group:
    """A line of a review, by the keys of the lines that it is made of."""

    of: tuple[str, ...]
    text: str = ""
    """New words; empty: those of the first."""
    replaces: tuple[str, ...] = ()

    def line(self, known: Mapping[str, ProposedLine]) -> ProposedLine:
        """The line, of those of its own that are `known`."""
        first, *others = (known[key] for key in self.of if key in known)
        text = stated(first.kind, self.text, first.sources[0].lesson.words) if self.text else first.text
        older = next((known[key].sources[0] for key in self.replaces if key in known), None)
        sources = (*first.sources, *(source for one in others for source in one.sources))
        gone = (*first.replaced, *(one.key for one in others), *self.replaces)
        return ProposedLine(first.kind, text + (_beside(REPLACES, older) if older else ""), sources, gone)


@dataclass(frozen=True)
class Review:
    """What became of the lines that a model was shown, by their keys."""

    groups: tuple[Group, ...] = ()
    seen: frozenset[str] = frozenset()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Review:
        """One that was kept."""
        groups = (Group(tuple(of), text, tuple(replaces)) for of, text, replaces in state.get("groups", ()))
        return cls(tuple(groups), frozenset(state.get("seen", ())))

    @property
    def state(self) -> dict[str, Any]:
        """It as it is kept."""
        return {"groups": [list(asdict(group).values()) for group in self.groups], "seen": sorted(self.seen)}

    def standing(self, lines: Sequence[ProposedLine]) -> Iterator[tuple[Group, ProposedLine]]:
        """What of `lines` it left, as it worded it."""
        known = {line.key: line for line in lines}
        yield from ((group, group.line(known)) for group in self.groups if any(key in known for key in group.of))

    def unseen(self, lines: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Those of `lines` that it was not shown."""
        return [line for line in lines if line.key not in self.seen]

    def grown(self, lines: Sequence[ProposedLine], ask: Callable[[str], Sequence[ReviewedLine]]) -> Review:
        """It, with what `ask`, given the candidates, says of the oldest of `lines` that it was not shown, and of what
        stands."""
        standing = sorted(self.standing(lines), key=_line_age)
        others, again = standing[:-MOST_CANDIDATES], standing[-MOST_CANDIDATES:]
        new = sorted(((Group((line.key,)), line) for line in self.unseen(lines)), key=_line_age)[:MOST_CANDIDATES]
        shown = {f"c{at}": one for at, one in enumerate(sorted([*again, *new], key=_line_age), 1)}
        kept = {group for group, _ in again}
        groups = _groups(ask(_candidates(shown, kept)), shown, kept)
        return Review((*(group for group, _ in others), *groups), self.seen.union(line.key for _, line in new))


def _line_age(one: tuple[Group, ProposedLine]) -> tuple[str, float, str, int]:
    return _age(one[1].sources[0])


def _candidates(shown: Mapping[str, tuple[Group, ProposedLine]], kept: Collection[Group]) -> str:
    """What is asked about: a line each, below the conversation it is from."""
    rows, heading = [], ""
    for name, (group, line) in shown.items():
        source = line.sources[0]
        if heading != (heading := f"{source.conversation} {source.day}".strip()):
            rows += ["", heading, ""]
        marks = [name, line.kind, source.lesson.turn, *(["kept"] if group in kept else []), line.text]
        rows.append(" · ".join(marks))
    return "\n".join(rows).strip()


def _groups(
    answer: Sequence[ReviewedLine], shown: Mapping[str, tuple[Group, ProposedLine]], kept: Collection[Group]
) -> list[Group]:
    """What of an answer holds: each candidate in one line, what stands already first; new words, if all that they name
    is named by candidates of its conversations, else the old ones."""
    used = {name for one in answer for name in one.of}
    groups: list[Group] = []
    left = dict(shown)
    for one in answer:
        of = sorted(left.keys() & set(one.of), key=lambda name: (left[name][0] not in kept, one.of.index(name)))
        members = [left.pop(name) for name in of]
        if members:
            older = (shown[name][0] for name in dict.fromkeys(one.replaces) if name in shown and name not in used)
            gone = (*(key for group, _ in members for key in group.replaces), *_keys(older))
            near = {source.conversation for _, line in members for source in line.sources}
            bearing = [line.text for _, line in shown.values() if line.sources[0].conversation in near]
            text = folded(one.text)
            text = text if text and _is_borne(text, bearing) else members[0][0].text
            groups.append(Group(tuple(_keys(group for group, _ in members)), text, gone))
    return groups


def _keys(groups: Iterable[Group]) -> Iterator[str]:
    return (key for group in groups for key in group.of)


def _is_borne(text: str, lines: Sequence[str]) -> bool:
    """True for words that name only what `lines` name, and hide nothing."""
    source = NameIndex(lines)
    return (
        len(text) <= MOST_CHARACTERS and is_plain(text) and not all(invented(one, source) for one in beginnings(text))
    )
