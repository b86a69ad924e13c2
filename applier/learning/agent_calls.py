"""Lessons from the agent's calls: the project's check commands, errors with the later success of the same check, and
reasons in commit messages and review answers.

If a file was changed, too, the cause of a success is unknown. Text about a single file or test is no lesson.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from applier.learning.lesson import Lesson, error_subject, folded, sentence_key, sentences
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.names import specifics_of
from planner.evidence.turns import shortened
from planner.programming.checks import check_kind, check_kinds, recoveries
from planner.programming.coding_tools import commands_in
from planner.programming.failures import RAN_NOTHING
from planner.programming.file_changes import changed_paths
from planner.programming.shell import Command, documents, without_paging
from planner.reading.lines import statements

__all__ = ["check_commands", "failures", "passes_again", "reasons"]

MOST_WORDS, WHY_CHARACTERS = 5, 280
"""Largest number of words in a general command, and of characters in its reason."""
_WHY = re.compile(
    r"\b(?:since|because|has no|doesn['’]t have|so (?:that )?(?:the|build|tests?|it)\b.{0,200}?\b(?:use|see|find))",
    re.I,
)
_OF_ONE_WORK = re.compile(r"\A(?:-run|-k|-t|--grep)\Z|::|\.\w{1,5}(?::\d{1,9})?\Z|\A(?!\./\.\.\.\Z)[^/]*+/|[$`\"'*\\]")
"""Word that refers to a file, a folder or a test: ``-run``, ``a.test.ts``, ``packages/core``; not ``./...``."""
_EVERYBODYS = re.compile(
    r"go (?:build|test|vet) \./\.\.\.|cargo (?:build|check|clippy|test)|make"
    r"|(?:npm|pnpm|yarn|bun)(?: run)? (?:build|check|lint|test|typecheck)"
    r"|(?:python3? -m )?(?:pytest|unittest)"
)
"""Commands that everybody tries first in any project of the kind."""

COMMAND_CHARACTERS = 80
_PROVIDES = frozenset(("install", "add", "sync", "setup", "trust", "bootstrap", "link", "restore", "ci"))
"""Words of commands that install something missing: ``bun install``, ``npm ci``."""

LEAST_WORDS, MOST_CHARACTERS = 8, 320
"""Fewest words and most characters of a sentence with a reason."""
ALIKE = 0.6
"""Share of common words from which two sentences count as the same."""
_QUOTED = re.compile(r"(?:-m|--message|--body|\bbody=)[ =]?\"((?:[^\"\\]|\\.)*)\"|(?:-m|--body) '([^']*)'", re.S)
_ESCAPED = re.compile(r"\\([`\"$\\])|\*\*")
"""Escapes of a shell, and marks of bold text."""
_GROUNDS = re.compile(
    r"\b(?:because|since|so that|otherwise|rather than|instead of|intentionally|by design|now that|to avoid|, so)\b"
    r"|\bso (?:we|it|the|this|a)\b|, not [\w-]+",
    re.I,
)
"""Sentence with a reason: ``…, so we log and continue rather than …``; not ``Add a test``."""
_PASSING = re.compile(
    r"\b(?:this (?:PR|branch|commit)|follow-up|interim|for now|TODO|just (?:been )?(?:merged|added)|today|superseded"
    r"|fixed in|added in|already|stale|(?:good|valid) catch|(?:good|fair) point|was|were|caused|produced|passed|failed"
    r"|didn't|(?:we|it|this|they|which) now)\b|#\d+|merge conflict",
    re.I,
)
"""Sentence about the present work or its past, which is no decision."""


# Checks of the project.


def check_commands(evidence: Evidence) -> Iterator[Lesson]:
    """Yield each general check command that succeeded, and each build command for which the agent wrote a reason."""
    known: set[str] = set()
    for turn, call, outcome in evidence.ended_calls():
        if not outcome.has_passed or any(RAN_NOTHING.search(one.text) for one in turn.statements_of(outcome.lines)):
            continue
        for command in commands_in(call) if call.kind == "run" else ():
            words, kind = " ".join(command.words), check_kind(command)
            if kind and _is_general(command) and not _EVERYBODYS.fullmatch(words) and words not in known:
                known.add(words)
                yield Lesson("command", f"{kind}: `{words}`", words, turn.turn.id, words, lasting=False)
            key = f"why {words}"
            if kind == "build" and key not in known and (why := _why(turn)):
                known.add(key)
                yield Lesson("command", f"`{words}`: “{why}”", why, turn.turn.id, key)


def _why(turn: TurnEvidence) -> str:
    """Return the first short sentence of the agent's words in `turn` that states a reason; empty if there is none."""
    spoken = " ".join(folded(one.text) for one in statements(turn.lines.of_part("assistant")))
    return next((one for one in sentences(spoken) if len(one) <= WHY_CHARACTERS and _WHY.search(one)), "")


def _is_general(command: Command) -> bool:
    """Return True for a short command, no part of a pipe, that mentions no single file, folder or test."""
    is_short = command.before in (";", "&&") and len(command.words) <= MOST_WORDS
    return is_short and not any(_OF_ONE_WORK.search(word) for word in command.words)


