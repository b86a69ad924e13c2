"""From a proposal to decisions: what the planner says happens, as far as the target goes.

The turn with the highest score first gets what the planner asked for, else the next step down (keep, summarize,
reference, drop); what is pinned always stands. Space left over is filled with the rules' next best lines. A higher
score or a stronger strategy never gets a turn less: its place in the order only moves forward, and every size is an
upper bound that depends on its own turn alone. Pure: no model, no store, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import accumulate, chain, takewhile
from typing import Any

from planner.analysis import Analysis
from planner.brief import (
    Statement,
    answered_messages,
    brief_text,
    fit_brief,
    read_brief,
    told_demands,
    told_failures,
)
from planner.evidence import TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.evidence.user_words import typed_lines
from planner.layout import leading_turn
from planner.placeholders import entry_text, first_note, guide_text, line_numbers, media_marks, note_parts, ranges_of
from planner.plan import Finding, Provenance, Strategy, TurnDecision
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.lines import Line
from planner.reading.patterns import lazy_pattern
from planner.relevance.ranking import MARK_TOKENS, Pick, Told, rank_lines

__all__ = [
    "KEPT",
    "Pinned",
    "Selection",
    "brief_limit",
    "least_tokens",
    "opening_lines",
    "pinned",
    "select",
    "unknown_view",
]

STEPS: tuple[Strategy, ...] = ("keep", "summarize", "reference", "drop")
"""From the most a turn can get to the least."""
BRIEF_SHARE = 0.8
"""Of the room beside what stands in any case a planner is told that the brief may take so much, and where there is room
it takes more: a writer cannot count its tokens. The rest is for exact lines: on six sessions a page in its own words
answered more than twice its size in lines, and on two of 220,000 tokens 11,000 tokens more of lines answered .03."""
LEAST_ROOM_SHARE = 0.5
"""Brief and fill together always have this share of the target, however large the live tail is: a view that holds no
more than the last results is no memory."""
KEPT_RAW_TOKENS = 40
"""What a kept turn in the middle costs besides itself: the note before it is closed and another one opened."""
OPENING_LINES = 2
"""How many lines speak for a turn, with its last one, where a summary is wanted and there are no words that hold."""
OWN_WORDS_SHARE = 0.5
"""So much of the target the user's own words may take, whatever they say: in agent sessions they are nearly always
less, and no list of words tells in every language what binds (DESIGN, rule 13). A fifth keeps .60 of the entities that
CompactBench's chats ask for, two fifths .96, and the exams score the same with each."""
DEMANDS_SHARE = 0.25
"""So much of the window the user's demands may take; what is beyond it is stored, and a finding says so: a list that
never fits the window helps nobody."""
LONG_MESSAGE_SHARE = 0.125
"""Of the target: what more a message demands that was answered, and that the brief tells, stands no second time. The
long first message of a session took a third to a half of its view beside the page that told it."""
LIVE_SHARE = 0.5
"""A live tail may fill this share of the window; what is larger would leave no room for an answer and is demoted."""
IMAGE_SHARE = 0.1
"""A turn in which the user showed an image or a document stands whole where it takes so much of the space left over:
no line says what is on it, and an agent that must fetch it has to guess that."""
PREVIEW_LINES = 12
"""A demoted result shows this many of its first and of its last lines: about the 2,000 characters that other
systems preview (REFERENCE 5)."""
PREVIEW_SHARE = 0.25
"""All demoted results together show no more of the window: where their lines are long, or they are many, each shows
fewer."""
MOST_WEIGHT = 2.0
"""How much more than by itself a line is worth in the fill at score 1; at score 0 so much less."""
EVERY_MARK = ("✗\n> \n| \n+ …",)
KEPT: Mapping[str, Any] = {"strategy": "keep", "summary": "", "excerpts": ()}
"""What is changed in a decision that keeps its turn."""

_CHANGED = lazy_pattern(r"(\S+): (?:edited|written)")
"""A statement that a file was changed and no more: ``a.py: edited``; not ``a.py: edited, last change failed``."""


