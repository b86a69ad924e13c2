"""What one conversation teaches the next, as far as its record proves it: lasting wishes and decisions in the user's
own words, reasons that were published, how the project is checked, and errors with what mended them.

Reads evidence; asks nobody and writes nothing. Rather says nothing than what a reader would have to check.
"""

from __future__ import annotations

from applier.learning.check_commands import check_commands
from applier.learning.failures import failures
from applier.learning.kinds import Lesson, folded
from applier.learning.reasons import reasons
from applier.learning.wishes import choices, wishes
from applier.store.secrets import redact
from planner.evidence import Evidence
from planner.reading.lines import join_lines

__all__ = ["in_the_record", "is_said", "lessons_of"]


def lessons_of(evidence: Evidence) -> list[Lesson]:
    """What the record proves, in its order; nothing that holds a secret, and nothing twice."""
    readers = (wishes, choices, reasons, check_commands, failures)
    every = [one for read in readers for one in read(evidence)]
    kept = {(one.kind, one.text): one for one in reversed(every) if in_the_record(one, evidence)}
    return list(reversed(kept.values()))


def in_the_record(lesson: Lesson, evidence: Evidence) -> bool:
    """True if the turn that `lesson` cites holds its words once all secrets are out, and its text hides nothing: no
    secret, no character that is not seen, no mark of a file."""
    turn, text = evidence.turns.get(lesson.turn), lesson.text
    if turn is None or not lesson.words.strip() or redact(text) != text or not text.isprintable() or "<!--" in text:
        return False
    spoken = tuple(turn.lines.of_sources("user", "agent"))  # what a page or a tool says decides nothing
    own = {"wish": turn.user_lines, "error": turn.lines}.get(lesson.kind, spoken)
    return is_said(lesson.words, redact(join_lines(own)), evidence)


def is_said(words: str, text: str, evidence: Evidence) -> bool:
    """True if `words` stand in `text` to the letter, or as a card shows it: paths below the root without it."""
    return folded(words) in folded(text) or folded(words) in folded(evidence.shown(text))
