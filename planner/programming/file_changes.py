"""Files that a history changed, and how; the spelling of their paths, and the folder that most of them are in.

Reads calls alone; separates the old text of an edit from the new.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat, takewhile
from operator import itemgetter
from posixpath import join

from planner.evidence.calls import Call
from planner.evidence.names import PATH_MARKS
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence
from planner.programming.coding_tools import commands_in, edit_of, folder_of, writes_of
from planner.programming.shell import WITH_WORKTREE, Command, documents, last_run, shell_changes
from planner.reading.patterns import lazy_pattern

__all__ = [
    "changed_files",
    "changed_paths",
    "common_root",
    "file_changes",
    "file_paths",
    "is_absolute",
    "plain_path",
    "work_folder",
]

LEAST_USES = 4
"""Smallest number of paths in a folder from which it may be left out of shown paths."""
PARENT_SHARE = 1.25
"""Factor by which more paths must be in the parent of a folder than in the folder for the parent to be the root: it
shortens each path less."""

DEEPEST_FOLDER = 16
"""Depth below which folders are ignored: a path of a thousand components is no path."""

_ABSOLUTE = lazy_pattern(rf"/(?<!{PATH_MARKS}/)[\w.@+-]+(?:/[\w.@+-]+)+")
"""Absolute path: ``/srv/app/src/a.py``; not the path in ``https://a/b/c``, ``src/(app)/a/b.py`` or ``${ROOT}/a/b.py``.
Slashes separate the parts, so no part is tried twice; a pattern that begins with a letter is searched as fast as that
letter."""
_ON_DRIVE = lazy_pattern(r":(?<=(?<!\w)([A-Za-z]):)((?:\\+[\w.@+-]+){2,}|(?:/[\w.@+-]+){2,})")
"""Path on a drive: ``C:\\app\\src\\a.py``, ``C:/app/src/a.py``, and with each ``\\`` twice as in JSON."""
_DRIVE = lazy_pattern(r"([A-Za-z]):(?=[\\/])|/([A-Za-z])(?=/)")
"""Beginning of a path of Windows; in Git's shell ``/c``."""
_BACKSLASHES = lazy_pattern(r"\\+")
_BESIDE = lazy_pattern(
    r"(?:/private)?(?:/var)?/tmp/|(?:/private)?/var/folders/|.*/AppData/Local/Temp/|.*/\.claude/(?:projects|plans|jobs)/"
)
"""Beginning of the path of a temporary file, or of a file that the agent keeps for itself."""
_FILE_ENDING = lazy_pattern(r"\.\w{1,12}$")
"""Ending of a file's name; a path without one may be that of a page, ``/api/orders/7``."""


def is_absolute(path: str) -> bool:
    """Return True for ``/a``, ``~/a``, ``C:\\a``; not for ``a/b``."""
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def is_beside(path: str) -> bool:
    """Return True for a temporary file, or one that the agent keeps for itself: ``/tmp/a``."""
    return _BESIDE.match(path) is not None


def plain_path(path: str, others: Iterable[str] = ()) -> str:
    """Return one spelling of a Windows path: ``C:\\a`` and ``c:/a`` become ``C:/a``; so does Git's ``/c/a`` if `others`
    contain a path with a drive. Other paths are returned unchanged."""
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
    """Return the folder whose removal shortens `paths` most; empty if none is used often. Temporary files count only if
    the other paths have no such folder."""
    counted = Counter(paths)
    lasting_paths = {path: times for path, times in counted.items() if not is_beside(path)}
    root = _common_root(lasting_paths) or _common_root(counted)
    return "" if _BESIDE.fullmatch(f"{root}/") else root


def _common_root(paths: Mapping[str, int]) -> str:
    """Return the folder with the largest product of length and number of `paths` in it, or a parent with many more
    paths; `paths`: number of times by path."""
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
    """Return `root`, or a folder above it to which paths in `texts` are often relative: ``/srv/app`` for
    ``/srv/app/cmd/cli`` if texts contain paths such as ``cmd/cli/main.go``."""
    uses: Counter[str] = Counter()
    folders = list(takewhile(bool, accumulate(repeat(root), lambda folder, _: _parent(folder))))[1:]
    forms = [(folder, root[len(folder) + 1 :] + "/") for folder in folders]
    patterns = {below: re.compile(rf"(?<![\w.:/~-])(?:\./)?{re.escape(below)}[\w.@+-]") for _, below in forms}
    for text in texts:
        uses.update({folder: len(patterns[below].findall(text)) for folder, below in forms if below in text})
    best_folder, times = max(uses.items(), key=itemgetter(1), default=("", 0))
    return best_folder if times >= LEAST_USES else root


def _parent(folder: str) -> str:
    """Return the parent folder; empty for a folder in the file system's root."""
    return folder.rpartition("/")[0]