# Errors of checks.


def failures(evidence: Evidence) -> Iterator[Lesson]:
    """Yield the lines of failed checks, each with the command after which the same check succeeded, if known."""
    # the last turn of a recovery is the success, all others are failures
    passed = {failed: line.turn_ids[-1] for line in recoveries(evidence) for failed in line.turn_ids[:-1]}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status != "failed" or outcome.refused or call.kind != "run" or not check_kinds(call):
            continue
        success = passed.get(turn.turn.id, "")
        remedy = _remedy(evidence, turn, success) if success else ""
        ending = f"; passed after {remedy} at {success}" if remedy else ""
        for line in turn.statements_of(turn.decisive_lines):
            if line.block == call.result_block and (subject := error_subject(line.text)):
                words = folded(line.text)
                text = f"`{words.replace('`', '')}` of {_shown(evidence, call)}{ending}"
                yield Lesson("error", text, words, turn.turn.id, subject, success if remedy else "", lasting=False)


def passes_again(failed: TurnEvidence, later: TurnEvidence) -> bool:
    """Return True if a check (or else a program or tool) that failed in `failed` succeeds in `later`."""
    ended = [call for _, call, outcome in later.ended_calls if outcome.status in ("passed", "done")]
    return later.turn.number > failed.turn.number and any(map(_is_same, product(failed.failed_calls, ended)))


def _is_same(pair: tuple[Call, Call]) -> bool:
    """Return True if both calls run a check of one kind; if the first runs none, one program or tool."""
    first_kinds, second_kinds = map(set, map(check_kinds, pair))
    first, second = ({one.words[0] for one in commands_in(call)} or {call.name} for call in pair)
    return bool(first_kinds & second_kinds or (not first_kinds and first & second))


def _shown(evidence: Evidence, call: Call) -> str:
    """Return the command of `call` as code, shortened, without options that only shorten its output."""
    bare = without_paging(call.subject)
    return f"`{shortened(evidence.shown(bare), COMMAND_CHARACTERS).replace('`', '')}`"


def _remedy(evidence: Evidence, failed: TurnEvidence, passed: str) -> str:
    """Return the commands that installed something from the turn `failed` to the turn with the id `passed`; empty if a
    file was changed between them, as that may be the cause."""
    first, last = failed.turn.number, evidence.turns[passed].turn.number
    ran: dict[str, None] = {}
    for turn, call, outcome in evidence.ended_calls():
        if first <= turn.turn.number <= last and outcome.status not in ("failed", "unanswered"):
            if any(changed_paths(turn, call, outcome)):
                return ""
            ran |= {
                f"`{' '.join(one.words)}`": None for one in commands_in(call) if _PROVIDES.intersection(one.words[:3])
            }
    return ", ".join(ran)


# Published reasons.


def reasons(evidence: Evidence) -> Iterator[Lesson]:
    """Yield a decision from each published message (commit, comment, review answer): its first sentence with a reason,
    after the title of a commit. A sentence like an earlier one is left out."""
    known: list[frozenset[str]] = []
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status in ("failed", "unanswered", "running") or outcome.refused:
            continue
        for title, sentence in filter(None, map(_reasoned, _messages(call))):
            words = frozenset(sentence_key(sentence).split())
            if not any(len(words & other) >= ALIKE * min(len(words), len(other)) for other in known):
                known.append(words)
                text = _ESCAPED.sub(r"\1", f"{title}: “{sentence}”" if title else f"“{sentence}”")
                yield Lesson("decision", text, sentence, turn.turn.id, sentence_key(title or sentence))


def _messages(call: Call) -> Iterator[tuple[str, str]]:
    """Yield title and body of each message that `call` publishes; only a commit has a title."""
    is_commit = any(one.starts("git", "commit") for one in commands_in(call))
    if call.kind == "run" and (is_commit or any(map(_comments, commands_in(call)))):
        written = [one.text for one in documents(call.command)]
        for text in written or [match[1] or match[2] or "" for match in _QUOTED.finditer(call.command)]:
            title, _, body = text.partition("\n") if is_commit else ("", "", text)
            yield folded(title), body


def _comments(command: Command) -> bool:
    """Return True for a command that publishes a comment: ``gh pr comment 7 --body …``, ``gh api …/replies``."""
    answers = command.starts("gh", "api") and any(word.endswith(("/replies", "/comments")) for word in command.words)
    return answers or (command.words[0] in ("gh", "glab") and command.words[2:3] == ("comment",))


def _reasoned(message: tuple[str, str]) -> tuple[str, str] | None:
    """Return the title and the first sentence with a reason and, without a title, with a name; None without one."""
    title, body = message
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] |#)", body):
        for sentence in filter(_is_lasting, sentences(folded(paragraph))):
            if title or specifics_of(sentence):
                return title, sentence.removeprefix("- ")
    return None


def _is_lasting(sentence: str) -> bool:
    """Return True for a sentence of fit length that states a reason, and not one about the present work."""
    has_fit_length = len(sentence.split()) >= LEAST_WORDS and len(sentence) <= MOST_CHARACTERS
    return has_fit_length and bool(_GROUNDS.search(sentence)) and not _PASSING.search(sentence)
