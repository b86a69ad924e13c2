"""What one conversation teaches the next, as far as its record proves it: lasting wishes and decisions in the user's
own words, and errors with what mended them.

Reads evidence; asks nobody and writes nothing. Rather says nothing than what a reader would have to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Literal, get_args

from applier.store.secrets import redact
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import changed_paths
from planner.evidence.state import check_kinds, recoveries, shortened
from planner.evidence.user_words import TYPED_CHARACTERS, typed_lines
from planner.reading.lines import Statement, join_lines, statements

__all__ = ["KINDS", "Kind", "Lesson", "error_subject", "folded", "in_the_record", "lessons_of", "sentence_key"]

Kind = Literal["decision", "wish", "error"]
KINDS: tuple[Kind, ...] = get_args(Kind)

WORDS_CHARACTERS = 320
"""A longer statement is a text of its own: of it the sentence that binds is taken, if that is shorter."""
LEAST_WORDS = 4
"""Fewer words say nothing to who was not there: ``always both``."""
LEAST_ERROR_WORDS = 3
"""Of an error without names and numbers: ``exit code 1`` is everybody's."""
ERROR_CHARACTERS = 240
MOST_REMEDIES = 3
"""More changes between a failure and the success are not what mended it."""

_LASTING = re.compile(
    r"\b(?:from now on|going forward|as a rule)\b"
    r"|^(?:please )?(?:in (?:the )?future|next time|remember (?:to|that))\b"
    r"|^(?:every time|whenever|each time) (?:you|we)\b"
    r"|(?:^|[.;,:!]\s*|\b(?:please|must|should|shall|we|you|to|and|but|also) )"
    r"(?:always|never) (?!(?:been|was|were|is|are|had|has|did|got|seen|happens?|gets?)\b)(?!\w+ed\b)\w+"
    r"|\bwe (?:really )?(?:don'?t|do not) (?:want|use|do|allow|support|ship|write|accept|merge|mock)\b"
    r"|\bwe (?:want|prefer|have|need|try) to avoid\b"
    r"|\bwe (?:always |strongly )?prefer\b|\bwe only (?:use|support|ship)\b"
    r"|(?:^|[.;!]\s*|\bwe )no longer (?:need|use|want|support|ship)\b"
    r"|(?:^|[.;,:!]\s*|\band )no (?!idea|clue|problem)[\w ,-]{3,60}\b(?:at all|anywhere)\b"
    r"|\bno need for\b|\bshould(?:n'?t| not)? be (?:the )?default\b",
    re.I,
)
"""What binds beyond the task: ``from now on``, ``never push``, ``we don't want``, ``no eval anywhere``, ``no need for
compatibility``; not ``it never returns``, ``this always failed``, ``I don't want that one``, ``no idea at all``."""
_QUESTION = re.compile(
    r"^\W*(?:what|why|h?y|how|where|when|which|who|is|are|was|do|does|did|can|could|should|would|will|shall|have|has|"
    r"isn'?t|aren'?t|don'?t (?:we|you)|didn'?t)\b(?!.*[.!;]\s+\S)|\?\W*$",
    re.I | re.S,
)
"""A question decides nothing: ``why is it never called``, ``we never do that, right?``."""
_HEDGED = re.compile(
    r"\b(?:consider|whether|wonder|maybe|perhaps|i (?:think|guess|thought)|might|not sure|wrong chat)\b", re.I
)
_REASON = re.compile(r"\b(?:because|otherwise|so that|so no need|the risk)\b", re.I)
_DECIDES = re.compile(
    r"\b(?:let'?s|we should|should(?:n'?t| not)|must|don'?t|do not|no need|instead of|rather than|avoid|we want"
    r"|we'?ll|keep|replace|drop)\b",
    re.I,
)
_POINTING = re.compile(
    r"^\W*(?:(?:ok|okay|yes|no|yeah|and|but|so|also|then|just|please|can you|let'?s|don'?t|do not)[\s,]+)*"
    r"(?:\w+ )?(?:this|that|it|these|those|them|here|there|the (?:two|three|others?|new|old|same|last|first|second))\b",
    re.I,
)
"""Words that need what stands before them: ``no, remove this again because …``, ``the other one is …``; not ``keep the
queue, since …``."""
_ASKS = re.compile(r"\W*(?:please|can|could|would|will|let|then|also|now|next|go|add|make|fix|submit|after)\b", re.I)
"""How a sentence begins that asks for something now."""
_TAKEN_BACK = re.compile(
    r"\b(?:wrong (?:chat|window|session)|never ?mind|scratch that|disregard|ignore (?:my|the|that|this) (?:last|prev))",
    re.I,
)
"""The user takes back what he said last."""
_COURSE = re.compile(
    r"\b(?:next(?: steps?)?|proceed|continue|commit|push|pull request|go ahead|ready|approve|start|run|review)\b", re.I
)
"""A question about the course of this very work: ``what would you like to do next?``; its answer decides nothing."""
_OPTION = re.compile(r"\s*(?:[-*] +)?(?:#{1,4} +)?(?:\*\*)?(?:Option +|Approach +)?\(?(?:\d{1,2}|[A-Ha-h])[.):]")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_OFFERING = re.compile(r"(?:would|do) you (?:like|want|prefer)|shall i|should i|options?\b|which (?:one|of)", re.I)
"""What leads to options and says nothing of what they are about: ``Would you like me to:``."""
_FORBIDS = re.compile(
    r"(?:^|[.;,:!]\s*|\b(?:please|and|but|so) )(?:do not|don'?t|never|no|avoid|always|must|only)\b"
    r"|\b(?:must|has to|have to)\b",
    re.I,
)
"""What binds this task at least: ``don't mock the store``, ``it must run on 3.11``; not ``I do not know``."""
_PLACE = re.compile(r"^\s*(?:\[[\w:.-]+\] )?(?:[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)*\)?:? *)?")
"""Where an error stands: ``[lint] a/b.go:12:3: ``."""
_NAMED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\S*[\d_/\\.]\S*\w|\b[a-z]+[A-Z]\w*|\b[A-Z]\w+[A-Z]\w*")
"""Names in what a linter says: quoted, a path, an identifier."""
_NUMBERED = re.compile(r"\S*/\S*|\S*\d\S*|0x[0-9a-f]+")
"""What another time differs: a path, a number, a time."""
_RULE = re.compile(r"\((?!typecheck)[a-z][a-z-]{3,30}\)\s*$|\b[A-Z]{1,4}\d{3,4}\b|\berror TS\d+")
"""The rule of a linter: ``… is not checked (errcheck)``, ``E501``; not ``(typecheck)``."""
_PROVIDES = frozenset(("install", "add", "sync", "setup", "trust", "bootstrap", "link", "restore", "ci"))
"""Words of commands that provide what was missing: ``bun install``, ``npm ci``."""
_NO_ERROR = re.compile(
    r"exit(?:ed)? (?:with )?(?:code|status)|task failed|^\W*(?:\d+ )?(?:fail|failed|errors?)\W*$|<tool_use_error>", re.I
)
"""Lines that only say that something failed, and errors of the agent's own tools, which every project has."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing worth knowing in another conversation."""

    kind: Kind
    text: str
    """In one line; the user's words in it stand in quotes."""
    words: str
    """What stands in the turn to the letter, white space aside: the user's words, or the error."""
    turn: str
    subject: str
    """The same for what is about the same: by it errors come back, and a newer decision replaces an older one."""
    mended: str = ""
    """Of an error: the turn that shows it mended."""
    lasting: bool = True
    """False for what counts only if another conversation says it, too."""
    also: str = ""
    """Another turn, which holds names of the text that the turn itself does not."""
    is_long: bool = False
    """Of words: they stand in a message too long to be typed, which may be a form."""


