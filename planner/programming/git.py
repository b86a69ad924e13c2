"""State of a git repository, from the output of commands: commits, branches, files in conflict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.evidence.calls import Call
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, shortened
from planner.programming.coding_tools import commands_in, folder_of
from planner.programming.file_changes import changed_paths, is_absolute, plain_path
from planner.programming.shell import Command, commands_of
from planner.reading.patterns import lazy_pattern

SUBJECT_CHARACTERS = 120
"""Largest length of the subject of a commit as it is shown."""

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
"""File in conflict, in the output of a merge, in git's status, or in its short status: ``UU src/a.py``."""
_BACK = lazy_pattern(r"HEAD(?:~(\d{1,2})?|\^)")
"""Ancestor of the current commit, by distance: ``HEAD~2``, ``HEAD^``; not ``HEAD``."""
_GIVING_UP = frozenset({"--abort", "--quit"})
"""Options that end a merge or rebase, with its conflicts."""
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
"""Report that no conflict is left."""
_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""Report of the current branch: ``On branch main``, ``## main...origin/main``, ``Switched to a new branch 'fix'``."""
_ASKING_BRANCH = (("branch", "--show-current"), ("rev-parse", "--abbrev-ref", "HEAD"))
"""Words after ``git`` of commands that print the name of the current branch."""
_BRANCH_ALONE = lazy_pattern(r"^(?!refs/|origin/|HEAD$|[0-9a-f]{7,40}$)(\w[\w./-]{0,119})$", re.M)
"""Name of a branch alone in its line, as these commands print it; not ``--- branch ---``, a hash or ``HEAD``."""
_REBASING = frozenset({"rebase", "--rebase"})
_RUN_BY_USER = lazy_pattern(r"</?bash-(?:input|stdout)>")
"""Tags of Claude Code around a command that the user ran, ``! git commit``, and around its output."""


class _GitOutput(NamedTuple):
    """Output of git commands in the repository of the work."""

    turn: TurnEvidence
    text: str
    commands: Sequence[Command]


class _Commit(NamedTuple):
    """One commit as git reported it."""

    digest: str
    """Hash, often abbreviated."""
    subject: str
    turn_id: str
    """Id of the turn that made it."""


def _git_commands(call: Call) -> list[Command]:
    """Return the commands of `call` that may print commits, branches and conflicts. There are none if one is ``git
    merge-tree``, as this prints the conflicts of a merge that does not take place."""
    commands = [one for one in commands_in(call) if one.words[0] in ("git", "gh", "glab")]
    return [] if any(one.starts("git", "merge-tree") for one in commands) else commands


def _users_commands(turn: TurnEvidence) -> Sequence[Command]:
    """Return the commands that the user ran, as Claude Code reports them in their message."""
    ran = turn.text.partition("<bash-input>")[2] if turn.turn.kind == "user" else ""
    return commands_of(ran.partition("</bash-input>")[0]) if ran else ()


def _git_outputs(evidence: Evidence) -> Iterator[_GitOutput]:
    """Yield the outputs of the agent's calls and of the commands that the user ran, in order."""
    for turn in evidence.turns.values():
        if turn.turn.kind == "user" and _RUN_BY_USER.search(turn.text):
            yield _GitOutput(turn, _RUN_BY_USER.sub("\n", turn.text), _users_commands(turn))
        for call, commands in turn.once(_git_calls):
            if not _is_elsewhere(call, evidence.root):
                yield _GitOutput(turn, call.text, commands)


def _git_calls(turn: TurnEvidence) -> tuple[tuple[Call, list[Command]], ...]:
    """Return the calls of `turn` with git, and their commands."""
    return tuple((call, commands) for call in turn.calls if (commands := _git_commands(call)))


def _is_elsewhere(call: Call, root: str) -> bool:
    """Return True if a command of `call` runs in a folder that is neither in `root` nor above it. Examples are ``cd
    /srv/other && git status`` and ``git -C ../other log``; not ``cd src``."""
    if not root:
        return False
    commands = commands_in(call)
    entered = [one.words[-1].strip("\"'") for one in commands if one.words[0] == "cd"]
    folders = [folder_of(call), *(one.folder for one in commands)]
    folders += [folder for folder in entered if is_absolute(folder) or folder.startswith("..")]
    paths = [f"{plain_path(folder, [root]).rstrip('/')}/" for folder in folders if folder]
    return any(not path.startswith(f"{root}/") and not f"{root}/".startswith(path) for path in paths)


