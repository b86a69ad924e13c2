"""Planners that ask a model: directly (`ModelPlanner`), or through another program with a login (`RelayedPlanner`).

If possible, the question is added to the agent's own last request (the *prefix*), which the provider has in its cache;
else the model reads *cards*, excerpts of the turns. Its answers become one `Proposal` about what to keep.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from planner.brief import brief_text, fit_brief, read_brief
from planner.errors import PlannerUnavailable
from planner.later_plans import read_and_new
from planner.model.answer import Scope, answer_in, read_answer
from planner.model.asking import AskedOutcome, PlannerConversation, ask_all, left_seconds
from planner.model.client import DEFAULT_MODEL, is_same_account, open_endpoint
from planner.model.prefix import PrefixQuestion, prefix_cost, prefix_question, why_not_prefix
from planner.model.prompts import Prompts, load_prompts
from planner.model.question import Question, QuestionBasis, notes_tokens, plan_questions
from planner.plan import PlanRequest, Proposal, Provenance, Usage, earlier_plan
from planner.reading.tokens import names_provider
from planner.rules import RulesPlanner

PREFIX_SHARE = 0.6
"""Share of the remaining time for a question that is added to the agent's cached request. The rest is for questions
with excerpts of turns, if that one fails."""

AskAfterPrefix = Callable[[QuestionBasis, Prompts], AskedOutcome | str]
"""Function that adds a question to the agent's cached request. It returns the outcome, or the reason why it did not
ask; an empty reason if there is no such request."""
AskByCards = Callable[[Sequence[Question], QuestionBasis, Prompts], list[AskedOutcome]]
"""Function that asks questions with cards, and returns their outcomes in order."""


@dataclass(frozen=True)
class ModelPlanner:
    """Planner that asks a model which turns to keep, summarize, replace or drop."""

    client: Any = None
    """Client that sends the questions: ``anthropic.Anthropic``, ``AsyncAnthropic`` (only its address and key are used),
    an instructor client, or an `Account`. With None, the agent's client is used; if that is unknown or `model` names a
    provider, a new client with the credentials in the environment."""
    model: str | None = None
    """Name of a Claude model, or ``provider/model`` as instructor writes it; None for `DEFAULT_MODEL`."""
    prompts_dir: str | Path | None = None
    """Folder with the user's own prompts; each replaces the packaged one of the same name."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Ask the model about ``request.history`` and return its choices; rules judge all turns without a valid choice.

        Raises:
            PlannerUnavailable: no question got a usable answer; the error has the cost.
            SettingsError: the prompts or the client cannot be used.
        """
        deadline = time.monotonic() + request.settings.timeout_seconds
        after_prefix, by_cards = partial(self._after_prefix, deadline), partial(self._by_cards, deadline)
        return _asked_proposal(request, load_prompts(self.prompts_dir), after_prefix, by_cards)

    def _after_prefix(self, deadline: float, basis: QuestionBasis, prompts: Prompts) -> AskedOutcome | str:
        """Ask after the agent's last request, in the provider's cache (see `AskAfterPrefix` for what is returned)."""
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
        """Ask `questions` with cards. Each has an equal share of the tokens for requests after unusable answers."""
        request = basis.request
        first_requests = sum(question.tokens(prompts, request.counter) for question in questions)
        spare_of_all = request.input_left_tokens - first_requests - notes_tokens(basis, len(questions))
        spare_of_each = spare_of_all / len(questions)
        client, agent = self.client, request.agent_request
        if client is None and agent is not None and not names_provider(self.model):
            client = agent.client
        with open_endpoint(client, self.model) as endpoint:

            def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
                conversations = [
                    PlannerConversation(endpoint, prompts, question, notes, request, deadline, spare_of_each)
                    for question in some
                ]
                return ask_all(conversations, deadline)

            return _outcomes_in_order(questions, ask, basis)


def _over_limit(request: PlanRequest, cost: Callable[[], Usage]) -> str:
    """Return why a question is not asked, if its `cost` is more than the session allows; else ""."""
    left_tokens = request.input_left_tokens
    if math.isinf(left_tokens) or cost().read_tokens <= left_tokens:
        return ""
    return f"it takes more than the {left_tokens:.0f} tokens that the session's planners may still read"


def _asked_proposal(
    request: PlanRequest, prompts: Prompts, after_prefix: AskAfterPrefix, by_cards: AskByCards
) -> Proposal:
    """Ask a model, first after the agent's cached request (`after_prefix`), which is cheaper; without a usable answer
    there, with cards, the excerpts of turns (`by_cards`). Return its choices."""
    basis = QuestionBasis.of(request)
    tried = after_prefix(basis, prompts)  # the outcome, or as a text why the model was not asked
    notes = [f"not asked after the agent's prefix: {tried}"] if tried and isinstance(tried, str) else []
    failed = []
    if isinstance(tried, AskedOutcome):
        if tried.reading is not None:
            return _merged([tried], prompts, request, asked="prefix")
        failed = [tried]
        if request.read_tokens:  # 0 in a session's first plan, to which the limit of the session does not apply
            request = replace(request, read_tokens=request.read_tokens + tried.usage.read_tokens)
            basis = replace(basis, request=request)
    questions, why_not = plan_questions(basis, prompts)
    outcomes = by_cards(questions, basis, prompts) if questions else []
    return _merged(outcomes, prompts, request, failed=failed, notes=[*notes, *([why_not] if why_not else [])])


def _outcomes_in_order(
    questions: Sequence[Question], ask: Callable[[Sequence[Question], str], list[AskedOutcome]], basis: QuestionBasis
) -> list[AskedOutcome]:
    """Ask all `questions` but the last in parallel; then the last one, about the newest turns, with the briefs from the
    other answers, so that its answer has the brief of the whole history. `ask`: asks questions, with such briefs."""
    first = ask(questions[:-1], "") if len(questions) > 1 else []
    counter = basis.request.counter
    briefs, _ = fit_brief(_joined_brief(first), counter, notes_tokens(basis, len(questions)) / counter.scale)
    return [*first, *ask(questions[-1:], briefs)]


def _joined_brief(outcomes: Sequence[AskedOutcome]) -> str:
    """Join the briefs in `outcomes` into one page with each heading once."""
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
    """Merge the answers in `outcomes`, in the order of the history, into one proposal. It has the model's choices and
    brief, or the rules' own where the model has none, and the facts of both. `failed`: outcomes of earlier questions
    without an answer, as their cost counts, too; `notes`: reasons why other questions were not asked.

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
    last = outcomes[-1].reading  # only the last question asks for the brief of the whole history
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
    """Return the fields of a `Provenance` on what planner models have read, in earlier plans and now: the number of
    turns up to the newest one read, without the last turn, as it may not be answered yet; and ids of skipped ones."""
    read, _ = read_and_new(request, earlier_plan(request))
    read_numbers = {turn.turn.number for turn in read}
    read_numbers.update(*(outcome.reading.asked for outcome in outcomes if outcome.reading))
    last = min(max(read_numbers), len(request.evidence.turns) - 1)
    unread = tuple(f"t{number}" for number in range(1, last) if number not in read_numbers)
    return {"read_turns": last, "unread_turns": unread}


