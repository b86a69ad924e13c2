"""Plan: decisions about a history as data, in the same form whether a model, rules or a person made it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from planner.analysis import Analysis
from planner.errors import PlanRejected
from planner.reading.lazy import lazy_pattern
from planner.reading.messages import History
from planner.reading.secrets import NO_SECRETS, Secrets, redact
from planner.review_text import review_text
from planner.settings import OptionalToolName, ToolUse

MOST_TOKENS = 10**12
"""Largest count in a plan. A larger one in a file is refused as damage, as computing with it could fail."""
CACHED_SHARE = 0.1
"""Weight of a token from a provider's cache, relative to an uncached one: the highest price of such a read."""
_SURROGATE = lazy_pattern("[\ud800-\udfff]")
"""Half of a character, which UTF-8 cannot express."""


def whole_characters(value: Any) -> Any:
    """Return `value`; in a text, each half of a character (a lone surrogate) is replaced by ``�``. A history may
    contain such halves, a plan may not."""
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


Strategy = Literal["keep", "summarize", "reference", "drop"]
"""Treatment of a turn: it stays, or is replaced by a summary and excerpts, or by a line that names it, or by nothing.
"""
FactType = Literal["decision", "error", "file_state", "dependency", "constraint"]
Text = Annotated[str, BeforeValidator(whole_characters)]
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Place = Annotated[int, Field(ge=1)]
TurnId = Annotated[str, Field(pattern=r"^t[1-9][0-9]*$")]


class PlanPart(BaseModel):
    """Immutable part of a plan; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class TurnDecision(PlanPart):
    """Decision on one turn."""

    turn_id: TurnId
    strategy: Strategy
    relevance_score: float = Field(ge=0, le=1)
    reason: Text = ""
    failed_approach: bool = False
    summary: Text = ""
    """Summary, only for ``summarize``. It is shown before the excerpts, and has text if there are none."""
    excerpts: tuple[tuple[Place, Place], ...] = ()
    """Line ranges of the turn that stay verbatim, for ``summarize``; first and last included."""
    tokens_before: Count = 0
    tokens_after: Count = 0


class ExtractedFact(PlanPart):
    """Something worth carrying at the front of the view."""

    type: FactType
    content: Text = Field(min_length=1)
    quote: Text = ""
    """For a constraint: the user's words, verbatim."""
    source: TurnId
    """Turn that contains the fact."""
    timestamp: float = Field(default=0.0, ge=0)
    """Seconds since the epoch: when the fact was extracted."""


class Finding(PlanPart):
    """Remark of a guard on a plan."""

    code: str
    turn_id: str = ""
    problem: Text
    repair: Text = ""
    """Repair that was made; it only ever keeps more."""


class HistoryStamp(PlanPart):
    """Identity and size of the history that a plan was made for."""

    messages: Count
    turns: Count
    tokens: Count
    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$")

    @classmethod
    def of(cls, history: History, tokens: int) -> HistoryStamp:
        """Return the stamp of `history`, which counts `tokens` tokens."""
        return cls(messages=len(history.messages), turns=len(history.turns), tokens=tokens, digest=history.digest)

    def begins(self, history: History) -> bool:
        """Return True if `history` is the stamped one, or continues it."""
        return self.messages <= len(history.messages) and self.digest == history.digest_at(self.messages)


class Usage(PlanPart):
    """Tokens of planning by the provider's count, over all attempts and pieces."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    requests: Count = 0

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        mine, theirs = self.model_dump(), other.model_dump()
        return Usage(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def prompt_tokens(self) -> int:
        """All input, cached or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def read_tokens(self) -> int:
        """Tokens that were read: all input, with cached input weighted by `CACHED_SHARE`; at most `MOST_TOKENS`."""
        cached = math.ceil(self.cache_read_input_tokens * CACHED_SHARE)
        return min(MOST_TOKENS, self.input_tokens + self.cache_creation_input_tokens + cached)


class Provenance(PlanPart):
    """Origin and cost of a plan."""

    planner: str
    model: str = ""
    prompts: str = ""
    """``sha256:…`` of the prompts that were used."""
    usage: Usage = Field(default_factory=Usage)
    asked: Literal["rules", "cards", "prefix"] = "rules"
    """Way in which the planner was asked: not at all, by turn cards, or after the agent's own cached prefix."""
    read_tokens: Count = 0
    """Tokens that planners read for this plan and earlier ones of its session: the sum of `Usage.read_tokens`."""
    read_turns: Count = 0
    """Number of turns, from the first on, that a planner has read for this plan or for an earlier plan that it
    continues. Later questions need not show them again, except `unread_turns`. 0 for a plan by rules alone."""
    unread_turns: tuple[str, ...] = ()
    """Ids of turns among these that no planner has read: they were in a piece of the history that got no answer."""
    named: tuple[str, ...] = ()
    """Ids of the turns that the planner decided; the rules decided the others."""
    filled_tokens: Count = 0
    """Tokens of the view that the rules chose, in space that the planner left."""
    notes: tuple[Text, ...] = ()
    """Remarks of the planner for a reviewer, such as that it fell back to the rules."""


