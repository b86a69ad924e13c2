"""Plans by rules, without a model: ranks the turns by what was read from them, and writes the page of memory (brief).

It works offline and is deterministic. All its words are taken from the turns, so that they are true. Its ranking also
fills the space that a model's plan leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from sys import intern

from planner.brief import Heading, PageStatement, brief_text, check_brief
from planner.evidence.effects import Effect, by_weight, effects, open_calls, task_lists, unanswered_questions
from planner.evidence.hosts import Choice, introduces, is_question, without_boilerplate
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, shortened
from planner.later_plans import carried_on
from planner.plan import ExtractedFact, FactType, PlanRequest, Proposal, Provenance, TurnProposal, earlier_plan
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import statements, text_width

CITED_TURNS = 3
"""Largest number of turns that a statement on the page of memory cites; of more turns the last ones are cited."""
MOST_PAGES = 8
"""Largest number of addresses of web pages on the page of memory."""
RECORD_FORMS = (1.0, 0.5, 0.25)
"""Lengths of the texts in the list of effects, as shares of the longest one. They are tried in order until all fit."""
WORDS_CHARACTERS = 80
"""Largest length of words of the user that a statement on the page of memory quotes."""
LEFT_TURNS = 10
"""Number of turns after the answer to a request from which tasks that were listed for it count as abandoned."""
LEAST_DEMAND = 24
"""Smallest width (`text_width`) of a sentence of the user that may be a demand and so is kept as a fact."""
FACT_CHARACTERS = 200
"""Largest length of a fact that rules extract. One on failures or packages is cut, a longer decision left out; demands
of the user and paths stay whole."""

_DECISION = lazy_pattern(
    r"\b(?:decided|decision|I'll (?:use|go with|keep)|let's (?:use|go with)|going with|chose|we(?:'ll| will) use)\b",
    re.I,
)
"""Words by which the agent reports a decision: ``I'll use``."""


class RulesPlanner:
    """Planner without a model. Content that is likely needed again, failures and the user's words rank high, outdated
    content low."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Score every turn of ``request.history``, but choose no strategy: the best lines of all turns fill the space.
        If a model has planned the session before, its page of memory and choices stay; rules add the later turns."""
        ranks = _ranks({turn_id: request.relevance.of_turn(turn_id) for turn_id in request.evidence.turns})
        turns = {turn_id: _judged(turn, ranks[turn_id], request) for turn_id, turn in request.evidence.turns.items()}
        proposal = Proposal(turns, Provenance(planner="rules"), _facts(request), rules_brief(request.evidence))
        earlier = earlier_plan(request)
        return proposal if earlier is None else carried_on(proposal, earlier)


def _ranks(values: dict[str, float]) -> dict[str, float]:
    """Rank the keys of `values` by their values, and return the rank of each as a number from 0 to 1: 1 for the largest
    value, close to 0 for the smallest."""
    ordered = sorted(values, key=lambda key: (values[key], key))
    return {key: round(place / len(ordered), 2) for place, key in enumerate(ordered, 1)}


def _judged(turn: TurnEvidence, rank: float, request: PlanRequest) -> TurnProposal:
    """Return the score of `turn` and its reason, by the first case that applies. `rank`: rank of its relevance among
    all turns, from 0 to 1."""
    turn_id = turn.turn.id
    if turn.turn.live:
        score, reason = 1.0, "not answered yet"
    elif turn.failed:
        score, reason = max(rank, 0.6), "failed approach"
    elif turn.typed_lines:
        score, reason = max(rank, 0.8), "the user's own words"
    elif turn.superseded_by:
        score, reason = rank / 2, f"done again at {turn.superseded_by}"
    elif request.focus and request.relevance.turn_weights.get(turn_id, 1.0) > 2:
        score, reason = max(rank, 0.9), "in focus"
    else:
        score, reason = rank, _reason(turn, rank)
    return TurnProposal(turn_id, score, reason, failed_approach=turn.failed)


def _reason(turn: TurnEvidence, rank: float) -> str:
    """Return the reason for a turn's score if only its `rank` decides: ``findings likely needed again``."""
    kinds = {call.kind for call in turn.calls}
    content = "changes" if "write" in kinds else "findings" if kinds else "words"
    return intern(f"{content} likely needed again" if rank >= 0.5 else f"{content} unlikely to be needed")


