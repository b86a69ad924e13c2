"""What a model that has the lines of all conversations before it makes of them: what says the same becomes one, what a
later one superseded or only one task needed is left out, what does not stand alone is worded anew.

The model's answer is untrusted: no line comes of it that was none before, and each keeps the quote and the sources of
those that it is made of. New words stand only if they name nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from applier.learning.kinds import beginnings, folded, stated
from applier.learning.propose import Line, age_of, replacing
from applier.store.secrets import redact
from planner.evidence.grounding import NameIndex, invented

if TYPE_CHECKING:
    from planner.model.lessons import ReviewedLine

__all__ = ["MOST_CANDIDATES", "Group", "Review", "candidates_text", "grouped"]

MOST_CANDIDATES = 200
"""Of one question: so many new ones, and as many that stand since an earlier review."""
MOST_CHARACTERS = 400
"""Of a line's new words."""


@dataclass(frozen=True, slots=True)
class Group:
    """A line of a review, by the keys of the lines that it is made of."""

    of: tuple[str, ...]
    text: str = ""
    """New words; empty: those of the first."""
    replaces: tuple[str, ...] = ()

    def line(self, known: Mapping[str, Line]) -> Line:
        """The line, of those of its own that are `known`."""
        first, *others = (known[key] for key in self.of if key in known)
        text = stated(first.kind, self.text, first.sources[0].lesson.words) if self.text else first.text
        older = next((known[key].sources[0] for key in self.replaces if key in known), None)
        sources = (*first.sources, *(source for one in others for source in one.sources))
        gone = (*first.replaced, *(one.key for one in others), *self.replaces)
        return Line(first.kind, text + (replacing(older) if older else ""), sources, gone)


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

    def standing(self, lines: Sequence[Line]) -> Iterator[tuple[Group, Line]]:
        """What of `lines` it left, as it worded it."""
        known = {line.key: line for line in lines}
        yield from ((group, group.line(known)) for group in self.groups if any(key in known for key in group.of))

    def unseen(self, lines: Sequence[Line]) -> list[Line]:
        """Those of `lines` that it was not shown."""
        return [line for line in lines if line.key not in self.seen]

    def grown(self, lines: Sequence[Line], ask: Callable[[str], Sequence[ReviewedLine]]) -> Review:
        """It, with what `ask`, given the candidates, says of the oldest of `lines` that it was not shown, and of what
        stands."""
        new = sorted(self.unseen(lines), key=lambda line: age_of(line.sources[0]))[:MOST_CANDIDATES]
        standing = list(self.standing(lines))
        again = sorted(standing, key=lambda one: age_of(one[1].sources[0]))[-MOST_CANDIDATES:]
        every = [*again, *((Group((line.key,)), line) for line in new)]
        every.sort(key=lambda one: age_of(one[1].sources[0]))
        shown = {f"c{at}": one for at, one in enumerate(every, 1)}
        kept = {group for group, _ in again}
        told = grouped(ask(candidates_text(shown, kept)), shown, kept)
        others = [group for group, _ in standing if group not in kept]
        return Review((*others, *told), self.seen.union(line.key for line in new))


def candidates_text(shown: Mapping[str, tuple[Group, Line]], kept: Collection[Group]) -> str:
    """What is asked about: a line each, below the conversation it is from."""
    rows, heading = [], ""
    for name, (group, line) in shown.items():
        source = line.sources[0]
        if heading != (heading := f"{source.conversation} {source.day}".strip()):
            rows += ["", heading, ""]
        marks = " · ".join([name, line.kind, source.lesson.turn, *(["kept"] if group in kept else [])])
        rows.append(f"{marks} · {line.text}")
    return "\n".join(rows).strip()


def grouped(
    answer: Sequence[ReviewedLine], shown: Mapping[str, tuple[Group, Line]], kept: Collection[Group]
) -> list[Group]:
    """What of an answer holds: each candidate in one line, what stands already first; new words, if all that they name
    is named by candidates of its conversations, else the old ones."""
    used = {name for one in answer for name in one.of}
    groups: list[Group] = []
    left = dict(shown)
    for one in answer:
        of = sorted(
            (name for name in dict.fromkeys(one.of) if name in left), key=lambda name: left[name][0] not in kept
        )
        older = [name for name in dict.fromkeys(one.replaces) if name in shown and name not in used]
        members = [left.pop(name) for name in of]
        if members:
            text = folded(one.text)
            near = {source.conversation for _, line in members for source in line.sources}
            bearing = [line for _, line in shown.values() if line.sources[0].conversation in near]
            gone = (*(key for group, _ in members for key in group.replaces), *_keys(shown[name][0] for name in older))
            text = text if text and _is_borne(text, bearing) else members[0][0].text
            groups.append(Group(tuple(_keys(group for group, _ in members)), text, gone))
    return groups


def _keys(groups: Iterator[Group] | Sequence[Group]) -> Iterator[str]:
    return (key for group in groups for key in group.of)


def _is_borne(text: str, lines: Sequence[Line]) -> bool:
    """True for words that name only what `lines` name, and hide nothing."""
    is_plain = len(text) <= MOST_CHARACTERS and text.isprintable() and "<!--" not in text and redact(text) == text
    source = NameIndex([line.text for line in lines])
    return is_plain and not all(invented(form, source) for form in beginnings(text))
