"""Searches turns and their lines: for the literal text, else as a pattern, else by words; and facts by words.

Texts are ranked by BM25 (rare words count more), by SQLite's FTS5 (k1 1.2, b 0.75, Porter's stems), in a table that is
made in memory for each search. So the rank does not depend on the store's database, and no index on disk keeps words of
deleted content. A search takes 0.1 s a megabyte, 2.5 s for 100,000 turns of a chat.

For facts, which may be a million, `FactIndex` keeps its table, with the conversation, type and time of each fact; in
large stores the table is also stored as records, for other processes. Deleting a conversation deletes these records;
the next search builds the table from the remaining facts.
"""

from __future__ import annotations

import json
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import pairwise
from math import log
from threading import RLock
from typing import NamedTuple

import regex

from applier.store.backend import Backend
from applier.store.records import INDEXED, MOST_RECENT, RECENT, next_order, order_of, read
from planner.errors import StoreError
from planner.placeholders import history_key
from planner.programming.coding_tools import defines
from planner.reading.lines import Line, Part, join_lines

SEARCH_SECONDS = 1.0
"""Longest time in seconds for a search with a pattern, because some patterns would never end."""
MAX_SEARCH_CHARACTERS = 1_000
"""Largest length of a search text. To compile a longer pattern would take more time than the search."""
WORTH_SHOWING = 0.5
"""Share of the best line's score that another line of the same turn must exceed to be shown, in a search by words."""
_PROSE: tuple[Part, ...] = ("user", "assistant", "call")
"""Parts of a turn that people and the model wrote; their matches are shown before those in the output of tools."""

_RANKED = "SELECT rowid, -rank FROM texts WHERE texts MATCH ? ORDER BY rank, rowid DESC"
"""Query that returns the row numbers and scores of the texts with searched words, the best first."""

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
"""Run of words in a script without spaces: ``大阪城は``; not ``Osaka``. Its pairs of characters (``大阪``, ``阪城``,
``城は``) count as its words, as in Lucene's `CJKBigramFilter`; in a text to be searched, also its last character."""
_WORD = regex.compile(rf"(?V1){_UNSPACED.pattern}|[\w--[_{_UNSPACED.pattern[1:-2]}]]+")
"""Word, or run of words in a script without spaces: ``drain``, ``大阪城は``; ``drain_queue`` is two."""
_ASKED = regex.compile(r'"([^"]*\w[^"]*)"|(\S+)')
"""Term of a search: a phrase in quotes, or text between spaces, as in ``"red hen" fox``."""


class Hits(NamedTuple):
    """Lines of one turn that match a search."""

    lines: tuple[int, ...]
    """Numbers of the matching lines, ascending; in a search by words, only lines with over half of the best score."""
    best: tuple[int, ...]
    """Numbers of the matching lines, best first; of several lines with the same text only the first."""
    by_words: bool
    """True if the lines only contain some of the searched words; False if they match literally or as a pattern."""


def matching_turns(
    turns: Mapping[str, Sequence[Line]],
    search: str,
    limit: int | None = None,
    *,
    by_words: bool = True,
    elsewhere: Iterable[Sequence[Line]] = (),
) -> tuple[dict[str, Hits], int]:
    """Return the matching lines of at most `limit` (None: all) of the `turns`, by the turn's id and best turn first;
    return also the number of all turns that match.

    `turns`: the lines of each turn by its id, oldest turn first. Turns that contain the text `search`, or else match it
    as a pattern, come newest first, but those that match only in tool results come last. If there are none, the turns
    with words of `search` are returned, ordered by BM25. This is not done without `by_words`, or if the text or pattern
    matches `elsewhere`, in lines that the caller left out of `turns`.

    Raises:
        StoreError: `search` is too long, or takes too long as a pattern.
    """
    if len(search) > MAX_SEARCH_CHARACTERS:
        raise StoreError(f"search: at most {MAX_SEARCH_CHARACTERS:,} characters, found {len(search):,}")
    if not search.strip():
        return {}, 0
    deadline = time.monotonic() + SEARCH_SECONDS
    for source in (regex.escape(search), search):  # the literal text first, then as a pattern
        pattern = _compiled(source)
        if pattern and (hits := _by_pattern(turns, pattern, deadline)):
            return dict(list(hits.items())[:limit]), len(hits)
        if by_words and pattern and any(_matched_lines(lines, pattern, deadline) for lines in elsewhere):
            by_words = False
    return _by_words(turns, search, limit) if by_words else ({}, 0)


