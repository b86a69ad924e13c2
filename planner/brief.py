"""Reads and checks the brief: the page of memory that a planner writes, shown at the front of the compacted messages.

A heading has its own line. Every other line is one statement, which ends with the turns that it cites: ``(t9, t14)``.
If a name in a statement is in none of the cited turns, the citation is corrected. If it is in no turn at all, the model
made it up, and its clause is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, chain, product
from typing import Literal, NamedTuple, get_args

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.effects import written_notes
from planner.evidence.grounding import NameIndex, invented
from planner.evidence.turns import shortened
from planner.evidence.words import specifics_of, words_of
from planner.placeholders import ranges_of
from planner.plan import Finding
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import SENTENCE_END, Statement
from planner.reading.tokens import TokenCounter

Heading = Literal["REQUEST", "STATE", "EFFECTS", "FAILED", "DECISIONS", "FACTS", "PENDING", "NOTES", "NEXT"]
HEADINGS: tuple[Heading, ...] = get_args(Heading)
"""Headings of the page of memory, in order. They are for the user's wishes, the state of the work, effects on the
outside world, failures and their causes, decisions, what was learned, running and waiting calls, the agent's own notes,
and what is left to do."""
HEADINGS_RAW_TOKENS = 2 * len(HEADINGS)
"""Raw tokens of all headings on a page of memory, about two each."""
GIVE_WAY: tuple[Heading, ...] = (
    "FACTS",
    "DECISIONS",
    "STATE",
    "NEXT",
    "PENDING",
    "NOTES",
    "FAILED",
    "REQUEST",
    "EFFECTS",
)
"""Headings of the page of memory in the order in which they lose statements when the page is too long."""
BRIEF_FINDINGS = frozenset(
    {"brief_citation", "brief_quote", "brief_too_long", "effects_cut", "effects_missing", "invented_in_brief"}
)
"""Kinds of problems of a page of memory. Remarks on them are out of date once the plan has another page."""
MOST_STATEMENTS = 400
"""Largest number of statements on a page of memory; further ones are left out before any check."""
MOST_CHARACTERS = 2_000
"""Length to which one line of a page of memory is cut."""
MOST_CITED = 6
"""Largest number of turns before the last one that a range cites: ``t9-t40`` cites ``t9-t14, t40``. The turns between
are ignored, as a citation of everything shows nothing."""
QUOTE_WORDS = 3
"""Number of words (`_count_words`) from which a quotation must be the user's own words."""
MOST_NAMED, MOST_OBJECTS, FEW_OBJECTS = 4, 12, 4
"""Largest numbers of tools, and of their objects together, that are named in place of effects for which there is no
room; the smaller number of objects is for a small page."""
OBJECT_CHARACTERS = 32
"""Length to which each of these objects is cut."""
MOST_ADDED = 24
"""Largest number of characters by which a quotation is extended to the user's whole sentence: enough for *do not*."""

CARRIED_NAMES, CARRIED_WORDS = 1 / 2, 1 / 3
"""Shares of the names, and of the other words, in the line of a failure that a statement must contain to replace that
line. With all names and half of the words, short statements such as ``e109: KONFLIKT, only its organizer may (t10)``
replaced nothing, so that both stayed."""

