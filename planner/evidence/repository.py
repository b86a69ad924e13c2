"""What a history says of its repository: commits, branches, conflicts, and what is not committed or tested yet."""

from __future__ import annotations

import re
from collections.abc import Callable

from planner.evidence.calls import Call
from planner.evidence.changes import written_texts
from planner.evidence.gather import Evidence
from planner.evidence.said import Said, ended_calls, shortened
from planner.evidence.state import check_kinds
from planner.reading.patterns import lazy_pattern

__all__ = ["branches", "commits", "conflicts", "pending_changes"]


def pending_changes(evidence: Evidence) -> list[Said]:
    """The files that were changed after the last test, and after the last commit, if there was one."""
    since = {"test": _changed_since(evidence, _is_test), "commit": _changed_since(evidence, _commits)}
    return [
        Said(f"changed since the last {what}: {', '.join(map(evidence.shown, changed))}", tuple(changed.values()))
        for what, changed in since.items()
        if changed
    ]


def _changed_since(evidence: Evidence, closes: Callable[[Call], bool]) -> dict[str, str]:
    """Files with the turn that changed them last, behind the last call that `closes`; none if no call did."""
    changed: dict[str, str] = {}
    closed = False
    for turn, call, outcome in ended_calls(evidence):
        if outcome.status in ("failed", "unanswered"):
            continue
        if closes(call):
            closed = True
            changed.clear()
        changed |= {path: turn.turn.id for path, _, _ in written_texts(call)}
    return changed if closed else {}


def _is_test(call: Call) -> bool:
    return "test" in check_kinds(call)


_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""How git names a file in conflict: when it merges, in its status, and in its short status."""
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
_GIVEN_UP = lazy_pattern(r"\bgit (?:merge|rebase|cherry-pick|am) --(?:abort|quit)\b")


def conflicts(evidence: Evidence) -> list[Said]:
    """The files that a merge left in conflict and no commit settled, and which of them were changed since."""
    found: dict[str, str] = {}
    changed: dict[str, str] = {}
    for turn, call, outcome in ended_calls(evidence):
        if call.kind == "run" or call.command:
            if _commits(call) or _SETTLED.search(call.text) or _GIVEN_UP.search(call.command):
                found.clear()
            paths = (next(filter(None, match.groups())) for match in _CONFLICT.finditer(call.text))
            found |= {path.strip(): turn.turn.id for path in paths}
        if outcome.status != "failed":
            written = [path for path, _, _ in written_texts(call)]
            changed |= {path: turn.turn.id for path in found if any(one.endswith(path) for one in written)}
    if not found:
        return []
    since = [path for path in found if path in changed]
    text = f"merge conflicts in {', '.join(map(evidence.shown, found))}"
    text += f"; changed since: {', '.join(map(evidence.shown, since))}" * bool(since)
    return [Said(text, tuple(dict.fromkeys((*found.values(), *(changed[path] for path in since)))))]


def _commits(call: Call) -> bool:
    return call.kind == "run" and bool(_COMMIT.search(call.text))


_COMMIT = lazy_pattern(
    r"^\[(?P<branch>[\w./-]{1,120}) (?:\(root-commit\) )?(?P<hash>[0-9a-f]{7,40})\] (?P<subject>.*)$", re.M
)
"""What git says of a commit: ``[main a1b2c3d] Fix the race``."""


def commits(evidence: Evidence) -> list[Said]:
    """Commits that were made: hash and subject."""
    return [
        Said(f"commit {match['hash']} {shortened(match['subject'], 120)}", (turn.turn.id,))
        for turn, call, _ in ended_calls(evidence)
        if call.kind == "run"
        for match in _COMMIT.finditer(call.text)
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