def _by_pattern(turns: Mapping[str, Sequence[Line]], pattern: regex.Pattern[str], deadline: float) -> dict[str, Hits]:
    """Return the matching lines of each turn that matches `pattern`, by the turn's id. The newest turn comes first, but
    those that match only in tool results come last. Raise a StoreError if it takes until `deadline`."""
    matching = {turn_id: hits for turn_id, lines in turns.items() if (hits := _matched_lines(lines, pattern, deadline))}
    only_results = {turn_id for turn_id, lines in matching.items() if all(line.part not in _PROSE for line in lines)}
    turn_ids = list(reversed(matching))  # newest first
    turn_ids.sort(key=lambda turn_id: turn_id in only_results)  # False comes first; the order stays otherwise

    def order(line: Line) -> tuple[bool, bool, int]:
        """Return a sort key for the best line first: words and calls before results, and in each group lines that
        define something, such as ``def drain():``, before others."""
        return line.part not in _PROSE, not defines(line.text), line.number

    return {turn_id: _hits(sorted(matching[turn_id], key=order), by_words=False) for turn_id in turn_ids}


def _hits(best: Sequence[Line], *, by_words: bool) -> Hits:
    """Return `Hits` for the matching lines `best` (best first) of a turn. `by_words`: True for a search by words."""
    first_numbers: dict[str, int] = {}  # of several lines with the same text, only the first is among the best
    for line in best:
        first_numbers.setdefault(line.text.strip(), line.number)
    return Hits(tuple(sorted(line.number for line in best)), tuple(first_numbers.values()), by_words)


def _matched_lines(lines: Sequence[Line], pattern: regex.Pattern[str], deadline: float) -> list[Line]:
    """Return those of `lines` in which a match of `pattern` lies, whole or in part; a match may extend over several
    lines. Raise a StoreError if it takes until `deadline`."""
    starts: list[int] = []  # offset of each line in the joined text
    end = 0
    for line in lines:
        line_feeds = 1 if starts and not line.continues else 0  # pieces of one long line are joined without line feed
        starts.append(end + line_feeds)
        end = starts[-1] + len(line.text)
    reached: set[int] = set()
    try:
        for match in pattern.finditer(join_lines(lines), timeout=max(0.001, deadline - time.monotonic())):
            if match.end() > match.start():  # not empty
                first, last = (bisect_right(starts, offset) - 1 for offset in (match.start(), match.end() - 1))
                reached.update(range(first, last + 1))
    except TimeoutError:
        raise StoreError(f"search {pattern.pattern[:80]!r}: the pattern takes too long; use a simpler one") from None
    return [lines[index] for index in sorted(reached)]


def _compiled(source: str) -> regex.Pattern[str] | None:
    """Return the regular expression `source`, compiled to ignore letter case; None if it is not valid."""
    try:
        return regex.compile(source, regex.IGNORECASE | regex.MULTILINE)
    except (regex.error, RecursionError):
        return None


def _by_words(turns: Mapping[str, Sequence[Line]], search: str, limit: int | None) -> tuple[dict[str, Hits], int]:
    """Return at most `limit` (None: all) of the `turns` with words of `search`, best first, each with the lines that
    share most words with it. Return also the number of all turns with such words."""
    ids = list(turns)
    ranks = ranked([join_lines(lines) for lines in turns.values()], search)
    chosen = [ids[at] for at, _ in ranks[:limit]]
    lines = [(turn_id, line) for turn_id in chosen for line in turns[turn_id]]
    least_scores: dict[str, float] = {}
    best: dict[str, list[Line]] = {turn_id: [] for turn_id in chosen}
    for at, score in _ranked_by_shared_words([line.text for _, line in lines], search) if chosen else ():
        turn_id, line = lines[at]
        # the first line of a turn has its best score
        if score > least_scores.setdefault(turn_id, WORTH_SHOWING * score):
            best[turn_id].append(line)
    # a phrase may extend over lines, so that no line contains it: then the turn's first line is shown
    hits = {turn_id: _hits(found or turns[turn_id][:1], by_words=True) for turn_id, found in best.items()}
    return hits, len(ranks)


