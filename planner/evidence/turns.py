"""Gathers the evidence of a conversation: what can be read from its turns without a model, such as calls and failures.

It is gathered once, and everything that decides about turns uses it. Raw tokens are counted by the tokenizer, before
they are scaled to the tokens that the API reports. The *record* is a list of statements on the state of the work.

A first pass reads each turn alone; its result is kept when the history grows. A second pass adds the relations to other
turns, such as which turn repeats or answers it. Its time is linear in the number of turns.

A `Field` is a kind of work with its own tools and signs, such as programming. General code knows none of them. A
*reading* is what was read from a tool call or a result. Each method of a field receives the reading of the general
code, and returns it, with changes for the tools that the field knows. A new field is one file: a subclass of `Field`,
and a call of `register_field` at the start of the process.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

from propcache.api import cached_property

from planner.evidence.calls import (
    NOTE_TOOL,
    Call,
    CallReading,
    Outcome,
    calls_of,
    is_refusal,
    listed_failures,
    own_tool,
    read_call,
    read_outcome,
)
from planner.evidence.grounding import NameIndex, beginning
from planner.evidence.hosts import (
    Choice,
    answered_offer,
    attributed,
    boilerplate_of,
    is_question,
    typed_lines,
    without_boilerplate,
)
from planner.evidence.words import without_root
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import (
    Line,
    Lines,
    Statement,
    join_lines,
    keys_of_call_lines,
    numbers_of,
    statements,
    turn_lines,
    without_escapes,
)
from planner.reading.messages import History, Turn
from planner.reading.tokens import TokenCounter
from planner.settings import ToolUse

HEAD_CHARACTERS = 60
"""Largest length of a path, command or query in `call_head`, which describes a tool call in a few words."""
FAILED_HEAD_CHARACTERS = 110
"""Largest length of the same for a failed call; more, so that the descriptions of several attempts differ."""
LINE_CHARACTERS = 300
"""Largest length of one statement on the state of the work."""
QUOTED_LINES = 48
"""Largest number of lines of an earlier summary that count as the user's words, as they are quotations."""
_QUOTED = lazy_pattern(r"\A\s*+(?:[-*]|\d{1,3}\.)?\s*[\"“„«「][^\"”“»」]{4,}[\"”“»」]\W*$")
"""Line wholly in quotation marks: ``- "never touch main"``; not ``the word "main" is``."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class RecordLine:
    """Statement on the state of the work that rules read from the conversation: ``src/a.py: edited``."""

    text: str
    turn_ids: tuple[str, ...]
    """Ids of the turns that show what the statement claims."""
    heading: Literal["STATE", "FACTS"] = "STATE"
    """Section of the brief (the page of memory) for the statement: present state of the work, or what was learned."""


class EndedCall(NamedTuple):
    """One tool call with its turn and how it ended, to read calls of a whole conversation in a row."""

    turn: TurnEvidence
    call: Call
    outcome: Outcome


def shortened(text: str, most: int = LINE_CHARACTERS) -> str:
    """Return `text` on one line. If it has more than `most` characters, it is cut after a whole word, with ``…``; a
    text without blanks is cut before a name, if one precedes it."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    words = text[:most].rpartition(" ")[0] or beginning(text, most - 1).removesuffix("…")
    return f"{words[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """Everything that was read from one turn: its lines, tool calls, failures and tokens. `superseded_by`,
    `answered_at` and `choice` also depend on other turns."""

    turn: Turn
    lines: Lines
    """All lines of the turn, each with its source, such as the user or a tool."""
    calls: tuple[Call, ...]
    """Tool calls of the turn, in order."""
    outcomes: tuple[Outcome, ...]
    """How each of the `calls` ended, in the same order."""
    tokens: int
    """Tokens of the whole turn in the history."""
    line_tokens: array[int]
    """Raw tokens of each line with its line break, in order; 0 in the middle of a very long block."""
    failure_lines: tuple[int, ...]
    """Numbers of the lines that show that something failed in the turn; empty without a failure."""
    decisive_lines: tuple[int, ...]
    """Numbers of the lines that show best why something failed; of an error that an earlier summary lists, also of its
    remedy. Compactions keep these lines."""
    boilerplate_lines: frozenset[int]
    """Numbers of the lines that need not be shown: text that the agent's host program adds to every conversation,
    unless it shows best why something failed; and the agent's notes, which are listed elsewhere."""
    superseded_by: str = ""
    """Id of the later turn that repeats or replaces all content of this one; empty without one."""
    answered_at: str = ""
    """Id of the turn in which the agent finished what the user asks for in this turn; empty if none does."""
    choice: Choice | None = None
    """Option or question that the user answers in this turn by a short reply such as "yes"; None without one."""
    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Cache of `once`: each value by the function that computed it."""

    def tokens_of(self, numbers: Iterable[int]) -> int:
        """Return the raw tokens (not scaled to the model yet) of the turn's lines with these line numbers."""
        return sum(self.line_tokens[number - 1] for number in numbers)

    def once(self, make: Callable[Concatenate[TurnEvidence, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return ``make(self, *arguments, **named)``, which is computed once for this turn and then cached. Copies of
        the turn in longer histories share the cache. So the value must depend on the lines and calls of this turn
        alone, and be the same for all `arguments` and `named`."""
        if make not in self._made:
            self._made[make] = make(self, *arguments, **named)
        made: T = self._made[make]
        return made

    @property
    def ended_calls(self) -> Iterator[EndedCall]:
        """Tool calls of the turn, each with how it ended."""
        return map(EndedCall, repeat(self), self.calls, self.outcomes)

    @property
    def failed(self) -> bool:
        """True if something failed in the turn, such as a tool call."""
        return bool(self.failure_lines)

    @property
    def text(self) -> str:
        """Text of all blocks of the turn."""
        return "\n".join(text.text for text in self.lines.texts)

    @property
    def names(self) -> NameIndex:
        """Index of the names in the turn, with which a summary of it can be checked for made-up names."""
        return self.once(_name_index)

    def statements_of(self, numbers: Iterable[int]) -> Iterator[Statement]:
        """Yield the text of the lines with these `numbers`, in their order; pieces of a long line count as one."""
        return statements(self.lines.numbered(numbers))

    @property
    def user_lines(self) -> tuple[Line, ...]:
        """Lines of the user's messages, with those that they pasted, but without empty ones."""
        return self.once(_user_lines)

    @property
    def typed_lines(self) -> tuple[Line, ...]:
        """Lines that the user typed, without what they pasted; and lines of an earlier summary that are wholly in
        quotation marks, as they quote the user."""
        return self.once(_typed_lines)

    def outcome_of(self, call: Call) -> str:
        """Return the first line that shows how `call` ended, such as ``2 passed``, or an empty text."""
        for statement in statements(self.lines.numbered(self.outcomes[call.number].lines)):
            if plain := without_boilerplate(statement.text):
                return " ".join(plain.split())
        return ""

    def is_refused(self, call: Call) -> bool:
        """Return True if the user did not allow the agent to run `call`."""
        return self.outcomes[call.number].refused

    @property
    def failed_calls(self) -> list[Call]:
        """Failed calls of the turn. Calls that the user refused are not among them."""
        return [call for _, call, outcome in self.ended_calls if outcome.status == "failed" and not outcome.refused]

    @property
    def idle_lines(self) -> frozenset[int]:
        """Numbers of result lines that add nothing to how a call ended, such as the progress of a successful run."""
        idle = frozenset[int]().union(*(outcome.idle for outcome in self.outcomes))
        return idle - self.obligations if idle else idle

    @property
    def unchanged_lines(self) -> frozenset[int]:
        """Numbers of the lines of edits that the removed and the added text have in common."""
        sides = [side for call in self.calls for side in self.sides(call).items()]
        return frozenset([number for number, side in sides if side == "="])

    def sides(self, call: Call) -> Mapping[int, str]:
        """Return for each line number of an edit what `call` does with the line: removes it (``-``), adds it (``+``),
        or leaves it unchanged (``=``), if the same text is removed and added. Empty if the call edits nothing."""
        if not (call.reading.adds or call.reading.removes):
            return {}
        removed: dict[int, str] = {}
        added: dict[int, str] = {}
        for line, key in zip(self.lines.of_block(call.block), keys_of_call_lines(call.name, call.input), strict=False):
            if key in call.reading.removes:
                removed[line.number] = line.text.strip()
            elif key in call.reading.adds:
                added[line.number] = line.text.strip()
        unchanged = {*removed.values()} & {*added.values()} - {""}
        sides = {number: "=" if text in unchanged else "-" for number, text in removed.items()}
        return sides | {number: "=" if text in unchanged else "+" for number, text in added.items()}

    @property
    def obligations(self) -> frozenset[int]:
        """Numbers of the lines that count most: those that show best why something failed, and what the user typed."""
        return frozenset((*self.decisive_lines, *(line.number for line in self.typed_lines)))


def _name_index(turn: TurnEvidence) -> NameIndex:
    return NameIndex([text.text for text in turn.lines.texts])


def _user_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    return tuple([line for line in turn.lines.of_sources("user") if line.text.strip()])


def _typed_lines(turn: TurnEvidence) -> tuple[Line, ...]:
    quoted = [line for line in turn.lines.of_sources("planner") if _QUOTED.match(line.text)]
    return (*typed_lines(turn.user_lines), *quoted[:QUOTED_LINES])


@dataclass(frozen=True)
class Evidence:
    """Everything that was read from a whole conversation without a model."""

    turns: dict[str, TurnEvidence]
    """Values that were read from each turn, by turn id, in order."""
    root: str = ""
    """Folder that contains most absolute paths of the history, without a slash at its end; may be empty."""
    by_digest: Mapping[str, TurnEvidence] = field(default_factory=dict, repr=False)
    """Values that were read from each turn alone, without its relations to others, by the turn's digest. When the
    history has grown, its known turns are not read again."""
    fields: Sequence[Field] = field(default=(), repr=False, compare=False)
    """Kinds of work that know the tools of the conversation."""
    entries: dict[str, tuple[object, str]] = field(default_factory=dict, repr=False, compare=False)
    """Cache by turn id of the text that was last written in place of the turn, after all values on which it depends.
    Evidence of the same conversation with more turns shares it."""

    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Cache of `once`: each value by the function that computed it."""

    def once(self, make: Callable[[Evidence], T]) -> T:
        """Return ``make(self)``, which is computed once for this evidence and then cached."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @cached_property
    def record(self) -> Sequence[RecordLine]:
        """Statements on the state of the work by all `fields`, the newest first under each heading."""
        return tuple(chain.from_iterable(work_field.record(self) for work_field in self.fields))

    @cached_property
    def names(self) -> NameIndex:
        """Index of the names in the whole history, including parts of identifiers, to check texts for made-up names."""
        return NameIndex([text.text for turn in self.turns.values() for text in turn.lines.texts], parts=True)

    def ended_calls(self) -> Sequence[EndedCall]:
        """Return every tool call of the history, in order, each with its turn and how it ended."""
        return self.once(_ended_calls)

    def shown(self, text: str) -> str:
        """Return `text` with paths below the conversation's main folder, `root`, made relative to it."""
        return without_root(text, self.root)

    @property
    def live_tokens(self) -> int:
        """Tokens of the turns that the agent has not answered yet, which are always kept."""
        return sum(turn.tokens for turn in self.turns.values() if turn.turn.live)

    @property
    def tokens(self) -> int:
        """Tokens of the whole history."""
        return sum(turn.tokens for turn in self.turns.values())


def _ended_calls(evidence: Evidence) -> list[EndedCall]:
    return [ended for turn in evidence.turns.values() for ended in turn.ended_calls]


def call_head(call: Call, root: str = "", failed: bool = False) -> str:
    """Describe a tool call in a few words: its name, its path, command or query, and the part that it reads, such as
    ``Read src/a.py offset 10``. Paths below the folder `root` are shown relative to it. A `failed` call is described in
    more detail, so that several attempts can be distinguished."""
    subject = call.attempt.removeprefix(call.reading.lead) if failed else call.sought or call.head_subject
    subject, most = without_root(subject, root), FAILED_HEAD_CHARACTERS if failed else HEAD_CHARACTERS
    if len(subject) > most:
        subject = subject[: most - 1] + "…"
    return " ".join([*call.name.split(), subject, call.part]).strip()


class Field:
    """Kind of work with its own tools, such as programming. This class knows no tools; a subclass overrides methods."""

    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        """Return what a call of the tool `name` does and with what. `reading`: what general code found out about that,
        which is returned for an unknown tool."""
        return reading

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        """Return how `call` ended, and which lines show it. `outcome`: what general code read from the `result`; it is
        returned for an unknown tool."""
        return outcome

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        """Return statements on the state of the work, the newest first under each heading."""
        return ()

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        """Return the beginning shared by most objects' names in `turns`, such as a folder, to leave it out of texts."""
        return ""


_REGISTERED: list[Field] = []


def register_field(field: Field) -> None:
    """Let `field`, a kind of work with its own tools, read all conversations of this process, besides programming."""
    _REGISTERED.append(field)


def registered_fields() -> tuple[Field, ...]:
    """Return the kinds of work that `register_field` added, in order."""
    return tuple(_REGISTERED)


def read_call_by(fields: Iterable[Field], name: str, arguments: Mapping[str, Any]) -> CallReading:
    """Return what a call of the tool `name` does and with what. Each field may change what the one before it read."""
    reading = read_call(name, arguments)
    for work_field in fields:
        reading = work_field.read_call(name, arguments, reading)
    return reading


def gather_evidence(
    history: History,
    counter: TokenCounter,
    known: Evidence | None = None,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    fields: Sequence[Field] = (),
) -> Evidence:
    """Read all turns of `history`: calls, outcomes, names, failures, tokens. It is deterministic and asks no model.

    `known`: evidence of the same conversation when it was shorter, made with the same counter; its turns are not read
    again. `uses`: the user's declarations of tools, by name. `fields`: the kinds of work that know the tools; without
    any, tools are read by general signs alone.
    """
    known = known or Evidence({})
    read: list[TurnEvidence] = []
    for turn in history.turns:
        known_turn = known.by_digest.get(turn.digest)
        # since then the agent may have answered the turn, so that it is no longer live
        read.append(_with(known_turn, turn=turn) if known_turn else _read_turn(history, turn, counter, uses, fields))
    root = next(filter(None, (work_field.common_name(read) for work_field in fields)), "")
    by_digest = {turn.turn.digest: turn for turn in read}
    return Evidence(_related(read), root, by_digest, fields, known.entries)


def _with(turn: TurnEvidence, /, **fields: Any) -> TurnEvidence:
    """Return `turn` with these values of its attributes; the same object if it has them, to keep its caches."""
    return turn if all(getattr(turn, name) == value for name, value in fields.items()) else replace(turn, **fields)


def _read_turn(
    history: History, turn: Turn, counter: TokenCounter, uses: Mapping[str, ToolUse], fields: Sequence[Field]
) -> TurnEvidence:
    """Return what one turn shows by itself, without its relations to other turns."""
    # tokens are counted before the lines are made, as counting needs the memory of all texts once more
    tokens = counter.messages(history.messages_of(turn))
    calls = calls_of(history, turn, uses, partial(read_call_by, fields))
    results = {call.result_block: (call.name, call.is_error) for call in calls if call.result_block is not None}
    lines = attributed(turn_lines(history, turn), results)
    read = lines.to_read()
    all_statements = [
        line._replace(text=without_escapes(line.text)) if "\x1b" in line.text else line for line in statements(read)
    ]
    statements_by_block = {block: list(group) for block, group in groupby(all_statements, key=attrgetter("block"))}
    outcomes: list[Outcome] = []
    for call in (*calls, *_unasked(lines, calls)):
        result = statements_by_block.get(call.result_block, ()) if call.result_block is not None else ()
        outcome = read_outcome(call, result)
        for work_field in fields:
            outcome = work_field.read_result(call, result, outcome)
        outcomes.append(outcome)
    listed = list(listed_failures(all_statements))
    failures = chain.from_iterable(outcome.decisive for outcome in outcomes if not outcome.refused)
    line_tokens = array("I", bytes(4 * len(lines)))
    for line in read:
        line_tokens[line.number - 1] = counter.raw(line.text + "\n")
    return TurnEvidence(
        turn=turn,
        lines=lines,
        calls=calls,
        outcomes=tuple(outcomes[: len(calls)]),
        tokens=tokens,
        line_tokens=line_tokens,
        failure_lines=_numbers([*(numbers_of(entry[:1]) for entry in listed), *(one.reasons for one in outcomes)]),
        decisive_lines=_numbers([*map(numbers_of, listed), *(one.decisive for one in outcomes)]),
        boilerplate_lines=boilerplate_of(read).difference(failures).union(_lines_of_notes(lines, calls)),
    )


def _lines_of_notes(lines: Lines, calls: Sequence[Call]) -> list[int]:
    """Return the numbers of the lines of the agent's notes, as only the list of its present notes shows them."""
    notes = [call.block for call in calls if own_tool(call.name) == NOTE_TOOL]
    return [line.number for block in notes for line in lines.of_block(block)]


def _numbers(groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(sorted({*chain.from_iterable(groups)}))


def _unasked(lines: Lines, calls: Sequence[Call]) -> Iterator[Call]:
    """Yield a call without a name for each result that answers none of `calls`, so that its failures are read, too. An
    agent that acts in text makes no calls, but gets results."""
    answered = {call.result_block for call in calls}
    for text in lines.texts:
        if text.part == "result" and text.block not in answered:
            yield Call("", {}, text.block, text.block, {"type": "tool_result", "content": text.text})


def _related(turns: Sequence[TurnEvidence]) -> dict[str, TurnEvidence]:
    """Return the turns by id, each with the values that depend on other turns, such as which one repeats it."""
    superseded, answers = _superseded(turns), _answers(turns)
    return {
        turn.turn.id: _with(
            turn,
            superseded_by=superseded.get(turn.turn.id, ""),
            answered_at=answers.get(turn.turn.id, ""),
            choice=_choice(previous, turn),
        )
        for previous, turn in zip([None, *turns], turns, strict=False)
    }


def _superseded(turns: Sequence[TurnEvidence]) -> dict[str, str]:
    """Find the turns all of whose calls later turns repeat: ``{"t3": "t9"}`` if t9 repeats the last call of t3.

    A call is repeated by the same call with the same result; a read or search by the same call with any result; a read
    of a whole object also by a later read of all of it, and by a call that writes it whole.
    """
    turn_of_content: dict[bytes, str] = {}  # id of the next turn that makes the same call
    turn_of_whole: dict[str, str] = {}  # id of the next turn that reads or writes the whole object
    superseded: dict[str, str] = {}
    for turn in reversed(turns):
        later_ids = []
        for call, content in zip(turn.calls, turn.once(_contents), strict=True):
            later_id = turn_of_content.get(content, "")
            later_ids.append(later_id or (turn_of_whole.get(call.path, "") if _reads_whole(call) else ""))
        if later_ids and all(later_ids):
            superseded[turn.turn.id] = later_ids[-1]
        for _, call, outcome in turn.ended_calls:
            if outcome.status in ("failed", "unanswered"):
                continue
            turn_of_content.setdefault(turn.once(_contents)[call.number], turn.turn.id)
            if _reads_whole(call) or call.reading.is_whole:
                turn_of_whole.setdefault(call.path, turn.turn.id)
        if any(call.reading.starts_anew for call in turn.calls):  # such as another branch: calls after it repeat none
            turn_of_content, turn_of_whole = {}, {}
    return superseded


def _contents(turn: TurnEvidence) -> list[bytes]:
    """Return a digest for each call, equal for calls that repeat each other: of tool, input and, if it acts, result."""
    texts = ["" if call.kind in ("read", "search") else call.text for call in turn.calls]
    digests = [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
    return [call.identity + digest for call, digest in zip(turn.calls, digests, strict=True)]


def _reads_whole(call: Call) -> bool:
    """Return True if `call` reads all of one object, such as a file."""
    return bool(call.path) and call.kind == "read" and not call.part


def _answers(turns: Sequence[TurnEvidence]) -> dict[str, str]:
    """Find where the agent finished what the user asked for: ``{"t1": "t30"}`` if t30, its last message before the user
    writes again, has no calls, follows turns with calls, and does not end with a question."""
    asking_id, has_worked = "", False
    answers = {}
    for turn, following in zip(turns, [*turns[1:], None], strict=False):
        if turn.turn.kind == "user":
            asking_id, has_worked = turn.turn.id, False
        has_worked = has_worked or bool(turn.calls)
        # a message of the user that only reports that they stopped the agent ends no work
        ends_work = following is None or (
            following.turn.kind == "user" and not any(is_refusal(line.text) for line in following.lines)
        )
        is_last = asking_id and has_worked and not turn.calls and ends_work
        if is_last and not is_question(turn.text.rstrip().rpartition("\n")[2]):
            answers[asking_id] = turn.turn.id
    return answers


def _choice(previous: TurnEvidence | None, turn: TurnEvidence) -> Choice | None:
    """Return the option or question in the turn `previous` that a short reply in `turn`, "the second", answers."""
    if previous is None or turn.turn.kind != "user":
        return None
    spoken = tuple(statements(previous.lines.of_part("assistant")))
    return answered_offer(join_lines(turn.user_lines), spoken, previous.turn.id) if spoken else None