def work_folder(turns: Sequence[TurnEvidence]) -> str:
    """Return the folder to which shown paths are relative: where most calls run, else the one that shortens absolute
    paths most; empty if edits mostly use relative paths or none is used often."""
    folders = Counter(folder for turn in turns for call in turn.calls if (folder := folder_of(call)))
    folder, times = max(folders.items(), key=itemgetter(1), default=("", 0))
    if times >= LEAST_USES:
        return folder
    edited = Counter(is_absolute(path) for turn in turns for call in turn.calls for path in writes_of(call))
    if edited[False] >= max(LEAST_USES, edited[True]):
        return ""  # nothing shows to which folder the relative paths belong
    written, others = zip(*(turn.once(_paths) for turn in turns), strict=True) if turns else ((), ())
    root = common_root(chain(*written)) or common_root(chain(*written, *others))
    return repository_root(root, (text.text for turn in turns for text in turn.lines.texts))


def _paths(turn: TurnEvidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the absolute paths in the agent's texts of `turn`, and those in other texts."""
    written = [call.path for call in turn.calls if is_absolute(call.path) and " " in call.path]
    others: list[str] = []
    for text in turn.lines.texts:
        (written if text.part in ("assistant", "call") else others).extend(file_paths(text.text))
    return tuple(written), tuple(others)


_INTERPRETER = lazy_pattern(r"(?:^|[\s;&|(/])(?:python[\d.]{0,9}|node|ruby)(?: -)?\s{0,9}$")
"""Words before a here-document that is a script: ``python3 - <<'EOF'``."""
INTERPRETER_CHARACTERS = 40
"""Number of characters before a here-document that are searched for an interpreter."""
_WRITING = lazy_pattern(r"\.write(?:_text|lines)?\(|writeFile(?:Sync)?\(")
_NAMED_FILE = lazy_pattern(r"['\"]((?:~?/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7})['\"]")
_UPWARD = lazy_pattern(r"\A(?:\.\./)+")


@dataclass
class FileChange:
    """Changes of one file."""

    path: str
    turns: list[str] = field(default_factory=list)
    """Ids of the turns that changed the file."""
    edits: dict[tuple[str, str], str] = field(default_factory=dict)
    """Turn ids of edits that were not undone, by old and new text."""
    how: str = ""
    """Last kind of change, in words: ``edited``, ``written``, ``removed``, ``edited by a command``."""
    undone: str = ""
    """Later command that undid all changes of the repository; empty without one."""
    committed: bool = False
    """True if git made a commit after the last change; later commands cannot undo it."""


def file_changes(evidence: Evidence) -> list[FileChange]:
    """Return the files that were written, in the order of their first change, without those that edits restored."""
    changes = _Changes()
    for turn, call, outcome in evidence.ended_calls():
        commands, changed = turn.once(_done_by_commands)[call.number]
        _note_commands(changes, commands, changed, turn.turn.id, evidence.root)
        how_by_path = {} if outcome.status == "failed" or turn.is_refused(call) else writes_of(call)
        for path, how in how_by_path.items():
            change = changes.change_of(changes.known_path(path), path)
            if _takes_back(change, call, turn.turn.id):
                continue
            change.turns.append(turn.turn.id)
            change.how, change.undone, change.committed = how, "", False
    return [change for change in changes.by_path.values() if change.turns]


def _done_by_commands(turn: TurnEvidence) -> list[tuple[Sequence[Command], list[tuple[str, str]]]]:
    """Return for each call its completed commands, and the changed files as pairs of path and kind of change."""
    done = ((call, outcome, commands_done(call, outcome)) for _, call, outcome in turn.ended_calls)
    return [(commands, list(_changes_by_commands(call, outcome, commands))) for call, outcome, commands in done]


@dataclass
class _Changes:
    """Changes of all files so far."""

    by_path: dict[str, FileChange] = field(default_factory=dict)
    """Changes by `plain_path`."""
    by_name: dict[str, list[str]] = field(default_factory=dict)
    """Paths by the file's name."""

    def known_path(self, path: str) -> str:
        """Return the recorded path of the same file: an equal one, or one that a relative path is the end of, or the
        reverse; else `path` in plain form."""
        path = plain_path(path, self.by_path).replace("\\", "/")
        ending, same_name = f"/{path.removeprefix('./')}", self.by_name.get(path.rpartition("/")[2], ())
        if is_absolute(path):
            matching = (one for one in same_name if one == path or (not is_absolute(one) and path.endswith(f"/{one}")))
        else:
            matching = (one for one in same_name if one == path or one.endswith(ending))
        return next(matching, path)

    def change_of(self, plain: str, path: str) -> FileChange:
        """Return the record of the file at `plain`, its path in plain form; a new record is shown as `path`."""
        if plain not in self.by_path:
            self.by_path[plain] = FileChange(path)
            self.by_name.setdefault(plain.rpartition("/")[2], []).append(plain)
        return self.by_path[plain]


def _takes_back(change: FileChange, call: Call, turn_id: str) -> bool:
    """Return True if `call` restores the text that an earlier edit replaced, so that neither has changed the file."""
    old, new = edit_of(call)
    if not (old and new):
        return False
    taken_back = change.edits.pop((new, old), "")
    if taken_back:
        change.turns.remove(taken_back)
    else:
        change.edits[old, new] = turn_id
    return bool(taken_back)


def changed_paths(turn: TurnEvidence, call: Call, outcome: Outcome) -> Iterator[str]:
    """Yield the files changed by a call of `turn` with this outcome."""
    yield from writes_of(call) if outcome.status in ("passed", "done") else ()
    named = (path for path, _ in turn.once(_done_by_commands)[call.number][1])
    yield from (path for path in named if path[-1] != "/" and not is_beside(path))


def commands_done(call: Call, outcome: Outcome) -> Sequence[Command]:
    """Return the commands of a call that completed: for a failed call those before the first that may have failed.

    ``cat > a.py <<EOF … EOF`` on lines before ``python a.py`` has written the file, however that ended. In a call that
    a host flags without an exit code no command ran, because a hook blocked it.
    """
    blocked = call.is_error and outcome.exit_code is None
    if blocked or outcome.refused or outcome.status in ("running", "unanswered"):
        return ()
    failed = last_run(commands_in(call)) if outcome.status == "failed" else ()
    return commands_in(call)[: commands_in(call).index(failed[0])] if failed else commands_in(call)


def _taking_back(command: Command) -> str:
    """Return the command that undoes all changes of the repository, ``git reset --hard``; empty for others."""
    words = [word for word in command.words[:4] if word != "--"][:3]
    takes = words[:2] in (["git", "checkout"], ["git", "restore"]) and words[2:] == ["."]
    return " ".join(words) if takes or words == ["git", "reset", "--hard"] else ""


def _changes_by_commands(call: Call, outcome: Outcome, commands: Sequence[Command]) -> Iterator[tuple[str, str]]:
    """Yield path and kind of change of each file that the completed `commands` of `call` changed; of a script in a
    here-document that writes, the file if it names only one."""
    for path, how in shell_changes(commands):
        yield path if is_absolute(path) else join(folder_of(call), path), how
    for one in documents(call.command) if outcome.status in ("passed", "done") else ():
        before = call.command[max(0, one.start - INTERPRETER_CHARACTERS) : one.start]
        script = one.text if _INTERPRETER.search(before) else ""
        named = {*_NAMED_FILE.findall(script)}
        yield from ((path, "edited by a command") for path in named if len(named) == 1 and _WRITING.search(script))


def _note_commands(
    changes: _Changes,
    commands: Sequence[Command],
    changed: Iterable[tuple[str, str]],
    turn_id: str,
    root: str,
) -> None:
    """Record which earlier changes `commands` committed or undid, and `changed`: pairs of path and kind of change."""
    taken_back = next(filter(None, map(_taking_back, commands)), "")
    commits = any(one.starts("git", "commit") for one in commands)
    for plain, change in changes.by_path.items() if commits or taken_back else ():
        change.committed = change.committed or commits
        if taken_back and not (is_beside(plain) or change.committed or change.how == WITH_WORKTREE):
            change.undone = taken_back
            change.turns.append(turn_id)
    for path, how in changed:
        folders = plain_path(path, changes.by_path), join(root, path)
        # a relative path of several folders also identifies the folder if only its end is known
        is_informative = path.count("/") > 1 and not is_absolute(path)
        end = _UPWARD.sub("", path)
        within = [
            one for one in changes.by_path if f"{one}/".startswith(folders) or (is_informative and f"/{end}" in one)
        ]
        # a path that ends in a slash may be a folder: all recorded files in it are affected
        affected = within if path[-1] == "/" else [changes.known_path(end)]
        for one in (one for one in affected if one in changes.by_path or not is_beside(one)):
            change = changes.change_of(one, path)
            change.turns.append(turn_id)
            change.how, change.undone, change.committed = how, "", commits


def changed_files(evidence: Evidence) -> list[RecordLine]:
    """Return the files that were written, and the last kind of change of each."""
    return [_change(evidence, change) for change in file_changes(evidence)]


def _change(evidence: Evidence, change: FileChange) -> RecordLine:
    state = change.how + f", before `{change.undone}`" * bool(change.undone)
    return RecordLine(evidence.shown(f"{change.path}: {state}"), tuple(dict.fromkeys(change.turns)))