@dataclass(frozen=True)
class Selection:
    """Decisions for every turn, in order, and the brief that fits beside them."""

    decisions: Mapping[str, TurnDecision]
    brief: str = ""
    filled_tokens: int = 0
    """What the rules chose of it."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Pinned:
    """What stands of a history whatever a plan says, in a window and at a target of so many tokens."""

    analysis: Analysis
    whole: frozenset[str]
    """Turns that stand whole: what is not answered, what must not be touched, a view whose originals nobody has."""
    demoted: Mapping[str, frozenset[int]]
    """Lines that stand of turns of the live tail, by id, whose results, and what the user pasted, give way to previews:
    no window holds them."""
    user_words: Mapping[str, frozenset[int]]
    """Lines of the user's, by turn id: what he demands, and what else he typed."""
    demands_stored: int
    """Of so many turns the user's demands have no room in the window."""
    failures: Mapping[str, frozenset[int]]
    """Lines that decided failures and that the brief does not tell, by turn id."""
    told: Mapping[str, frozenset[int]]
    """Those that it tells."""

    def lines(self, turn: TurnEvidence) -> frozenset[int]:
        """Numbers of the lines of `turn` that stand at any target."""
        own = self.failures[turn.turn.id] | self.user_words.get(turn.turn.id, frozenset())
        return own | self.demoted.get(turn.turn.id, frozenset())


def pinned(analysis: Analysis, window_tokens: int, target_tokens: int, model: str, brief: str | None) -> Pinned:
    """What stands of a history beside `brief`, for `model` to read; but for that it is read once. None: beside one that
    is yet to be written and tells what was answered."""
    turns = analysis.evidence.turns
    told = analysis.once(_told, brief or "")
    failures = {
        turn_id: frozenset(turn.decisive_lines) - told.get(turn_id, frozenset()) for turn_id, turn in turns.items()
    }
    live = [turn for turn in turns.values() if turn.turn.live]
    fits = sum(turn.tokens for turn in live) <= window_tokens * LIVE_SHARE
    demoted = frozenset(turn.turn.id for turn in live if not fits and turn.turn.kind in ("tools", "user"))
    whole = {turn_id for turn_id, turn in turns.items() if turn.turn.must_stand or turn.turn.live} - demoted
    view = analysis.once(unknown_view)
    whole |= {view} if view and turns[view].tokens <= target_tokens else set()
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    words, demands_stored = analysis.once(_user_words, window_tokens, target_tokens, brief)
    previews = analysis.once(_previews, demoted, window_tokens)
    return Pinned(analysis, frozenset(whole.union(analysis.broken)), previews, words, demands_stored, failures, told)


def unknown_view(analysis: Analysis) -> str:
    """The turn in which the history begins with what looks like a view of ours, told apart before where a store knows
    it; empty if there is none."""
    history = analysis.history
    return next((turn.id for turn in history.turns[:2] if first_note(history.messages_of(turn)) is not None), "")


def _told(analysis: Analysis, brief: str) -> dict[str, frozenset[int]]:
    return told_failures(brief, analysis.evidence)


def _told_demands(analysis: Analysis, brief: str | None) -> Mapping[str, frozenset[int]]:
    """Of messages that were answered; all of them where the brief is yet to be written."""
    if brief is not None:
        return told_demands(brief, analysis.evidence)
    turns = analysis.evidence.turns
    return {turn_id: frozenset(turns[turn_id].pinned_lines) for turn_id in answered_messages(analysis.evidence)}


