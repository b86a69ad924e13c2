"""Finds the state of a project in the agent's calls: the files that they changed, commits, branches and conflicts.

It reads only calls and how they ended, never the files. It also decides the spelling of paths, and the folder to which
the paths that agents see are relative.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from posixpath import join

from planner.evidence.calls import Call, Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, shortened
from planner.evidence.words import PATH_MARKS
from planner.programming.coding_tools import (
    FILE_ENDING,
    WITH_WORKTREE,
    Command,
    PathChange,
    commands_in,
    commands_of,
    documents,
    edit_of,
    folder_of,
    last_run,
    shell_changes,
    writes_of,
)
from planner.programming.command_failures import check_outcomes, recoveries
from planner.reading.lazy import lazy_pattern

LEAST_USES = 4
"""Smallest number of paths in a folder from which paths may be shown relative to it."""
PARENT_SHARE = 1.25
"""Factor by which a folder's parent must have more paths for them to be shown relative to the parent instead."""

DEEPEST_FOLDER = 16
"""Number of components of a path that are read. No real path has many more, but a forged one could have thousands."""

_FILE_NAME = lazy_pattern(r"[\w.@+-]+")
_ABSOLUTE = lazy_pattern(rf"/(?<!{PATH_MARKS}/)[\w.@+-]+(?:/[\w.@+-]+)+")
"""Absolute path: ``/srv/app/src/a.py``; not the path in ``https://a/b/c``, ``src/(app)/a/b.py`` or ``${ROOT}/a/b.py``.
The pattern tests the text before a slash only after the slash, as a search for one character is the fastest."""
_ON_DRIVE = lazy_pattern(r":(?<=(?<!\w)([A-Za-z]):)((?:\\+[\w.@+-]+){2,}|(?:/[\w.@+-]+){2,})")
"""Windows path with a drive: ``C:\\app\\src\\a.py``, ``C:/app/src/a.py``; also with each ``\\`` twice, as in JSON."""
_DRIVE = lazy_pattern(r"([A-Za-z]):(?=[\\/])|/([A-Za-z])(?=/)")
"""Drive at the beginning of a Windows path: ``C:``, or ``/c`` in Git's shell."""
_BACKSLASHES = lazy_pattern(r"\\+")
_SCRATCH = lazy_pattern(
    r"(?:/private)?(?:/var)?/tmp/|(?:/private)?/var/folders/|.*/AppData/Local/Temp/|.*/\.claude/(?:projects|plans|jobs)/"
)
"""Beginning of the path of a temporary file, or of a file that the agent keeps for itself."""


def is_absolute(path: str) -> bool:
    """Return True if `path` does not depend on a folder: ``/a``, ``~/a`` or ``C:\\a``; not ``a/b``."""
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def is_scratch(path: str) -> bool:
    """Return True if `path` is no part of the project: a temporary file (``/tmp/a``), or one of the agent's own."""
    return _SCRATCH.match(path) is not None


def plain_path(path: str, others: Iterable[str] = ()) -> str:
    """Return the same spelling for all forms of a Windows path: ``C:/a`` for ``C:\\a`` and ``c:/a``. Other paths stay
    the same. ``/c/a`` counts as a path of Git's shell on Windows, ``C:/a``, only if a path in `others` has a drive."""
    drive = _DRIVE.match(path)
    if drive is None or (drive[2] and not any(other[1:2] == ":" for other in others)):
        return path
    return f"{(drive[1] or drive[2]).upper()}:{_BACKSLASHES.sub('/', path[2:])}"


def file_paths(text: str) -> tuple[str, ...]:
    """Return the absolute paths of files in `text`, also repeated ones. Windows paths are returned with slashes."""
    paths = _ABSOLUTE.findall(text) if "/" in text else []
    paths += [plain_path(f"{drive}:{path}") for drive, path in _ON_DRIVE.findall(text)] if ":" in text else []
    return tuple(filter(FILE_ENDING.search, paths))  # without an ending it may be the address of a web page


