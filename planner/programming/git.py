"""State of a git repository from the outputs of commands: commits, branches, files in conflict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from planner.evidence.calls import Call
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, shortened
from planner.programming.coding_tools import commands_in, folder_of
from planner.programming.file_changes import changed_paths, is_absolute, plain_path
from planner.programming.shell import Command, commands_of
from planner.reading.patterns import lazy_pattern

__all__ = ["branches", "commits", "conflicts"]

SUBJECT_CHARACTERS = 120
"""Length of the subject of a commit."""

_COMMIT = lazy_pattern(r"^\[(?:[^\s\[\]]{1,120}|detached HEAD) (?:\(root-commit\) )?([0-9a-f]{7,40})\] (.*)$", re.M)
"""Git's report of a commit: ``[main a1b2c3d] Fix the race``, ``[detached HEAD a1b2c3d] Try``; not ``[main] Fix``."""
_LOGGED = lazy_pattern(r"^[*|\\/ ]{0,9}([0-9a-f]{7,40}) (?:\([^()\n]{1,200}\) )?(.+)$", re.M)
"""A commit in ``git log --oneline``: ``a1b2c3d (HEAD -> main) Fix the race``."""
SHORT_HASH = 7
"""Smallest number of digits to which git abbreviates a hash."""
_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""Git's forms for a file in conflict: in a merge, in its status, and in its short status, ``UU src/a.py``."""
_BACK = lazy_pattern(r"HEAD(?:~(\d{1,2})?|\^)")
"""``HEAD~2``, ``HEAD^``; not ``HEAD``."""
_GIVING_UP = frozenset({"--abort", "--quit"})
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""Git's forms for the current branch: ``On branch main``, ``## main...origin/main``, ``Switched to a new branch
'fix'``."""
_ASKING_BRANCH = (("branch", "--show-current"), ("rev-parse", "--abbrev-ref", "HEAD"))
_BRANCH_ALONE = lazy_pattern(r"^(?!refs/|origin/|HEAD$|[0-9a-f]{7,40}$)(\w[\w./-]{0,119})$", re.M)
"""Output of such a command: the name of the branch, alone in its line; not ``--- branch ---``, a hash or ``HEAD``.
"""
_REBASING = frozenset({"rebase", "--rebase"})
_RUN_BY_USER = lazy_pattern(r"</?bash-(?:input|stdout)>")
"""Claude Code's marks of a command that the user ran themselves, ``! git commit``, and of its output."""


def _git_commands(call: Call) -> list[Command]:
    """Return the commands of `call` that print commits, branches and conflicts, without those that only predict
    them."""
    asked = [one for one in commands_in(call) if one.words[0] in ("git", "gh", "glab")]
    return [] if any(one.starts("git", "merge-tree") for one in asked) else asked


def _users_commands(turn: TurnEvidence) -> Sequence[Command]:
    """Return the commands that the user ran themselves, as Claude Code reports them."""
    ran = turn.text.partition("<bash-input>")[2] if turn.turn.kind == "user" else ""
    return commands_of(ran.partition("</bash-input>")[0]) if ran else ()


def _git_output(evidence: Evidence) -> Iterator[tuple[TurnEvidence, str, list[Command]]]:
    """Yield git's output in the repository of the work with its commands, the user's included."""
    for turn in evidence.turns.values():
        if turn.turn.kind == "user" and _RUN_BY_USER.search(turn.text):
            yield turn, _RUN_BY_USER.sub("\n", turn.text), list(_users_commands(turn))
        for call in turn.calls:
            if (asked := _git_commands(call)) and not _is_elsewhere(call, evidence.root):
                yield turn, call.text, asked