def _user_words(
    analysis: Analysis, window_tokens: int, target_tokens: int, brief: str | None
) -> tuple[dict[str, frozenset[int]], int]:
    """Of the user's lines, by turn id, what he demands, as far as the window has room, and what else he typed, whatever
    it says, as far as it is a small part of the target; and of how many turns the demands have no room. Of long
    messages what `brief` does not tell, and the last demands.

    The last message comes first, then the first one, then from the newest on; what was said twice stands at its last
    place.
    """
    scale = analysis.counter.scale
    turns = analysis.evidence.turns
    demanding = _last_and_first([turn for turn in turns.values() if turn.pinned_lines])
    demands: dict[str, frozenset[int]] = {}
    most = LONG_MESSAGE_SHARE * target_tokens / scale
    told = analysis.once(_told_demands, brief)
    long = {turn_id for turn_id in told if _line_tokens(turns[turn_id], turns[turn_id].pinned_lines) > most}
    left = DEMANDS_SHARE * window_tokens / scale
    for turn in demanding:
        numbers = frozenset(turn.pinned_lines)
        if turn.turn.id in long:
            numbers = numbers - told[turn.turn.id] | _last_lines(turn, most)
        left -= _line_tokens(turn, numbers)
        if left < 0:
            break
        demands[turn.turn.id] = numbers
    words = dict(demands)
    said: set[str] = set()
    left = OWN_WORDS_SHARE * min(target_tokens, (1 - LIVE_SHARE - DEMANDS_SHARE) * window_tokens) / scale
    speaking = [turn for turn in turns.values() if turn.user_lines and not turn.turn.live and turn.turn.id not in long]
    for turn in _last_and_first(speaking):
        own = [line for line in turn.once(_typed) if line.text.strip() not in said]
        typed, demanded = {line.number for line in own}, demands.get(turn.turn.id, frozenset())
        cost = _line_tokens(turn, typed - demanded)
        if cost > left:
            continue
        left -= cost
        said.update(line.text.strip() for line in own)
        words[turn.turn.id] = demanded | typed
    return words, len(demanding) - len(demands)


def _last_lines(turn: TurnEvidence, most: float) -> frozenset[int]:
    """The last of what a message demands within so many raw tokens: what holds for all of it stands at its end."""
    numbers = turn.pinned_lines[::-1]
    ends = accumulate(turn.line_tokens[number - 1] for number in numbers)
    return frozenset(number for number, end in zip(numbers, ends, strict=True) if end <= most)


def _last_and_first(turns: Sequence[TurnEvidence]) -> list[TurnEvidence]:
    return [*turns[-1:], *turns[:-1][:1], *reversed(turns[1:-1])]


def _line_tokens(turn: TurnEvidence, numbers: Iterable[int]) -> int:
    return sum(turn.line_tokens[number - 1] for number in numbers)


@dataclass(frozen=True)
class _Standing:
    """What is to stand of a turn: its lines, and the calls, by their places, whose heads these bring with them."""

    lines: set[int]
    calls: set[int]


def _shown_calls(turn: TurnEvidence, numbers: Iterable[int]) -> set[int]:
    """The calls, by their places among the turn's, whose heads the lines bring with them."""
    places = turn.once(_places_of_blocks)
    blocks = {turn.lines.text_at(number - 1).block for number in numbers}
    return {places[block] for block in blocks if block in places}


def _places_of_blocks(turn: TurnEvidence) -> dict[int | None, int]:
    """By each block of a call and its result the place of the call among the turn's."""
    return {block: at for at, call in enumerate(turn.calls) for block in (call.block, call.result_block)}


def _typed(turn: TurnEvidence) -> list[Line]:
    return list(typed_lines(turn.user_lines))


def _previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """What stands of each demoted turn: everything but results and what the user pasted, of which the first and last
    lines, as many as have room in the window; all that he typed."""
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        ends = [_ends(turn, most) for turn in turns]
        if sum(map(_line_tokens, turns, ends)) <= room:
            break
    return {turn.turn.id: shown | _beside_long(turn) for turn, shown in zip(turns, ends, strict=True)}


def _long_blocks(turn: TurnEvidence) -> set[int | None]:
    """Results, and what the user wrote or pasted."""
    long = {call.result_block for call in turn.calls}
    return long | {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}


def _ends(turn: TurnEvidence, most: int) -> frozenset[int]:
    """The first and last lines of what is long in `turn`, `most` at either end; of the user's own at least one."""
    most = max(most, turn.turn.kind == "user")
    numbers = ([line.number for line in turn.lines_of(block)] for block in turn.once(_long_blocks))
    return frozenset(number for own in numbers for number in own[:most] + own[::-1][:most])


def _beside_long(turn: TurnEvidence) -> frozenset[int]:
    long, typed = turn.once(_long_blocks), {line.number for line in turn.once(_typed)}
    return frozenset(typed.union(line.number for line in turn.lines if line.block not in long))


