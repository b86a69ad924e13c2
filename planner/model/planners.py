"""Planners that ask a model: directly (`ModelPlanner`), or through another program with a login (`RelayedPlanner`).

A model is asked after the agent's own cached request, the *prefix*, where that is possible, and else with turn cards.
Its short answers become one `Proposal` for selection and guards.
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
from planner.reading.tokens import names_provider
from planner.rules import RulesPlanner

PREFIX_SHARE = 0.6
"""Share of the remaining time for the question after the agent's prefix; the rest is for cards if that fails."""

AskAfterPrefix = Callable[[QuestionBasis, Prompts], AskedOutcome | str]
"""Asks after the agent's prefix. Returns the outcome, or the reason for not asking; empty if there is no prefix."""
AskByCards = Callable[[Sequence[Question], QuestionBasis, Prompts], list[AskedOutcome]]
"""Asks questions with cards, and returns their outcomes in order."""


@dataclass(frozen=True)
class ModelPlanner:
    """Plans by asking a model."""

    client: Any = None
    """Client: ``anthropic.Anthropic``, ``AsyncAnthropic`` (only its address and key are used), an instructor client, or
    an `Account`. None: the agent's client, unless it is unknown or the model names a provider; else the SDK's settings
    from the environment."""
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
        after_prefix, by_cards = partial(self._after_prefix, deadline), partial(self._by_cards, deadline)
        return _asked_proposal(request, load_prompts(self.prompts_dir), after_prefix, by_cards)

    def _after_prefix(self, deadline: float, basis: QuestionBasis, prompts: Prompts) -> AskedOutcome | str:
        """Ask the agent's own model after its cached prefix, as `AskAfterPrefix`."""
        request, agent = basis.request, basis.request.agent_request
        if agent is None:
            return ""
        if self.client is not None and not is_same_account(self.client, agent.client):
            return "the planner asks elsewhere than the agent"
        if why_not := why_not_prefix(agent, self.model):
            return why_not
        text = prefix_question(basis, prompts)
        if why_not := _over_limit(request, lambda: prefix_cost(request, agent, text)):
            return why_not
        end = time.monotonic() + PREFIX_SHARE * left_seconds(deadline)
        (outcome,) = ask_all([PrefixQuestion(request, agent, text, end)], end)
        return outcome

    def _by_cards(
        self, deadline: float, questions: Sequence[Question], basis: QuestionBasis, prompts: Prompts
    ) -> list[AskedOutcome]:
        """Ask `questions`, as `AskByCards`. Tokens that the session may read beyond the first request of each question
        are shared equally by the questions."""
        request = basis.request
        first_requests = sum(question.tokens(prompts, request.counter) for question in questions)
        spare = request.input_left_tokens - first_requests - notes_tokens(basis, len(questions))
        client, agent = self.client, request.agent_request
        if client is None and agent is not None and not names_provider(self.model):
            client = agent.client
        with open_endpoint(client, self.model) as endpoint:

            def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
                each = spare / len(questions)
                conversations = [
                    PlannerConversation(endpoint, prompts, one, notes, request, deadline, each) for one in some
                ]
                return ask_all(conversations, deadline)

            return _outcomes_in_order(questions, ask, basis)


def _over_limit(request: PlanRequest, cost: Callable[[], Usage]) -> str:
    """Return the reason for not asking if `cost` is more than this plan may read; empty if it is not."""
    left = request.input_left_tokens
    if math.isinf(left) or cost().read_tokens <= left:
        return ""
    return f"it takes more than the {left:.0f} tokens that the session's planners may still read"


def _asked_proposal(
    request: PlanRequest, prompts: Prompts, after_prefix: AskAfterPrefix, by_cards: AskByCards
) -> Proposal:
    """Return the proposal of a model that is asked by `after_prefix` or, without an answer there, by `by_cards`; the
    rules rank turns that it leaves out.

    Raises:
        PlannerUnavailable: no answer is usable.
    """
    basis = QuestionBasis.of(request)
    tried = after_prefix(basis, prompts)
    notes = [f"not asked after the agent's prefix: {tried}"] if tried and isinstance(tried, str) else []
    failed = []
    if isinstance(tried, AskedOutcome):
        if tried.reading is not None:
            return _merged([tried], prompts, request, asked="prefix")
        failed = [tried]
        if request.read_tokens:
            request = replace(request, read_tokens=request.read_tokens + tried.usage.read_tokens)
            basis = replace(basis, request=request)
    questions, why_not = plan_questions(basis, prompts)
    outcomes = by_cards(questions, basis, prompts) if questions else []
    return _merged(outcomes, prompts, request, failed=failed, notes=[*notes, *([why_not] if why_not else [])])


