"""Chooses the lines to propose from the lessons of all conversations, and applies a model's review to them.

Contradicting wishes are shown together. The model's answer is untrusted: it cannot add lines, each line keeps its quote
and sources, and new words may contain only known names.
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
from planner.evidence.turns import shortened

if TYPE_CHECKING:
    from planner.model.lessons import ReviewedLine

__all__ = ["MOST_CANDIDATES", "Group", "Heard", "ProposedLine", "Review", "is_over", "proposed_lines"]

FAILURE_DAYS, ENVIRONMENT_DAYS = 90, 30
"""Days after which an error that did not come back expires; fewer for an error of the machine."""
MOST_SOURCES = 3
"""Largest number of sources of a line, the newest."""
FEWEST = 2
"""Conversations needed for a repeated error, or for a wish that does not call itself lasting."""
ALIKE = 0.8
"""Share of common words from which two wishes count as the same matter."""
REPLACES, CONTRADICTS, REPLACED_CHARACTERS = "replaces", "CONTRADICTS", 120

_ENVIRONMENT = re.compile(
    r"command not found|no such file|enoent|eacces|econn|permission denied|connection refused|not installed"
    r"|cannot find module|no module named|in use\b|certificate|could not resolve|timed? ?out|disk|version",
    re.I,
)
"""Error that depends on the machine or the month: ``biome: command not found``."""
_DENIES = re.compile(
    r"\b(?:never|not|no|don'?t|avoid|without|stop|no longer|instead of|isn'?t|shouldn'?t|won'?t)\b", re.I
)
_WEIGHTLESS_TEXT = (
    "a an and always any be do don for forward from going i in instead is it longer more must never no not now of on "
    "please should t the to we you"
)
_WEIGHTLESS = frozenset(_WEIGHTLESS_TEXT.split())
_CHANGES = re.compile(r"\b(?:no longer|from now on|instead|any ?more|going forward|now)\b", re.I)
"""Words in a wish that replaces an earlier one."""
MOST_CANDIDATES = 200
"""Largest number of new candidates in one question, and of kept ones from earlier reviews."""
MOST_CHARACTERS = 400
"""Largest number of characters in a line's new words."""

_DAY = re.compile(r", (\d{4}-\d\d-\d\d)\)$")


@dataclass(frozen=True, slots=True)
class Heard:
    """Lesson with its conversation."""

    lesson: Lesson
    conversation: str
    day: str
    """Day on which the conversation ended; empty if unknown."""
    place: str = ""
    """Identifier of the turn's place, equal in all conversations that continue from it."""
    time: float = 0.0
    """End of the conversation in seconds since the epoch, which orders conversations of one day."""

    @property
    def source(self) -> str:
        """Reference to the turn: the conversation's key and ``:t12``."""
        return f"{self.conversation}:{self.lesson.turn}"

    @property
    def sources(self) -> list[str]:
        """References to the turn, and to the other turn of the text if there is one."""
        return [self.source, *([f"{self.conversation}:{self.lesson.also}"] if self.lesson.also else [])]


@dataclass(frozen=True, slots=True)
class ProposedLine:
    """Line that a person may approve."""

    kind: Kind
    text: str
    sources: tuple[Heard, ...]
    """Sources, first the source of the text, then the others, newest first."""
    replaced: tuple[str, ...] = ()
    """Keys of the lines that this one replaces."""

    @property
    def key(self) -> str:
        """Key shared by all forms of the line, by which a deleted line stays deleted."""
        return sha256(f"{self.kind} {self.sources[0].lesson.subject}".encode()).hexdigest()[:16]

    @property
    def line(self) -> str:
        """Text of the line in a file."""
        cited = ", ".join(dict.fromkeys(source for one in self.sources[:MOST_SOURCES] for source in one.sources))
        return f"- {self.text} ({_dated(cited, max(one.day for one in self.sources))})"


def _dated(source: str, day: str) -> str:
    return f"{source}, {day}" if day else source


def proposed_lines(heard: Sequence[Heard], today: date) -> list[ProposedLine]:
    """Return a line for each subject worth proposing, by kind, newest first; expired errors are left out."""
    by_subject: dict[tuple[str, str], list[Heard]] = defaultdict(list)
    for one in sorted(_once(heard), key=_age, reverse=True):
        by_subject[one.lesson.kind, one.lesson.subject].append(one)
    lines = [_line(kind, same) for (kind, _), same in by_subject.items() if _is_worth(kind, same)]
    by_kind = {kind: [line for line in lines if line.kind == kind] for kind in KINDS}
    errors = [line for line in by_kind["error"] if not is_over(line.line, today)]
    wishes = _with_contradictions(by_kind["wish"])
    return [*by_kind["decision"], *by_kind["fact"], *wishes, *by_kind["command"], *errors]


