"""Planners by a model: asked directly, relayed by another program, or only rendered as prompts.

The model reads cards and returns a short answer, which becomes one `Proposal` for selection and guards.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from planner.brief import brief_text, fit_brief, read_brief
from planner.errors import PlannerUnavailable
from planner.model.answer import Scope, answer_in, read_answer
from planner.model.asking import AskedOutcome, PlannerConversation, ask_all, left_seconds
from planner.model.client import DEFAULT_MODEL, is_same_account, open_endpoint
from planner.model.prefix import PrefixQuestion, prefix_cost, prefix_question, why_not_prefix
from planner.model.prompts import Prompts, load_prompts
from planner.model.question import Question, QuestionBasis, notes_tokens, plan_questions
from planner.plan import Provenance, Usage
from planner.proposal import PlanRequest, Proposal, earlier_plan, read_and_new
from planner.reading.families import names_provider
from planner.rules import RulesPlanner

__all__ = [
    "ModelPlanner",
    "RelayedAnswer",
    "RelayedPlanner",
    "RelayedQuestion",
    "Unanswered",
    "rendered_prompts",
]

PREFIX_SHARE = 0.6
"""Share of the remaining time for the question after the agent's prefix; the rest is for cards if that fails."""


@dataclass(frozen=True)
class ModelPlanner:
    """Plans by asking a model."""

    client: Any = None
    """Client: ``anthropic.Anthropic``, ``AsyncAnthropic`` (only its address and key are used), an instructor client, an
    `Account`, or None: the agent's client if it is known and the model names no provider, else the SDK's settings from
    the environment."""
    model: str | None = None
    """Claude model, ``provider/model`` for others by instructor's strings, or None: `DEFAULT_MODEL`."""
    prompts_dir: str | Path | None = None
    """Folder of prompts that replace the packaged ones."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Plan ``request.history``; the rules rank turns that the model leaves out or gets wrong.

        Raises:
            PlannerUnavailable: no question got a usable answer; the error has the cost.
            SettingsError: the prompts or the client cannot be used.
        """
        deadline = time.monotonic() + request.settings.timeout_seconds
        behind_prefix, by_cards = partial(self._behind_prefix, deadline), partial(self._by_cards, deadline)
        return _asked_proposal(request, load_prompts(self.prompts_dir), behind_prefix, by_cards)

    def _behind_prefix(
        self, deadline: float, basis: QuestionBasis, prompts: Prompts
    ) -> tuple[list[AskedOutcome], tuple[str, ...]]:
        """Return the outcome of asking the agent's own model after its cached prefix, or the reason for not asking."""
        request, agent = basis.request, basis.request.agent_request
        if agent is None:
            return [], ()
        why_not = why_not_prefix(agent, self.model)
        if self.client is not None and not is_same_account(self.client, agent.client):
            why_not = "the planner asks elsewhere than the agent"
        text = "" if why_not else prefix_question(basis, prompts)
        left = request.input_left_tokens
        if not why_not and left < math.inf and prefix_cost(request, agent, text).read_tokens > left:
            why_not = f"it takes more than the {left:.0f} tokens that the session's planners may still read"
        if why_not:
            return [], (f"not asked after the agent's prefix: {why_not}",)
        share = time.monotonic() + PREFIX_SHARE * left_seconds(deadline)
        question = PrefixQuestion(request, agent, text, share)
        return ask_all([question], share), ()

    def _by_cards(
        self, deadline: float, questions: Sequence[Question], prompts: Prompts, basis: QuestionBasis
    ) -> tuple[list[AskedOutcome], str]:
        """Return the outcomes of `questions`, in order, and the model's name. Tokens that the session may read beyond
        the first requests are shared equally by the questions."""
        request = basis.request
        first_requests = sum(question.tokens(prompts, request.counter) for question in questions)
        spare = request.input_left_tokens - first_requests - notes_tokens(basis, len(questions))
        client, agent = self.client, request.agent_request
        if client is None and agent is not None and not names_provider(self.model):
            client = agent.client
        with open_endpoint(client, self.model) as endpoint:

            def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
                each = spare / len(questions)
                return ask_all(
                    [PlannerConversation(endpoint, prompts, one, notes, request, deadline, each) for one in some],
                    deadline,
                )

            return _outcomes_in_order(questions, ask, basis), endpoint.model