_CITED = lazy_pattern(r"(?<!\s)\s*+\((t\d{1,7}(?:\s*[,;–-]\s*t?\d{1,7})*)\)")
"""Citation of turns: ``(t9)``, ``(t9, t14)``, ``(t9-t12)``; not ``(see t9)``."""
_ID = lazy_pattern(r"t?(\d{1,7})(?:\s*[–-]\s*t?(\d{1,7}))?")
"""Turn or range of turns in a citation: ``t9``, ``9``, ``t9-t12``, ``9–12``."""
_QUOTE = lazy_pattern(
    r"[\"“”„«»＂]([^\"“”„«»＂\n]{1,600}+)[\"“”„«»＂]"
    r"|[‘‹「『]([^’›」』\n]{8,600}+(?:(?<=\w)’\w[^’›」』\n]{0,200}+){0,8}+)[’›」』]"
    r"|(?<!\w)'(?=\S)((?:[^'\n]|(?<=\w)'(?=\w)){8,600}+)'(?!\w)"
)
"""Words in quotation marks of any language: ``"no more queues"``, ``„bitte nicht“``, ``'don't touch it'``; not the
apostrophes of ``the agents' own and the users' words``."""
_MARK = lazy_pattern(r"[\"“”„«»＂]")
"""Quotation mark of the kind that no apostrophe looks like."""
MOST_MARKS = 24
"""Largest number of quotation marks in a statement in which quotations inside of quotations are looked for."""
_CLAUSE_END = lazy_pattern(r"(?<=; )|(?<=[；。])")
"""End of a clause in any script."""
_BLANKS_AND_MARKS = " \t\"'“”„«»‘‹›「」『』"
"""Characters at either end of a sentence that do not belong to it."""
_EDGES = f"{_BLANKS_AND_MARKS}.!?"
"""Characters at either end of a quotation that do not matter for a comparison."""
_IN_CODE = lazy_pattern(r"[=(\[{,:+]$")
"""Sign of code right before a quotation mark: ``print("hello big world")``."""
_BULLET = lazy_pattern(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_OF_PROMPT = lazy_pattern(r"(?<!\s)\s*+\((?:inferred|live|kept|hint)\)", re.I)
"""Remark that a model copies from its prompt, meaningless on the page: ``(inferred)``; not ``(inferred from a.py)``."""
_UNFINISHED = lazy_pattern(r":$|^\|.*\|$|^[-=|: ]+$")
"""Line that is no statement: ``Files changed:``, or a row of a table; not ``src/a.py: edited``."""
_JSON_KEY = lazy_pattern(r'"[^"\n]{1,60}"\s{0,4}:')
"""Key in JSON: ``"status":``."""
_CODE = lazy_pattern(r"`[^`]*`|\"[^\"\n]{1,60}\"\s{0,4}:(?:\s{0,4}\"[^\"\n]{0,600}\")?")
"""Code in backquotes, or field of JSON: ``"status": "booked"``. Quotation marks in it quote nobody."""
_MORE_EFFECTS = lazy_pattern(r"more effects(?:: .*+)?")
"""Statement in place of effects for which there is no room: ``more effects: 3× send_mail (Ada, Eve, …)``."""
_TIMES = lazy_pattern(r"\b(\d+)× ")
"""Number of equal effects, which no turn contains: ``2×`` in ``2× transfer Ada, 50``."""
_OBJECT_END = lazy_pattern(r", | → ")
_HEADING_MARKS = lazy_pattern(r"^[#*\s]++|(?<![#*:\s])[#*:\s]++$")
"""Characters around a heading: ``##`` and ``:`` in ``## STATE:``."""


@dataclass(frozen=True)
class PageStatement:
    """Statement on the page of memory, one line: ``- The queue works (t9, t14)``."""

    heading: Heading
    text: str
    """Text of the statement, without bullet and citation."""
    turns: tuple[str, ...]
    """Ids of the turns that the statement cites, in order."""

    @property
    def line(self) -> str:
        """Statement as a line of the page: ``- The queue works (t9, t14)``."""
        return f"- {self.text} ({citation(self.turns)})" if self.turns else f"- {self.text}"


@dataclass(frozen=True)
class CheckedStatement:
    """Statement on the page of memory, with the result of its check against the turns that it cites."""

    written: PageStatement
    """Statement as the planner wrote it."""
    sound: PageStatement | None
    """Statement as it stays on the page, with its names, quotes and turns corrected; None if it is removed."""
    findings: tuple[Finding, ...]
    """Remarks on what was wrong and how it was corrected."""


@lru_cache(maxsize=8)
def read_brief(text: str) -> tuple[PageStatement, ...]:
    """Split the page of memory `text` into its statements, in order. Lines above the first heading count as ``STATE``.
    Lines without words, rows of tables and lines that end in ``:`` are left out."""
    heading: Heading = "STATE"
    statements: list[PageStatement] = []
    for line in text.splitlines():
        name = _HEADING_MARKS.sub("", line[:40]).upper()
        if name in HEADINGS:
            heading = name
        elif line.strip() and len(statements) < MOST_STATEMENTS:
            cited = tuple(dict.fromkeys(turn for group in _CITED.findall(line) for turn in _ids(group)))
            words = " ".join(_OF_PROMPT.sub("", _BULLET.sub("", _CITED.sub("", line[:MOST_CHARACTERS]))).split())
            if words and not _UNFINISHED.search(words):
                statements.append(PageStatement(heading, words, cited))
    return tuple(statements)


def _ids(group: str) -> Iterator[str]:
    """Yield the turn ids in a citation without its parentheses: ``t9``, ``t14`` and ``t15`` for ``t9, t14-15``."""
    for match in _ID.finditer(group):
        first, last = int(match[1]), int(match[2] or match[1])
        cited = (*range(first, min(last, first + MOST_CITED)), last)
        yield from (f"t{number}" for number in dict.fromkeys(cited) if number >= first)


def citation(turn_ids: Iterable[str]) -> str:
    """Return turn ids as a citation, in order: ``t1-t3, t7``. Three or more turns in a row become a range, because
    single ids took up to a seventh of the tokens of a page."""
    parts: list[str] = []
    for low, high in ranges_of(int(turn_id[1:]) for turn_id in turn_ids):
        for first in range(low, high + 1, MOST_CITED + 1):
            last = min(first + MOST_CITED, high)
            parts += [f"t{first}-t{last}"] if last > first + 1 else [f"t{number}" for number in range(first, last + 1)]
    return ", ".join(parts)


def brief_text(statements: Iterable[PageStatement]) -> str:
    """Return `statements` as the text of a page of memory, below their headings; empty headings are left out."""
    by_heading: dict[str, list[str]] = {heading: [] for heading in HEADINGS}
    for statement in statements:
        by_heading[statement.heading].append(statement.line)
    return "\n".join(line for heading, lines in by_heading.items() if lines for line in (heading, *lines))


def with_notes(text: str, evidence: Evidence) -> str:
    """Return the page of memory `text` with the agent's own notes under the heading NOTES, and nothing else there, so
    that no planner omits or invents one."""
    notes = [PageStatement("NOTES", f"{note.kind}: {note.text}", (note.turn_id,)) for note in written_notes(evidence)]
    statements = read_brief(text)
    others = [statement for statement in statements if statement.heading != "NOTES"]
    return brief_text((*others, *notes)) if notes or len(others) < len(statements) else text


def check_brief(text: str, evidence: Evidence) -> tuple[str, tuple[Finding, ...]]:
    """Check the page of memory `text` against the turns that it cites. Return the page with wrong statements corrected
    or removed, and remarks on these. A second check of the result changes nothing."""
    checked = check_statements(text, evidence)
    sound = brief_text(statement.sound for statement in checked if statement.sound)
    return sound, tuple(finding for statement in checked for finding in statement.findings)


def check_statements(text: str, evidence: Evidence) -> list[CheckedStatement]:
    """Check each statement of the page of memory `text` against the turns that it cites, and return the results in
    order. They are cached in `evidence`, as a plan's page is checked several times."""
    statements, checked = read_brief(text), evidence.once(_checks)
    for statement in statements:
        if statement not in checked:
            checked[statement] = _checked(statement, evidence, evidence.once(_users_words))
    return [checked[statement] for statement in statements]


def _checks(_: Evidence) -> dict[PageStatement, CheckedStatement]:
    """Return an empty cache for the results of checks, as making a plan checks its page of memory three times."""
    return {}


def _checked(written: PageStatement, evidence: Evidence, users_words: str) -> CheckedStatement:
    """Correct the statement `written` until no fault remains, as one correction can cause another. A quoted part of the
    user's sentence is extended to the sentence, or marked as a part, once. If another such part is left then, all
    quotation marks are removed. `users_words`: all that the user wrote."""
    findings: list[Finding] = []
    text = _with_plain_inner_marks(evidence.shown(written.text), users_words)
    sound = _settled(replace(written, text=text), evidence, users_words, findings)
    with_whole_sentences = partial(_with_whole_sentences, users_words=users_words, evidence=evidence)
    for correct, repair in (
        (with_whole_sentences, "the rest of the sentence is quoted or marked"),
        (_without_quotations, "the quotation marks are taken off"),
    ):
        if sound is None or with_whole_sentences(sound) == sound:  # no quoted part of a sentence is left
            break
        findings.append(Finding(code="brief_quote", problem=f"a part of a sentence: {_short(sound)}", repair=repair))
        sound = _settled(_read_again(correct(sound)), evidence, users_words, findings)
    return CheckedStatement(written, sound, tuple(findings))


def _settled(
    sound: PageStatement | None, evidence: Evidence, users_words: str, findings: list[Finding]
) -> PageStatement | None:
    """Correct the names, citations and quotation marks of a statement, and add the problems to `findings`. Return None
    if no clause of the statement can stay."""
    while sound is not None:
        sound, finding = _mended(sound, evidence, users_words)
        if finding is None:
            break
        findings.append(finding)
        sound = _read_again(sound) if sound is not None else None
    return sound


def _read_again(statement: PageStatement) -> PageStatement | None:
    """Return `statement` as it is read from a page after a correction; None if it is no statement any more."""
    return next(iter(read_brief(f"{statement.heading}\n{statement.line}")), None)


def _mended(
    statement: PageStatement, evidence: Evidence, users_words: str
) -> tuple[PageStatement | None, Finding | None]:
    """Correct the first fault of `statement`. Return the statement (None if no clause of it can stay), and a remark on
    the fault (None if there is none)."""
    sound, problem = _grounded(statement, evidence)
    if sound is None:
        clauses = [clause for clause in _CLAUSE_END.split(statement.text) if not invented(clause, evidence.names)]
        corrected = replace(statement, text="".join(clauses).rstrip(";； ")) if clauses else None
        if corrected == statement:  # the name is made of words of several clauses
            corrected = None
        repair = "the statement is struck" if corrected is None else "the clause that names it is struck"
        return corrected, Finding(code="invented_in_brief", problem=problem, repair=repair)
    if problem:
        return sound, Finding(code="brief_citation", problem=problem, repair="the citation is mended")
    sound, problem = _quoted(sound, users_words, evidence)
    if problem:
        return sound, Finding(code="brief_quote", problem=problem, repair="the quotation marks are taken off")
    return sound, None


def _grounded(statement: PageStatement, evidence: Evidence) -> tuple[PageStatement | None, str]:
    """Correct the citations of `statement`, so that the cited turns contain its names. Return the statement, and the
    problem, which is empty if there is none. Turns that do not exist are removed. For a name that is in none of the
    cited turns, the newest turn with it is added. If a name is in no turn at all, the statement is None."""
    cited = tuple(turn_id for turn_id in statement.turns if turn_id in evidence.turns)
    text = _TIMES.sub("", statement.text) if statement.heading == "EFFECTS" else statement.text
    missing = _missing(text, cited, evidence)
    in_no_turn = frozenset(invented(text, evidence.names)) if missing else frozenset()
    added: list[str] = []
    for name in missing:
        holder = next((turn_id for turn_id, turn in reversed(evidence.turns.items()) if turn.names.holds(name)), "")
        if not holder and name in in_no_turn:
            return None, f"{name!r} occurs in no turn: {_short(statement)}"
        added += [holder] if holder else []  # none if the name joins parts of several turns
    turns = tuple(dict.fromkeys((*cited, *added)))
    if turns == statement.turns:
        return statement, ""
    elsewhere = f"{missing[0]!r} occurs elsewhere: " if missing else ""
    return replace(statement, turns=turns), f"{elsewhere}{_short(statement)}"


def _missing(text: str, turn_ids: Sequence[str], evidence: Evidence) -> list[str]:
    """Return the names in `text` that none of the turns `turn_ids` contains; without turns, all names."""
    sources: list[NameIndex | None] = [evidence.turns[turn_id].names for turn_id in turn_ids]
    first, *others = map(partial(invented, text), sources or [None])
    return [name for name in first if all(name in missing for missing in others)]


def _short(statement: PageStatement) -> str:
    """Return the first 80 characters of a statement, to quote it in a remark."""
    return statement.text if len(statement.text) <= 80 else f"{statement.text[:80]}…"


def _users_words(evidence: Evidence) -> str:
    """Return everything that the user wrote, and the texts of earlier compactions, which may quote the user, in a form
    for comparing (`_folded`)."""
    return " ".join(filter(None, (turn.once(_quotable) for turn in evidence.turns.values())))


def _quotable(turn: TurnEvidence) -> str:
    """Return the words of the user and of earlier compactions in `turn`, in a form for comparing (`_folded`)."""
    # line by line, as a text beyond ASCII takes twelve bytes a character meanwhile
    words = (_folded(line.text) for line in turn.lines.of_sources("user", "planner"))
    return " ".join(filter(None, words))


def _folded(text: str) -> str:
    """Return `text` in a form for comparing quotations: in lower case, with plain apostrophes, dots and spaces."""
    return _plain(text).lower()


def _plain(text: str) -> str:
    """Return `text` with plain dots, single spaces, and apostrophes in place of all quotation marks."""
    return " ".join(_MARK.sub("'", text.replace("’", "'").replace("…", "...")).split())


def _with_plain_inner_marks(text: str, users_words: str) -> str:
    """Return `text` with apostrophes in place of the quotation marks inside of a quotation of the user, so that it is
    read as one: ``"set "Colour" to "red""`` becomes ``"set 'Colour' to 'red'"``. Code in backquotes and JSON stay as
    they are."""
    marks = [mark.start() for mark in _MARK.finditer(text) if not _is_code(text, mark.start())]
    if 2 < len(marks) <= MOST_MARKS:
        for first, last in ((first, last) for first in marks for last in marks[::-1] if last > first):
            inner = text[first + 1 : last]
            if _MARK.search(inner) and _folded(inner.strip(" .…")) in users_words:
                text = text[: first + 1] + _MARK.sub("'", inner) + text[last:]
                break
    return text


def _is_code(text: str, at: int) -> bool:
    """Return True if the index `at` of `text` is in code or JSON."""
    return any(code.start() <= at < code.end() for code in _CODE.finditer(text))


def _quoted(statement: PageStatement, users_words: str, evidence: Evidence) -> tuple[PageStatement, str]:
    """Remove the quotation marks in `statement` around words that are neither the user's nor code. Return the
    statement, and the problem, which is empty if there is none."""
    cited = [evidence.turns[turn_id] for turn_id in statement.turns]
    return _unquoted(statement, lambda quotation: _may_quote(quotation, users_words, cited))


def _unquoted(statement: PageStatement, may_stay: Callable[[re.Match[str]], bool]) -> tuple[PageStatement, str]:
    """Remove the quotation marks in `statement` for which `may_stay` returns False. Return the statement, and the
    problem, which is empty if there is none."""
    text, problem = statement.text, ""
    while wrong := next((quotation for quotation in _QUOTE.finditer(text) if not may_stay(quotation)), None):
        # one pair at a time, as the other marks may then form other pairs
        text = " ".join((text[: wrong.start()] + wrong[0][1:-1] + text[wrong.end() :]).split())
        problem = problem or f"not the user's own words: {wrong[0][1:81]!r}"
    return replace(statement, text=text), problem


def _may_quote(match: re.Match[str], users_words: str, cited: Sequence[TurnEvidence]) -> bool:
    """Return True if the quotation `match` may keep its quotation marks. It may if it is shorter than `QUOTE_WORDS`, or
    if the user wrote it. Otherwise it must be part of code, and one of the `cited` turns must contain it with its
    quotation marks."""
    words, before = match[0][1:-1], match.string[: match.start()]
    if _count_words(words) < QUOTE_WORDS or _folded(words.strip(" .…")) in users_words:
        return True
    is_marked = before.count("`") % 2 == 1 or _IN_CODE.search(before) is not None
    return is_marked and any(match[0] in turn.text for turn in cited)


def _count_words(text: str) -> int:
    """Return the number of words in `text`; in scripts without blanks between words, of pairs of characters."""
    return len(text.split() if text.isascii() else words_of(text))


def _with_whole_sentences(statement: PageStatement, users_words: str, evidence: Evidence) -> PageStatement:
    """Return `statement` with each quoted part of a user's sentence extended to the sentence, or marked as a part by
    ``…``. A part alone may mean the opposite: ``"use the old API"`` in *never use the old API*."""

    def extended(match: re.Match[str]) -> str:
        """Return the quotation as a whole sentence or with ``…``; unchanged if it is code, short, or not a user's."""
        words = match[0][1:-1]
        part = words.strip(" .…")
        if (
            _is_code(match.string, match.start())
            or _count_words(words) < QUOTE_WORDS
            or _folded(part) not in users_words
        ):
            return match[0]
        forms = (match[0][0] + form + match[0][-1] for form in _honest_forms(part, evidence))
        return next(filter(_QUOTE.fullmatch, forms), match[0])

    return replace(statement, text=_QUOTE.sub(extended, statement.text))


def _without_quotations(statement: PageStatement) -> PageStatement:
    """Return `statement` without its quotation marks."""
    without_quotations, _ = _unquoted(statement, lambda _: False)
    return without_quotations


def _honest_forms(part: str, evidence: Evidence) -> Iterator[str]:
    """Yield the forms in which `part` of a user's sentence may be quoted without a false impression. The first is the
    sentence, if little longer than `part`. The second is `part` with ``…`` where it is cut. There is none if the user
    also wrote `part` as a whole sentence, so that it may stay as it is."""
    folded = _folded(part)
    turns = (turn for turn in evidence.turns.values() if folded in turn.once(_quotable))
    lines = (_plain(line.text) for turn in turns for line in turn.lines.of_sources("user", "planner"))
    sentences = [_sentences_around(folded, line) for line in lines if folded in line.lower()]
    around = [_folded(sentence).strip(_EDGES).partition(folded.strip(_EDGES)) for sentence in sentences]
    if not sentences or any(not before and not after for before, _, after in around):
        return
    if len(sentences[0]) <= len(part) + MOST_ADDED:
        yield sentences[0]
    before, _, after = around[0]
    yield f"{'…' if before else ''}{part}{'…' if after else ''}"


def _sentences_around(part: str, line: str) -> str:
    """Return the sentences of `line` that contain `part`, which is in lower case."""
    at = line.lower().find(part)
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(line)), len(line.lower())]
    start, stop = max(end for end in ends if end <= at), min(end for end in ends if end >= at + len(part))
    return _BULLET.sub("", line[start:stop]).strip(_BLANKS_AND_MARKS)


