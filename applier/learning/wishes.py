"""Lessons in the user's own words: lasting wishes, decisions with their reason, and answers to dialogs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise, takewhile

from applier.learning.lesson import Kind, Lesson, folded, sentence_key, sentences
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.turns import shortened
from planner.evidence.user_words import typed_lines
from planner.reading.lines import Statement, statements

__all__ = ["choices", "is_lasting", "is_question", "wishes"]

SHORT_MESSAGE = 1_500
"""Length of a message up to which its single sentences may be lessons."""
WORDS_CHARACTERS = 320
"""Largest length of a statement in characters; a longer one is a text of its own."""
LEAST_WORDS = 4
"""Fewest words that others understand: not ``always both``."""
_LASTING = re.compile(
    r"\b(?:from now on|going forward|as a rule)\b"
    r"|^(?:please )?(?:in (?:the )?future|next time|remember (?:to|that))\b"
    r"|^(?:every time|whenever|each time) (?:you|we)\b"
    r"|(?:^|[.;,:!]\s*|\b(?:please|must|should|shall|we|you|to|and|but|also) )"
    r"(?:always|never) (?!(?:been|was|were|is|are|had|has|did|got|seen)\b)(?!\w+ed\b|\w{2,}[^\Ws]s\b|happen\b)\w+"
    r"|\bwe (?:really )?(?:don'?t|do not) (?:want|use|do|allow|support|ship|write|accept|merge|mock)\b"
    r"|\bwe (?:want|prefer|have|need|try) to avoid\b"
    r"|\bwe (?:always |strongly )?prefer\b|\bwe only (?:use|support|ship)\b"
    r"|(?:^|[.;!]\s*|\bwe )no longer (?:need|use|want|support|ship)\b"
    r"|(?:^|[.;,:!]\s*|\band )no (?!idea|clue|problem)[\w ,-]{3,60}\b(?:at all|anywhere)\b"
    r"|\bthe (?:\w+ )?(?:directive|rule|principle|policy|convention) is\b"
    r"|\bwe(?:['’]re| are) (?:going to |now )?(?:adopt\w*|archiv\w*|deprecat\w*|standardi[sz]\w*|switch\w* to) "
    r"|\bmust (?:stay|remain)\b",
    re.I,
)
"""Words that bind beyond the task: ``from now on``, ``never push``, ``we don't want``, ``no eval anywhere``; not ``it
never returns``, ``this always failed``, ``I don't want that one``."""
_QUESTION = re.compile(
    r"^\W*(?:what|why|h?y|how|where|when|which|who|is|are|was|do|does|did|can|could|should|would|will|shall|have|has|"
    r"isn'?t|aren'?t|don'?t (?:we|you)|didn'?t)\b(?!.*[.!;]\s+\S)|\?\W*$",
    re.I | re.S,
)
"""Question, which decides nothing: ``why is it never called``, ``we never do that, right?``."""
_AFTERTHOUGHT = re.compile(r",? but (?:i think|i guess|not sure|maybe|perhaps)\b.*$", re.I | re.S)
"""Doubt at the end of a statement: ``never block the user, but I think we should warn``."""
_ASSENT = re.compile(r"^(?:yes|ok|okay|yeah|sure)[.,!]? +", re.I)
_REASON = re.compile(r"\b(?:because|otherwise|so that|so no need|the risk|we (?:don['’]?t|do not) have an?)\b", re.I)
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
"""Words that need their context: ``no, remove this again because …``; not ``keep the queue, since …``."""
_ASKS = re.compile(
    r"\W*(?:please|can|could|would|will|let|then|also|now|next|go|add|make|fix|submit|after|see|refer|though)\b", re.I
)
"""Beginning of a sentence that asks for something now."""
_TAKEN_BACK = re.compile(
    r"\b(?:wrong (?:chat|window|session)|never ?mind|scratch that|disregard|ignore (?:my|the|that|this) (?:last|prev))",
    re.I,
)
"""Words that take back the user's last words."""
_COURSE = re.compile(
    r"\b(?:next(?: steps?)?|proceed|continue|commit|push|pull request|go ahead|ready|approve|start|run|review"
    r"|would you like to (?:do|work))\b",
    re.I,
)
"""Question about the next step of this work: ``what would you like to do next?``; its answer decides nothing."""
COURSE_WORDS = 20
"""Largest number of words in such a question."""
_CONVENTIONS = re.compile(r"\b(?:constraints|conventions|ground rules|house rules|principles|guidelines)\b", re.I)
_ITEM = re.compile(r"^(?:[-*•]|\d{1,2}[.)]) +")
_OF_THIS_TASK = re.compile(
    r"\bthis (?:is|task|PR|change|branch|issue|session)\b|\bthe (?:proposed|new|PR|task)\b|#\d", re.I
)
_FORBIDS = re.compile(
    r"(?:^|[.;,:!]\s*|\b(?:please|and|but|so) )(?:do not|don'?t|never|no|avoid|always|must|only)\b"
    r"|\b(?:must|has to|have to)\b",
    re.I,
)
"""Words that bind at least this task: ``don't mock the store``, ``it must run on 3.11``; not ``I do not know``."""