def _age(heard: Heard) -> tuple[str, float, str, int]:
    """Return a sort key, greater for newer lessons: day, time, conversation, turn; a lesson without a day is oldest."""
    return heard.day, heard.time, heard.conversation, int(heard.lesson.turn[1:])


def _once(heard: Sequence[Heard]) -> Iterable[Heard]:
    """Return each lesson once, though several conversations may share the turn it comes from: the oldest with a
    solution, or else the oldest."""
    # the last entry of a key wins: newest first, and those without a solution before the others
    in_order = sorted(heard, key=lambda one: (not one.lesson.mended, *_age(one)), reverse=True)
    return {(one.place or one.source, one.lesson.kind, one.lesson.words): one for one in in_order}.values()


def _is_worth(kind: str, same: Sequence[Heard]) -> bool:
    """Return True if the lessons `same`, all on one subject, are worth a line: lasting or repeated; for errors also
    solved, for others not repeated in long messages alone, as in a form."""
    is_repeated = len({one.conversation for one in same}) >= FEWEST
    lasts = is_repeated or any(one.lesson.lasting for one in same)
    if kind == "error":
        return lasts and any(one.lesson.mended for one in same)
    return lasts and not (is_repeated and all(one.lesson.is_long for one in same))


def _line(kind: str, same: Sequence[Heard]) -> ProposedLine:
    """Return the line for the lessons `same`, all on one subject, newest first. Its text is that of the newest solved
    one, or else of the newest; a decision has a note on the one that it replaces or contradicts."""
    best = next((one for one in same if one.lesson.mended), same[0])
    alike = [one for one in same if kind == "error" or one.lesson.text == best.lesson.text]
    others = {one.conversation: one for one in reversed(alike) if one.conversation != best.conversation}
    sources = (best, *reversed(others.values()))
    text = best.lesson.text
    if kind == "decision" and (older := next((one for one in same if one.lesson.text != text), None)):
        is_newer = older.conversation == best.conversation or (best.day and older.day)
        text += _note_on(REPLACES if is_newer else CONTRADICTS, older)
    return ProposedLine(best.lesson.kind, text, sources)


def _note_on(verb: str, other: Heard) -> str:
    """Return the end of a line's text: how (`verb`) it relates to the `other` lesson on the same matter."""
    words = shortened(other.lesson.words, REPLACED_CHARACTERS)
    return f"; {verb} “{words}” ({_dated(other.source, other.day)})"


def _with_contradictions(wishes: Sequence[ProposedLine]) -> list[ProposedLine]:
    """Return `wishes`, newest first, with a note on each contradiction between two of them. The older one is left out
    if the newer one announces a change and is of a later day."""
    lines = dict(enumerate(wishes))
    for new, old in combinations(range(len(wishes)), 2):
        if new not in lines or old not in lines or not _are_opposed(wishes[new], wishes[old]):
            continue
        newer, older = wishes[new].sources[0], wishes[old].sources[0]
        if _CHANGES.search(newer.lesson.words) and newer.day > older.day > "":
            lines[new] = replace(
                lines[new], text=lines[new].text + _note_on(REPLACES, older), replaced=(wishes[old].key,)
            )
            del lines[old]
        else:
            for at, other in ((new, older), (old, newer)):
                lines[at] = replace(lines[at], text=lines[at].text + _note_on(CONTRADICTS, other))
    return list(lines.values())


def _are_opposed(one: ProposedLine, other: ProposedLine) -> bool:
    """Return True for two wishes on the same matter, one of them a denial."""
    texts = [line.sources[0].lesson.words for line in (one, other)]
    words = [set(sentence_key(text).split()) - _WEIGHTLESS for text in texts]
    shared = len(words[0] & words[1]) / max(1, len(words[0] | words[1]))
    return shared >= ALIKE and bool(_DENIES.search(texts[0])) != bool(_DENIES.search(texts[1]))


