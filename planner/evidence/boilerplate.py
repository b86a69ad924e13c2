"""What hosts and tools always say the same way: notes, templates and advice that tell a reader nothing new.

Cards and views leave it out. Project rules, reminders with content and an earlier summary are no boilerplate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter

from planner.reading.lines import Line, join_lines, number_set
from planner.reading.patterns import holds_any, lazy_pattern

__all__ = ["boilerplate_of", "is_wrapping", "without_boilerplate"]

_CONTENT = lazy_pattern(
    r"\s*(?:# AGENTS\.md instructions for |<(?:INSTRUCTIONS|user_instructions|environment_context|skills_instructions|"
    r"apps_instructions)>|\[aider output\])"
)
"""How a host's block begins that says something: ``# AGENTS.md instructions for /app``; not ``<command-name>``."""
_REMINDER = lazy_pattern(r"\s*<system-?_?reminder>\s*(?P<words>.{0,80})", re.S)
_NAGGING = lazy_pattern(
    r"(?:The (?:TodoWrite|task) tools? ha(?:s|ven't|sn't)|This is a reminder that your todo list|Your"
    r" todo list has changed|"
    r"Whenever you read a file|Warning: the file exists but (?:the contents are empty|is shorter))"
)
"""How a reminder begins that only tells the agent how to behave."""
_SENTENCES = lazy_pattern(
    r"\.? ?You can now continue with the user's answers in mind\.?"
    r"|User has answered your questions: "
    r"|The user doesn't want to proceed with this tool use\. The tool use was rejected"
    r"(?: \(eg\. if it was a file edit, the new_string was NOT written to the file\))?\."
    r"|To tell you how to proceed, the user said:"
    r"|STOP what you are doing and wait for the user to tell you how to proceed\."
    r"|\[Request interrupted by user(?: for tool use)?\]"
    r"|Todos have been modified successfully\. Ensure that you continue to use the todo list to track your progress\."
    r"(?: Please proceed with the current tasks if applicable)?"
    r"|You can now start coding\. Start with updating your todo list if applicable"
    r"|You can refer back to it if needed during implementation\."
    r"| ?Here's the result of running `cat -n` on a snippet of the edited file:"
    r"|Please review the changes and make sure they are correct(?: \(correct indentation, no duplicate"
    r" lines, etc\))?[.:]"
    r"| ?Edit the file again if necessary\."
    r"|Note: The user's next message may contain a correction or preference\..*"
)
"""Whole sentences that known hosts write, to the letter; what stands beside them in a line stays."""
_SENTENCE_WORDS = (
    *("answers in mind", "answered your questions", "want to proceed with", "how to proceed, the user said:"),
    *("STOP what you are doing", "[Request interrupted", "Todos have been modified", "You can now start coding"),
    *("You can refer back to it", "the result of running `cat -n`", "Please review the changes"),
    *("Edit the file again", "Note: The user's next message"),
)
"""Every match of `_SENTENCES` holds one of these: most lines need not be searched further."""
_WRAPPING = lazy_pattern(
    r"\s*(?:Chunk ID|Wall time|Process exited|Original token count|Total output lines|Output:|Exit code"
    r"|Error: Exit code|"
    r"<shellId:|Command .{0,160} executed with exit code|\[(?:The command|Command|Current|Python)[ :])"
)
"""What a host prints around the output of a command: ``Exit code 2``."""
_SILENT = lazy_pattern(
    r"\s*(?:Chunk ID: \S+|Wall time: [\d.]+ seconds?|Original token count: \d+|Output:|Process exited with code 0"
    r"|<shellId: \S+ completed with exit code 0>|\[The command completed with exit code 0\.\])\s*$"
)
"""Such a line that tells nothing: ``Wall time: 0.1 seconds``; not ``Output: 3 files`` or ``Exit code 2``."""
_SILENT_WORDS = ("Chunk ID:", "Wall time:", "Original token count:", "Output:", "exit code 0", "exited with code 0")
"""Every match of `_SILENT` holds one of these."""
REMINDER_LINES = 12
"""A reminder behind a result takes at most so many lines."""
_LONGEST = 400
"""No line of a host's own is longer, with what is beside its sentences."""


def without_boilerplate(text: str) -> str:
    """One line or statement without the sentences that a host always writes; empty if nothing else is in it."""
    if _SILENT.match(text):
        return ""
    bare = text.strip()
    if len(text) > _LONGEST or not bare:
        return text
    return _SENTENCES.sub("", text).strip() if holds_any(bare, _SENTENCE_WORDS) else bare


def is_wrapping(text: str) -> bool:
    """True for a line that a host prints around the output of a command."""
    return bool(_WRAPPING.match(text))


def boilerplate_of(lines: Sequence[Line]) -> frozenset[int]:
    """Numbers of the lines of one turn, with their sources, that are boilerplate of a host."""
    blocks = [list(group) for _, group in groupby(lines, key=attrgetter("block"))]
    return number_set(chain.from_iterable(map(_of_block, blocks)))


def _of_block(block: Sequence[Line]) -> Iterator[int]:
    if block[0].part == "result":
        yield from _sentences(block)
        yield from _reminders(block)
    elif block[0].part == "user":
        yield from _template(block)


def _reminders(result: Sequence[Line]) -> Iterator[int]:
    """What a host puts behind a result: a reminder between tags that stand alone, with nothing but it at the end."""
    filled = (line for line in reversed(result) if line.text.strip())
    end = list(islice(filled, REMINDER_LINES))[::-1]
    if end and end[-1].text.strip() == "</system-reminder>":
        opens = [at for at, line in enumerate(end) if line.text.strip() == "<system-reminder>"]
        yield from (line.number for line in end[opens[-1] if opens else len(end) :])


def _template(block: Sequence[Line]) -> Iterator[int]:
    """What a host wrote into the user's message: notes, expanded commands, skills, empty reminders."""
    opening = join_lines(block[:4])
    reminder = _REMINDER.match(opening)
    content = not _NAGGING.match(reminder["words"]) if reminder else bool(_CONTENT.match(opening))
    if not content:
        yield from (line.number for line in block if line.source == "host")


def _sentences(result: Sequence[Line]) -> Iterator[int]:
    """Lines of a result that hold nothing but what the host always says, pieces of one line together."""
    text = join_lines(result)
    if holds_any(text, (*_SILENT_WORDS, *_SENTENCE_WORDS)):
        for line in result:
            if not line.continues and line.text.strip() and not without_boilerplate(line.text):
                yield line.number
