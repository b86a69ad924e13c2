"""What is asked of the planner model by cards: one question, or for a large history several that run side by side.

Every question knows the latest request, the task, the user's words of the whole history, and what is known of the
turns around its own. A plan after a plan shows the new turns as cards, and of earlier ones a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import ceil

from planner.decision import TurnDecision
from planner.evidence import TurnEvidence
from planner.evidence.boilerplate import without_boilerplate
from planner.evidence.state import (
    Said,
    branches,
    changed_files,
    check_outcomes,
    commits,
    open_items,
    pending_changes,
    remedies,
)
from planner.model.answer import Scope
from planner.model.cards import Card, turn_cards, turn_head
from planner.model.entries import BEST_SCORE
from planner.model.prompts import Prompts, one_line, safe_text
from planner.plan import CompactionPlan
from planner.proposal import PlanRequest
from planner.reading.lines import statements
from planner.selection import brief_limit, least_tokens

__all__ = [
    "Question",
    "Sizes",
    "earlier_plan",
    "latest_request",
    "plan_questions",
    "sizes_text",
    "task_text",
    "turn_index",
]

TASK_CHARACTERS, TASK_OPENING = 6_000, 600
"""A longer task is cut in its middle; of one that stands on a card anyway, this much is said again."""
REQUEST_CHARACTERS = 1_500
"""How much of the latest request is named."""
NEIGHBOURS = 12
"""Turns on either side of a piece that are named to it."""
HEAD_CHARACTERS, WORDS_CHARACTERS, WORD_CHARACTERS = 100, 6_000, 240
"""Of the user's words half as many stand in a later plan's question: the brief that it updates has the older ones."""
BRIEF_RATIO = 0.025
"""The brief takes at most this share of the history. On six sessions a brief of 2.3 % answered .84 of what the
continuation needed, more than any line of that size."""
ENTRIES_RATIO = 0.004
"""The share of its turns' tokens that the rest of an answer may take: with the brief, a few words too many in it, and
the marks of JSON 3 %."""
BRIEF_FLOOR_TOKENS, ENTRIES_FLOOR_TOKENS = 1_500, 300
"""In a small history the answer may take more than its share, as far as the target leaves room: it costs little there,
and a page is a page."""
BRIEF_OUTPUT_SHARE = 0.6
"""Of the output limit."""
TOKENS_A_WORD, TOKENS_A_LINE = 3.5, 72
"""Of dense notes with paths and names, in the counter's tokens (a good upper bound of the provider's): eleven briefs of
real models had 3.2 to 3.7 a word and 67 to 78 a line, and kept to the words they were told within 7 %."""
TOKENS_AN_ENTRY = 22
"""What an entry or a fact of those answers took."""
CHOICE_SHARE = 0.5
"""Of the space beside the brief, what a planner is told to choose: on eleven answers at a tenth of the history what
rules put there answered as many questions as all that real models chose."""
OUTCOMES_CHARACTERS = 6_000
"""How much is said of what the calls did, the newest first: 400 to 1,000 tokens on six sessions."""
FRAME_TOKENS, LEAST_CHOICE_TOKENS = 240, 200
"""What frames the brief in the view; and with less than this left nothing is to be chosen."""
EARLIER_SHARE = 0.15
"""Of the input of a later plan, what lines of earlier turns may take."""
LATER_FLOOR_TOKENS = 6_000
"""A later plan may read this many tokens however little is new."""


@dataclass(frozen=True)
class Sizes:
    """What the model is told of sizes, in tokens."""

    brief: int
    entries: int

    @classmethod
    def of(cls, request: PlanRequest, turns: Sequence[TurnEvidence]) -> Sizes:
        """For an answer about `turns`."""
        here = sum(turn.tokens for turn in turns)
        whole = max(1, request.evidence.tokens)
        target = min(whole, request.target_tokens) * here // whole
        most = int(request.settings.max_output_tokens * BRIEF_OUTPUT_SHARE)
        room = int(brief_limit(target, least_tokens(request) * here // whole))
        brief = min(max(int(here * BRIEF_RATIO), BRIEF_FLOOR_TOKENS), room, most)
        entries = max(ENTRIES_FLOOR_TOKENS, int(here * ENTRIES_RATIO))
        return cls(brief, min(entries, most // 2))

    @property
    def brief_text(self) -> str:
        """How long the brief may be, in words a model can count by."""
        words, lines = int(self.brief / TOKENS_A_WORD), max(5, self.brief // TOKENS_A_LINE)
        return f"a brief of at most {words} words (all that stands between two spaces), about {lines} lines"


@dataclass(frozen=True)
class Question:
    """One request to the planner model."""

    scope: Scope
    """The turns it may rank."""
    values: Mapping[str, str]
    """What fills the places of the prompt ``plan``."""

    def text(self, prompts: Prompts, notes: str = "") -> str:
        """The user message; `notes` are the briefs of the turns before, where others were asked for them."""
        brief = "\n".join(part for part in (self.values["brief"], safe_text(notes)) if part)
        return prompts.render("plan", **{**self.values, "brief": brief or "(none yet)"})


def plan_questions(request: PlanRequest, prompts: Prompts) -> tuple[Question, ...]:
    """The questions about ``request.history``, in its order, each with cards of at most ``settings.piece_tokens``."""
    earlier = earlier_plan(request)
    turns = list(request.evidence.turns.values())[earlier.history.turns - 1 if earlier else 0 :]
    said = [one for read in _OUTCOMES for one in read(request.evidence)]
    empty = _question(request, turns, "", said, earlier).text(prompts)
    around = request.counter.text(prompts.system + empty)
    pieces = _split(_cards(request, turns, around, later=earlier is not None), request.settings.piece_tokens)
    questions = []
    for cards in pieces:
        own, text = [turn for card in cards for turn in card.turns], "\n".join(card.text for card in cards)
        questions.append(_question(request, own, text, said, earlier))
    return tuple(questions)


def earlier_plan(request: PlanRequest) -> CompactionPlan | None:
    """The previous plan, if it was made for a prefix of this very history."""
    plan = request.previous
    if plan is None or not 1 < plan.history.turns <= len(request.history.turns):
        return None
    return plan if request.history.digest_at(plan.history.messages) == plan.history.digest else None


def _cards(request: PlanRequest, turns: Sequence[TurnEvidence], around_tokens: int, *, later: bool) -> tuple[Card, ...]:
    """Cards of `turns` within the planner's share of them, less what stands around the cards in each piece."""
    settings = request.settings
    floor = min(settings.planner_input_floor_tokens, LATER_FLOOR_TOKENS if later else 10**9)
    budget = max(floor, int(sum(turn.tokens for turn in turns) * settings.planner_input_ratio))
    pieces = 1 + budget // settings.piece_tokens
    return turn_cards(request, turns, max(budget // 3, budget - pieces * around_tokens))


def _split(cards: Sequence[Card], most_tokens: int) -> Iterator[Sequence[Card]]:
    """Runs of cards of about the same size, none larger than `most_tokens` but a card that is."""
    whole = sum(card.tokens for card in cards)
    largest = max((card.tokens for card in cards), default=0)
    most_tokens = min(most_tokens, whole // max(1, ceil(whole / most_tokens)) + largest // 2)
    piece: list[Card] = []
    tokens = 0
    for card in cards:
        if piece and tokens + card.tokens > most_tokens:
            yield piece
            piece, tokens = [], 0
        piece.append(card)
        tokens += card.tokens
    if piece:
        yield piece


def _question(
    request: PlanRequest,
    turns: Sequence[TurnEvidence],
    cards: str,
    said: Sequence[Said],
    earlier: CompactionPlan | None,
) -> Question:
    everyone = list(request.evidence.turns.values())
    scope = Scope(turns, everyone[: earlier.history.turns - 1] if earlier else ())
    start, stop = (turns[0].turn.number - 1, turns[-1].turn.number) if turns else (0, 0)
    index = turn_index(request, earlier) if earlier else _heads(request, everyone[max(0, start - NEIGHBOURS) : start])
    values = {
        "latest": latest_request(everyone),
        "task": task_text(request.task, scope),
        "focus": safe_text(request.focus).strip() or "(nothing in particular)",
        "sizes": _sizes(request, scope, last=stop == len(everyone)),
        "user_words": _words(everyone, WORDS_CHARACTERS // (2 if earlier else 1)) or "(none)",
        "outcomes": _outcomes(said, scope) or "(none)",
        "brief": safe_text(earlier.brief) if earlier else "",
        "before": index or "(none)",
        "cards": cards,
        "after": _heads(request, everyone[stop : stop + NEIGHBOURS]) or "(none)",
    }
    return Question(scope, values)


def _sizes(request: PlanRequest, scope: Scope, *, last: bool) -> str:
    """What the whole is, what may stay, and how long the answer may be."""
    whole, here = request.evidence.tokens, sum(turn.tokens for turn in scope.turns)
    sizes = Sizes.of(request, list(request.evidence.turns.values()) if last else scope.turns)
    text = sizes_text(request, sizes)
    if here < whole:
        part = "write the brief of the whole" if last else "the brief you write is of these turns alone"
        text += f"\nThe cards below are {scope.name}, {here} tokens of it; {part}."
    root = request.evidence.root
    return text + f"\nRelative paths on the cards are in {safe_text(root)}." * bool(root)


def sizes_text(request: PlanRequest, sizes: Sizes) -> str:
    """How large the conversation is, what of it may stay, and how long the answer may be."""
    turns, whole = len(request.evidence.turns), request.evidence.tokens
    stay, least = min(whole, request.target_tokens), least_tokens(request)
    free = stay - least - sizes.brief - FRAME_TOKENS
    text = (
        f"The conversation has {turns} turns and {whole} tokens. At most {stay} of them may stay. LIVE turns and "
        f"`kept` lines take {least} in any case{', more than that' * (least > stay)}"
    )
    if free < LEAST_CHOICE_TOKENS:
        return f"{text}, the brief all the rest.\nYour answer: {sizes.brief_text}; leave `turns` empty."
    entries, most = sizes.entries // TOKENS_AN_ENTRY, int(free * CHOICE_SHARE)
    return (
        f"{text}, the brief {sizes.brief}; of the {free} left choose at most {most}, the rest is filled.\n"
        f"Your answer: {sizes.brief_text}; at most {entries} entries."
    )


def _heads(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    shorten = request.evidence.shown
    return "\n".join(f"{turn.turn.id} · {turn_head(turn, HEAD_CHARACTERS, shorten)}" for turn in turns)


def latest_request(turns: Sequence[TurnEvidence]) -> str:
    """The newest words of the user with their turn; of a short answer, what it chose or answered, too."""
    turn = next((turn for turn in reversed(turns) if turn.user_lines), None)
    if turn is None:
        return "(none)"
    words = "\n".join(statement.text for statement in statements(turn.user_lines))
    text = f"{turn.turn.id}: {one_line(without_boilerplate(words), REQUEST_CHARACTERS)}"
    if turn.choice is None:
        return text
    return f"{text}\n(which answers {turn.choice.turn_id}: {one_line(turn.choice.text, REQUEST_CHARACTERS)})"


def _words(turns: Sequence[TurnEvidence], characters: int) -> str:
    """What users said, the newest turns first, as far as it fits; in the order of the turns.

    Of a long message what binds the agent comes first, and one message takes a quarter at most.
    """
    chosen: dict[tuple[int, int], str] = {}
    room = characters
    for turn in reversed(turns):
        own = min(room, characters // 4)
        room -= own
        for words in (*turn.statements_of(turn.constraint_lines), *statements(turn.user_lines)):
            place, text = (
                (turn.turn.number, words.numbers[0]),
                f"{turn.turn.id}: {one_line(words.text, WORD_CHARACTERS)}",
            )
            if place not in chosen and words.text.strip() and len(text) < own:
                own -= len(text) + 1
                chosen[place] = text
        room += own
    return "\n".join(chosen[place] for place in sorted(chosen))


_OUTCOMES = (changed_files, check_outcomes, pending_changes, commits, branches, remedies, open_items)


def _outcomes(said: Sequence[Said], scope: Scope) -> str:
    """What the calls of `scope` did, a line each, as far as it fits; of more, what came last."""
    number = {turn.turn.id: turn.turn.number for turn in scope.turns}
    lines = {one_line(f"{one.text} ({', '.join(one.turn_ids)})", OUTCOMES_CHARACTERS): one for one in said}
    newest = {line: max((number.get(turn_id, 0) for turn_id in one.turn_ids), default=0) for line, one in lines.items()}
    room, chosen = OUTCOMES_CHARACTERS, set()
    for line in sorted((line for line in lines if newest[line]), key=lambda line: -newest[line]):
        room -= len(line) + 1
        if room < 0:
            break
        chosen.add(line)
    return "\n".join(line for line in lines if line in chosen)


def task_text(task: str, scope: Scope) -> str:
    """The task; of one that stands in a turn of `scope` anyway, its beginning."""
    words = " ".join(task.split())
    card = next(
        (turn for turn in scope.turns if turn.turn.kind == "user" and words in " ".join(turn.text.split())), None
    )
    if card is not None and len(words) > TASK_OPENING:
        return f"{one_line(task, TASK_OPENING)} (goes on in {card.turn.id})"
    text = safe_text(task).strip()
    if len(text) > TASK_CHARACTERS:
        half = TASK_CHARACTERS // 2
        text = f"{text[:half].rstrip()}\n[…]\n{text[-half:].lstrip()}"
    return text or "(not stated)"


def turn_index(request: PlanRequest, earlier: CompactionPlan) -> str:
    """A line for each turn that `earlier` decided, with what it decided; runs of what is gone share one.

    Heads get shorter until all lines fit `EARLIER_SHARE` of what the planner may read of the new turns.
    """
    settings, turns = request.settings, list(request.evidence.turns.values())
    old, new = turns[: earlier.history.turns - 1], turns[earlier.history.turns - 1 :]
    share = sum(turn.tokens for turn in new) * settings.planner_input_ratio
    most = max(share, LATER_FLOOR_TOKENS) * EARLIER_SHARE
    decisions = earlier.decisions
    text = ""
    for characters in (120, 60, 30, 0):
        lines = []
        fate = partial(_fate, decisions, characters)
        for (strategy, gone), run in groupby(old, fate):
            members = list(run)
            lines += (
                [_run_line(members, strategy)] if gone else [_line(request, t, decisions, characters) for t in members]
            )
        text = "\n".join(lines)
        if request.counter.text(text) <= most:
            break
    return text


def _fate(decisions: Mapping[str, TurnDecision], characters: int, turn: TurnEvidence) -> tuple[str, bool]:
    """What was decided of a turn, and whether its line may be shared with its neighbours of the same fate."""
    decision = decisions.get(turn.turn.id)
    strategy = decision.strategy if decision is not None else "keep"
    return strategy, strategy in ("drop", "reference") or not characters


def _run_line(turns: Sequence[TurnEvidence], strategy: str) -> str:
    first, last = turns[0].turn.id, turns[-1].turn.id
    name = first if first == last else f"{first}-{last}"
    return f"{name} · {sum(turn.tokens for turn in turns)} tokens · {strategy}"


def _line(request: PlanRequest, turn: TurnEvidence, decisions: Mapping[str, TurnDecision], characters: int) -> str:
    decision = decisions.get(turn.turn.id)
    head = f"{turn.turn.id} · {turn.tokens} tokens · {turn_head(turn, characters, request.evidence.shown)}"
    if decision is None:
        return head
    gist = one_line(decision.summary, characters)
    text = f"{head} · {decision.strategy} {round(decision.relevance_score * BEST_SCORE)}"
    return f"{text} · {gist}" if gist else text
