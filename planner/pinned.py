"""Parts of a history that stay in every plan: the live tail, the user's words, decisive lines of failures, and
successes of actions that failed before.

They depend on the window, the target and the brief. The live tail is shortened to previews only if it would fill the
window. The user's typed words have a part of the room for memory: the size of a message, its names and its figures
decide which lines stay, in any language, and English words such as *never* raise the rank of a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

from planner.analysis import Analysis
from planner.brief import covered_failures, covers_success
from planner.evidence import TurnEvidence
from planner.evidence.effects import retried
from planner.evidence.hosts import binding_lines
from planner.evidence.words import figures_of, specifics_of, without_figures
from planner.layout import leading_turn
from planner.placeholders import first_note
from planner.reading.lazy import lazy_property
from planner.reading.lines import Line
from planner.reading.messages import History

LEAST_ROOM_SHARE = 0.1
"""Smallest room for memory, as a share of the target or of the live tail, whichever is larger. Without it a view could
consist of the last results alone."""
LEAST_ROOM_BESIDE_LIVE = 0.5
"""Upper limit of the smallest room for memory, as a share of the target."""
LIVE_SHARE = 0.5
"""Largest share of the window for a live tail. A larger tail would leave no room for an answer and is *demoted*: its
results and long texts are replaced by previews."""
PREVIEW_LINES = 12
"""Number of lines that a preview shows at the beginning, and again at the end: about 2,000 characters, as in other
systems."""
PREVIEW_SHARE = 0.25
"""Largest share of the window for all previews together; they show fewer lines until they fit."""
OWN_WORDS_SHARE = 0.5
"""Share that the user's typed words may take of the room for memory, without the lines of failures. With a fifth,
views keep .60 of the entities that CompactBench's chats ask for, with two fifths .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of typed words that stay at any target, however small: a few sentences."""
PAGE_FACTOR = 0.2
"""Factor for both limits if a model wrote the brief, which repeats the user's demands in fewer words."""
ENDS_SHARE = 0.25
"""Share of the room for typed words that the first and last lines of a long message may take. There are two such
messages: the user's last one and their first one."""
MOST_NEWS = 8
"""Largest number of names and figures that raise a message's rank: with more it is a list or a paste, not a wish."""


@dataclass(frozen=True)
class Pinned:
    """Parts of a history that stay in every plan, for one window and one target."""

    analysis: Analysis
    whole: frozenset[str]
    """Ids of turns that stay whole: unanswered turns, turns that must not change, and a view with unknown originals."""
    demoted: Mapping[str, frozenset[int]]
    """Numbers of the lines that previews show, by the ids of live turns; empty if the tail fits the window."""
    user_words: Mapping[str, frozenset[int]]
    """Numbers of the typed lines that stay verbatim, by turn id; all of them if they fit."""
    words_left_out: Mapping[str, frozenset[int]]
    """Numbers of the typed lines for which there is no room, by turn id."""
    failures: Mapping[str, frozenset[int]]
    """Numbers of the decisive lines of failures that the brief does not replace, by turn id."""
    successes: Mapping[str, frozenset[int]]
    """Numbers of lines with the later success of a failed action, by turn id, so that the agent does not act again;
    without those that the brief replaces."""
    covered: Mapping[str, frozenset[int]]
    """Numbers of the decisive lines of failures that the brief replaces, by turn id."""

    @lazy_property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """Numbers of the lines that stay at any target, by the ids of turns with such lines."""
        lines: dict[str, frozenset[int]] = {}
        for kept in (self.failures, self.successes, self.user_words, self.demoted):
            lines |= {
                turn_id: numbers | lines.get(turn_id, frozenset()) for turn_id, numbers in kept.items() if numbers
            }
        return lines