def covered_failures(brief: str, evidence: Evidence) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines on failures, by turn id, that need not be shown, as a statement on the page of
    memory `brief` replaces them.

    The statement must be under FAILED, cite the turn, and contain a half of the line's names and a third of its other
    words. If it does so for several decisive lines (which show why something failed) of a turn, it replaces only the
    one that it repeats most.
    """
    covered: dict[str, frozenset[int]] = {}
    for statement in read_brief(brief):
        cited = statement.turns if statement.heading == "FAILED" else ()
        for turn in (evidence.turns[turn_id] for turn_id in cited if turn_id in evidence.turns):
            decisive = turn.statements_of(turn.decisive_lines)
            best = max(decisive, key=partial(_repeated, statement.text), default=None)
            if best is not None and _repeated(statement.text, best).share >= CARRIED_WORDS:
                covered[turn.turn.id] = covered.get(turn.turn.id, frozenset()).union(best.numbers)
    return covered


def covers_success(brief: str, turn_id: str, lines: Iterable[Statement]) -> bool:
    """Return True if the `lines` that show the success of an action in the turn `turn_id` need not be shown again, as a
    statement of the page of memory `brief` replaces them: it cites the turn, and contains `CARRIED_NAMES` of a line, or
    `CARRIED_WORDS` if the line has no names."""
    texts = [statement.text for statement in read_brief(brief) if turn_id in statement.turns]
    return any(
        _has_names(text, line) if _last_names(line.text) else _repeated(text, line).share >= CARRIED_WORDS
        for line in lines
        for text in texts
    )


class _Repeated(NamedTuple):
    """Measure of how much of a line a text repeats. It is greater for a text that repeats more."""

    share: float
    """Share of the line's words, without names and JSON keys, that the text contains; 0 without `CARRIED_NAMES`."""
    has_whole_line: bool
    """True if the text contains the whole line."""