def common_root(paths: Iterable[str]) -> str:
    """Return the folder that shortens `paths` most if they are shown relative to it; empty if none has enough paths.
    Temporary files count only if the other paths have no such folder."""
    counted = Counter(paths)
    lasting_paths = {path: times for path, times in counted.items() if not is_scratch(path)}
    root = _common_root(lasting_paths) or _common_root(counted)
    return "" if _SCRATCH.fullmatch(f"{root}/") else root


def _common_root(paths: Mapping[str, int]) -> str:
    """Return the folder that shortens `paths` most: with the largest product of its length and the number of uses of
    paths in it (the values of `paths`); or its parent, if that has many more uses. Empty without one."""
    uses: Counter[str] = Counter()
    for path, times in paths.items():
        parts = path.split("/", DEEPEST_FOLDER)[:DEEPEST_FOLDER]
        uses.update({"/".join(parts[:end]): times for end in range(2, len(parts))})
    worth = {folder: len(folder) * times for folder, times in uses.items() if times >= LEAST_USES}
    root = max(worth, key=lambda folder: (worth[folder], folder), default="")
    while _parent(root) and uses[_parent(root)] > PARENT_SHARE * uses[root]:
        root = _parent(root)
    return root


def repository_root(root: str, texts: Iterable[str]) -> str:
    """Return the folder of the whole project, if `root` is only a part of it: a folder above `root` to which paths in
    `texts` are relative. Return `root` if there is none. For ``/srv/app/cmd/cli`` it is ``/srv/app`` if `texts` often
    contain paths such as ``cmd/cli/main.go``."""
    beginnings: dict[str, str] = {}  # by folder, the beginning of paths relative to it: ``cmd/cli/``
    folder = _parent(root)
    while folder:
        beginnings[folder] = f"{root[len(folder) + 1 :]}/"
        folder = _parent(folder)
    patterns = {beginning: _relative_path(beginning) for beginning in beginnings.values()}
    uses: Counter[str] = Counter()
    for text in texts:
        for folder, beginning in beginnings.items():
            if beginning in text:
                uses[folder] += len(patterns[beginning].findall(text))
    best_folder, times = max(uses.items(), key=itemgetter(1), default=("", 0))
    return best_folder if times >= LEAST_USES else root


def _relative_path(beginning: str) -> re.Pattern[str]:
    """Return a pattern of relative paths with this `beginning`, ``cmd/cli/``, that are no part of a longer path. It
    tests the text before them last, as that is faster."""
    start, of_path = re.escape(beginning), r"[\w.:/~-]"
    before = rf"(?<!{of_path}{start})|(?<=(?<!{of_path})\./{start})"
    return re.compile(rf"{start}(?:{before})[\w.@+-]")


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]


def work_folder(turns: Sequence[TurnEvidence]) -> str:
    """Return the folder to which paths are shown relative, to save tokens; empty without one. It is the folder in which
    most calls run, or else the one that shortens the absolute paths most. There is none if edits mostly use relative
    paths, or if the agent neither names a file nor runs a command: then paths are only words of what it read."""
    folders = Counter(folder for turn in turns for call in turn.calls if (folder := folder_of(call)))
    folder, times = max(folders.items(), key=itemgetter(1), default=("", 0))
    if times >= LEAST_USES:
        return folder
    if not any(call.path or call.kind == "run" for turn in turns for call in turn.calls):
        return ""
    edited = Counter(is_absolute(path) for turn in turns for call in turn.calls for path in writes_of(call))
    if edited[False] >= max(LEAST_USES, edited[True]):
        return ""  # nothing shows to which folder the relative paths belong
    paths = [turn.once(_paths) for turn in turns]
    written_by_agent = [path for of_agent, _ in paths for path in of_agent]
    all_paths = [*written_by_agent, *chain.from_iterable(others for _, others in paths)]
    root = common_root(written_by_agent)
    if not root:
        root = common_root(all_paths)
        if not _is_used(root, all_paths, turns):
            return ""
    return repository_root(root, (text.text for turn in turns for text in turn.lines.texts))


