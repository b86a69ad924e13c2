"""Reads the planner model's answer: a brief (a page of memory), entries about turns, and facts.

An entry is ``t9 summarize 6 failed 212-219,230 | Tried a mutex; deadlocked.``, a fact ``decision t12 4-5 | Keep the old
API.`` An answer is untrusted text and may be wrong anywhere: its valid parts are used, and the others are reported as
problems. A mistake in one entry does not affect others. The time to read a text is linear in its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args

from propcache.api import cached_property
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import from_json

from planner.evidence import TurnEvidence
from planner.evidence.grounding import invented
from planner.placeholders import ranges_of
from planner.plan import ExtractedFact, FactType, Strategy, TurnProposal
from planner.reading.lines import join_lines

MOST_ANSWER_CHARACTERS = 400_000
"""Number of characters of a model's answer that are read: twelve times the longest allowed answer."""
MOST_PROBLEMS = 12
"""Largest number of mistakes that are reported to the model at once: it corrects kinds of mistakes, not each one."""
REASON_CHARACTERS, GIST_CHARACTERS = 120, 600
"""Lengths to which the model's reason for a choice, and its summary of a turn, are cut."""
BEST_SCORE: Final = 9
"""Relevance that a model writes for a turn which must stay; the lowest is 0."""
DEFAULT_SCORES: dict[Strategy, int] = {"keep": 7, "summarize": 5, "reference": 2, "drop": 0}
"""Relevance of a turn for which the model wrote a strategy but no score, by that strategy."""

ENTRY_FORM = "t<turn>[-t<turn>][,…] keep|summarize|reference|drop <0-9> [failed] [<line>[-<line>],…] [| gist]"
FACT_FORM = "decision|error|file_state|dependency|constraint t<turn> [<line>[-<line>],…] | text"


class Range(NamedTuple):
    """Run of turns or lines, by the numbers of the first and the last one: (3, 7) for ``t3-t7``."""

    first: int
    last: int


class PlanAnswer(BaseModel):
    """Plan for the turns on the cards."""

    model_config = ConfigDict(title="Answer", extra="ignore")

    brief: list[str] = Field(
        default_factory=list, description="The page of memory, a line a string: headings, and '- statement (t9, t14)'"
    )
    turns: list[str] = Field(default_factory=list, description=f"One entry a turn or run of turns: {ENTRY_FORM}")
    facts: list[str] = Field(default_factory=list, description=f"One entry a fact: {FACT_FORM}")

    @field_validator("brief", "turns", "facts", mode="before")
    @classmethod
    def _lines(cls, value: object) -> list[str]:
        """Return the lines of a text or a list of texts; a lone surrogate, which no request can have, becomes ``?``."""
        texts = (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))
        return [line for text in texts for line in text.encode("utf-8", "replace").decode().splitlines()]


_OPENS = re.compile(r"\{\s{0,99}\"(?:brief|turns|facts)\"")
"""Beginning of an answer: ``{ "brief"``, also within another object; not ``{these}``."""


def answer_in(text: str) -> PlanAnswer:
    """Return the last answer (a JSON object) in a model's `text`, which may have other words around it and may be cut
    off. Without one, return an empty answer."""
    text = text[:MOST_ANSWER_CHARACTERS]
    start = max((match.start() for match in _OPENS.finditer(text)), default=text.find("{"))
    fields = json_in(text[start:]) if start >= 0 else None
    return PlanAnswer.model_validate(fields) if isinstance(fields, dict) else PlanAnswer()


