"""The rules planner: ranks turns by evidence alone, offline and deterministic.

Its words are extracts of the turns, so they are true; the model planner's gaps are filled from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from planner.brief import Heading, Statement, brief_text
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.conclusions import conclusions
from planner.evidence.names import specifics_of
from planner.evidence.state import (
    Said,
    branches,
    changed_files,
    check_outcomes,
    choices,
    commands,
    commits,
    latest_request,
    open_items,
    remedies,
    urls,
    user_messages,
)
from planner.plan import ExtractedFact, FactType, Provenance
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.patterns import lazy_pattern

__all__ = ["RulesPlanner"]

CONCLUSION_CHARACTERS = 600
"""So much of what the agent said last opens the state of the work."""
CITED_TURNS = 3
"""A statement cites at most the last so many of its turns."""
PROSE_SHARE, PROSE_BASE = 0.35, 0.5
"""The page is filled with words up to this share of the target; a sentence without names is worth half a sure one."""
MOST_PAGES = 8
"""At most so many pages in all."""
FACT_CHARACTERS = 200
"""Facts that rules extract are single lines; longer ones are left where they stand."""

_DECISION = lazy_pattern(
    r"\b(?:decided|decision|I'll (?:use|go with|keep)|let's (?:use|go with)|going with|chose|we(?:'ll| will) use)\b",
    re.I,
)
_INSTALL = lazy_pattern(
    r"\b(?:pip3? install|uv (?:add|pip install)|npm (?:i|install|add)|yarn add|pnpm add|bun add|cargo add|go get|"
    r"apt(?:-get)? install|brew install|poetry add|gem install)\b[^&|;\n]*"
)


class RulesPlanner:
    """Ranks by what a turn holds that is likely needed again, by failures, user words and what is outdated."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank every turn of ``request.history``; no strategies, so that all lines compete for the space."""
        ranks = _ranks({turn_id: request.relevance.of_turn(turn_id) for turn_id in request.evidence.turns})
        turns = {turn_id: _judged(turn, ranks[turn_id], request) for turn_id, turn in request.evidence.turns.items()}
        facts = [fact for turn in request.evidence.turns.values() for fact in _facts(turn, request.now)]
        return Proposal(turns, Provenance(planner="rules"), _newest(facts), rules_brief(request))


