"""Defines the plan: for each turn of a conversation, whether it stays, is summarized, replaced or dropped, as data.

A plan has the same form whether a model, rules or a person made it. It can be read, edited and stored before it is
applied. It is made of a planner's `Proposal` (scores, strategies, a page of memory), the answer to a `PlanRequest`, as
far as target and guards allow.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from propcache.api import cached_property
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from planner.analysis import Analysis
from planner.errors import PlanRejected
from planner.evidence import Evidence
from planner.reading.lazy import lazy_pattern
from planner.reading.messages import History
from planner.reading.secrets import NO_SECRETS, Secrets, redact
from planner.reading.tokens import TokenCounter
from planner.relevance import Relevance, focused
from planner.review_text import review_text
from planner.settings import OptionalToolName, PlanSettings, ToolUse

MOST_TOKENS = 10**12
"""Largest count of tokens or messages in a plan. A larger one in a file is refused, as computing with it could fail."""
CACHED_SHARE = 0.1
"""Weight of a token that is read from a provider's cache, as a share of an uncached one: the highest price."""
_CHECKED = ("turns", "brief", "extracted_facts", "target_tokens", "target_model", "window_tokens", "restore_tool")
"""Names of the fields of a plan on which the compacted messages and the findings about them depend."""
_SURROGATE = lazy_pattern("[\ud800-\udfff]")
"""Half of a character (a lone surrogate), which UTF-8 cannot express."""


def whole_characters(value: Any) -> Any:
    """Return `value`; in a text, each half of a character (a lone surrogate) becomes ``�``, because a plan is stored as
    UTF-8. Messages may contain such halves."""
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) and not value.isascii() else value


Strategy = Literal["keep", "summarize", "reference", "drop"]
"""Treatment of a turn: it stays as it is, or is replaced by a summary and excerpts (``summarize``), by a line with its
id (``reference``), or by nothing (``drop``)."""
FactType = Literal["decision", "error", "file_state", "dependency", "constraint"]
Text = Annotated[str, BeforeValidator(whole_characters)]
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Place = Annotated[int, Field(ge=1)]
TurnId = Annotated[str, Field(pattern=r"^t[1-9][0-9]*$")]


class PlanPart(BaseModel):
    """Base of the parts of a plan. They are immutable, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class TurnDecision(PlanPart):
    """Decision what happens to one turn, and why."""

    turn_id: TurnId
    strategy: Strategy
    relevance_score: float = Field(ge=0, le=1)
    """Worth of the turn for the task; turns with low scores give way first if space is short."""
    reason: Text = ""
    failed_approach: bool = False
    """True if the turn shows a failed attempt, which must not be forgotten."""
    summary: Text = ""
    """Summary, only for ``summarize``. It is shown before the excerpts, and has text if there are none."""
    excerpts: tuple[tuple[Place, Place], ...] = ()
    """Lines of the turn that stay verbatim, only for ``summarize``: ranges such as ``(212, 219)``."""
    tokens_before: Count = 0
    tokens_after: Count = 0


class ExtractedFact(PlanPart):
    """Fact from one turn that is worth listing at the front of the compacted messages, such as a decision."""

    type: FactType
    content: Text = Field(min_length=1)
    quote: Text = ""
    """User's own words, verbatim, if the fact is a ``constraint``."""
    source: TurnId
    """Id of the turn that contains the fact."""
    timestamp: float = Field(default=0.0, ge=0)
    """Time at which the fact was extracted, in seconds since the epoch."""


class Finding(PlanPart):
    """Remark on a problem of a plan, by one of the checks (guards) that every plan passes."""

    code: str
    """Kind of problem, such as ``invented_in_brief``."""
    turn_id: str = ""
    problem: Text
    repair: Text = ""
    """Change that was made to solve the problem; it never removes more from the conversation."""


class HistoryStamp(PlanPart):
    """Identity and size of the list of messages that a plan was made for, so that it is not applied to another list."""

    messages: Count
    turns: Count
    tokens: Count
    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$")

    @classmethod
    def of(cls, history: History, tokens: int) -> HistoryStamp:
        """Return the stamp of `history`, which has `tokens` tokens."""
        return cls(messages=len(history.messages), turns=len(history.turns), tokens=tokens, digest=history.digest)

    def begins(self, history: History) -> bool:
        """Return True if `history` is the list that the stamp was made for, or that list with more messages."""
        return self.messages <= len(history.messages) and self.digest == history.digest_at(self.messages)


class Usage(PlanPart):
    """Tokens that planning used by the provider's count, in all its requests together."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    requests: Count = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
        counts, others = self.model_dump(), other.model_dump()
        return Usage(**{name: counts[name] + others[name] for name in counts})

    @property
    def prompt_tokens(self) -> int:
        """All input tokens, cached or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def read_tokens(self) -> int:
        """All input tokens by their cost: one from the cache counts as `CACHED_SHARE` of an uncached one. At most
        `MOST_TOKENS`."""
        cached = math.ceil(self.cache_read_input_tokens * CACHED_SHARE)
        return min(MOST_TOKENS, self.input_tokens + self.cache_creation_input_tokens + cached)