def json_in(text: str) -> object:
    """Return the JSON value at the start of `text`; if it is cut off, its complete part; None if it is not JSON."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except json.JSONDecodeError as error:
        if error.pos < len(text.rstrip()) and not error.msg.startswith("Unterminated string"):
            return None  # the text is broken, not cut off: what is before the error may be half of a statement
    except (ValueError, RecursionError):
        return None
    try:
        return from_json(text.encode("utf-8", "replace"), allow_partial=True)
    except ValueError:
        return None


# Entries about turns, and facts, as the model writes them.


@dataclass(frozen=True)
class TurnEntry:
    """Line of a model's answer: its choice for one or more turns, such as ``t9-t12,t15 drop 0 | only greetings``."""

    runs: tuple[Range, ...]
    """Turns, by the numbers of the first and last of each run: ``((9, 12), (15, 15))``."""
    strategy: Strategy
    score: int
    failed: bool = False
    lines: tuple[Range, ...] = ()
    text: str = ""
    """Summary of the turn if the strategy is `summarize`, else the reason for the choice."""
    unread: str = ""
    """Words of the line that fit no place of `ENTRY_FORM` and are ignored."""

    @property
    def only_turn(self) -> int | None:
        """Number of the turn if the line is about a single one; None if it is about several."""
        run = self.runs[0]
        return run.first if len(self.runs) == 1 and run.first == run.last else None


@dataclass(frozen=True)
class FactEntry:
    """Line of a model's answer: a fact that a turn contains, such as ``decision t12 4-5 | Keep the old API.``"""

    type: FactType
    turn: int
    lines: tuple[Range, ...]
    """Lines of the turn that hold the user's own words, by number; a constraint needs them."""
    text: str


_NUMBER = r"(\d{1,7})"
_TURNS = re.compile(rf"t{_NUMBER}(?:-t?{_NUMBER})?")
"""``t9``, ``t15-t22``, ``t15-22``; not ``turn 9``."""
_LINES = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?")
"""``12``, ``212-219``; not ``12-``."""


def read_entry(form: str) -> TurnEntry | None:
    """Read `form`, a line of a model's answer about turns (see `ENTRY_FORM`). Return None if it has another form. The
    turns come first, then the strategy and its score; the other parts may be in any order."""
    words, text = _words_and_text(form)
    position = next((at for at, word in enumerate(words) if word in DEFAULT_SCORES), 0)
    runs, details = _ranges(_TURNS, words[:position]), words[position + 1 :]
    if len(runs) != position or not runs:
        return None
    strategy: Strategy = words[position]
    has_score = bool(details) and re.fullmatch(r"\d", details[0]) is not None
    score = int(details.pop(0)) if has_score else DEFAULT_SCORES[strategy]
    lines = _ranges(_LINES, details)
    unread = [word for word in details if word != "failed" and not _LINES.fullmatch(word)]
    strategy = "summarize" if lines else strategy  # only a summarized turn has excerpts
    return TurnEntry(runs, strategy, score, "failed" in details, lines, text, " ".join(unread))


def _words_and_text(form: str) -> tuple[list[Any], str]:
    """Split a line at the first ``|`` into its words in lower case without commas, and the text after them."""
    head, _, text = form.partition("|")
    return head.lower().replace("–", "-").replace(",", " ").split(), text.strip()


def _ranges(form: re.Pattern[str], words: Iterable[str]) -> tuple[Range, ...]:
    """Return the ranges in those `words` that match `form`: ``t3-t7`` is (3, 7), ``t9`` is (9, 9)."""
    matches = [match for word in words if (match := form.fullmatch(word))]
    return tuple(Range(int(match[1]), int(match[2] or match[1])) for match in matches)


def read_fact(form: str) -> FactEntry | None:
    """Read `form`, a line of a model's answer with a fact (see `FACT_FORM`). Return None if it has another form."""
    words, text = _words_and_text(form)
    turn = _TURNS.fullmatch(words[1]) if len(words) > 1 else None
    lines = _ranges(_LINES, words[2:])
    if turn is None or words[0] not in get_args(FactType) or not text or len(lines) != len(words) - 2:
        return None
    return FactEntry(words[0], int(turn[1]), lines, text)


# The usable parts of an answer.