def _asked_proposal(
    request: PlanRequest,
    prompts: Prompts,
    behind_prefix: Callable[[QuestionBasis, Prompts], tuple[list[AskedOutcome], tuple[str, ...]]],
    by_cards: Callable[[Sequence[Question], Prompts, QuestionBasis], tuple[list[AskedOutcome], str]],
) -> Proposal:
    """Return the proposal of a model, asked by `behind_prefix` or, without an answer there, by `by_cards`; the rules
    rank turns that it leaves out.

    Raises:
        PlannerUnavailable: no answer is usable.
    """
    basis = QuestionBasis.of(request)
    prefix_outcomes, notes = behind_prefix(basis, prompts)
    if prefix_outcomes and prefix_outcomes[0].reading is not None:
        return _merged(prefix_outcomes, prefix_outcomes[0].model, prompts, request, asked="prefix")
    if prefix_outcomes and request.read_tokens:
        request = replace(request, read_tokens=request.read_tokens + prefix_outcomes[0].usage.read_tokens)
        basis = replace(basis, request=request)
    questions, why_not = plan_questions(basis, prompts)
    outcomes, model = by_cards(questions, prompts, basis) if questions else ([], "")
    notes = (*notes, *([why_not] if why_not else []))
    return _merged(outcomes, model, prompts, request, before=prefix_outcomes, notes=notes)


def _outcomes_in_order(
    questions: Sequence[Question], ask: Callable[[Sequence[Question], str], list[AskedOutcome]], basis: QuestionBasis
) -> list[AskedOutcome]:
    """Return the outcomes of `questions`, in order: all but the last are asked in parallel, then the last with the
    briefs of the others.

    `ask` takes questions and the briefs of others, and returns their outcomes.

    The model that reads the newest turns writes the final brief; a separate merging call would write the newest part
    twice.
    """
    if len(questions) == 1:
        return ask(questions, "")
    first = ask(questions[:-1], "")
    return [*first, *ask(questions[-1:], _notes(first, len(questions), basis))]


def _notes(outcomes: Sequence[AskedOutcome], questions: int, basis: QuestionBasis) -> str:
    """Return the briefs in `outcomes` for the last of `questions`, within the tokens that are reserved for them."""
    counter = basis.request.counter
    notes, _ = fit_brief(_brief_of(outcomes), counter, notes_tokens(basis, questions) / counter.scale)
    return notes


def _brief_of(outcomes: Sequence[AskedOutcome]) -> str:
    """Return all statements of the briefs of `outcomes`, under one set of headings."""
    lines = [line for outcome in outcomes if outcome.reading is not None for line in ("STATE", *outcome.reading.brief)]
    return brief_text(read_brief("\n".join(lines)))


def _merged(
    outcomes: Sequence[AskedOutcome],
    model: str,
    prompts: Prompts,
    request: PlanRequest,
    asked: Literal["cards", "prefix"] = "cards",
    before: Sequence[AskedOutcome] = (),
    notes: tuple[str, ...] = (),
) -> Proposal:
    """Return the rules' proposal, changed by the choices and the brief in `outcomes`, which are in the order of the
    history.

    Without outcomes it is the rules' proposal. `before`: outcomes of questions that were paid for and have no answer;
    `notes`: reasons for questions that were not asked.

    Raises:
        PlannerUnavailable: questions were asked, and none has an answer.
    """
    all_outcomes = (*before, *outcomes)
    usage = sum((outcome.usage for outcome in all_outcomes), Usage())
    errors = [outcome.error for outcome in all_outcomes if outcome.error is not None]
    if errors and len(errors) == len(all_outcomes):
        raise PlannerUnavailable(str(errors[-1]), usage)
    by_rules = RulesPlanner().propose(request)
    if not outcomes:
        update = {"notes": (*notes, *by_rules.provenance.notes)}
        return replace(by_rules, provenance=by_rules.provenance.model_copy(update=update))
    readings = [outcome.reading for outcome in outcomes if outcome.reading is not None]
    chosen = {turn_id: proposal for reading in readings for turn_id, proposal in reading.turns.items()}
    facts = {(fact.type, fact.content): fact for reading in readings for fact in reading.facts}
    provenance = Provenance(
        planner="model",
        model=model or next((outcome.model for outcome in outcomes if outcome.model), ""),
        prompts=prompts.hash,
        usage=usage,
        asked=asked,
        **_read(outcomes, request),
        named=tuple(dict.fromkeys((*by_rules.provenance.named, *chosen))),
        notes=(*notes, *(note for outcome in all_outcomes for note in outcome.notes)),
    )
    last = outcomes[-1].reading
    brief = _brief_of(outcomes[-1:] if last is not None and last.brief else outcomes) or by_rules.brief
    turns = {**by_rules.turns, **chosen}
    return replace(by_rules, turns=turns, provenance=provenance, facts=(*by_rules.facts, *facts.values()), brief=brief)


