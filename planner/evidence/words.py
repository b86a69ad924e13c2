"""Words of a text in any script, for counting and comparing.

A word is a run of letters, or a number. Scripts without blanks between words (Chinese, Japanese, Thai and their kin)
give each pair of neighbouring characters, as search engines index them.
"""

from __future__ import annotations

from itertools import chain

from planner.reading.patterns import lazy_pattern

__all__ = ["figures_of", "without_figures", "words_of"]

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_WORD = lazy_pattern(rf"[{_UNSPACED}]+|\d+|[^\W\d_{_UNSPACED}]+")
"""A run of characters without blanks, a number, or a run of letters: ``日活``, ``1``, ``refund``."""
_FIGURE = lazy_pattern(r"(?<![\d.,])\d{2,}(?:[.,:/-]\d+)*|\d(?:[.,:/-]\d+)+")
"""A number of two digits and more, an amount, a date or a time: ``42``, ``1.240,50``, ``2026-03-14``, ``9:30``."""
_ASCII_WORD = lazy_pattern(r"[a-z]{2,}|\d{2,}")
_IS_UNSPACED = lazy_pattern(rf"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of two characters and more in lower case, in order; in scripts without blanks, pairs."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return list(chain.from_iterable(map(_pieces, _WORD.findall(text.casefold()))))


def without_figures(text: str) -> str:
    """Return `text` with each figure replaced by 0: equal for lines that differ by their figures alone."""
    return _FIGURE.sub("0", text)


def _pieces(run: str) -> list[str]:
    if not _IS_UNSPACED.match(run):
        return [run] if len(run) > 1 else []
    return [run[at : at + 2] for at in range(len(run) - 1)]


def figures_of(text: str) -> list[str]:
    """Return the figures in `text` in order: numbers, amounts, dates and times, in any script's text."""
    return _FIGURE.findall(text)
