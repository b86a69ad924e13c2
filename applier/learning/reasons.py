"""Decisions that the agent published with their reason: in the message of a commit, or in an answer to a review.

What was committed stood when it was said; what says of itself that it is passing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from applier.learning.kinds import Lesson, folded, sentence_key, sentences
from planner.evidence import Evidence
from planner.evidence.calls import Call
from planner.evidence.names import specifics_of
from planner.evidence.shell import Command

__all__ = ["reasons"]

_POINTING = re.compile(r"\W*(?:this|that|these|those|it|they)\b", re.I)
_ESCAPED = re.compile(r"\\([`\"$\\])|\*\*")
"""What a shell takes off a text, and the marks of bold letters."""
LEAST_WORDS, MOST_CHARACTERS = 8, 320

_HEREDOC = re.compile(r"<<-?\s*['\"\\]?(\w+)['\"]?[^\n]*\n(.*?)\n\s*\1\b", re.S)
_QUOTED = re.compile(r"(?:-m|--message|--body|\bbody=)[ =]?\"((?:[^\"\\]|\\.)*)\"|(?:-m|--body) '([^']*)'", re.S)
_GROUNDS = re.compile(
    r"\b(?:because|since|so that|otherwise|rather than|instead of|intentionally|by design|now that|to avoid|, so)\b"
    r"|\bso (?:that|we|it|the|this|a|deleting)\b|\bout of scope\b|\bisn't worth\b|, not [\w-]+",
    re.I,
)
"""``…, so we log and continue rather than …``; not ``Add a test``."""
_PASSING = re.compile(
    r"\b(?:this (?:PR|branch|commit)|follow-up|interim|for now|TODO|just (?:been )?(?:merged|added)|today|superseded"
    r"|fixed in|added in|already|stale|(?:good|valid) catch|(?:good|fair) point"
    r"|(?:we|it|this|they|which) now)\b|#\d+|merge conflict",
    re.I,
)
_PAST = re.compile(r"\b(?:was|were|caused|produced|passed|failed|didn't)\b", re.I)
"""What was, and is no decision."""
_DONE = re.compile(
    r"(?:^|[:*] +)(?:[-*] +)?(?:add|allow|cast|change|drop|extract|fix|make|mov|refactor|remov|renam|replac|restructur"
    r"|switch|throw|updat|us)(?:e?d?|es|s|ing)\b",
    re.I,
)
"""What one change did, and the next one may undo: ``- Use the constant instead of 64``; not ``We use it because …``."""
ALIKE = 0.6
"""Of the words of two sentences that say the same."""


def reasons(evidence: Evidence) -> Iterator[Lesson]:
    """Of each message its first sentence that gives a reason, of a commit with its title; what was published again only
    once.
    """
    told: list[frozenset[str]] = []
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status in ("failed", "unanswered", "running") or outcome.refused:
            continue
        for title, sentence in filter(None, map(_reasoned, _messages(call))):
            said = frozenset(sentence_key(sentence).split())
            if any(len(said & other) >= ALIKE * min(len(said), len(other)) for other in told):
                continue
            told.append(said)
            shown = f"“{_ESCAPED.sub(_unescaped, sentence)}”"
            text = f"{_ESCAPED.sub(_unescaped, title)}: {shown}" if title else shown
            yield Lesson("decision", text, sentence, turn.turn.id, sentence_key(title or sentence))


def _messages(call: Call) -> Iterator[tuple[bool, str]]:
    """What `call` publishes, and whether it is the message of a commit."""
    commits = any(one.starts("git", "commit") for one in call.commands)
    if call.kind == "run" and (commits or any(map(_comments, call.commands))):
        documents = [match[2] for match in _HEREDOC.finditer(call.command)]
        for text in documents or [match[1] or match[2] or "" for match in _QUOTED.finditer(call.command)]:
            yield commits, text


def _comments(command: Command) -> bool:
    """True for ``gh pr comment 7 --body …`` and ``gh api …/replies``."""
    answers = command.starts("gh", "api") and any(word.endswith(("/replies", "/comments")) for word in command.words)
    return answers or (command.words[0] in ("gh", "glab") and command.words[2:3] == ("comment",))


def _reasoned(message: tuple[bool, str]) -> tuple[str, str] | None:
    """Title and first sentence that gives a reason; None if there is none that can be understood: an answer to a review
    has to name what it is about."""
    is_commit, text = message
    title, _, body = text.partition("\n") if is_commit else ("", "", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] |#)", body):
        for sentence in filter(_is_lasting, sentences(folded(paragraph))):
            if title or (not _POINTING.match(sentence) and specifics_of(sentence)):
                return folded(title), sentence.removeprefix("- ")
    return None


def _is_lasting(sentence: str) -> bool:
    is_read = len(sentence.split()) >= LEAST_WORDS and len(sentence) <= MOST_CHARACTERS
    without = (_PASSING, _PAST, _DONE)
    return is_read and bool(_GROUNDS.search(sentence)) and not any(one.search(sentence) for one in without)


def _unescaped(match: re.Match[str]) -> str:
    return match[1] or ""