@dataclass(frozen=True)
class Layout:
    """View of a plan."""

    messages: tuple[Any, ...]
    """Messages for the Messages API; unchanged ones are the caller's own objects."""
    tokens: int
    first_changed: int | None
    """Index of the first changed message; None if nothing changed."""
    untouched: int
    """Number of messages at the end of the view that are the same objects as the last messages of the history."""
    entries: Mapping[str, str]
    """Entries of the turns that notes replace, by turn id."""


@dataclass(frozen=True)
class Bound:
    """Analysis and layout of a guarded plan, which exist in memory only."""

    analysis: Analysis
    layout: Layout
    turns: tuple[TurnDecision, ...]
    """Decisions that were laid out; the layout is out of date if the plan has others."""
    brief: str
    """Brief that was laid out."""


class CompactionPlan(BaseModel):
    """Decisions for every turn, brief, facts, findings and provenance; applying it calls no model."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    version: Literal[1] = 1
    task: Text
    history: HistoryStamp
    target_tokens: Count
    target_model: str = ""
    """Model that will read the view; decides the treatment of thinking. Empty: a current Claude."""
    window_tokens: int = Field(default=200_000, gt=0, le=MOST_TOKENS)
    """Context window of the target model. A live tail that would fill it is shortened to previews."""
    restore_tool: OptionalToolName = ""
    """Agent's tool that returns a whole turn, named in the view; empty without one."""
    tool_uses: dict[str, ToolUse] = Field(default_factory=dict)
    """Declarations of the agent's tools that were used for the plan, by name."""
    turns: tuple[TurnDecision, ...]
    brief: Text = ""
    """Page of memory at the front of the view: headings, and one statement a line that ends with its turns."""
    extracted_facts: tuple[ExtractedFact, ...] = ()
    estimated_tokens: Count
    findings: tuple[Finding, ...] = ()
    provenance: Provenance

    _bound: Bound | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_decision_a_turn(self) -> CompactionPlan:
        ids = [decision.turn_id for decision in self.turns]
        doubled = [turn_id for turn_id, count in Counter(ids).items() if count > 1]
        if doubled:
            raise ValueError(f"more than one decision for {', '.join(doubled)}")
        return self

    def __eq__(self, other: object) -> bool:
        """Return True if `other` has the same content, whatever its origin and its bound history."""
        return isinstance(other, CompactionPlan) and self.__dict__ == other.__dict__

    def __str__(self) -> str:
        """Return the review, for ``print(plan)``."""
        return self.review()

    def review(self, width: int = 100, *, whole: bool = False) -> str:
        """Return the review as text of `width` columns: the verdict, brief, failures, findings, facts and turns. Long
        sections end with the number of lines left out; with `whole` nothing is left out."""
        return review_text(self, width, whole=whole)

    @property
    def bound(self) -> Bound | None:
        """Analysis and layout of the plan, while they are in memory and the plan is unchanged."""
        own = self._bound
        return own if own is not None and (own.turns, own.brief) == (self.turns, self.brief) else None

    @property
    def bound_analysis(self) -> Analysis | None:
        """Analysis from which the plan was made, while it is in memory; a plan from disk has none."""
        return self._bound.analysis if self._bound is not None else None

    @property
    def secrets(self) -> Secrets:
        """Secrets of the history from which the plan was made, while that is in memory."""
        return self._bound.analysis.secrets if self._bound is not None else NO_SECRETS

    def bind(self, analysis: Analysis, layout: Layout) -> CompactionPlan:
        """Return this plan with its analysis and layout, so that ``apply(plan)`` computes neither again."""
        self._bound = Bound(analysis, layout, self.turns, self.brief)
        return self

    def unbound(self) -> CompactionPlan:
        """Return this plan without its analysis and layout, which may be large."""
        plan = self.model_copy()
        plan._bound = None
        return plan

    @property
    def decisions(self) -> dict[str, TurnDecision]:
        """Decisions by turn id."""
        return {decision.turn_id: decision for decision in self.turns}

    def to_data(self) -> dict[str, Any]:
        """Return the plan as JSON data without secrets, to be kept and read."""
        data: dict[str, Any] = redact(self.model_dump(mode="json"), self.secrets)
        return data

    def to_json(self) -> str:
        """Return the plan as JSON, readable and editable, without secrets; lone surrogates are escaped."""
        text = json.dumps(self.to_data(), ensure_ascii=False, indent=2)
        return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, place: str = "plan") -> CompactionPlan:
        """Return the plan in `text`. `place`: the name of the text in errors, such as a file.

        Raises:
            PlanRejected: `text` is not a plan of this version; `findings` names each wrong field.
        """
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            findings = [_finding(place, item) for item in error.errors(include_url=False)]
            missing = {str(item["loc"][0]) for item in error.errors() if item["type"] == "missing"}
            if missing >= {"history", "turns"}:
                raise PlanRejected(f"{place}: no plan: expected what `compactor plan -o` writes", findings) from None
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise PlanRejected(findings[0].problem + more, findings) from None
        except (ValueError, RecursionError) as error:
            finding = Finding(code="invalid_plan", problem=f"{place}: expected a plan as JSON: {error}")
            raise PlanRejected(finding.problem, [finding]) from None


def _finding(place: str, item: Any) -> Finding:
    """Return a finding for `item`, one error of pydantic."""
    where = ".".join(str(part) for part in item["loc"])
    problem = f"{place}: {where or 'top level'}: {item['msg'].removeprefix('Value error, ')}"
    return Finding(code="invalid_plan", problem=problem)