def _repeated(text: str, line: Statement) -> _Repeated:
    """Return how much of `line` the statement `text` repeats."""
    words = {*words_of(_JSON_KEY.sub(" ", line.text))}.difference(*map(words_of, specifics_of(line.text)))
    if not _has_names(text, line):
        return _Repeated(0.0, has_whole_line=False)
    share = len(words & {*words_of(text)}) / len(words) if words else 1.0
    return _Repeated(share, has_whole_line=line.text.strip() in text)


def _has_names(text: str, line: Statement) -> bool:
    """Return True if `text` contains `CARRIED_NAMES` of the names in `line`."""
    names = _last_names(line.text)
    return len(names & _last_names(text)) >= CARRIED_NAMES * len(names)


def _last_names(text: str) -> set[str]:
    """Return the names in `text`, of a path only its last part. Figures are left out, as they count as words."""
    names = {name.rstrip("/").rpartition("/")[2].casefold() for name in specifics_of(text)}
    return {name for name in names if any(map(str.isalpha, name))}


def unlisted(brief: str, record: Iterable[PageStatement]) -> list[PageStatement]:
    """Return the statements of `record` that the page of memory `brief` lacks. It has a statement if it cites all turns
    of that statement under the same heading."""
    cited = {(statement.heading, turn_id) for statement in _without_rest(brief) for turn_id in statement.turns}
    return [
        statement
        for statement in record
        if not cited.issuperset((statement.heading, turn_id) for turn_id in statement.turns)
    ]


