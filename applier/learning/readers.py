"""Finds lessons (things that later conversations can use) in a finished conversation, by rules alone, or also by a
model, which is asked once for each conversation.

A model's lesson counts only if its words are in the turn that it cites, and the names in it in the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from applier.learning import by_rules
from applier.learning.learned import FinishedConversation
from applier.learning.lesson import (
    Kind,
    Lesson,
    beginnings,
    claim_with_words,
    error_subject,
    is_proven,
    is_quoted,
    sentence_key,
    stems,
)
from applier.learning.propose import MOST_CANDIDATES, Review
from applier.settings import load_settings
from planner.analysis import analyze_history
from planner.api import asks_model
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.plan import Usage
from planner.reading.lines import join_lines, one_line
from planner.reading.tokens import TokenCounter

if TYPE_CHECKING:
    from planner.model.lessons import LessonsModel, WrittenLesson

WRITTEN_KINDS = frozenset({"decision", "fact", "wish", "error"})
"""Kinds of lessons that a model may find."""
MOST_CHARACTERS, MOST_LESSONS = 640, 12
"""Limits of a model's answer: characters in a lesson's text and words, and number of lessons."""

ALIKE = 0.5
"""Share of the words of a lesson found by rules that a model's lesson must contain to count as the same lesson."""


ReadLessons = tuple[list[Lesson], Evidence, Usage]
"""Lessons (things that later conversations can use) of one conversation, the facts that were read from it, and the
tokens that the model used; zero if rules read alone."""


def read_lessons(conversation: FinishedConversation, model: LessonsModel | None = None) -> ReadLessons:
    """Return the lessons that rules find in a conversation, and those that `model` finds if it is not None; with the
    facts that were read from it, and the tokens that the model used."""
    analysis = analyze_history(conversation.load(), TokenCounter.for_model(""))
    if model is None:
        return lessons_of(analysis.evidence), analysis.evidence, Usage()
    answer, usage = model.ask(analysis)
    return with_written(answer, analysis.evidence), analysis.evidence, usage


def reading_cost(model: LessonsModel, due: Sequence[FinishedConversation], known: Review, unseen: int) -> float:
    """Return an upper estimate of the cost in dollars of letting `model` find lessons in the conversations `due`, and
    review them. `known`: what it has reviewed. `unseen`: number of other lessons that it has not reviewed yet."""
    review = review_cost(model, known, unseen + MOST_LESSONS * len(due))
    return review + sum(model.estimated_cost(conversation.tokens) for conversation in due)


def review_cost(model: LessonsModel, known: Review, unseen: int) -> float:
    """Return an upper estimate of the cost in dollars of letting `model` review `unseen` new lessons. Each question to
    it also contains the newest lessons that it kept in the review `known`."""
    # one question for each `MOST_CANDIDATES` new lessons
    new_counts = [min(MOST_CANDIDATES, unseen - start) for start in range(0, unseen, MOST_CANDIDATES)]
    kept_count = min(MOST_CANDIDATES, len(known.groups) + unseen - new_counts[0]) if new_counts else 0
    return sum(model.estimated_review_cost(count + kept_count) for count in new_counts)


def lessons_of(evidence: Evidence) -> list[Lesson]:
    """Return the lessons (things that later conversations can use) that rules find and `evidence` proves, each once."""
    found = [lesson for read in by_rules.READERS for lesson in read(evidence)]
    kept = {(lesson.kind, lesson.text): lesson for lesson in reversed(found) if is_proven(lesson, evidence)}
    return list(reversed(kept.values()))


