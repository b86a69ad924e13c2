"""Parts of a stored turn: a range of its lines, or the lines that match a search, with the lines around them.

Sessions use this also for turns that are not stored yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple, get_args

from applier.store.search import Hits, matching_turns
from planner.errors import ReferenceNotFound, SettingsError
from planner.placeholders import ranges_of
from planner.programming.coding_tools import defines
from planner.reading.lines import Line, Part, join_lines, turn_lines, without_numbers
from planner.reading.messages import Block, History, Message, Turn, pictures_in, read_history

CONTEXT_LINES, MANY_CONTEXT_LINES = 2, 1
"""Number of lines shown before and after a match in a search of one turn: with up to `FEW_LINES` matches, with more."""
FEW_LINES = 3
"""Largest number of matches that count as few, so that more lines around each are shown."""
BEST_LINES = 8
"""Largest number of lines shown for a search by words; other matching lines are only listed by number."""
LOGIC_LINES = 6
"""Number of lines shown after a match that defines something (``def a():``) or is inside a call, if matches are few."""
NEAR_LINES = 1
"""Number of lines shown around each match in a search of all turns."""
NEAR_CHARACTERS = 100
"""Number of characters shown of a line next to a match, in a search of all turns."""
SHOWN_LINES, EXCERPT_CHARACTERS = 3, 400
"""Limits of the excerpt of a turn in a search of all turns: number of matching lines, and length in characters."""
RESULT_OF = "result of "
"""Beginning of the line above a tool result that names its call: ``result of 3: Read path=a.py``."""
LAST_LINE = 10**9
"""Line number beyond the last line of any turn."""
MOST_NAMED = 5
"""Largest number of ranges in a list of line numbers (``2-4, 9``)."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Content of a turn that was read back from the store: all of it, some lines, or the lines that match a search."""

    reference: str
    """Name by which the turn was found, with the key of its history: ``h1a2b3c4d:t12``."""
    messages: tuple[Message, ...]
    """Exact messages of the whole turn, as new objects."""
    text: str
    """Requested lines. For a search, these are the matching lines with their numbers, and some lines around each."""
    blocks: tuple[Block, ...] = ()
    """Content for a ``tool_result`` block: the text, with the turn's images and documents at their places."""
    lines: tuple[int, int] = (0, 0)
    """Numbers of the first and last line of `text` within the turn, from 1. For a search, they are those of the lines
    that were searched. Both are 0 without lines."""
    total_lines: int = 0
    """Number of lines of the turn."""
    next_line: int | None = None
    """Number of the line with which the next page begins; None if `text` is complete."""
    matches: tuple[int, ...] = ()
    """Numbers of the lines of the turn that match the search."""


@dataclass(frozen=True, slots=True)
class Match:
    """Turn that matches a search."""

    turn_id: str
    lines: tuple[int, ...]
    """Numbers of all matching lines within the turn."""
    excerpt: str
    """Best matching lines with their numbers, each with the lines around it. If the turn has parallel calls, other
    lines link each call to its result: ``result: 20-31``."""
    best: str
    """Best matching line, with its number in front."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Turns that match a search, best first (see `Store.search`)."""

    matches: tuple[Match, ...]
    turns: int
    """Number of all matching turns; larger than the number of `matches` if a limit left some out."""
    by_words: bool = False
    """True if no turn contains the searched text or pattern, so that turns with some of its words are returned."""


class Searched(NamedTuple):
    """Turn that is searched: its lines, and which of its blocks belong to the same call."""

    lines: Sequence[Line]
    """All lines of the turn; the number of a line is its index plus one."""
    calls: Mapping[int, int]
    """For each block of a tool call or a result, by the block's index in the turn: the index of the call's block."""

    @property
    def is_parallel(self) -> bool:
        """True if the turn has several tool calls at once."""
        return len(set(self.calls.values())) > 1


class ShownLine(NamedTuple):
    """Line of the excerpt that a search shows."""

    number: int
    """Number of the line in its turn; of an inserted line, the number of the line above it."""
    text: str
    """Line as it is shown: ``12: text``, ``11- text``, ``…``, or a link between a call and its result."""


def check_selection(lines: object, search: object, max_characters: object) -> None:
    """Raise a SettingsError unless these arguments of `Store.restore` have the right types; each may be None."""
    is_pair = isinstance(lines, Sequence) and len(lines) == 2 and all(type(number) is int for number in lines)
    if lines is not None and not is_pair:
        raise SettingsError(f"lines: expected the first and the last line, as in (1, 3), found {lines!r:.80}")
    if search is not None and not isinstance(search, str):
        raise SettingsError(f"search: expected text to search for, found {type(search).__name__}")
    if max_characters is not None and type(max_characters) is not int:
        raise SettingsError(f"max_characters: expected a number of characters, found {type(max_characters).__name__}")