def wishes(evidence: Evidence) -> Iterator[Lesson]:
    """Yield the user's wishes, with whether each one lasts, and decisions with their reason, in their own words."""
    yield from _conventions(evidence)
    for turn in _kept_turns(evidence):
        is_answer = any(call.kind == "ask" for call in turn.calls)  # the host adds its own words to an answer
        written = [line for line in turn.user_lines if line.part == "user" or not is_answer]
        if sum(len(line.text) for line in written) > SHORT_MESSAGE:
            continue  # a task's description binds only that task
        for one in statements(typed_lines(written)):
            words = _binding_words(one)
            decides, lasts = _is_reasoned(words), is_lasting(words)
            if lasts or decides or _FORBIDS.search(words):
                kind: Kind = "wish" if lasts or not decides else "decision"
                yield Lesson(kind, f"“{words}”", words, turn.turn.id, sentence_key(words), lasting=lasts or decides)


def _conventions(evidence: Evidence) -> Iterator[Lesson]:
    """Yield the items of lists that the user calls constraints or conventions, with whether each one lasts."""
    for turn in evidence.turns.values():
        is_listed = False  # under a heading that announces constraints or conventions
        for one in statements(line for line in turn.user_lines if line.part == "user"):
            text = folded(one.text)
            if text.startswith("#"):
                is_listed = bool(_CONVENTIONS.search(text))
            item = _ITEM.sub("", text)
            if is_listed and item != text and _is_clear(item) and not _OF_THIS_TASK.search(item):
                lasts, key = is_lasting(item), sentence_key(item)
                yield Lesson("wish", f"“{item}”", item, turn.turn.id, key, lasting=lasts, is_long=True)


def _kept_turns(evidence: Evidence) -> list[TurnEvidence]:
    """Return the turns with the user's words, except those that they took back in their next message."""
    spoken = [turn for turn in evidence.turns.values() if turn.user_lines]
    taken_back = {
        before.turn.id
        for before, after in pairwise(spoken)
        if any(_TAKEN_BACK.search(line.text) for line in after.user_lines)
    }
    return [turn for turn in spoken if turn.turn.id not in taken_back]


def _binding_words(statement: Statement) -> str:
    """Return a statement without assent, doubt and later requests for now; empty if it is not clear alone."""
    parts = sentences(_ITEM.sub("", folded(statement.text)))
    binding = [at for at, one in enumerate(parts) if _LASTING.search(one) or _is_reasoned(one)]
    later = parts[binding[-1] + 1 :] if binding else []
    text = " ".join([*parts[: len(parts) - len(later)], *takewhile(lambda one: not _ASKS.match(one), later)])
    text = _ASSENT.sub("", _AFTERTHOUGHT.sub("", text))
    return text if _is_clear(text) else ""


def _is_clear(text: str) -> bool:
    """Return True if the text can be understood alone, and asks nothing."""
    has_fit_length = len(text.split()) >= LEAST_WORDS and len(text) <= WORDS_CHARACTERS
    return has_fit_length and not _POINTING.match(text) and not is_question(text)


def is_question(text: str) -> bool:
    """Return True for a question."""
    return bool(_QUESTION.search(text))


def is_lasting(text: str) -> bool:
    """Return True for English text with words that bind beyond the task."""
    return bool(_LASTING.search(text))


def _is_reasoned(text: str) -> bool:
    """Return True for a decision of the user with its reason."""
    return bool(_REASON.search(text) and _DECIDES.search(text))


def choices(evidence: Evidence) -> Iterator[Lesson]:
    """Yield the user's answers to the agent's questions, without questions about the next step and very short ones."""
    for turn in _kept_turns(evidence):
        dialogs = [call for call in turn.calls if call.kind == "ask"] if turn.turn.kind != "user" else []
        for question, answer in chain.from_iterable(map(_answers, dialogs)):
            is_about_next_step = _COURSE.search(question) and len(question.split()) <= COURSE_WORDS
            if not is_about_next_step and len(question.split()) >= LEAST_WORDS:
                text = f"{shortened(question, WORDS_CHARACTERS)} → “{answer}”"
                yield Lesson("decision", text, answer, turn.turn.id, sentence_key(question))


def _answers(call: Call) -> Iterator[tuple[str, str]]:
    """Yield each question of `call` that the user answered by an offered option or by binding words, and the answer."""
    questions = call.input.get("questions")
    for one in questions if isinstance(questions, list) else [call.input]:
        question = one.get("question") if isinstance(one, Mapping) else None
        if not isinstance(question, str):
            continue
        form = re.escape(f'"{question}"="') + '([^"]+)"|^User (?:selected|responded): (.+)'
        match = re.search(form, call.text, re.S)
        answer = folded(match[1] or match[2]) if match else ""
        offered = one.get("options") or one.get("choices") or ()
        labels = {folded(str(each.get("label", "") if isinstance(each, Mapping) else each)) for each in offered}
        binds = any(words.search(answer) for words in (_DECIDES, _LASTING, _FORBIDS))
        if answer and (answer in labels or (binds and _is_clear(answer))):
            yield folded(question), answer.removesuffix(" (Recommended)")
