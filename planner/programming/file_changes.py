"""Files that a history changed, and how; the spelling of their paths, and the folder that most of them are in.

Looks only at calls and their outcomes, never at files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from posixpath import join
from typing import NamedTuple

from planner.evidence.calls import Call
from planner.evidence.names import PATH_MARKS
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence
from planner.programming.coding_tools import Replacement, commands_in, edit_of, folder_of, writes_of
from planner.programming.shell import WITH_WORKTREE, Command, PathChange, documents, last_run, shell_changes
from planner.reading.patterns import lazy_pattern

LEAST_USES = 4
"""Smallest number of paths in a folder that may be left out of shown paths."""
PARENT_SHARE = 1.25
"""Factor by which a folder's parent must have more paths than the folder, for the parent to be the root in its place. A
parent shortens each path less."""

DEEPEST_FOLDER = 16
"""Depth below which folders are ignored, as no real path has a thousand components."""

_ABSOLUTE = lazy_pattern(rf"/(?<!{PATH_MARKS}/)[\w.@+-]+(?:/[\w.@+-]+)+")
"""Absolute path: ``/srv/app/src/a.py``; not the path in ``https://a/b/c``, ``src/(app)/a/b.py`` or ``${ROOT}/a/b.py``.
The slash comes before the test of what precedes it, as a search for one character is the fastest."""
_ON_DRIVE = lazy_pattern(r":(?<=(?<!\w)([A-Za-z]):)((?:\\+[\w.@+-]+){2,}|(?:/[\w.@+-]+){2,})")
"""Path on a drive: ``C:\\app\\src\\a.py``, ``C:/app/src/a.py``; also with each ``\\`` twice, as in JSON."""
_DRIVE = lazy_pattern(r"([A-Za-z]):(?=[\\/])|/([A-Za-z])(?=/)")
"""Drive at the beginning of a Windows path: ``C:``, or ``/c`` in Git's shell."""
_BACKSLASHES = lazy_pattern(r"\\+")
_SCRATCH = lazy_pattern(
    r"(?:/private)?(?:/var)?/tmp/|(?:/private)?/var/folders/|.*/AppData/Local/Temp/|.*/\.claude/(?:projects|plans|jobs)/"
)
"""Beginning of the path of a temporary file, or of a file that the agent keeps for itself."""
_FILE_ENDING = lazy_pattern(r"\.\w{1,12}$")
"""Ending of a file's name. A path without one may be the address of a page: ``/api/orders/7``."""


def is_absolute(path: str) -> bool:
    """Return True for ``/a``, ``~/a``, ``C:\\a``; not for ``a/b``."""
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def is_scratch(path: str) -> bool:
    """Return True for a temporary file, or one that the agent keeps for itself: ``/tmp/a``."""
    return _SCRATCH.match(path) is not None


def plain_path(path: str, others: Iterable[str] = ()) -> str:
    """Return one spelling of a Windows path: ``C:/a`` for ``C:\\a`` and ``c:/a``; other paths unchanged.

    ``/c/a`` counts as a path of Git's shell on Windows, ``C:/a``, only if a path in `others` has a drive.
    """
    drive = _DRIVE.match(path)
    if drive is None or (drive[2] and not any(one[1:2] == ":" for one in others)):
        return path
    return f"{(drive[1] or drive[2]).upper()}:{_BACKSLASHES.sub('/', path[2:])}"


def file_paths(text: str) -> tuple[str, ...]:
    """Return the absolute paths of files in `text`, with repetitions; Windows paths with slashes."""
    paths = _ABSOLUTE.findall(text) if "/" in text else []
    paths += [plain_path(f"{drive}:{path}") for drive, path in _ON_DRIVE.findall(text)] if ":" in text else []
    return tuple(filter(_FILE_ENDING.search, paths))


def common_root(paths: Iterable[str]) -> str:
    """Return the folder that shortens `paths` most if it is left out; empty if no folder has enough paths.

    Temporary files count only if the other paths have no such folder.
    """
    counted = Counter(paths)
    lasting_paths = {path: times for path, times in counted.items() if not is_scratch(path)}
    root = _common_root(lasting_paths) or _common_root(counted)
    return "" if _SCRATCH.fullmatch(f"{root}/") else root


