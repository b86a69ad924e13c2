"""Evidence of one turn and of a whole history, shared by planners, selection, guards and sessions.

Evidence is what was read from the messages without a model. Raw tokens are counted by the tokenizer, before they are
scaled to the tokens that the API reports. The *record* is what the rules state about the state of the work.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

from planner.evidence.calls import Call
from planner.evidence.grounding import NameIndex
from planner.evidence.hosts import without_boilerplate
from planner.evidence.names import without_root
from planner.evidence.outcomes import Outcome
from planner.evidence.user_words import Choice, typed_lines
from planner.reading.history import Turn
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import Line, Lines, Statement, keys_of_call_lines, statements
from planner.reading.patterns import lazy_pattern

HEAD_CHARACTERS = 60
"""Largest length of a call's subject (its path, command or query) in its head, the call in a few words."""
FAILED_HEAD_CHARACTERS = 110
"""Largest length of the subject in the head of a failed call; larger, so that the heads of several attempts differ."""
LINE_CHARACTERS = 300
"""Largest length of one line of the record."""
QUOTED_LINES = 48
"""Largest number of quoted lines in an earlier summary that count as the user's words."""
_QUOTED = lazy_pattern(r"\A\s*+(?:[-*]|\d{1,3}\.)?\s*[\"“„«「][^\"”“»」]{4,}[\"”“»」]\W*$")
"""Line wholly in quotation marks: ``- "never touch main"``; not ``the word "main" is``."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One statement of the record."""

    text: str
    turn_ids: tuple[str, ...]
    """Ids of the turns that show it."""
    heading: Literal["STATE", "FACTS"] = "STATE"
    """Section of the brief: the present state of the work, or what was learned."""


class EndedCall(NamedTuple):
    """One call with its turn and its outcome."""

    turn: TurnEvidence
    call: Call
    outcome: Outcome


class WrittenEntry(NamedTuple):
    """Text that represents a turn in a view."""

    basis: object
    """Everything on which the text depends; the text is written again only if this changes."""
    text: str