# Relayed questions. Planning raises `Unanswered` with the questions that have no answer yet, another program asks them,
# and planning is started again with the answers. A question with an unusable answer is not asked again.


@dataclass(frozen=True)
class RelayedQuestion:
    """Question to a model that another program sends, because only that program has a login."""

    via: Literal["fork", "complete"]
    """Way to ask: ``fork`` adds the prompt to a copy of the agent's conversation, ``complete`` sends it separately."""
    prompt: str
    system: str = ""
    model: str = ""
    """Model to ask; empty for the agent's."""
    max_tokens: int = 0
    """Output limit of the answer; 0 leaves it to the program that asks."""

    @property
    def id(self) -> str:
        """Id of the question, made from its content, so that an answer is found when planning starts again."""
        content = "\0".join((self.via, self.model, self.system, self.prompt))
        return f"{self.via}-{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:16]}"


@dataclass(frozen=True)
class RelayedAnswer:
    """Answer to a question that another program sent to a model."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    failure: str = ""
    """Reason why there is no answer; empty if there is one."""


class Unanswered(BaseException):
    """Signal that planning stops until another program has asked `questions`; then it starts again with their answers.
    It is not an error, so it is no `Exception`: code that catches errors to plan by rules instead must let it pass."""

    def __init__(self, questions: Sequence[RelayedQuestion]) -> None:
        """Store the questions that have no answer yet."""
        super().__init__(f"{len(questions)} questions")
        self.questions = tuple(questions)


@dataclass(frozen=True)
class RelayedPlanner:
    """Planner for a program that has no key: another program, with a login, asks the model and passes the answers here.
    Raises `Unanswered` with the questions that have no answer yet."""

    answers: Mapping[str, RelayedAnswer] | Sequence[str]
    """Answers by the id of their question; or recorded texts, one for each of `rendered_prompts`, in order."""
    model: str = ""
    """Model for questions with cards; empty for `DEFAULT_MODEL`."""
    agent_model: str = ""
    """Agent's own model, which answers if the question is added to a copy of the agent's conversation."""
    prefix_tokens: int = 0
    """Size of the agent's conversation, if the question is to be added to a copy of it; 0 to ask with cards."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the choices in the answers about ``request.history``; rules judge the turns that they leave out.

        Raises:
            Unanswered: questions have no answer yet.
            PlannerUnavailable: no answer is usable, or a question has no recorded one.
        """
        return _asked_proposal(request, load_prompts(), self._after_prefix, self._by_cards)

    def _after_prefix(self, basis: QuestionBasis, prompts: Prompts) -> AskedOutcome | str:
        """Let another program ask in a copy of the agent's conversation (see `AskAfterPrefix`)."""
        if not self.prefix_tokens:  # there is no conversation to copy
            return ""
        request, question = basis.request, RelayedQuestion("fork", prefix_question(basis, prompts))
        new, cached = request.counter.text(question.prompt), self.prefix_tokens
        if why_not := _over_limit(request, lambda: Usage(input_tokens=new, cache_read_input_tokens=cached, requests=1)):
            return why_not
        (answer,) = self._answers([question])
        everything = Scope(list(request.evidence.turns.values()))
        return _outcome(answer, everything, request, self.agent_model, "not answered after the agent's prefix")

    def _by_cards(self, questions: Sequence[Question], basis: QuestionBasis, prompts: Prompts) -> list[AskedOutcome]:
        """Return the outcomes of `questions` with cards, by the recorded or relayed answers."""
        request, model = basis.request, self.model or DEFAULT_MODEL
        most_tokens = request.settings.max_output_tokens
        recorded = None if isinstance(self.answers, Mapping) else iter(self.answers)
        if recorded is not None and len(self.answers) != len(questions):
            counts = f"{len(self.answers)} for {len(questions)} questions"
            raise PlannerUnavailable(f"recorded answers: {counts}: record them again")

        def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
            relayed = [
                RelayedQuestion("complete", question.text(prompts, notes), question.system(prompts), model, most_tokens)
                for question in some
            ]
            if recorded is None:
                answers = self._answers(relayed)
            else:
                answers = [_recorded_answer(question, next(recorded), request) for question in relayed]
            problem = f"planner model {model}: no answer for"
            return [
                _outcome(answer, question.scope, request, model, f"{problem} {question.scope.name}")
                for question, answer in zip(some, answers, strict=True)
            ]

        return _outcomes_in_order(questions, ask, basis)

    def _answers(self, questions: Sequence[RelayedQuestion]) -> list[RelayedAnswer]:
        """Return the answer to each of `questions`; raise `Unanswered` with those that have none."""
        known = self.answers if isinstance(self.answers, Mapping) else {}
        missing = [question for question in questions if question.id not in known]
        if missing:
            raise Unanswered(missing)
        return [known[question.id] for question in questions]