def _outcomes_in_order(
    questions: Sequence[Question], ask: Callable[[Sequence[Question], str], list[AskedOutcome]], basis: QuestionBasis
) -> list[AskedOutcome]:
    """Return the outcomes of `questions`, in order. All but the last are asked in parallel, then the last with the
    briefs of the others, so that the model that reads the newest turns writes the final brief.

    `ask` asks some questions with such briefs (empty for none), and returns their outcomes.
    """
    first = ask(questions[:-1], "") if len(questions) > 1 else []
    counter = basis.request.counter
    briefs, _ = fit_brief(_joined_brief(first), counter, notes_tokens(basis, len(questions)) / counter.scale)
    return [*first, *ask(questions[-1:], briefs)]


def _joined_brief(outcomes: Sequence[AskedOutcome]) -> str:
    """Return all statements of the briefs of `outcomes`, under one set of headings."""
    lines = [line for outcome in outcomes if outcome.reading is not None for line in ("STATE", *outcome.reading.brief)]
    return brief_text(read_brief("\n".join(lines)))


def _merged(
    outcomes: Sequence[AskedOutcome],
    prompts: Prompts,
    request: PlanRequest,
    *,
    asked: Literal["cards", "prefix"] = "cards",
    failed: Sequence[AskedOutcome] = (),
    notes: Sequence[str] = (),
) -> Proposal:
    """Return the rules' proposal, changed by the choices, facts and brief in `outcomes`, which are in the order of the
    history; without outcomes it is the rules' proposal.

    `failed`: outcomes of earlier questions, whose cost counts; `notes`: reasons for questions that were not asked.

    Raises:
        PlannerUnavailable: questions were asked, and none has an answer.
    """
    all_outcomes = (*failed, *outcomes)
    usage = sum((outcome.usage for outcome in all_outcomes), Usage())
    errors = [outcome.error for outcome in all_outcomes if outcome.error is not None]
    if errors and len(errors) == len(all_outcomes):
        raise PlannerUnavailable(str(errors[-1]), usage)
    by_rules = RulesPlanner().propose(request)
    if not outcomes:
        update = {"notes": (*notes, *by_rules.provenance.notes)}
        return replace(by_rules, provenance=by_rules.provenance.model_copy(update=update))
    readings = [outcome.reading for outcome in outcomes if outcome.reading is not None]
    turns = {turn_id: proposal for reading in readings for turn_id, proposal in reading.turns.items()}
    facts = {(fact.type, fact.content): fact for reading in readings for fact in reading.facts}
    last = outcomes[-1].reading
    brief = _joined_brief(outcomes[-1:] if last is not None and last.brief else outcomes)
    provenance = Provenance(
        planner="model",
        model=next((outcome.model for outcome in outcomes if outcome.model), ""),
        prompts=prompts.hash,
        usage=usage,
        asked=asked,
        **_read_turns(outcomes, request),
        named=tuple(dict.fromkeys((*by_rules.provenance.named, *turns))),
        notes=(*notes, *(note for outcome in all_outcomes for note in outcome.notes)),
    )
    return replace(
        by_rules,
        turns={**by_rules.turns, **turns},
        facts=(*by_rules.facts, *facts.values()),
        brief=brief or by_rules.brief,
        provenance=provenance,
    )


def _read_turns(outcomes: Sequence[AskedOutcome], request: PlanRequest) -> dict[str, Any]:
    """Return ``read_turns`` and ``unread_turns`` of a `Provenance`, after earlier planners and those of `outcomes`."""
    read, _ = read_and_new(request, earlier_plan(request))
    read_numbers = {turn.turn.number for turn in read}.union(*(one.reading.asked for one in outcomes if one.reading))
    last = min(max(read_numbers), len(request.evidence.turns) - 1)
    unread = tuple(f"t{number}" for number in range(1, last) if number not in read_numbers)
    return {"read_turns": last, "unread_turns": unread}


# Relayed questions. Planning raises `Unanswered` with the questions that have no answer yet, another program asks them,
# and planning is started again with the answers. A question with an unusable answer is not asked again.


