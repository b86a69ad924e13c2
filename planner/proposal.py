"""Request to a planner and its answer: strategies, scores, reasons and words.

Its answer takes effect as far as the target and the guards allow; selection and guards turn a `Proposal` into a plan,
whoever made it. From an earlier plan of the session the page that a planner wrote is taken over, and what it chose;
lines that rules chose to fill space are no choice of a planner: they compete again.
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
from planner.reading.history import History
from planner.reading.lazy_property import lazy_property
from planner.reading.tokens import TokenCounter
from planner.relevance.relevance import Relevance, focused
from planner.settings import PlanSettings

__all__ = [
    "Account",
    "AgentRequest",
    "PlanRequest",
    "Planner",
    "Proposal",
    "TurnProposal",
    "carried_on",
    "earlier_plan",
    "proposed",
    "read_and_new",
    "written_brief",
]


@dataclass(frozen=True)
class Account:
    """An upstream of the Messages API, and the headers by which it knows who asks. Given as a planner's client."""

    base_url: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys in it, ``Bearer`` left out."""
        return tuple(key for value in self.headers.values() if (key := value.rpartition(" ")[2]))


@dataclass(frozen=True)
class AgentRequest:
    """Last request of the agent, so that its model can be asked behind the cached prefix."""

    body: Mapping[str, Any]
    """The JSON body as it was sent, or as it is about to be, which goes on from it. Not mutated, kept nowhere."""
    client: Any
    """The ``anthropic`` client it was sent with."""
    seconds_since: float
    """Since the provider answered: a cache goes cold."""
    path: str = "/v1/messages"
    """With its query: ``/v1/messages?beta=true`` for beta requests."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers besides the client's own, such as ``anthropic-beta``."""


@dataclass(frozen=True)
class PlanRequest:
    """All a planner may know. The future is not in it."""

    analysis: Analysis
    task: str
    focus: str
    """Caller's words on what to keep above all; may be empty."""
    target_tokens: int
    settings: PlanSettings
    now: float
    """Seconds since the epoch, for the facts' timestamps."""
    previous: CompactionPlan | None = None
    """The last plan of this session, made for a prefix of this history: a planner may read only what is new."""
    agent_request: AgentRequest | None = None
    """Set inside a session: a planner may ask the agent's own model behind its cached prefix."""
    read_tokens: int = 0
    """Tokens that planners have read so far in this session."""

    @property
    def history(self) -> History:
        """The history to plan for."""
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
    """0 (nothing needs it) to 1 (nothing goes without it)."""
    reason: str = ""
    strategy: Strategy | None = None
    """Wanted strategy; a weaker one is taken where the target demands it. None: the turn's lines compete for space."""
    summary: str = ""
    excerpts: tuple[tuple[int, int], ...] = ()
    failed_approach: bool = False


@dataclass(frozen=True)
class Proposal:
    """A planner's answer. Turns it leaves out are as if it had no opinion of them."""

    turns: Mapping[str, TurnProposal]
    provenance: Provenance
    facts: tuple[ExtractedFact, ...] = field(default=())
    brief: str = ""
    """See `planner.brief`; the guards strike what does not hold."""


@runtime_checkable
class Planner(Protocol):
    """Anything that ranks turns: pass it as ``plan_compaction(…, planner=…)``."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank the turns of ``request.history`` against ``request.task``."""
        ...


def earlier_plan(request: PlanRequest) -> CompactionPlan | None:
    """The previous plan, if a planner has read turns for it, and they are the first of this very history."""
    plan = request.previous
    if plan is None or not 0 < plan.provenance.read_turns < plan.history.turns:
        return None
    return plan if plan.history.begins(request.history) else None


def read_and_new(request: PlanRequest, earlier: CompactionPlan | None) -> tuple[list[TurnEvidence], list[TurnEvidence]]:
    """The turns that a planner has read by the time of `earlier`, and those that are to be read yet."""
    turns = list(request.evidence.turns.values())
    if earlier is None:
        return [], turns
    unread = frozenset(earlier.provenance.unread_turns)
    read = [turn for turn in turns[: earlier.provenance.read_turns] if turn.turn.id not in unread]
    known = {turn.turn.id for turn in read}
    return read, [turn for turn in turns if turn.turn.id not in known]


def written_brief(earlier: CompactionPlan) -> list[PageStatement]:
    """The statements that a planner wrote: without the rules' record of the turns that it has not read."""
    return [one for one in read_brief(earlier.brief) if not _cites_since(one.turns, earlier)]


def proposed(decision: TurnDecision) -> TurnProposal:
    """Return the proposal that `decision` came from."""
    same = ("turn_id", "reason", "strategy", "summary", "excerpts", "failed_approach")
    return TurnProposal(score=decision.relevance_score, **{name: getattr(decision, name) for name in same})


def carried_on(proposal: Proposal, earlier: CompactionPlan) -> Proposal:
    """`proposal` by rules behind what a planner wrote and chose: of its page stands what is of turns since."""
    written = written_brief(earlier)
    known = {one.text for one in written}
    since = [one for one in read_brief(proposal.brief) if _cites_since(one.turns, earlier) and one.text not in known]
    past = earlier.provenance
    note = f"the brief of t1-t{past.read_turns + 1} stands, and behind it what rules read off the turns since"
    reading = past.model_dump(include={"read_turns", "unread_turns", "named"})
    provenance = proposal.provenance.model_copy(update={**reading, "notes": (note,)})
    named = {one.turn_id: proposed(one) for one in earlier.turns if one.turn_id in past.named}
    turns = {**proposal.turns, **named}  # what was said of them stands until something new is said
    return replace(proposal, turns=turns, brief=brief_text([*written, *since]), provenance=provenance)


def _cites_since(turn_ids: Iterable[str], earlier: CompactionPlan) -> bool:
    """True if any of the turns was not read, or comes behind the last that the planner saw, which was live then."""
    past = earlier.provenance
    return any(turn_id in past.unread_turns or int(turn_id[1:]) > past.read_turns + 1 for turn_id in turn_ids)
