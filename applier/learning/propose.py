"""Chooses the lines to propose to a person from the lessons of all conversations, and lets a model review them.

A lesson is something that one conversation shows; a line is a text for a project's file that a person approves or
deletes. Wishes that contradict each other are shown together. The model's answer is untrusted: it cannot add lines,
each line keeps its quote and sources, and new words may contain only known names.
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

from applier.learning.lesson import (
    KINDS,
    Kind,
    Lesson,
    beginnings,
    claim_with_words,
    is_plain,
    sentence_key,
)
from planner.evidence.grounding import NameIndex, invented
from planner.evidence.turns import shortened
from planner.reading.lines import one_line

if TYPE_CHECKING:
    from planner.model.lessons import ReviewedLine

FAILURE_DAYS, ENVIRONMENT_DAYS = 90, 30
"""Days after which a line on an error expires if the error did not come back: for most errors, and for those that
depend on the machine (`_ENVIRONMENT`)."""
MOST_SOURCES = 3
"""Largest number of conversations that a line names as its sources, the newest ones."""
FEWEST = 2
"""Number of conversations that must show a lesson that is not lasting, such as an error, before it is proposed."""
ALIKE = 0.8
"""Share of common words from which two wishes count as wishes on one matter, so that they may contradict each other."""
REPLACES, CONTRADICTS = "replaces", "CONTRADICTS"
"""Verbs in a note at the end of a line, about another lesson: ``replaces “…”``."""
REPLACED_CHARACTERS = 120
"""Largest length of another lesson's words in the note about it."""

_ENVIRONMENT = re.compile(
    r"command not found|no such file|enoent|eacces|econn|permission denied|connection refused|not installed"
    r"|cannot find module|no module named|in use\b|certificate|could not resolve|timed? ?out|disk|version",
    re.I,
)
"""Words of an error that depends on the machine or soon changes: ``biome: command not found``."""
_DENIES = re.compile(
    r"\b(?:never|not|no|don'?t|avoid|without|stop|no longer|instead of|isn'?t|shouldn'?t|won'?t)\b", re.I
)
"""Words that turn a wish into its opposite: ``never``, ``avoid``."""
_COMMON_TEXT = (
    "a an and always any be do don for forward from going i in instead is it longer more must never no not now of on "
    "please should t the to we you"
)
_COMMON_WORDS = frozenset(_COMMON_TEXT.split())
"""Common words, which do not show what a wish is about."""
_CHANGES = re.compile(r"\b(?:no longer|from now on|instead|any ?more|going forward|now)\b", re.I)
"""Words in a wish that announce a change of an earlier one: ``no longer``, ``from now on``."""
MOST_CANDIDATES = 200
"""Largest number of new lines in one question to the reviewing model; also largest number of earlier lines in it."""
MOST_CHARACTERS = 400
"""Largest length of a line's new words, written by the reviewing model."""

_DAY = re.compile(r", (\d{4}-\d\d-\d\d)\)$")
"""Day at the end of a learned line: ``, 2026-11-03)``."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Lesson (something that a conversation shows and later ones can use) together with its conversation."""

    lesson: Lesson
    conversation: str
    """Name of the conversation: the key of a stored history, or the name of a log."""
    day: str
    """Day on which the conversation ended; empty if unknown."""
    place: str = ""
    """Digest of the conversation up to the end of the lesson's turn. It is the same in conversations that continue from
    there, so that their lesson counts once. Empty if unknown."""
    time: float = 0.0
    """End of the conversation in seconds since the epoch, to order conversations of one day."""

    @property
    def source(self) -> str:
        """Reference to the turn that shows the lesson: the conversation's key and ``:t12``."""
        return f"{self.conversation}:{self.lesson.turn}"

    @property
    def sources(self) -> list[str]:
        """References to the turn that shows the lesson, and to the second turn if it needs one (`Lesson.also`)."""
        return [self.source, *([f"{self.conversation}:{self.lesson.also}"] if self.lesson.also else [])]


