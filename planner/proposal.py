"""Defines the request to a planner (`PlanRequest`), and its answer (`Proposal`): scores, strategies, a page of memory.

Selection and guards make a plan from the proposal, as far as the target allows. Later plans of the session reuse the
planner's page of memory (brief) and choices; lines that rules chose to fill space compete again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from propcache.api import cached_property

from planner.analysis import Analysis
from planner.brief import PageStatement, brief_text, read_brief
from planner.evidence import Evidence, TurnEvidence
from planner.plan import CompactionPlan, ExtractedFact, Provenance, Strategy, TurnDecision
from planner.reading.messages import History
from planner.reading.tokens import TokenCounter
from planner.relevance import Relevance, focused
from planner.settings import PlanSettings


@dataclass(frozen=True)
class Account:
    """Address of a Messages API, and headers with credentials, with which a planner can ask without a client."""

    base_url: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys in the headers, without ``Bearer``, so that they can be removed from error texts."""
        return tuple(key for value in self.headers.values() if (key := value.rpartition(" ")[2]))


@dataclass(frozen=True)
class AgentRequest:
    """Last request of the agent. A planner can add a question to it, which is cheap, as the provider has the request in
    its cache."""

    body: Mapping[str, Any]
    """JSON body as it was sent, or with further messages that will be sent next. It is neither changed nor stored."""
    client: Any
    """Client or `Account` that sent the request."""
    seconds_since: float
    """Seconds since the provider answered. If they are too many, its cache has expired."""
    path: str = "/v1/messages"
    """Path of the request with its query: ``/v1/messages?beta=true`` for beta requests."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers in addition to those of the client, such as ``anthropic-beta``."""


@dataclass(frozen=True)
class PlanRequest:
    """Everything that a planner may use to decide which turns of a conversation matter."""

    analysis: Analysis
    """Conversation, with everything that was read from it."""
    task: str
    """Task that the agent works on."""
    focus: str
    """Caller's words on what to keep with priority; may be empty."""
    target_tokens: int
    """Largest size of the compacted messages."""
    settings: PlanSettings
    now: float
    """Present time in seconds since the epoch, for the timestamps of facts."""
    previous: CompactionPlan | None = None
    """Last plan of this session, made when the conversation was shorter, so that a planner may read only new turns."""
    agent_request: AgentRequest | None = None
    """Agent's last request, to which a planner may add its question; None outside of a session."""
    read_tokens: int = 0
    """Tokens that planner models have read so far in this session, by `Usage.read_tokens`."""

    @property
    def history(self) -> History:
        """Messages to plan for, divided into turns."""
        return self.analysis.history

    @property
    def evidence(self) -> Evidence:
        """Values that were read from the turns, such as calls and failures."""
        return self.analysis.evidence

    @property
    def counter(self) -> TokenCounter:
        """Counter of tokens for the model that will read the compacted messages."""
        return self.analysis.counter

    @property
    def input_left_tokens(self) -> float:
        """Tokens that a planner model may read in all requests for this plan, by the session's limit; infinite for its
        first plan."""
        ratio = self.settings.session_input_ratio
        if ratio is None or not self.read_tokens:
            return math.inf
        return max(0.0, ratio * self.analysis.tokens - self.read_tokens)

    @cached_property
    def relevance(self) -> Relevance:
        """Relevance of each line for the task and the caller's focus."""
        return focused(self.analysis.relevance, self.evidence, self.task, self.focus)


@dataclass(frozen=True)
class TurnProposal:
    """Planner's opinion of one turn: how much it is worth, and how it should be treated."""

    turn_id: str
    score: float
    """Worth of the turn from 0 (nothing needs the turn) to 1 (nothing works without it)."""
    reason: str = ""
    strategy: Strategy | None = None
    """Wanted treatment; the target may force a weaker one. With None, the turn's lines compete for space."""
    summary: str = ""
    excerpts: tuple[tuple[int, int], ...] = ()
    """Lines of the turn to keep verbatim: ranges such as ``(212, 219)``, first and last included."""
    failed_approach: bool = False
    """True if the turn shows a failed attempt."""


