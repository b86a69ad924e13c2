"""What a history says of its repository: commits, branches, conflicts, and what is not committed or tested yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from planner.evidence.calls import Call
from planner.evidence.changes import written_texts
from planner.evidence.gather import Evidence, TurnEvidence
from planner.evidence.said import Said, ended_calls, shortened
from planner.evidence.state import check_kinds
from planner.reading.lines import number_set
from planner.reading.patterns import holds_any, lazy_pattern

__all__ = ["branches", "commits", "conflicts", "pending_changes"]


def pending_changes(evidence: Evidence) -> list[Said]:
    """The files that were changed after the last test, and after the last commit, if there was one."""
    since = {"test": _changed_since(evidence, _tests), "commit": _changed_since(evidence, _commits)}
    return [
        Said(f"changed since the last {what}: {', '.join(map(evidence.shown, changed))}", tuple(changed.values()))
        for what, changed in since.items()
        if changed
    ]


def _changed_since(evidence: Evidence, closing: Callable[[TurnEvidence], frozenset[int]]) -> dict[str, str]:
    """Files with the turn that changed them last, behind the last of the `closing` calls; none if there is none.

    `closing` gives of a turn the blocks of such calls.
    """
    changed: dict[str, str] = {}
    closed = False
    for turn, call, outcome in ended_calls(evidence):
        if outcome.status in ("failed", "unanswered"):
            continue
        if call.block in turn.once(closing):
            closed = True
            changed.clear()
        changed |= {path: turn.turn.id for path, _, _ in written_texts(call)}
    return changed if closed else {}


def _tests(turn: TurnEvidence) -> frozenset[int]:
    return number_set(call.block for call in turn.calls if "test" in check_kinds(call))


def _commits(turn: TurnEvidence) -> frozenset[int]:
    return number_set(call.block for call, git in zip(turn.calls, turn.once(_git_outputs), strict=True) if git.commits)


_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""How git names a file in conflict: when it merges, in its status, and in its short status."""
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
_GIVEN_UP = lazy_pattern(r"\bgit (?:merge|rebase|cherry-pick|am) --(?:abort|quit)\b")
_COMMIT = lazy_pattern(
    r"^\[(?P<branch>[\w./-]{1,120}) (?:\(root-commit\) )?(?P<hash>[0-9a-f]{7,40})\] (?P<subject>.*)$", re.M
)
"""What git says of a commit: ``[main a1b2c3d] Fix the race``."""
_GIT_WORDS = (
    "CONFLICT (",
    "both ",
    "UU ",
    "AA ",
    "Successfully rebased ",
    "Merge made by ",
    "All conflicts fixed ",
    "] ",
)
"""Every match of `_CONFLICT`, `_SETTLED` and `_COMMIT` holds one of these."""

GIT_CHARACTERS = 200_000
"""What git says is looked for in so much of a result at either end."""


@dataclass(frozen=True, slots=True)
class _GitOutput:
    """What git says in the result of one call."""

    commits: tuple[tuple[str, str], ...] = ()
    """Hash and subject of each that was made."""
    conflicts: tuple[str, ...] = ()
    """Files."""
    settles: bool = False
    """True if no file is in conflict any more, for a commit, the end of a merge, or because it was given up."""


_SILENT = _GitOutput()


def _git_outputs(turn: TurnEvidence) -> tuple[_GitOutput, ...]:
    """What git says in the result of each call of `turn`."""
    return tuple(map(_git_output, turn.calls))


def _git_output(call: Call) -> _GitOutput:
    if not (call.kind == "run" or call.command):
        return _SILENT
    text = call.text
    if len(text) > 2 * GIT_CHARACTERS:
        text = f"{text[:GIT_CHARACTERS]}\n{text[-GIT_CHARACTERS:]}"
    if not holds_any(text, _GIT_WORDS):
        text = ""
    commits = tuple((match["hash"], match["subject"]) for match in _COMMIT.finditer(text)) if call.kind == "run" else ()
    conflicts = tuple(next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(text))
    settles = bool(commits or _SETTLED.search(text) or _GIVEN_UP.search(call.command))
    return _GitOutput(commits, conflicts, settles) if commits or conflicts or settles else _SILENT


def conflicts(evidence: Evidence) -> list[Said]:
    """The files that a merge left in conflict and no commit settled, and which of them were changed since."""
    found: dict[str, str] = {}
    changed: dict[str, str] = {}
    for turn, call, outcome in ended_calls(evidence):
        git = turn.once(_git_outputs)[call.number]
        if git.settles:
            found.clear()
        found |= dict.fromkeys(git.conflicts, turn.turn.id)
        if found and outcome.status != "failed":
            written = [path for path, _, _ in written_texts(call)]
            changed |= {path: turn.turn.id for path in found if any(one.endswith(path) for one in written)}
    if not found:
        return []
    since = [path for path in found if path in changed]
    text = f"merge conflicts in {', '.join(map(evidence.shown, found))}"
    text += f"; changed since: {', '.join(map(evidence.shown, since))}" * bool(since)
    return [Said(text, tuple(dict.fromkeys((*found.values(), *(changed[path] for path in since)))))]


def commits(evidence: Evidence) -> list[Said]:
    """Commits that were made: hash and subject."""
    return [
        Said(f"commit {made} {shortened(subject, 120)}", (turn.turn.id,))
        for turn, call, _ in ended_calls(evidence)
        for made, subject in turn.once(_git_outputs)[call.number].commits
    ]


_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""The branch as git names it: ``On branch main``, ``## main...origin/main``, ``Switched to a new branch 'fix'``."""


_ON_BRANCHES = lazy_pattern(r"\b(?:git|gh|glab)\b")
"""Programs that change branches and say so: ``git switch main``, ``gh pr checkout 7``."""
_ASKS_BRANCH = lazy_pattern(r"\bgit (?:branch --show-current|rev-parse --abbrev-ref HEAD)")
_BRANCH_ALONE = lazy_pattern(r"^(\w[\w./-]{0,119})$", re.M)
"""What such a command prints: the name of the branch, alone in its line; not ``--- branch ---``."""


def branches(evidence: Evidence) -> list[Said]:
    """The branches that the work was on, the last one last."""
    seen: dict[str, list[str]] = {}
    for turn, call, _ in ended_calls(evidence):
        if _ON_BRANCHES.search(call.command):
            named = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(call.text)]
            if _ASKS_BRANCH.search(call.command):
                named += _BRANCH_ALONE.findall(call.text)[:1]
            for branch in named:
                seen[branch] = [*seen.pop(branch, []), turn.turn.id]
    current = next(reversed(seen), "")
    return [
        Said(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)))
        for branch, ids in seen.items()
    ]