@dataclass(frozen=True, slots=True)
class ProposedLine:
    """Line for a project's file, made of lessons (things that later conversations can use), for a person to approve."""

    kind: Kind
    text: str
    """Text of the line, without its sources."""
    sources: tuple[Heard, ...]
    """Lessons from which the line was made: first the one with its text, then the others, newest first."""
    replaced: tuple[str, ...] = ()
    """Keys of earlier lines that this line replaces."""

    @property
    def key(self) -> str:
        """Key of what the line is about, in any words, so that a line that a person deleted is not proposed again."""
        return sha256(f"{self.kind} {self.sources[0].lesson.subject}".encode()).hexdigest()[:16]

    @property
    def line(self) -> str:
        """Line as it is written to a file, with its newest sources and day: ``- “no eval” (c1:t3, 2026-11-03)``."""
        cited = ", ".join(dict.fromkeys(source for heard in self.sources[:MOST_SOURCES] for source in heard.sources))
        return f"- {self.text} ({_dated(cited, max(heard.day for heard in self.sources))})"


def _dated(source: str, day: str) -> str:
    """Return a reference with its day, ``c1:t3, 2026-11-03``; only the reference if the day is unknown (empty)."""
    return f"{source}, {day}" if day else source


def proposed_lines(heard: Sequence[Heard], today: date) -> list[ProposedLine]:
    """Return the lines to propose, made of the lessons in `heard`: at most one for all lessons of the same kind and
    subject, and none if these are neither lasting nor repeated, or are errors that are too old `today`. Lines are
    sorted by kind, and within a kind newest first."""
    by_subject: dict[tuple[str, str], list[Heard]] = defaultdict(list)
    for lesson in sorted(_without_repeats(heard), key=_age, reverse=True):
        by_subject[lesson.lesson.kind, lesson.lesson.subject].append(lesson)
    lines = [_line_for(kind, same) for (kind, _), same in by_subject.items() if _is_worth_a_line(kind, same)]
    by_kind = {kind: [line for line in lines if line.kind == kind] for kind in KINDS}
    errors = [line for line in by_kind["error"] if not is_over(line.line, today)]
    wishes = _with_contradictions(by_kind["wish"])
    return [*by_kind["decision"], *by_kind["fact"], *wishes, *by_kind["command"], *errors]


def _age(heard: Heard) -> tuple[str, float, str, int]:
    """Return a sort key by which lessons are sorted from the oldest to the newest; those without a day come first."""
    return heard.day, heard.time, heard.conversation, int(heard.lesson.turn[1:])


def _without_repeats(heard: Sequence[Heard]) -> Iterable[Heard]:
    """Return each lesson once, as it is in several conversations if they continue the same one. Of these copies, return
    the oldest with a solution, or else the oldest."""
    best_last = sorted(heard, key=lambda item: (not item.lesson.mended, *_age(item)), reverse=True)
    # of entries with the same key, a dictionary keeps the last
    return {(item.place or item.source, item.lesson.kind, item.lesson.words): item for item in best_last}.values()


def _is_worth_a_line(kind: str, same: Sequence[Heard]) -> bool:
    """Return True if the lessons `same`, all on one matter, are worth a line: one is lasting, or two conversations show
    them. An error must also have been solved in one conversation."""
    is_repeated = len({heard.conversation for heard in same}) >= FEWEST
    is_lasting = is_repeated or any(heard.lesson.lasting for heard in same)
    if kind == "error":
        return is_lasting and any(heard.lesson.mended for heard in same)
    # a list of rules that comes again in each conversation may be a form that the user pastes
    is_form = is_repeated and all(heard.lesson.is_long for heard in same)
    return is_lasting and not is_form


def _line_for(kind: str, same: Sequence[Heard]) -> ProposedLine:
    """Return the line for the lessons `same`, all on one matter, newest first. Its text is that of the newest solved
    error, or else of the newest lesson. If an older decision has another text, a note names it as replaced; or as
    contradicted, if it is not known which of the two is newer."""
    best = next((heard for heard in same if heard.lesson.mended), same[0])
    supporting = [heard for heard in same if kind == "error" or heard.lesson.text == best.lesson.text]
    # the newest of each other conversation; `reversed`, as a dictionary keeps the last of entries with the same key
    others = {heard.conversation: heard for heard in reversed(supporting) if heard.conversation != best.conversation}
    sources = (best, *reversed(others.values()))
    text = best.lesson.text
    if kind == "decision" and (older := next((heard for heard in same if heard.lesson.text != text), None)):
        is_order_known = older.conversation == best.conversation or (best.day and older.day)
        text += _note_on(REPLACES if is_order_known else CONTRADICTS, older)
    return ProposedLine(best.lesson.kind, text, sources)


