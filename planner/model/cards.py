"""Turn cards: the excerpts of turns that the planner model reads to judge them, within one token budget.

A card is a header (the turn's id, size, calls and hints) and lines of the turn with their numbers, so that the model
can answer by numbers. An index shows each turn as one line instead: id, size and calls. Nothing here decides which
turns stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from planner.evidence import TurnEvidence
from planner.later_plans import read_and_new
from planner.model.answer import BEST_SCORE, spans
from planner.model.card_lines import card_line, is_in_header, lines_of_cards
from planner.model.prompts import safe_line, safe_text
from planner.pinned import Pinned, pinned
from planner.plan import CompactionPlan, PlanRequest
from planner.reading.lines import Line
from planner.reading.tokens import TokenCounter

HEADER_CALLS_CHARACTERS, NEIGHBOUR_CALLS_CHARACTERS = 160, 100
"""Largest lengths of the text that lists a turn's tool calls: in the header of its card, and in the one line that shows
a neighbouring turn."""
INDEX_CHARACTERS, CHOICE_CHARACTERS = (100, 60, 30, 12), (80, 40, 0)
"""Largest lengths of the text that lists a turn's tool calls, in an index of all turns and in a list of an earlier
plan's choices. The first length with which the whole index or list fits its budget is used."""
INDEX_SHARE, INDEX_FLOOR_TOKENS, EARLIER_TOKENS = 0.03, 2_000, 1_000
"""Limits of the index of turns in a question that is added to the agent's own cached request: a share of the history's
tokens, or this number of tokens if that is more; and the tokens in it for an earlier plan's choices. There are limits
because the provider does not cache the index."""
MOST_FLAGS = 16
"""Number of a tool call's arguments that are searched for switches (arguments with the value True)."""
PINNED_MARK = "*"
"""Character after the number of a card's line that stays in the context whatever the planner model decides."""
_PART_MARKS = {"user": "|", "assistant": ":", "call": ">", "result": "|"}
"""Character after the number of a card's line, by the part of the turn: ``12> grep -n foo``."""


@dataclass(frozen=True)
class Card:
    """Excerpt of one turn for the planner model, or one header for several neighbouring turns."""

    turns: Sequence[TurnEvidence]
    header: str
    lines: tuple[Line, ...]
    text: str
    """Text that the model reads: the header, and the numbered lines below it."""
    tokens: int


def turn_cards(
    request: PlanRequest, turns: Sequence[TurnEvidence], budget_tokens: int, *, mark_pinned: bool = True
) -> tuple[Card, ...]:
    """Return the excerpts of `turns` that the planner model reads, in order, within about `budget_tokens` in all.
    Neighbouring turns for whose lines there is no space share one card, a header. With `mark_pinned`, a mark shows the
    lines that stay whatever the model decides, so that it does not choose them."""
    chosen = lines_of_cards(
        request, turns, lambda turn: _header(request, turn, len(turn.lines)), budget_tokens / request.counter.scale
    )
    pinned_lines = _pinned(request) if mark_pinned else None
    cards: list[Card] = []
    for turn_id, group in groupby(turns, key=lambda turn: turn.turn.id if turn.turn.id in chosen else ""):
        if turn_id:
            cards.append(_card(request, pinned_lines, next(group), *chosen[turn_id]))
            continue
        run = list(group)
        what = f"{len(run)} turns" if len(run) > 1 else "no lines shown"
        header = f"## {spans(turn.turn.number for turn in run)} · {sum(turn.tokens for turn in run)} · {what}"
        cards.append(Card(run, header, (), header, request.counter.text(header)))
    return tuple(cards)


def _pinned(request: PlanRequest) -> Pinned:
    """Return what stays in the context whatever the planner model decides."""
    settings = request.settings
    view = settings.window_tokens, request.target_tokens, settings.target_model
    return pinned(request.analysis, *view, None, "model")