def commits(evidence: Evidence) -> list[RecordLine]:
    """Return a line with hash and subject for each commit that was neither amended nor undone."""
    made: list[_Commit] = []
    for turn, text, commands in _git_outputs(evidence):
        if "fatal: " not in text:
            made = made[: len(made) - sum(map(_removed_commits, commands))]
        if any(_REBASING.intersection(one.words) for one in commands):
            made = []  # all commits may have other hashes now
        logged = {subject: digest for digest, subject in reversed(_LOGGED.findall(text))}
        made = [one._replace(digest=_newer(one.digest, logged.get(one.subject, one.digest))) for one in made]
        made += [_Commit(digest, subject, turn.turn.id) for digest, subject in _COMMIT.findall(text)]
    last_of_hash = {one.digest[:SHORT_HASH]: one for one in made}
    return [
        RecordLine(f"commit {one.digest} {shortened(one.subject, SUBJECT_CHARACTERS)}", (one.turn_id,), "FACTS")
        for one in last_of_hash.values()
    ]


def _newer(digest: str, logged: str) -> str:
    """Return the hash `logged` of a later log if it is another hash than `digest`; else `digest`, as one of them only
    abbreviates the other."""
    return digest if digest.startswith(logged) or logged.startswith(digest) else logged


def _removed_commits(command: Command) -> int:
    """Return the number of newest commits that a command removes: 1 for ``git commit --amend``, 2 for ``git reset
    --soft HEAD~2``."""
    words = command.words[1:]
    if words[:1] == ("commit",):
        return int("--amend" in words)
    back = _BACK.fullmatch(words[-1]) if words[:1] == ("reset",) else None
    return int(back[1] or 1) if back else 0


def conflicts(evidence: Evidence) -> list[RecordLine]:
    """Return at most one line, on the files that a merge left in conflict and that no later call changed or
    committed."""
    unresolved: dict[str, str] = {}  # turn id by path
    for turn, call, outcome in evidence.ended_calls():
        written = tuple(changed_paths(turn, call, outcome)) if unresolved else ()
        unresolved = {path: at for path, at in unresolved.items() if not any(one.endswith(path) for one in written)}
        commands = next((commands for one, commands in turn.once(_git_calls) if one is call), [])
        if not commands or _is_elsewhere(call, evidence.root):
            continue
        gives_up = any(_GIVING_UP.intersection(one.words) for one in commands)
        if gives_up or _COMMIT.search(call.text) or _SETTLED.search(call.text):
            unresolved.clear()
        conflicting = (next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(call.text))
        unresolved |= dict.fromkeys(conflicting, turn.turn.id)
    if not unresolved:
        return []
    text = f"merge conflicts in {', '.join(map(evidence.shown, unresolved))}"
    return [RecordLine(text, tuple(dict.fromkeys(unresolved.values())))]


def branches(evidence: Evidence) -> list[RecordLine]:
    """Return a line for each branch of the work, the current one last."""
    turns_of_branches: dict[str, list[str]] = {}
    for turn, text, commands in _git_outputs(evidence):
        if any(one.starts("git", "worktree") for one in commands):
            continue  # the output may be about another worktree
        printed_branches = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(text)]
        prints_branch = [one.words[1:] in _ASKING_BRANCH for one in commands]
        if any(prints_branch) and "(no branch)" not in text:
            # the other commands printed after the name of the branch if it was asked first, else before it
            single_words = _BRANCH_ALONE.findall(text)
            printed_branches += single_words[:1] if prints_branch[0] else single_words[-1:]
        for branch in printed_branches:
            turns_of_branches[branch] = [*turns_of_branches.pop(branch, []), turn.turn.id]
    current = next(reversed(turns_of_branches), "")
    return [
        RecordLine(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)), "FACTS")
        for branch, ids in turns_of_branches.items()
    ]
