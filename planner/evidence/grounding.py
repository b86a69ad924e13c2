"""Whether a text names only what its source holds: what is invented has no place in a plan.

Names are held whole: as a token of the source, or as whole components of one. ``8080`` is not held by ``18080``, nor
``/bin/sh`` by ``/usr/bin/sh``. Words that a dictionary holds are never questioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from planner.reading.lazy_property import lazy_property
from planner.reading.patterns import lazy_pattern

__all__ = ["NameIndex", "invented"]

TOKEN_CHARACTERS = 1_024
"""A longer run of name characters (base64, minified code) is indexed in pieces."""
LOOKED_TEXTS, LOOKED_CHARACTERS = 16, 20_000
"""Of so many texts the beginnings are looked through before an index is made: most names of a turn stand there."""
COUNTABLE = 10
"""Whole numbers up to this are not questioned when they stand alone: a reader may count the items of a list or the
attempts, and the source need not say their number. Behind "port", "exit code", "issue" and the like they are."""

GAP_CHARACTERS = 256
"""What is left open in a name is no longer."""

_NAME_CHARACTERS = r"\w./\\:@+%$#~*=&?-"
_TOKEN = lazy_pattern(rf"[{_NAME_CHARACTERS}]{{1,{TOKEN_CHARACTERS}}}")
"""A run of the characters that names are made of: ``src/a.py:3``, ``--no-verify``, ``https://a.b/c?d=1``."""
_COMPONENT = lazy_pattern(r"\w+")
_ESCAPE = lazy_pattern(r"\\[nrt]")
"""A line break or tab within a string of JSON: ``a\\nb`` holds ``a`` and ``b``."""
_THOUSANDS = lazy_pattern(r",(?<=\d,)(?=\d{3}(?!\d))")
"""The comma in ``1,290``; not in ``1,2``."""
_TURN_ID = lazy_pattern(rf"(?<![{_NAME_CHARACTERS}])t\d+(?:\s*[-–]\s*t?\d+)?(?![{_NAME_CHARACTERS}]*\w)")
"""``t9``, ``t9-t14``: ids of turns are the plan's own; not within a name, ``t9.test.ts``."""
_TRAILING = ".,:;!?-*=&\\"
_CLOSED = lazy_pattern(r"\w[\"'`)\]]$")
"""What stands before a slash that joins a quoted word to the next one: ``"a"/b``; not ``"/b``, ``("/b``."""
_HUMPS = lazy_pattern(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_MEASURE = lazy_pattern(r"(\d+(?:\.\d+)?)(?:[A-Za-z]{1,3}|%)?(?:-[a-z]+)?")
"""A number with its unit: ``42ms``, ``3.5%``, ``2nd``, ``90-line``, ``28ms-old``; not ``v2``."""
_COUNTED = lazy_pattern(r"(?:[0-9]|10)(?:st|nd|rd|th|x)")
"""``2nd``, ``3x``: a small number that counts, with the letters that say so."""
_PLURAL = lazy_pattern(r"[A-Z]{2,}s")
"""``URLs``: a word in capitals with its ending."""
_FLAG = lazy_pattern(r"--?[A-Za-z][\w-]*")
_HYPHENATED = lazy_pattern(r"[A-Za-z]+(?:-[A-Za-z]+)+")
_RANGE = lazy_pattern(r"([A-Za-z]?\d{1,9})[-–]([A-Za-z]?\d{1,9})")
"""``946-968``, ``U1-U4``: a range, whose ends are two numbers or two names; not ``2026-11-21``."""
_BLANK = lazy_pattern(r"(?<![A-Za-z0-9])(?:ID|N|X|id|<\w+>|\{\w+\}|:\w+)(?![A-Za-z0-9])|\*+")
"""What a writer leaves open in a name: ``comments/ID/replies``, ``hooks_*.go``; not ``idle``."""
PART_CHARACTERS = 8
"""A shorter part of an identifier says too little: ``HashLength`` of ``Test_HashLengthMismatch`` does, ``Hash`` does
not."""
LONGEST_PART = 100
"""A longer one is no part: looking for it would take its length times the source's."""
PIECE_CHARACTERS = 4
"""Of a name with something left open so long pieces must be held."""
_SPLIT = lazy_pattern(r"[:=,#@&?+]+|(?<=\w)\.{2,3}(?=\w)")
"""What joins names to one token: ``KEY=value``, ``a1b2c3d..d4e5f6a``."""
_FILE = lazy_pattern(r"\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}")
"""``token_test.go``: a file's name without a folder."""
_ABBREVIATION = lazy_pattern(r"(?:[A-Za-z]\.)*[A-Za-z]")
"""``e.g``, ``i.e``: letters with dots."""
SHORT_HASH = 7
"""As few characters of a hash as git prints."""
_HASH = lazy_pattern(rf"[0-9a-f]{{{SHORT_HASH},40}}")
"""A commit, short or long; a short one is held by the long one that it begins."""
_NUMBERED = lazy_pattern(
    r"(?:ports?|lines?|codes?|exits?|status|version|issues?|pr|prs|pid|id|http|#|step|level|v)[\s:#=]*$", re.I
)
"""Words behind which a number is a name: ``port 3``, ``exit code 2``, ``PR #7``; not ``all 3``."""
_CODE = r"exit(?:s|ed)?|(?:exit[\s_-]?)?(?:code|status)|returned|returncode|rc"
_BOUND = lazy_pattern(
    rf"(?:(?P<exit>\b(?:{_CODE}))|(?P<port>\bports?)|(?P<issue>\b(?:issues?|pull|prs?)\b)|(?P<pid>\bpid))"
    r"[\s:=#/(\"']{0,3}(?:(?:code|status|with|number|is|request|the|of|now)\b[\s:=#]{0,3}){0,2}$",
    re.I,
)
"""Words behind which a small number is held only behind their like: ``exit code 9``, ``PR #7``; not ``line 9``."""
_BINDING = lazy_pattern(
    rf"(?:(?P<exit>(?:{_CODE}|exitcode|exit_code))|(?P<port>ports?\b|:)|(?P<issue>issues?|pull|\bprs?|[#!])|(?P<pid>pid))"
    r"[\s:=#/(\"'\\]{0,4}(?:(?:code|status|with|number|is|request|the|of|now)\b[\s:=#]{0,3}){0,2}(?P<number>\d{1,2})(?!\w)",
    re.I,
)
"""The like in a source: ``"exitCode": 9``, ``exited with code 9``, ``localhost:80``, ``/pull/7``."""
MOST_BOUND = 99
"""A larger number is told from others by itself."""
_ASSIGNED = lazy_pattern(r"([A-Za-z_]\w*)=([\w.+-]+)")
"""``DEBUG=1``; not ``--level=1``, ``a==b``."""
_INSTALL = lazy_pattern(
    r"\b(?:install|uninstall|add|require|import|npx|pip|npm|cargo|brew|package|module|library|crate)\s+$", re.I
)
"""Words behind which a hyphenated word is the name of a package: ``npm install left-pad``."""
_INSTALLED = lazy_pattern(
    r"\b(?:npm|pnpm|yarn|bun|pip3?|uv|poetry|cargo|brew|apt(?:-get)?|gem|go|conda|composer)\s+"
    r"(?:pip\s+)?(?:install|uninstall|i|add|get|remove)\s+(?:-\S+\s+){0,3}$"
)
"""Commands behind which any word is the name of a package: ``pip install -U requests``; not ``install the hook``."""
LOOK_UPS = ("restore_context", "search_context")
"""Tools that a brief may point to, whatever the history names."""
_PROSE = (
    "a after all and anti as at auto back based be before built by case client co cross day de down driven end "
    "ever ex extra fail false far first five fixed for four free full go half hand hard head high hyper ill in "
    "input inter is it last left less level like line long low made mega micro mid mini mis multi near never new "
    "no non not null of off old on once one only open or out output over own pass per point post pre pro pseudo "
    "quasi quick re read real right run safe same second self semi server set short side single so some specific "
    "start stop sub super tail test the third three time to top trans true two ultra un under up user via vice vs "
    "way well which wide wise with write yes zero"
)
_PROSE_PARTS = frozenset(_PROSE.split())
"""Parts that make compounds of prose: ``read-only``, ``end-to-end``, ``and/or``. A compound without any of them, nor a
part in -ed, -ing or -ly, is taken for a name: ``event-stream``."""


class NameIndex:
    """The names that a source holds, read when first asked; asking is as cheap as the name's rarest part is rare."""

    def __init__(self, texts: Sequence[str], *, parts: bool = False) -> None:
        """Of `texts`, which make up the source; with `parts` also what identifiers begin with or are joined of."""
        self._texts = texts
        self.parts = parts

    @lazy_property
    def _tokens(self) -> dict[str, list[str]]:
        """The distinct tokens of the source by each component, in lower case."""
        tokens: dict[str, None] = {}
        for text in self._texts:
            plain = _THOUSANDS.sub("", text)
            for form in (plain, _ESCAPE.sub(" ", plain)) if "\\" in plain else (plain,):
                tokens.update((match.group(), None) for match in _TOKEN.finditer(form))
        by_component: dict[str, list[str]] = {}
        for token in tokens:
            for component in {one.casefold() for one in _COMPONENT.findall(token)}:
                by_component.setdefault(component, []).append(token)
                if (measure := _MEASURE.fullmatch(component)) and measure[1] != component:
                    by_component.setdefault(measure[1], []).append(measure[1])
        return by_component

    @lazy_property
    def _hashes(self) -> frozenset[str]:
        """The beginnings of all hashes that are long enough to name one."""
        hashes = (component for component in self._tokens if _HASH.fullmatch(component) and not component.isdigit())
        return frozenset(name[:length] for name in hashes for length in range(SHORT_HASH, len(name)))

    def holds(self, name: str) -> bool:
        """True if `name` stands in the source, whole; a plain word in capitals or not."""
        name = name.removeprefix("./")
        components = {component.casefold() for component in _COMPONENT.findall(name)}
        looked = (_stands(name, text[:LOOKED_CHARACTERS]) for text in self._texts[:LOOKED_TEXTS])
        if not components or any(looked) or name in self._hashes:
            return True
        tokens = min((self._tokens.get(component, []) for component in components), key=len)
        if name.isalpha():
            name, tokens = name.casefold(), [token.casefold() for token in tokens]
        return any(_stands(name, token) for token in tokens)

    @lazy_property
    def _bound(self) -> frozenset[tuple[str | None, int]]:
        """The small numbers that a word binds, each with the kind of word."""
        groups = ("exit", "port", "issue", "pid")
        matches = (match for text in self._texts for match in _BINDING.finditer(text))
        return frozenset((next(g for g in groups if match[g]), int(match["number"])) for match in matches)

    def binds(self, number: str, before: str) -> bool:
        """True unless what stands `before` makes a name of the number, and no such words do in the source."""
        word = _BOUND.search(before) if len(number) <= len(str(MOST_BOUND)) else None
        return word is None or (word.lastgroup, int(number)) in self._bound

    def assigns(self, name: str, value: str) -> bool:
        """True if `value` stands behind `name` in the source, whatever marks join them."""
        pair = re.compile(rf"(?<!\w){re.escape(name)}[\"'\\]{{0,2}}[\s:=]{{1,3}}[\"'\\]{{0,2}}{re.escape(value)}(?!\w)")
        return any(pair.search(text) for text in self._texts)

    def is_folder(self, name: str) -> bool:
        """True if `name` stands before a slash in the source."""
        return any(f"{name}/" in token for token in self._tokens.get(name.casefold(), ()))

    def holds_pieces(self, pieces: Sequence[str]) -> bool:
        """True if one token of the source holds all `pieces` in their order, as a name with gaps does."""
        gap = rf"[{_NAME_CHARACTERS}]{{0,{GAP_CHARACTERS}}}?"
        pattern = re.compile(gap.join(map(re.escape, pieces)))
        return any(pattern.search(text) for text in self._texts)

    def holds_part(self, name: str) -> bool:
        """True if `name` stands in an identifier of the source between underscores or humps."""
        name = name.strip("_")
        if not PART_CHARACTERS <= len(name) <= LONGEST_PART or not name.isidentifier():
            return False
        hump = "|(?<=[a-z0-9])" if name[0].isupper() else ""
        part = re.compile(rf"(?:\b|_{hump}){re.escape(name)}(?=\b|_|[A-Z])")
        return any(name in text and part.search(text) for text in self._texts)

    def has_word(self, word: str) -> bool:
        """True if `word` stands in the source, in capitals or not."""
        return word.casefold() in self._tokens


def _stands(name: str, text: str) -> bool:
    return name in text and _whole(name).search(text) is not None


@lru_cache(maxsize=4_096)
def _whole(name: str) -> re.Pattern[str]:
    """Where `name` stands between boundaries: not ``8080`` in ``18080``, ``290`` in ``1,290``, ``/a`` in ``b/a``."""
    before = rf"(?<![\w{_JOINING[name[0]]}])" if name[0] in _JOINING else r"(?<!\w)" if _is_word(name[0]) else ""
    behind = r"(?!\w)" if _is_word(name[-1]) else ""
    if name[0].isdigit():
        before, behind = rf"{before}(?<!\d,)", rf"{behind}(?!,\d)" if name[-1].isdigit() else behind
    if name.isdigit():
        before, behind = rf"{before}(?<!\d\.)", rf"{behind}(?!\.\d)"
    if _HYPHENATED.fullmatch(name) or name[0] == "-":
        before, behind = f"{before}(?<!-)", f"{behind}(?!-)"
    return re.compile(before + re.escape(name) + behind)


_JOINING = dict.fromkeys("/\\~-", r"/\\~.-") | {".": "~.-"}
"""What may not stand before a name that begins with a mark: behind a slash ``.git/config`` is whole, ``/a`` is not."""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_NOTHING = NameIndex(())


def invented(text: str, source: NameIndex | None) -> list[str]:
    """Names in `text` that `source` does not hold, in order, each once; all of them without a source.

    Ids of turns are not meant; ``1,290`` may stand for ``1290``, and ``\\\\d`` for ``\\d``, which JSON escapes.
    """
    source = source or _NOTHING
    text = _TURN_ID.sub(" ", text)
    missing = _missing_in(text, source)
    if missing:
        joined = _THOUSANDS.sub("", text).replace("\\\\", "\\")
        missing = min(missing, _missing_in(joined, source), key=len)
    return missing


def _missing_in(text: str, source: NameIndex) -> list[str]:
    missing: dict[str, None] = {}
    for match in _TOKEN.finditer(text):
        before = text[max(0, match.start() - 24) : match.start()]
        token = match.group() + "*" * (text[match.end() : match.end() + 1] in ("…", "{", "<"))
        token = "*" * (before[-1:] in ("…", "}", ">")) + token
        missing.update(dict.fromkeys(_missing(token, before, source)))
    return list(missing)


def _missing(token: str, before: str, source: NameIndex) -> Iterator[str]:
    """What of one token the source does not hold: the whole, or of several names joined by marks those."""
    if token.startswith("..."):
        token = token.lstrip("./") or token
    name = token.rstrip(_TRAILING).lstrip("*=&+?") or token
    if name[0] == "/" and _CLOSED.search(before):
        name = name[1:]
    if not name or not _is_questioned(name, before, source) or _holds_open_name(token.rstrip(".,:;!?-"), source):
        return
    if source.holds(name) or _holds_measure(name, source):
        if name.isdecimal() and not source.binds(name, before):
            yield f"{before.split()[-1]} {name}"
        return
    if (assigned := _ASSIGNED.fullmatch(name)) is not None:
        if not source.assigns(assigned[1], assigned[2]):
            yield name
        return
    if (ends := _RANGE.fullmatch(name)) is not None:
        yield from (end for end in ends.groups() if not source.holds(end))
        return
    if source.parts and source.holds_part(name):
        return
    if name[0] in "#:" and name[1:].isdecimal() and source.holds(name[1:]) and source.binds(name[1:], before):
        return
    if source.parts and (qualified := name.split("."))[1:] and all(_is_member(part, source) for part in qualified):
        return
    parts = [part for part in (own.rstrip("/") for own in _SPLIT.split(name)) if part]
    if "://" in name or len(parts) < 2:
        yield name
        return
    for part in parts:
        yield from _missing(part, ":" if part.isdigit() else "", source)


def _is_member(name: str, source: NameIndex) -> bool:
    """True for a name of the source that may stand before or behind a dot: ``Session`` and ``refresh``, not ``py``."""
    return len(name) >= PIECE_CHARACTERS and name.isidentifier() and source.holds(name)


def _holds_open_name(name: str, source: NameIndex) -> bool:
    """True for a name that leaves something open and whose pieces one name of the source holds."""
    pieces = [piece for piece in _BLANK.split(name) if len(piece) >= PIECE_CHARACTERS]
    return len(_BLANK.findall(name)) > 0 and bool(pieces) and source.holds_pieces(pieces)


def _holds_measure(name: str, source: NameIndex) -> bool:
    """True for a number with its unit whose number the source holds: ``42ms`` where it says ``42 ms``."""
    measure = _MEASURE.fullmatch(name)
    return measure is not None and measure[1] != name and source.holds(measure[1])


def _is_questioned(name: str, before: str, source: NameIndex) -> bool:
    """True for what a dictionary does not hold: a name whose place `before` it stands may tell."""
    if not any(map(_is_word, name)):
        return False
    if name.isdecimal():
        return int(name[:6]) > COUNTABLE or before.endswith(":") or bool(_NUMBERED.search(before))
    if _INSTALLED.search(before):
        return name.lower() not in _PROSE_PARTS
    if "/" in name and (source.holds(name) or _is_choice(name, source)):
        return False
    if any(character.isdigit() for character in name):
        return not _COUNTED.fullmatch(name)
    if _FLAG.fullmatch(name):
        return not before or before[-1] in " \t\n`'\"(["
    if _HYPHENATED.fullmatch(name):
        return _is_package(name, before, source)
    if "/" in name or "\\" in name or name[0] in "~$":
        return not _is_prose("/", name)
    if _PLURAL.fullmatch(name) or name in LOOK_UPS:
        return False
    inner = name.strip("_.@#:")
    if "." in inner or ":" in inner or "=" in inner:
        return not _ABBREVIATION.fullmatch(inner)
    return "_" in inner or bool(_HUMPS.search(inner))


def _is_choice(name: str, source: NameIndex) -> bool:
    """True for words, identifiers, numbers and files of the source that prose joins: ``list/delete``, ``Grep/Glob``,
    ``startLine/start_line``, ``9/110/40%``, ``+26/-7``, ``a.py/b.py``; not ``a.py/b``, ``/etc``, nor a path that begins
    with a folder of the source."""
    parts = name.split("/")
    if all(map(_FILE.fullmatch, parts)):
        return all(map(source.holds, parts))
    if source.is_folder(parts[0]) and not _is_prose("/", name):
        return False
    return all(_is_chosen(part, source) for part in parts)


def _is_chosen(part: str, source: NameIndex) -> bool:
    part = part.lstrip("#.+-") if part[-1:].isdigit() else part
    if part.isalpha() and part[1:].islower():
        return source.has_word(part)
    if part[:1].isdigit():
        return not _is_questioned(part, " ", source) or source.holds(part) or _holds_measure(part, source)
    if _HYPHENATED.fullmatch(part):
        return source.holds(part) or not _is_package(part, " ", source)
    return part.isidentifier() and (source.holds(part) or (source.parts and source.holds_part(part)))


def _is_package(name: str, before: str, source: NameIndex) -> bool:
    """True for a hyphenated word that is a name: in code, behind "install", or of parts that prose does not join."""
    if before.endswith("`") or _INSTALL.search(before):
        return True
    return not _is_prose("-", name) and not all(map(source.has_word, name.split("-")))


def _is_prose(mark: str, name: str) -> bool:
    """True for a compound that prose makes: ``read-only``, ``well-tested``, ``and/or``."""
    parts = name.lower().split(mark)
    if mark == "/":
        return all(part in _PROSE_PARTS for part in parts)
    return any(part in _PROSE_PARTS or part.endswith(("ed", "ing", "ly")) for part in parts)
