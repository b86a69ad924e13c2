"""Reads a conversation once: its turns, what was found in them (the evidence), and its token counts. Decides nothing.

Everything that plans, checks or applies shares this one analysis. When the conversation has grown, only new turns are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar

from propcache.api import cached_property

from planner.evidence import Evidence, TurnEvidence, gather_evidence
from planner.evidence.calls import Call
from planner.evidence.turns import Field, read_call_by, registered_fields
from planner.programming import PROGRAMMING
from planner.reading.messages import History, Message, read_history
from planner.reading.secrets import Secrets, secrets_in
from planner.reading.tokens import TokenCounter
from planner.relevance import Occurrences, Relevance, line_relevance
from planner.settings import ToolUse
from planner.validity import CALL_RULES, check_messages

_OPEN_ENDED = ("server_tool_use", "mcp_tool_use")
"""Types of calls that the server runs; their results may be in a later turn."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Analysis:
    """Conversation with everything that was read from it. It is made once, and used by all later steps."""

    history: History
    """Messages, divided into turns."""
    evidence: Evidence
    """Values that were read from the turns, such as calls and failures."""
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
    def relevance(self) -> Relevance:
        """Estimated value of each line of the conversation for the next steps."""
        return line_relevance(self.evidence, self.occurrences)

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
    Computed once a turn, this saves later plans of a long session from checking the whole history again."""
    if any(block["type"] in _OPEN_ENDED for _, block in history.blocks_of(turn.turn)):
        return False
    return not any(violation.refused for violation in check_messages(history.messages_of(turn.turn), rules=CALL_RULES))


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
    declared = uses if uses is not None else known.uses if known is not None else {}
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