def _common_root(paths: Mapping[str, int]) -> str:
    """Return the folder with the largest product of its length and the number of paths in it, or a parent that has
    many more paths; `paths`: number of times that each path occurs."""
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
    """Return the folder above `root` to which paths in `texts` are relative, or `root` if they show none.

    For ``/srv/app/cmd/cli`` it is ``/srv/app`` if `texts` often contain paths such as ``cmd/cli/main.go``.
    """
    beginnings: dict[str, str] = {}  # beginning of the relative paths by folder: ``cmd/cli/``
    folder = _parent(root)
    while folder:
        beginnings[folder] = f"{root[len(folder) + 1 :]}/"
        folder = _parent(folder)
    patterns = {one: re.compile(rf"(?<![\w.:/~-])(?:\./)?{re.escape(one)}[\w.@+-]") for one in beginnings.values()}
    uses: Counter[str] = Counter()
    for text in texts:
        for folder, beginning in beginnings.items():
            if beginning in text:
                uses[folder] += len(patterns[beginning].findall(text))
    best_folder, times = max(uses.items(), key=itemgetter(1), default=("", 0))
    return best_folder if times >= LEAST_USES else root


def _parent(folder: str) -> str:
    """Return the folder that contains `folder`; empty for ``/srv``."""
    return folder.rpartition("/")[0]


def work_folder(turns: Sequence[TurnEvidence]) -> str:
    """Return the folder to which shown paths are relative; empty without one.

    It is the folder in which most calls run, or else the one that shortens the absolute paths most. There is none if
    edits mostly use relative paths.
    """
    folders = Counter(folder for turn in turns for call in turn.calls if (folder := folder_of(call)))
    folder, times = max(folders.items(), key=itemgetter(1), default=("", 0))
    if times >= LEAST_USES:
        return folder
    edited = Counter(is_absolute(path) for turn in turns for call in turn.calls for path in writes_of(call))
    if edited[False] >= max(LEAST_USES, edited[True]):
        return ""  # nothing shows to which folder the relative paths belong
    paths = [turn.once(_paths) for turn in turns]
    written = [path for one in paths for path in one.written]
    root = common_root(written) or common_root(chain(written, *(one.others for one in paths)))
    return repository_root(root, (text.text for turn in turns for text in turn.lines.texts))


class _TurnPaths(NamedTuple):
    """Absolute paths in the texts of a turn."""

    written: tuple[str, ...]
    """Paths in the agent's texts and calls."""
    others: tuple[str, ...]


def _paths(turn: TurnEvidence) -> _TurnPaths:
    """Return the absolute paths in `turn`."""
    # `file_paths` finds no paths with blanks
    written = [call.path for call in turn.calls if is_absolute(call.path) and " " in call.path]
    others: list[str] = []
    for text in turn.lines.texts:
        paths = written if text.part in ("assistant", "call") else others
        paths += file_paths(text.text)
    return _TurnPaths(tuple(written), tuple(others))


_INTERPRETER = lazy_pattern(r"(?:^|[\s;&|(/])(?:python[\d.]{0,9}|node|ruby)(?: -)?\s{0,9}$")
"""Words before a here-document that is a script: ``python3 - <<'EOF'``."""
INTERPRETER_CHARACTERS = 40
"""Number of characters before a here-document that are searched for an interpreter."""
_WRITING = lazy_pattern(r"\.write(?:_text|lines)?\(|writeFile(?:Sync)?\(")
"""Part of a script that writes a file."""
_NAMED_FILE = lazy_pattern(r"['\"]((?:~?/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7})['\"]")
"""Name of a file in quotation marks: ``"src/a.py"``."""
_UPWARD = lazy_pattern(r"\A(?:\.\./)+")
"""Steps up at the beginning of a path: ``../../``."""


