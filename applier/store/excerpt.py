"""Parts of a turn: all of it, a range of its lines, or the lines that match a search, with what they show.

Reads turns and histories only; knows no store. Sessions use it on histories that are not stored yet.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

import regex

from applier.store.protocol import Match, Restored, SearchResult
from planner.errors import ReferenceNotFound, StoreError
from planner.reading.history import History, Turn, read_history
from planner.reading.lines import Line, Part, join_lines, turn_lines
from planner.reading.messages import Block, Message

__all__ = ["find_matches", "restored_part"]

CONTEXT_LINES = 2
SHOWN_LINES, SHOWN_CONTEXT_LINES = 3, 1
"""Matching lines of one turn that an excerpt shows, and lines around each: a turn is to be recognised, not read."""
HIT_CHARACTERS, NEAR_CHARACTERS = 240, 100
"""Of a line that matches an excerpt shows so much, around the match; of a line beside it so much."""
SEARCH_SECONDS = 1.0
"""The longest one search may work: a pattern can be written so that it never ends."""
MAX_SEARCH_CHARACTERS = 1_000
"""Of what is searched for: making a pattern of more takes longer than the search."""
_PROSE: tuple[Part, ...] = ("user", "assistant", "call")
"""What people and the model wrote themselves; shown before what tools printed."""


def restored_part(
    reference: str,
    messages: Sequence[Message],
    *,
    lines: tuple[int, int] | None = None,
    search: str | None = None,
    max_characters: int | None = None,
) -> Restored:
    """The turn that `messages` are, or the part of it that `Store.restore` was asked for.

    Raises:
        ReferenceNotFound: it has no such lines, or none of them matches.
    """
    history = read_history(messages)
    turn = Turn("t1", 0, len(messages), "other", "", False)
    every = turn_lines(history, turn)
    part = list(every) if lines is None else _range_of(every, lines, reference)
    if search is not None:
        hits = _matching_lines(part, search)
        if not hits:
            raise ReferenceNotFound(f"{reference}: no line matches {search!r}")
        text, cut = _up_to(_numbered(part, hits), max_characters)
        shown: list[Block] = [{"type": "text", "text": text}]
        following = next((number for number in hits if cut and number > cut), None)
        return Restored(reference, tuple(messages), text, tuple(shown), _span(part), len(every), following, hits)
    page = _page(part, max_characters)
    following = page[-1].number + 1 if len(page) < len(part) else None
    content = tuple(_content(history, turn, every, page, whole=len(page) == len(every)))
    return Restored(reference, tuple(messages), join_lines(page), content, _span(page), len(every), following)


def _range_of(lines: Sequence[Line], wanted: tuple[int, int], reference: str) -> list[Line]:
    first, last = wanted
    part = list(lines[max(first, 1) - 1 : max(last, 0)])
    if not part:
        there = f"1 to {len(lines)}" if lines else "none"
        raise ReferenceNotFound(f"{reference}: no lines {first} to {last}; its lines: {there}")
    return part


def _span(lines: Sequence[Line]) -> tuple[int, int]:
    return (lines[0].number, lines[-1].number) if lines else (0, 0)


def _page(lines: Sequence[Line], max_characters: int | None) -> list[Line]:
    """As many of `lines` as the size allows, and one at least."""
    if max_characters is None:
        return list(lines)
    size = 0
    page: list[Line] = []
    for line in lines:
        size += len(line.text) + 1
        if page and size > max_characters:
            break
        page.append(line)
    return page


def _content(
    history: History, turn: Turn, every: Sequence[Line], page: Sequence[Line], *, whole: bool
) -> Iterator[Block]:
    """The lines of `page` as text blocks, with each image and document behind the text it follows."""
    media = _media_by_line(history, turn, every)
    held: list[Line] = []
    if whole or (page and page[0].number == 1):
        yield from media.get(0, ())
    for line in page:
        held.append(line)
        if line.number in media:
            yield {"type": "text", "text": join_lines(held)}
            yield from media[line.number]
            held = []
    if any(line.text for line in held):
        yield {"type": "text", "text": join_lines(held)}


def _media_by_line(history: History, turn: Turn, lines: Sequence[Line]) -> dict[int, list[Block]]:
    """The images and documents of a turn, by the number of the last line before each (0: there is none)."""
    media: dict[int, list[Block]] = {}
    owners = [line.block for line in lines]
    for index, (_, block) in enumerate(history.blocks_of(turn)):
        for medium in _media(block):
            media.setdefault(bisect_right(owners, index), []).append(medium)
    return media


def _media(block: Block) -> Iterator[Block]:
    """`block` if a reader cannot have it as text; or those in it. Cache marks belong to the request they were in."""
    source = block.get("source")
    if block["type"] in ("image", "document") and isinstance(source, dict) and source.get("type") != "text":
        yield {key: value for key, value in block.items() if key != "cache_control"}
        return
    inner = block.get("content")
    for item in inner if isinstance(inner, list) else ():
        if isinstance(item, dict) and isinstance(item.get("type"), str):
            yield from _media(item)


def _up_to(lines: Sequence[tuple[int, str]], max_characters: int | None) -> tuple[str, int | None]:
    """Numbered lines as text of at most that size; the number of the last one shown if some are not."""
    size, shown = 0, 0
    for _, text in lines:
        size += len(text) + 1
        if max_characters is not None and shown and size > max_characters:
            break
        shown += 1
    text = "\n".join(text for _, text in lines[:shown])
    return text, lines[shown - 1][0] if shown < len(lines) else None


def _numbered(
    lines: Sequence[Line], hits: Sequence[int], around: int = CONTEXT_LINES, match: regex.Pattern[str] | None = None
) -> list[tuple[int, str]]:
    """The lines `hits` as ``12: text``, those around them as ``11- text``, a gap as ``…``; each with its number.

    With `match` what is far from a match of it in a long line is cut off.
    """
    wanted = set(hits)
    near = {number + step for number in wanted for step in range(-around, around + 1)}
    shown: list[tuple[int, str]] = []
    for line in lines:
        if line.number in near:
            if shown and line.number > shown[-1][0] + 1:
                shown.append((shown[-1][0], "…"))
            hit = line.number in wanted
            text = line.text if match is None else _clipped(line.text, match if hit else None)
            shown.append((line.number, f"{line.number}{':' if hit else '-'} {text}"))
    return shown


def _clipped(text: str, match: regex.Pattern[str] | None) -> str:
    """The part of `text` around the first match, with ``…`` where it is cut; without a match its beginning."""
    most = NEAR_CHARACTERS if match is None else HIT_CHARACTERS
    if len(text) <= most:
        return text
    at = match.search(text, timeout=SEARCH_SECONDS) if match is not None else None
    first = max(0, min(at.start() - most // 4, len(text) - most)) if at is not None else 0
    return f"{'…' * (first > 0)}{text[first : first + most]}{'…' * (first + most < len(text))}"


def find_matches(
    history: History,
    search: str,
    *,
    part: Part | None = None,
    tool: str | None = None,
    limit: int | None = None,
) -> SearchResult:
    """The turns of `history` that match, see `Store.search`.

    Raises:
        StoreError: the pattern takes too long.
    """
    lines = {turn.id: turn_lines(history, turn) for turn in history.turns}
    wanted = {turn.id: _filtered(history, turn, lines[turn.id], part, tool) for turn in history.turns}
    matching = _first_way(wanted, search)

    def rank(turn_id: str) -> tuple[float, bool, int]:
        hits = matching[turn_id]
        return -hits.weight, hits.only_results, -history.by_id[turn_id].number

    ranked = sorted(matching, key=rank)
    shown = ranked if limit is None else ranked[:limit]
    return SearchResult(tuple(_match(turn_id, lines[turn_id], matching[turn_id]) for turn_id in shown), len(ranked))


@dataclass(frozen=True, slots=True)
class _Hits:
    """The lines of one turn that match."""

    lines: tuple[int, ...]
    """Ascending."""
    best: tuple[int, ...]
    """Those to show."""
    weight: float
    """Of the words searched for that stand on one line, at most."""
    only_results: bool
    match: regex.Pattern[str]
    """What a line was found by."""


def _match(turn_id: str, lines: Sequence[Line], hits: _Hits) -> Match:
    excerpt = "\n".join(text for _, text in _numbered(lines, hits.best, SHOWN_CONTEXT_LINES, hits.match))
    more = len(hits.lines) - len(hits.best)
    return Match(turn_id, hits.lines, excerpt + (f"\n… {more} more lines of {turn_id} match" if more else ""))


def _filtered(history: History, turn: Turn, lines: Sequence[Line], part: Part | None, tool: str | None) -> list[Line]:
    if part is None and tool is None:
        return list(lines)
    tools = _tools(history, turn) if tool is not None else {}
    return [
        line
        for line in lines
        if (part is None or line.part == part) and (tool is None or tools.get(line.block, "").lower() == tool.lower())
    ]


def _tools(history: History, turn: Turn) -> dict[int, str]:
    """The tool of each call and result, by the number of its block in the turn."""
    names: dict[str, str] = {}
    tools: dict[int, str] = {}
    for index, (_, block) in enumerate(history.blocks_of(turn)):
        if block["type"].endswith("tool_use"):
            names[str(block.get("id"))] = tools[index] = str(block.get("name", ""))
        elif block["type"].endswith("tool_result"):
            tools[index] = names.get(str(block.get("tool_use_id")), "")
    return tools


def _matching_lines(lines: Sequence[Line], search: str) -> tuple[int, ...]:
    hits = _first_way({"": lines}, search)
    return hits[""].lines if hits else ()


Lines = Mapping[str, Sequence[Line]]
"""Lines by the id of their turn."""


def _first_way(lines: Lines, search: str) -> dict[str, _Hits]:
    """What matches in the first of three ways that finds anything: as it stands, as a pattern, word by word."""
    if len(search) > MAX_SEARCH_CHARACTERS:
        raise StoreError(f"search: at most {MAX_SEARCH_CHARACTERS:,} characters, found {len(search):,}")
    deadline = time.monotonic() + SEARCH_SECONDS

    def by_pattern(pattern: str) -> dict[str, _Hits]:
        match = _compiled(pattern)
        weights = {turn_id: _pattern_hits(some, match, deadline) for turn_id, some in lines.items()} if match else {}
        return {turn_id: _hits(lines[turn_id], some, match) for turn_id, some in weights.items() if some and match}

    ways: tuple[Callable[[], dict[str, _Hits]], ...] = (
        lambda: by_pattern(regex.escape(search)),
        lambda: by_pattern(search),
        lambda: _word_hits(lines, tuple(dict.fromkeys(search.lower().split()))),
    )
    return next((hits for way in ways if search.strip() and (hits := way())), {})


def _hits(lines: Sequence[Line], weights: Mapping[int, float], match: regex.Pattern[str]) -> _Hits:
    """The lines numbered in `weights`; the heaviest are shown, and of these first what people and the model wrote.

    Lines of half the greatest weight and less are not shown, nor what stands there twice.
    """
    matching = [line for line in lines if line.number in weights]
    most = max(weights.values())
    heavy = {line.text.strip(): line for line in reversed(matching) if 2 * weights[line.number] > most}
    best = sorted(heavy.values(), key=lambda line: (-weights[line.number], line.part not in _PROSE, line.number))
    return _Hits(
        tuple(line.number for line in matching),
        tuple(sorted(line.number for line in best[:SHOWN_LINES])),
        most,
        all(line.part not in _PROSE for line in matching),
        match,
    )


def _word_hits(lines: Lines, words: Sequence[str]) -> dict[str, _Hits]:
    """The turns that hold most of the `words`, if it is more than half of them."""
    if len(words) < 2:
        return {}
    held = {
        turn_id: {line.number: {word for word in words if word in line.text.lower()} for line in some}
        for turn_id, some in lines.items()
    }
    counts = {turn_id: len(set().union(*of_turn.values())) for turn_id, of_turn in held.items()}
    most = max(counts.values(), default=0)
    if most * 2 <= len(words):
        return {}
    match = regex.compile("|".join(map(regex.escape, sorted(words, key=len, reverse=True))), regex.IGNORECASE)
    rarity = _rarities(held.values(), words)

    def weights(turn_id: str) -> dict[int, float]:
        return {number: sum(rarity[word] for word in some) for number, some in held[turn_id].items() if some}

    return {
        turn_id: _hits(lines[turn_id], weights(turn_id), match) for turn_id, count in counts.items() if count == most
    }


def _rarities(held: Iterable[Mapping[int, set[str]]], words: Sequence[str]) -> dict[str, float]:
    """What each word says, by how few lines hold it: `DeleteAllItems` more than `func`."""
    lines = [some for of_turn in held for some in of_turn.values()]
    counts = Counter(word for some in lines for word in some)
    return {word: log(1 + len(lines) / (1 + counts[word])) for word in words}


def _pattern_hits(lines: Sequence[Line], match: regex.Pattern[str], deadline: float) -> dict[int, int]:
    """The numbers of the lines that a match of `pattern` reaches into, all of one weight. A match may span lines."""
    starts: list[int] = []
    end = 0
    for line in lines:
        starts.append(end + bool(starts and not line.continues))
        end = starts[-1] + len(line.text)
    reached: set[int] = set()
    for first, last in _spans(join_lines(lines), match, deadline):
        reached.update(range(bisect_right(starts, first) - 1, bisect_right(starts, last - 1)))
    return {lines[index].number: 1 for index in reached}


def _spans(text: str, match: regex.Pattern[str], deadline: float) -> Iterator[tuple[int, int]]:
    """Start and end of each match that is not empty."""
    try:
        for found in match.finditer(text, timeout=max(0.001, deadline - time.monotonic())):
            if found.end() > found.start():
                yield found.span()
    except TimeoutError:
        raise StoreError(f"search {match.pattern[:80]!r}: the pattern takes too long; use a simpler one") from None


def _compiled(pattern: str) -> regex.Pattern[str] | None:
    """`pattern`, or None for plain words that are no pattern."""
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except (regex.error, RecursionError):
        return None