def _facts(request: PlanRequest) -> tuple[ExtractedFact, ...]:
    """Return the facts in all turns. Of several facts with the same type and content, only the last is returned."""
    facts: dict[tuple[FactType, str], ExtractedFact] = {}
    for turn_id, turn in request.evidence.turns.items():
        for kind, content in turn.once(_facts_of):
            quote = content if kind == "constraint" else ""
            facts.pop((kind, content), None)
            facts[kind, content] = ExtractedFact(
                type=kind, content=content, quote=quote, source=turn_id, timestamp=request.now
            )
    return tuple(facts.values())


def _facts_of(turn: TurnEvidence) -> tuple[tuple[FactType, str], ...]:
    """Return the type and content of each fact in `turn`: demands of the user, failures, changed files, installed
    packages, and decisions of the agent."""
    facts: list[tuple[FactType, str]] = [("constraint", text) for text in demands_in(turn)]
    for failed_line in turn.statements_of(turn.failure_lines):
        text = failed_line.text.strip()
        cut_text = text if len(text) <= FACT_CHARACTERS else text[:FACT_CHARACTERS].rpartition(" ")[0]
        if cut_text:  # cut between words, as half a name would count as made up
            facts.append(("error", cut_text))
    for call in turn.calls:
        if call.kind == "write" and call.path and not call.is_error:
            facts.append(("file_state", call.path))
        if call.reading.installs and not call.is_error:
            facts.append(("dependency", call.reading.installs[:FACT_CHARACTERS]))
    return (*facts, *(("decision", text) for text in decisions_in(turn)))


def demands_in(turn: TurnEvidence) -> Iterator[str]:
    """Yield the user's sentences that may be demands: long enough, no questions, no announcements of a list."""
    for statement in statements(line for line in turn.typed_lines if line.source == "user"):
        text = statement.text.strip()
        if text_width(text) >= LEAST_DEMAND and not (is_question(text) or introduces(text)):
            yield text


def decisions_in(turn: TurnEvidence) -> Iterator[str]:
    """Yield the short lines of the agent that report a decision, such as ``I'll use a queue``."""
    for line in turn.lines.of_part("assistant"):
        if _DECISION.search(line.text) and len(line.text) <= FACT_CHARACTERS:
            yield line.text.strip()


def rules_brief(evidence: Evidence) -> str:
    """Write the page of memory by rules: requests, state, effects, facts and open tasks, with the newest statements
    first except for addresses of reviews and for tasks. Failures, and words of the user other than requests, are left
    out, as the texts in place of their turns show them in context. Each statement cites turns that contain all its
    names."""
    request, record = latest_request(evidence), list(evidence.record)
    sections: dict[Heading, list[RecordLine]] = {
        "REQUEST": [request] if request else [],
        "STATE": [line for line in record if line.heading == "STATE"],
        "FACTS": [*(line for line in record if line.heading == "FACTS"), *urls(evidence)[:MOST_PAGES]],
        "NEXT": open_tasks(evidence),
    }
    page = [
        PageStatement(heading, " ".join(line.text.split()), line.turn_ids[-CITED_TURNS:])
        for heading, lines in sections.items()
        for line in {line.text: line for line in lines}.values()  # lines with distinct texts
    ]
    sound, _ = check_brief(brief_text([*page, *evidence.once(effects_records)[0]]), evidence)
    return sound


def effects_records(evidence: Evidence) -> list[list[PageStatement]]:
    """Return the statements on pending calls, and then on effects (changes of the outside world) in the order of
    `by_weight`, in several forms, so that the longest that fits can be chosen: for each of `RECORD_FORMS`, the text of
    each effect is cut to that share of its greatest length."""
    ordered, pending = by_weight(evidence.once(effects)), evidence.once(_pending)
    return [[*pending, *(_effect_statement(effect, share) for effect in ordered)] for share in RECORD_FORMS]


def _effect_statement(effect: Effect, share: float) -> PageStatement:
    """Return the statement on `effect`, with its text cut to `share` of its greatest length."""
    turn_ids = tuple(dict.fromkeys(effect.turn_ids))
    return PageStatement("EFFECTS", effect.text(share), turn_ids[-CITED_TURNS:])


def _pending(evidence: Evidence) -> list[PageStatement]:
    """Return the statements on pending calls and questions."""
    waiting = [*open_calls(evidence), *unanswered_questions(evidence)]
    return [PageStatement("PENDING", " ".join(text.split()), (turn_id,)) for turn_id, text in waiting]


def latest_request(evidence: Evidence) -> RecordLine | None:
    """Return a statement with the last words that the user typed, and with the option or question of the agent that
    they answer, if any. None if there are no words, or if they are unanswered and so stay whole."""
    for turn in reversed(evidence.turns.values()):
        if turn.turn.live and turn.user_lines:
            return None
        if turn.choice is not None:
            return _chosen(turn, turn.choice)
        if words := _last_typed(turn):
            answered = f", replied at {turn.answered_at}" if turn.answered_at else ""
            return RecordLine(f"“{shortened(words, WORDS_CHARACTERS)}”{answered}", (turn.turn.id,))
    return None