@dataclass
class FileChange:
    """Changes of one file."""

    path: str
    """Path as it is shown."""
    turns: list[str] = field(default_factory=list)
    """Ids of the turns that changed the file."""
    edits: dict[Replacement, str] = field(default_factory=dict)
    """Turn ids of edits that were not undone."""
    how: str = ""
    """Last kind of change, in words: ``edited``, ``written``, ``removed``, ``edited by a command``."""
    undone: str = ""
    """Later command that undid all changes of the repository; empty without one."""
    committed: bool = False
    """True if git made a commit after the last change; later commands cannot undo it."""

    def add(self, turn_id: str, how: str, *, committed: bool = False) -> None:
        """Record a new last change."""
        self.turns.append(turn_id)
        self.how, self.undone, self.committed = how, "", committed

    def undo(self, turn_id: str, command: str) -> None:
        """Record that `command` undid the changes of the whole repository."""
        self.turns.append(turn_id)
        self.undone = command


def file_changes(evidence: Evidence) -> list[FileChange]:
    """Return the files that were changed, in the order of their first change, without those that edits restored."""
    changes = _Changes()
    for turn, call, outcome in evidence.ended_calls():
        done = turn.once(_done_by_commands)[call.number]
        commits = any(one.starts("git", "commit") for one in done.commands)
        undoing = next(filter(None, map(_undoing_command, done.commands)), "")
        _commit_or_undo(changes, commits, undoing, turn.turn.id)
        for path, how in done.changes:
            for change in _affected(changes, path, evidence.root):
                change.add(turn.turn.id, how, committed=commits)
        how_by_path = {} if outcome.status == "failed" or turn.is_refused(call) else writes_of(call)
        for path, how in how_by_path.items():
            change = changes.change_of(changes.known_path(path), path)
            if not _is_reversal(change, call, turn.turn.id):
                change.add(turn.turn.id, how)
    return [change for change in changes.by_path.values() if change.turns]


class _Done(NamedTuple):
    """Work that the commands of a call completed."""

    commands: Sequence[Command]
    changes: Sequence[PathChange]


def _done_by_commands(turn: TurnEvidence) -> list[_Done]:
    """Return for each call of `turn` the commands that it completed, and the files that they changed."""
    done = []
    for _, call, outcome in turn.ended_calls:
        commands = commands_done(call, outcome)
        done.append(_Done(commands, list(_changes_by_commands(call, outcome, commands))))
    return done


@dataclass
class _Changes:
    """Changes of all files so far."""

    by_path: dict[str, FileChange] = field(default_factory=dict)
    """Changes by path, in the spelling of `known_path`."""
    by_name: dict[str, list[str]] = field(default_factory=dict)
    """Paths by the file's name."""

    def known_path(self, path: str) -> str:
        """Return the path under which the same file is recorded, or if it is not, `path` in plain form.

        A relative path and an absolute one are the same file if the absolute path ends with the relative one.
        """
        path = plain_path(path, self.by_path).replace("\\", "/")
        ending, same_name = f"/{path.removeprefix('./')}", self.by_name.get(path.rpartition("/")[2], ())
        if is_absolute(path):
            matching = (one for one in same_name if one == path or (not is_absolute(one) and path.endswith(f"/{one}")))
        else:
            matching = (one for one in same_name if one == path or one.endswith(ending))
        return next(matching, path)

    def change_of(self, plain: str, path: str) -> FileChange:
        """Return the changes of the file with the known path `plain`; a new file is shown as `path`."""
        if plain not in self.by_path:
            self.by_path[plain] = FileChange(path)
            self.by_name.setdefault(plain.rpartition("/")[2], []).append(plain)
        return self.by_path[plain]


def _is_reversal(change: FileChange, call: Call, turn_id: str) -> bool:
    """Return True if `call` restores the text that an earlier edit replaced. That edit is then forgotten; other edits
    are recorded."""
    edit = edit_of(call)
    if not (edit.old and edit.new):
        return False
    turn_of_reverse = change.edits.pop(Replacement(edit.new, edit.old), "")
    if turn_of_reverse:
        change.turns.remove(turn_of_reverse)
    else:
        change.edits[edit] = turn_id
    return bool(turn_of_reverse)


