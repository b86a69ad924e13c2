"""Finds the words, figures and names in a text of any script, for counting and comparing.

A word is a run of letters, or a number. In scripts without blanks between words, such as Chinese, Japanese and Thai,
each pair of neighbouring characters counts as a word, as in search engines. Figures are numbers, amounts, dates and
times. They are compared by value: ``1,290``, ``1.290``, ``1 290`` and ``١٬٢٩٠`` are equal.

Specifics are names that an agent cannot guess if they are removed: paths, URLs, mail addresses, identifiers, ids and
numbers of three digits or more. Nothing here decides which of them matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice

from planner.reading.lazy import lazy_pattern

LETTERS = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
"""Letters of the Latin script, as a set in a pattern."""
WORD = f"{LETTERS}0-9_"
"""Characters of names, as a set in a pattern. Letters of other scripts are not in it, as they may be next to a name or
figure without a blank: ``日活1.36亿``."""
BLANKS = " \u00a0\u2009\u202f"
"""Blanks that may group digits: ``12 500``."""

DATE_GAP = 4
"""Largest number of characters between two numbers of a date or time: ``14時30``, ``14. 3. 2026``."""
_NOT_PLAIN = lazy_pattern(r"[！-～٪٫٬]|(?![0-9])\d")
"""Character that `plain_text` replaces by ASCII: a full-width form (``％``), a mark or digit of another script."""
_ARABIC_MARKS = {"٪": "%", "٫": ".", "٬": ","}
_ESCAPE = lazy_pattern(r"\\(?:u([0-9a-fA-F]{4})|[nrt])")
"""Escape in a string of JSON: ``\\n``, ``\\u65e5``."""

# atomic groups, since up to Python 3.11.4 possessive ones keep text of a repetition that fails in its middle
_MORE_DIGITS = rf"(?>(?:(?:[.,'’]|[{BLANKS}](?=\d{{3}}(?![{WORD}])))\d++)*)"
DIGITS = rf"\d++{_MORE_DIGITS}"
"""Pattern of a number with the marks between its digits: ``1,290``, ``3.14``, ``12 500``."""
_NUMBER = lazy_pattern(
    rf"(\d(?:(?<![{WORD}]\d)|(?<=\d[hT]\d))(?<!\d\.\d)\d*+{_MORE_DIGITS})(?=[{LETTERS}]{{0,4}}(?![{LETTERS}_]))"
)
"""Number in a text, with or without a unit: ``42ms``, the ``30`` of ``14h30``; not in ``v3``, ``a1b2c3d``. What
precedes it is tested after its first digit, as a search for a digit takes a third of the time."""
_DIGIT_RUN = lazy_pattern(r"\d+")
_NEIGHBOURS = lazy_pattern(r"(?<!\d)(\d{1,4})(?=(\D{1,20})(\d{1,4})(?!\d))")
"""Number that is followed by a short text and another number: the ``14`` in ``14:30``. The match ends before that text,
because the other number may begin a pair, too."""
_MONTH = lazy_pattern(r"[^\W\d_]{2}|[^\W\d_][\u0e34-\u0e3a]?\W?[^\W\d_]")
"""Letters that may name a month: ``März``, ``ก.พ.``, ``มี.ค.`` (its vowel sign is no letter); not ``年``."""
_DAY_AND_MONTH = lazy_pattern(r"(\d\d?)\.(0?[1-9]|1[0-2])\.(?!\d)")
"""Day and month without a year: ``14.03.``."""
_BESIDE_WORD = lazy_pattern(
    r"(?<![\w.,:/-])(\d{1,4})(?:\.|[^\W\d_]{1,2})?(?:[ \u00a0][^\W\d_]{2})?[ \u00a0]([^\W\d_]{3,20})"
    r"|(?<![^\W\d_])([^\W\d_]{3,20})\.?[ \u00a0](\d{1,4})(?![.,:/-]?\d)"
)
"""Number before or after a word: ``14. Januar``, ``14 de enero``, ``January 14th``; not ``1.14 rows``."""


def plain_text(text: str) -> str:
    """Return `text` with digits of any script, full-width characters and Arabic marks replaced by ASCII, so that equal
    figures become equal texts."""
    if text.isascii():
        return text
    return _NOT_PLAIN.sub(lambda match: _ascii(match[0]), unicodedata.normalize("NFC", text))


def _ascii(character: str) -> str:
    """Return the ASCII form of a character that `_NOT_PLAIN` matches: ``5`` for ``５`` and ``٥``."""
    if "！" <= character <= "～":
        return chr(ord(character) - 0xFEE0)
    return _ARABIC_MARKS.get(character) or str(unicodedata.decimal(character))


def plain_forms(text: str) -> Iterator[str]:
    """Yield `text` with digits and marks in ASCII; and if it has escapes of JSON, also with these decoded, as the text
    may come from inside a JSON string."""
    yield plain_text(text)
    if "\\" in text:
        yield plain_text(_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text))


def short_number(number: str) -> str:
    """Return a number of at most two digits without zeros at its beginning: ``3`` for ``03``, as dates are written both
    ways. Longer numbers, which may be ids, stay unchanged."""
    return number.lstrip("0") or "0" if len(number) < 3 else number


def is_year(number: str) -> bool:
    """Return True if `number` may be a year: it is from 1900 to 2099."""
    return len(number) == 4 and number[:2] in ("19", "20")


def numbers_in(digits: str) -> list[str]:
    """Return the whole numbers in `digits`, a date, time or range, whatever separates them: 14 and 3 for ``14.03.``."""
    return [*map(short_number, _DIGIT_RUN.findall(digits))]


def pairs_in(text: str) -> Iterator[str]:
    """Yield each pair of neighbouring numbers as a key, so that dates and times in different notations can be compared.
    The key is ``14~3`` for numbers with at most `DATE_GAP` characters between them, and ``14:30`` for a time. It is
    ``14@2026`` for a day and a year with a month's name or ``, `` between them, and ``504,255`` for two numbers of at
    least two digits, as of a place on a screen. A pair may have several keys."""
    for first_digits, between, second_digits in _NEIGHBOURS.findall(text):
        first, second = short_number(first_digits), short_number(second_digits)
        if len(between) <= DATE_GAP:
            yield f"{first}~{second}"
        if between in (":", "h"):
            yield f"{first}:{second}"
        if between == ", " or _MONTH.search(between):
            yield f"{first}@{second}"
        if len(first) > 1 and len(second) > 1:
            yield f"{first},{second}"


def numbers_beside_words(text: str) -> Iterator[tuple[str, str]]:
    """Yield each number in `text` before or after a word, with this word, which may name a month."""
    for number_before, word_after, word_before, number_after in _BESIDE_WORD.findall(text):
        yield short_number(number_before or number_after), (word_after or word_before).casefold()


def values_of(digits: str) -> set[str]:
    """Return the values that the number `digits` may have, as texts: 1290 and 1.29 for ``1,290``, as a comma separates
    thousands or decimals; none for ``3.11.2``."""
    groups, marks = re.split(r"\D", digits), re.findall(r"\D", digits)
    if not marks:
        return {short_number(digits)}
    values = {"".join(groups)} if len(set(marks)) == 1 and _is_grouped(groups) else set[str]()
    has_decimals = marks[-1] in ".," and marks[-1] not in marks[:-1] and len(set(marks)) <= 2
    if has_decimals and (len(marks) == 1 or _is_grouped(groups[:-1])):
        whole = "".join(groups[:-1]).lstrip("0") or "0"
        values.add(f"{whole}.{groups[-1]}".rstrip("0").rstrip("."))
    return values


def _is_grouped(groups: Sequence[str]) -> bool:
    """Return True if the digits between the marks are thousands (``1,290``), or grouped as in India (``1,50,000``)."""
    first, *middle, last = map(len, groups)
    return 0 < first <= 3 and last == 3 and set(middle) in (set(), {2}, {3})


def listed_in(digits: str, values: set[str]) -> list[str]:
    """Return the numbers in `digits` if they may be several, as in ``12,15,18``, ``12.5,48.25`` or ``14.03.2026``; an
    empty list for a single number such as ``1.36`` or ``1,290``. `values`: values that `digits` may have as one
    number."""
    if values and " " not in digits and ("," not in digits or any(map(str.isdigit, values))):
        return []
    parts = [values_of(part) for part in re.split("[, ]", digits)]
    if len(parts) > 1 and all(parts):
        return [min(part, key=len) for part in parts]
    return [*map(short_number, _DIGIT_RUN.findall(digits))]


def values_in(text: str) -> set[str]:
    """Return the values of all numbers in `text`, so that numbers in different notations can be compared. Digits and
    marks in `text` must be ASCII (`plain_text`)."""
    values: set[str] = set()
    for digits in set(_NUMBER.findall(text)):
        of_number = values_of(digits)
        values.update(of_number, listed_in(digits, of_number))
    for day in _DAY_AND_MONTH.finditer(text):
        values.update(numbers_in(day[0]))
    return values


_NUMERALS = lazy_pattern("[〇零一二两兩三四五六七八九十百千万萬亿億]{1,16}")
"""Number in Chinese numerals: ``四百六十五``."""


def numerals_in(text: str) -> Iterator[str]:
    """Yield the value of each number in Chinese numerals: 465 for ``四百六十五``, 2026 for ``二〇二六``."""
    for numerals in _NUMERALS.findall(text):
        values = [2 if sign in "两兩" else int(unicodedata.numeric(sign)) for sign in numerals]
        if max(values) < 10:  # digits without tens and hundreds
            yield "".join(map(str, values))
            continue
        total = below_ten_thousand = digit = 0
        for value in values:
            if value < 10:
                digit = value
            elif value < 10_000:
                below_ten_thousand += max(1, digit) * value
                digit = 0
            else:
                total += max(1, below_ten_thousand + digit) * value
                below_ten_thousand = digit = 0
        yield str(total + below_ten_thousand + digit)


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_WORD = lazy_pattern(rf"[{_UNSPACED}]+|\d+|[^\W\d_{_UNSPACED}]+")
"""Run of characters without blanks, a number, or a run of letters: ``日活``, ``1``, ``refund``."""
_FIGURE = lazy_pattern(r"(?<![\d.,])\d{2,}(?:[.,:/-]\d+)*|\d(?:[.,:/-]\d+)+")
"""A number of two digits and more, an amount, a date or a time: ``42``, ``1.240,50``, ``2026-03-14``, ``9:30``."""
_ASCII_WORD = lazy_pattern(r"[a-z]{2,}|[0-9]{2,}")
_IS_UNSPACED = lazy_pattern(rf"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of `text` that have at least two characters, in order and in lower case. In scripts without
    blanks between words, they are the pairs of neighbouring characters."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = text.casefold()
    runs = _WORD.findall(text)
    if _IS_UNSPACED.search(text):
        return list(chain.from_iterable(map(_pieces, runs)))
    return [run for run in runs if len(run) > 1]


def without_figures(text: str) -> str:
    """Return `text` with each figure (number, amount, date, time) replaced by 0, so that lines that differ only in
    figures become equal."""
    return _FIGURE.sub("0", text)


def without_numbers(text: str) -> str:
    """Return `text` with each run of digits replaced by 0, so that names and lines of one form become equal."""
    return _DIGIT_RUN.sub("0", text)


def _pieces(run: str) -> list[str]:
    """Return the words in `run`, a match of `_WORD`: in a script without blanks pairs of neighbouring characters, else
    `run` itself; none if it is a single character."""
    if not _IS_UNSPACED.match(run):
        return [run] if len(run) > 1 else []
    return [run[at : at + 2] for at in range(len(run) - 1)]


def figures_of(text: str) -> list[str]:
    """Return the figures in `text`, in order: numbers of two digits and more, amounts, dates and times."""
    return _FIGURE.findall(text)


NAME_CHARACTERS = 256
"""Largest length of a name other than a URL. A longer run of name characters, such as base64, is read in pieces, so
that the time grows only in proportion to its length."""

URL_CHARACTERS = 2_048
"""Largest length of a URL; a longer one is read in pieces."""

_URL = rf"https?://[^\s\"'<>`|\\^{{}}\[\]()]{{1,{URL_CHARACTERS}}}"
_PATH = (
    r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\](?=[\w.@-]))?(?>(?:[\w.@+%$-]{1,99}+[/\\])+)[\w.@+%$*-]*"
    r"|(?:[/~]|[A-Za-z]:[/\\])\w[\w.-]+"
)
"""Path: ``src/app/main.py``, ``C:\\app``; not ``/`` alone. Each part ends at a slash, for linear time."""
_MAIL_ADDRESS = rf"[{WORD}+-][{WORD}.+-]{{0,63}}+@(?:[{WORD}-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,20}}(?![{WORD}@-])"
"""Mail address: ``ada.lovelace@example.org``; not ``react@18.2.0``."""
_FILE = r"\b\w[\w-]{0,99}+(?:\.[\w-]{1,99}){0,7}\.[A-Za-z][A-Za-z0-9]{0,5}\b"
"""File name without a folder: ``package.json``, ``a.test.ts``; not ``3.14``."""
_JOINED_WORD = r"[A-Za-z_$@#][\w$]*+(?>(?:(?:[.:-]|::)\w++)*)|\d\w*+(?>(?:[.:-]\w++)*)"
"""Word, identifier or number, which may be joined to others: ``user_id``, ``pkg::mod``, ``10.0.0.1``, ``a1b2c3d``."""
_NAME_SET = r"\w.@+%$#/\\:~*-"
"""Characters of names, as a set in a pattern."""
_PLAIN = rf"(?:(?:[A-Za-z][a-z]*+|[A-Z]++|[0-9]{{1,2}}+)[.:-]*+|[.:*%+#/\\~@$-]++)(?![{_NAME_SET}])"
"""Text that is no name: a word of a language, a small number or a mark, such as ``Hello:``, ``12``, ``PASSED``."""
_RUN = lazy_pattern(
    rf"(?>(?:[^{_NAME_SET}]++|{_PLAIN})*)"
    rf"(?:({_URL})|([{_NAME_SET}]{{1,{NAME_CHARACTERS}}})|\Z)"
)
"""Next run of characters of names, or URL, after any text that contains no name."""
_TOKEN = lazy_pattern(rf"({_PATH}|{_MAIL_ADDRESS}|{_FILE})|({_JOINED_WORD})")

_JOINED_OR_MIXED = lazy_pattern(r"[.:-]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|\d{3}")
"""Sign that a word is an identifier: joining mark, inner capital, digits: ``run-time``, ``toJson``, ``E1234``."""
_LETTER = lazy_pattern(r"[A-Za-z]")
_SEPARATORS = lazy_pattern(r"[/\\.:-]+")
MOST_COMPONENTS = 24
"""Largest number of marks at which `parts_of` splits a name; the text after them is one component."""
PART_CHARACTERS = 4
"""Smallest length of a part of a name that counts as a name."""
_TRAILING = ".,:;!?-"
"""Punctuation that does not belong to a name if it is at its end."""

PATH_MARKS = r"[\w.:/~)\]}*>$%-]"
"""Characters that may precede a slash within a path or an address, as a set in a pattern."""


def specifics_of(text: str) -> dict[str, None]:
    """Return the names in `text` that nobody could guess if they were removed: paths, URLs, mail addresses,
    identifiers, ids, and numbers of three digits or more. They are the keys of the result, in order of first
    appearance."""
    names: dict[str, None] = {}
    for url, run in _RUN.findall(text):
        if url:
            names[url.rstrip(_TRAILING)] = None
        elif run and run.isascii() and (run.isidentifier() or run.isdigit()):
            # most runs are one word or number, which needs no search for names within it
            if run not in names and _is_identifier(run):
                names[run] = None
        elif run:
            for path_or_file, word in _TOKEN.findall(run):
                name = (path_or_file or word).rstrip(_TRAILING)
                if name not in names and (_is_identifier(name) if word else len(name) >= 4 and _LETTER.search(name)):
                    names[name] = None
    return names


def parts_of(name: str) -> tuple[str, ...]:
    """Return `name` and all names that are parts of it, as a text may shorten it: for ``src/app/main.py`` also
    ``app/main``, ``main.py`` and others of at least `PART_CHARACTERS`."""
    breaks = [match.span() for match in islice(_SEPARATORS.finditer(name), MOST_COMPONENTS)]
    if not breaks:
        return (name,)
    starts, stops = [0, *(stop for _, stop in breaks)], [*(start for start, _ in breaks), len(name)]
    runs = [
        name[start:stop] for at, start in enumerate(starts) for stop in stops[at:] if stop - start >= PART_CHARACTERS
    ]
    return tuple(dict.fromkeys((name, *runs)))


def _is_identifier(text: str) -> bool:
    """Return True for a number of at least three digits, or a word with an underscore, a capital inside, digits, or
    parts joined by ``.``, ``:`` or ``-``."""
    if text.isdigit() or len(text) < 4:
        return text.isdigit() and len(text) >= 3
    inner = text.strip("_$@#")
    is_joined = "_" in inner or _JOINED_OR_MIXED.search(inner) is not None
    return is_joined or (inner.isupper() and any(map(str.isdigit, inner)))


@lru_cache(maxsize=64)
def _below(root: str) -> re.Pattern[str]:
    """Return a pattern of the folder `root` and a slash at the beginning of a longer path."""
    if root[1:2] == ":":
        folders = "".join(rf"[\\/]+{re.escape(part)}" for part in root[3:].split("/"))
        return re.compile(rf"(?<![\w.:/~\\-])(?i:{root[0]}:|/{root[0]}){folders}[\\/]+(?=[\w.@+-])")
    return re.compile(rf"(?<!{PATH_MARKS}){re.escape(root)}/(?=[\w.@+(\[-])")


def without_root(text: str, root: str) -> str:
    """Return `text` with paths below the folder `root` made relative to it, which saves tokens."""
    return _below(root).sub("", text) if root and root.rpartition("/")[2] in text else text