def _read(outcomes: Sequence[AskedOutcome], request: PlanRequest) -> dict[str, Any]:
    """Return fields of the provenance: how far planners have read, `outcomes` included, and unread turns before."""
    read, _ = read_and_new(request, earlier_plan(request))
    read_numbers = {turn.turn.number for turn in read}.union(*(one.reading.asked for one in outcomes if one.reading))
    last = min(max(read_numbers), len(request.evidence.turns) - 1)
    unread = tuple(f"t{number}" for number in range(1, last) if number not in read_numbers)
    return {"read_turns": last, "unread_turns": unread}


# Relayed questions: planning raises the questions that have no answer yet, a program with a login asks them, and
# planning again finds the answers. An unusable answer is not asked for again.


@dataclass(frozen=True)
class RelayedQuestion:
    """Question that another program, which has a login, asks a model."""

    via: Literal["fork", "complete"]
    """Way to ask: ``fork`` after the agent's own transcript, by its own model; ``complete`` as a request by itself."""
    prompt: str
    system: str = ""
    model: str = ""
    """Model to ask; empty: the agent's."""
    max_tokens: int = 0
    """Output limit of the answer; 0 leaves it to the asker."""

    @property
    def id(self) -> str:
        """Id, equal for equal questions."""
        content = "\0".join((self.via, self.model, self.system, self.prompt))
        return f"{self.via}-{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:16]}"


