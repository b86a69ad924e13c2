"""Words and figures of a text in any script, for counting and comparing.

A word is a run of letters, or a number. In scripts without blanks between words, such as Chinese, Japanese and Thai,
each pair of neighbouring characters counts as a word, as in search engines. Figures are numbers, amounts, dates and
times. They are compared by value: ``1,290``, ``1.290``, ``1 290`` and ``١٬٢٩٠`` are equal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain

from planner.reading.patterns import lazy_pattern

LETTERS = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
"""Letters of the Latin script, as a set in a pattern."""
WORD = f"{LETTERS}0-9_"
"""Characters of names, as a set in a pattern. Letters of other scripts are left out, as names and figures occur between
them without blanks: ``日活1.36亿``."""
BLANKS = " \u00a0\u2009\u202f"
"""Blanks that may group digits: ``12 500``."""

DATE_GAP = 4
"""Largest number of characters between two numbers of a date or time: ``14時30``, ``14. 3. 2026``."""
_NOT_PLAIN = lazy_pattern(r"[！-～٪٫٬]|(?![0-9])\d")
"""Character that `plain_text` replaces: a full-width form, a mark of Arabic figures, or a digit of another script."""
_ARABIC_MARKS = {"٪": "%", "٫": ".", "٬": ","}
_ESCAPE = lazy_pattern(r"\\(?:u([0-9a-fA-F]{4})|[nrt])")
"""Escape in a string of JSON: ``\\n``, ``\\u65e5``."""

DIGITS = rf"\d++(?:(?:[.,'’]|[{BLANKS}](?=\d{{3}}(?![{WORD}])))\d++)*+"
"""Pattern of a number with its marks: ``1,290``, ``3.14``, ``12 500``."""
_NUMBER = lazy_pattern(rf"(?:(?<![{WORD}])|(?<=\d[hT]))(?<!\d\.)({DIGITS})(?=[{LETTERS}]{{0,4}}(?![{LETTERS}_]))")
"""Number in a text, with or without a unit: ``42ms``, the ``30`` of ``14h30``; not in ``v3``, ``a1b2c3d``."""
_DIGIT_RUN = lazy_pattern(r"\d+")
_NEIGHBOURS = lazy_pattern(r"(?<!\d)(\d{1,4})(?=(\D{1,20})(\d{1,4})(?!\d))")
"""Number, followed by a short text and another number. The match ends before the text, so that the second number may
begin the next pair."""
_MONTH = lazy_pattern(r"[^\W\d_]{2}|[^\W\d_]\W?[^\W\d_]")
"""Letters that may name a month: ``März``, ``มี.ค.``; not ``年``."""
_DAY_AND_MONTH = lazy_pattern(r"(\d{1,2})\.(0?[1-9]|1[0-2])\.(?!\d)")
"""Date without its year: ``14.03.``."""


def plain_text(text: str) -> str:
    """Return `text` with digits, full-width characters and Arabic marks replaced by ASCII."""
    if text.isascii():
        return text
    return _NOT_PLAIN.sub(lambda match: _ascii(match[0]), unicodedata.normalize("NFC", text))


def _ascii(character: str) -> str:
    if "！" <= character <= "～":
        return chr(ord(character) - 0xFEE0)
    return _ARABIC_MARKS.get(character) or str(unicodedata.decimal(character))


def plain_forms(text: str) -> Iterator[str]:
    """Yield the plain text of `text`, and if it has escapes of JSON, also the plain text without them."""
    yield plain_text(text)
    if "\\" in text:
        yield plain_text(_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text))


def short_number(number: str) -> str:
    """Return a number of at most two digits without zeros at its beginning: ``3`` for ``03``; others unchanged."""
    return number.lstrip("0") or "0" if len(number) < 3 else number


def is_year(number: str) -> bool:
    """Return True for a year from 1900 to 2099."""
    return len(number) == 4 and number[:2] in ("19", "20")


def numbers_in(digits: str) -> list[str]:
    """Return the whole numbers in `digits`, whatever separates them."""
    return [short_number(part) for part in _DIGIT_RUN.findall(digits)]


def pairs_in(text: str) -> Iterator[str]:
    """Yield each pair of neighbouring numbers, in a form for each meaning that it may have.

    The form is ``14~3`` for numbers with at most `DATE_GAP` characters between them, and ``14:30`` for a time. It is
    ``14@2026`` for a day and a year with a month's name or ``, `` between them.
    """
    for first, between, second in _NEIGHBOURS.findall(text):
        one, other = short_number(first), short_number(second)
        if len(between) <= DATE_GAP:
            yield f"{one}~{other}"
        if between in (":", "h"):
            yield f"{one}:{other}"
        if between == ", " or _MONTH.search(between):
            yield f"{one}@{other}"


def values_of(digits: str) -> set[str]:
    """Return the values that a number may have, as texts: 1290 and 1.29 for ``1,290``, none for ``3.11.2``."""
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
    """Return True for digits that are grouped by thousands, or as in India: ``1,290``, ``1,50,000``."""
    return 0 < len(groups[0]) <= 3 and all(len(group) in (2, 3) for group in groups[1:]) and len(groups[-1]) == 3


def listed_in(digits: str) -> list[str]:
    """Return the numbers in `digits` if it may be a list of several: ``12,15,18``, ``14.03.2026``; else an empty list:
    ``1.36``, ``1,290``."""
    values = values_of(digits)
    is_list = not values or " " in digits or ("," in digits and not any(value.isdigit() for value in values))
    return numbers_in(digits) if is_list else []


def values_in(text: str) -> set[str]:
    """Return the values of all numbers in a plain text."""
    values: set[str] = set()
    for digits in set(_NUMBER.findall(text)):
        values.update(values_of(digits), listed_in(digits))
    for day in _DAY_AND_MONTH.finditer(text):
        values.update(numbers_in(day[0]))
    return values


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_WORD = lazy_pattern(rf"[{_UNSPACED}]+|\d+|[^\W\d_{_UNSPACED}]+")
"""Run of characters without blanks, a number, or a run of letters: ``日活``, ``1``, ``refund``."""
_FIGURE = lazy_pattern(r"(?<![\d.,])\d{2,}(?:[.,:/-]\d+)*|\d(?:[.,:/-]\d+)+")
"""A number of two digits and more, an amount, a date or a time: ``42``, ``1.240,50``, ``2026-03-14``, ``9:30``."""
_ASCII_WORD = lazy_pattern(r"[a-z]{2,}|\d{2,}")
_IS_UNSPACED = lazy_pattern(rf"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of at least two characters in order, in lower case; in scripts without blanks, pairs."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return list(chain.from_iterable(map(_pieces, _WORD.findall(text.casefold()))))


def without_figures(text: str) -> str:
    """Return `text` with each figure replaced by 0, so that lines that differ only in figures become equal."""
    return _FIGURE.sub("0", text)


def _pieces(run: str) -> list[str]:
    """Return each pair of characters of a run in a script without blanks; another run as it is, if it is longer than
    one character."""
    if not _IS_UNSPACED.match(run):
        return [run] if len(run) > 1 else []
    return [run[at : at + 2] for at in range(len(run) - 1)]


def figures_of(text: str) -> list[str]:
    """Return the numbers of two digits and more, amounts, dates and times in `text`, in order."""
    return _FIGURE.findall(text)