def shortened(text: str, most: int = LINE_CHARACTERS) -> str:
    """Return `text` in one line of at most `most` characters. A text that is cut ends in ``…``, after a whole word if
    possible."""
    text = " ".join(text.split())
    return text if len(text) <= most else (text[:most].rpartition(" ")[0] or text[: most - 1]) + "…"


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """Evidence of one turn. `superseded_by`, `answered_at` and `choice` also depend on other turns."""

    turn: Turn
    lines: Lines
    """All lines of the turn, each with its source."""
    calls: tuple[Call, ...]
    outcomes: tuple[Outcome, ...]
    """Outcome of each call, in the order of `calls`."""
    tokens: int
    """Tokens of the whole turn in the history."""
    line_tokens: array[int]
    """Raw tokens of each line with its line break, in order; 0 for lines in the middle of a very long block, which are
    not read."""
    failure_lines: tuple[int, ...]
    """Numbers of the lines that show that something failed here; empty without a failure."""
    decisive_lines: tuple[int, ...]
    """Numbers of the most informative lines of each failure."""
    boilerplate_lines: frozenset[int]
    """Numbers of the lines that a host always writes the same way."""
    superseded_by: str = ""
    """Id of the later turn that repeats or replaces all content of this one; empty without one."""
    answered_at: str = ""
    """Id of the turn in which the agent finished the work that the user asks for here; empty if no end is visible."""
    choice: Choice | None = None
    """Option or question that the user answers here by a short reply; None without one."""
    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Values that `once` computed, by the function that computed them."""

    def tokens_of(self, numbers: Iterable[int]) -> int:
        """Return the raw tokens of the turn's lines with these `numbers`."""
        return sum(self.line_tokens[number - 1] for number in numbers)

    def once(self, make: Callable[Concatenate[TurnEvidence, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return ``make(self, *arguments, **named)``, computed at the first call for this turn.

        Copies of the turn in longer histories share the result. So it must depend on the lines and calls of this turn
        alone, and be the same for all `arguments` and `named`.
        """
        if make not in self._made:
            self._made[make] = make(self, *arguments, **named)
        made: T = self._made[make]
        return made

    @property
    def ended_calls(self) -> Iterator[EndedCall]:
        """Calls of the turn, each with its outcome."""
        return (EndedCall(self, call, outcome) for call, outcome in zip(self.calls, self.outcomes, strict=True))

    @property
    def failed(self) -> bool:
        """True if something failed in the turn."""
        return bool(self.failure_lines)

    @property
    def text(self) -> str:
        """Text of all lines of the turn."""
        return "\n".join(text.text for text in self.lines.texts)

    @property
    def names(self) -> NameIndex:
        """Index of the names in the turn."""
        return self.once(_name_index)

    def statements_of(self, numbers: Iterable[int]) -> Iterator[Statement]:
        """Yield the lines with these `numbers` as statements, in the order of `numbers`."""
        return statements(self.lines[number - 1] for number in numbers)

    @property
    def user_lines(self) -> tuple[Line, ...]:
        """Lines that the user wrote, pasted ones included."""
        return self.once(_user_lines)

    @property
    def typed_lines(self) -> tuple[Line, ...]:
        """Lines that the user typed, without pasted parts, and lines that an earlier summary quotes whole."""
        return self.once(_typed_lines)

    def lines_of(self, block: int | None) -> Sequence[Line]:
        """Return the lines of one block of the turn, by its index; an empty list for None."""
        return self.lines.of_block(block)

    def outcome_of(self, call: Call) -> str:
        """Return the first statement that shows how `call` ended, in one line; empty if none does."""
        ends = (without_boilerplate(one.text) for one in self.statements_of(self.outcomes[call.number].lines))
        return next((" ".join(plain.split()) for plain in ends if plain), "")

    def is_refused(self, call: Call) -> bool:
        """Return True if the user did not allow `call`."""
        return self.outcomes[call.number].refused

    @property
    def failed_calls(self) -> list[Call]:
        """Failed calls, without those that the user refused, as no later call shows how to make these succeed."""
        return [call for _, call, outcome in self.ended_calls if outcome.status == "failed" and not outcome.refused]

    @property
    def idle_lines(self) -> frozenset[int]:
        """Numbers of result lines that add nothing to the outcome, such as the progress of a run that passed."""
        idle = frozenset[int]().union(*(outcome.idle for outcome in self.outcomes))
        return idle - self.obligations if idle else idle

    @property
    def unchanged_lines(self) -> frozenset[int]:
        """Numbers of lines that are equal in the removed and the added text of an edit."""
        return self.once(_unchanged_lines)

    def sides(self, call: Call) -> Mapping[int, str]:
        """Return the side of each line that `call` removes or adds, see `call_sides`; empty if it edits nothing."""
        return call_sides(call, self.lines_of(call.block)) if call.reading.adds or call.reading.removes else {}

    @property
    def obligations(self) -> frozenset[int]:
        """Numbers of lines that always matter: decisive lines of failures, and the user's typed words."""
        return frozenset((*self.decisive_lines, *(line.number for line in self.typed_lines)))


def _name_index(turn: TurnEvidence) -> NameIndex:
    return NameIndex([text.text for text in turn.lines.texts])


def _unchanged_lines(turn: TurnEvidence) -> frozenset[int]:
    sides = map(turn.sides, turn.calls)
    return frozenset(number for own in sides for number, side in own.items() if side == "=")


def _user_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    return tuple(line for line in turn.lines.of_sources("user") if line.text.strip())


def _typed_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    quoted = [line for line in turn.lines.of_sources("planner") if _QUOTED.match(line.text)]
    return (*typed_lines(turn.user_lines), *quoted[:QUOTED_LINES])


def call_sides(call: Call, lines: Sequence[Line]) -> Mapping[int, str]:
    """Return by number the side of each line that a call removes (``-``), adds (``+``) or leaves unchanged (``=``).

    `lines`: all lines of the call's block. A line is unchanged if the same text is removed and added.
    """
    removed: dict[int, str] = {}
    added: dict[int, str] = {}
    for line, key in zip(lines, keys_of_call_lines(call.name, call.input), strict=False):
        if key in call.reading.removes:
            removed[line.number] = line.text.strip()
        elif key in call.reading.adds:
            added[line.number] = line.text.strip()
    unchanged = {*removed.values()} & {*added.values()} - {""}
    sides = {number: "=" if text in unchanged else "-" for number, text in removed.items()}
    return sides | {number: "=" if text in unchanged else "+" for number, text in added.items()}


@dataclass(frozen=True)
class Evidence:
    """Evidence of all turns, by turn id, in order."""

    turns: dict[str, TurnEvidence]
    root: str = ""
    """Folder that contains most absolute paths of the history, without a slash at its end; may be empty."""
    by_digest: Mapping[str, TurnEvidence] = field(default_factory=dict, repr=False)
    """Evidence of each turn, without its relations to other turns, by the turn's digest. A longer history starts from
    it instead of reading the turns again."""
    record_of: Callable[[Evidence], Iterable[RecordLine]] = field(default=lambda _: (), repr=False, compare=False)
    """Function that returns the record of all fields of work."""
    entries: dict[str, WrittenEntry] = field(default_factory=dict, repr=False, compare=False)
    """Cache of the entry that was written last for each turn, by turn id. Evidence of a longer history shares it."""

    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Values that `once` computed, by the function that computed them."""

    def once(self, make: Callable[[Evidence], T]) -> T:
        """Return ``make(self)``, computed at the first call."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @property
    def record(self) -> Iterable[RecordLine]:
        """Record of all fields of work, the newest lines first under each heading."""
        return self.once(_record)

    @lazy_property
    def names(self) -> NameIndex:
        """Index of the names in the whole history, including parts of identifiers."""
        return NameIndex([text.text for turn in self.turns.values() for text in turn.lines.texts], parts=True)

    def ended_calls(self) -> Sequence[EndedCall]:
        """Return every call with its turn and its outcome, in the order of the history."""
        return self.once(_ended_calls)

    def shown(self, text: str) -> str:
        """Return `text` with paths below the root made relative to it."""
        return without_root(text, self.root)

    @property
    def live_tokens(self) -> int:
        """Tokens of the live tail."""
        return sum(turn.tokens for turn in self.turns.values() if turn.turn.live)

    @property
    def tokens(self) -> int:
        """Tokens of the whole history."""
        return sum(turn.tokens for turn in self.turns.values())


def _ended_calls(evidence: Evidence) -> list[EndedCall]:
    return [*chain.from_iterable(turn.ended_calls for turn in evidence.turns.values())]


def _record(evidence: Evidence) -> tuple[RecordLine, ...]:
    return tuple(evidence.record_of(evidence))


def call_head(call: Call, root: str = "", failed: bool = False) -> str:
    """Return a call in a few words: the tool, its subject or query, and the part that it reads.

    Paths below the folder `root` are shown relative to it. A `failed` call is described in more detail, so that several
    attempts can be distinguished.
    """
    subject = call.attempt.removeprefix(call.reading.lead) if failed else call.sought or call.head_subject
    subject, most = without_root(subject, root), FAILED_HEAD_CHARACTERS if failed else HEAD_CHARACTERS
    if len(subject) > most:
        subject = subject[: most - 1] + "…"
    return " ".join([*call.name.split(), subject, call.part]).strip()