def pinned(
    analysis: Analysis, window_tokens: int, target_tokens: int, model: str, brief: str | None, planner: str
) -> Pinned:
    """Return the parts of a history that stay in addition to the `brief` (None if it is not written yet).

    `model`: the reader of the view. `planner`: its name, ``rules`` or another. The user's words have less room
    beside a brief that another planner writes.
    """
    turns = analysis.evidence.turns
    covered = covered_failures(brief or "", analysis.evidence)
    failures = {
        turn_id: frozenset(turn.decisive_lines) - covered.get(turn_id, frozenset())
        for turn_id, turn in turns.items()
        if turn.decisive_lines
    }
    successes = {
        turn_id: numbers
        for turn_id, numbers in analysis.once(_successes).items()
        if not (brief and covers_success(brief, turn_id, [turns[turn_id].lines[number - 1] for number in numbers]))
    }
    live = [turn for turn in turns.values() if turn.turn.live]
    tail_fits = sum(turn.tokens for turn in live) <= window_tokens * LIVE_SHARE
    demoted = frozenset(turn.turn.id for turn in live if not tail_fits and turn.turn.kind in ("tools", "user"))
    whole = {turn_id for turn_id, turn in turns.items() if turn.turn.must_stay or turn.turn.live} - demoted
    view_id = unknown_view(analysis.history)
    whole |= {view_id} if view_id and turns[view_id].tokens <= target_tokens else set()
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    memory = memory_room(target_tokens, analysis.evidence.live_tokens)
    limit = words_limit(memory, analysis.once(_outcome_tokens), beside_page=planner != "rules" and brief != "")
    words = analysis.once(own_words, min(limit, (1 - LIVE_SHARE) * window_tokens))
    return Pinned(
        analysis,
        whole=frozenset(whole.union(analysis.broken)),
        demoted=analysis.once(_previews, demoted, window_tokens),
        user_words=words.lines,
        words_left_out=words.left_out,
        failures=failures,
        successes=successes,
        covered=covered,
    )


def _successes(analysis: Analysis) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines that show later successes of failed actions, by turn id. These are the first line
    of the successful call, and the lines of its outcome."""
    turns = analysis.evidence.turns
    lines: dict[str, frozenset[int]] = {}
    for turn_id, call_number in retried(analysis.evidence).values():
        turn = turns[turn_id]
        call = turn.calls[call_number]
        shown = {turn.lines.of_block(call.block)[0].number, *turn.outcomes[call_number].lines}
        lines[turn_id] = lines.get(turn_id, frozenset()) | shown
    return lines


def _outcome_tokens(analysis: Analysis) -> float:
    """Return the tokens of the decisive lines of failures and of `_successes`, outside the live tail."""
    successes = analysis.once(_successes)
    turns = [turn for turn in analysis.evidence.turns.values() if not turn.turn.live]
    ended = [turn for turn in turns if turn.decisive_lines or turn.turn.id in successes]
    lines = [(turn, {*turn.decisive_lines, *successes.get(turn.turn.id, ())}) for turn in ended]
    return analysis.counter.scale * sum(turn.tokens_of(numbers) for turn, numbers in lines)


def memory_room(target_tokens: float, live_tokens: float) -> float:
    """Return how many of a view's `target_tokens` are available for anything but the live tail: the rest, but at least
    the smallest room. A larger target never has less room."""
    least = min(LEAST_ROOM_BESIDE_LIVE * target_tokens, LEAST_ROOM_SHARE * max(live_tokens, target_tokens))
    return max(target_tokens - live_tokens, least)


def unknown_view(history: History) -> str:
    """Return the id of the turn among the first two that looks like the first note of a view; empty without one. The
    originals of such a view are not known: if they were, they would be planned instead."""
    return next((turn.id for turn in history.turns[:2] if first_note(history.messages_of(turn)) is not None), "")


def _previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines in the previews of the `demoted` turns, by turn id.

    The previews show at most `PREVIEW_LINES` at either end of each long part. They show fewer lines if all previews
    together would exceed `PREVIEW_SHARE` of the window.
    """
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        shown = {turn.turn.id: _preview(turn, most) for turn in turns}
        if sum(turn.tokens_of(shown[turn.turn.id]) for turn in turns) <= room:
            break
    return shown


def _preview(turn: TurnEvidence, most: int) -> frozenset[int]:
    """Return the numbers of the first and last `most` lines of each result and each text of the user, and of all other
    lines of the turn. Of the user's texts at least one line at either end stays."""
    most = max(most, 1 if turn.turn.kind == "user" else 0)
    long_blocks = {call.result_block for call in turn.calls}
    long_blocks |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in turn.lines.outside(long_blocks)}
    for lines in map(turn.lines.of_block, long_blocks):
        shown.update(line.number for line in (*lines[:most], *lines[::-1][:most]))
    return frozenset(shown)


class OwnWords(NamedTuple):
    """Typed lines that stay verbatim."""

    lines: dict[str, frozenset[int]]
    """Numbers of these lines, by turn id."""
    left_out: dict[str, frozenset[int]]
    """Numbers of the other typed lines, by turn id."""


def words_limit(memory_tokens: float, outcome_tokens: float, *, beside_page: bool) -> float:
    """Return the largest number of tokens for the user's typed words in a view.

    `memory_tokens`: the room for anything but the live tail. `outcome_tokens`: tokens that lines of failures and of
    later successes take of it. `beside_page`: True if a model writes the brief.
    """
    share = OWN_WORDS_SHARE * max(memory_tokens - outcome_tokens, memory_tokens / 2)
    return (PAGE_FACTOR if beside_page else 1.0) * max(share, LEAST_WORDS_TOKENS)