def _chosen(turn: TurnEvidence, choice: Choice) -> RecordLine:
    """Return a statement with the user's reply in `turn` and the option or question that it answers: ``“yes” to: Shall
    I deploy?``"""
    words = _plain_lines(statement.text for statement in statements(turn.user_lines))
    text = f"“{shortened(words, WORDS_CHARACTERS)}” to: {shortened(choice.text)}"
    return RecordLine(text, (choice.turn_id, turn.turn.id))


def _last_typed(turn: TurnEvidence) -> str:
    """Return the last text block that the user mostly typed in `turn`; if they pasted all, the last block."""
    sent = [line for line in turn.user_lines if line.part == "user"]
    blocks = [[*lines] for _, lines in groupby(sent, key=attrgetter("block"))]
    pasted = {line.number for line in sent} - {line.number for line in turn.typed_lines}
    typed_blocks = [
        lines
        for lines in blocks
        if 2 * turn.tokens_of(pasted.intersection(line.number for line in lines))
        <= turn.tokens_of(line.number for line in lines)
    ]
    last_block = next(reversed(typed_blocks or blocks), [])
    return _plain_lines(statement.text for statement in statements(last_block))


def _plain_lines(texts: Iterable[str]) -> str:
    """Return `texts` as lines, without the fixed sentences of host programs."""
    return "\n".join(filter(None, map(without_boilerplate, texts))).strip()


_URL = lazy_pattern(r"https?://[^\s\"'<>`|\\^{}\[\]()]{4,300}")
_REVIEW = lazy_pattern(
    r"https?://[^\s\"'<>`()\[\]]{4,200}/(?:pull|pulls|issues|merge_requests|-/merge_requests)/\d{1,9}"
)
"""Address of a pull request or an issue: ``https://host/a/b/pull/7``."""


def urls(evidence: Evidence) -> list[RecordLine]:
    """Return the addresses of pull requests and issues, and then of web pages that the agent wrote, the newest first,
    as statements with the turns that have them."""
    turns_of_urls: dict[str, list[str]] = {}
    for turn in evidence.turns.values():
        for url in turn.once(_urls):
            turns_of_urls.setdefault(url, []).append(turn.turn.id)
    pages = [RecordLine(url, tuple(ids)) for url, ids in reversed(turns_of_urls.items())]
    return sorted(pages, key=lambda page: _REVIEW.fullmatch(page.text) is None)


def _urls(turn: TurnEvidence) -> tuple[str, ...]:
    """Return the distinct addresses of pull requests and issues in `turn`, and of the pages that the agent wrote there,
    unless something failed in the turn: the page may be missing."""
    numbers = {number for outcome in turn.outcomes for number in outcome.lines}
    written = [*turn.lines.of_sources("agent", "planner")]
    shown = {*written, *turn.lines.of_sources("user"), *turn.lines.numbered(numbers)}
    reviews = (match[0] for line in sorted(shown) for match in _REVIEW.finditer(line.text))
    found = (url for line in written if not turn.decisive_lines for url in _URL.findall(line.text))
    pages = (url.rstrip(".,:;!?*") for url in found if not _REVIEW.match(url))
    return tuple(dict.fromkeys((*reviews, *pages)))


def open_tasks(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each open task in the agent's task lists: ``Fix the race (pending)``. Tasks that were
    abandoned are left out."""
    turns, lines = list(evidence.turns.values()), list[RecordLine]()
    for task in chain.from_iterable(evidence.once(task_lists)):
        if task.is_open and not _is_abandoned(turns, evidence.turns[task.turn_id].turn.number - 1):
            number = f"Task #{task.number}: " if task.number else ""
            lines.append(RecordLine(f"{number}{shortened(task.text)} ({task.status})", (task.turn_id,)))
    return lines


def _is_abandoned(turns: Sequence[TurnEvidence], index: int) -> bool:
    """Return True if the tasks that the turn at `index` lists are abandoned: the agent has answered the request before
    them, at this turn or later, and at least `LEFT_TURNS` turns have passed since the answer."""
    request = next((turn for turn in reversed(turns[:index]) if turn.user_lines), None)
    if request is None or not request.answered_at:
        return False
    answer_index = next(at for at, turn in enumerate(turns) if turn.turn.id == request.answered_at)
    return index <= answer_index < len(turns) - LEFT_TURNS