def _recorded_answer(question: RelayedQuestion, text: str, request: PlanRequest) -> RelayedAnswer:
    """Return a recorded `text` as the answer to `question`, with estimated tokens, as nothing was sent."""
    count = request.counter.text
    read = count(question.system) + count(question.prompt)
    return RelayedAnswer(text, Usage(input_tokens=read, output_tokens=count(text), requests=1))


def _outcome(answer: RelayedAnswer, scope: Scope, request: PlanRequest, model: str, problem: str) -> AskedOutcome:
    """Return the usable parts of `answer`, or an error with the text `problem` if there are none."""
    reading = None if answer.failure else read_answer(answer_in(answer.text), scope, request.now)
    if reading is not None and reading.is_usable:
        return AskedOutcome(reading, answer.usage, model, reading.notes(scope))
    error = PlannerUnavailable(f"{problem} ({answer.failure})" if answer.failure else problem, answer.usage)
    return AskedOutcome(None, answer.usage, model, (str(error),), error)


def rendered_prompts(request: PlanRequest, answers: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the text of each question that a planner model would be asked for `request`: system prompt, then message.
    A person can then ask a model by hand. `answers`: answers to all questions but the last one, which contains the
    briefs from them."""
    prompts, basis = load_prompts(), QuestionBasis.of(request)
    texts, next_answers = list[str](), iter(answers)

    def ask(some: Sequence[Question], notes: str) -> list[AskedOutcome]:
        texts.extend(f"{question.system(prompts)}\n\n{question.text(prompts, notes)}" for question in some)
        read = [read_answer(answer_in(next(next_answers, "")), question.scope, request.now) for question in some]
        return [AskedOutcome(reading, Usage()) for reading in read]

    questions, _ = plan_questions(basis, prompts)
    if questions:
        _outcomes_in_order(questions, ask, basis)
    return tuple(texts)