def own_words(analysis: Analysis, most_tokens: float) -> OwnWords:
    """Return the typed lines that stay verbatim. If all fit in `most_tokens`, all stay.

    Otherwise the first that stay, while there is room, are both ends of the user's last and first message. Then come
    lines with binding words in English. Whole messages follow, those with many names and figures for their size first,
    as answers, consent and corrections are rather short. Last come both ends of the other messages. A line that was
    typed twice stays once, where it was typed last.
    """
    turns = analysis.evidence.turns
    room = raw_limit = most_tokens / analysis.counter.scale
    typed = _typed_once(turns)
    speaking = [turns[turn_id] for turn_id, lines in typed.items() if lines and not turns[turn_id].turn.live]
    raw_tokens = {turn.turn.id: turn.tokens_of(line.number for line in typed[turn.turn.id]) for turn in speaking}
    words: dict[str, frozenset[int]] = {}
    for turn in (*speaking[:1], *speaking[1:][-1:]):
        numbers = _ends(turn, typed[turn.turn.id], ENDS_SHARE * raw_limit)
        words[turn.turn.id] = numbers
        room -= turn.tokens_of(numbers)
    fits = sum(raw_tokens.values()) <= raw_limit
    all_numbers = {turn_id: frozenset(line.number for line in lines) for turn_id, lines in typed.items()}
    for turn_id, binding in ({} if fits else _binding(typed)).items():
        if not turns[turn_id].turn.live:
            room = _grow(words, turns[turn_id], binding, room)
    for turn in sorted(speaking, key=lambda turn: raw_tokens[turn.turn.id] ** 0.3 / (1 + _news(typed[turn.turn.id]))):
        room = _grow(words, turn, all_numbers[turn.turn.id], room)
    incomplete = [turn for turn in speaking if words.get(turn.turn.id) != all_numbers[turn.turn.id]]
    for at, turn in enumerate(incomplete):
        room = _grow(words, turn, _ends(turn, typed[turn.turn.id], room / (len(incomplete) - at)), room)
    left_out = {turn_id: all_numbers[turn_id] - words.get(turn_id, frozenset()) for turn_id in raw_tokens}
    return OwnWords(words, {turn_id: numbers for turn_id, numbers in left_out.items() if numbers})


def _typed_once(turns: dict[str, TurnEvidence]) -> dict[str, list[Line]]:
    """Return the typed lines by turn id, the newest turn first; a line that was typed again later is left out."""
    seen: set[str] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        lines = {line.text.strip(): line for line in turn.typed_lines}
        typed[turn_id] = sorted(line for text, line in lines.items() if text not in seen)
        seen.update(lines)
    return typed


def _news(lines: Sequence[Line]) -> int:
    """Return the number of distinct names and figures in each line, added up; at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(typed: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines with a binding word in English (never, must), by turn id, in the order of
    `typed`. If lines of several turns differ only in figures, only the line of the first turn is returned, which is the
    newest."""
    seen: set[str] = set()
    binding: dict[str, frozenset[int]] = {}
    for turn_id, lines in typed.items():
        forms = {without_figures(line.text.strip()): line.number for line in binding_lines(lines)}
        binding[turn_id] = frozenset(number for form, number in forms.items() if form not in seen)
        seen.update(forms)
    return binding


def _grow(words: dict[str, frozenset[int]], turn: TurnEvidence, numbers: frozenset[int], room: float) -> float:
    """Add line `numbers` to those of `turn` in `words` if all fit in `room` raw tokens; return the remaining room."""
    kept = words.get(turn.turn.id, frozenset())
    cost = turn.tokens_of(numbers - kept)
    if cost > room:
        return room
    words[turn.turn.id] = kept | numbers
    return room - cost


def _ends(turn: TurnEvidence, lines: Sequence[Line], most: float) -> frozenset[int]:
    """Return the numbers of the lines of a message that fit in `most` raw tokens. If not all fit, these come first: the
    first and the last line, then lines with binding words in English, then lines from both ends inward."""
    if turn.tokens_of(line.number for line in lines) <= most:
        return frozenset(line.number for line in lines)
    inward = chain.from_iterable(zip(lines, reversed(lines), strict=True))
    in_order = dict.fromkeys([*lines[:1], *lines[-1:], *binding_lines(lines), *inward])
    totals = accumulate(turn.line_tokens[line.number - 1] for line in in_order)
    return frozenset(line.number for line, total in zip(in_order, totals, strict=True) if total <= most)
