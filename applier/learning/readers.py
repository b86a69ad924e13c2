"""Finds the lessons in a conversation: by the rules alone, or also by a model, asked once for each conversation.

A model's lesson is untrusted: it counts only if the cited turn contains its words, and the conversation its names.
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
"""Share of the words of a lesson by rules that a model's lesson must contain to count as the same lesson."""


ReadLessons = tuple[list[Lesson], Evidence, Usage]
"""Lessons (things that later conversations can use) of one conversation, the facts that were read from it, and the
tokens that the model used; zero if rules read alone."""


def read_lessons(conversation: FinishedConversation, model: LessonsModel | None = None) -> ReadLessons:
    """Return lessons, facts and tokens used of a conversation, read by rules, and by `model` if it is not None."""
    analysis = analyze_history(conversation.load(), TokenCounter.for_model(""))
    if model is None:
        return lessons_of(analysis.evidence), analysis.evidence, Usage()
    answer, usage = model.ask(analysis)
    return with_written(answer, analysis.evidence), analysis.evidence, usage


def reading_cost(model: LessonsModel, due: Sequence[FinishedConversation], known: Review, unseen: int) -> float:
    """Return the estimated highest cost in dollars of finding lessons in the conversations `due` by `model`, and of
    reviewing them. `known`: its present review. `unseen`: number of other new lessons to be reviewed."""
    review = review_cost(model, known, unseen + MOST_LESSONS * len(due))
    return review + sum(model.estimated_cost(conversation.tokens) for conversation in due)


def review_cost(model: LessonsModel, known: Review, unseen: int) -> float:
    """Return the highest cost in dollars of letting `model` review `unseen` new lessons. Each question to it also has
    the newest lessons that the review `known` keeps."""
    new_counts = [min(MOST_CANDIDATES, unseen - start) for start in range(0, unseen, MOST_CANDIDATES)]
    kept_count = min(MOST_CANDIDATES, len(known.groups) + unseen - new_counts[0]) if new_counts else 0
    return sum(model.estimated_review_cost(count + kept_count) for count in new_counts)


def lessons_of(evidence: Evidence) -> list[Lesson]:
    """Return the lessons (what later conversations can use) that rules find and the conversation proves, each once."""
    found = [lesson for read in by_rules.READERS for lesson in read(evidence)]
    kept = {(lesson.kind, lesson.text): lesson for lesson in reversed(found) if is_proven(lesson, evidence)}
    return list(reversed(kept.values()))


def with_written(answer: Sequence[WrittenLesson], evidence: Evidence) -> list[Lesson]:
    """Return the valid lessons (what later conversations can use) of a model's `answer`, then those by rules. Lessons
    by rules that repeat one of the model are left out, except commands, as a model writes none."""
    written = list(filter(None, (_valid_lesson(one, evidence) for one in answer[:MOST_LESSONS])))
    covered = [stems(f"{one.text} {one.words}") for one in written]

    def is_new(lesson: Lesson) -> bool:
        wanted = stems(lesson.text)
        return not any(len(wanted & words) >= max(1, ALIKE * len(wanted)) for words in covered)

    return [*written, *(one for one in lessons_of(evidence) if one.kind == "command" or is_new(one))]


def _valid_lesson(written: WrittenLesson, evidence: Evidence) -> Lesson | None:
    """Return the lesson that a model has `written`; None if the conversation does not prove it. The turn must contain
    its words, and the conversation its names. An error counts only if calls show that it was solved."""
    text, words = one_line(written.text), one_line(written.words)
    turn = evidence.turns.get(written.turn)
    if turn is None or written.kind not in WRITTEN_KINDS or not text or len(text) + len(words) > MOST_CHARACTERS:
        return None
    # `absent`: names that the turn lacks, for both readings of the first word (a name, or a sentence's beginning)
    absent = (invented(form, turn.names) for form in beginnings(text))
    missing = next((names for names in absent if all(map(evidence.names.holds, names))), None)
    if missing is None:
        return None
    also = ""
    if missing:  # the turn with most of these names; of several, the nearest
        nearest = sorted(evidence.turns.values(), key=lambda one: abs(one.turn.number - turn.turn.number))
        also = max(nearest, key=lambda one: sum(map(one.names.holds, missing))).turn.id
    kind, mended, lasts = cast("Kind", written.kind), "", True
    subject = sentence_key(written.about) or sentence_key(text)
    if kind == "error":
        failed = "\n".join(call.text for call in turn.failed_calls)
        is_shown = is_quoted(words, failed, evidence) and _is_shown_solved(written, turn, evidence)
        subject, mended = error_subject(words) if is_shown else "", written.mended
    elif kind == "wish":
        subject = "" if by_rules.is_question(words) else subject
        lasts = turn.turn.kind == "user" or by_rules.is_lasting(words)  # else the user refused one call
    claim = claim_with_words(kind, text, words)
    lesson = Lesson(kind, claim, words, written.turn, subject, mended, lasting=lasts, also=also)
    return lesson if subject and is_proven(lesson, evidence) else None


def _is_shown_solved(written: WrittenLesson, turn: TurnEvidence, evidence: Evidence) -> bool:
    """Return True if the conversation shows that the error, which a model calls solved, was: the check that failed in
    `turn` succeeds in ``written.mended``, and by then the user or the agent has written the cause ``written.why``."""
    mended, why = evidence.turns.get(written.mended), written.why
    if mended is None or not why.strip() or mended.failed_calls or not by_rules.passes_again(turn, mended):
        return False
    between = (one for one in evidence.turns.values() if turn.turn.number <= one.turn.number <= mended.turn.number)
    return any(is_quoted(why, join_lines(tuple(one.lines.of_sources("user", "agent"))), evidence) for one in between)


@contextmanager
def open_model(planner: Any, model: str | None, prompts: Path | None) -> Iterator[LessonsModel | None]:
    """Yield the model for `planner` and `model`, by default those of the settings; None if rules read alone. It reads
    the prompts in the folder `prompts`, or the packaged ones. Its connection is open during the block."""
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