def restored_part(
    reference: str,
    messages: Sequence[Message],
    *,
    lines: tuple[int, int] | None = None,
    search: str | None = None,
    max_characters: int | None = None,
    by_words: bool = True,
) -> Restored:
    """Return the turn that consists of `messages`, or a part of it. `reference`: its name, such as ``h1a2b3c4d:t12``.
    `lines` (first and last), `search` and `max_characters` select the part, as in `Store.restore`. Without `by_words`,
    a search matches only literally or as a pattern. Raise `ReferenceNotFound` if nothing is selected."""
    history = read_history(messages)
    turn = Turn("t1", 0, len(messages), "other", "", False)  # all messages as one turn
    all_lines = turn_lines(history, turn)
    first, last = lines or (1, len(all_lines))
    part = all_lines[max(first, 1) - 1 : max(last, 0)]
    if lines is not None and not part:
        there = f"1 to {len(all_lines)}" if all_lines else "none"
        wanted = f"line {first}" if last in (first, LAST_LINE) else f"lines {first} to {last}"
        raise ReferenceNotFound(f"{reference}: no {wanted}; its lines: {there}")
    if search is not None:
        hits = matching_turns({"": part}, search, by_words=by_words)[0].get("")
        if hits is None:
            raise ReferenceNotFound(f"{reference}: no line matches {search!r}")
        shown = _matching_lines(Searched(all_lines, _calls(history, turn)), part, hits)
        count = _fitting_count([line.text for line in shown], max_characters)
        text = "\n".join(line.text for line in shown[:count])
        matches = hits.lines if count < len(shown) else ()  # the next page begins with the first one not in this page
        following = next((number for number in matches if number > shown[count - 1].number), None)
        block: Block = {"type": "text", "text": text}
        return Restored(reference, tuple(messages), text, (block,), _span(part), len(all_lines), following, hits.lines)
    page = part[: _fitting_count([line.text for line in part], max_characters)]
    following = page[-1].number + 1 if len(page) < len(part) else None
    content = tuple(_content(history, turn, all_lines, page))
    return Restored(reference, tuple(messages), join_lines(page), content, _span(page), len(all_lines), following)


def _span(lines: Sequence[Line]) -> tuple[int, int]:
    """Return the numbers of the first and the last line; zeros without lines."""
    return (lines[0].number, lines[-1].number) if lines else (0, 0)


def _fitting_count(texts: Sequence[str], max_characters: int | None) -> int:
    """Return how many of the first `texts`, one a line, fit in `max_characters` (None: all); at least one if any."""
    if max_characters is None:
        return len(texts)
    ends = list(accumulate(len(text) + 1 for text in texts))  # with the line breaks
    return max(bisect_right(ends, max_characters), min(1, len(texts)))


def _content(history: History, turn: Turn, all_lines: Sequence[Line], page: Sequence[Line]) -> Iterator[Block]:
    """Yield the lines of `page` as text blocks, and between them the turn's images and documents, each in its place.
    `page` is a run of neighbouring lines from `all_lines`, the lines of the turn."""
    block_indices = [line.block for line in all_lines]
    first, last = _span(page)
    yielded = first - 1  # number of the last line that was yielded or is before the page
    for index, (_, block) in enumerate(history.blocks_of(turn)):
        line_before = bisect_right(block_indices, index)  # number of the last line up to the end of this block
        # images before the first line are shown with line 1; a turn without lines has one page, from line 0 to line 0
        line_of_media = max(line_before, 1) if all_lines else 0
        if first <= line_of_media <= last and (media := list(_media(block))):
            yield from _text_block(all_lines[yielded:line_before])
            yield from media
            yielded = line_before
    yield from _text_block(all_lines[yielded:last])


def _text_block(lines: Sequence[Line]) -> Iterator[Block]:
    """Yield a text block of `lines`, unless they are all blank."""
    if any(line.text for line in lines):
        yield {"type": "text", "text": join_lines(lines)}


def _media(block: Block) -> Iterator[Block]:
    """Yield the images and documents in `block`, also those in a tool result, without ``cache_control``. Leave out
    documents that are plain text, as their text is among the turn's lines."""
    for picture in pictures_in([block]):
        source = picture.get("source")
        if isinstance(source, dict) and source.get("type") != "text":
            yield {key: value for key, value in picture.items() if key != "cache_control"}


def _matching_lines(turn: Searched, part: Sequence[Line], hits: Hits) -> list[ShownLine]:
    """Return the matching lines (`hits`) of `part` (the searched lines of `turn`), with the lines around them. Of
    matches by words, only the best `BEST_LINES` are shown; the numbers of the others are listed in a last line."""
    wanted = hits.best[:BEST_LINES] if hits.by_words else hits.lines
    are_few = len(wanted) <= FEW_LINES
    around, logic = (CONTEXT_LINES, LOGIC_LINES) if are_few else (MANY_CONTEXT_LINES, 0)
    near = _with_neighbours(turn, wanted, around, logic)
    shown = _joined_runs(_runs(turn, wanted, near.intersection(line.number for line in part), None))
    return shown + _other_matches(hits, shown) if hits.by_words else shown


