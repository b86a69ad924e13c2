"""The planner model's answer: its forms, and what of it can be used against the turns it speaks of.

An answer is untrusted text and may be wrong anywhere. What can be used is used, what cannot is named, one problem a
line; a mistake in one entry never costs another. Every pass over the text is linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from planner.brief import HEADINGS
from planner.evidence import TurnEvidence
from planner.evidence.grounding import invented
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
from planner.plan import ExtractedFact, Strategy
from planner.proposal import TurnProposal
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import join_lines

__all__ = ["Answer", "Reading", "Scope", "answer_in", "read_answer", "spans"]

MOST_ANSWER_CHARACTERS = 400_000
"""What is behind is not read: twelve times what the longest answer allowed takes."""
REASON_CHARACTERS, GIST_CHARACTERS = 120, 600


class Answer(BaseModel):
    """The plan for the turns shown."""

    model_config = ConfigDict(title="Answer", extra="ignore")

    brief: list[str] = Field(
        default_factory=list, description="The page of memory, a line a string: headings, and '- statement (t9, t14)'"
    )
    turns: list[str] = Field(default_factory=list, description=f"One entry a turn or run of turns: {ENTRY_FORM}")
    facts: list[str] = Field(default_factory=list, description=f"One entry a fact: {FACT_FORM}")

    @field_validator("brief", "turns", "facts", mode="before")
    @classmethod
    def _lines(cls, value: object) -> list[str]:
        """A text is its lines, a mapping its names each with what stands under it; what is no text is left out."""
        if isinstance(value, dict):
            value = [item for name, under in value.items() for item in _named(str(name), under)]
        items = value if isinstance(value, list) else [value]
        return [line for item in items for line in _whole(_words(item)).splitlines()]


def _named(name: str, under: object) -> list[object]:
    """``{"REQUEST": [...]}`` is a heading and its lines, ``{"t9": "keep 9"}`` one entry."""
    return [name, *under] if isinstance(under, list) else [f"{name} {_words(under)}"]


def _words(item: object) -> str:
    """A text; of a mapping its values, as of ``{"turn": "t9", "strategy": "keep", "score": 9}``."""
    if isinstance(item, dict):
        return " ".join(str(value) for value in item.values() if isinstance(value, str | int))
    return item if isinstance(item, str) else ""


def _whole(text: str) -> str:
    """`text` as Unicode that can be stored and sent: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class Scope:
    """What one answer may speak of: some turns, in order, their lines, and what stands in them."""

    turns: Sequence[TurnEvidence]
    """Those it is asked about."""
    earlier: Sequence[TurnEvidence] = ()
    """Those that an earlier plan decided: it may name them, too."""

    @lazy_property
    def by_number(self) -> dict[int, TurnEvidence]:
        """All turns that may be named, by number."""
        return {turn.turn.number: turn for turn in (*self.earlier, *self.turns)}

    @lazy_property
    def to_plan(self) -> frozenset[int]:
        """Numbers of the turns an answer may decide: all but the live tail, which stays whatever it says."""
        return frozenset(turn.turn.number for turn in self.turns if not turn.turn.live)

    @property
    def name(self) -> str:
        """The turns asked about, as ``t1-t50``."""
        return spans(turn.turn.number for turn in self.turns)

    def covered(self, run: Range) -> Iterator[int]:
        """The turns of `run`, whichever way round it is, that may be planned."""
        low, high = min(run), max(run)
        return (number for number, turn in self.by_number.items() if low <= number <= high and not turn.turn.live)

    def words(self, number: int, lines: Sequence[Range]) -> str:
        """The exact text of `lines` of turn `number`."""
        whole = self.by_number[number].lines
        return "\n".join(join_lines(whole[first - 1 : last]) for first, last in lines)

    def invented(self, text: str, number: int) -> list[str]:
        """Specifics of `text` that turn `number` does not hold."""
        return invented(text, self.by_number[number].names)