def _note_on(verb: str, other: Heard) -> str:
    """Return a note on the lesson `other` for the end of a line: ``; replaces “use npm” (c1:t3, 2026-11-03)``."""
    words = shortened(other.lesson.words, REPLACED_CHARACTERS)
    return f"; {verb} “{words}” ({_dated(other.source, other.day)})"


def _with_contradictions(wishes: Sequence[ProposedLine]) -> list[ProposedLine]:
    """Return `wishes` (newest first) with a note on each wish that contradicts another one. If the newer wish announces
    a change (``no longer``) and is of a later day, it replaces the older one, which is left out."""
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
    """Return True if two wishes have nearly the same words, but only one has a word like ``never``."""
    texts = [line.sources[0].lesson.words for line in (one, other)]
    words = [set(sentence_key(text).split()) - _COMMON_WORDS for text in texts]
    shared = len(words[0] & words[1]) / max(1, len(words[0] | words[1]))
    return shared >= ALIKE and bool(_DENIES.search(texts[0])) != bool(_DENIES.search(texts[1]))


def is_over(line: str, today: date) -> bool:
    """Return True if a learned `line` on an error has expired: it has no day at its end, or one that is more than
    `FAILURE_DAYS` before `today` (`ENVIRONMENT_DAYS` for errors that depend on the machine)."""
    match = _DAY.search(line)
    days = ENVIRONMENT_DAYS if _ENVIRONMENT.search(line) else FAILURE_DAYS
    return match is None or date.fromisoformat(match[1]) + timedelta(days=days) < today


@dataclass(frozen=True, slots=True)
class Group:
    """Proposed lines that a reviewing model joined to one line; often only one line."""

    of: tuple[str, ...]
    """Keys of the lines that were joined."""
    text: str = ""
    """New words of the joined line, written by the model; empty if it has the words of the first."""
    replaces: tuple[str, ...] = ()
    """Keys of older lines that the joined line replaces."""

    def line(self, known: Mapping[str, ProposedLine]) -> ProposedLine:
        """Return the joined line, made of those of its lines that are in `known` (lines by key); there must be one."""
        first, *others = (known[key] for key in self.of if key in known)
        text = claim_with_words(first.kind, self.text, first.sources[0].lesson.words) if self.text else first.text
        older = next((known[key].sources[0] for key in self.replaces if key in known), None)
        sources = (*first.sources, *(source for line in others for source in line.sources))
        replaced_keys = (*first.replaced, *(line.key for line in others), *self.replaces)
        return ProposedLine(first.kind, text + (_note_on(REPLACES, older) if older else ""), sources, replaced_keys)


Candidate = tuple[Group, ProposedLine]
"""Proposed line that a model reviews, after its group: the lines that an earlier review joined to one. A new line is
alone in its group."""


def _candidate_age(candidate: Candidate) -> tuple[str, float, str, int]:
    """Return a sort key by which candidates are sorted from the oldest to the newest."""
    return _age(candidate[1].sources[0])