def _with_neighbours(turn: Searched, hits: Sequence[int], around: int, logic: int) -> set[int]:
    """Return the numbers of the matching lines (`hits`), and of the lines around them to be shown, too. These are
    `around` lines on either side, but at least `logic` lines after a definition or a line inside a call. In a turn with
    parallel calls, lines of another block are left out, as they belong to another call."""
    is_parallel, near = turn.is_parallel, set[int]()
    for number in hits:
        line = turn.lines[number - 1]  # numbers begin with 1
        in_call = line.part == "call" and number > 1 and turn.lines[number - 2].block == line.block
        after = max(around, logic) if in_call or defines(line.text) else around
        neighbours = turn.lines[max(0, number - 1 - around) : number + after]
        near.update(other.number for other in neighbours if other.block == line.block or not is_parallel)
    return near


def _runs(turn: Searched, hits: Sequence[int], near: set[int], most: int | None) -> list[list[ShownLine]]:
    """Return the lines with the numbers `near` as runs of neighbouring lines, without blank lines at the ends of each.
    Matching lines (`hits`) become ``12: text``, others ``11- text`` cut to `most` characters (None: whole). With
    parallel calls, a run also has a line that names the call of each result, and one with the lines of each result."""
    wanted = set(hits)
    runs: list[list[ShownLine]] = []
    for first, last in ranges_of(near):
        numbers = range(first, last + 1)
        shown = [n for n in numbers if n in wanted or without_numbers(turn.lines[n - 1].text).strip()]
        run: list[ShownLine] = []
        for block, lines in groupby(turn.lines[shown[0] - 1 : shown[-1]], key=lambda line: line.block):
            of_block = [_shown(line, line.number in wanted, most) for line in lines]
            run += _with_link(turn, block, of_block, wanted) if turn.is_parallel else of_block
        runs.append(run)
    return runs


def _joined_runs(runs: Sequence[list[ShownLine]]) -> list[ShownLine]:
    """Return the lines of all `runs`, with ``…`` between two runs. If a run begins with the line ``result of 3: …``
    that the run before has, too, it is not repeated."""
    shown: list[ShownLine] = []
    last_link = ""
    for run in runs:
        if shown:
            shown.append(ShownLine(shown[-1].number, "…"))
        shown += run[1:] if run[0].text == last_link else run
        last_link = next((line.text for line in reversed(run) if line.text.startswith(RESULT_OF)), "")
    return shown


def _shown(line: Line, is_hit: bool, most: int | None) -> ShownLine:
    """Return a matching line (`is_hit`) as ``12: text``; any other as ``11- text``, cut to `most` characters (None:
    whole). Line numbers that a tool printed in front of the text are removed."""
    text = without_numbers(line.text)
    return ShownLine(line.number, f"{line.number}: {text}" if is_hit else f"{line.number}- {_clipped(text, most)}")


def _with_link(turn: Searched, block: int, shown: list[ShownLine], hits: set[int]) -> list[ShownLine]:
    """Return the lines `shown` of the block with the index `block`, with a line that links a call to its result.

    Above a result, this line names the call by its first line: ``result of 3: Read path=a.py``. Below a call, it names
    the lines of its result: ``result: 20-31``. If the call's first line is among the `hits` (numbers of matching
    lines), only its number is named, as the line is shown anyway.
    """
    call = turn.calls.get(block)
    if call is None:  # a text, for example
        return shown
    if call != block:  # the block is a result
        first = next(line for line in turn.lines if line.block == call)
        name = "" if first.number in hits else f": {_clipped(first.text, NEAR_CHARACTERS)}"
        return [ShownLine(shown[0].number, f"{RESULT_OF}{first.number}{name}"), *shown]
    results = [line.number for line in turn.lines if line.block != call and turn.calls.get(line.block) == call]
    return [*shown, ShownLine(shown[-1].number, f"result: {_ranges(results)}")] if results else shown


def _ranges(numbers: Sequence[int]) -> str:
    """Return line numbers as ranges, ``2-4, 9``: the first `MOST_NAMED` ranges, and the number of other lines."""
    ranges = ranges_of(numbers)
    listed = ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges[:MOST_NAMED])
    others = sum(last - first + 1 for first, last in ranges[MOST_NAMED:])
    return f"{listed} and {others} more" if others else listed