def opening_lines(turn: TurnEvidence) -> frozenset[int]:
    """The lines that speak for a turn: its first ones and its last."""
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _room(target_tokens: float, least_tokens: float, window_tokens: float) -> float:
    """What brief and fill may take together, in the same tokens, where `least_tokens` stand in any case."""
    room = max(LEAST_ROOM_SHARE * target_tokens, target_tokens - least_tokens)
    return max(0.0, min(room, max(window_tokens, target_tokens) - least_tokens))


def brief_limit(target_tokens: float, least_tokens: float, window_tokens: float) -> float:
    """How long the brief may be, in the same tokens, where `least_tokens` stand in any case."""
    return BRIEF_SHARE * _room(target_tokens, least_tokens, window_tokens)


def least_tokens(request: PlanRequest) -> int:
    """What stands of ``request.history`` beside a brief that tells what was answered: the live tail, what is pinned."""
    selecting = _Selecting(request, Proposal({}, Provenance(planner="none")), None)
    return int(selecting.take_least(selecting.turns) * request.counter.scale)


def select(request: PlanRequest, proposal: Proposal) -> Selection:
    """What stands of each turn within ``request.target_tokens``."""
    counter, selecting = request.counter, _Selecting(request, proposal, proposal.brief)
    budget = request.target_tokens / counter.scale
    window = request.settings.window_tokens / counter.scale
    room = _room(budget, selecting.take_least(selecting.turns), window)
    brief, struck = fit_brief(proposal.brief, counter, room)
    if struck:
        problem = f"the brief is longer than the {int(room * counter.scale)} tokens that the target leaves it"
        repair = f"its last {struck} statements are left out"
        selecting.findings.append(Finding(code="brief_too_long", problem=problem, repair=repair))
        selecting.pin(brief)
        room -= selecting.take_least(selecting.turns)
    guide = guide_text(EVERY_MARK, "t10000", request.evidence.root, request.settings.restore_tool)
    frame = "\n".join(note_parts("h" * 9, ["t10000", "t10001"], [guide, brief + "\n"]))
    left = selecting.take_asked(room - counter.raw(frame))
    beside_images = selecting.keep_images(left)
    filled = left - selecting.fill(beside_images, selecting.in_order(budget, brief))
    selecting.keep_ends()
    brief = selecting.without_told(brief)
    return Selection(selecting.chosen, brief, max(0, int(filled * counter.scale)), tuple(selecting.findings))