def changed_paths(turn: TurnEvidence, call: Call, outcome: Outcome) -> Iterator[str]:
    """Yield the paths of the files that a call of `turn` with this outcome changed."""
    if outcome.status in ("passed", "done"):
        yield from writes_of(call)
    changes = turn.once(_done_by_commands)[call.number].changes
    yield from (one.path for one in changes if one.path[-1] != "/" and not is_scratch(one.path))


def commands_done(call: Call, outcome: Outcome) -> Sequence[Command]:
    """Return the commands of a call that completed.

    For a failed call these are the commands before the first that may have failed: if ``python a.py`` fails, the lines
    before it have run. If a host sets the error flag without an exit code, a hook blocked the call and no command ran.
    """
    blocked = call.is_error and outcome.exit_code is None
    if blocked or outcome.refused or outcome.status in ("running", "unanswered"):
        return ()
    failed = last_run(commands_in(call)) if outcome.status == "failed" else ()
    return commands_in(call)[: commands_in(call).index(failed[0])] if failed else commands_in(call)


def _undoing_command(command: Command) -> str:
    """Return `command` as text if it undoes all changes of the repository, as ``git reset --hard`` does; else ""."""
    words = [word for word in command.words[:4] if word != "--"][:3]
    takes = words[:2] in (["git", "checkout"], ["git", "restore"]) and words[2:] == ["."]
    return " ".join(words) if takes or words == ["git", "reset", "--hard"] else ""


def _changes_by_commands(call: Call, outcome: Outcome, commands: Sequence[Command]) -> Iterator[PathChange]:
    """Yield the changes of files by the completed `commands` of `call`, and by its scripts in here-documents. A script
    changes a file if it writes and names only this file."""
    for path, how in shell_changes(commands):
        yield PathChange(path if is_absolute(path) else join(folder_of(call), path), how)
    if outcome.status not in ("passed", "done"):
        return
    for document in documents(call.command):
        before = call.command[max(0, document.start - INTERPRETER_CHARACTERS) : document.start]
        named = {*_NAMED_FILE.findall(document.text)} if _INTERPRETER.search(before) else set()
        if len(named) == 1 and _WRITING.search(document.text):
            yield PathChange(named.pop(), "edited by a command")


def _commit_or_undo(changes: _Changes, commits: bool, undoing: str, turn_id: str) -> None:
    """Record that a turn committed all earlier changes if it `commits`, and that it undid those that are not committed
    by the command `undoing`; "" if it undid none."""
    for path, change in changes.by_path.items() if commits or undoing else ():
        change.committed = change.committed or commits
        if undoing and not (is_scratch(path) or change.committed or change.how == WITH_WORKTREE):
            change.undo(turn_id, undoing)


def _affected(changes: _Changes, path: str, root: str) -> list[FileChange]:
    """Return the files that a command with the operand `path` changes: all known files in it if it ends in a slash,
    else the file itself. A relative path is looked up in the folder `root`, too. Temporary files count only if they are
    known."""
    end = _UPWARD.sub("", path)
    if path[-1] != "/":
        files = [changes.known_path(end)]
    else:
        folders = plain_path(path, changes.by_path), join(root, path)
        # a relative path of several folders also identifies a folder by the end of its path
        is_ending = path.count("/") > 1 and not is_absolute(path)
        files = [one for one in changes.by_path if f"{one}/".startswith(folders) or (is_ending and f"/{end}" in one)]
    return [changes.change_of(one, path) for one in files if one in changes.by_path or not is_scratch(one)]


def changed_files(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each changed file, with its last kind of change."""
    return [_statement(evidence, change) for change in file_changes(evidence)]


def _statement(evidence: Evidence, change: FileChange) -> RecordLine:
    undone = f", before `{change.undone}`" if change.undone else ""
    text = evidence.shown(f"{change.path}: {change.how}{undone}")
    return RecordLine(text, tuple(dict.fromkeys(change.turns)))
