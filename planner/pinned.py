"""Parts of a history that stay in every plan: the live tail, the user's words, decisive lines of failures, and
successes of actions that failed before.

They are computed once for a window, a target and a brief; the tail is replaced by previews only if it fits no window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from planner.analysis import Analysis
from planner.brief import covered_failures
from planner.evidence import TurnEvidence
from planner.evidence.effects import retried
from planner.evidence.names import specifics_of
from planner.evidence.user_words import binding_lines
from planner.evidence.words import figures_of, without_figures
from planner.layout import leading_turn
from planner.placeholders import first_note
from planner.reading.history import History
from planner.reading.lines import Line

__all__ = ["Pinned", "memory_room", "pinned", "unknown_view"]

OWN_WORDS_SHARE = 0.5
"""Share of the room for memory, after failures, for the user's typed words, in any language. A fifth keeps .60 of the
entities that CompactBench's chats ask for, two fifths .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of typed words that stay at any target, however small: a few sentences."""
PAGE_FACTOR = 0.5
"""So much of both stays beside a page that a model wrote, which holds what binds in fewer words: graded at a tenth,
four short sessions of talk answered 48 of 66 questions instead of 42."""
ENDS_SHARE = 0.25
"""Share of that room for the latest message, and for the first one, if a message is too long to stay whole."""
MOST_NEWS = 8
"""Largest number of names and figures that count for a message; with more it is a list or pasted text, not a wish."""
LEAST_ROOM_SHARE, LEAST_ROOM_BESIDE_LIVE = 0.1, 0.5
"""Smallest room for memory: a tenth of the target or of the live tail, whichever is larger, at most half of the target.
A view with only the last results would be no memory; and a larger target never has less room."""
LIVE_SHARE = 0.5
"""Largest share of the window for a live tail; a larger one would leave no room for an answer and is demoted."""
PREVIEW_LINES = 12
"""Number of first and of last lines shown of a demoted result: about the 2,000 characters that other systems
preview."""
PREVIEW_SHARE = 0.25
"""Share of the window for all demoted results together: if their lines are long, or they are many, each shows fewer."""


@dataclass(frozen=True)
class Pinned:
    """Parts of a history that stay in every plan, for one window and one target."""

    analysis: Analysis
    whole: frozenset[str]
    """Turns that stay whole: unanswered ones, ones that must not change, and a view with unknown originals."""
    demoted: Mapping[str, frozenset[int]]
    """Lines that stay of turns in the live tail, by turn id, if their results and pasted texts are replaced by previews
    because they fit no window."""
    user_words: Mapping[str, frozenset[int]]
    """Lines that the user typed, by turn id, if they fit."""
    words_left_out: int
    """Number of turns whose typed words do not fit completely."""
    failures: Mapping[str, frozenset[int]]
    """Decisive lines of failures that the brief does not replace, by turn id."""
    successes: Mapping[str, frozenset[int]]
    """Lines of the later success of each failed action, by turn id; with the failure alone the agent would act
    twice."""
    covered: Mapping[str, frozenset[int]]
    """Decisive lines of failures that the brief replaces, by turn id."""

    def lines(self, turn: TurnEvidence) -> frozenset[int]:
        """Return the numbers of the lines of `turn` that stay at any target."""
        kept = (self.failures, self.successes, self.user_words, self.demoted)
        return frozenset().union(*(lines.get(turn.turn.id, frozenset()) for lines in kept))


def pinned(
    analysis: Analysis, window_tokens: int, target_tokens: int, model: str, brief: str | None, planner: str
) -> Pinned:
    """Return the parts of a history that stay in addition to the `brief` of `planner`, for `model` to read; None: the
    brief is not written yet."""
    turns = analysis.evidence.turns
    covered = covered_failures(brief or "", analysis.evidence)
    failures = {
        turn_id: frozenset(turn.decisive_lines) - covered.get(turn_id, frozenset()) for turn_id, turn in turns.items()
    }
    successes = analysis.once(_successes)
    live = [turn for turn in turns.values() if turn.turn.live]
    fits = sum(turn.tokens for turn in live) <= window_tokens * LIVE_SHARE
    demoted = frozenset(turn.turn.id for turn in live if not fits and turn.turn.kind in ("tools", "user"))
    whole = {turn_id for turn_id, turn in turns.items() if turn.turn.must_stay or turn.turn.live} - demoted
    view = unknown_view(analysis.history)
    whole |= {view} if view and turns[view].tokens <= target_tokens else set()
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    factor = 1.0 if planner == "rules" else PAGE_FACTOR
    words, left_out = analysis.once(_user_words, window_tokens, target_tokens, factor)
    previews = analysis.once(_previews, demoted, window_tokens)
    return Pinned(
        analysis, frozenset(whole.union(analysis.broken)), previews, words, left_out, failures, successes, covered
    )


def _successes(analysis: Analysis) -> dict[str, frozenset[int]]:
    """Return the first line of the call, and the lines of the outcome, of each later success of a failed action."""
    turns = analysis.evidence.turns
    lines: dict[str, frozenset[int]] = {}
    for turn_id, number in retried(analysis.evidence).values():
        turn = turns[turn_id]
        call = turn.calls[number]
        own = {turn.lines_of(call.block)[0].number, *turn.outcomes[number].lines}
        lines[turn_id] = lines.get(turn_id, frozenset()) | own
    return lines


def _outcome_tokens(analysis: Analysis) -> float:
    """Return the tokens of the decisive lines of failures, and of the later successes of failed actions."""
    successes = analysis.once(_successes)
    turns = [turn for turn in analysis.evidence.turns.values() if not turn.turn.live]
    lines = [(turn, {*turn.decisive_lines, *successes.get(turn.turn.id, ())}) for turn in turns]
    return analysis.counter.scale * sum(turn.tokens_of(numbers) for turn, numbers in lines)