def _newest(facts: Sequence[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Of facts that say the same, the last."""
    latest = {(fact.type, fact.content): at for at, fact in enumerate(facts)}
    return tuple(facts[at] for at in sorted(latest.values()))


def _ranks(values: dict[str, float]) -> dict[str, float]:
    """Each key's place in the order of values, 0 the least and 1 the most."""
    ordered = sorted(values, key=lambda key: (values[key], key))
    return {key: round((at + 1) / len(ordered), 2) for at, key in enumerate(ordered)}


def _judged(turn: TurnEvidence, rank: float, request: PlanRequest) -> TurnProposal:
    turn_id = turn.turn.id
    if turn.turn.live:
        return TurnProposal(turn_id, 1.0, "not answered yet")
    if turn.failed:
        return TurnProposal(turn_id, max(rank, 0.6), "failed approach", failed_approach=True)
    if turn.constraint_lines:
        return TurnProposal(turn_id, max(rank, 0.8), "the user's own words")
    if turn.superseded_by:
        return TurnProposal(turn_id, rank / 2, f"done again at {turn.superseded_by}")
    if request.relevance.turn_weights.get(turn_id, 1.0) > 1:
        return TurnProposal(turn_id, max(rank, 0.7), "in focus")
    return TurnProposal(turn_id, rank, _reason(turn, rank))


def _reason(turn: TurnEvidence, rank: float) -> str:
    kinds = {call.kind for call in turn.calls}
    what = "changes" if "write" in kinds else "findings" if kinds else "words"
    return f"{what} likely needed again" if rank >= 0.5 else f"{what} unlikely to be needed"


def _facts(turn: TurnEvidence, now: float) -> Iterator[ExtractedFact]:
    def fact(kind: FactType, content: str, quote: str = "") -> ExtractedFact:
        return ExtractedFact(type=kind, content=content, quote=quote, source=turn.turn.id, timestamp=now)

    for said in turn.statements_of(turn.constraint_lines):
        if said.source == "user":
            yield fact("constraint", said.text.strip(), said.text.strip())
    for said in turn.statements_of(turn.failure_lines):
        text = said.text.strip()
        whole = text if len(text) <= FACT_CHARACTERS else text[:FACT_CHARACTERS].rpartition(" ")[0]
        if whole:  # a name cut in two would be one that the turn does not hold
            yield fact("error", whole)
    for call in turn.calls:
        if call.kind == "write" and call.path and not call.is_error:
            yield fact("file_state", call.path)
        installed = _INSTALL.search(call.command)
        if installed and not call.is_error:
            yield fact("dependency", installed.group().strip()[:FACT_CHARACTERS])
    for line in turn.lines:
        if line.part == "assistant" and _DECISION.search(line.text) and len(line.text) <= FACT_CHARACTERS:
            yield fact("decision", line.text.strip())


def rules_brief(request: PlanRequest) -> str:
    """The page of memory as far as the record itself tells it: the newest first under each heading.

    What failed and what the user demands is pinned, so it stands in the entries of its turns and not here again, but
    for causes. What the record states comes first; where it leaves room, the words of the user and of the agent.
    """
    evidence = request.evidence
    wanted = latest_request(evidence)
    sections: dict[Heading, list[Said]] = {
        "REQUEST": [*([wanted] if wanted else []), *reversed(choices(evidence))],
        "STATE": [*_conclusion(evidence), *reversed(check_outcomes(evidence)), *reversed(changed_files(evidence))],
        "FAILED": list(reversed(remedies(evidence))),
        "FACTS": [
            *(Said(f"branch {one.text}", one.turn_ids) for one in reversed(branches(evidence))),
            *reversed(commits(evidence)),
            *_pages(evidence),
            *reversed(commands(evidence)),
        ],
        "NEXT": open_items(evidence),
    }
    page = [
        Statement(heading, " ".join(one.text.split()), one.turn_ids[-CITED_TURNS:])
        for heading, listed in sections.items()
        for one in {said.text: said for said in listed}.values()
    ]
    return brief_text([*page, *_words_that_fit(request, page)])


def _words_that_fit(request: PlanRequest, page: Sequence[Statement]) -> Iterator[Statement]:
    """What the user and the agent said, in turns the newest first, as far as the page has room."""
    counter, evidence = request.counter, request.evidence
    most = PROSE_SHARE * request.target_tokens / counter.scale
    left = most - sum(counter.raw(statement.line + "\n") for statement in page)
    there = " ".join(statement.text for statement in page)
    users = [Statement("REQUEST", one.text, one.turn_ids) for one in reversed(user_messages(evidence))]
    agents = [
        Statement("DECISIONS", " ".join(one.text.split()), one.turn_ids)
        for one in _by_worth(request, conclusions(evidence))
    ]
    for statement in chain.from_iterable(zip_longest(users, agents)):
        if statement is not None and statement.text.strip("“”…")[:60] not in there:
            left -= counter.raw(statement.line + "\n")
            if left < 0:
                return
            yield statement


def _by_worth(request: PlanRequest, sentences: Sequence[Said]) -> list[Said]:
    """Sentences by the relevance of the names in them for their length, the newest of equals first."""
    weights = request.relevance.weights
    turns = list(request.evidence.turns)

    def worth(at: int) -> float:
        said = sentences[at]
        names = sum(weights.get(name, 0.0) for name in specifics_of(said.text))
        age = len(turns) - turns.index(said.turn_ids[0])
        return (PROSE_BASE + names) / (1 + math.log1p(age)) / (20 + len(said.text))

    return [sentences[at] for at in sorted(range(len(sentences)), key=lambda at: (-worth(at), -at))]


def _conclusion(evidence: Evidence) -> list[Said]:
    """What the agent said last."""
    for turn in reversed(evidence.turns.values()):
        words = " ".join(" ".join(line.text for line in turn.lines if line.part == "assistant").split())
        if words:
            cut = "…" * (len(words) > CONCLUSION_CHARACTERS)
            return [Said(words[:CONCLUSION_CHARACTERS] + cut, (turn.turn.id,))]
    return []


def _pages(evidence: Evidence) -> list[Said]:
    """Pull requests and issues, then other pages; none that only programs read."""
    reviews = urls(evidence, reviews_only=True)
    pages = [*reversed(reviews), *reversed(urls(evidence))]
    return [said for said in pages if "//api." not in said.text and "#" not in said.text][:MOST_PAGES]