def _other_matches(hits: Hits, shown: Sequence[ShownLine]) -> list[ShownLine]:
    """Return a list of one line, with the numbers of matching lines that are not `shown`; empty if all are shown."""
    others = sorted(set(hits.lines) - {line.number for line in shown})
    return [ShownLine(shown[-1].number, f"… also {_ranges(others)}")] if others else []


def _clipped(text: str, most: int | None) -> str:
    """Return `text` cut to `most` characters, with ``…`` if something is missing; None for no limit."""
    return text if most is None or len(text) <= most else f"{text[:most]}…"


def with_other_turns(error: ReferenceNotFound, key: str, elsewhere: SearchResult) -> ReferenceNotFound:
    """Return `error`, about a search without a match in one turn, with a list of other matching turns added. `key`: key
    of their history; `elsewhere`: result of the search in the whole history."""
    names = [f"{key}:{match.turn_id}" for match in elsewhere.matches]
    and_more = f" and {elsewhere.turns - len(names)} more turns" if elsewhere.turns > len(names) else ""
    verb = "matches" if elsewhere.turns == 1 else "match"
    there = f"{', '.join(names)}{and_more} {verb}" if names else "no other turn of this history does"
    return ReferenceNotFound(f"{error}; {there}", [f"{match.turn_id} {match.best}" for match in elsewhere.matches])


def find_matches(
    history: History,
    search: str,
    *,
    part: Part | None = None,
    tool: str | None = None,
    limit: int | None = None,
) -> SearchResult:
    """Return the turns of `history` that match `search`; arguments, order and errors are those of `Store.search`."""
    if part is not None and part not in get_args(Part):
        raise SettingsError(f"part: expected one of {', '.join(get_args(Part))}, found {part!r:.80}")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise SettingsError(f"limit: expected a number of turns, from 0 on, or None for all, found {limit!r:.80}")
    turns = {turn.id: Searched(turn_lines(history, turn), _calls(history, turn)) for turn in history.turns}
    wanted = {turn.id: _filtered(history, turn, turns[turn.id], part, tool) for turn in history.turns}
    elsewhere = [turn.lines for turn in turns.values()] if part or tool else []
    matching, total = matching_turns(wanted, search, limit, elsewhere=elsewhere)
    by_words = any(hits.by_words for hits in matching.values())
    matches = tuple(_match(turn_id, turns[turn_id], hits) for turn_id, hits in matching.items())
    return SearchResult(matches, total, by_words)


def _match(turn_id: str, turn: Searched, hits: Hits) -> Match:
    """Return the turn as a search result, with an excerpt of `SHOWN_LINES` best lines, or of fewer if they are long."""
    excerpts = (_excerpt(turn, hits, count) for count in range(SHOWN_LINES, 1, -1))
    fitting_text = next((text for text in excerpts if len(text) <= EXCERPT_CHARACTERS), None)
    best = _shown(turn.lines[hits.best[0] - 1], True, None).text
    return Match(turn_id, hits.lines, fitting_text or _excerpt(turn, hits, 1), best)


def _excerpt(turn: Searched, hits: Hits, count: int) -> str:
    """Return the `count` best matching lines with lines around them, best first, and the numbers of other matches."""
    best = hits.best[:count]
    runs = _runs(turn, best, _with_neighbours(turn, best, NEAR_LINES, 2 * NEAR_LINES), NEAR_CHARACTERS)
    ranks = {number: at for at, number in enumerate(best)}
    runs.sort(key=lambda run: min(ranks.get(line.number, len(ranks)) for line in run))
    shown = _joined_runs(runs)
    return "\n".join(line.text for line in (*shown, *_other_matches(hits, shown)))


def _filtered(history: History, turn: Turn, searched: Searched, part: Part | None, tool: str | None) -> Sequence[Line]:
    """Return the lines of a turn to search: those of this `part` (such as ``user``; None: all), and of these, those in
    calls of this `tool` and their results (None: all)."""
    if part is None and tool is None:
        return searched.lines
    blocks = [block for _, block in history.blocks_of(turn)]
    tools = {block: str(blocks[call].get("name", "")).lower() for block, call in searched.calls.items()}
    of_part = (line for line in searched.lines if part in (None, line.part))
    return [line for line in of_part if tool is None or tools.get(line.block, "") == tool.lower()]


def _calls(history: History, turn: Turn) -> Mapping[int, int]:
    """Return for each block of a tool call or a result in a turn, by its index, the index of the call's block."""
    by_id: dict[str, int] = {}
    calls: dict[int, int] = {}
    for index, (_, block) in enumerate(history.blocks_of(turn)):
        if block["type"].endswith("tool_use"):
            by_id[str(block.get("id"))] = calls[index] = index
        elif block["type"].endswith("tool_result") and (call := by_id.get(str(block.get("tool_use_id")))) is not None:
            calls[index] = call
    return calls