def _without_rest(brief: str) -> list[PageStatement]:
    """Return the statements on the page of memory `brief`, without the one that replaces effects for lack of room."""
    return [statement for statement in read_brief(brief) if not _MORE_EFFECTS.fullmatch(statement.text)]


def with_record(
    brief: str, records: Iterable[Sequence[PageStatement]], counter: TokenCounter, most_raw_tokens: float
) -> str:
    """Add the statements of a record (effects on the outside world, and open calls) to the page of memory `brief`, as
    far as it lacks them.

    `records`: the same record, most important statements first, in ever shorter forms. The first form that fits in
    `most_raw_tokens` is used. If even the shortest does not fit, one line replaces its last statements, see `_rest`.
    """
    missing: list[PageStatement] = []
    costs: list[int] = []
    for record in records:
        missing = unlisted(brief, record)
        costs = [raw_tokens_of(statement, counter) for statement in missing]
        if sum(costs) <= most_raw_tokens:
            break
    fitting = sum(total <= most_raw_tokens for total in accumulate(costs))
    added = missing[:fitting]
    # if not all fit, ever shorter pages are tried: fewer statements, and fewer objects in the line for the rest
    shorter = chain(product(range(fitting, -1, -1), (MOST_OBJECTS, FEW_OBJECTS)), [(0, 0)])
    for count, most_objects in shorter if fitting < len(missing) else ():
        rest = _rest(missing[count:], most_objects)
        added = [*missing[:count], rest]
        if sum(costs[:count]) + raw_tokens_of(rest, counter) <= most_raw_tokens:
            break
    return brief_text([*_without_rest(brief), *added]) if added else brief