@dataclass
class _Selecting:
    """What is chosen so far, and the raw tokens it takes, by turn id."""

    request: PlanRequest
    proposal: Proposal
    brief: InitVar[str | None]
    chosen: dict[str, TurnDecision] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    heads: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self, brief: str | None) -> None:
        self.turns, asked = self.request.evidence.turns, self.proposal.turns
        self.asked = {turn_id: asked.get(turn_id) or TurnProposal(turn_id, 0.5, "not ranked") for turn_id in self.turns}
        self.pin(brief)

    def pin(self, brief: str | None) -> None:
        """Note what stands beside `brief` in any case."""
        request, settings = self.request, self.request.settings
        view = settings.window_tokens, request.target_tokens, settings.target_model
        self.pinned = pinned(request.analysis, *view, brief)

    def take_least(self, turn_ids: Iterable[str]) -> float:
        """What stands of turns in any case; the raw tokens it takes more than what stood before."""
        steps: dict[bool, Strategy] = {True: "keep", False: "drop"}
        return sum([self._choose(self._decision(turn_id, steps[turn_id in self.pinned.whole])) for turn_id in turn_ids])

    def _choose(self, decision: TurnDecision) -> float:
        """Let `decision` stand; the raw tokens it takes more than what stood before."""
        turn_id, cost = decision.turn_id, self._raw_tokens(decision)
        more = cost - self.costs.get(turn_id, 0)
        self.chosen[turn_id], self.costs[turn_id] = decision, cost
        return more

    def _decision(self, turn_id: str, step: Strategy) -> TurnDecision:
        """What `step` comes to for a turn, with what is pinned."""
        turn, asked = self.turns[turn_id], self.asked[turn_id]
        wanted, summary = self.pinned.lines(turn), ""
        if step == "summarize":
            summary = asked.summary
            wanted |= line_numbers(asked.excerpts, len(turn.lines))
            if not wanted and not summary.strip():
                wanted = opening_lines(turn)
        elif step in ("reference", "drop"):
            step = "summarize" if wanted else "reference" if media_marks(self.request.history, turn) else step
        return TurnDecision(
            turn_id=turn_id,
            strategy=step,
            relevance_score=asked.score,
            reason=asked.reason,
            failed_approach=turn.failed or asked.failed_approach,
            summary=summary,
            excerpts=ranges_of(wanted) if step == "summarize" else (),
        )

    def _raw_tokens(self, decision: TurnDecision) -> float:
        """An upper bound of what `decision` takes in the view, whatever stands around it."""
        counter, turn = self.request.counter, self.turns[decision.turn_id]
        if decision.strategy == "keep":
            return turn.tokens / counter.scale + (0 if turn.turn.live else KEPT_RAW_TOKENS)
        text = self._entry(decision)
        return counter.raw(text + "\n") + 1 if text else 0

    def take_asked(self, left: float) -> float:
        """Give each turn what the planner asked for, the highest score first, of equals the newest; what is left of the
        space."""
        gave_way: list[str] = []
        newest_first = list(reversed(self.asked.values()))
        for asked in sorted(newest_first, key=lambda asked: -asked.score):
            turn_id, strategy = asked.turn_id, asked.strategy
            if strategy is None or turn_id in self.pinned.whole or self.turns[turn_id].turn.live:
                continue
            for step in STEPS[STEPS.index(strategy) : -1]:
                decision = self._decision(turn_id, step)
                more = self._raw_tokens(decision) - self.costs[turn_id]
                if more <= left or more <= 0:
                    left -= self._choose(decision)
                    break
            if STEPS.index(self.chosen[turn_id].strategy) > STEPS.index(strategy):
                gave_way.append(f"{turn_id} {strategy}")
        if gave_way:
            problem = f"the target has no room for what the planner asked of {len(gave_way)} turns: "
            problem += ", ".join(gave_way[:20])
            self.findings.append(Finding(code="gave_way", problem=problem, repair="the next step down"))
        return left

    def keep_images(self, left: float) -> float:
        """Keep what the user showed, the newest first, where it is little of the space left; what is left then."""
        for turn_id, turn in reversed(list(self.turns.items())):
            if turn.turn.kind == "user" and self._weight(turn_id) and media_marks(self.request.history, turn):
                decision = self._decision(turn_id, "keep")
                if self._raw_tokens(decision) - self.costs[turn_id] <= left * IMAGE_SHARE:
                    left -= self._choose(decision)
        return left

    def in_order(self, budget: float, brief: str) -> list[Pick]:
        """What may be filled in, by relevance and score: nothing of dropped turns, nor what the brief says."""
        lines = {turn_id: self.pinned.lines(turn) for turn_id, turn in self.turns.items()}
        ranked = rank_lines(self.request.evidence, self.request.relevance, lines, self.pinned.whole, 1.25 * budget)
        weights = {turn_id: self._weight(turn_id) for turn_id in self.turns}
        told = Told()
        for statement in read_brief(brief):
            names = specifics_of(statement.text)
            told.add({*names, *chain.from_iterable(map(parts_of, names))}, partial(str, statement.text))
        page = " ".join(brief.split())

        def is_news(turn_id: str, number: int) -> bool:
            text = self.turns[turn_id].lines.text(number)
            names = self.request.relevance.names[turn_id][number - 1]
            return " ".join(text.split()) not in page and not told.says(names, lambda: text)

        news = (
            pick._replace(numbers=tuple(number for number in pick.numbers if is_news(pick.turn_id, number)))
            for pick in ranked
            if weights[pick.turn_id]
        )
        picks = [pick for pick in news if pick.numbers]
        return sorted(picks, key=lambda pick: -pick.priority * weights[pick.turn_id])

    def _weight(self, turn_id: str) -> float:
        """What the relevance of a turn's lines is multiplied with, 1 at a score of .5, from half to twice; 0 if none of
        them may fill the space that is left."""
        asked = self.asked[turn_id]
        if self.turns[turn_id].turn.live or asked.strategy == "drop" or self.chosen[turn_id].strategy == "keep":
            return 0.0
        return 1.0 if asked.strategy is None else float(MOST_WEIGHT ** (2 * asked.score - 1))

    def fill(self, left: float, picks: Iterable[Pick]) -> float:
        """Put the next best lines where there is space; what is left then.

        What lines come to is estimated from above, so where one may not fit, what the ones before saved is measured and
        spent.
        """
        stands: dict[str, _Standing] = {}
        grown: dict[str, _Standing] = {}
        room = left
        for pick in picks:
            standing = stands.get(pick.turn_id) or stands.setdefault(pick.turn_id, self._stands(pick.turn_id))
            new = set(pick.numbers) - standing.lines
            calls = _shown_calls(self.turns[pick.turn_id], new)
            cost = self._most_tokens(pick.turn_id, standing, new, calls)
            if cost > room and grown:
                room = left = self._measured(left, grown)
                grown = {}
            if cost > room:
                break
            room -= cost
            if cost:
                standing.lines.update(new)
                standing.calls.update(calls)
                grown[pick.turn_id] = standing
        return self._measured(left, grown)

    def _most_tokens(self, turn_id: str, standing: _Standing, new: set[int], calls: set[int]) -> float:
        """What `new` lines, with the `calls` that they bring with them, take at most beside what is `standing`."""
        cost = float(_line_tokens(self.turns[turn_id], new) + MARK_TOKENS * len(new))
        if new and not standing.lines:
            cost += sum(self._heads(turn_id)) + 1
        elif more := calls - standing.calls:
            cost += sum(map(self._heads(turn_id).__getitem__, more)) + 1
        return cost

    def _heads(self, turn_id: str) -> list[float]:
        """The raw tokens of the head of each call of a turn; without calls, of its first words."""
        if turn_id not in self.heads:
            failed = self.turns[turn_id].failed
            head = TurnDecision(turn_id=turn_id, strategy="reference", relevance_score=0, failed_approach=failed)
            self.heads[turn_id] = [self.request.counter.raw(f"{text}\n") for text in self._entry(head).split("\n")]
        return self.heads[turn_id]

    def _stands(self, turn_id: str) -> _Standing:
        turn = self.turns[turn_id]
        lines = line_numbers(self.chosen[turn_id].excerpts, len(turn.lines))
        return _Standing(lines, _shown_calls(turn, lines))

    def _measured(self, left: float, grown: Mapping[str, _Standing]) -> float:
        """Let the lines of turns that have more stand; what is left then."""
        for turn_id, standing in grown.items():
            update = {"strategy": "summarize", "excerpts": ranges_of(standing.lines)}
            left -= self._choose(self.chosen[turn_id].model_copy(update=update))
        return left

    def without_told(self, brief: str) -> str:
        """`brief` without the files of which it says no more than that they were changed, as an entry does."""
        statements = read_brief(brief)
        rest = [one for one in statements if not self._stands_below(one)]
        return brief if len(rest) == len(statements) else brief_text(rest)

    def _stands_below(self, statement: Statement) -> bool:
        file = _CHANGED.fullmatch(statement.text)
        if file is None or not self.pinned.told.keys().isdisjoint(statement.turns):
            return False
        return any(file[1] in self._entry(self.chosen[turn_id]) for turn_id in statement.turns)

    def _entry(self, decision: TurnDecision) -> str:
        marks = media_marks(self.request.history, self.turns[decision.turn_id])
        return entry_text(self.request.evidence, decision, marks)

    def keep_ends(self) -> None:
        """Keep the turns at either end of which every line stands: there a message is as cheap as its entry."""
        for ids in (list(self.chosen), list(reversed(self.chosen))):
            for turn_id in takewhile(self._is_complete, ids):
                self.chosen[turn_id] = self.chosen[turn_id].model_copy(update=KEPT)

    def _is_complete(self, turn_id: str) -> bool:
        decision, turn = self.chosen[turn_id], self.turns[turn_id]
        if decision.strategy == "keep" or turn.turn.live:
            return decision.strategy == "keep"
        entry = self.costs[turn_id] * self.request.counter.scale
        return 0 < len(turn.lines) == len(self._stands(turn_id).lines) and turn.tokens <= entry
