r"""Checks whether a model made up names or figures: whether those in its text occur in the source of the text.

Those that do not are removed from plans. Figures (numbers, amounts, dates) are compared by value, in any script:
``1,290`` and ``1 290`` are equal, and so are ``14.03.2026`` and ``2026-03-14``. Names (paths, ids, identifiers, flags,
URLs) must occur whole: ``/bin/sh`` is not in ``/usr/bin/sh``. Ordinary words are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise, permutations
from sys import maxsize

from propcache.api import cached_property

from planner.evidence.words import (
    BLANKS,
    DIGITS,
    LETTERS,
    WORD,
    is_year,
    listed_in,
    numbers_beside_words,
    numbers_in,
    numerals_in,
    pairs_in,
    plain_forms,
    plain_text,
    short_number,
    values_in,
    values_of,
    without_numbers,
)
from planner.reading.lazy import lazy_pattern

TOKEN_CHARACTERS = 1_024
"""Length at which a run of name characters (base64, minified code) is cut into pieces, so that the time is limited."""
QUICK_TEXTS, QUICK_CHARACTERS = 16, 20_000
"""Number of first texts, and of first characters in each, that are searched before an index of all texts is built.
Most names occur there, so that no index is needed."""
COUNTABLE = 10
"""Largest whole number that a text may contain without a source: it may count items that the source does not number."""
SHORTEST_PART, LONGEST_PART = 8, 100
"""Smallest and largest length of a part of an identifier that counts as a name: ``HashLength`` in ``HashLength_a``."""
MOST_FOLDERS = 4
"""Largest number of slashes, from the end of a path, at which a folder is tried, so that the time is limited."""
SHORTEST_PIECE = 4
"""Smallest length of a piece of a shortened name (``getUserI…``) that is looked for in the source."""
SHORTEST_HUMPS = 5
"""Smallest length of an identifier that is recognised by capitals inside: ``toJson``; not ``GmbH``, ``kWh``."""
SHORTEST_HASH = 7
"""Length of the shortest commit hash that git prints."""

# Forms of names and figures.

_MARKS = r"./\\:@+%$#~*=&?-"
"""Characters of names other than letters, digits and underscores, as a set in a pattern."""
_SOURCE_TOKEN = lazy_pattern(rf"[{WORD}{_MARKS}]{{1,{TOKEN_CHARACTERS}}}")
"""Token of the source, a run of name characters: ``src/a.py:3``."""
_COMPONENT = lazy_pattern(rf"[{WORD}]+")
"""Component of a token, one word: ``src`` in ``src/a.py``."""
_LETTER_OR_DIGIT = lazy_pattern(r"[^\W_]")
"""Letter or digit in any script."""
_IN_NAME = rf"[{WORD}./\\:@#-]"
"""Character right before digits by which they are part of a name: the ``-`` in ``SUP-221``."""
_GROUP = rf"(?<=\d)(?<!{_IN_NAME}\d)|(?<=\d\d)(?<!{_IN_NAME}\d\d)|(?<=\d\d\d)(?<!{_IN_NAME}\d\d\d)"
"""Place after the one to three digits that begin a number: after the ``1`` in ``$1 290``; not after ``SUP-221``."""
_TOKEN = lazy_pattern(
    rf"(?:[{WORD}{_MARKS}]|(?<=\d)[,'’](?=\d)"
    rf"|(?:{_GROUP})[{BLANKS}](?=\d{{3}}(?![{WORD}]))){{1,{TOKEN_CHARACTERS}}}"
)
"""Token of the checked text, a run of name characters and of marks that group digits: ``src/a.py:3``, ``1 290``."""
_FIGURE = lazy_pattern(
    rf"(?:[A-Z]{{1,2}}\$|[~$%#+=.-]{{0,2}})({DIGITS})(?:%|[{LETTERS}]{{1,4}})?(?:-[{LETTERS}]{{2,30}}){{0,3}}"
)
"""Number with its unit: ``$42``, ``R$42``, ``3.5%``, ``2nd``, ``90-line``, ``14-Tage-Frist``; not ``v2``."""
_NUMBERS = lazy_pattern(rf"(\d{{1,4}}(?:[-./:h]\d{{1,4}}){{1,5}})(?:[{LETTERS}]{{0,4}}|\+\d)")
"""Date, time, range, ratio or version: ``2026-03-14``, ``14:30``, ``02:30+1``, ``5-7``, ``3.11.2``."""
_TWO_NUMBERS = lazy_pattern(r"(\d{1,2})\.(\d{1,2})")
"""Two numbers that may be a time, or a day and month: ``14.30``, ``27.11``, ``3.4``."""
_DATE_IN_DIGITS = lazy_pattern(r"(\d{1,2})\.(\d{1,2})\.|(0\d)\.(\d\d)|(\d\d)[/-](\d\d)")
"""Day and month, or month and day, in a form that is no other number: ``2.1.``, ``02.01``, ``14/01``."""
_TIMESTAMP = lazy_pattern(r"([\d-]{8,10})T([\d:.]{4,16})(?:Z|[+-][\d:]{2,6})?")
"""Date and time in one word: ``2026-03-14T14:30:00Z``."""
_TURN_ID = lazy_pattern(rf"(?<![{WORD}{_MARKS}])t\d+(?:\s{{0,4}}[-–]\s{{0,4}}t?\d+)?(?![{_MARKS}]{{0,8}}[{WORD}])")
"""Id of a turn or a range of turns, which no source has, as plans define them: ``t9``, ``t9-t14``; not ``t9.ts``."""
_TRAILING = ".,:;!?-*=&\\"
"""Marks at the end of a token that do not belong to its name."""
_NO_PATH_BEFORE = lazy_pattern(r"(?:[^\s\"'`(\[{<>]|\w[\"'`])$")
"""Text before a slash which shows that the slash joins two words and begins no path: the ``€`` in ``€/night``; not the
``(`` in ``(/b``."""
_HUMPS = lazy_pattern(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
"""Capital inside a word: ``toJson``, ``HTTPServer``."""
_INFLECTED = lazy_pattern(r"[A-Z]{2,}[a-z]{1,3}")
"""Word in capitals with an ending: ``URLs``, ``POSTed``."""
_FLAG = lazy_pattern(r"--?[a-z][\w-]*|-[A-Z]")
"""Option of a command: ``--no-verify``, ``-x``, ``-X``."""
_HYPHENATED = lazy_pattern(rf"[{LETTERS}]+(?:-[{LETTERS}]+)+")
"""Words joined by hyphens: ``run-time``, ``Top-Liste``."""
_DAYS = lazy_pattern(r"(\d{1,2})\.(?:\d{1,2}\.?)?-(\d{1,2})(?:\.\d{1,2})?")
"""Range of days: ``23.-27``, ``23.-27.11``, ``21.12.-4.1``."""
_CELL = lazy_pattern(r"(?<![\w.])\$?[A-Z]{1,2}\$?(\d{1,5})(?!\w)")
"""Address of a cell in a table, with its row: the ``41`` of ``B41``, ``$B$41``."""
_BRACKETED = lazy_pattern(r"[(\[](-?\d[\d.]*(?:, ?-?\d[\d.]*)+)[)\]]")
"""Numbers in brackets, as of a place: ``(120,340)``, ``[48.2, 16.37]``."""
_WORD_AND_DECIMAL = lazy_pattern(rf"([{LETTERS}]{{2,12}})(\d+\.\d+)")
"""Word right before a number, as in scripts without blanks: ``LPR1.5``; not ``v1.5``."""
_TIMES = lazy_pattern(r"[xX]\d{1,2}")
"""Number of times: ``x4``."""
_SIMPLE_ID = lazy_pattern(r"[A-Za-z]+-?\d+")
"""Letters and a number, compared without regard to capitals: ``COVID-19``, ``W2378156``."""
_NOUN = lazy_pattern(rf"[A-ZÀ-Þ][{LETTERS}]{{3,}}")
"""Noun that a hyphen joins to others: ``Liste`` in ``Top-10-Liste``."""
_RANGE_END = lazy_pattern(r"[A-Za-z]?\d{1,9}")
"""First or last member of a range: ``U1`` and ``U4`` in ``U1-U4``."""
_NUMBERED = lazy_pattern(rf"([{LETTERS}]{{1,4}})\.?(\d{{1,9}})")
"""Beginning of a word, and its number: ``p147``, ``ch3``, ``S.12``."""
_WORD_BEFORE = lazy_pattern(rf"([{LETTERS}][{WORD}]{{0,40}})[^{WORD}]{{1,4}}$")
"""Word before a number, and the marks between them: ``"page": ``, ``page ``."""
_GAP = lazy_pattern(rf"(?<![{WORD}])(?:ID|N|X|id|<\w+>|\{{\w+\}}|:\w+)(?![{WORD}])|\*+")
"""Placeholder in a name: the ``ID`` in ``comments/ID/replies``, the ``*`` in ``hooks_*.go``; not ``idle``."""
_SPLIT = lazy_pattern(r"[:=,#&?+\s]+|@(?=v?\d)|(?<=\w)\.{2,3}(?=\w)|(?<=\w)\.(?=\d+$)(?<!\d\.)|(?<=\d)\*(?=[A-Z])")
"""Marks that join several names into one token: ``KEY=value``, ``B8*C3``, ``a1b2c3d..d4e5f6a``, ``left-pad@1``."""
_FILE = lazy_pattern(r"\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}")
"""File name without a folder: ``token_test.go``."""
_FOREIGN_FILE = lazy_pattern(rf"[^\W\d{LETTERS}_]{{1,2}}\.[a-z][a-z0-9]{{1,4}}(?![{WORD}])")
"""End of a file name in another script: ``告.docx`` in ``报告.docx``."""
_ABBREVIATION = lazy_pattern(rf"(?:[{LETTERS}]{{1,2}}\.)*[{LETTERS}]{{1,2}}")
"""Letters with dots: ``e.g``, ``z.B``."""
_HASH = lazy_pattern(rf"[0-9a-f]{{{SHORTEST_HASH},40}}")
"""Commit hash, whole or abbreviated to its beginning."""
_LABELLED = lazy_pattern(
    r"(?:(?P<exit>e(?<!\we)xit\w{0,5}|c(?<!\wc)ode|s(?<!\ws)tatus|r(?<!\wr)(?:eturned|eturncode|c))"
    r"|(?P<port>p(?<!\wp)orts?|:(?<=\w:))|(?P<issue>(?:i(?<!\wi)ssues?|p(?<!\wp)(?:ull|rs?))\b|[#!])"
    r"|(?P<pid>p(?<!\wp)id))"
    r"[\s:=#/(\"'\\]{0,4}(?:(?:code|status|with|number|is|request|the|of|now)\b[\s:=#]{0,3}){0,2}(\d{1,2})(?!\w)"
)
"""Small number after a word that gives it a meaning, in lower case: ``exit code 9``, ``"exitcode": 9``, ``pr #7``. The
pattern tests the text before a word only after the word's first letter, as a search for a letter is the fastest."""
_ASSIGNED = lazy_pattern(r"([A-Za-z_]\w*)=([\w.+-]+)")
"""Assignment of a value to a name: ``DEBUG=1``; not ``--level=1``, ``a==b``."""
_INSTALLED = lazy_pattern(
    r"\b(?:npm|pnpm|yarn|bun|pip3?|uv|poetry|cargo|brew|apt(?:-get)?|gem|go|conda|composer)\s{1,4}(?:pip\s{1,4})?"
    r"(?:install|uninstall|i|add|get|remove)\s{1,4}(?:-\S{1,40}\s{1,4}){0,3}"
    r"(?!(?:the|an?|all|its?|them|these|this|that|and|or|with|from|for|in|to)\b)([a-z][\w.-]{1,80})"
)
"""Name of a package that a command installs or removes: ``pip install -U requests``; not ``pip install the tests``."""
LOOK_UPS = ("restore_context", "search_context")
"""Names of this package's tools, which a text may mention even if the conversation does not."""


def _numbers_in(name: str) -> str:
    """Return the numbers and marks of a date, time, range or version: ``14:30`` for ``14:30h``; "" for other names."""
    numbers = _NUMBERS.fullmatch(name)
    return numbers[1] if numbers and not (numbers[1].replace(".", "").isdigit() and values_of(numbers[1])) else ""


class NameIndex:
    """Index of the names and figures in some texts, the *source*: answers whether a name or figure occurs there."""

    def __init__(self, texts: Sequence[str], *, parts: bool = False) -> None:
        """Store `texts`, to be read at the first question. With `parts`, parts of identifiers also count as names."""
        self._texts = texts
        self.parts = parts

    def _forms(self) -> Iterator[str]:
        return chain.from_iterable(map(plain_forms, self._texts))

    @cached_property
    def _tokens(self) -> dict[str, list[str]]:
        """Tokens of the source by each of their words in lower case: ``src/a.py`` by ``src``, ``a`` and ``py``."""
        tokens = dict.fromkeys(token for form in self._forms() for token in _SOURCE_TOKEN.findall(form))
        by_component: dict[str, list[str]] = {}
        for token in tokens:
            for component in {word.casefold() for word in _COMPONENT.findall(token)}:
                by_component.setdefault(component, []).append(token)
        return by_component

    @cached_property
    def _hashes(self) -> frozenset[str]:
        """Beginnings of all commit hashes in the source texts, in all lengths to which git may shorten them."""
        hashes = (component for component in self._tokens if _HASH.fullmatch(component) and not component.isdigit())
        return frozenset(name[:length] for name in hashes for length in range(SHORTEST_HASH, len(name)))

    @cached_property
    def _figures(self) -> frozenset[str]:
        """Values of all numbers in the source, as texts, with those in addresses of cells and in Chinese numerals."""
        readers = values_in, _CELL.findall, numerals_in, _values_in_brackets
        figures: set[str] = set()
        for form in self._forms():
            for read in readers:
                figures.update(read(form))
        return frozenset(figures)

    @cached_property
    def _pairs(self) -> frozenset[str]:
        """Pairs of neighbouring numbers in the source, such as ``14:30`` or ``14~3``, in the forms of `pairs_in`."""
        return frozenset(chain.from_iterable(map(pairs_in, self._forms())))

    @cached_property
    def _days(self) -> frozenset[str]:
        """Numbers up to 31 in the source beside a word that may name a month: 14 for ``14. Januar``. A word that is
        beside a larger number, other than a year, names no month: ``rows`` for ``14 rows, 300 rows``."""
        numbers_by_word: dict[str, set[str]] = {}
        for number, word in chain.from_iterable(map(numbers_beside_words, self._forms())):
            numbers_by_word.setdefault(word, set()).add(number)
        days_of_words = ({number for number in numbers if not is_year(number)} for numbers in numbers_by_word.values())
        return frozenset(day for days in days_of_words if all(int(day) <= 31 for day in days) for day in days)

    @cached_property
    def _labelled(self) -> dict[str, set[int]]:
        """Small numbers of the source by the kind of word before them: 3 by ``port`` for ``listens on port 3``."""
        numbers: dict[str, set[int]] = {}
        for kind, number, _ in chain.from_iterable(map(_labelled_numbers, self._forms())):
            numbers.setdefault(kind, set()).add(number)
        return numbers

    def holds(self, name: str) -> bool:
        """Return True if the source contains `name` as a whole, or, if it is a figure, a figure of the same value."""
        name = plain_text(name).removeprefix("./")
        if numbers := _numbers_in(name):
            return self._holds_whole(name) or self.holds_numbers(numbers)
        if figure := _FIGURE.fullmatch(name):
            is_part = (
                len(name) >= SHORTEST_PIECE
                and name.isdecimal()
                and any(
                    component.endswith(f"_{name}")
                    for component in self._tokens  # ``credit_card_2929732``
                )
            )
            return is_part or self.holds_figure(figure[1]) or (name[-1].isalpha() and self._holds_whole(name))
        return self._holds_whole(name)

    def _holds_whole(self, name: str) -> bool:
        """Return True if the source contains `name` as a whole name, or a hash that begins with it."""
        components = {*map(str.casefold, _COMPONENT.findall(name))}
        for text in self._texts[:QUICK_TEXTS] if components else ():
            if _occurs(name, text, QUICK_CHARACTERS):
                return True
        if not components or name in self._hashes:
            return True
        # a token that contains the whole name has all its components: search only those with the rarest component
        tokens = min((self._tokens.get(component, []) for component in components), key=len)
        if name.isalpha() or _SIMPLE_ID.fullmatch(name):
            name, tokens = name.casefold(), [token.casefold() for token in tokens]
        return any(_occurs(name, token) or _occurs(name, _path_in_url(token)) for token in tokens)

    def holds_figure(self, digits: str) -> bool:
        """Return True if the source contains the number `digits`, in any notation. The source must have a number with
        the same value; or, as `digits` may be a list, all of its numbers; or, as they may be a time or a day and month,
        the same one."""
        values, pair = values_of(digits), _TWO_NUMBERS.fullmatch(digits)
        listed = listed_in(digits, values)
        if not self._figures.isdisjoint(values) or (listed and self._figures.issuperset(listed)):
            return True
        if digits in self._pairs:  # a place on a screen: ``504,255``
            return True
        return pair is not None and self._holds_time_or_day(*map(short_number, pair.groups()))

    def _holds_time_or_day(self, first: str, second: str) -> bool:
        """Return True if the source has the time with this hour and minute, or a date with this day and month."""
        if f"{first}:{second}" in self._pairs:
            return True
        is_day = int(first) <= 31 and 1 <= int(second) <= 12
        return is_day and (self._in_a_row(first, second) or self._in_a_row(second, first))

    def holds_day(self, token: str) -> bool:
        """Return True if `token` is a day and month in digits, and the source may have this day with the month's name.
        The name itself is not compared."""
        if not (date := _DATE_IN_DIGITS.fullmatch(token)):
            return False
        first, second = filter(None, date.groups())
        orders = ((first, second), (second, first)) if not token.count(".") else ((first, second),)
        return any(short_number(day) in self._days and 1 <= int(month) <= 12 for day, month in orders)

    def holds_numbers(self, joined: str) -> bool:
        """Return True if the source has the numbers in `joined`, a date, time, range or version, next to each other. A
        date may have another order there."""
        numbers = numbers_in(joined)
        year = next(filter(is_year, numbers), None)
        if year is not None and len(numbers) == 3:
            return self._holds_date(year, *(number for number in numbers if number is not year))
        return self._in_a_row(*numbers) or (len(numbers) == 2 and self._in_a_row(*numbers[::-1]))

    def _in_a_row(self, *numbers: str) -> bool:
        """Return True if the source has each of `numbers` directly before the next one, as in ``2026-03-14``."""
        return all(f"{number}~{next_number}" in self._pairs for number, next_number in pairwise(numbers))

    def _holds_date(self, year: str, first: str, second: str) -> bool:
        """Return True if the source has this date, in any order, with the month in digits or letters. `first` and
        `second`: day and month, or month and day."""
        orders = [(year, *order) for order in permutations((first, second))]
        orders += [order[::-1] for order in orders] + [(first, second, year), (second, first, year)]
        if any(self._in_a_row(*order) for order in orders):
            return True
        days = [day for day, month in permutations((first, second)) if int(month) <= 12]
        return any(pair in self._pairs for day in days for pair in (f"{day}@{year}", f"{year}@{day}"))

    def missing_labelled(self, text: str) -> list[str]:
        """Return the small numbers in `text` with a word before them, such as ``port 3``, that the source lacks. If the
        source has numbers after words of this kind, it must have this number after one, too. If it has none, it may
        have the number anywhere."""
        missing: list[str] = []
        for kind, number, words in _labelled_numbers(text):
            numbers_of_kind = self._labelled.get(kind)
            is_in_source = number in numbers_of_kind if numbers_of_kind else str(number) in self._figures
            if words[0].isalpha() and not is_in_source:
                missing.append(words)
        return missing

    def assigns(self, name: str, value: str) -> bool:
        """Return True if the source assigns `value`, or a path that ends with it, to `name`: ``DEBUG=1``."""
        between = r"[\"'\\]{0,2}[\s:=]{1,3}[\"'\\]{0,2}(?:/[^\s\"'\\]{0,300}/)?"
        pair = re.compile(rf"(?<!\w){re.escape(name)}{between}{re.escape(value)}(?!\w)")
        return any(pair.search(text) for text in self._texts)

    def numbers(self, beginning: str, digits: str) -> bool:
        """Return True if the source has the number `digits` directly after a word with this `beginning`, which may be
        shortened: for ``p147``, 147 after ``page``."""
        number = re.compile(rf"(?<![\w.]){digits}(?!\w|[.,]\d)")
        for text in self._texts:
            for match in number.finditer(text):
                word = _WORD_BEFORE.search(text[max(0, match.start() - 48) : match.start()])
                if word and word[1].casefold().startswith(beginning.casefold()):
                    return True
        return False

    def is_folder(self, name: str) -> bool:
        """Return True if the source uses `name` as a folder: a slash follows it there."""
        return any(f"{name}/" in token for token in self._tokens.get(name.casefold(), ()))

    def holds_pieces(self, pieces: Sequence[str]) -> bool:
        """Return True if a name in the source contains all `pieces` of a shortened name in this order."""
        texts = (text for text in self._texts if all(piece in text for piece in pieces))
        return any(_in_order(pieces, match[0]) for text in texts for match in _SOURCE_TOKEN.finditer(text))

    def holds_part(self, name: str) -> bool:
        """Return True if `name` is a part of an identifier in the source, from an underscore or capital to the next:
        ``HashLength`` in ``get_HashLength_a``."""
        name = name.strip("_")
        if not SHORTEST_PART <= len(name) <= LONGEST_PART or not name.isidentifier():
            return False
        hump = "|(?<=[a-z0-9])" if name[0].isupper() else ""
        part = re.compile(rf"(?:\b|_{hump}){re.escape(name)}(?=\b|_|[A-Z])")
        return any(name in text and part.search(text) for text in self._texts)

    def joins(self, path: str) -> bool:
        """Return True if the source names a folder of `path` and the rest of it, each by itself: ``link.txt in
        /workspace``. They must be in the same line, or in the same turn if it is the only source."""
        is_turn = len(self._texts) <= QUICK_TEXTS
        for at in [match.start() for match in re.finditer("/", path) if match.start()][-MOST_FOLDERS:]:
            names = path[:at], path[at + 1 :]
            is_whole_path = path[0] in "/~."
            whole = [
                re.compile(rf"(?<![{marks}{WORD}.\\~-]){re.escape(name)}/?(?![{WORD}/])")
                for name, marks in zip(names, ("/" if is_whole_path else "", "/"), strict=True)
            ]
            texts = ["\n".join(self._texts)] if is_turn else self._texts
            places = [text for text in texts if all(name in text for name in names)]
            places = places if is_turn else [line for text in places for line in text.splitlines()]
            if any(all(pattern.search(place) for pattern in whole) for place in places):
                return True
        return False

    def contains(self, text: str) -> bool:
        """Return True if the source contains `text` anywhere, even within a word."""
        return any(text in form for form in self._forms())


def _in_order(pieces: Sequence[str], token: str) -> bool:
    """Return True if `token` contains all `pieces`, one after the other."""
    at = 0
    for piece in pieces:
        position = token.find(piece, at)
        if position < 0:
            return False
        at = position + len(piece)
    return True


def _labelled_numbers(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield each small number after a word, the kind of word first: ``("port", 3, "Port 3")``."""
    low = text.lower()
    searched = low if len(low) == len(text) else text  # in lower case, İ becomes two characters and shifts the others
    for match in _LABELLED.finditer(searched):
        kind = next(kind for kind, word in match.groupdict().items() if word)
        yield kind, int(match[match.lastindex or 0]), text[slice(*match.span())]


def _values_in_brackets(text: str) -> Iterator[str]:
    """Yield the values of the single numbers in brackets: 120 and 340 for ``(120,340)``."""
    for numbers in _BRACKETED.findall(text):
        yield from chain.from_iterable(values_of(number) for number in re.findall(r"\d[\d.]*", numbers))


def _path_in_url(token: str) -> str:
    """Return the path of a URL: ``/submit`` of ``http://localhost:8000/submit``; "" if `token` is no URL."""
    _, slash, path = token.partition("://")[2].partition("/")
    return slash + path


def _occurs(name: str, text: str, stop: int = maxsize) -> bool:
    """Return True if `text` contains `name` as a whole before the index `stop`: not ``/a`` in ``b/a``."""
    at = text.find(name, 0, stop)
    while at >= 0:
        before, after = _boundaries(name)
        if before.match(text, at) and after.match(text, at + len(name), stop):
            return True
        at = text.find(name, at + 1, stop)
    return False


@lru_cache(maxsize=4_096)
def _boundaries(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns that must match where `name` begins and ends, so that it is no part of a longer name."""
    before = after = ""
    if name[0] in _JOINING or _COMPONENT.match(name[0]):
        before = rf"(?<![{WORD}{_JOINING.get(name[0], '')}])"
    if _COMPONENT.match(name[-1]):
        after = rf"(?![{WORD}])"
    if name[0].isdigit() and name[-1].isdigit():
        before, after = rf"{before}(?<!\d[.,])", rf"{after}(?!,\d)"
    if _HYPHENATED.fullmatch(name) or name[0] == "-":
        before, after = f"{before}(?<!-)", rf"{after}(?!-[{WORD}])"
    return re.compile(before), re.compile(after)


_JOINING = dict.fromkeys("/\\~", r"/\\~.-") | {".": "~.-", "-": "~.-"}
"""Characters, except letters and digits, that make a name a part of a longer one if they precede it, by the first
character of the name: ``/a`` is a part of ``./a``."""


def beginning(text: str, most: int) -> str:
    """Return the first `most` characters of `text`, with ``…`` if it is longer. A name that would be cut is left
    out: ``"mail": "…``, not ``"mail": "ann@exam…``. If it is the first word, it stays whole, up to twice that size."""
    if len(text) <= most:
        return text
    cut = next((match for match in _TOKEN.finditer(text, 0, 2 * most + 1) if match.end() > most), None)
    end = most
    if cut is not None and cut.start() < most and _COMPONENT.search(cut[0]):
        if _LETTER_OR_DIGIT.search(text, 0, cut.start()):
            end = cut.start()
        elif cut.end() <= 2 * most:
            end = cut.end()
    return text[:end].rstrip() + ("…" if end < len(text) else "")


_NOTHING = NameIndex(())


def invented(text: str, source: NameIndex | None) -> list[str]:
    r"""Return the names and figures that a model made up in `text`: those that `source` lacks, each once; all if it is
    None. Ids of turns are skipped. Escapes of JSON are read in the way that leaves the fewest: ``\\d`` may be ``\d`` in
    the source, and ``tests\nsrc`` may be two names if the source contains it like that."""
    source = source or _NOTHING
    text = plain_text(_TURN_ID.sub(" ", text))
    missing = _missing_in(text, source)
    if missing and "\\" in text:
        decoded = _TOKEN.sub(lambda match: _decoded(match[0], source), text)
        others = (_missing_in(other, source) for other in (decoded, text.replace("\\\\", "\\")))
        missing = min(missing, *others, key=len)
    return missing


def _decoded(token: str, source: NameIndex) -> str:
    """Return `token` with its escapes of JSON decoded if the source contains it as it is; else `token` itself."""
    *_, decoded = plain_forms(token)
    return decoded if decoded != token and source.contains(token) else token


def _missing_in(text: str, source: NameIndex) -> list[str]:
    """Return the names and figures in `text` that `source` does not contain, each once."""
    missing: dict[str, None] = {}
    for match in _TOKEN.finditer(text):
        token, before = match.group(), text[max(0, match.start() - 2) : match.start()]
        # such a mark next to the token shows that it is only a piece of a name: ``getUserI…``, ``{id}/replies``
        if text[match.end() : match.end() + 1] in ("…", "{", "<"):
            token = f"{token}*"
        if before[-1:] in ("…", "}", ">"):
            token = f"*{token}"
        missing.update(dict.fromkeys(_missing(token, before, source)))
    missing.update(dict.fromkeys(source.missing_labelled(text)))
    packages = (match[1].rstrip(_TRAILING) for match in _INSTALLED.finditer(text))
    missing.update(dict.fromkeys(name for name in packages if not source.holds(name)))
    # these are only ends of names, so they may be anywhere in the source, even within a word (`contains`)
    missing.update(dict.fromkeys(name for name in _FOREIGN_FILE.findall(text) if not source.contains(name)))
    return list(missing)


def _missing(token: str, before: str, source: NameIndex, *, counts: bool = True) -> Iterator[str]:
    """Yield the names and figures in `token` that the source lacks. `before`: the two characters before it in the text:
    after ``€``, ``/night`` is no path; `counts`: True if a whole number up to `COUNTABLE` needs no source."""
    token = token.lstrip("./") if token.startswith("...") else token
    token = token.strip("-") if token[:1] == token[-1:] == "-" else token  # ``-E-`` in ``Hall -E- Attic`` is no flag
    name = token.rstrip(_TRAILING).lstrip("*=&+?:") or token
    if name[:1] == "/" and name[1:].isalnum() and _NO_PATH_BEFORE.search(before):
        name = name[1:]
    if numbers := _numbers_in(name):
        if not source.holds(name) and not _is_range(numbers, source) and not source.holds_day(name):
            yield name
    elif figure := _FIGURE.fullmatch(name):
        if not (counts and _is_count(figure[1])) and not source.holds(name) and not source.holds_day(token):
            yield name
    elif _needs_source(name, before) and not source.holds(name) and not _is_open_name(token, source):
        yield from _missing_name(name, source)


def _is_count(digits: str) -> bool:
    """Return True for a whole number up to `COUNTABLE`, which may count items and needs no source."""
    return digits.isdecimal() and int(digits[:6]) <= COUNTABLE


def _is_range(joined: str, source: NameIndex) -> bool:
    """Return True for a range or ratio, but no date, both ends of which the source has: ``946-968``, ``7/11``."""
    ends = re.split("[-/]", joined)
    if len(ends) == 2 and all(":" in end for end in ends):
        return all(map(source.holds_numbers, ends))
    is_date = any(end[:1] == "0" and len(end) > 1 for end in ends) or (len(ends) == 3 and any(map(is_year, ends)))
    return not is_date and all(_is_count(end) or source.holds_figure(end) for end in ends)


def _missing_name(name: str, source: NameIndex) -> Iterator[str]:
    """Yield `name`, which the source lacks as a whole; if it joins several names, only those that the source lacks."""
    if assigned := _ASSIGNED.fullmatch(name):
        if not source.assigns(assigned[1], assigned[2]):
            yield name
    elif source.parts and (source.holds_part(name) or _is_qualified(name, source)):
        return  # a part of an identifier, or names joined by dots
    elif "://" in name:
        address, _, last = name.rpartition("/")
        if not (source.holds(address) and source.holds(last)):  # the URL may join an address and a path of the source
            yield name
    elif "/" in name and (source.holds(name.rstrip("/")) or _is_choice(name, source) or source.joins(name)):
        return  # ``list/delete``, or a folder and a file that the source names apart
    elif days := _DAYS.fullmatch(name):
        yield from (day for day in days.groups() if not source.holds_figure(day))
    elif (numbered := _NUMBERED.fullmatch(name)) and source.numbers(*numbered.groups()):
        return  # ``p147`` for ``page 147``
    elif (glued := _WORD_AND_DECIMAL.fullmatch(name)) and source.holds(glued[1]):  # ``LPR1.5``
        yield from _missing(glued[2], "", source)
    elif timestamp := _TIMESTAMP.fullmatch(name):
        yield from _missing(timestamp[1], "", source)
        yield from _missing(timestamp[2], "", source)
    else:  # a range, words joined by hyphens, or names joined by other marks: each part is checked
        ends = _ends_of_range(name)
        joined = ends or (name.split("-") if _is_compound(name) else [part for part in _SPLIT.split(name) if part])
        if len(joined) > 1:
            yield from (lacked for part in joined for lacked in _missing(part, "", source, counts=False))
        else:
            yield name


def _ends_of_range(name: str) -> list[str]:
    """Return the first and the last name of a range of numbered names: ``sent_140`` and ``sent_148`` for
    ``sent_140-sent_148`` or ``sent_140-148``; empty if `name` is no range."""
    parts = name.split("-")
    half = len(parts) // 2
    first, last = "-".join(parts[:half]), "-".join(parts[half:])
    if any(map(str.isdecimal, first)) and without_numbers(first) == without_numbers(last):
        return [first, last]
    first, _, end = name.rpartition("-")
    stem, first_end = first[: -len(end)], first[-len(end) :]
    is_short = any(map(str.isdecimal, end)) and without_numbers(first_end) == without_numbers(end)
    return [first, stem + end] if is_short and stem and not (stem[-1].isdecimal() and end[0].isdecimal()) else []


def _is_compound(name: str) -> bool:
    """Return True if hyphens join parts to be checked one by one: ``Top-10-Liste``, ``U1-U4``, ``a.pdf-c.pdf``."""
    parts = name.split("-")
    if len(parts) == 2 and all(map(_FILE.fullmatch, parts)):
        return True
    is_range = all(_RANGE_END.fullmatch(part) or _FIGURE.fullmatch(part) for part in parts)
    return is_range or any(map(_NOUN.fullmatch, parts))


def _is_qualified(name: str, source: NameIndex) -> bool:
    """Return True if dots join names of the source: ``Session.refresh``; not ``py.refresh``, as ``py`` is too short."""
    names = name.split(".")
    return len(names) > 1 and all(
        len(part) >= SHORTEST_PIECE and part.isidentifier() and source.holds(part) for part in names
    )


def _is_open_name(token: str, source: NameIndex) -> bool:
    """Return True if `token` has placeholders (``getUserI*``, ``run/ID``), and a name in the source has its pieces."""
    token = token.rstrip(".,:;!?-")
    pieces = [piece for piece in _GAP.split(token) if len(piece) >= SHORTEST_PIECE]
    return _GAP.search(token) is not None and bool(pieces) and source.holds_pieces(pieces)


def _needs_source(name: str, before: str) -> bool:
    """Return True if `name` must be in the source, as it is no word that a model may write freely, such as ``run-time``
    or ``URLs``. `before`: two characters before it."""
    if _COMPONENT.search(name) is None or name in LOOK_UPS or _INFLECTED.fullmatch(name) or _TIMES.fullmatch(name):
        return False
    if any(character in "0123456789/\\" for character in name) or name[0] in "~$":
        return True  # a figure or a path
    if _FLAG.fullmatch(name):
        return name[1] == "-" or not before[-1:].isalnum()  # no flag in ``a-x``
    if _HYPHENATED.fullmatch(name):
        return before.endswith("`")  # words with hyphens are names only if they are marked as code
    inner = name.strip("_.@#:")
    if any(mark in inner for mark in ".:=@"):
        return not _ABBREVIATION.fullmatch(inner)  # ``e.g``
    return "_" in inner or (len(inner) >= SHORTEST_HUMPS and _HUMPS.search(inner) is not None)


def _is_choice(name: str, source: NameIndex) -> bool:
    """Return True if slashes join alternatives that the source has: ``list/delete``, ``+26/-7``; not a path:
    ``a.py/b``, ``/etc``, or a name that begins with a folder of the source."""
    parts = name.split("/")
    if not all(parts) or any(part[0] in "~$." for part in parts):
        return False
    if source.is_folder(parts[0]) and not _CELL.fullmatch(parts[0]):  # ``B2/C3`` divides cells
        return False
    if any(map(_FILE.fullmatch, parts)) and not all(map(_FILE.fullmatch, parts)):
        return False
    return not any(missing for part in parts for missing in _missing(part, "", source))