def _card(
    request: PlanRequest,
    pinned_lines: Pinned | None,
    turn: TurnEvidence,
    shown: frozenset[int],
    repeats: Mapping[str, int],
) -> Card:
    """Return the card of `turn` with the lines `shown`. If other cards show the same text as lines that are left out,
    the header names the one with most of them, by `repeats`."""
    header = _header(request, turn, 0)  # without the number of all lines, unless lines are left out
    left_out = [line for line in turn.lines if line.number not in shown and line.text.strip()]
    if not all(line.part == "call" and is_in_header(card_line(request, turn, line), header) for line in left_out):
        header = _header(request, turn, len(turn.lines))
    if repeats:
        source = max(repeats, key=repeats.__getitem__)
        count = "1 line" if repeats[source] == 1 else f"{repeats[source]} lines"
        header += f" · {count} as in {source}"
    marks = _marks(turn) if shown else {}
    pins = {} if pinned_lines is None or turn.turn.live else pinned_lines.lines
    staying = pins.get(turn.turn.id, frozenset())
    lines = tuple(turn.lines[number - 1] for number in sorted(shown))
    rows = [header]
    for line in lines:
        pinned_mark = PINNED_MARK if line.number in staying else ""
        rows.append(f"{line.number}{marks[line.number]}{pinned_mark} {safe_text(card_line(request, turn, line))}")
    text = "\n".join(rows)
    return Card([turn], header, lines, text, request.counter.text(text))


def _marks(turn: TurnEvidence) -> Mapping[int, str]:
    """Return the mark of each line by its number, such as ``>`` for a call. The prompt explains the marks."""
    marks = {line.number: ":" if line.source == "planner" else _PART_MARKS[line.part] for line in turn.lines}
    for place, call in enumerate(turn.calls, 1):
        marks |= turn.sides(call)  # "+" and "-" for the new and old lines of an edit
        if len(turn.calls) > 1:
            marks |= {line.number: f"|{place}" for line in turn.lines.of_block(call.result_block)}
    marks |= {number: "!" for number in turn.failure_lines if marks[number][0] in "|>"}
    return marks | {line.number: '"' for line in turn.user_lines}


# Headers.


def _header(request: PlanRequest, turn: TurnEvidence, all_lines: int) -> str:
    """Return the header of a turn's card: ``## t12 · 812/40 · Read a.py`` with its tokens and `all_lines`, if not 0."""
    size = f"{turn.tokens}/{all_lines}" if all_lines else f"{turn.tokens}"
    calls = _calls_or_sender(request, turn, HEADER_CALLS_CHARACTERS)
    return " · ".join(filter(None, (f"## {turn.turn.id}", size, calls, *_hints(turn))))