@dataclass(frozen=True)
class RelayedQuestion:
    """Question that another program, which has a login, asks a model."""

    via: Literal["fork", "complete"]
    """Way to ask: ``fork``, the agent's own model after the agent's transcript; ``complete``, in a separate request."""
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
    """Reason why there is no text; empty if there is one."""


class Unanswered(BaseException):
    """Signal that `questions` must be asked, and planning started again with their answers.

    It is no failure: code that falls back to the rules planner must let it pass.
    """

    def __init__(self, questions: Sequence[RelayedQuestion]) -> None:
        """Store the questions without an answer."""
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
        return _asked_proposal(request, load_prompts(), self._after_prefix, self._by_cards)

    def _after_prefix(self, basis: QuestionBasis, prompts: Prompts) -> AskedOutcome | str:
        """Use the answer of the agent's own model after its prefix, as `AskAfterPrefix`."""
        if not self.prefix_tokens:
            return ""
        request, question = basis.request, RelayedQuestion("fork", prefix_question(basis, prompts))
        new, cached = request.counter.text(question.prompt), self.prefix_tokens
        if why_not := _over_limit(request, lambda: Usage(input_tokens=new, cache_read_input_tokens=cached, requests=1)):
            return why_not
        (answer,) = self._answers([question])
        everything = Scope(list(request.evidence.turns.values()))
        return _outcome(answer, everything, request, self.agent_model, "not answered after the agent's prefix")

    def _by_cards(self, questions: Sequence[Question], basis: QuestionBasis, prompts: Prompts) -> list[AskedOutcome]:
        """Use the recorded or relayed answers to `questions`, as `AskByCards`."""
        request, model = basis.request, self.model or DEFAULT_MODEL
        most, recorded = request.settings.max_output_tokens, _recorded(self.answers, len(questions))

        def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
            relayed = [
                RelayedQuestion("complete", one.text(prompts, notes), one.system(prompts), model, most) for one in some
            ]
            if recorded is None:
                answers = self._answers(relayed)
            else:
                answers = [_recorded_answer(one, next(recorded), request) for one in relayed]
            return [
                _outcome(answer, one.scope, request, model, f"planner model {model}: no answer for {one.scope.name}")
                for one, answer in zip(some, answers, strict=True)
            ]

        return _outcomes_in_order(questions, ask, basis)

    def _answers(self, questions: Sequence[RelayedQuestion]) -> list[RelayedAnswer]:
        """Return the answer to each of `questions`; raise `Unanswered` with those that have none."""
        known = self.answers if isinstance(self.answers, Mapping) else {}
        missing = [question for question in questions if question.id not in known]
        if missing:
            raise Unanswered(missing)
        return [known[question.id] for question in questions]


def _recorded(answers: Mapping[str, RelayedAnswer] | Sequence[str], questions: int) -> Iterator[str] | None:
    """Return an iterator over recorded texts, one for each question; None if `answers` have ids.

    Raises:
        PlannerUnavailable: there are more or fewer texts than `questions`.
    """
    if isinstance(answers, Mapping):
        return None
    if len(answers) != questions:
        raise PlannerUnavailable(f"recorded answers: {len(answers)} for {questions} questions: record them again")
    return iter(answers)


def _recorded_answer(question: RelayedQuestion, text: str, request: PlanRequest) -> RelayedAnswer:
    """Return the recorded `text` as the answer to `question`, with an estimated usage."""
    count = request.counter.text
    read = count(question.system) + count(question.prompt)
    return RelayedAnswer(text, Usage(input_tokens=read, output_tokens=count(text), requests=1))


def _outcome(answer: RelayedAnswer, scope: Scope, request: PlanRequest, model: str, problem: str) -> AskedOutcome:
    """Return the outcome of `answer` about the turns of `scope`; if it is unusable, with `problem` as its error."""
    reading = None if answer.failure else read_answer(answer_in(answer.text), scope, request.now)
    if reading is not None and reading.is_usable:
        return AskedOutcome(reading, answer.usage, model, reading.notes(scope))
    error = PlannerUnavailable(f"{problem} ({answer.failure})" if answer.failure else problem, answer.usage)
    return AskedOutcome(None, answer.usage, model, (str(error),), error)


def rendered_prompts(
    request: PlanRequest, prompts_dir: str | Path | None = None, answers: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the text of each question that a planner model would be asked for `request`: system prompt, then message.

    `answers`: answers to all questions but the last; the last question contains their briefs.
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
