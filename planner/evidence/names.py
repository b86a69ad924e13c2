"""Names in texts: specifics, which an agent cannot guess again once they are gone, definitions in lines of code, and
the folder that most paths are in.

Specifics are paths, URLs, identifiers, ids and numbers of three digits or more. Decides nothing about their worth.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate, islice, repeat, takewhile
from operator import itemgetter

from planner.reading.patterns import lazy_pattern

__all__ = [
    "LEAST_USES",
    "common_root",
    "defines",
    "file_paths",
    "is_absolute",
    "is_beside",
    "parts_of",
    "plain_path",
    "repository_root",
    "specifics_of",
    "without_root",
]

NAME_CHARACTERS = 256
"""No name is longer, but for URLs: a longer run of its characters (base64, a rule of dashes) is read in pieces, so that
the time it takes grows with its length and no faster."""

URL_CHARACTERS = 2_048
"""Nor is any URL longer."""

_URL = rf"https?://[^\s\"'<>`|\\^{{}}\[\]()]{{1,{URL_CHARACTERS}}}"
_PATH = r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\](?=[\w.@-]))?(?:[\w.@+%$-]++[/\\])++[\w.@+%$*-]*|[/~]\w[\w.-]+"
"""``src/app/main.py``, ``~/.ssh``, ``C:\\a``; not ``/`` alone. A part ends at its slash: nothing is tried twice."""
_FILE = r"\b\w[\w-]*+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}\b"
"""``package.json``, ``a.test.ts``; not ``3.14``."""
_WORD = r"[A-Za-z_$@#][\w$]*+(?:(?:[.:-]|::)\w++)*+|\d\w*+(?:[.:-]\w++)*+"
"""``user_id``, ``pkg::mod``, ``10.0.0.1``, ``a1b2c3d``."""
_RUN = lazy_pattern(rf"(?P<url>{_URL})|[\w.@+%$#/\\:~*-]{{1,{NAME_CHARACTERS}}}")
"""Characters that names are made of, as far as they go."""
_TOKEN = lazy_pattern(rf"(?P<path>{_PATH})|(?P<file>{_FILE})|(?P<word>{_WORD})")

_JOINED_OR_TELLING = lazy_pattern(r"[.:-]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|\d{3}")
"""Joined words, humps or a longer number: ``run-time``, ``toJson``, ``HTTPError``, ``E1234``."""
_LETTER = lazy_pattern(r"[A-Za-z]")
_SEPARATORS = lazy_pattern(r"[/\\.:-]+")
MOST_COMPONENTS = 24
"""A name with more components is no name; what is behind them is read as one."""
PART_CHARACTERS = 4
"""A shorter part of a name is none by itself."""
_TRAILING = ".,:;!?-"

_DEFINITION = lazy_pattern(
    r"[ \t]{0,8}"
    r"(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|unsafe)[ \t]){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module"
    r"|(?<![ \t])const|(?<=export )const|(?<=pub )const)"
    r"[ \t]{1,4}(?:\([^()\n]{0,60}\)[ \t]{0,2})?[A-Za-z_]"
)
"""A function, type or constant of a module: ``func (s *Store) Save(``, ``export class Foo``, ``const LIMIT``; not
``return type(x)``, nor a ``const`` within a function."""
_BEFORE_CODE = lazy_pattern(r"(?:\+|\s{0,8}\d{1,9}(?:→|\t| \| ))?")
"""Marks of viewers and diffs before a line of code: ``12→``, ``+``."""

LEAST_USES = 4
"""A folder named less often is not worth saying what it is."""
PARENT_SHARE = 1.25
"""A folder above that is in so many times more paths is the better root, though it saves less in each."""

DEEPEST_FOLDER = 16
"""Folders further down than this are not looked at: a path of a thousand components is no path."""

_WITHIN = r"[\w.:/~)\]}*>$%-]"
"""Characters before a slash within a path or an address."""
_ABSOLUTE = lazy_pattern(rf"/(?<!{_WITHIN}/)[\w.@+-]+(?:/[\w.@+-]+)+")
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


def specifics_of(text: str) -> list[str]:
    """The distinct specifics of `text`, in order of first appearance."""
    names: dict[str, None] = {}
    for run in _RUN.finditer(text):
        if run["url"]:
            names[run["url"].rstrip(_TRAILING)] = None
            continue
        for match in _TOKEN.finditer(text, run.start(), run.end()):
            name = match.group().rstrip(_TRAILING)
            if name not in names and _is_specific(match.lastgroup, name):
                names[name] = None
    return list(names)


def defines(line: str) -> bool:
    """True if a function, type or constant is defined in `line`, as it stands in a file, a viewer or a diff."""
    before = _BEFORE_CODE.match(line)
    return _DEFINITION.match(line[before.end() :] if before else line) is not None


def parts_of(name: str) -> tuple[str, ...]:
    """`name`, and what stands as a whole word wherever it stands: runs of its components."""
    breaks = [match.span() for match in islice(_SEPARATORS.finditer(name), MOST_COMPONENTS)]
    if not breaks:
        return (name,)
    starts, stops = [0, *(stop for _, stop in breaks)], [*(start for start, _ in breaks), len(name)]
    runs = [
        name[start:stop] for at, start in enumerate(starts) for stop in stops[at:] if stop - start >= PART_CHARACTERS
    ]
    return tuple(dict.fromkeys((name, *runs)))


def _is_specific(group: str | None, text: str) -> bool:
    if group in ("path", "file"):
        return len(text) >= 4 and _LETTER.search(text) is not None
    return len(text) >= 3 if text.isdigit() else _is_identifier(text)


def _is_identifier(text: str) -> bool:
    """Words a dictionary does not hold: with an underscore, humps, digits, or joined by ``.``, ``:``, ``-``."""
    if len(text) < 4:
        return False
    inner = text.strip("_$@#")
    if "_" in inner or _JOINED_OR_TELLING.search(inner):
        return True
    return inner.isupper() and any(c.isdigit() for c in inner)


def is_absolute(path: str) -> bool:
    """True if it says where it begins: ``/a``, ``~/a``, ``C:\\a``; not ``a/b``."""
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def is_beside(path: str) -> bool:
    """True for a file that lies where nobody means to keep it, or that the agent keeps for itself: ``/tmp/a``."""
    return _BESIDE.match(path) is not None


def plain_path(path: str, beside: Iterable[str] = ()) -> str:
    """The one spelling for the ways to write a path of Windows: ``C:\\a`` and ``c:/a`` are ``C:/a``, and `beside` such
    paths Git's ``/c/a`` is."""
    drive = _DRIVE.match(path)
    if drive is None or (drive[2] and not any(one[1:2] == ":" for one in beside)):
        return path
    return f"{(drive[1] or drive[2]).upper()}:{_BACKSLASHES.sub('/', path[2:])}"


def file_paths(text: str) -> tuple[str, ...]:
    """The absolute paths of files that `text` names, as often as it does; those of Windows with slashes."""
    paths = _ABSOLUTE.findall(text) if "/" in text else []
    paths += [plain_path(f"{drive}:{path}") for drive, path in _ON_DRIVE.findall(text)] if ":" in text else []
    return tuple(filter(_FILE_ENDING.search, paths))


def common_root(paths: Iterable[str]) -> str:
    """The folder whose absence from `paths` saves the most characters, or empty; one beside the work only if there is
    no other."""
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
    """The folder above, empty for one of the file system's root."""
    return folder.rpartition("/")[0]


@lru_cache(maxsize=64)
def _below(root: str) -> re.Pattern[str]:
    if root[1:2] == ":":
        folders = "".join(rf"[\\/]+{re.escape(part)}" for part in root[3:].split("/"))
        return re.compile(rf"(?<![\w.:/~\\-])(?i:{root[0]}:|/{root[0]}){folders}[\\/]+(?=[\w.@+-])")
    return re.compile(rf"(?<!{_WITHIN}){re.escape(root)}/(?=[\w.@+(\[-])")


def without_root(text: str, root: str) -> str:
    """`text` with paths below `root` made relative to it."""
    return _below(root).sub("", text) if root and root.rpartition("/")[2] in text else text