class Provenance(PlanPart):
    """Origin and cost of a plan: who made it, by which questions, with how many tokens."""

    planner: str
    """Maker of the plan: ``model``, ``rules``, ``none`` if all fits, or the name of the user's own planner."""
    model: str = ""
    prompts: str = ""
    """Digest (``sha256:…``) of the prompts that were used."""
    usage: Usage = Field(default_factory=Usage)
    asked: Literal["rules", "cards", "prefix"] = "rules"
    """Way in which a model was asked: not at all (``rules``), with excerpts of the turns (``cards``), or by a question
    added to the agent's own cached request (``prefix``)."""
    read_tokens: Count = 0
    """Tokens that models read for this plan and earlier ones of its session: the sum of `Usage.read_tokens`."""
    read_turns: Count = 0
    """Number of turns, from the first one, that a model has read for this plan or for an earlier plan that it updates,
    without the last turn of the history. Later questions show none of them but `unread_turns`. 0 for rules alone."""
    unread_turns: tuple[str, ...] = ()
    """Ids of turns among the first `read_turns` that no model has read, as their part of the history got no answer."""
    named: tuple[str, ...] = ()
    """Ids of the turns that the model decided; rules decided the others."""
    filled_tokens: Count = 0
    """Tokens of the compacted messages that rules chose, to fill space that the model left."""
    notes: tuple[Text, ...] = ()
    """Remarks for a reviewer of the plan, such as that rules made it because the model failed."""


@dataclass(frozen=True)
class Layout:
    """Compacted list of messages (the *view*), as it is sent to the model."""

    messages: tuple[Any, ...]
    """Messages for the Messages API; unchanged ones are the caller's own objects."""
    tokens: int
    """Tokens of the messages."""
    first_changed: int | None
    """Index of the first changed message, from which the provider's cache is invalid; None if nothing changed."""
    untouched: int
    """Number of messages at the end that are the same objects as the last messages of the history."""
    entries: Mapping[str, str]
    """Texts that replace turns, by turn id."""


@dataclass(frozen=True)
class Bound:
    """Values that were computed while a plan was made. They are kept in memory, so that applying it is fast."""

    analysis: Analysis
    """All that was read from the conversation."""
    layout: Layout
    """Compacted messages."""
    checked: Mapping[str, Any]
    """Fields of the plan from which `layout` and the findings were made, by name; out of date if the plan has others
    now."""