def spans(numbers: Iterable[int]) -> str:
    """Turn numbers as ``t1-t3, t7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"t{first}" if first == last else f"t{first}-t{last}" for first, last in runs)


# The whole answer, from text.


_OPENS = re.compile(r"\{\s{0,99}\"(?:brief|turns|facts)\"", re.IGNORECASE)
"""Where an answer begins: ``{ "brief"``, within another object, too; not ``{these}``."""
MOST_STARTS = 8
"""So many beginnings are tried: an example that is said again, a draft, the answer."""


def answer_in(text: str) -> Answer | None:
    """The answer in `text`, among words, cut off or with broken quotes; None if there is nothing of one.

    Of several the one that says most.
    """
    text = text[:MOST_ANSWER_CHARACTERS]
    starts = [*(match.start() for match in islice(_OPENS.finditer(text), MOST_STARTS)), max(0, text.find("{"))]
    lines = text.splitlines()
    sound = [one for start in starts if (one := _sound(text, start)) is not None]
    answer = _best(sound or [*(_cut_off(text[start:]) for start in starts), _sections(lines)])
    if not sound and not _size(answer):
        answer = _best([_page(lines)])
    return answer if _size(answer) else None


def _best(readings: Iterable[Any]) -> Answer:
    return max(map(_valid, readings), key=_size)


def _size(answer: Answer) -> int:
    """How much an answer says."""
    return len(answer.brief) + len(answer.turns)


def _sound(text: str, start: int) -> dict[str, Any] | None:
    """The answer in the JSON that begins at `start`, whatever stands behind it; None if it is none."""
    try:
        whole, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    fields = isinstance(whole, dict) and {name.strip().lower() for name in whole}
    return whole if fields and fields & Answer.model_fields.keys() else None


def _valid(data: object) -> Answer:
    fields = {str(name).strip().lower(): value for name, value in data.items()} if isinstance(data, dict) else {}
    try:
        return Answer.model_validate(fields)
    except ValidationError:
        return Answer()


def _cut_off(text: str) -> Any:
    """JSON that ends in the middle, without what was not finished; None if it is no JSON up to there."""
    try:
        return from_json(text.encode("utf-8", "replace"), allow_partial=True)
    except ValueError:
        return None


def _sections(lines: Iterable[str]) -> dict[str, Any]:
    """The fields of an answer that is no sound JSON: each behind a line that names it, a string a line."""
    fields: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        name, separator, behind = line.strip(" \t{,#*").partition(":")
        name = name.strip(" \"'*,")
        heading = name.isupper() and not separator and "brief" in fields
        if name.lower() in Answer.model_fields and not heading and (separator or not behind):
            current, line = fields.setdefault(name.lower(), []), behind
        if current is not None:
            current += _strings(line)
    return fields


def _page(lines: Sequence[str]) -> dict[str, Any]:
    """An answer that is the brief alone, from its first heading on."""
    first = next((at for at, line in enumerate(lines) if line.strip(" \t#*:") in HEADINGS), len(lines))
    return {"brief": [line for line in lines[first:] if line.strip(" \t`")]}


def _strings(line: str) -> list[str]:
    """What a line of a JSON list says; a string that was cut off says nothing sure."""
    text = line.strip().lstrip("[").strip()
    opened = text.startswith('"')
    text = text.rstrip("]}, \t")
    if opened and (len(text) < 2 or not text.endswith('"')):
        return []
    text = text.removeprefix('"').removesuffix('"') if opened else text.strip("`")
    text = text.replace('\\"', '"').replace("\\n", "\n")
    return [part for part in text.split("\n") if part.strip()]


# What of it can be used.


@dataclass
class Reading:
    """What of an answer can be used, and what cannot."""

    turns: dict[str, TurnProposal] = field(default_factory=dict)
    brief: tuple[str, ...] = ()
    """Its lines as they were written."""
    facts: list[ExtractedFact] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    wrong_entries: int = 0
    asked: frozenset[int] = frozenset()
    """Numbers of the turns that were asked about."""

    @property
    def is_usable(self) -> bool:
        """True if it says something: a brief, whatever the entries beside it, or entries of which half hold."""
        return bool(self.brief) or (bool(self.turns) and 2 * self.wrong_entries <= self.entries)


def read_answer(answer: Answer, scope: Scope, now: float) -> Reading:
    """What `answer` says of the turns of `scope`; `now` stamps the facts, in seconds since the epoch."""
    asked = frozenset(turn.turn.number for turn in scope.turns)
    reading = Reading(brief=tuple(line for line in answer.brief if line.strip()), asked=asked)
    entries = [form for form in answer.turns if form.strip()]
    reading.entries = len(entries) + len(answer.facts)
    single: dict[int, TurnEntry] = {}
    in_runs: dict[int, TurnEntry] = {}
    for form in entries:
        entry = read_entry(form)
        _note(reading, form, list(_entry_problems(entry, scope, single)))
        if entry is None:
            continue
        known = {number: entry for run in entry.runs for number in scope.covered(run)}
        if entry.alone:
            single |= {number: _usable(entry, number, scope) for number in known}
        else:
            in_runs |= {number: _of_run(entry) for number in known}
    for form in answer.facts:
        _read_fact(reading, form, scope, now)
    named = in_runs | single
    reading.turns = {f"t{number}": _proposal(number, entry) for number, entry in sorted(named.items())}
    return reading


def _note(reading: Reading, form: str, problems: list[str]) -> None:
    reading.wrong_entries += bool(problems)
    short = form if len(form) <= 70 else form[:69] + "…"
    reading.problems += [f'"{short}": {problem}' for problem in problems]


def _usable(entry: TurnEntry, number: int, scope: Scope) -> TurnEntry:
    """`entry` without what cannot be used of it: lines the turn has not, a gist that names what it does not hold."""
    if entry.strategy != "summarize":
        return entry
    last = len(scope.by_number[number].lines)
    lines = tuple((max(1, low), min(high, last)) for low, high in entry.lines if low <= high and low <= last)
    text = "" if scope.invented(entry.text, number) else entry.text
    strategy: Strategy | None = "summarize" if lines or text else None
    return TurnEntry(entry.runs, strategy, entry.score, entry.failed, lines, text)


def _of_run(entry: TurnEntry) -> TurnEntry:
    """What holds for each turn of a run: lines and a gist belong to one turn."""
    strategy = None if entry.strategy == "summarize" else entry.strategy
    return TurnEntry(entry.runs, strategy, entry.score, entry.failed, (), "" if strategy is None else entry.text)


def _entry_problems(entry: TurnEntry | None, scope: Scope, single: dict[int, TurnEntry]) -> Iterator[str]:
    if entry is None:
        yield f"not an entry; write {ENTRY_FORM}"
        return
    if entry.unread:
        yield f"{entry.unread[:40]!r} is no part of an entry"
    unknown = {number for run in entry.runs for number in run} - scope.by_number.keys()
    if unknown:
        yield f"there is no {spans(unknown)}; the turns are {scope.name}"
        return
    if not entry.alone:
        if entry.strategy == "summarize":
            yield "lines and gists belong to one turn; write one entry a turn"
        return
    number = entry.runs[0][0]
    if number in single:
        yield f"t{number} is named twice; the last entry holds"
    last = len(scope.by_number[number].lines)
    outside = [f"{low}-{high}" for low, high in entry.lines if not 0 < low <= min(high, last)]
    if outside:
        yield f"lines {', '.join(outside)}: t{number} has lines 1-{last}"
    made_up = scope.invented(entry.text, number) if entry.strategy == "summarize" else []
    if made_up:
        yield f"the gist names {', '.join(made_up)}, which t{number} does not hold"


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


def _read_fact(reading: Reading, form: str, scope: Scope, now: float) -> None:
    fact = read_fact(form)
    problems = list(_fact_problems(fact, scope))
    _note(reading, form, problems)
    if fact is None or problems:
        return
    quote = (fact.quote or scope.words(fact.turn, fact.lines)) if fact.type == "constraint" else ""
    reading.facts.append(
        ExtractedFact(type=fact.type, content=fact.text, quote=quote, source=f"t{fact.turn}", timestamp=max(0.0, now))
    )


def _fact_problems(fact: FactEntry | None, scope: Scope) -> Iterator[str]:
    if fact is None:
        yield f"not a fact; write {FACT_FORM}"
        return
    if fact.turn not in scope.by_number:
        yield f"there is no t{fact.turn}; the turns are {scope.name}"
        return
    made_up = scope.invented(fact.text, fact.turn)
    if made_up:
        yield f"names {', '.join(made_up)}, which t{fact.turn} does not hold"
    last = len(scope.by_number[fact.turn].lines)
    if any(not 1 <= low <= high <= last for low, high in fact.lines):
        yield f"t{fact.turn} has lines 1-{last}"
    if fact.type != "constraint":
        return
    if not fact.quote and not fact.lines:
        yield "a constraint needs the lines that hold the user's words, or the words behind a second |"
    if fact.quote and fact.quote not in scope.by_number[fact.turn].text:
        yield f"these are not the words of t{fact.turn}; point at its lines instead"