@dataclass(frozen=True)
class Scope:
    """Turns that one answer of the planner model may be about; a model may name turns or lines that do not exist."""

    turns: Sequence[TurnEvidence]
    """Turns that the question shows, in order."""
    earlier: Sequence[TurnEvidence] = ()
    """Turns that an earlier plan judged; the answer may change those choices."""

    @cached_property
    def by_number(self) -> dict[int, TurnEvidence]:
        """All turns that the answer may be about, by number, also those of an earlier plan."""
        return {turn.turn.number: turn for turn in (*self.earlier, *self.turns)}

    @property
    def name(self) -> str:
        """Turns that the question shows, for people: ``t1-t50``."""
        return spans(turn.turn.number for turn in self.turns)

    def numbers_in(self, run: Range) -> Iterator[int]:
        """Yield the numbers of the turns in `run` that a plan may change: not those that the agent has not answered
        yet. The model may have swapped the ends of `run`."""
        low, high = min(run), max(run)
        return (number for number, turn in self.by_number.items() if low <= number <= high and not turn.turn.live)

    def last_line(self, number: int) -> int:
        """Return the number of the last line of turn `number`, to find line numbers that do not exist."""
        return len(self.by_number[number].lines)

    def invented(self, text: str, number: int) -> list[str]:
        """Return the names and figures in the model's `text` that turn `number` does not contain: it made them up."""
        return invented(text, self.by_number[number].names)


def spans(numbers: Iterable[int]) -> str:
    """Return turn numbers as a text: ``t1-t3, t7``."""
    return ", ".join(f"t{low}" if low == high else f"t{low}-t{high}" for low, high in ranges_of(numbers))


@dataclass
class Reading:
    """Usable parts of a model's answer, and the mistakes in the other parts."""

    brief: tuple[str, ...]
    """Lines of the brief as the model wrote them."""
    asked: frozenset[int]
    """Numbers of the turns that the question showed."""
    turns: dict[str, TurnProposal] = field(default_factory=dict)
    facts: list[ExtractedFact] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    """Number of lines about turns and facts in the answer; `wrong_entries` of them have a mistake."""
    wrong_entries: int = 0

    @property
    def is_usable(self) -> bool:
        """True if the answer has a brief, or if it judges a turn and at least half of its lines about turns and facts
        are valid. Otherwise the whole answer counts as failed."""
        return bool(self.brief) or (bool(self.turns) and 2 * self.wrong_entries <= self.entries)

    def notes(self, scope: Scope, *, cut_off: bool = False) -> tuple[str, ...]:
        """Return a note on the unused parts of the answer, for a reviewer of the plan; empty if all were used."""
        parts = ["the answer was cut off"] if cut_off else []
        if self.wrong_entries:
            parts.append(f"{self.wrong_entries} of {self.entries} entries could not be used as they were")
        parts += self.problems[:MOST_PROBLEMS]
        return (f"{scope.name}: {'; '.join(parts)}",) if parts else ()

    def count(self, form: str, problems: Sequence[str]) -> None:
        """Count `form`, a line of the answer, as correct or wrong, and record its `problems`."""
        self.entries += 1
        self.wrong_entries += bool(problems)
        short = form if len(form) <= 70 else form[:69] + "…"
        self.problems += [f'"{short}": {problem}' for problem in problems]


