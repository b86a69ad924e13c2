"""Evidence of every turn of a history, gathered once and shared by planners, fit and guards.

What depends on a turn alone is one pure function of its messages and is kept when the history grows; what other turns
do to it (overtaken, said again, answered) is a second pass, linear in turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from planner.evidence.calls import MOVING, Call, calls_of, superseded_turns
from planner.evidence.grounding import NameIndex
from planner.evidence.hosts import attributed, boilerplate_of, without_boilerplate
from planner.evidence.names import LEAST_USES, common_root, file_paths, is_absolute, repository_root, without_root
from planner.evidence.outcomes import Outcome, announced, failure_rank, is_passed_test, is_refusal, read_calls
from planner.evidence.user_words import Choice, answered_offer, typed_lines
from planner.reading.history import History, Turn
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import Line, Lines, Statement, join_lines, numbers_of, statements, turn_lines
from planner.reading.patterns import lazy_pattern
from planner.reading.tokens import TokenCounter
from planner.tools import ToolUse

__all__ = ["Evidence", "TurnEvidence", "call_head", "gather_evidence"]

HEAD_CHARACTERS = 60
"""How much of a call's subject stands in its one-line head."""
QUOTED_LINES = 48
"""Whole lines in quotation marks of an earlier summary that count as the user's words."""
NEAR_LINES = 8
"""Lines below a line of a report in which the announced text is looked for."""
FAILED_HEAD_CHARACTERS = 110
"""Length of the subject of a failed call, so that the attempt differs from the next one."""
_QUOTED = lazy_pattern(r"\A\s*+(?:[-*]|\d{1,3}\.)?\s*[\"“„«「][^\"”“»」]{4,}[\"”“»」]\W*$")
"""A whole line in quotation marks: ``- "never touch main"``; not ``the word "main" is``."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """Evidence of one turn. The fields from `superseded_by` on depend on other turns."""

    turn: Turn
    lines: Lines
    """Each with its source."""
    calls: tuple[Call, ...]
    outcomes: tuple[Outcome, ...]
    """How each call ended, in the order of `calls`."""
    tokens: int
    """Tokens of the whole turn in the history."""
    line_tokens: list[int]
    """Raw tokens of each line with its line break, in their order; 0 for those that are not read."""
    failure_lines: tuple[int, ...]
    """Numbers of the lines that show that something failed here; empty when nothing did."""
    decisive_lines: tuple[int, ...]
    """Those of them that say most of each failure."""
    boilerplate_lines: frozenset[int]
    """Numbers of the lines that a host always writes the same way."""
    superseded_by: str = ""
    """The later turn that read or wrote again all that this one did, or empty."""
    answered_at: str = ""
    """Where the agent's words ended its work on what the user asks here, asking nothing; empty where no end shows."""
    choice: Choice | None = None
    """Option or question that a short reply of the user answers."""
    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Cached values, by the function that made them."""

    def tokens_of(self, numbers: Iterable[int]) -> int:
        """The raw tokens of some of the turn's lines."""
        return sum(self.line_tokens[number - 1] for number in numbers)

    def once(self, make: Callable[Concatenate[TurnEvidence, P], T], *beside: P.args, **named: P.kwargs) -> T:
        """Return what `make` reads of the lines and calls of this turn; it is made once for it and for its copies in
        longer histories. It never depends on other turns; `beside` helps to make it and changes nothing.
        """
        if make not in self._made:
            self._made[make] = make(self, *beside, **named)
        own: T = self._made[make]
        return own

    @property
    def ended_calls(self) -> Iterator[tuple[Call, Outcome]]:
        """Each call with how it ended."""
        return zip(self.calls, self.outcomes, strict=True)

    @property
    def failed(self) -> bool:
        """True if this turn is a failed approach."""
        return bool(self.failure_lines)

    @property
    def text(self) -> str:
        """All its lines."""
        return "\n".join(text.text for text in self.lines.texts)

    @property
    def names(self) -> NameIndex:
        """Index of the names in the turn."""
        return self.once(_name_index)

    def statements_of(self, numbers: Iterable[int]) -> Iterator[Statement]:
        """The statements that the lines with these `numbers` make, in their order."""
        return statements(self.lines[number - 1] for number in numbers)

    @property
    def user_lines(self) -> tuple[Line, ...]:
        """The lines that are the user's own words."""
        return self.once(_user_lines)

    @property
    def typed_lines(self) -> tuple[Line, ...]:
        """The lines that the user typed, and those that an earlier summary quotes whole."""
        return self.once(_typed_lines)

    def lines_of(self, block: int | None) -> Sequence[Line]:
        """The lines of one block of the turn, by its index; none for None."""
        return self.lines.of_block(block)

    def outcome_of(self, call: Call) -> str:
        """How `call` ended, in one line; empty if it has no result, or one whose end says nothing."""
        ends = (without_boilerplate(one.text) for one in self.statements_of(self.outcomes[call.number].lines))
        return next((" ".join(plain.split()) for plain in ends if plain), "")

    def is_refused(self, call: Call) -> bool:
        """True if the user did not let `call` happen."""
        return self.outcomes[call.number].refused

    @property
    def failed_calls(self) -> list[Call]:
        """Those that the user refused did not fail: another one later is no success of theirs."""
        return [call for call, outcome in self.ended_calls if outcome.status == "failed" and not outcome.refused]

    @property
    def passing_lines(self) -> frozenset[int]:
        """Numbers of what runs that passed gave back before they said so, ``=== RUN TestA``, and of what passed in
        those that failed."""
        return self.once(_passing_lines)

    @property
    def obligations(self) -> frozenset[int]:
        """Numbers of the lines that no run hides: what decided failures, and the user's words."""
        return frozenset((*self.decisive_lines, *(line.number for line in self.typed_lines)))