def _is_elsewhere(call: Call, root: str) -> bool:
    """Return True if `call` runs in a folder outside of `root` and not above it: ``cd /srv/other && git status``, ``git
    -C ../other log``; not ``cd src``."""
    asked = [*filter(None, [folder_of(call), *(one.folder for one in commands_in(call))])]
    moved = [one.words[-1].strip("\"'") for one in commands_in(call) if one.words[0] == "cd"]
    gone = [*asked, *(folder for folder in moved if is_absolute(folder) or folder.startswith(".."))] if root else []
    paths = [f"{plain_path(folder, [root]).rstrip('/')}/" for folder in gone]
    return any(not path.startswith(f"{root}/") and not f"{root}/".startswith(path) for path in paths)


def commits(evidence: Evidence) -> list[RecordLine]:
    """Return the commits that were neither amended nor undone: subject, and the hash in the last log."""
    made: list[tuple[str, str, str]] = []
    for turn, text, asked in _git_output(evidence):
        if "fatal: " not in text:
            made = made[: len(made) - sum(map(_taken_back, asked))]
        if any(_REBASING.intersection(one.words) for one in asked):  # all may have other names now
            made = []
        logged = {subject: digest for digest, subject in reversed(_LOGGED.findall(text))}
        made = [(_renamed(digest, logged.get(subject, digest)), subject, turn_id) for digest, subject, turn_id in made]
        made += [(digest, subject, turn.turn.id) for digest, subject in _COMMIT.findall(text)]
    last = {one[0][:SHORT_HASH]: one for one in made}
    return [
        RecordLine(f"commit {digest} {shortened(subject, SUBJECT_CHARACTERS)}", (turn_id,), "FACTS")
        for digest, subject, turn_id in last.values()
    ]


def _renamed(digest: str, logged: str) -> str:
    """Return the hash of a commit that a log shows as `logged`; two abbreviations of one hash are equal."""
    return digest if digest.startswith(logged) or logged.startswith(digest) else logged


def _taken_back(command: Command) -> int:
    """Return the number of newest commits that a command removes: ``git commit --amend``, ``git reset --soft
    HEAD~2``."""
    words = command.words[1:]
    if words[:1] == ("commit",):
        return int("--amend" in words)
    back = _BACK.fullmatch(words[-1]) if words[:1] == ("reset",) else None
    return int(back[1] or 1) if back else 0


def conflicts(evidence: Evidence) -> list[RecordLine]:
    """Return the files that a merge left in conflict, without those changed or committed since."""
    unresolved: dict[str, str] = {}
    for turn, call, outcome in evidence.ended_calls():
        written = tuple(changed_paths(turn, call, outcome))
        unresolved = {path: at for path, at in unresolved.items() if not any(one.endswith(path) for one in written)}
        asked = [] if _is_elsewhere(call, evidence.root) else _git_commands(call)
        if not asked:
            continue
        if _COMMIT.search(call.text) or _SETTLED.search(call.text) or any(_GIVING_UP & {*one.words} for one in asked):
            unresolved.clear()
        named = (next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(call.text))
        unresolved |= dict.fromkeys(named, turn.turn.id)
    text = f"merge conflicts in {', '.join(map(evidence.shown, unresolved))}"
    return [RecordLine(text, tuple(dict.fromkeys(unresolved.values())))] if unresolved else []


def branches(evidence: Evidence) -> list[RecordLine]:
    """Return the branches of the work, the last used at the end."""
    naming: dict[str, list[str]] = {}
    for turn, text, asked in _git_output(evidence):
        if any(one.starts("git", "worktree") for one in asked):
            continue  # the output may be about another worktree
        named = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(text)]
        asking = [one.words[1:] in _ASKING_BRANCH for one in asked]
        if any(asking) and "(no branch)" not in text:  # other commands printed before or after it
            alone = _BRANCH_ALONE.findall(text)
            named += alone[:1] if asking[0] else alone[-1:]
        for branch in named:
            naming[branch] = [*naming.pop(branch, []), turn.turn.id]
    current = next(reversed(naming), "")
    return [
        RecordLine(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)), "FACTS")
        for branch, ids in naming.items()
    ]
