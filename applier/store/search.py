"""Searches turns and their lines: literally, as a pattern, or else by words.

Words are ranked by BM25 as in SQLite's FTS5 (k1 1.2, b 0.75, Porter's stems), in a table in memory for one search. So
every store ranks alike, and no index on disk has words to be forgotten. A search takes 0.1 s a megabyte, 2.5 s for
100,000 turns of a chat. For facts, which may be a million, `FactIndex` keeps its table.
"""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import log
from typing import NamedTuple

import regex

from planner.errors import StoreError
from planner.programming.coding_tools import defines
from planner.reading.lines import Line, Part, join_lines

SEARCH_SECONDS = 1.0
"""Longest time for one pattern: some patterns would never end."""
MAX_SEARCH_CHARACTERS = 1_000
"""Longest search text; compiling a longer pattern takes longer than the search."""
WORTH_SHOWING = 0.5
"""Share of the best rank in a turn from which lines with words are shown."""
_PROSE: tuple[Part, ...] = ("user", "assistant", "call")
"""Parts written by people and the model, shown before tools' output."""

_RANKED = "SELECT rowid, -rank FROM texts WHERE texts MATCH ? ORDER BY rank, rowid DESC"

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
"""Words without spaces between them: ``大阪城は``; not ``Osaka``. Read by pairs of characters, as in Lucene's
`CJKBigramFilter`; in a search the last character also counts alone."""
_WORD = regex.compile(rf"(?V1){_UNSPACED.pattern}|[\w--[_{_UNSPACED.pattern[1:-2]}]]+")
"""One word, or a run of words without spaces: ``drain``, ``大阪城は``; not ``drain_queue``, ``a.py``, which are two."""
_ASKED = regex.compile(r'"([^"]*\w[^"]*)"|(\S+)')
"""Term of a search: a phrase in quotes, or the text between spaces: ``"red hen" fox``."""


class Hits(NamedTuple):
    """The lines of one turn that match."""

    lines: tuple[int, ...]
    """Numbers of the lines, ascending. Of matches by words, only lines with over half of the best rank are listed."""
    best: tuple[int, ...]
    """Numbers of the same lines, best first; of lines with the same text only the first."""
    by_words: bool
    """True if the lines match by words, False if literally or as a pattern."""


class MatchingTurns(NamedTuple):
    """Turns that match a search."""

    hits: dict[str, Hits]
    """Matching lines by the turn's id, best turn first; at most as many turns as the search may return."""
    total: int
    """Number of all matching turns."""


class Rank(NamedTuple):
    """Text that matches a search by words, with its rank."""

    at: int
    """Index of the text among those searched."""
    score: float
    """Rank, higher for a better match."""


def matching_turns(
    turns: Mapping[str, Sequence[Line]],
    search: str,
    limit: int | None = None,
    *,
    by_words: bool = True,
    elsewhere: Iterable[Sequence[Line]] = (),
) -> MatchingTurns:
    """Return at most `limit` of the `turns` that match `search`, best first.

    `turns` are lines by the turn's id, oldest first. Turns that match literally or as a pattern are ordered by time,
    the newest first, but those that match only in results come last. If there are none, turns that match by words are
    ordered by BM25. Words are not tried without `by_words`, or if the text matches in the lines `elsewhere`.

    Raises:
        StoreError: `search` is too long, or takes too long as a pattern.
    """
    if len(search) > MAX_SEARCH_CHARACTERS:
        raise StoreError(f"search: at most {MAX_SEARCH_CHARACTERS:,} characters, found {len(search):,}")
    if not search.strip():
        return MatchingTurns({}, 0)
    deadline = time.monotonic() + SEARCH_SECONDS
    for pattern in (regex.escape(search), search):
        match = _compiled(pattern)
        if match and (hits := _by_pattern(turns, match, deadline)):
            return MatchingTurns(dict(list(hits.items())[:limit]), len(hits))
        by_words = by_words and not (match and any(_matched_lines(lines, match, deadline) for lines in elsewhere))
    return _by_words(turns, search, limit) if by_words else MatchingTurns({}, 0)


def _by_pattern(turns: Mapping[str, Sequence[Line]], match: regex.Pattern[str], deadline: float) -> dict[str, Hits]:
    """Return the turns with a match, the newest first, but those that match only in results last."""
    matching = {turn_id: hits for turn_id, lines in turns.items() if (hits := _matched_lines(lines, match, deadline))}
    only_results = {turn_id for turn_id, lines in matching.items() if all(line.part not in _PROSE for line in lines)}
    newest = list(reversed(matching))
    newest.sort(key=only_results.__contains__)

    def order(line: Line) -> tuple[bool, bool, int]:  # words and calls before results, among equals definitions first
        return line.part not in _PROSE, not defines(line.text), line.number

    return {turn_id: _hits(sorted(matching[turn_id], key=order), by_words=False) for turn_id in newest}


def _hits(best: Sequence[Line], *, by_words: bool) -> Hits:
    """Return the hits of a turn that has the matching lines `best`, best first."""
    first: dict[str, int] = {}
    for line in best:
        first.setdefault(line.text.strip(), line.number)
    return Hits(tuple(sorted(line.number for line in best)), tuple(first.values()), by_words)


