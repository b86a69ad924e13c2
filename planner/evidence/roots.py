"""The folder that most absolute paths of a history are in: said once in a note, left out of every path below it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from planner.reading.patterns import lazy_pattern

__all__ = ["common_root", "file_paths", "without_root"]

LEAST_USES = 4
"""A folder named less often is not worth saying what it is."""
PARENT_SHARE = 1.25
"""A folder above that is in so many times more paths is the better root, though it saves less in each."""

DEEPEST_FOLDER = 16
"""Folders further down than this are not looked at: a path of a thousand components is no path."""

_ABSOLUTE = lazy_pattern(r"/(?<![\w.:/~-]/)[\w.@+-]+(?:/[\w.@+-]+)+")
"""``/srv/app/src/a.py``; not the path in ``https://a/b/c`` or ``src/app/a.py``. Each part is told from the next by its
slash, so nothing is tried twice; a pattern that begins with a letter is searched for as fast as that letter."""
_FILE = lazy_pattern(r"\.\w{1,12}$")
"""The ending of a file's name: what has none may be the path of a page, ``/api/orders/7``."""


def file_paths(text: str) -> tuple[str, ...]:
    """The absolute paths of files that `text` names, as often as it does."""
    return tuple(filter(_FILE.search, _ABSOLUTE.findall(text))) if "/" in text else ()


def common_root(paths: Iterable[str]) -> str:
    """The folder whose absence from `paths` saves the most characters, or empty."""
    uses: Counter[str] = Counter()
    for path, times in Counter(paths).items():
        for folder in _folders(path):
            uses[folder] += times
    worth = {folder: len(folder) * times for folder, times in uses.items() if times >= LEAST_USES}
    root = max(worth, key=lambda folder: (worth[folder], folder), default="")
    while _parent(root) and uses[_parent(root)] > PARENT_SHARE * uses[root]:
        root = _parent(root)
    return root


def _parent(folder: str) -> str:
    """The folder above, if it is two components deep or more."""
    above = folder.rpartition("/")[0]
    return above if above.count("/") >= 2 else ""


def _folders(path: str) -> list[str]:
    """The folders above `path`, two components deep or more."""
    parts = path.split("/", DEEPEST_FOLDER)[:DEEPEST_FOLDER]
    return ["/".join(parts[:end]) for end in range(3, len(parts))]


@lru_cache(maxsize=64)
def _below(root: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.:/~-]){re.escape(root)}/(?=[\w.@+-])")


def without_root(text: str, root: str) -> str:
    """`text` with paths below `root` made relative to it."""
    return _below(root).sub("", text) if root and root in text else text