def _name_index(turn: TurnEvidence) -> NameIndex:
    return NameIndex([text.text for text in turn.lines.texts])


def _passing_lines(turn: TurnEvidence) -> frozenset[int]:
    runs = [(call, outcome) for call, outcome in turn.ended_calls if call.kind == "run"]
    passed = [call for call, outcome in runs if outcome.status == "passed"]
    lines = {line.number for call in passed for line in turn.lines_of(call.result_block)}
    failed = (call for call, outcome in runs if outcome.status == "failed")
    lines |= {line.number for call in failed for line in turn.lines_of(call.result_block) if is_passed_test(line.text)}
    return frozenset(lines.difference(turn.obligations, *(outcome.lines for _, outcome in runs)))


def _user_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    return tuple(line for line in turn.lines.of_sources("user") if line.text.strip())


def _typed_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    quoted = [line for line in turn.lines.of_sources("planner") if _QUOTED.match(line.text)]
    return (*typed_lines(turn.user_lines), *quoted[:QUOTED_LINES])


def _paths(turn: TurnEvidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The absolute paths that the agent wrote in `turn`, and those that others did."""
    written = [call.path for call in turn.calls if is_absolute(call.path) and " " in call.path]
    others: list[str] = []
    for text in turn.lines.texts:
        (written if text.part in ("assistant", "call") else others).extend(file_paths(text.text))
    return tuple(written), tuple(others)


@dataclass(frozen=True)
class Evidence:
    """Evidence of all turns, by turn id, in order."""

    turns: dict[str, TurnEvidence]
    root: str = ""
    """The folder that most absolute paths of the history are in, without a slash at its end; may be empty."""
    by_digest: Mapping[str, TurnEvidence] = field(default_factory=dict, repr=False)
    """Evidence of each turn alone, by the turn's digest, so that a longer history need not read it again."""
    entries: dict[str, tuple[object, str]] = field(default_factory=dict, repr=False, compare=False)
    """Entry of each turn, by turn id, with the decision that it was last written for."""

    @lazy_property
    def names(self) -> NameIndex:
        """Index of the names in the whole history, parts of identifiers included."""
        return NameIndex([text.text for turn in self.turns.values() for text in turn.lines.texts], parts=True)

    def ended_calls(self) -> Iterator[tuple[TurnEvidence, Call, Outcome]]:
        """Every call with its turn and how it ended, in the order of the history."""
        return ((turn, call, outcome) for turn in self.turns.values() for call, outcome in turn.ended_calls)

    def shown(self, text: str) -> str:
        """`text` as it stands in a note: paths below the root without it."""
        return without_root(text, self.root)

    @property
    def live_tokens(self) -> int:
        """Tokens of the live tail."""
        return sum(turn.tokens for turn in self.turns.values() if turn.turn.live)

    @property
    def tokens(self) -> int:
        """Tokens of the whole history."""
        return sum(turn.tokens for turn in self.turns.values())


def call_head(call: Call, root: str = "", failed: bool = False) -> str:
    """A call in a few words: the tool and its subject, without `root`; of a search what for, of one that failed what
    was tried."""
    subject = call.attempt if failed else call.sought or call.subject
    subject, most = without_root(MOVING.sub("", subject), root), FAILED_HEAD_CHARACTERS if failed else HEAD_CHARACTERS
    if len(subject) > most:
        subject = subject[: most - 1] + "…"
    return " ".join([*call.name.split(), subject, call.part]).strip()


def gather_evidence(
    history: History,
    counter: TokenCounter,
    known: Mapping[str, TurnEvidence] | None = None,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
) -> Evidence:
    """The evidence of `history`, deterministic, without a model.

    `known` is the `by_digest` of an earlier `Evidence`, made with the same counter: its turns are not read again.
    """
    known = known or {}
    read = {turn.id: known.get(turn.digest) or _read_turn(history, turn, counter, uses) for turn in history.turns}
    read = {turn.id: replace(read[turn.id], turn=turn) for turn in history.turns}
    turns = _beside_others(read)
    return Evidence(turns, _root(list(read.values())), {turn.turn.digest: turn for turn in read.values()})


def _root(turns: Sequence[TurnEvidence]) -> str:
    """The folder that paths are shown relative to: most calls say that they run there, or it saves most in paths."""
    folders = Counter(call.folder for turn in turns for call in turn.calls if call.folder)
    folder, times = max(folders.items(), key=itemgetter(1), default=("", 0))
    if times >= LEAST_USES:
        return folder
    edited = Counter(is_absolute(path) for turn in turns for call in turn.calls for path in call.writes)
    if edited[False] >= max(LEAST_USES, edited[True]):
        return ""  # where the relative paths begin does not show
    written, others = zip(*(turn.once(_paths) for turn in turns), strict=True) if turns else ((), ())
    root = common_root(chain(*written)) or common_root(chain(*written, *others))
    return repository_root(root, (text.text for turn in turns for text in turn.lines.texts))


def _read_turn(history: History, turn: Turn, counter: TokenCounter, uses: Mapping[str, ToolUse]) -> TurnEvidence:
    """Return the evidence of one turn, read from its messages alone."""
    tokens = counter.messages(history.messages_of(turn))  # first: while it counts, it holds all texts once more
    calls = calls_of(history, turn, uses)
    lines = attributed(turn_lines(history, turn), calls)
    read = lines.to_read()
    turn_statements = tuple(statements(read))
    outcomes, failure_lines, decisive_lines = read_calls(turn_statements, [*calls, *_unasked(lines, calls)])
    boilerplate = boilerplate_of(read)
    return TurnEvidence(
        turn=turn,
        lines=lines,
        calls=calls,
        outcomes=outcomes[: len(calls)],
        tokens=tokens,
        line_tokens=_line_tokens(read, len(lines), counter),
        failure_lines=failure_lines,
        decisive_lines=decisive_lines,
        boilerplate_lines=boilerplate,
    )


def _unasked(lines: Lines, calls: Sequence[Call]) -> Iterator[Call]:
    """Yield results that an agent which acts in text received, as results of unknown calls."""
    answered = {call.result_block for call in calls}
    for text in lines.texts:
        if text.part == "result" and text.block not in answered:
            yield Call("", {}, text.block, text.block, {"type": "tool_result", "content": text.text})


def _line_tokens(read: Sequence[Line], count: int, counter: TokenCounter) -> list[int]:
    tokens = [0] * count
    for line in read:
        tokens[line.number - 1] = counter.raw(line.text + "\n")
    return tokens


def _beside_others(read: Mapping[str, TurnEvidence]) -> dict[str, TurnEvidence]:
    """The turns, each with what others do to it."""
    turns = list(read.values())
    done = {
        turn.turn.id: [(call, outcome.status in ("passed", "done", "running")) for call, outcome in turn.ended_calls]
        for turn in turns
    }
    superseded = superseded_turns(done)
    answers, quiet = dict(_answers(turns)), dict(_beside_noise(turns))
    beside = {}
    for before, turn in zip([None, *turns], turns, strict=False):
        own = turn.turn.id
        decisive, outcomes = quiet.get(own, (turn.decisive_lines, turn.outcomes))
        beside[own] = replace(
            turn,
            superseded_by=superseded.get(own, ""),
            answered_at=answers.get(own, ""),
            decisive_lines=decisive,
            outcomes=outcomes,
            choice=_choice(before, turn),
        )
    return beside


def _beside_noise(turns: Sequence[TurnEvidence]) -> Iterator[tuple[str, tuple[tuple[int, ...], tuple[Outcome, ...]]]]:
    """The decisive lines and the outcomes of the turns in which such a line stands in a run that passed, too: what a
    program always prints is no reason, so what else says that it failed stands for it, where anything does."""
    decisive = {turn.lines.text(number).strip() for turn in turns for number in turn.decisive_lines}
    ended = (one for turn in turns if decisive for one in turn.ended_calls)
    passing = (call.text for call, outcome in ended if call.kind == "run" and outcome.has_passed)
    noise = {line.strip() for text in passing for line in text.splitlines()} & decisive
    for turn in turns if noise else ():
        loud = {number for number in turn.failure_lines if turn.lines.text(number).strip() in noise}
        ranks = {number: failure_rank(turn.lines.text(number)) for number in turn.failure_lines if number not in loud}
        others = sorted((rank, number) for number, rank in ranks.items() if rank is not None)
        if others and loud.intersection(turn.decisive_lines):
            told = tuple(number for number in turn.decisive_lines if number not in loud)
            told = told or _with_announced(turn, others[0][1])
            lines = (tuple(number for number in one.lines if number not in loud) or told for one in turn.outcomes)
            outcomes = (
                replace(one, lines=own) if one.status == "failed" else one
                for one, own in zip(turn.outcomes, lines, strict=True)
            )
            yield turn.turn.id, (told, tuple(outcomes))


def _with_announced(turn: TurnEvidence, number: int) -> tuple[int, ...]:
    below = turn.statements_of(line.number for line in turn.lines[number : number + NEAR_LINES])
    return (number, *numbers_of(announced(turn.lines.text(number), below)))


def _answers(turns: Sequence[TurnEvidence]) -> Iterator[tuple[str, str]]:
    """The ids of the turns in which the user asked for work that ended, each with where it did: in words of the agent
    that ask nothing, behind calls, before the user goes on without having stopped it."""
    asked, worked = "", False
    for turn, behind in zip(turns, [*turns[1:], None], strict=False):
        if turn.turn.kind == "user":
            asked, worked = turn.turn.id, False
        worked = worked or bool(turn.calls)
        ends = behind is None or (
            behind.turn.kind == "user" and not any(is_refusal(line.text) for line in behind.lines)
        )
        if asked and worked and ends and not turn.calls and not turn.text.rstrip("\n *_`\"')").endswith("?"):
            yield asked, turn.turn.id


def _choice(before: TurnEvidence | None, turn: TurnEvidence) -> Choice | None:
    """Return the option or question of the turn before that a short reply answers."""
    if before is None or turn.turn.kind != "user":
        return None
    spoken = tuple(statements(before.lines.of_part("assistant")))
    return answered_offer(join_lines(turn.user_lines), spoken, before.turn.id) if spoken else None