def _matched_lines(lines: Sequence[Line], match: regex.Pattern[str], deadline: float) -> list[Line]:
    """Return the lines that a match covers, also partly; a match may span lines."""
    starts: list[int] = []  # offset of each line in the joined text
    end = 0
    for line in lines:
        line_feeds = 1 if starts and not line.continues else 0
        starts.append(end + line_feeds)
        end = starts[-1] + len(line.text)
    reached: set[int] = set()
    for first, last in _spans(join_lines(lines), match, deadline):
        reached.update(range(bisect_right(starts, first) - 1, bisect_right(starts, last - 1)))
    return [lines[index] for index in sorted(reached)]


def _spans(text: str, match: regex.Pattern[str], deadline: float) -> Iterator[tuple[int, int]]:
    """Yield start and end of each match that is not empty."""
    try:
        for hit in match.finditer(text, timeout=max(0.001, deadline - time.monotonic())):
            if hit.end() > hit.start():
                yield hit.span()
    except TimeoutError:
        raise StoreError(f"search {match.pattern[:80]!r}: the pattern takes too long; use a simpler one") from None


def _compiled(pattern: str) -> regex.Pattern[str] | None:
    """Return `pattern` compiled; None if it is no valid pattern, so that only its words can be searched."""
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except (regex.error, RecursionError):
        return None


def _by_words(turns: Mapping[str, Sequence[Line]], search: str, limit: int | None) -> MatchingTurns:
    """Return at most `limit` turns by BM25, each with the lines that share most words with `search`."""
    ids = list(turns)
    ranks = ranked([join_lines(lines) for lines in turns.values()], search)
    if not ranks:
        return MatchingTurns({}, 0)
    shown = [ids[rank.at] for rank in ranks[:limit]]
    owners = [turn_id for turn_id in shown for _ in turns[turn_id]]
    lines = [line for turn_id in shown for line in turns[turn_id]]
    least: dict[str, float] = {}
    best: dict[str, list[Line]] = {turn_id: [] for turn_id in shown}
    for rank in _ranked_by_shared_words([line.text for line in lines], search):
        turn_id = owners[rank.at]
        if rank.score > least.setdefault(turn_id, WORTH_SHOWING * rank.score):
            best[turn_id].append(lines[rank.at])
    hits = {turn_id: _hits(some or turns[turn_id][:1], by_words=True) for turn_id, some in best.items()}
    return MatchingTurns(hits, len(ranks))


def ranked(texts: Iterable[str], search: str) -> list[Rank]:
    """Return the rank by BM25 of each text with a word of `search`, best first; among equals the last text is first."""
    terms = asked_terms(search)
    if not terms:
        return []
    with closing(_index(texts)) as index:
        return [Rank(*row) for row in index.execute(_RANKED, (terms,))]


def _ranked_by_shared_words(texts: Sequence[str], search: str) -> list[Rank]:
    """Return the same texts as `ranked`, ordered by the number and rarity (as in Lucene) of the shared words, and among
    equals by BM25."""
    with closing(_index(texts)) as index:
        scores = {at: 0.0 for at, _ in index.execute(_RANKED, (asked_terms(search),))}
        for term in dict.fromkeys(_terms(search)):
            matches = [at for (at,) in index.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (term,))]
            for at in matches:
                scores[at] += log(1 + (len(texts) - len(matches) + 0.5) / (len(matches) + 0.5))
    return sorted((Rank(at, score) for at, score in scores.items()), key=lambda rank: -rank.score)


def _index(texts: Iterable[str]) -> sqlite3.Connection:
    """Return a database in memory with a word table of `texts`; a row's number is the index of its text."""
    index = sqlite3.connect(":memory:", isolation_level=None)
    word_table(index)
    index.execute("BEGIN")
    index.executemany("INSERT INTO texts (rowid, words) VALUES (?, ?)", enumerate(map(spaced, texts)))
    return index


def word_table(index: sqlite3.Connection) -> None:
    """Create the full-text table ``texts`` in `index`; it ranks rows by their words, prepared by `spaced`."""
    index.execute("PRAGMA temp_store = MEMORY")
    index.execute(
        "CREATE VIRTUAL TABLE texts USING fts5 "
        """(words, content = '', tokenize = "porter unicode61 categories 'L* M* N* Co'")"""
    )


def asked_terms(search: str) -> str:
    """Return the FTS5 query for texts with any word or phrase of `search`; empty if it has no words."""
    return " OR ".join(dict.fromkeys(_terms(search)))


def spaced(text: str) -> str:
    """Return `text` with spaces between pairs of unspaced characters, and without lone surrogates."""
    if text.isascii():
        return text
    return _UNSPACED.sub(
        lambda run: f" {' '.join(_pairs(run[0]))} {run[0][-1]} ", text.encode("utf-8", "replace").decode()
    )


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _terms(search: str) -> Iterator[str]:
    """Yield each phrase and word of `search` in quotes, as FTS5 needs them; of ``a.py`` also ``a`` and ``py``."""
    for phrase, unquoted in _ASKED.findall(search.lower().encode("utf-8", "replace").decode()):
        words = _words(phrase or unquoted)
        if len(words) > 1:
            yield f'"{" ".join(words)}"'
        for word in words if unquoted or len(words) == 1 else ():
            yield f'"{word}"{"*" if _UNSPACED.fullmatch(word) else ""}'


def _words(text: str) -> list[str]:
    """Return the words of `text`. A run of words without spaces is returned as its pairs of characters."""
    words: list[str] = []
    for run in _WORD.findall(text):
        pairs = _pairs(run) if _UNSPACED.match(run) else []
        words += pairs or [run]  # a single character has no pair
    return words