def ranked(texts: Iterable[str], search: str) -> list[tuple[int, float]]:
    """Return index and score (BM25) of each text with a word of `search`, best first; of equals the last text first."""
    terms = asked_terms(search)
    if not terms:
        return []
    with closing(_index(texts)) as index:
        return index.execute(_RANKED, (terms,)).fetchall()


def _ranked_by_shared_words(texts: Sequence[str], search: str) -> list[tuple[int, float]]:
    """Return index and score of each text with a word of `search`, as `ranked` does, but with a score that is the sum
    of the shared words' rarities (Lucene's formula). Among equals the order is that of BM25."""
    with closing(_index(texts)) as index:
        scores = {at: 0.0 for at, _ in index.execute(_RANKED, (asked_terms(search),))}
        for term in dict.fromkeys(_terms(search)):
            matches = [at for (at,) in index.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (term,))]
            for at in matches:
                scores[at] += log(1 + (len(texts) - len(matches) + 0.5) / (len(matches) + 0.5))
    return sorted(scores.items(), key=lambda item: -item[1])


def _index(texts: Iterable[str]) -> sqlite3.Connection:
    """Return a database in memory with the full-text table ``texts``; the number of a row is the index of its text."""
    index = sqlite3.connect(":memory:", isolation_level=None)
    word_table(index)
    index.execute("BEGIN")
    index.executemany("INSERT INTO texts (rowid, words) VALUES (?, ?)", enumerate(map(spaced, texts)))
    return index


def word_table(index: sqlite3.Connection) -> None:
    """Create the full-text table ``texts`` in the database `index`, for texts that were prepared by `spaced`."""
    index.execute("PRAGMA temp_store = MEMORY")
    index.execute(
        "CREATE VIRTUAL TABLE texts USING fts5 "
        """(words, content = '', tokenize = "porter unicode61 categories 'L* M* N* Co'")"""
    )


def asked_terms(search: str) -> str:
    """Return the FTS5 query for texts with any word or phrase of `search`; empty if it has no words."""
    return " OR ".join(dict.fromkeys(_terms(search)))


def spaced(text: str) -> str:
    """Return `text` prepared for `word_table`: in scripts without spaces, pairs of characters become words (``大阪城``
    → ``大阪 阪城 城``). Lone surrogates, which SQLite refuses, are replaced."""
    if text.isascii():
        return text
    plain = text.encode("utf-8", "replace").decode()
    return _UNSPACED.sub(lambda run: f" {' '.join(map(''.join, pairwise(run[0])))} {run[0][-1]} ", plain)


def _terms(search: str) -> Iterator[str]:
    """Yield each phrase and word of `search` in quotes, as SQLite's FTS5 needs them: ``"red hen"`` and ``"fox"`` for
    ``"red hen" fox``. For a text like ``a.py``, yield the phrase ``"a py"`` and both words."""
    for phrase, unquoted in _ASKED.findall(search.lower().encode("utf-8", "replace").decode()):
        words = _words(phrase or unquoted)
        if len(words) > 1:
            yield f'"{" ".join(words)}"'
        for word in words if unquoted or len(words) == 1 else ():
            # a single character of a script without spaces shall match each pair that begins with it
            yield f'"{word}"{"*" if _UNSPACED.fullmatch(word) else ""}'


def _words(text: str) -> list[str]:
    """Return the words of `text`; of a run of words without spaces, its pairs of characters."""
    words: list[str] = []
    for run in _WORD.findall(text):
        pairs = map("".join, pairwise(run)) if _UNSPACED.match(run) else ()
        words += [*pairs] or [run]  # a single character has no pair
    return words


PART_BYTES = 1 << 20
"""Size of the records into which the stored search table is cut, in bytes."""
READ_AT_ONCE, AT_ONCE = 10_000, 200
"""Number of facts read into the search table together, and number of keys returned together."""