def replaced_effects(brief: str) -> list[PageStatement]:
    """Return the statement on the page of memory `brief` in place of effects for which there is no room, if any."""
    return [statement for statement in read_brief(brief) if _MORE_EFFECTS.fullmatch(statement.text)]


def _rest(others: Sequence[PageStatement], most_objects: int) -> PageStatement:
    """Return one statement in place of `others`: ``more effects: 3× send_mail (Ada, Eve, …)``. It names the
    `MOST_NAMED` tools with most effects and at most `most_objects` of their objects, and cites the turns of these, or
    the last one of each tool."""
    of_tools: dict[str, list[PageStatement]] = {}
    for statement in others:
        if statement.heading == "EFFECTS" and (name := _TIMES.sub("", statement.text).split(maxsplit=1)):
            of_tools.setdefault(name[0], []).append(statement)
    named = sorted(of_tools.items(), key=lambda tool_and_done: -_number_of_effects(tool_and_done[1]))[:MOST_NAMED]
    most_of_tool = most_objects // max(1, len(named))
    texts = [_tool_with_objects(tool, done, most_of_tool) for tool, done in named]
    more = ["…"] if len(of_tools) > MOST_NAMED else []
    cited = [statement.turns[-1] for _, done in named for statement in done[: max(1, most_of_tool)]]
    text = f"more effects: {', '.join([*texts, *more])}" if texts else "more effects"
    return PageStatement("EFFECTS", text, tuple(dict.fromkeys(cited)) or others[0].turns[-1:])


