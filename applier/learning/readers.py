"""Readers that find lessons in a conversation: the rules alone, or also a model, asked once for each conversation.

A model's lesson is untrusted: it counts only if the cited turn contains its words, and the conversation its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from applier.learning.by_rules import (
    check_commands,
    choices,
    failures,
    is_lasting,
    is_question,
    passes_again,
    reasons,
    wishes,
)
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
from applier.learning.propose import MOST_CANDIDATES, ProposedLine, Review
from applier.settings import load_settings
from planner.analysis import analyze_history
from planner.api import asks_model
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.plan import Usage
from planner.reading.lines import join_lines, one_line
from planner.reading.tokens import TokenCounter

if TYPE_CHECKING:
    from planner.model.lessons import LessonsModel, ReviewedLine, WrittenLesson

WRITTEN_KINDS = frozenset({"decision", "fact", "wish", "error"})
"""Kinds of lessons that a model may find."""
MOST_CHARACTERS, MOST_LESSONS = 640, 12
"""Limits of a model's answer: characters in a lesson's text and words, and number of lessons."""

ALIKE = 0.5
"""Share of the words of a lesson by rules that a model's lesson must contain to count as the same lesson."""


class ReadLessons(NamedTuple):
    """Lessons (things that later conversations can use) of one conversation, and the cost of reading it."""

    lessons: list[Lesson]
    evidence: Evidence
    """Facts that were read from the conversation."""
    usage: Usage
    """Tokens that the model used; zero if rules read alone."""


@dataclass(frozen=True)
class Reader:
    """Finds lessons (what later conversations can use) in one conversation at a time, by rules and perhaps a model."""

    model: LessonsModel | None = None
    """Model that reads in addition to the rules; None if the rules read alone."""

    @property
    def name(self) -> str:
        """Name of the model and its prompts, or ``rules``."""
        return self.model.name if self.model is not None else "rules"

    def estimated_cost(self, due: Sequence[FinishedConversation], known: Review, unseen: int) -> float:
        """Return the estimated highest cost in dollars of finding lessons in the conversations `due` and reviewing
        them. `known`: a model's present review. `unseen`: number of other new lessons to be reviewed."""
        if self.model is None:
            return 0.0
        reading_cost = sum(self.model.estimated_cost(conversation.tokens) for conversation in due)
        return reading_cost + self.estimated_review_cost(known, unseen + MOST_LESSONS * len(due))

    def estimated_review_cost(self, known: Review, unseen: int) -> float:
        """Return the highest cost in dollars of letting the model review `unseen` new lessons. Each question to the
        model also has the newest lessons that the review `known` keeps."""
        new_counts = [min(MOST_CANDIDATES, unseen - start) for start in range(0, unseen, MOST_CANDIDATES)]
        kept_count = min(MOST_CANDIDATES, len(known.groups) + unseen - new_counts[0]) if new_counts else 0
        return sum(
            self.model.estimated_review_cost(count + kept_count) for count in new_counts if self.model is not None
        )

    def cost(self, usage: Usage) -> float:
        """Return the dollars that a model's `usage` (its tokens) costs."""
        return self.model.price(usage) if self.model is not None else 0.0

    def read(self, conversation: FinishedConversation) -> ReadLessons:
        """Return the lessons (what later conversations can use) of a conversation, with the facts read and tokens
        used."""
        analysis = analyze_history(conversation.load(), TokenCounter.for_model(""))
        if self.model is None:
            return ReadLessons(lessons_of(analysis.evidence), analysis.evidence, Usage())
        answer, usage = self.model.ask(analysis)
        return ReadLessons(with_written(answer, analysis.evidence), analysis.evidence, usage)

    def review(self, known: Review, lines: Sequence[ProposedLine]) -> tuple[Review, Usage]:
        """Let the model judge `lines` that are proposed for the file of lessons and that it has not judged yet. Return
        its earlier judgements, `known`, with the new ones, and the tokens used."""
        used = Usage()

        def ask(candidates: str) -> Sequence[ReviewedLine]:
            """Send the text of the `candidates` to the model; return its answer."""
            nonlocal used
            answer, used = cast("LessonsModel", self.model).review(candidates)
            return answer

        return known.grown(lines, ask), used