def read_answer(answer: PlanAnswer, scope: Scope, now: float) -> Reading:
    """Check each line of a model's `answer` against the turns of `scope`, and return the usable parts and the mistakes.
    `now` becomes the timestamp of its facts."""
    brief = tuple(line for line in answer.brief if line.strip())
    reading = Reading(brief, frozenset(turn.turn.number for turn in scope.turns))
    entries: list[TurnEntry] = []
    for form in filter(str.strip, answer.turns):
        entry = read_entry(form)
        reading.count(form, list(_entry_problems(entry, scope)) if entry else [f"not an entry; write {ENTRY_FORM}"])
        entries += [entry] if entry else []
    turns: dict[int, TurnProposal] = {}
    # an entry about one turn comes later, so that it overrides an entry about a range with that turn
    for entry in sorted(entries, key=lambda entry: entry.only_turn is not None):
        turns |= {number: _proposal(entry, number, scope) for run in entry.runs for number in scope.numbers_in(run)}
    reading.turns = {f"t{number}": proposal for number, proposal in sorted(turns.items())}
    for form in answer.facts:
        fact = read_fact(form)
        problems = list(_fact_problems(fact, scope)) if fact else [f"not a fact; write {FACT_FORM}"]
        reading.count(form, problems)
        if fact and not problems:
            lines, ranges = scope.by_number[fact.turn].lines, fact.lines if fact.type == "constraint" else ()
            quote = "\n".join(join_lines(lines[first - 1 : last]) for first, last in ranges)
            source, timestamp = f"t{fact.turn}", max(0.0, now)
            reading.facts.append(
                ExtractedFact(type=fact.type, content=fact.text, quote=quote, source=source, timestamp=timestamp)
            )
    return reading


def _proposal(entry: TurnEntry, number: int, scope: Scope) -> TurnProposal:
    """Return the proposal of `entry` for turn `number`. A summary loses its text if that has made-up names, lines that
    do not exist, and all of both if it is for several turns at once; if nothing remains, only the score is used."""
    strategy: Strategy | None = entry.strategy
    text, excerpts = entry.text, tuple[Range, ...]()
    if strategy == "summarize":
        if entry.only_turn is None or scope.invented(text, number):
            text = ""
        if entry.only_turn is not None:
            within = (Range(max(1, run.first), min(run.last, scope.last_line(number))) for run in entry.lines)
            excerpts = tuple(run for run in within if run.first <= run.last)
        strategy = "summarize" if excerpts or text else None
    return TurnProposal(
        turn_id=f"t{number}",
        score=entry.score / BEST_SCORE,
        reason=" ".join(text.split())[:REASON_CHARACTERS],
        strategy=strategy,
        summary=text[:GIST_CHARACTERS] if strategy == "summarize" else "",
        excerpts=excerpts,
        failed_approach=entry.failed,
    )


def _entry_problems(entry: TurnEntry, scope: Scope) -> Iterator[str]:
    """Yield the mistakes in `entry` as sentences that the model reads when it is asked again."""
    if entry.unread:
        yield f"{entry.unread[:40]!r} is no part of an entry"
    if unknown := {number for run in entry.runs for number in run} - scope.by_number.keys():
        yield f"there is no {spans(unknown)}; the turns are {scope.name}"
    elif (number := entry.only_turn) is not None:
        last = scope.last_line(number)
        if outside := [f"{run.first}-{run.last}" for run in entry.lines if not 0 < run.first <= min(run.last, last)]:
            yield f"lines {', '.join(outside)}: t{number} has lines 1-{last}"
        if entry.strategy == "summarize" and (made_up := scope.invented(entry.text, number)):
            yield f"the gist names {', '.join(made_up)}, which t{number} does not contain"
    elif entry.strategy == "summarize":
        yield "lines and gists belong to one turn; write one entry a turn"


def _fact_problems(fact: FactEntry, scope: Scope) -> Iterator[str]:
    """Yield the mistakes in `fact` as sentences that the model reads when it is asked again."""
    number = fact.turn
    if number not in scope.by_number:
        yield f"there is no t{number}; the turns are {scope.name}"
        return
    if made_up := scope.invented(fact.text, number):
        yield f"names {', '.join(made_up)}, which t{number} does not contain"
    last = scope.last_line(number)
    if any(not 1 <= run.first <= run.last <= last for run in fact.lines):
        yield f"t{number} has lines 1-{last}"
    if fact.type == "constraint" and not fact.lines:
        yield "a constraint needs the lines with the user's words"
