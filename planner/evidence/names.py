"""Specifics in texts: names that an agent cannot guess if they are removed.

They are paths, URLs, identifiers, ids and numbers of three digits or more. Also shortens paths by the folder that most
of them share. Decides nothing about the worth of names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from planner.reading.patterns import lazy_pattern

NAME_CHARACTERS = 256
"""Largest length of a name that is no URL. A longer run of name characters, such as base64, is read in pieces, so that
the time grows in proportion to its length."""

URL_CHARACTERS = 2_048
"""Largest length of a URL; a longer one is read in pieces."""

_URL = rf"https?://[^\s\"'<>`|\\^{{}}\[\]()]{{1,{URL_CHARACTERS}}}"
_PATH = r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\](?=[\w.@-]))?(?:[\w.@+%$-]{1,99}+[/\\])++[\w.@+%$*-]*|[/~]\w[\w.-]+"
"""Path: ``src/app/main.py``, ``~/.ssh``, ``C:\\a``; not ``/`` alone. Each part ends at a slash, so that the search
never tries a part twice."""
_FILE = r"\b\w[\w-]{0,99}+(?:\.[\w-]{1,99}){0,7}\.[A-Za-z][A-Za-z0-9]{0,5}\b"
"""File name without a folder: ``package.json``, ``a.test.ts``; not ``3.14``."""
_WORD = r"[A-Za-z_$@#][\w$]*+(?:(?:[.:-]|::)\w++)*+|\d\w*+(?:[.:-]\w++)*+"
"""Word, identifier or number, which may be joined to others: ``user_id``, ``pkg::mod``, ``10.0.0.1``, ``a1b2c3d``."""
_NAME_SET = r"\w.@+%$#/\\:~*-"
"""Characters of names, as a set in a pattern."""
_PLAIN = rf"(?:(?:[A-Za-z][a-z]*+|[A-Z]++|[0-9]{{1,2}}+)[.:-]*+|[.:*%+-]++)(?![{_NAME_SET}])"
"""Single word of a language, small number or mark, which is no name: ``Hello:``, ``12``, ``PASSED``."""
_RUN = lazy_pattern(
    rf"(?>[^{_NAME_SET}]++|{_PLAIN})*+"
    rf"(?:(?P<url>{_URL})|(?P<run>[{_NAME_SET}]{{1,{NAME_CHARACTERS}}})|\Z)"
)
"""Longest run of name characters, after text without names."""
_TOKEN = lazy_pattern(rf"(?P<path>{_PATH})|(?P<file>{_FILE})|(?P<word>{_WORD})")

_JOINED_OR_MIXED = lazy_pattern(r"[.:-]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|\d{3}")
"""Sign of an identifier: a mark that joins words, a capital inside, a longer number: ``run-time``, ``toJson``,
``E1234``."""
_LETTER = lazy_pattern(r"[A-Za-z]")
_SEPARATORS = lazy_pattern(r"[/\\.:-]+")
MOST_COMPONENTS = 24
"""Largest number of components into which `parts_of` splits a name; it reads the rest as one."""
PART_CHARACTERS = 4
"""Smallest length of a part of a name that counts as a name."""
_TRAILING = ".,:;!?-"
"""Marks at the end of a run that do not belong to its name."""

PATH_MARKS = r"[\w.:/~)\]}*>$%-]"
"""Characters that may precede a slash within a path or an address, as a set in a pattern."""


def specifics_of(text: str) -> list[str]:
    """Return the distinct specifics of `text`, in order of first appearance."""
    names: dict[str, None] = {}
    for url, run in _RUN.findall(text):
        if url:
            names[url.rstrip(_TRAILING)] = None
        elif run and run.isascii() and (run.isidentifier() or run.isdigit()):
            # most runs are one word or number, which needs no search for names within it
            if run not in names and _is_identifier(run):
                names[run] = None
        elif run:
            for match in _TOKEN.finditer(run):
                name = match.group().rstrip(_TRAILING)
                if name not in names and _is_specific(match.lastgroup, name):
                    names[name] = None
    return list(names)


def parts_of(name: str) -> tuple[str, ...]:
    """Return `name` and all runs of its components with at least `PART_CHARACTERS`: for ``src/app/main.py`` also
    ``app/main``, ``main.py`` and others."""
    breaks = [match.span() for match in islice(_SEPARATORS.finditer(name), MOST_COMPONENTS)]
    if not breaks:
        return (name,)
    starts, stops = [0, *(stop for _, stop in breaks)], [*(start for start, _ in breaks), len(name)]
    runs = [
        name[start:stop] for at, start in enumerate(starts) for stop in stops[at:] if stop - start >= PART_CHARACTERS
    ]
    return tuple(dict.fromkeys((name, *runs)))


def _is_specific(group: str | None, text: str) -> bool:
    """Return True for a match of `_TOKEN` that is a specific; `group`: the name of the group that matched."""
    if group in ("path", "file"):
        return len(text) >= 4 and _LETTER.search(text) is not None
    return _is_identifier(text)


def _is_identifier(text: str) -> bool:
    """Return True for a number of three digits, or a word that no dictionary contains. Such a word has an underscore, a
    capital inside or digits, or consists of words joined by ``.``, ``:`` or ``-``."""
    if text.isdigit():
        return len(text) >= 3
    if len(text) < 4:
        return False
    inner = text.strip("_$@#")
    if "_" in inner or _JOINED_OR_MIXED.search(inner):
        return True
    return inner.isupper() and any(c.isdigit() for c in inner)


@lru_cache(maxsize=64)
def _below(root: str) -> re.Pattern[str]:
    """Return a pattern for `root` and the slash after it at the beginning of a longer path."""
    if root[1:2] == ":":
        folders = "".join(rf"[\\/]+{re.escape(part)}" for part in root[3:].split("/"))
        return re.compile(rf"(?<![\w.:/~\\-])(?i:{root[0]}:|/{root[0]}){folders}[\\/]+(?=[\w.@+-])")
    return re.compile(rf"(?<!{PATH_MARKS}){re.escape(root)}/(?=[\w.@+(\[-])")


def without_root(text: str, root: str) -> str:
    """Return `text` with paths below `root` made relative to it."""
    return _below(root).sub("", text) if root and root.rpartition("/")[2] in text else text