@dataclass(frozen=True)
class Review:
    """A model's choice among the lines proposed to a person: which it kept, and which it joined to one."""

    groups: tuple[Group, ...] = ()
    """Groups of lines that the model kept; a group of one line was not joined with others."""
    seen: frozenset[str] = frozenset()
    """Keys of all lines that the model has reviewed."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Review:
        """Return the review from its stored form `state`; an empty review if `state` is empty."""
        groups = (Group(tuple(of), text, tuple(replaces)) for of, text, replaces in state.get("groups", ()))
        return cls(tuple(groups), frozenset(state.get("seen", ())))

    @property
    def state(self) -> dict[str, Any]:
        """Review as JSON data, to be stored."""
        return {"groups": [list(asdict(group).values()) for group in self.groups], "seen": sorted(self.seen)}

    def reviewed_lines(self, lines: Sequence[ProposedLine]) -> Iterator[Candidate]:
        """Yield the lines that the model kept, each after its group. `lines`: all proposed lines; a group is left out
        if none of its lines is among them."""
        known = {line.key: line for line in lines}
        for group in self.groups:
            if any(key in known for key in group.of):
                yield group, group.line(known)

    def unseen(self, lines: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return those of `lines` that the model has not reviewed yet."""
        return [line for line in lines if line.key not in self.seen]

    def grown(self, lines: Sequence[ProposedLine], ask: Callable[[str], Sequence[ReviewedLine]]) -> Review:
        """Return this review, extended to the new ones among `lines` (all proposed lines). A model reviews them
        together with lines that it kept earlier: the oldest new lines and the newest kept ones, at most
        `MOST_CANDIDATES` of each. `ask` sends the text of these candidates to the model and returns its answer."""
        reviewed = sorted(self.reviewed_lines(lines), key=_candidate_age)
        not_shown, shown_again = reviewed[:-MOST_CANDIDATES], reviewed[-MOST_CANDIDATES:]
        unseen = [(Group((line.key,)), line) for line in self.unseen(lines)]
        new = sorted(unseen, key=_candidate_age)[:MOST_CANDIDATES]
        shown = {f"c{at}": entry for at, entry in enumerate(sorted([*shown_again, *new], key=_candidate_age), 1)}
        kept = {group for group, _ in shown_again}
        groups = _groups(ask(_text_of(shown, kept)), shown, kept)
        return Review((*(group for group, _ in not_shown), *groups), self.seen.union(line.key for _, line in new))


def _text_of(shown: Mapping[str, Candidate], kept: Collection[Group]) -> str:
    """Return the candidates `shown`, by their names for the model, as text: one a line (``c2 · wish · t3 · kept ·
    “never push”``), below their conversation and day. Those with a group in `kept` are marked ``kept``."""
    rows, heading = [], ""
    for name, (group, line) in shown.items():
        source, heading_before = line.sources[0], heading
        heading = f"{source.conversation} {source.day}".strip()
        if heading != heading_before:
            rows += ["", heading, ""]
        marks = [name, line.kind, source.lesson.turn, *(["kept"] if group in kept else []), line.text]
        rows.append(" · ".join(marks))
    return "\n".join(rows).strip()


def _groups(answer: Sequence[ReviewedLine], shown: Mapping[str, Candidate], kept: Collection[Group]) -> list[Group]:
    """Return the groups in a model's `answer` about the candidates `shown`, which it names ``c1``, ``c2`` ….

    A candidate belongs to the first group that names it; unknown names are ignored. In a group, candidates of groups
    that were `kept` come first, so that the line keeps its key. New words are accepted only if candidates of the same
    conversations contain all names in them.
    """
    used = {name for one in answer for name in one.of}
    groups: list[Group] = []
    unused = dict(shown)
    for one in answer:
        named = [name for name in dict.fromkeys(one.of) if name in unused]
        names = sorted(named, key=lambda name: unused[name][0] not in kept)
        members = [unused.pop(name) for name in names]
        if members:
            # a candidate that is in a group itself is not replaced
            older = [shown[name] for name in dict.fromkeys(one.replaces) if name in shown and name not in used]
            replaced = (*(key for group, _ in members for key in group.replaces), *_keys(older))
            conversations = {source.conversation for _, line in members for source in line.sources}
            supporting = [line.text for _, line in shown.values() if line.sources[0].conversation in conversations]
            text = one_line(one.text)
            text = text if text and _is_supported(text, supporting) else members[0][0].text
            groups.append(Group(tuple(_keys(members)), text, replaced))
    return groups


def _keys(candidates: Iterable[Candidate]) -> Iterator[str]:
    """Yield the keys of all lines for which these `candidates` stand."""
    return (key for group, _ in candidates for key in group.of)


def _is_supported(text: str, lines: Sequence[str]) -> bool:
    """Return True if `text` has no other names than `lines`, no hidden characters, and at most `MOST_CHARACTERS`."""
    source = NameIndex(lines)
    has_known_names = not all(invented(form, source) for form in beginnings(text))
    return len(text) <= MOST_CHARACTERS and is_plain(text) and has_known_names