class FactIndex:
    """Search table of the facts in one store, in this process's memory; each search first adds the new facts.

    The table may also be stored, in records with keys ``index/…``. Then a new fact (``fact/…``) has a mark
    (``recent/…``) until the table is stored again; without a stored table, new facts are found among all facts.
    """

    most_recent = MOST_RECENT
    first = 2_000
    """Number of best facts that a search ranks at first; all are ranked only for a caller that wants more."""
    common = 20_000
    """Number of facts from which a word that they contain counts as common. If the other words of a search find enough
    facts, facts with only common words are left out. In sixty searches of a million facts the best 20 are the same
    without this rule, and the longest search takes three times as long."""

    def __init__(self, backend: Backend) -> None:
        """Prepare an empty table; the first use reads the facts."""
        self._backend, self._lock = backend, RLock()
        self._parts: list[str] | None = None  # keys of the stored table's records when it was read; None: never
        self._table = sqlite3.connect(":memory:", check_same_thread=False)

    def keys(
        self, words: str, *, kind: str | None = None, since: float = 0.0, histories: Collection[str] | None = None
    ) -> Iterator[list[str]]:
        """Yield the record keys of facts, in lists of at most `AT_ONCE`, newest first.

        The facts are of this `kind` (None: any), were extracted at the time `since` or later, and belong to these
        `histories` (their keys; None: any). With `words`, only facts with one of them are yielded, best match first and
        newest first among equals.
        """
        self.refresh()
        yielded = set[int]()
        for limit in (self.first, -1):  # first the best few, then all: -1 is no limit in SQL
            with self._lock:
                ids = [fact_id for fact_id in self._ids(words, kind, since, histories, limit) if fact_id not in yielded]
            yielded.update(ids)
            for start in range(0, len(ids), AT_ONCE):
                some_ids = ids[start : start + AT_ONCE]
                sql = "SELECT facts.id, name FROM facts JOIN places ON places.id = place WHERE facts.id IN "
                with self._lock:
                    places = dict(self._table.execute(f"{sql}({','.join(map(str, some_ids))})"))
                # a fact that was deleted meanwhile has no place
                yield [f"fact/{places[fact_id]}/{fact_id:012}" for fact_id in some_ids if fact_id in places]
            if len(ids) < limit:
                return

    def _ids(
        self, words: str, kind: str | None, since: float, histories: Collection[str] | None, most: int
    ) -> list[int]:
        """Return the ids (order numbers) of at most `most` facts (-1: all), chosen and sorted as in `keys`."""
        condition = "kind = coalesce(?, kind) AND time >= ?"
        values: tuple[object, ...] = (kind, since)
        if histories is not None:
            all_places = self._table.execute("SELECT id, name FROM places")  # GROUP/PREFIX, the digest of a history
            places = (str(row_id) for row_id, name in all_places if history_key(name.partition("/")[2]) in histories)
            condition += f" AND place IN ({','.join(places)})"
        source, order, terms = f"FROM facts WHERE {condition}", "id DESC", asked_terms(words)
        if words.strip() and not terms:  # the text consists of punctuation
            return []
        if terms:  # so only facts that meet the condition are ranked; ``ORDER BY rank`` would rank and sort all matches
            source = f"FROM texts CROSS JOIN facts ON id = texts.rowid WHERE {condition} AND texts MATCH ?"
            order, values = "bm25(texts), id DESC", (*values, terms)
            is_unfiltered = kind is None and since <= 0.0 and histories is None
            if most > 0 and is_unfiltered and (rare := self._rare_terms(terms)):
                # the plus sign makes SQLite test each match for this condition, rather than look up each row
                source += " AND +texts.rowid IN (SELECT rowid FROM texts WHERE texts MATCH ?)"
                values = (*values, rare)
        sql = f"SELECT id {source} ORDER BY {order} LIMIT ?"
        return [row_id for (row_id,) in self._table.execute(sql, (*values, most))]

    def _rare_terms(self, terms: str) -> str:
        """Return the query `terms` without its common words; empty if no word is common, or if the others find fewer
        than `first` facts."""

        def count(query: str) -> int:
            """Return the number of facts that `query` finds."""
            return int(self._table.execute("SELECT count(*) FROM texts WHERE texts MATCH ?", (query,)).fetchone()[0])

        all_terms = terms.split(" OR ")
        rare = [term for term in all_terms if count(term) <= self.common]
        rare_query = " OR ".join(rare)
        return rare_query if 0 < len(rare) < len(all_terms) and count(rare_query) >= self.first else ""

    def refresh(self) -> None:
        """Bring the table up to date with the store's facts; if many are new, store it, to read them only once."""
        with self._lock:
            with self._backend.transaction():
                parts = self._backend.keys(INDEXED)
                if parts != self._parts:  # stored again by another process, or removed as facts were deleted
                    self._load_table(parts)
                kind = RECENT if self._is_stored else "fact/"  # a stored table lacks only the facts with a mark
                keys = {order_of(key): key.replace(kind, "fact/", 1) for key in self._backend.keys(kind)}
                if not self._is_stored and not self._added <= keys.keys():  # another process deleted facts
                    self._load_table([])  # begin again with an empty table
                new = [key for order, key in keys.items() if order not in self._added]
                for start in range(0, len(new), READ_AT_ONCE):
                    self._add(new[start : start + READ_AT_ONCE])
            if len(self._added) > self.most_recent:
                self._store_table(parts)

    def __del__(self) -> None:
        """Close the table in memory."""
        self._table.close()

    def _load_table(self, parts: Sequence[str]) -> None:
        """Replace the table by the stored one, from the records with the keys `parts`; by an empty one if there are no
        such records or they are damaged."""
        bodies = self._backend.get(parts)
        whole = b"".join(bodies[part] for part in parts if part in bodies)
        self._table.close()
        self._table = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._is_stored = {part.split("/")[2] for part in parts} == {_digest(whole)}  # index/ORDER/DIGEST/OFFSET
        self._parts, self._added = list(parts), set[int]()  # order numbers of facts added after the table was read
        if self._is_stored:
            self._table.deserialize(whole)
            return
        word_table(self._table)
        self._table.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        self._table.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, place INTEGER, kind TEXT, time REAL)")

    def _add(self, keys: Sequence[str]) -> None:
        """Read the facts with these record `keys` into the table."""
        facts = {key: json.loads(content) for key, content in read(self._backend, keys).items()}
        self._added.update(map(order_of, keys))
        places = {key: key.partition("/")[2].rpartition("/")[0] for key in facts}
        run = self._table.executemany
        self._table.execute("BEGIN")
        run("INSERT OR IGNORE INTO places (name) VALUES (?)", [(name,) for name in dict.fromkeys(places.values())])
        run(
            "INSERT INTO facts SELECT ?, id, ?, ? FROM places WHERE name = ?",
            [(order_of(key), fact["type"], fact["timestamp"], places[key]) for key, fact in facts.items()],
        )
        texts = ((order_of(key), spaced(f"{fact['content']}\n{fact['quote']}")) for key, fact in facts.items())
        run("INSERT INTO texts (rowid, words) VALUES (?, ?)", texts)
        self._table.execute("COMMIT")

    def _store_table(self, parts: Sequence[str]) -> None:
        """Store the table in place of the older one in the records with the keys `parts`. Store nothing if meanwhile a
        fact was deleted, or another process stored its own table."""
        whole = self._table.serialize()
        with self._backend.transaction(write=True):
            if self._backend.keys(INDEXED) != list(parts):  # a deletion of facts removes these records, too
                return
            if not self._is_stored and not self._added <= set(map(order_of, self._backend.keys("fact/"))):
                return
            no_longer_new = [key for key in self._backend.keys(RECENT) if order_of(key) in self._added]
            self._backend.remove([*parts, *no_longer_new])
            place = f"{INDEXED}{next_order(self._backend)}/{_digest(whole)}"
            starts = range(0, len(whole), PART_BYTES)
            records = {f"{place}/{start:012}": whole[start : start + PART_BYTES] for start in starts}
            self._backend.add(records)
        self._parts, self._added, self._is_stored = list(records), set(), True


def _digest(whole: bytes) -> str:
    """Return the digest in the keys of the stored table's records, from the bytes of the `whole` table."""
    return blake2b(whole, digest_size=16).hexdigest()
