"""Analysis of a history, which planning, guards, preview, apply and sessions share.

Made once and passed on; of a longer list only the new turns are read. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar

from planner.evidence import Evidence, TurnEvidence, gather_evidence
from planner.evidence.calls import Call, read_call
from planner.evidence.field import Fields, registered_fields
from planner.programming import PROGRAMMING
from planner.reading.history import History, read_history
from planner.reading.lazy_property import lazy_property
from planner.reading.messages import Message
from planner.reading.secrets import Secrets, secrets_in
from planner.reading.tokens import TokenCounter
from planner.relevance.relevance import Occurrences, Relevance, line_relevance
from planner.settings import ToolUse
from planner.validity import check_messages
from planner.validity.list_rules import CALL_RULES

__all__ = ["Analysis", "analyze", "analyze_history", "call_alone"]

_OPEN_ENDED = ("server_tool_use", "mcp_tool_use")
"""Types of calls that the server runs, whose results may be in a later turn."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Analysis:
    """History with its evidence and token counts."""

    history: History
    evidence: Evidence
    counter: TokenCounter
    uses: Mapping[str, ToolUse] = field(default_factory=dict, compare=False)
    """Declarations of tools by name."""
    counted: Occurrences = field(default_factory=Occurrences, repr=False, compare=False)
    """Names in the beginning of the history, counted for an earlier plan."""
    _made: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, make: Callable[Concatenate[Analysis, P], T], *beside: P.args, **named: P.kwargs) -> T:
        """Return ``make(self, …)``, computed once for each set of the positional arguments `beside`."""
        if (make, beside) not in self._made:
            self._made[make, beside] = make(self, *beside, **named)
        own: T = self._made[make, beside]
        return own

    @property
    def tokens(self) -> int:
        """Tokens of the whole history."""
        return self.evidence.tokens

    @lazy_property
    def relevance(self) -> Relevance:
        """Relevance: estimated value of each line for the next steps."""
        return line_relevance(self.evidence, self.occurrences)

    @lazy_property
    def occurrences(self) -> Occurrences:
        """Occurrences of all names."""
        return self.counted.extended(self.evidence)

    @property
    def newest_counted(self) -> Occurrences:
        """Names counted most recently, in this history or in its beginning."""
        newest: Occurrences = vars(self).get("occurrences", self.counted)
        return newest

    @lazy_property
    def secrets(self) -> Secrets:
        """Secrets in the history, so that they can be removed from texts cut from it."""
        turns = self.evidence.turns.values()
        return Secrets(
            chain.from_iterable(turn.once(_turn_secrets, self.history.messages_of(turn.turn)) for turn in turns)
        )

    @lazy_property
    def broken(self) -> Mapping[str, str]:
        """Reasons for which the API would refuse the calls of a turn, by turn id; in the live tail results may be
        missing.

        Other faults, such as repeated ids (``call_0`` each time), which some providers accept, do no further harm in a
        view.
        """
        problems: dict[str, str] = {}
        turns = list(self.evidence.turns.values())[:-1]
        if all(turn.once(_pairs_up, self.history) for turn in turns):
            return problems
        owner = {at: turn for turn in self.history.turns for at in range(turn.start, turn.stop)}
        for violation in check_messages(self.history.messages, rules=CALL_RULES):
            turn = owner[violation.message]
            if violation.refused and turn is not self.history.turns[-1]:
                problems.setdefault(turn.id, f"{violation.place}: {violation.problem}")
        return problems


def _turn_secrets(_turn: TurnEvidence, messages: Sequence[Message]) -> tuple[str, ...]:
    return secrets_in(messages)


def _pairs_up(turn: TurnEvidence, history: History) -> bool:
    """Return True if the calls and results of `turn` are complete, whatever is around it."""
    if any(block["type"] in _OPEN_ENDED for _, block in history.blocks_of(turn.turn)):
        return False
    return not any(one.refused for one in check_messages(history.messages_of(turn.turn), rules=CALL_RULES))


def analyze(
    messages: Sequence[object],
    target_model: str = "",
    *,
    known: Analysis | None = None,
    uses: Mapping[str, ToolUse] | None = None,
) -> Analysis:
    """Read `messages` (dicts or SDK objects) and count them for `target_model`, or with the counter of `known`.

    Turns in `known`, identified by their digests, are not read again. `uses` declares tools by name; None: as in
    `known`.

    Raises:
        TranscriptError: an entry is not a message, or not JSON data; the text names its index.
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
    """`analyze` for messages that were read before."""
    declared = uses if uses is not None else known.uses if known is not None else {}
    earlier = known if known is not None and known.uses == declared else None
    known_evidence = earlier.evidence if earlier is not None else None
    counted = earlier.newest_counted if earlier is not None else Occurrences()
    evidence = gather_evidence(history, counter, known_evidence, declared, _fields())
    return Analysis(history, evidence, counter, declared, counted)


def call_alone(name: str, arguments: dict[str, Any]) -> Call:
    """Return a call as it is read in a history, but without its result."""
    reading = _fields().read_call(name, arguments, read_call(name, arguments))
    return Call(name, arguments, 0, None, None, reading=reading)


def _fields() -> Fields:
    return Fields((PROGRAMMING, *registered_fields()))