def memory_room(target_tokens: float, live_tokens: float) -> float:
    """Return the room in a view of `target_tokens` besides the live tail, in the same tokens."""
    least = min(LEAST_ROOM_BESIDE_LIVE * target_tokens, LEAST_ROOM_SHARE * max(live_tokens, target_tokens))
    return max(target_tokens - live_tokens, least)


def unknown_view(history: History) -> str:
    """Return the turn in which the history begins with a likely view of ours whose originals no store has; empty
    without one."""
    return next((turn.id for turn in history.turns[:2] if first_note(history.messages_of(turn)) is not None), "")


def _user_words(
    analysis: Analysis, window_tokens: int, target_tokens: int, factor: float
) -> tuple[dict[str, frozenset[int]], int]:
    """Return the typed lines that stay verbatim, by turn id, and the number of turns with lines that do not fit.

    If everything fits within `factor` of the share, everything stays. Otherwise size decides, in any language: first
    the ends of the latest and of the first message; then lines that bind in English; then whole messages, ordered by
    their names and figures divided by the root of their tokens, as answers, consent and corrections are rather short;
    then the ends of the others. A line that was typed twice stays once, where it was typed last.
    """
    turns = analysis.evidence.turns
    memory = memory_room(target_tokens, analysis.evidence.live_tokens)
    share = OWN_WORDS_SHARE * max(memory - analysis.once(_outcome_tokens), memory / 2)
    most = min(factor * max(share, LEAST_WORDS_TOKENS), (1 - LIVE_SHARE) * window_tokens)
    room = whole_room = most / analysis.counter.scale
    seen: set[str] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        own = {line.text.strip(): line for line in turn.typed_lines}
        typed[turn_id] = sorted(line for text, line in own.items() if text not in seen)
        seen.update(own)
    speaking = [turns[turn_id] for turn_id, own in typed.items() if own and not turns[turn_id].turn.live]
    cost = {turn.turn.id: turn.tokens_of(line.number for line in typed[turn.turn.id]) for turn in speaking}
    words: dict[str, frozenset[int]] = {}
    for turn in (*speaking[:1], *speaking[1:][-1:]):
        numbers = _ends(turn, typed[turn.turn.id], ENDS_SHARE * whole_room)
        words[turn.turn.id] = numbers
        room -= turn.tokens_of(numbers)
    fits = sum(cost.values()) <= whole_room
    every = {turn_id: frozenset(line.number for line in own) for turn_id, own in typed.items()}
    for turn_id, binding in ({} if fits else _binding(typed)).items():
        if not turns[turn_id].turn.live:
            room = _grow(words, turns[turn_id], binding, room)
    for turn in sorted(speaking, key=lambda turn: cost[turn.turn.id] ** 0.3 / (1 + _news(typed[turn.turn.id]))):
        room = _grow(words, turn, every[turn.turn.id], room)
    cut = [turn for turn in speaking if words.get(turn.turn.id) != every[turn.turn.id]]
    for at, turn in enumerate(cut):
        room = _grow(words, turn, _ends(turn, typed[turn.turn.id], room / (len(cut) - at)), room)
    return words, len(cut)


def _news(lines: Sequence[Line]) -> int:
    """Return the number of names and figures in some lines of a message, at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(typed: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[int]]:
    """Return the lines that bind in English, by turn id, the newest first; of lines that differ only in figures the
    newest first, older values last."""
    seen: set[str] = set()
    binding: dict[str, frozenset[int]] = {}
    for turn_id, lines in typed.items():
        forms = {without_figures(line.text.strip()): line.number for line in binding_lines(lines)}
        binding[turn_id] = frozenset(number for form, number in forms.items() if form not in seen)
        seen.update(forms)
    return binding


def _grow(words: dict[str, frozenset[int]], turn: TurnEvidence, numbers: frozenset[int], room: float) -> float:
    """Add lines to the words of a turn if they fit; return the remaining room."""
    own = words.get(turn.turn.id, frozenset())
    more = turn.tokens_of(numbers - own)
    if more > room:
        return room
    words[turn.turn.id] = own | numbers
    return room - more


def _ends(turn: TurnEvidence, lines: Sequence[Line], most: float) -> frozenset[int]:
    """Return the lines at both ends of a message, and those that bind in English, within `most` raw tokens."""
    if turn.tokens_of(line.number for line in lines) <= most:
        return frozenset(line.number for line in lines)
    inward = chain.from_iterable(zip(lines, reversed(lines), strict=True))
    in_order = dict.fromkeys([*lines[:1], *lines[-1:], *binding_lines(lines), *inward])
    ends = accumulate(turn.line_tokens[line.number - 1] for line in in_order)
    return frozenset(line.number for line, end in zip(in_order, ends, strict=True) if end <= most)


def _previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """Return the lines that stay of each demoted turn: as much of its long parts as fits the window."""
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        shown = {turn.turn.id: _preview(turn, most) for turn in turns}
        if sum(turn.tokens_of(shown[turn.turn.id]) for turn in turns) <= room:
            break
    return shown


def _preview(turn: TurnEvidence, most: int) -> frozenset[int]:
    """Return the first and last lines of results and of the user's texts, `most` at either end, at least one of the
    user's; everything that the user typed, and the turn's other content."""
    most = max(most, turn.turn.kind == "user")
    long = {call.result_block for call in turn.calls}
    long |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in turn.lines.outside(long)}
    for own in map(turn.lines_of, long):
        shown.update(line.number for line in (*own[:most], *own[::-1][:most]))
    return frozenset(shown)
