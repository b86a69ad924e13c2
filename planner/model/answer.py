"""The planner model's answer: its schema, and what of it can be used against the turns it speaks of.

An answer is untrusted. What cannot be used is named, one problem a line, so that the model can mend it; what
can be used stands beside it, so that a last answer with a few mistakes is not thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.model.entries import (
    BEST_SCORE,
    ENTRY_FORM,
    FACT_FORM,
    FactEntry,
    Range,
    TurnEntry,
    read_entry,
    read_fact,
)
from planner.model.scope import Scope, spans
from planner.plan import ExtractedFact
from planner.proposal import TurnProposal

__all__ = ["Answer", "Reading", "answer_model", "read_answer"]

MOST_PROBLEMS = 12
"""Problems sent back at once; a model mends the kind, not each one."""
REASON_CHARACTERS, GIST_CHARACTERS = 120, 600
SCORE_WEIGHTS = (0.42, 0.5, 0.59, 0.71, 0.84, 1.0, 1.19, 1.41, 1.68, 2.0)
"""What a turn's lines are worth in the fit, against what the evidence alone says, by its score: 2 to the power
of (score - 5) / 4. Of spreads from 1 to 6 this kept most of what agents needed later; models overrate."""


class Answer(BaseModel):
    """The plan for the turns shown."""

    model_config = ConfigDict(title="Answer", extra="ignore")

    need: str = Field(default="", description="Where the work stands and what comes next, under 30 words")
    turns: list[str] = Field(description=f"One entry a turn or run of turns: {ENTRY_FORM}")
    rest: str = Field(default="", description="Strategy and score of every turn not named: 'reference 1'")
    facts: list[str] = Field(default_factory=list, description=f"One entry a fact: {FACT_FORM}")


def answer_model(scope: Scope) -> type[Answer]:
    """`Answer` that is valid only if all of it can be used for `scope`.

    The scope is held by the class and not passed as instructor's ``context``, which would also be used to
    render the messages as Jinja templates: a history with ``{{`` in it must reach the model as it is.
    """

    class Checked(Answer):
        @model_validator(mode="after")
        def _usable(self) -> Checked:
            problems = read_answer(self, scope, 0.0).problems
            if problems:
                more = len(problems) - MOST_PROBLEMS
                listed = [f"- {problem}" for problem in problems[:MOST_PROBLEMS]]
                raise ValueError("\n".join([*listed, *([f"- and {more} more"] if more > 0 else [])]))
            return self

    Checked.__name__ = Checked.__qualname__ = "Answer"
    Checked.__doc__ = Answer.__doc__
    return Checked


@dataclass
class Reading:
    """What of an answer can be used, and what cannot."""

    turns: dict[str, TurnProposal] = field(default_factory=dict)
    facts: list[ExtractedFact] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    wrong_entries: int = 0

    @property
    def mostly_usable(self) -> bool:
        """True if at most half of the entries have a problem, and some turns are ranked."""
        return bool(self.turns) and 2 * self.wrong_entries <= self.entries


def read_answer(answer: Answer, scope: Scope, now: float) -> Reading:
    """What `answer` says of the turns of `scope`; `now` stamps the facts, in seconds since the epoch."""
    reading = Reading(entries=len(answer.turns) + len(answer.facts))
    named: dict[int, TurnEntry] = {}
    for form in answer.turns:
        entry = read_entry(form)
        problems = list(_entry_problems(entry, scope, named))
        _note(reading, form, problems)
        usable = entry and _usable(entry, scope)
        if usable:
            alone = usable.first == usable.last
            named |= {n: usable for n in _covered(usable, scope) if alone or n not in named}
    for form in answer.facts:
        fact = read_fact(form)
        problems = list(_fact_problems(fact, scope))
        _note(reading, form, problems)
        if fact is not None and not problems:
            reading.facts.append(_fact(fact, scope, now))
    _add_rest(reading, answer.rest, named, scope)
    reading.turns = {f"t{n}": _proposal(n, entry) for n, entry in sorted(named.items())}
    return reading


def _note(reading: Reading, form: str, problems: list[str]) -> None:
    reading.wrong_entries += bool(problems)
    short = form if len(form) <= 70 else form[:69] + "…"
    reading.problems += [f'"{short}": {problem}' for problem in problems]


def _covered(entry: TurnEntry, scope: Scope) -> Iterator[int]:
    return (n for n in range(entry.first, entry.last + 1) if n in scope.to_plan)


def _usable(entry: TurnEntry, scope: Scope) -> TurnEntry | None:
    """`entry` without what cannot be used of it; None if nothing can."""
    known = entry.first in scope.by_number and entry.last in scope.by_number and entry.first <= entry.last
    if not known or entry.strategy != "summarize":
        return entry if known else None
    if entry.first != entry.last:
        return replace(entry, strategy=None, text="")
    last = len(scope.by_number[entry.first].lines)
    lines = tuple((low, min(high, last)) for low, high in entry.lines if 1 <= low <= min(high, last))
    text = "" if scope.invented(entry.text, entry.first) else entry.text
    return replace(entry, strategy="summarize" if lines or text else None, lines=lines, text=text)


def _entry_problems(entry: TurnEntry | None, scope: Scope, named: dict[int, TurnEntry]) -> Iterator[str]:
    if entry is None:
        yield f"not an entry; write {ENTRY_FORM}"
        return
    if entry.first > entry.last:
        yield f"the run is the wrong way round; write t{entry.last}-t{entry.first}"
        return
    unknown = {entry.first, entry.last} - scope.by_number.keys()
    if unknown:
        yield f"there is no {spans(unknown)}; the turns are {scope.name}"
        return
    if entry.first != entry.last:
        if entry.strategy == "summarize":
            yield "lines and gists belong to one turn; write one entry a turn"
        return
    earlier = named.get(entry.first)
    if earlier is not None and earlier.first == earlier.last:
        yield f"t{entry.first} is named twice; write one entry"
    yield from _range_problems(entry.first, entry.lines, scope)
    if entry.strategy == "summarize":
        yield from _summary_problems(entry, scope)


def _range_problems(number: int, lines: tuple[Range, ...], scope: Scope) -> Iterator[str]:
    last = len(scope.by_number[number].lines)
    for low, high in lines:
        if low > high:
            yield f"lines {low}-{high} are the wrong way round"
        elif low < 1 or high > last:
            yield f"lines {low}-{high}: t{number} has lines 1-{last}"


def _summary_problems(entry: TurnEntry, scope: Scope) -> Iterator[str]:
    if not entry.lines and not entry.text:
        yield "summarize needs lines to keep, or a gist behind |"
    invented = scope.invented(entry.text, entry.first)
    if invented:
        yield f"the gist names {', '.join(invented)}, which t{entry.first} does not hold; leave it out"


def _fact_problems(fact: FactEntry | None, scope: Scope) -> Iterator[str]:
    if fact is None:
        yield f"not a fact; write {FACT_FORM}"
        return
    if fact.turn not in scope.by_number:
        yield f"there is no t{fact.turn}; the turns are {scope.name}"
        return
    invented = scope.invented(fact.text, fact.turn)
    if invented:
        yield f"names {', '.join(invented)}, which t{fact.turn} does not hold; leave it out"
    wrong_lines = list(_range_problems(fact.turn, fact.lines, scope))
    yield from wrong_lines
    if fact.type != "constraint":
        return
    if not fact.quote and not fact.lines:
        yield "a constraint needs the lines that hold the user's words, or the words behind a second |"
    if fact.quote and fact.quote not in scope.text(fact.turn):
        yield f"these are not the words of t{fact.turn}; point at its lines instead"


def _add_rest(reading: Reading, rest: str, named: dict[int, TurnEntry], scope: Scope) -> None:
    """Give every turn not named the stated rest, or name the gap."""
    missing = scope.to_plan - named.keys()
    entry = read_entry(f"t1 {rest.strip()}") if rest.strip() else None
    if rest.strip() and (entry is None or entry.lines or entry.strategy == "summarize"):
        reading.problems.append(f'rest "{rest[:40]}": write keep, reference or drop and a score: reference 1')
    elif entry is not None:
        named |= dict.fromkeys(missing, entry)
    elif missing:
        reading.problems.append(f"no entry covers {spans(missing)}; add them, or give a rest")


def _proposal(number: int, entry: TurnEntry) -> TurnProposal:
    summarized = entry.strategy == "summarize"
    return TurnProposal(
        turn_id=f"t{number}",
        score=entry.score / BEST_SCORE,
        reason=" ".join(entry.text.split())[:REASON_CHARACTERS],
        strategy=entry.strategy,
        summary=entry.text[:GIST_CHARACTERS] if summarized else "",
        excerpts=entry.lines if summarized else (),
        failed_approach=entry.failed,
    )


def _fact(fact: FactEntry, scope: Scope, now: float) -> ExtractedFact:
    quote = (fact.quote or scope.words(fact.turn, fact.lines)) if fact.type == "constraint" else ""
    return ExtractedFact(
        type=fact.type, content=fact.text, quote=quote, source=f"t{fact.turn}", timestamp=max(0.0, now)
    )