def lessons_of(evidence: Evidence) -> list[Lesson]:
    """Return the lessons (what later conversations can use) that rules find and the conversation proves, each once."""
    found = [lesson for read in (wishes, choices, reasons, check_commands, failures) for lesson in read(evidence)]
    kept = {(lesson.kind, lesson.text): lesson for lesson in reversed(found) if is_proven(lesson, evidence)}
    return list(reversed(kept.values()))


def with_written(answer: Sequence[WrittenLesson], evidence: Evidence) -> list[Lesson]:
    """Return the valid lessons (what later conversations can use) of a model's `answer`, then those by rules. Lessons
    by rules that repeat one of the model are left out, except commands, as a model writes none."""
    written = list(filter(None, (_valid_lesson(one, evidence) for one in answer[:MOST_LESSONS])))
    covered = [stems(f"{one.text} {one.words}") for one in written]
    return [*written, *(one for one in lessons_of(evidence) if one.kind == "command" or not _is_covered(one, covered))]


def _is_covered(lesson: Lesson, covered: Sequence[set[str]]) -> bool:
    """Return True if a lesson by rules repeats a lesson by the model; `covered` has the word stems of each of the
    latter."""
    wanted = stems(lesson.text)
    return any(len(wanted & words) >= max(1, ALIKE * len(wanted)) for words in covered)


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
    also = _turn_with_names(missing, turn, evidence) if missing else ""
    if written.kind == "error":
        subject = _error_key(words, turn, evidence) if _is_shown_solved(written, turn, evidence) else ""
        lesson = Lesson(
            "error", claim_with_words("error", text, words), words, written.turn, subject, written.mended, also=also
        )
    elif written.kind == "wish" and is_question(words):
        return None
    else:
        subject = sentence_key(written.about) or sentence_key(text)
        kind = cast("Kind", written.kind)
        lasts = kind != "wish" or turn.turn.kind == "user" or is_lasting(words)  # else the user refused one call
        lesson = Lesson(
            kind, claim_with_words(kind, text, words), words, written.turn, subject, lasting=lasts, also=also
        )
    return lesson if lesson.subject and is_proven(lesson, evidence) else None


def _error_key(words: str, turn: TurnEvidence, evidence: Evidence) -> str:
    """Return the key of an error whose text is `words` (`error_subject`); empty if no failed call of `turn` shows
    them."""
    failed = "\n".join(call.text for call in turn.failed_calls)
    return error_subject(words) if is_quoted(words, failed, evidence) else ""


def _is_shown_solved(written: WrittenLesson, turn: TurnEvidence, evidence: Evidence) -> bool:
    """Return True if the conversation shows that the error, which a model calls solved, was solved. The check that
    failed in `turn` must succeed in the turn ``written.mended``, and by then the user or the agent must have written
    the cause ``written.why``."""
    mended, why = evidence.turns.get(written.mended), written.why
    if mended is None or not why.strip() or mended.failed_calls or not passes_again(turn, mended):
        return False
    between = (one for one in evidence.turns.values() if turn.turn.number <= one.turn.number <= mended.turn.number)
    return any(is_quoted(why, join_lines(tuple(one.lines.of_sources("user", "agent"))), evidence) for one in between)


def _turn_with_names(names: Sequence[str], turn: TurnEvidence, evidence: Evidence) -> str:
    """Return the id of the turn that contains most of `names`; of several, the nearest to `turn`."""
    nearest = sorted(evidence.turns.values(), key=lambda one: abs(one.turn.number - turn.turn.number))
    return max(nearest, key=lambda one: sum(map(one.names.holds, names))).turn.id


@contextmanager
def open_reader(planner: Any, model: str | None, prompts: Path | None) -> Iterator[Reader]:
    """Yield the reader for `planner` and `model`; if they are missing, those of the settings count. A model reads the
    prompts in the folder `prompts`, or the packaged ones. Its connection is open during the block."""
    settings = load_settings()
    planner, model = planner or settings.planner, model or settings.planner_model or None
    if not asks_model(planner, model):
        yield Reader()
        return
    from planner.model.client import open_endpoint
    from planner.model.lessons import LessonsModel
    from planner.model.prompts import load_prompts

    with open_endpoint(None, model) as endpoint:
        yield Reader(LessonsModel(endpoint, load_prompts(prompts), settings.plan))
