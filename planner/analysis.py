"""Reads a conversation once: its turns, what was found in them (the evidence), and its token counts. Decides nothing.

Everything that plans, checks or applies shares this one analysis. When the conversation has grown, only new turns are
read. *Names* are here all words of a text and all specifics (paths, ids, numbers); a name's *place* is its index in the
list of all names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, compress, count, islice, repeat
from operator import sub
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from propcache.api import cached_property

from planner.evidence import Evidence, TurnEvidence, gather_evidence
from planner.evidence.calls import Call
from planner.evidence.turns import Field, read_call_by, registered_fields
from planner.evidence.words import parts_of, specifics_of, words_of
from planner.programming import PROGRAMMING
from planner.reading.lines import Part
from planner.reading.messages import History, Message, blocks, pairs_plainly, read_history
from planner.reading.secrets import Secrets, secrets_in
from planner.reading.tokens import TokenCounter
from planner.settings import ToolUse
from planner.validity import CALL_RULES, check_messages

_OPEN_ENDED = ("server_tool_use", "mcp_tool_use")
"""Types of calls that the server runs; their results may be in a later turn."""

WRITERS: Sequence[Part] = ("assistant", "call", "user")
"""Parts of a turn for which it is recorded that they contain a name, each by one bit of `Columns.writers`."""
WORD, JOINED = 1, 2
"""Kinds of names in `Columns.kinds`: plain words, and names that may have several components, such as ``src/a.py``.
Other names, such as numbers, have the kind 0."""
MOST_SEEN = 4_096
"""Largest number of lines whose names are remembered while turns are read; nine of ten repetitions are that near."""
BITS = {part: 1 << at for at, part in enumerate(WRITERS)}
"""Bit of each part in `Columns.writers`."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Names:
    """Names in the order of their places, each once, in one text: a list of texts takes four times the memory."""

    text: str = "\n"
    """Each name after a line break, and one more line break."""
    bounds: array[int] = field(default_factory=lambda: array("I", [0]))
    """Index in `text` of the line break before each name, and of the last one."""
    cut: dict[int, str] = field(default_factory=dict, repr=False, compare=False)
    """Cache of names by their places: many lines may have a name."""

    def extended(self, names: Collection[str]) -> Names:
        """Return these names and further `names`; none may be empty or have a line break."""
        ends = accumulate((len(name) + 1 for name in names), initial=self.bounds[-1])
        return Names(self.text + "\n".join([*names, ""]), self.bounds[:-1] + array("I", ends))

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names."""
        return iter(self.text[1:-1].split("\n") if len(self) else ())

    def at(self, places: Iterable[int]) -> tuple[str, ...]:
        """Return the names at `places`."""
        text, bounds, cut = self.text, self.bounds, self.cut
        return tuple(
            [cut.get(place) or cut.setdefault(place, text[bounds[place] + 1 : bounds[place + 1]]) for place in places]
        )

    def find(self, name: str) -> int | None:
        """Return the place of `name`; None if it is not among the names."""
        start = self.text.find(f"\n{name}\n")
        return bisect_left(self.bounds, start) if start >= 0 else None


@dataclass(frozen=True, slots=True)
class Rows:
    """Names in each line of a turn, stored as indexes in the list of all names (*places*): an index takes a tenth of
    the memory of a text."""

    places: array[int]
    """Places of the names in all lines, one line after the other. In each line a name occurs once."""
    bounds: array[int]
    """Indexes in `places` at which the lines begin, and at the end the length of `places`."""

    @classmethod
    def of(cls, lines: Sequence[Collection[int]]) -> Rows:
        """Store `lines`, each of which has the places of the names in one line of a turn."""
        bounds = accumulate(map(len, lines), initial=0)
        return cls(array("I", [*chain.from_iterable(lines)]), array("I", [*bounds]))

    def between(self, first: int, stop: int) -> array[int]:
        """Return the places of the names in the lines from index `first` to `stop` - 1."""
        return self.places[self.bounds[first] : self.bounds[stop]]


class Columns(NamedTuple):
    """Counts of all names of a conversation. The values of a name are at its place (index) in each column."""

    lines: array[int]
    """Number of lines with the name."""
    turns: array[int]
    """Number of turns with the name."""
    last_turns: array[int]
    """Number of the last turn with the name: 9 for ``t9``."""
    last_written: array[int]
    """Number of the last turn in which the agent wrote the name, or 0."""
    last_offsets: array[int]
    """Number of characters from the start of the history to the end of the last line with the name."""
    writers: array[int]
    """Parts of turns that have contained the name: one bit for each of `WRITERS`."""
    kinds: array[int]
    """Kind of the name: `WORD`, `JOINED`, or 0 for others."""

    def grown(self, kinds: array[int]) -> Columns:
        """Return a copy with new names of these `kinds`, not counted yet, at the end of each column."""
        longer = Columns(*[column + array(column.typecode, bytes(len(kinds) * column.itemsize)) for column in self])
        return longer._replace(kinds=self.kinds + kinds)


@dataclass
class Occurrences:
    """Names in all turns of a conversation, where they occur, and how often. It does not change after `extended` has
    returned it. `rows`, `columns` and `parts` refer to a name by its *place*, its index in `names`."""

    digests: tuple[str, ...] = ()
    """Digests of the turns, by which a longer history is recognised."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Names in each line, by turn id. After a name such as ``src/a.py`` come its components, if they occur as names
    themselves."""
    names: Names = field(default_factory=Names)
    parts: dict[int, Sequence[int]] = field(default_factory=dict)
    """Places of a name and of its components, by the place of the name. A component counts if it occurs as a name
    itself and is neither a word nor a number."""
    columns: Columns = field(default_factory=lambda: Columns(*[array(kind) for kind in "IIIIIBB"]))
    characters: int = 0
    """Number of characters of all turns."""

    def extended(self, evidence: Evidence) -> Occurrences:
        """Return the names in all turns of `evidence`. If the known turns come first, only the new ones are read."""
        turns = list(evidence.turns.values())
        digests, known = tuple(turn.turn.digest for turn in turns), len(self.digests)
        if digests[:known] != self.digests:
            return Occurrences().extended(evidence)
        longer = Occurrences(digests, {**self.rows}, self.names, {**self.parts}, self.columns, self.characters)
        longer._add(turns[:known], turns[known:])
        return longer

    def _add(self, earlier: Sequence[TurnEvidence], new: Sequence[TurnEvidence]) -> None:
        """Count the names in the `new` turns. In the `earlier` turns, count components of names that have occurred as
        names themselves only in the new turns."""
        first_new, offset = len(self.names), 0  # place of the first new name; characters before a turn
        places = defaultdict[str, int](count(first_new).__next__, zip(self.names, count(), strict=False))
        seen: dict[int, bytes] = {}
        for turn in new:
            self.rows[turn.turn.id] = _read(turn, places, seen)
        del seen
        new_names = [*islice(places, first_new, None)]
        self.names = self.names.extended(new_names)
        kinds = array("B", map(kind_of, new_names))
        with_new_parts = {
            place for place in self._gain_parts(places, self.columns.kinds + kinds, first_new) if place < first_new
        }
        del places, new_names  # frees the memory of all texts before the columns grow
        self.columns = self.columns.grown(kinds)
        for turn in earlier if with_new_parts else ():
            if not with_new_parts.isdisjoint(self.rows[turn.turn.id].places):
                self._count(turn, offset, first_new)
            offset += sum(len(text.text) for text in turn.lines.texts)
        for turn in new:
            self._count(turn, self.characters, 0)
            self.characters += sum(len(text.text) for text in turn.lines.texts)

    def _gain_parts(self, places: Mapping[str, int], kinds: Sequence[int], first_new: int) -> Iterator[int]:
        """Record the components of names such as ``src/a.py`` if the name or a component is new: with a place of
        `first_new` or more. Yield the places of these names. `places`: place of each name; `kinds`: kind of each name,
        by place. Words and numbers are no components, as `words_of` finds them anyway."""
        for name in compress(places, map(JOINED.__eq__, kinds)):
            in_places = map(places.get, parts_of(name))
            found = [place for place in in_places if place is not None and kinds[place] != WORD]
            if len(found) > 1 and max(found) >= first_new:  # the first one is the name itself
                self.parts[found[0]] = array("I", found)
                yield found[0]

    def _with_parts(self, line: array[int]) -> Collection[int]:
        """Return the places of the names in one line with those of their components, each once."""
        if self.parts.keys().isdisjoint(line):
            return line
        return dict.fromkeys(chain.from_iterable([self.parts.get(place, (place,)) for place in line]))

    def _count(self, turn: TurnEvidence, offset: int, least: int) -> None:
        """Add the components of names to the rows of `turn`, and count its names whose place is `least` or more.
        `offset`: number of characters of the history before the turn."""
        rows, number = self.rows[turn.turn.id], turn.turn.number
        if not self.parts.keys().isdisjoint(rows.places):
            lines_of_turn = [self._with_parts(rows.between(at, at + 1)) for at in range(len(rows.bounds) - 1)]
            rows = self.rows[turn.turn.id] = Rows.of(lines_of_turn)
        lines, turns, last_turns, last_written, last_offsets, writers, _ = self.columns
        ends = array("I")  # end of each line, in characters from the start of the history
        for text in turn.lines.texts:
            ends.extend([offset + end for end in text.bounds[1:]])
            offset += len(text.text)
            written, bit = text.part in ("assistant", "call"), BITS.get(text.part, 0)
            for place in {*rows.between(text.first, text.stop)} if bit else ():
                if place >= least:
                    last_written[place] = number if written else last_written[place]
                    writers[place] |= bit
        # repeat the end of each line for each of its names; if several lines have a name, the last one counts
        ends_of_lines = chain.from_iterable(map(repeat, ends, map(sub, rows.bounds[1:], rows.bounds)))
        end_of = dict(zip(rows.places, ends_of_lines, strict=True))
        for place, times in Counter(rows.places).items():
            if place >= least:
                lines[place] += times
                turns[place] += 1
                last_turns[place] = number
                last_offsets[place] = end_of[place]


def _read(turn: TurnEvidence, place_of: defaultdict[str, int], seen: dict[int, bytes]) -> Rows:
    """Find the names in each line of `turn`, without the middle of long blocks. `place_of`: place of each name; a new
    name gets the next one. `seen`: cache of the names of lines by the hash of their text, as lines may be repeated."""
    places, counts = array("I"), array("I", bytes(4 * (len(turn.lines) + 1)))
    for text in turn.lines.texts:
        for at, line in text.read_lines():
            key = hash(line)
            if (names := seen.get(key)) is None:
                if len(seen) >= MOST_SEEN:
                    seen.clear()
                of_line = dict.fromkeys(map(place_of.__getitem__, names_of(line)))
                names = seen[key] = array("I", [*of_line]).tobytes()  # bytes take half the memory of a short array
            places.frombytes(names)
            counts[at + 1] = len(names) // places.itemsize
    return Rows(places, array("I", [*accumulate(counts)]))


def kind_of(name: str) -> int:
    """Return the kind of a name for `Columns.kinds`."""
    if is_word(name):
        return WORD
    return 0 if name.isidentifier() or name.isdigit() else JOINED


def is_word(name: str) -> bool:
    """Return True if `name` is a plain word, which is worth less than an identifier: ``refund``, ``频率``; not
    ``toJson`` or ``4711``."""
    return name.isalpha() and name == name.casefold()


def names_of(text: str) -> Iterator[str]:
    """Yield the specifics of `text` (paths, ids, numbers) and then its words in any script. A name may be repeated."""
    return chain(specifics_of(text), words_of(text))


@dataclass(frozen=True)
class Analysis:
    """Conversation with everything that was read from it. It is made once, and used by all later steps."""

    history: History
    """Messages, divided into turns."""
    evidence: Evidence
    """Everything that was read from the turns without a model, such as calls and failures."""
    counter: TokenCounter
    uses: Mapping[str, ToolUse] = field(default_factory=dict, compare=False)
    """Declarations of what tools do, by the user or the tools' own annotations, by the tool's name."""
    counted: Occurrences = field(default_factory=Occurrences, repr=False, compare=False)
    """Counts of names in the beginning of the history, by an earlier analysis, which are extended."""
    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Cache of `once`: each value by the function that computed it and the positional arguments."""

    def once(self, make: Callable[Concatenate[Analysis, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return ``make(self, *arguments, **named)``, which is computed once for the same `arguments` and then cached.
        `named` must be the same each time."""
        if (make, arguments) not in self._made:
            self._made[make, arguments] = make(self, *arguments, **named)
        made: T = self._made[make, arguments]
        return made

    @property
    def tokens(self) -> int:
        """Tokens of the whole history."""
        return self.evidence.tokens

    @cached_property
    def occurrences(self) -> Occurrences:
        """Names in the whole history, where they occur, and how often."""
        return self.counted.extended(self.evidence)

    @property
    def newest_counted(self) -> Occurrences:
        """Counts of names that a later analysis can extend: `occurrences` if they were computed, else `counted`."""
        newest: Occurrences = vars(self).get("occurrences", self.counted)
        return newest

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets in the history, so that they can be removed from texts that are cut from it."""
        turns = self.evidence.turns.values()
        return Secrets(
            chain.from_iterable(turn.once(_turn_secrets, self.history.messages_of(turn.turn)) for turn in turns)
        )

    @cached_property
    def broken(self) -> Mapping[str, str]:
        """Turns with calls that the API would refuse, by id, each with the reason. They are kept as they are. The last
        turn is left out, as its results may come later. Other faults, such as repeated ids (``call_0`` each time), do
        no further harm in compacted messages, and some providers accept them."""
        problems: dict[str, str] = {}
        if all(turn.once(_pairs_up, self.history) for turn in list(self.evidence.turns.values())[:-1]):
            return problems
        turn_at = {at: turn for turn in self.history.turns for at in range(turn.start, turn.stop)}
        for violation in check_messages(self.history.messages, rules=CALL_RULES):
            turn = turn_at[violation.message]
            if violation.refused and turn is not self.history.turns[-1]:
                problems.setdefault(turn.id, f"{violation.place}: {violation.problem}")
        return problems


def _pairs_up(turn: TurnEvidence, history: History) -> bool:
    """Return True if each call in `turn` has its result there, and each result its call, whatever is around the turn.
    It is computed once a turn, so that later plans of a long session need not check the whole history again."""
    messages = history.messages_of(turn.turn)
    if pairs_plainly(messages):
        return True
    if any(block["type"] in _OPEN_ENDED for message in messages for block in blocks(message)):
        return False
    return not any(violation.refused for violation in check_messages(messages, rules=CALL_RULES))


def _turn_secrets(_turn: TurnEvidence, messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the secrets in the `messages` of a turn. The turn is an argument only because it caches the result."""
    return secrets_in(messages)


def analyze(
    messages: Sequence[object],
    target_model: str = "",
    *,
    known: Analysis | None = None,
    uses: Mapping[str, ToolUse] | None = None,
) -> Analysis:
    """Read `messages` (dicts or objects of the SDK): divide them into turns, find calls, failures and names, and count
    tokens.

    `target_model`: model whose tokens are counted. `known`: an earlier analysis of the same conversation; its turns are
    not read again, and its counter is used. `uses`: declarations of what tools do, by name; by default those of
    `known`.

    Raises:
        TranscriptError: an item is no message, or not JSON data; the text names its index.
    """
    counter = known.counter if known is not None else TokenCounter.for_model(target_model)
    history = read_history(messages, known.history if known is not None else None)
    return analyze_history(history, counter, known, uses)


def analyze_history(
    history: History,
    counter: TokenCounter,
    known: Analysis | None = None,
    uses: Mapping[str, ToolUse] | None = None,
) -> Analysis:
    """Analyze a `history` that is divided into turns already. The other arguments are those of `analyze`."""
    known_uses = known.uses if known is not None else {}
    declared = known_uses if uses is None else uses
    earlier = known if known is not None and known.uses == declared else None
    known_evidence = earlier.evidence if earlier is not None else None
    counted = earlier.newest_counted if earlier is not None else Occurrences()
    evidence = gather_evidence(history, counter, known_evidence, declared, _fields())
    return Analysis(history, evidence, counter, declared, counted)


def call_alone(name: str, arguments: dict[str, Any]) -> Call:
    """Return a tool call that is read in the same way as one in a conversation, but without its result."""
    return Call(name, arguments, 0, None, None, reading=read_call_by(_fields(), name, arguments))


def _fields() -> tuple[Field, ...]:
    """Return all known kinds of work: programming, and those that the user registered."""
    return PROGRAMMING, *registered_fields()