def with_written(answer: Sequence[WrittenLesson], evidence: Evidence) -> list[Lesson]:
    """Return the valid lessons of a model's `answer`, then those that rules find. Of the latter, those that repeat one
    of the model are left out, except commands, as a model finds none."""
    written = list(filter(None, (_valid_lesson(one, evidence) for one in answer[:MOST_LESSONS])))
    covered = [stems(f"{one.text} {one.words}") for one in written]

    def is_new(lesson: Lesson) -> bool:
        """Return True if no lesson of the model is much like `lesson`."""
        words = stems(lesson.text)
        return not any(len(words & others) >= max(1, ALIKE * len(words)) for others in covered)

    return [*written, *(one for one in lessons_of(evidence) if one.kind == "command" or is_new(one))]


def _valid_lesson(written: WrittenLesson, evidence: Evidence) -> Lesson | None:
    """Return the lesson that a model has `written`; None if the conversation does not prove it. The cited turn must
    contain its words, and the conversation the names in it. An error counts only if calls show that it was solved."""
    text, words = one_line(written.text), one_line(written.words)
    turn = evidence.turns.get(written.turn)
    if turn is None or written.kind not in WRITTEN_KINDS or not text or len(text) + len(words) > MOST_CHARACTERS:
        return None
    # names that the turn does not contain, for both readings of the first word (a name, or a sentence's beginning)
    absent = (invented(form, turn.names) for form in beginnings(text))
    elsewhere = next((names for names in absent if all(map(evidence.names.holds, names))), None)
    if elsewhere is None:  # the conversation does not contain them either
        return None
    also = ""
    if elsewhere:  # the turn with most of these names; of several, the nearest
        nearest = sorted(evidence.turns.values(), key=lambda one: abs(one.turn.number - turn.turn.number))
        also = max(nearest, key=lambda one: sum(map(one.names.holds, elsewhere))).turn.id
    kind, mended, lasts = cast("Kind", written.kind), "", True
    subject = sentence_key(written.about) or sentence_key(text)
    if kind == "error":
        failed = "\n".join(call.text for call in turn.failed_calls)
        is_shown = is_quoted(words, failed, evidence) and _is_shown_solved(written, turn, evidence)
        subject, mended = error_subject(words) if is_shown else "", written.mended
    elif kind == "wish":
        subject = "" if by_rules.is_question(words) else subject
        # words that are no message of the user may be their reason to refuse one call
        lasts = turn.turn.kind == "user" or by_rules.is_lasting(words)
    claim = claim_with_words(kind, text, words)
    lesson = Lesson(kind, claim, words, written.turn, subject, mended, lasting=lasts, also=also)
    return lesson if subject and is_proven(lesson, evidence) else None


def _is_shown_solved(written: WrittenLesson, turn: TurnEvidence, evidence: Evidence) -> bool:
    """Return True if the conversation shows that an error was solved, as the model's lesson `written` claims. What
    failed in `turn` must succeed in the turn ``written.mended``, and the user or the agent must have written the cause
    ``written.why`` in one of the turns from the first to the second."""
    mended, why = evidence.turns.get(written.mended), written.why
    if mended is None or not why.strip() or mended.failed_calls or not by_rules.passes_again(turn, mended):
        return False
    between = (one for one in evidence.turns.values() if turn.turn.number <= one.turn.number <= mended.turn.number)
    return any(is_quoted(why, join_lines(tuple(one.lines.of_sources("user", "agent"))), evidence) for one in between)


@contextmanager
def open_model(planner: Any, model: str | None, prompts: Path | None) -> Iterator[LessonsModel | None]:
    """Yield the model that finds lessons, with an open connection; None if only rules shall find them. `planner` and
    `model` choose it; without them, the settings do. `prompts`: folder of its prompts; None for the packaged ones."""
    settings = load_settings()
    planner, model = planner or settings.planner, model or settings.planner_model or None
    if not asks_model(planner, model):
        yield None
        return
    from planner.model.client import open_endpoint
    from planner.model.lessons import LessonsModel
    from planner.model.prompts import load_prompts

    with open_endpoint(None, model) as endpoint:
        yield LessonsModel(endpoint, load_prompts(prompts), settings.plan)
