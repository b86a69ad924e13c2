"""Request to a planner (`PlanRequest`), and its answer (`Proposal`) with strategies, scores, reasons and a brief.

Selection and guards turn a proposal into a plan, as far as the target allows. Later plans of the session reuse the
planner's brief and choices; lines that rules chose to fill space compete again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from planner.analysis import Analysis
from planner.brief import PageStatement, brief_text, read_brief
from planner.evidence import Evidence, TurnEvidence
from planner.plan import CompactionPlan, ExtractedFact, Provenance, Strategy, TurnDecision
from planner.reading.lazy import lazy_property
from planner.reading.messages import History
from planner.reading.tokens import TokenCounter
from planner.relevance import Relevance, focused
from planner.settings import PlanSettings


@dataclass(frozen=True)
class Account:
    """Address of a Messages API, and headers with credentials; a planner can ask with it instead of a client."""

    base_url: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys in the headers, without ``Bearer``."""
        return tuple(key for value in self.headers.values() if (key := value.rpartition(" ")[2]))


@dataclass(frozen=True)
class AgentRequest:
    """Last request of the agent, to which a planner can add a question: the provider has the request in its cache."""

    body: Mapping[str, Any]
    """JSON body as it was sent, or an extension of it that is about to be sent. It is neither changed nor kept."""
    client: Any
    """Client (``anthropic``) of that request."""
    seconds_since: float
    """Seconds since the provider answered, after which its cache may have expired."""
    path: str = "/v1/messages"
    """Path of the request with its query: ``/v1/messages?beta=true`` for beta requests."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers besides the client's own, such as ``anthropic-beta``."""


@dataclass(frozen=True)
class PlanRequest:
    """Everything that a planner may use to plan a history."""

    analysis: Analysis
    task: str
    focus: str
    """Caller's words on what to keep with priority; may be empty."""
    target_tokens: int
    settings: PlanSettings
    now: float
    """Seconds since the epoch, for the facts' timestamps."""
    previous: CompactionPlan | None = None
    """Last plan of this session, made for the beginning of this history, so that a planner may read only new turns."""
    agent_request: AgentRequest | None = None
    """Agent's last request inside a session, so that a planner may ask the agent's own model after its cached
    prefix."""
    read_tokens: int = 0
    """Tokens that planners have read so far in this session, by `Usage.read_tokens`."""

    @property
    def history(self) -> History:
        """History to plan for."""
        return self.analysis.history

    @property
    def evidence(self) -> Evidence:
        """Evidence of its turns."""
        return self.analysis.evidence

    @property
    def counter(self) -> TokenCounter:
        """Counter of its tokens."""
        return self.analysis.counter

    @property
    def input_left_tokens(self) -> float:
        """Tokens that all requests for this plan may read; unlimited for the first plan of a session."""
        ratio = self.settings.session_input_ratio
        if ratio is None or not self.read_tokens:
            return math.inf
        return max(0.0, ratio * self.analysis.tokens - self.read_tokens)

    @lazy_property
    def relevance(self) -> Relevance:
        """Relevance of each line for the task and the caller's focus."""
        return focused(self.analysis.relevance, self.evidence, self.task, self.focus)


@dataclass(frozen=True)
class TurnProposal:
    """Planner's opinion of one turn."""

    turn_id: str
    score: float
    """Score from 0 (nothing needs the turn) to 1 (nothing works without it)."""
    reason: str = ""
    strategy: Strategy | None = None
    """Wanted strategy; the target may force a weaker one. None: the turn's lines compete for space."""
    summary: str = ""
    excerpts: tuple[tuple[int, int], ...] = ()
    failed_approach: bool = False


@dataclass(frozen=True)
class Proposal:
    """Planner's answer. It has no opinion on turns that it leaves out."""

    turns: Mapping[str, TurnProposal]
    provenance: Provenance
    facts: tuple[ExtractedFact, ...] = field(default=())
    brief: str = ""
    """Brief in the form of `planner.brief`; the guards remove unsupported statements."""


@runtime_checkable
class Planner(Protocol):
    """Object that ranks turns: pass it as ``plan_compaction(…, planner=…)``."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank the turns of ``request.history`` against ``request.task``."""
        ...


def earlier_plan(request: PlanRequest) -> CompactionPlan | None:
    """Return the previous plan if a planner has read turns for it, and its history is the beginning of this one; else
    None."""
    plan = request.previous
    if plan is None or not 0 < plan.provenance.read_turns < plan.history.turns:
        return None
    return plan if plan.history.begins(request.history) else None


def read_and_new(request: PlanRequest, earlier: CompactionPlan | None) -> tuple[list[TurnEvidence], list[TurnEvidence]]:
    """Return two lists: the turns that a planner has read for the plan `earlier`, and all others."""
    turns = list(request.evidence.turns.values())
    if earlier is None:
        return [], turns
    unread = frozenset(earlier.provenance.unread_turns)
    read = [turn for turn in turns[: earlier.provenance.read_turns] if turn.turn.id not in unread]
    read_ids = {turn.turn.id for turn in read}
    return read, [turn for turn in turns if turn.turn.id not in read_ids]


def written_brief(earlier: CompactionPlan) -> list[PageStatement]:
    """Return the statements of the brief of `earlier` that a planner wrote, without the rules' additions."""
    return [one for one in read_brief(earlier.brief) if not _cites_since(one.turns, earlier)]


def proposed(decision: TurnDecision) -> TurnProposal:
    """Return a proposal with the strategy, score and texts of `decision`."""
    same = ("turn_id", "reason", "strategy", "summary", "excerpts", "failed_approach")
    return TurnProposal(score=decision.relevance_score, **{name: getattr(decision, name) for name in same})


def carried_on(proposal: Proposal, earlier: CompactionPlan) -> Proposal:
    """Return the rules' `proposal` with the brief and choices of the planner of `earlier`. Of the rules' statements
    only those about turns that this planner has not read are added."""
    written = written_brief(earlier)
    known = {one.text for one in written}
    since = [one for one in read_brief(proposal.brief) if _cites_since(one.turns, earlier) and one.text not in known]
    past = earlier.provenance
    note = f"the brief of t1-t{past.read_turns + 1} stays, followed by what rules read from the turns since"
    reading = past.model_dump(include={"read_turns", "unread_turns", "named"})
    provenance = proposal.provenance.model_copy(update={**reading, "notes": (note,)})
    named = {one.turn_id: proposed(one) for one in earlier.turns if one.turn_id in past.named}
    turns = {**proposal.turns, **named}  # an earlier choice is valid until a planner makes another one
    return replace(proposal, turns=turns, brief=brief_text([*written, *since]), provenance=provenance)


def _cites_since(turn_ids: Iterable[str], earlier: CompactionPlan) -> bool:
    """Return True if there is a turn that the planner of `earlier` has not read, or has read only as the live tail."""
    past = earlier.provenance
    return any(turn_id in past.unread_turns or int(turn_id[1:]) > past.read_turns + 1 for turn_id in turn_ids)