def _is_used(root: str, paths: Iterable[str], turns: Sequence[TurnEvidence]) -> bool:
    """Return True if the agent wrote a path below `root`, absolute or relative to it. Otherwise only texts that it read
    use this folder: a stack trace, a web page."""
    by_file: dict[str, set[str]] = {}  # relative paths by their last part, so that few are looked for in each text
    for path in paths:
        if root and path.startswith(f"{root}/"):
            by_file.setdefault(path.rpartition("/")[2], set()).add(path.removeprefix(f"{root}/"))
    for text in (text for turn in turns for text in turn.lines.texts if text.part in ("assistant", "call")):
        plain = text.text.replace("\\", "/")  # Windows paths have slashes in `paths`
        names = {name.rstrip(".") for name in _FILE_NAME.findall(plain)}
        if any(path in plain for name in by_file.keys() & names for path in by_file[name]):
            return True
    return False


def _paths(turn: TurnEvidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the absolute paths that the agent wrote in `turn`, in texts and calls, and those in other texts."""
    # paths with blanks are taken from the calls, as `file_paths` finds none
    written = [call.path for call in turn.calls if is_absolute(call.path) and " " in call.path]
    others: list[str] = []
    for text in turn.lines.texts:
        paths = written if text.part in ("assistant", "call") else others
        paths += file_paths(text.text)
    return tuple(written), tuple(others)


_INTERPRETER = lazy_pattern(r"(?:^|[\s;&|(/])(?:python[\d.]{0,9}|node|ruby)(?: -)?\s{0,9}$")
"""End of the text before a here-document that is a script: ``python3 -`` in ``python3 - <<'EOF'``."""
_WRITING = lazy_pattern(r"\.write(?:_text|lines)?\(|writeFile(?:Sync)?\(")
"""Call in a script that writes a file: ``.write_text(``."""
_NAMED_FILE = lazy_pattern(r"['\"]((?:~?/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7})['\"]")
"""Name of a file in quotation marks: ``"src/a.py"``."""
_UPWARD = lazy_pattern(r"\A(?:\.\./)+")
"""Steps to parent folders at the beginning of a path: ``../../``."""


@dataclass
class FileChange:
    """All changes of one file in a conversation."""

    path: str
    """Path of the file as the agent wrote it first."""
    turns: list[str] = field(default_factory=list)
    """Ids of the turns that changed the file."""
    edits: dict[tuple[str, str], str] = field(default_factory=dict)
    """Edits that were not undone: the id of the turn by the old and the new text."""
    how: str = ""
    """Last kind of change, in words: ``edited``, ``written``, ``removed``, ``edited by a command``."""
    undone: str = ""
    """Later command that undid all changes in the repository, such as ``git reset --hard``; empty without one."""
    committed: bool = False
    """True if git made a commit after the last change; later commands cannot undo it."""

    def add(self, turn_id: str, how: str, *, committed: bool = False) -> None:
        """Record a change of the file in the turn `turn_id`, in the words `how`."""
        self.turns.append(turn_id)
        self.how, self.undone, self.committed = how, "", committed


def file_changes(evidence: Evidence) -> list[FileChange]:
    """Return the files that the agent changed, in the order of their first change. A file is left out if later edits
    reversed all its edits, but not if git restored it."""
    changes = _Changes()
    for turn, call, outcome in evidence.ended_calls():
        commands, changes_by_commands = turn.once(_done_by_commands)[call.number]
        has_commit = any(command.starts("git", "commit") for command in commands)
        undoing = next(filter(None, map(_undoing_command, commands)), "")
        for path, change in changes.by_path.items() if has_commit or undoing else ():
            change.committed = change.committed or has_commit
            if undoing and not (is_scratch(path) or change.committed or change.how == WITH_WORKTREE):
                change.turns.append(turn.turn.id)
                change.undone = undoing
        for path, how in changes_by_commands:
            for change in _affected(changes, path, evidence.root):
                change.add(turn.turn.id, how, committed=has_commit)
        how_by_path = {} if outcome.status == "failed" or turn.is_refused(call) else writes_of(call)
        for path, how in how_by_path.items():
            change = changes.change_of(changes.known_path(path), path)
            if not _is_reversal(change, call, turn.turn.id):
                change.add(turn.turn.id, how)
    return [change for change in changes.by_path.values() if change.turns]


def _done_by_commands(turn: TurnEvidence) -> tuple[tuple[Sequence[Command], Sequence[PathChange]], ...]:
    """Return for each call of `turn` the shell commands that it completed, and the files that they changed."""
    ended = [(call, outcome, commands_done(call, outcome)) for _, call, outcome in turn.ended_calls]
    return tuple((commands, tuple(_changes_by_commands(call, outcome, commands))) for call, outcome, commands in ended)


@dataclass
class _Changes:
    """Changes of all files up to the present call, where one file may have several spellings of its path."""

    by_path: dict[str, FileChange] = field(default_factory=dict)
    """Changes of each file, by its path in the spelling of `known_path`."""
    by_name: dict[str, list[str]] = field(default_factory=dict)
    """Paths in `by_path` by the name of the file without its folder."""

    def known_path(self, path: str) -> str:
        """Return the path under which the same file is recorded; for a new file, `path` in the form of `plain_path`. A
        relative path and an absolute one are the same file if the absolute path ends with the relative one."""
        path = plain_path(path, self.by_path).replace("\\", "/")
        ending, same_name = f"/{path.removeprefix('./')}", self.by_name.get(path.rpartition("/")[2], ())
        if is_absolute(path):
            matching = (
                known for known in same_name if known == path or (not is_absolute(known) and path.endswith(f"/{known}"))
            )
        else:
            matching = (known for known in same_name if known == path or known.endswith(ending))
        return next(matching, path)

    def change_of(self, plain: str, path: str) -> FileChange:
        """Return the changes of the file with the path `plain`, in the spelling of `known_path`. A new file is added;
        it is shown as `path`."""
        if plain not in self.by_path:
            self.by_path[plain] = FileChange(path)
            self.by_name.setdefault(plain.rpartition("/")[2], []).append(plain)
        return self.by_path[plain]


def _is_reversal(change: FileChange, call: Call, turn_id: str) -> bool:
    """Return True, and forget the earlier edit, if `call` restores its old text; else record `call` as an edit."""
    old, new = edit_of(call)
    reversed_at = change.edits.pop((new, old), "") if old and new else ""
    if reversed_at:
        change.turns.remove(reversed_at)
    elif old and new:
        change.edits[old, new] = turn_id
    return bool(reversed_at)


def changed_paths(turn: TurnEvidence, call: Call, outcome: Outcome) -> Iterator[str]:
    """Yield the paths of the files that `call` of `turn` changed, by an edit or commands. `outcome`: how it ended."""
    if outcome.status in ("passed", "done"):
        yield from writes_of(call)
    _, changes = turn.once(_done_by_commands)[call.number]
    yield from [change.path for change in changes if change.path[-1] != "/" and not is_scratch(change.path)]


def commands_done(call: Call, outcome: Outcome) -> Sequence[Command]:
    """Return the shell commands of a call that ran and succeeded. For a failed call these are the commands before the
    first one that may have failed: if ``python a.py`` fails, the lines before it have run. If the host program sets the
    error flag without an exit code, it blocked the call, and no command ran."""
    blocked = call.is_error and outcome.exit_code is None
    if blocked or outcome.refused or outcome.status in ("running", "unanswered"):
        return ()
    failed = last_run(commands_in(call)) if outcome.status == "failed" else ()
    return commands_in(call)[: commands_in(call).index(failed[0])] if failed else commands_in(call)


def _undoing_command(command: Command) -> str:
    """Return `command` as text if it undoes all uncommitted changes, as ``git reset --hard`` does; else ""."""
    words = [word for word in command.words[:4] if word != "--"][:3]
    restores_all = words[:2] in (["git", "checkout"], ["git", "restore"]) and words[2:] == ["."]
    return " ".join(words) if restores_all or words == ["git", "reset", "--hard"] else ""


def _changes_by_commands(call: Call, outcome: Outcome, commands: Sequence[Command]) -> Iterator[PathChange]:
    """Yield the changes by `commands`, and by scripts in here-documents that write and name one file."""
    for path, how in shell_changes(commands):
        yield PathChange(path if is_absolute(path) else join(folder_of(call), path), how)
    if outcome.status not in ("passed", "done"):
        return
    for document in documents(call.command):
        before = call.command[max(0, document.start - 40) : document.start]
        named_files = {*_NAMED_FILE.findall(document.text)} if _INTERPRETER.search(before) else set()
        if len(named_files) == 1 and _WRITING.search(document.text):
            yield PathChange(named_files.pop(), "edited by a command")


def _affected(changes: _Changes, path: str, root: str) -> list[FileChange]:
    """Return the changes of the file `path`, or if it ends in a slash of all known files in that folder, also below
    `root`. Temporary files count only if they are known."""
    path_end = _UPWARD.sub("", path)  # it is not known to which folder ``../`` leads
    if path[-1] != "/":
        files = [changes.known_path(path_end)]
    else:
        folders = plain_path(path, changes.by_path), join(root, path)
        # a relative path of several folders also identifies a folder by the end of its path
        is_ending = path.count("/") > 1 and not is_absolute(path)
        files = [
            file for file in changes.by_path if f"{file}/".startswith(folders) or (is_ending and f"/{path_end}" in file)
        ]
    return [changes.change_of(file, path) for file in files if file in changes.by_path or not is_scratch(file)]


def changed_files(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each file that the agent changed, with the last kind of change: ``src/a.py: edited``."""
    records = list[RecordLine]()
    for change in file_changes(evidence):
        undone = f", before `{change.undone}`" if change.undone else ""
        text = evidence.shown(f"{change.path}: {change.how}{undone}")
        records.append(RecordLine(text, tuple(dict.fromkeys(change.turns))))
    return records


_MENTIONS_COMMIT = lazy_pattern(r"\bcommitted\b|\bcommits? \W{0,3}[0-9a-f]{7}", re.I)
"""Report of a commit: ``Committed and pushed``, ``commit `a1b2c3d` ``; not ``commit this when it passes``."""


def has_uncommitted_changes(evidence: Evidence) -> bool:
    """Return True if the agent changed files, no tool call may have made a git commit, and no text mentions one."""
    if not changed_files(evidence):
        return False
    turns = evidence.turns.values()
    calls = (call for turn in turns for call in turn.calls)
    lines = (line for turn in turns for line in turn.lines.of_sources("user", "agent", "planner"))
    may_commit = any(
        call.name.endswith("commit") or any(command.starts("git", "commit") for command in commands_in(call))
        for call in calls
    )
    return not (may_commit or any(_MENTIONS_COMMIT.search(line.text) for line in lines))


SUBJECT_CHARACTERS = 120
"""Largest length of the first line of a commit's message, as it is shown."""

_COMMIT = lazy_pattern(r"^\[(?:[^\s\[\]]{1,120}|detached HEAD) (?:\(root-commit\) )?([0-9a-f]{7,40})\] (.*)$", re.M)
"""Git's report of a commit: ``[main a1b2c3d] Fix the race``, ``[detached HEAD a1b2c3d] Try``; not ``[main] Fix``."""
_LOGGED = lazy_pattern(r"^[*|\\/ ]{0,9}([0-9a-f]{7,40}) (?:\([^()\n]{1,200}\) )?(.+)$", re.M)
"""Commit in the output of ``git log --oneline``: ``a1b2c3d (HEAD -> main) Fix the race``."""
_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""File in conflict, in the output of a merge, in git's status, or in its short status: ``UU src/a.py``."""
_BACK = lazy_pattern(r"HEAD(?:~(\d{1,2})?|\^)")
"""Earlier commit, by its distance from the current one: ``HEAD~2``, ``HEAD^``; not ``HEAD``."""
_GIVING_UP = frozenset({"--abort", "--quit"})
"""Options that cancel a merge or rebase, and so its conflicts."""
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
"""Git's report that there is no conflict any more."""
_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""Git's report of the current branch: ``On branch main``, ``## main...origin/main``, ``Switched to branch 'fix'``."""
_ASKING_BRANCH = (("branch", "--show-current"), ("rev-parse", "--abbrev-ref", "HEAD"))
"""Arguments of git commands that print the name of the current branch and nothing else."""
_BRANCH_ALONE = lazy_pattern(r"^(?!refs/|origin/|HEAD$|[0-9a-f]{7,40}$)(\w[\w./-]{0,119})$", re.M)
"""Name of a branch alone in its line, as such commands print it; not ``--- branch ---``, a hash or ``HEAD``."""
_REBASING = frozenset({"rebase", "--rebase"})
"""Words of git commands that replace commits by new ones with other hashes: ``git rebase``, ``git pull --rebase``."""
_RUN_BY_USER = lazy_pattern(r"</?bash-(?:input|stdout)>")
"""Tags of Claude Code around a command that the user ran, ``! git commit``, and around its output."""


def _git_outputs(evidence: Evidence) -> Iterator[tuple[TurnEvidence, str, Sequence[Command]]]:
    """Yield what git printed in the project: the turn, the output, and its commands, of the agent's calls or of the
    user, as Claude Code reports them."""
    for turn in evidence.turns.values():
        if turn.turn.kind == "user" and _RUN_BY_USER.search(turn.text):
            ran = turn.text.partition("<bash-input>")[2].partition("</bash-input>")[0]
            yield turn, _RUN_BY_USER.sub("\n", turn.text), commands_of(ran)
        for call, commands in turn.once(_git_calls):
            if not _is_elsewhere(call, evidence.root):
                yield turn, call.text, commands


def _git_calls(turn: TurnEvidence) -> tuple[tuple[Call, list[Command]], ...]:
    """Return the calls of `turn` with git commands, and these; not ``git merge-tree``, which merges nothing."""
    git_calls = []
    for call in turn.calls:
        commands = [command for command in commands_in(call) if command.words[0] in ("git", "gh", "glab")]
        if commands and not any(command.starts("git", "merge-tree") for command in commands):
            git_calls.append((call, commands))
    return tuple(git_calls)


def _is_elsewhere(call: Call, root: str) -> bool:
    """Return True if a command runs in a folder that is neither in `root` nor above it: ``git -C ../other log``."""
    if not root:
        return False
    commands = commands_in(call)
    entered = [command.words[-1].strip("\"'") for command in commands if command.words[0] == "cd"]
    folders = [folder_of(call), *[command.folder for command in commands]]
    folders += [folder for folder in entered if is_absolute(folder) or folder.startswith("..")]
    paths = [f"{plain_path(folder, [root]).rstrip('/')}/" for folder in folders if folder]
    return any(not path.startswith(f"{root}/") and not f"{root}/".startswith(path) for path in paths)


def commits(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each commit that was neither amended nor undone: ``commit a1b2c3d Fix the race``."""
    commits_by_subject: dict[str, tuple[str, str]] = {}  # hash and turn id
    for turn, text, commands in _git_outputs(evidence):
        # git prints "fatal: " if it refused a command, so that no commit was removed
        removed = 0 if "fatal: " in text else sum(map(_removed_commits, commands))
        for subject in list(commits_by_subject)[::-1][:removed]:  # the newest commits
            del commits_by_subject[subject]
        if any(_REBASING.intersection(command.words) for command in commands):
            commits_by_subject = {}  # all commits may have other hashes now
        # a log, newest commit first, may show a new hash of the agent's commit: the user may have amended it
        for digest, subject in reversed(_LOGGED.findall(text)):
            known_digest, turn_id = commits_by_subject.get(subject, ("", ""))
            if turn_id and not (known_digest.startswith(digest) or digest.startswith(known_digest)):
                commits_by_subject[subject] = digest, turn_id
        for digest, subject in _COMMIT.findall(text):
            commits_by_subject.pop(subject, None)  # so that it is added as the newest
            commits_by_subject[subject] = digest, turn.turn.id
    return [
        RecordLine(f"commit {digest} {shortened(subject, SUBJECT_CHARACTERS)}", (turn_id,), "FACTS")
        for subject, (digest, turn_id) in commits_by_subject.items()
    ]


def _removed_commits(command: Command) -> int:
    """Return how many commits `command` removes or replaces: 1 for ``commit --amend``, 2 for ``reset HEAD~2``."""
    words = command.words[1:]
    if words[:1] == ("commit",):
        return int("--amend" in words)
    back = _BACK.fullmatch(words[-1]) if words[:1] == ("reset",) else None
    return int(back[1] or 1) if back else 0


def conflicts(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on the files that a merge left in conflict and no later call changed or committed, if any."""
    unresolved: dict[str, str] = {}  # turn id by path
    for turn, call, outcome in evidence.ended_calls():
        written = tuple(changed_paths(turn, call, outcome)) if unresolved else ()
        unresolved = {
            path: turn_id
            for path, turn_id in unresolved.items()
            if not any(written_path.endswith(path) for written_path in written)
        }
        commands = next((commands for git_call, commands in turn.once(_git_calls) if git_call is call), [])
        if not commands or _is_elsewhere(call, evidence.root):
            continue
        gives_up = any(_GIVING_UP.intersection(command.words) for command in commands)
        if gives_up or _COMMIT.search(call.text) or _SETTLED.search(call.text):
            unresolved.clear()
        conflicting = (next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(call.text))
        unresolved |= dict.fromkeys(conflicting, turn.turn.id)
    if not unresolved:
        return []
    text = f"merge conflicts in {', '.join(map(evidence.shown, unresolved))}"
    return [RecordLine(text, tuple(dict.fromkeys(unresolved.values())))]


def branches(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each git branch that the work was on, the current one last: ``on branch fix``."""
    turns_of_branches: dict[str, list[str]] = {}
    for turn, text, commands in _git_outputs(evidence):
        if any(command.starts("git", "worktree") for command in commands):
            continue  # the output may be about another worktree
        printed_branches = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(text)]
        prints_branch = [command.words[1:] in _ASKING_BRANCH for command in commands]
        if any(prints_branch) and "(no branch)" not in text:
            # if the first command printed the branch, its name is the first single word, else the last one
            single_words = _BRANCH_ALONE.findall(text)
            printed_branches += single_words[:1] if prints_branch[0] else single_words[-1:]
        for branch in printed_branches:
            turns_of_branches[branch] = [*turns_of_branches.pop(branch, []), turn.turn.id]
    current = next(reversed(turns_of_branches), "")
    return [
        RecordLine(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)), "FACTS")
        for branch, ids in turns_of_branches.items()
    ]


def project_record(evidence: Evidence) -> Iterator[RecordLine]:
    """Yield statements on the state of the project: checks, changed files, branches, commits; the newest first under
    each heading of the page of memory."""
    yield from reversed(check_outcomes(evidence))
    yield from reversed(recoveries(evidence))
    yield from conflicts(evidence)
    yield from reversed(changed_files(evidence))
    yield from reversed(branches(evidence))
    yield from reversed(commits(evidence))
