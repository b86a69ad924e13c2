"""Paths of files: how they are spelled, which lie beside the work, and the folder that most of them are in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, repeat, takewhile
from operator import itemgetter

from planner.evidence.names import PATH_MARKS
from planner.evidence.turns import TurnEvidence
from planner.programming.coding_tools import folder_of, writes_of
from planner.reading.patterns import lazy_pattern

__all__ = ["common_root", "file_paths", "is_absolute", "is_beside", "plain_path", "work_folder"]

LEAST_USES = 4
"""Least uses of a folder that is left out of paths."""
PARENT_SHARE = 1.25
"""A folder above that is in so many times more paths is the better root, though it saves less in each."""

DEEPEST_FOLDER = 16
"""Folders further down than this are not looked at: a path of a thousand components is no path."""

_ABSOLUTE = lazy_pattern(rf"/(?<!{PATH_MARKS}/)[\w.@+-]+(?:/[\w.@+-]+)+")
"""``/srv/app/src/a.py``; not the path in ``https://a/b/c``, ``src/(app)/a/b.py`` or ``${ROOT}/a/b.py``. Each part is
told from the next by its slash, so nothing is tried twice; a pattern that begins with a letter is searched for as fast
as that letter."""
_ON_DRIVE = lazy_pattern(r":(?<=(?<!\w)([A-Za-z]):)((?:\\+[\w.@+-]+){2,}|(?:/[\w.@+-]+){2,})")
"""``C:\\app\\src\\a.py``, ``C:/app/src/a.py``, and as JSON in text has it with each ``\\`` twice."""
_DRIVE = lazy_pattern(r"([A-Za-z]):(?=[\\/])|/([A-Za-z])(?=/)")
"""Beginning of a path of Windows; in Git's shell ``/c``."""
_BACKSLASHES = lazy_pattern(r"\\+")
_BESIDE = lazy_pattern(
    r"(?:/private)?(?:/var)?/tmp/|(?:/private)?/var/folders/|.*/AppData/Local/Temp/|.*/\.claude/(?:projects|plans|jobs)/"
)
"""Where files lie that nobody means to keep, or that the agent keeps for itself."""
_FILE_ENDING = lazy_pattern(r"\.\w{1,12}$")
"""The ending of a file's name: what has none may be the path of a page, ``/api/orders/7``."""


def is_absolute(path: str) -> bool:
    """Return True for ``/a``, ``~/a``, ``C:\\a``; not for ``a/b``."""
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def is_beside(path: str) -> bool:
    """Return True for a temporary file, or one that the agent keeps for itself: ``/tmp/a``."""
    return _BESIDE.match(path) is not None


def plain_path(path: str, beside: Iterable[str] = ()) -> str:
    """Return one spelling of a path of Windows: ``C:\\a`` and ``c:/a`` are ``C:/a``, and `beside` such
    paths Git's ``/c/a`` is."""
    drive = _DRIVE.match(path)
    if drive is None or (drive[2] and not any(one[1:2] == ":" for one in beside)):
        return path
    return f"{(drive[1] or drive[2]).upper()}:{_BACKSLASHES.sub('/', path[2:])}"


def file_paths(text: str) -> tuple[str, ...]:
    """Return the absolute paths of files in `text`, as often as they occur; those of Windows with slashes."""
    paths = _ABSOLUTE.findall(text) if "/" in text else []
    paths += [plain_path(f"{drive}:{path}") for drive, path in _ON_DRIVE.findall(text)] if ":" in text else []
    return tuple(filter(_FILE_ENDING.search, paths))


def common_root(paths: Iterable[str]) -> str:
    """Return the folder without which `paths` are shortest, or empty; a temporary one only if there is no other."""
    counted = Counter(paths)
    lasting = {path: times for path, times in counted.items() if not is_beside(path)}
    root = _common_root(lasting) or _common_root(counted)
    return "" if _BESIDE.fullmatch(f"{root}/") else root


def _common_root(paths: Mapping[str, int]) -> str:
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
    """`root`, or the folder above that relative paths of `texts` begin in: the one over ``cmd/cli`` in
    ``/srv/app/cmd/cli``, where ``git diff cmd/cli/main.go`` names files so.
    """
    uses: Counter[str] = Counter()
    folders = list(takewhile(bool, accumulate(repeat(root), lambda folder, _: _parent(folder))))[1:]
    forms = [(folder, root[len(folder) + 1 :] + "/") for folder in folders]
    begun = {below: re.compile(rf"(?<![\w.:/~-])(?:\./)?{re.escape(below)}[\w.@+-]") for _, below in forms}
    for text in texts:
        uses.update({folder: len(begun[below].findall(text)) for folder, below in forms if below in text})
    above, times = max(uses.items(), key=itemgetter(1), default=("", 0))
    return above if times >= LEAST_USES else root


def _parent(folder: str) -> str:
    """Return the folder above, empty for one of the file system's root."""
    return folder.rpartition("/")[0]


def work_folder(turns: Sequence[TurnEvidence]) -> str:
    """Return the folder that paths are shown relative to: the one most calls run in, or the one that saves most."""
    folders = Counter(folder for turn in turns for call in turn.calls if (folder := folder_of(call)))
    folder, times = max(folders.items(), key=itemgetter(1), default=("", 0))
    if times >= LEAST_USES:
        return folder
    edited = Counter(is_absolute(path) for turn in turns for call in turn.calls for path in writes_of(call))
    if edited[False] >= max(LEAST_USES, edited[True]):
        return ""  # where the relative paths begin does not show
    written, others = zip(*(turn.once(_paths) for turn in turns), strict=True) if turns else ((), ())
    root = common_root(chain(*written)) or common_root(chain(*written, *others))
    return repository_root(root, (text.text for turn in turns for text in turn.lines.texts))


def _paths(turn: TurnEvidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the absolute paths that the agent wrote in `turn`, and those that others wrote."""
    written = [call.path for call in turn.calls if is_absolute(call.path) and " " in call.path]
    others: list[str] = []
    for text in turn.lines.texts:
        (written if text.part in ("assistant", "call") else others).extend(file_paths(text.text))
    return tuple(written), tuple(others)