def _calls_or_sender(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the distinct tool calls of `turn`, ``Read src/a.py ×2``, or without calls its sender, in `characters`."""
    if not characters:
        return ""
    texts = Counter[str]()
    for call in turn.calls:
        subject = _cut_subject(request.evidence.shown(call.head_subject), characters // 2)
        # arguments that are True, such as ``replace_all``, change what the call does
        flags = (name for name, value in islice(call.input.items(), MOST_FLAGS) if value is True)
        texts[" ".join(filter(None, (call.name, subject, *flags)))] += 1
    calls = "; ".join(f"{text} ×{count}" if count > 1 else text for text, count in texts.items())
    sender = "agent" if turn.turn.kind == "assistant" else turn.turn.kind
    return safe_line(calls or sender, characters)


def _cut_subject(subject: str, most: int) -> str:
    """Shorten `subject` to `most` characters: a path keeps its end, anything else its beginning."""
    if len(subject) > most and "/" in subject and " " not in subject:
        return f"…{subject[1 - most :]}"
    return safe_line(subject, most)


def _hints(turn: TurnEvidence) -> list[str]:
    """Return remarks for a header: how the calls ended, and ``LIVE`` if the turn stays as it is not answered yet."""
    hints = []
    if any(map(turn.is_refused, turn.calls)):
        hints.append("hint: refused by the user")
    elif turn.failed:
        hints.append("hint: failed?")
    if not turn.failed and any(outcome.status == "passed" for outcome in turn.outcomes):
        hints.append("hint: passed")
    empty = [
        place
        for place, call in enumerate(turn.calls, 1)
        if call.result_block is not None
        and not any(line.text.strip() for line in turn.lines.of_block(call.result_block))
    ]
    if empty:
        hints.append("empty result" if len(turn.calls) == 1 else f"empty result of call {', '.join(map(str, empty))}")
    if turn.turn.live:
        hints.append("LIVE")
    return hints


# Lines of an index.


def _index_line(request: PlanRequest, turn: TurnEvidence, characters: int) -> str:
    """Return the id, tokens, number of lines, and calls or first words of `turn` on one line."""
    text = _calls_or_sender(request, turn, characters)
    if not turn.calls and turn.lines:
        text = safe_line(f"{text}: {(turn.user_lines or turn.lines)[0].text}", characters)
    return f"{turn.turn.id} · {turn.tokens}/{len(turn.lines)} · {text}"


def turn_lines(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    """Return one line about each of `turns`, as context: they are next to the turns that the model is asked about."""
    return "\n".join(_index_line(request, turn, NEIGHBOUR_CALLS_CHARACTERS) for turn in turns)


def _first_that_fits(texts: Iterable[str], counter: TokenCounter, most_tokens: float) -> str:
    """Return the first of `texts` that has at most `most_tokens`, or the last one if all are longer."""
    text = ""
    for text in texts:
        if counter.text(text) <= most_tokens:
            break
    return text


def earlier_choices(request: PlanRequest, earlier: CompactionPlan, most_tokens: int) -> str:
    """Return the choices in the plan `earlier` as lines within about `most_tokens`, so that the model can update them.
    Each turn that was kept or summarized has its own line; neighbouring turns that were replaced or dropped share one.
    To fit, the lines get shorter, and at last any neighbouring turns with the same choice share a line."""
    read, _ = read_and_new(request, earlier)
    chosen_ids = frozenset(earlier.provenance.named) & earlier.decisions.keys()
    turns = [turn for turn in read if turn.turn.id in chosen_ids]
    texts = ("\n".join(_choice_lines(request, earlier, turns, characters)) for characters in CHOICE_CHARACTERS)
    return _first_that_fits(texts, request.counter, most_tokens)


def _choice_lines(
    request: PlanRequest, earlier: CompactionPlan, turns: Sequence[TurnEvidence], characters: int
) -> Iterator[str]:
    """Yield the lines of `earlier_choices`, with calls and summaries of at most `characters`. Neighbouring turns share
    a line if they were replaced or dropped; with 0 `characters`, also if they were kept or summarized."""
    for strategy, run in groupby(turns, lambda turn: earlier.decisions[turn.turn.id].strategy):
        members = list(run)
        if strategy in ("reference", "drop") or not characters:
            tokens = sum(turn.tokens for turn in members)
            yield f"{spans(turn.turn.number for turn in members)} · {tokens} tokens · {strategy}"
            continue
        for turn in members:
            decision = earlier.decisions[turn.turn.id]
            choice = f"{strategy} {round(decision.relevance_score * BEST_SCORE)}"
            summary = safe_line(decision.summary, characters)
            yield " · ".join(filter(None, (_index_line(request, turn, characters), choice, summary)))


def history_index(request: PlanRequest, earlier: CompactionPlan | None) -> str:
    """Return an index of the whole history: the choices in the plan `earlier`, if there is one, then a line for each
    turn that no planner has read yet. These lines get shorter until all fit the budget."""
    read, new_turns = read_and_new(request, earlier)
    first_texts = []
    if earlier is not None:
        other_turns = f"{spans(turn.turn.number for turn in read)} · all others: the best of their lines stand"
        first_texts = [text for text in (earlier_choices(request, earlier, EARLIER_TOKENS), other_turns) if text]
    pins = _pinned(request)
    users_turns = pins.user_words.keys() - pins.words_left_out.keys()

    def stays(turn: TurnEvidence) -> str:
        """Return a mark if the whole turn stays in any case, or all that the user typed in it does."""
        kept = " · kept" if turn.typed_lines and turn.turn.id in users_turns else ""
        return " · LIVE" if turn.turn.live else kept

    texts = (
        "\n".join([*first_texts, *(f"{_index_line(request, turn, characters)}{stays(turn)}" for turn in new_turns)])
        for characters in INDEX_CHARACTERS
    )
    most_tokens = max(INDEX_FLOOR_TOKENS, request.analysis.tokens * INDEX_SHARE)
    return _first_that_fits(texts, request.counter, most_tokens)