def lessons_of(evidence: Evidence) -> list[Lesson]:
    """What the record proves, in its order; nothing that holds a secret, and nothing twice."""
    every = [*_wishes(evidence), *_choices(evidence), *_errors(evidence)]
    kept = {(one.kind, one.text): one for one in reversed(every) if in_the_record(one, evidence)}
    return list(reversed(kept.values()))


def in_the_record(lesson: Lesson, evidence: Evidence) -> bool:
    """True if the turn that `lesson` cites holds its words once all secrets are out, and its text hides nothing: no
    secret, no character that is not seen, no mark of a file."""
    turn, text = evidence.turns.get(lesson.turn), lesson.text
    if turn is None or not lesson.words.strip() or redact(text) != text or not text.isprintable() or "<!--" in text:
        return False
    spoken = tuple(turn.lines.of_sources("user", "agent"))  # what a page or a tool says decides nothing
    own = {"wish": turn.user_lines, "decision": spoken, "error": turn.lines}[lesson.kind]
    return folded(lesson.words) in folded(redact(join_lines(own)))


def sentence_key(text: str) -> str:
    """The same for sentences that say the same but for marks, letter case and names of no weight."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def folded(text: str) -> str:
    """`text` in one line, with single spaces."""
    return " ".join(text.split())


def _wishes(evidence: Evidence) -> Iterator[Lesson]:
    for turn in _standing_turns(evidence):
        answers = any(call.kind == "ask" for call in turn.calls)  # whose words the host frames
        own = [line for line in turn.user_lines if line.part == "user" or not answers]
        is_long = sum(len(line.text) for line in own) > TYPED_CHARACTERS
        for one in statements(typed_lines(own)):
            words = _binding_words(one)
            decides = _is_reasoned(words)
            lasts = bool(_LASTING.search(words)) and (decides or _REASON.search(words) is not None or not is_long)
            if lasts or decides or (_FORBIDS.search(words) and not is_long):
                kind: Kind = "wish" if lasts or not decides else "decision"
                subject, counts = sentence_key(words), lasts or decides
                yield Lesson(kind, f"“{words}”", words, turn.turn.id, subject, lasting=counts, is_long=is_long)


def _standing_turns(evidence: Evidence) -> list[TurnEvidence]:
    """The turns in which the user spoke, but for those that he took back right after."""
    spoken = [turn for turn in evidence.turns.values() if turn.user_lines]
    taken_back = {
        before.turn.id
        for before, after in pairwise(spoken)
        if any(_TAKEN_BACK.search(line.text) for line in after.user_lines)
    }
    return [turn for turn in spoken if turn.turn.id not in taken_back]


def _binding_words(statement: Statement) -> str:
    """What of a statement may bind, in one line, without what it asks for behind that; empty if it asks a question or
    doubts, or nobody would understand it alone."""
    sentences = _SENTENCE.split(folded(statement.text))
    binding = [at for at, one in enumerate(sentences) if _LASTING.search(one) or _is_reasoned(one)]
    behind = sentences[binding[-1] + 1 :] if binding else []
    text = " ".join([*sentences[: len(sentences) - len(behind)], *takewhile(lambda one: not _ASKS.match(one), behind)])
    if len(text) > WORDS_CHARACTERS and binding:
        text = sentences[binding[-1]]
    is_clear = len(text.split()) >= LEAST_WORDS and len(text) <= WORDS_CHARACTERS and not _POINTING.match(text)
    return text if is_clear and not (_QUESTION.search(text) or _HEDGED.search(text)) else ""


def _is_reasoned(text: str) -> bool:
    """True for a decision of the user that says why."""
    return bool(_REASON.search(text) and _DECIDES.search(text))


def _choices(evidence: Evidence) -> Iterator[Lesson]:
    """What the user chose of what he was offered."""
    before: dict[str, TurnEvidence] = {}
    for turn in _standing_turns(evidence):
        for call in turn.calls if turn.turn.kind != "user" else ():
            for question, answer in _answers(call) if call.kind == "ask" else ():
                if not _COURSE.search(question) and len(question.split()) >= LEAST_WORDS:
                    text = f"{shortened(question, WORDS_CHARACTERS)} → “{answer}”"
                    yield Lesson("decision", text, answer, turn.turn.id, sentence_key(question))
        choice = turn.choice
        if choice is not None and _OPTION.match(choice.text) and "\n" not in choice.text:
            question = _question_of(evidence.turns[choice.turn_id], choice.lines, before.get("user"))
            words = folded(" ".join(line.text for line in typed_lines(turn.user_lines)))
            if question and not _COURSE.search(question) and len(words) <= WORDS_CHARACTERS:
                text = f"{question} → “{words}”: {shortened(choice.text, WORDS_CHARACTERS)}"
                yield Lesson("decision", text, words, turn.turn.id, sentence_key(question))
        before["user"] = turn


def _answers(call: Call) -> Iterator[tuple[str, str]]:
    """Question and answer of each that `call` asked and that was answered by one of the options it offered."""
    asked = call.input.get("questions")
    for one in asked if isinstance(asked, list) else [call.input]:
        if not isinstance(one, Mapping) or not isinstance(question := one.get("question"), str):
            continue
        offered = one.get("options") or one.get("choices") or ()
        labels = [str(each.get("label", "")) if isinstance(each, Mapping) else str(each) for each in offered]
        marks = (f'"{question}"="{{}}"', "User selected: {}")
        for label in filter(None, labels):
            if any(mark.format(label) in call.text for mark in marks):
                yield folded(question), folded(label).removesuffix(" (Recommended)")


def _question_of(turn: TurnEvidence, chosen: Sequence[int], asker: TurnEvidence | None) -> str:
    """What the options of `turn` were about: the statement before the first of them, or what the user had asked."""
    spoken = [one for one in statements(turn.lines.of_part("assistant")) if one.text.strip()]
    options = [at for at, one in enumerate(spoken) if _OPTION.match(one.text)]
    first = next((at for at in reversed(options) if at - 1 not in options and spoken[at].numbers[0] <= chosen[0]), 0)
    lead = folded(spoken[first - 1].text).strip("*:# ") if first else ""
    asked = folded(" ".join(line.text for line in typed_lines(asker.user_lines))) if asker else ""
    clear = (one for one in (lead, asked) if len(one.split()) >= LEAST_WORDS and not _OFFERING.match(one))
    return shortened(next(clear, ""))


def _errors(evidence: Evidence) -> Iterator[Lesson]:
    """What failed when a check was run, with what made the same command pass."""
    passed = {failed: line.turn_ids[-1] for line in recoveries(evidence) for failed in line.turn_ids[:-1]}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status != "failed" or outcome.refused or not check_kinds(call):
            continue
        mended = passed.get(turn.turn.id, "")
        told = f"of `{shortened(evidence.shown(call.subject), 80)}`" + _remedy(evidence, turn.turn.id, mended)
        for line in turn.statements_of(turn.decisive_lines):
            words, subject = folded(line.text), error_subject(line.text)
            if subject and line.block == call.result_block:
                text = f"`{words.replace('`', '')}` {told}"
                yield Lesson("error", text, words, turn.turn.id, subject, mended, lasting=False)


def error_subject(text: str) -> str:
    """What an error says whatever the line and the number; of a linter its rule. Empty if it is everybody's."""
    text = _PLACE.sub("", folded(text))
    rule = _RULE.search(text)
    bare = sentence_key(_NUMBERED.sub(" ", _NAMED.sub(" ", text) if rule else text))
    is_own = len(bare.split()) >= LEAST_ERROR_WORDS and len(text) <= ERROR_CHARACTERS
    return bare if is_own and not _NO_ERROR.search(text) else ""


def _remedy(evidence: Evidence, failed: str, passed: str) -> str:
    """What was done between the two turns, as far as it is little enough to be the remedy."""
    if not passed:
        return ""
    first, last = (evidence.turns[turn_id].turn.number for turn_id in (failed, passed))
    done: dict[str, None] = {}
    for turn, call, outcome in evidence.ended_calls():
        if first <= turn.turn.number <= last and outcome.status not in ("failed", "unanswered"):
            done |= dict.fromkeys(f"a change of {evidence.shown(path)}" for path in changed_paths(call))
            done |= {f"`{' '.join(one.words)}`": None for one in call.commands if _PROVIDES.intersection(one.words[:3])}
    how = f" after {', '.join(done)}" if 0 < len(done) <= MOST_REMEDIES else ""
    return f"; passed{how} at {passed}"