def is_over(line: str, today: date) -> bool:
    """Return True if the line of an error has no day, or has not come back for too long."""
    match = _DAY.search(line)
    days = ENVIRONMENT_DAYS if _ENVIRONMENT.search(line) else FAILURE_DAYS
    return match is None or date.fromisoformat(match[1]) + timedelta(days=days) < today


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that a review joins to one, by their keys."""

    of: tuple[str, ...]
    text: str = ""
    """New words of the line; empty: it keeps the words of the first."""
    replaces: tuple[str, ...] = ()

    def line(self, known: Mapping[str, ProposedLine]) -> ProposedLine:
        """Return the one line, made from those of its lines that are `known` (lines by key)."""
        first, *others = (known[key] for key in self.of if key in known)
        text = stated(first.kind, self.text, first.sources[0].lesson.words) if self.text else first.text
        older = next((known[key].sources[0] for key in self.replaces if key in known), None)
        sources = (*first.sources, *(source for one in others for source in one.sources))
        gone = (*first.replaced, *(one.key for one in others), *self.replaces)
        return ProposedLine(first.kind, text + (_note_on(REPLACES, older) if older else ""), sources, gone)


@dataclass(frozen=True)
class Review:
    """A model's review of lines: which were joined and kept, and the keys of all that it has seen."""

    groups: tuple[Group, ...] = ()
    seen: frozenset[str] = frozenset()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Review:
        """Return the review in a stored `state`."""
        groups = (Group(tuple(of), text, tuple(replaces)) for of, text, replaces in state.get("groups", ()))
        return cls(tuple(groups), frozenset(state.get("seen", ())))

    @property
    def state(self) -> dict[str, Any]:
        """Stored form of the review."""
        return {"groups": [list(asdict(group).values()) for group in self.groups], "seen": sorted(self.seen)}

    def reviewed_lines(self, lines: Sequence[ProposedLine]) -> Iterator[tuple[Group, ProposedLine]]:
        """Yield the reviewed lines among `lines`, with their new words."""
        known = {line.key: line for line in lines}
        yield from ((group, group.line(known)) for group in self.groups if any(key in known for key in group.of))

    def unseen(self, lines: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return the `lines` that the model has not reviewed."""
        return [line for line in lines if line.key not in self.seen]

    def grown(self, lines: Sequence[ProposedLine], ask: Callable[[str], Sequence[ReviewedLine]]) -> Review:
        """Return this review extended by the oldest `lines` that are new: `ask` gets these and the newest kept ones as
        candidates, at most `MOST_CANDIDATES` of each, and returns the model's answer."""
        reviewed = sorted(self.reviewed_lines(lines), key=_line_age)
        others, again = reviewed[:-MOST_CANDIDATES], reviewed[-MOST_CANDIDATES:]
        new = sorted(((Group((line.key,)), line) for line in self.unseen(lines)), key=_line_age)[:MOST_CANDIDATES]
        shown = {f"c{at}": one for at, one in enumerate(sorted([*again, *new], key=_line_age), 1)}
        kept = {group for group, _ in again}
        groups = _groups(ask(_candidates(shown, kept)), shown, kept)
        return Review((*(group for group, _ in others), *groups), self.seen.union(line.key for _, line in new))


def _line_age(one: tuple[Group, ProposedLine]) -> tuple[str, float, str, int]:
    return _age(one[1].sources[0])


def _candidates(shown: Mapping[str, tuple[Group, ProposedLine]], kept: Collection[Group]) -> str:
    """Return the candidates `shown`, by name, as text for the model: one a line, under their conversation and day."""
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
    """Return the groups of a model's `answer`. A candidate belongs to the first group that names it; in a group, kept
    candidates come first; unknown names are ignored.

    New words are accepted if candidates of the same conversations contain all their names; otherwise the old words
    stay.
    """
    used = {name for one in answer for name in one.of}
    groups: list[Group] = []
    unused = dict(shown)
    for one in answer:
        names = sorted(unused.keys() & set(one.of), key=lambda name: (unused[name][0] not in kept, one.of.index(name)))
        members = [unused.pop(name) for name in names]
        if members:
            older = (shown[name][0] for name in dict.fromkeys(one.replaces) if name in shown and name not in used)
            replaced = (*(key for group, _ in members for key in group.replaces), *_keys(older))
            conversations = {source.conversation for _, line in members for source in line.sources}
            supporting = [line.text for _, line in shown.values() if line.sources[0].conversation in conversations]
            text = folded(one.text)
            text = text if text and _is_supported(text, supporting) else members[0][0].text
            groups.append(Group(tuple(_keys(group for group, _ in members)), text, replaced))
    return groups


def _keys(groups: Iterable[Group]) -> Iterator[str]:
    return (key for group in groups for key in group.of)


def _is_supported(text: str, lines: Sequence[str]) -> bool:
    """Return True for words that contain only names of `lines` and no hidden characters."""
    source = NameIndex(lines)
    return (
        len(text) <= MOST_CHARACTERS and is_plain(text) and not all(invented(one, source) for one in beginnings(text))
    )