@dataclass(frozen=True)
class RelayedAnswer:
    """Answer to a relayed question."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    failure: str = ""
    """Reason why there is no text; empty if there is."""


class Unanswered(BaseException):
    """Signal that questions must be asked first. It is no failure: code that falls back to rules must let it pass."""

    def __init__(self, questions: Sequence[RelayedQuestion]) -> None:
        """Ask these questions first, then plan again."""
        super().__init__(f"{len(questions)} questions")
        self.questions = tuple(questions)


@dataclass(frozen=True)
class RelayedPlanner:
    """Planner that uses answers which another program got from a model; raises `Unanswered` for missing ones."""

    answers: Mapping[str, RelayedAnswer] | Sequence[str]
    """Answers by the id of their question; or recorded texts, one for each of `rendered_prompts`, in order."""
    model: str = ""
    """Model that is asked with cards; empty: `DEFAULT_MODEL`."""
    agent_model: str = ""
    """Model that answers after the agent's prefix."""
    prefix_tokens: int = 0
    """Tokens of the agent's last transcript, after which the question is asked; 0: cards are used."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Plan ``request.history``; the rules rank turns that the answers leave out.

        Raises:
            Unanswered: questions have no answer yet.
            PlannerUnavailable: no answer is usable, or a question has no recorded one.
        """
        return _asked_proposal(request, load_prompts(), self._behind_prefix, self._by_cards)

    def _behind_prefix(self, basis: QuestionBasis, prompts: Prompts) -> tuple[list[AskedOutcome], tuple[str, ...]]:
        """Return the outcome of asking after the agent's prefix, or the reason for not asking."""
        request = basis.request
        if not self.prefix_tokens:
            return [], ()
        question = RelayedQuestion("fork", prefix_question(basis, prompts))
        cost = Usage(
            input_tokens=request.counter.text(question.prompt), cache_read_input_tokens=self.prefix_tokens, requests=1
        )
        if cost.read_tokens > request.input_left_tokens:
            left = int(request.input_left_tokens)
            return [], (f"not asked after the agent's prefix: the session's planners may read {left} tokens more",)
        (answer,) = self._answers([question])
        everything = Scope(list(request.evidence.turns.values()))
        return [_outcome(answer, everything, request, self.agent_model, "not answered after the agent's prefix")], ()

    def _by_cards(
        self, questions: Sequence[Question], prompts: Prompts, basis: QuestionBasis
    ) -> tuple[list[AskedOutcome], str]:
        """Return the outcomes of `questions`, in order, by their recorded or relayed answers, and the model's name."""
        request, model = basis.request, self.model or DEFAULT_MODEL
        most, recorded = request.settings.max_output_tokens, _recorded(self.answers, len(questions))

        def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
            relayed = [
                RelayedQuestion("complete", one.text(prompts, notes), one.system(prompts), model, most) for one in some
            ]
            if recorded is None:
                answers = self._answers(relayed)
            else:
                answers = [_answer_to(one, next(recorded), request) for one in relayed]
            return [
                _outcome(answer, one.scope, request, model, f"planner model {model}: no answer for {one.scope.name}")
                for one, answer in zip(some, answers, strict=True)
            ]

        return _outcomes_in_order(questions, ask, basis), model

    def _answers(self, questions: Sequence[RelayedQuestion]) -> list[RelayedAnswer]:
        """Return the answer to each question; raise `Unanswered` with those that have none."""
        known = self.answers if isinstance(self.answers, Mapping) else {}
        missing = [question for question in questions if question.id not in known]
        if missing:
            raise Unanswered(missing)
        return [known[question.id] for question in questions]


def _recorded(answers: Mapping[str, RelayedAnswer] | Sequence[str], questions: int) -> Iterator[str] | None:
    """Return an iterator over recorded texts, one for each question; None if `answers` are by id."""
    if isinstance(answers, Mapping):
        return None
    if len(answers) != questions:
        raise PlannerUnavailable(f"recorded answers: {len(answers)} for {questions} questions: record them again")
    return iter(answers)


def _answer_to(question: RelayedQuestion, text: str, request: PlanRequest) -> RelayedAnswer:
    """Return a recorded `text` as the answer to `question`, with its usage as counted here."""
    count = request.counter.text
    read = count(question.system) + count(question.prompt)
    return RelayedAnswer(text, Usage(input_tokens=read, output_tokens=count(text), requests=1))


def _outcome(answer: RelayedAnswer, scope: Scope, request: PlanRequest, model: str, problem: str) -> AskedOutcome:
    """Return the outcome of `answer` about the turns of `scope`; an error with `problem` if unusable."""
    reading = None if answer.failure else read_answer(answer_in(answer.text), scope, request.now)
    if reading is not None and reading.is_usable:
        return AskedOutcome(reading, answer.usage, model, reading.notes(scope))
    error = PlannerUnavailable(f"{problem} ({answer.failure})" if answer.failure else problem, answer.usage)
    return AskedOutcome(None, answer.usage, model, (str(error),), error)


# Prompts without a model, for comparing them and for tests.


def rendered_prompts(
    request: PlanRequest, prompts_dir: str | Path | None = None, answers: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the text of each question that a planner model would be asked for `request`: system prompt, then message.

    `answers`: answers to all questions but the last, whose briefs the last one contains.
    """
    prompts, basis = load_prompts(prompts_dir), QuestionBasis.of(request)
    texts, others = list[str](), iter(answers)

    def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
        texts.extend(f"{one.system(prompts)}\n\n{one.text(prompts, notes)}" for one in some)
        return [AskedOutcome(read_answer(answer_in(next(others, "")), one.scope, request.now), Usage()) for one in some]

    questions, _ = plan_questions(basis, prompts)
    if questions:
        _outcomes_in_order(questions, ask, basis)
    return tuple(texts)