@dataclass(frozen=True)
class Proposal:
    """Planner's answer: its opinion of turns, and a page of memory."""

    turns: Mapping[str, TurnProposal]
    """Opinion of each turn, by turn id. Turns may be left out."""
    provenance: Provenance
    """Origin and cost of the answer."""
    facts: tuple[ExtractedFact, ...] = field(default=())
    brief: str = ""
    """Page of memory in the form of `planner.brief`. Statements that the turns do not support are removed later."""


@runtime_checkable
class Planner(Protocol):
    """Object that ranks the turns of a conversation. A user's own planner is passed as ``plan_compaction(…,
    planner=…)``."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Judge the turns of ``request.history`` by their worth for ``request.task``."""
        ...


def earlier_plan(request: PlanRequest) -> CompactionPlan | None:
    """Return the previous plan if it can be updated: a model has read turns for it, and its messages are the beginning
    of the present ones. Return None otherwise."""
    plan = request.previous
    if plan is None or not 0 < plan.provenance.read_turns < plan.history.turns:
        return None
    return plan if plan.history.begins(request.history) else None


def read_and_new(request: PlanRequest, earlier: CompactionPlan | None) -> tuple[list[TurnEvidence], list[TurnEvidence]]:
    """Return two lists: the turns that a planner model has read for the plan `earlier`, and all others."""
    turns = list(request.evidence.turns.values())
    if earlier is None:
        return [], turns
    unread = frozenset(earlier.provenance.unread_turns)
    read = [turn for turn in turns[: earlier.provenance.read_turns] if turn.turn.id not in unread]
    read_ids = {turn.turn.id for turn in read}
    return read, [turn for turn in turns if turn.turn.id not in read_ids]


def written_brief(earlier: CompactionPlan) -> list[PageStatement]:
    """Return the statements on the page of memory of `earlier` that a model wrote, and not rules."""
    return [statement for statement in read_brief(earlier.brief) if not _cites_new(statement.turns, earlier)]


def proposed(decision: TurnDecision, strategy: Strategy | None) -> TurnProposal:
    """Return `decision` as a proposal with this `strategy`, so that it can be proposed again in a later plan."""
    return TurnProposal(
        decision.turn_id,
        decision.relevance_score,
        decision.reason,
        strategy,
        decision.summary,
        decision.excerpts,
        decision.failed_approach,
    )


def carried_on(proposal: Proposal, earlier: CompactionPlan) -> Proposal:
    """Update the plan `earlier`, which a model made, by rules: return its page of memory and its choices, with what the
    rules' `proposal` has on later turns. So a model's work is not lost if no model is asked this time."""
    written = written_brief(earlier)
    written_texts = {statement.text for statement in written}
    new_statements = [
        statement
        for statement in read_brief(proposal.brief)
        if _cites_new(statement.turns, earlier) and statement.text not in written_texts
    ]
    past = earlier.provenance
    note = f"the brief of t1-t{past.read_turns + 1} stays, followed by what rules read from the turns since"
    reading = past.model_dump(include={"read_turns", "unread_turns", "named"})
    provenance = proposal.provenance.model_copy(update={**reading, "notes": (note,)})
    named = {
        decision.turn_id: proposed(decision, decision.strategy)
        for decision in earlier.turns
        if decision.turn_id in past.named
    }
    turns = {**proposal.turns, **named}  # an earlier choice is valid until a planner makes another one
    return replace(proposal, turns=turns, brief=brief_text([*written, *new_statements]), provenance=provenance)


def _cites_new(turn_ids: Iterable[str], earlier: CompactionPlan) -> bool:
    """Return True if one of `turn_ids` is new to the planner of `earlier`, as it has not read the turn. The turn after
    the first ``read_turns`` is not new: the planner saw it while the agent had not answered it yet."""
    past = earlier.provenance
    return any(turn_id in past.unread_turns or int(turn_id[1:]) > past.read_turns + 1 for turn_id in turn_ids)