class CompactionPlan(BaseModel):
    """Plan for compacting one list of messages: a decision on every turn, and a page of memory. Applying it calls no
    model, so that it shows exactly what will happen."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    version: Literal[1] = 1
    task: Text
    history: HistoryStamp
    target_tokens: Count
    target_model: str = ""
    """Model that will read the compacted messages; it decides what happens to thinking. Empty: a current Claude."""
    window_tokens: int = Field(default=200_000, gt=0, le=MOST_TOKENS)
    """Context window of the target model. Newest messages that would fill it are shortened to previews."""
    restore_tool: OptionalToolName = ""
    """Tool with which the agent can read a removed turn; its name is in the compacted messages. Empty without one."""
    tool_uses: dict[str, ToolUse] = Field(default_factory=dict)
    """Declarations of what the agent's tools do, by name, as they were used for the plan: the user's, or the
    annotations of the tools."""
    turns: tuple[TurnDecision, ...]
    brief: Text = ""
    """Page of memory at the front of the compacted messages: headings, and statements, one a line, with cited turns."""
    extracted_facts: tuple[ExtractedFact, ...] = ()
    estimated_tokens: Count
    """Tokens of the compacted messages."""
    findings: tuple[Finding, ...] = ()
    provenance: Provenance

    _bound: Bound | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_decision_a_turn(self) -> CompactionPlan:
        """Refuse a plan with several decisions on one turn."""
        ids = [decision.turn_id for decision in self.turns]
        doubled = [turn_id for turn_id, count in Counter(ids).items() if count > 1]
        if doubled:
            raise ValueError(f"more than one decision for {', '.join(doubled)}")
        return self

    def __eq__(self, other: object) -> bool:
        """Return True if `other` is a plan with the same content, whether or not its analysis is in memory."""
        return isinstance(other, CompactionPlan) and self.__dict__ == other.__dict__

    def __str__(self) -> str:
        """Return the plan as text for a person, as ``print(plan)`` shows it."""
        return self.review()

    def review(self, width: int = 100, *, whole: bool = False) -> str:
        """Return the plan as text of `width` columns for a person: the result, page of memory, failures, problems,
        facts and turns. Long sections end with the number of lines left out; with `whole` nothing is left out."""
        return review_text(self, width, whole=whole)

    @property
    def bound(self) -> Bound | None:
        """Values that were computed while the plan was made; None if they are not in memory, or out of date."""
        bound = self._bound
        return bound if bound is not None and bound.checked == self._checked_fields() else None

    @property
    def bound_analysis(self) -> Analysis | None:
        """Everything that was read from the conversation for this plan; None for a plan from disk."""
        return self._bound.analysis if self._bound is not None else None

    @property
    def secrets(self) -> Secrets:
        """Secrets in the messages that the plan was made for; none for a plan from disk, which contains none."""
        return self._bound.analysis.secrets if self._bound is not None else NO_SECRETS

    def bind(self, analysis: Analysis, layout: Layout) -> CompactionPlan:
        """Store `analysis` and `layout` in this plan, so that ``apply(plan)`` computes neither again. Return it."""
        self._bound = Bound(analysis, layout, self._checked_fields())
        return self

    def _checked_fields(self) -> dict[str, Any]:
        """Return the fields by name on which the compacted messages and the findings about them depend."""
        return {name: getattr(self, name) for name in _CHECKED}

    def unbound(self) -> CompactionPlan:
        """Return a copy of this plan without its analysis and layout, which may be large."""
        plan = self.model_copy()
        plan._bound = None
        return plan

    def check_fields(self) -> None:
        """Check the fields of a plan that was changed in Python, as ``model_copy`` checks none.

        Raises:
            PlanRejected: a field has the wrong type; `findings` names each one.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            sound = type(self).model_validate(self.model_dump(warnings=False) if self.bound is None else fields)
        except ValidationError as error:
            raise _rejected("plan", error) from None
        if findings := [*_untyped_parts(fields, sound)]:
            raise PlanRejected(_problem(findings), findings)

    @property
    def decisions(self) -> dict[str, TurnDecision]:
        """Decision on each turn, by turn id, for looking them up."""
        return {decision.turn_id: decision for decision in self.turns}

    def to_data(self) -> dict[str, Any]:
        """Return the plan as JSON data in which secrets are replaced, so that it may be stored and read."""
        data: dict[str, Any] = redact(self.model_dump(mode="json"), self.secrets)
        return data

    def to_json(self) -> str:
        """Return the plan as JSON that a person can read and edit, without secrets; lone surrogates are escaped."""
        text = json.dumps(self.to_data(), ensure_ascii=False, indent=2)
        return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, place: str = "plan") -> CompactionPlan:
        """Read the plan in the JSON `text`. `place`: name of the text in errors, such as that of a file.

        Raises:
            PlanRejected: `text` is not a plan of this version; `findings` names each wrong field.
        """
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            missing = {str(item["loc"][0]) for item in error.errors() if item["type"] == "missing"}
            if missing >= {"history", "turns"}:
                problem = f"{place}: no plan: expected what `compactor plan -o` writes"
                raise PlanRejected(problem, _rejected(place, error).findings) from None
            raise _rejected(place, error) from None
        except (TypeError, ValueError, RecursionError) as error:
            finding = Finding(code="invalid_plan", problem=f"{place}: expected a plan as JSON: {error}")
            raise PlanRejected(finding.problem, [finding]) from None


def _rejected(place: str, error: ValidationError) -> PlanRejected:
    """Return the error for a plan in which pydantic found an `error`, with a remark on each wrong field."""
    findings = [_finding(place, item) for item in error.errors(include_url=False)]
    return PlanRejected(_problem(findings), findings)


def _problem(findings: Sequence[Finding]) -> str:
    """Return the problem of the first of `findings`, with the number of the others."""
    return findings[0].problem + (f" (and {len(findings) - 1} more)" if len(findings) > 1 else "")


def _untyped_parts(fields: Mapping[str, Any], sound: CompactionPlan) -> Iterator[Finding]:
    """Yield a remark on each part of a plan in `fields` that is no object of its class, such as a decision as a dict.
    `sound`: the plan as pydantic converts `fields`."""
    for name, value in fields.items():
        parts = getattr(sound, name)
        pairs = zip(value, parts, strict=False) if isinstance(parts, tuple) else [(value, parts)]
        for index, (item, part) in enumerate(pairs):
            if isinstance(part, PlanPart) and not isinstance(item, PlanPart):
                where = f"{name}.{index}" if isinstance(parts, tuple) else name
                problem = f"plan: {where}: expected a {type(part).__name__}, found {type(item).__name__}"
                yield Finding(code="invalid_plan", problem=problem)


def _finding(place: str, item: Any) -> Finding:
    """Return a remark on `item`, one of pydantic's errors about the JSON of a plan."""
    where = ".".join(str(part) for part in item["loc"])
    expected = item["msg"].removeprefix("Value error, ").replace("valid tuple", "valid list")
    problem = f"{place}: {where or 'top level'}: {expected}"
    return Finding(code="invalid_plan", problem=problem)


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
        """Everything that was read from the turns without a model, such as calls and failures."""
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
        return focused(self.analysis, self.task, self.focus)


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
    """Planner's answer: its opinion of turns, and the brief, the page of memory in front of the compacted messages."""

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