def _tool_with_objects(tool: str, done: Sequence[PageStatement], most_objects: int) -> str:
    """Return the name of a tool with the number of its effects, of which `done` are the statements, and at most
    `most_objects` of their objects: ``3× send_mail (Ada, Eve, …)``."""
    count = _number_of_effects(done)
    arguments = (_TIMES.sub("", statement.text).removeprefix(tool) for statement in done)
    names = (shortened(_OBJECT_END.split(text)[0], OBJECT_CHARACTERS) for text in arguments)
    objects = list(dict.fromkeys(filter(None, names)))
    shown = [*objects[:most_objects], *(["…"] if len(objects) > most_objects else [])]
    name = tool if count == 1 else f"{count}× {tool}"
    return f"{name} ({', '.join(shown)})" if most_objects and objects else name


def _number_of_effects(statements: Iterable[PageStatement]) -> int:
    """Return how many effects the `statements` report, of which one may report several equal ones: ``2× transfer``."""
    times = (_TIMES.match(statement.text) for statement in statements)
    return sum(int(match[1]) if match else 1 for match in times)


def fit_brief(text: str, counter: TokenCounter, most_raw_tokens: float) -> tuple[str, int]:
    """Shorten the page of memory `text` to `most_raw_tokens`. Return it with the number of statements that became
    shorter or were removed. The headings lose statements in the order of `GIVE_WAY`, each its last statement first, and
    of that its last clauses."""
    written = read_brief(text)
    statements: list[PageStatement | None] = [*written]
    costs = [raw_tokens_of(statement, counter) for statement in written]
    excess, reduced = sum(costs) + HEADINGS_RAW_TOKENS - most_raw_tokens, 0
    numbered = sorted(enumerate(written), key=lambda place: (GIVE_WAY.index(place[1].heading), -place[0]))
    for at, statement in numbered:
        if excess <= 0:
            break
        shorter = ((form, costs[at] - raw_tokens_of(form, counter)) for form in _shorter(statement))
        fitting = ((form, form_saved) for form, form_saved in shorter if form_saved >= excess)
        statements[at], saved = next(fitting, (None, costs[at]))
        excess, reduced = excess - saved, reduced + 1
    return (brief_text(filter(None, statements)), reduced) if reduced else (text, 0)


def raw_tokens_of(statement: PageStatement, counter: TokenCounter) -> int:
    """Return the raw tokens of the line of `statement`."""
    return counter.raw(statement.line + "\n")


def _shorter(statement: PageStatement) -> Iterator[PageStatement]:
    """Yield ever shorter forms of `statement`: without its last clause, its last two, and so on; one clause stays."""
    clauses = _CLAUSE_END.split(statement.text)
    for number in range(len(clauses) - 1, 0, -1):
        yield replace(statement, text="".join(clauses[:number]).rstrip(";； "))
