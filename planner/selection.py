"""From a proposal to decisions: what the planner says happens, as far as the target goes.

The turn with the highest score first gets what the planner asked for, else the next step down (keep, summarize,
reference, drop); what is pinned always stands. Space left over is filled with the rules' next best lines. A higher
score or a stronger strategy never gets a turn less: its place in the order only moves forward, and every size is an
upper bound that depends on its own turn alone. Pure: no model, no store, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, takewhile
from typing import Any

from planner.analysis import Analysis
from planner.brief import fit_brief, told_failures
from planner.evidence import TurnEvidence
from planner.evidence.user_words import typed_lines
from planner.layout import lead_tokens
from planner.placeholders import entry_text, guide_text, line_numbers, media_marks, note_parts, ranges_of
from planner.plan import Finding, Provenance, Strategy, TurnDecision
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.lazy_property import lazy_property
from planner.relevance.ranking import MARK_TOKENS, Pick, rank_lines

__all__ = ["KEPT", "Pinned", "Selection", "brief_limit", "least_tokens", "preview_lines", "select", "weight_of"]

STEPS: tuple[Strategy, ...] = ("keep", "summarize", "reference", "drop")
"""From the most a turn can get to the least."""
BRIEF_SHARE = 0.9
"""Of the room beside what stands in any case the brief takes at most so much: on six sessions a page in its own words
answered more than twice its size in lines."""
BRIEF_SLACK = 1.2
"""By so much a brief may be longer than a planner was told, where there is room: a writer cannot count its tokens, and
17 real answers were up to 16 % over."""
LEAST_ROOM_SHARE = 0.5
"""Brief and fill together always have this share of the target, however large the live tail is: a view that holds no
more than the last results is no memory."""
KEPT_RAW_TOKENS = 40
"""What a kept turn in the middle costs besides itself: the note before it is closed and another one opened."""
DIGEST_LINES = 3
"""So many of a turn's best lines stand for it when the planner wants a summary and gives neither words nor lines."""
OWN_WORDS_SHARE = 0.5
"""So much of the target the user's own words may take, whatever they say: in agent sessions they are nearly always
less, and no list of words tells in every language what binds (DESIGN, rule 13). A fifth keeps .60 of the entities that
CompactBench's chats ask for, two fifths .96, and the exams score the same with each."""
DEMANDS_SHARE = 0.25
"""So much of the window the user's demands may take; what is beyond it is stored, and a finding says so: a list that
never fits the window helps nobody."""
LIVE_SHARE = 0.5
"""A live tail may fill this share of the window; what is larger would leave no room for an answer and is demoted."""
PREVIEW_LINES = 12
"""A demoted result always shows this many of its first and of its last lines: about the 2,000 characters that other
systems preview (REFERENCE 5)."""
MOST_WEIGHT = 2.0
"""How much more than by itself a line is worth in the fill at score 1; at score 0 so much less."""
EVERY_MARK = ("✗\n> \n| \n+ …",)
KEPT: Mapping[str, Any] = {"strategy": "keep", "summary": "", "excerpts": ()}
"""What is changed in a decision that keeps its turn."""


@dataclass(frozen=True)
class Selection:
    """Decisions for every turn, in order, and the brief that fits beside them."""

    decisions: Mapping[str, TurnDecision]
    brief: str
    filled_tokens: int
    """What the rules chose of it."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Pinned:
    """What stands of a history whatever a plan says, in a window of so many tokens: of each failure that the brief does
    not tell the line that says most, what the user demands, the live tail, or the ends of its results where no window
    holds it."""

    analysis: Analysis
    window_tokens: int
    target_tokens: int
    brief: str = ""

    @lazy_property
    def tail_fits(self) -> bool:
        """True unless the live tail would leave the window no room for an answer."""
        live = sum(turn.tokens for turn in self.analysis.evidence.turns.values() if turn.turn.live)
        return live <= self.window_tokens * LIVE_SHARE

    def is_demoted(self, turn: TurnEvidence) -> bool:
        """True if the results of `turn`, and what the user pasted, give way to previews."""
        return turn.turn.live and turn.turn.kind in ("tools", "user") and not self.tail_fits

    @lazy_property
    def lines(self) -> dict[str, frozenset[int]]:
        """Numbers of the lines that stand at any target, by turn id."""
        return {
            turn_id: self.failure_lines(turn) | self._user_lines(turn)
            for turn_id, turn in self.analysis.evidence.turns.items()
        }

    def _user_lines(self, turn: TurnEvidence) -> frozenset[int]:
        own = self.user_words(turn)
        return own | preview_lines(turn) if self.is_demoted(turn) else own

    def user_words(self, turn: TurnEvidence) -> frozenset[int]:
        """Numbers of the lines of the user's that stand at the target: his demands, and what else he typed."""
        return self._typed.get(turn.turn.id, frozenset()).union(self._demands[0].get(turn.turn.id, ()))

    @property
    def gave_way(self) -> int:
        """Of so many turns the user's demands have no room in the window."""
        return self._demands[1]

    @lazy_property
    def _demands(self) -> tuple[dict[str, tuple[int, ...]], int]:
        """What the user demands, by turn id, the newest and the first before the middle, as far as the window has room;
        and of how many turns it has none."""
        left = DEMANDS_SHARE * self.window_tokens / self.analysis.counter.scale
        turns = [turn for turn in self.analysis.evidence.turns.values() if turn.pinned_lines]
        demands: dict[str, tuple[int, ...]] = {}
        for turn in [*turns[-1:], *turns[:1], *reversed(turns[1:-1])]:
            left -= sum(turn.line_tokens[number - 1] for number in turn.pinned_lines)
            if left < 0:
                break
            demands[turn.turn.id] = turn.pinned_lines
        return demands, len({turn.turn.id for turn in turns} - demands.keys())

    @lazy_property
    def _typed(self) -> dict[str, frozenset[int]]:
        """What the user typed, whatever it says, as far as it is a small part of the target: the last message, the
        first one, then from the newest on; what was said twice at its last place."""
        turns = [turn for turn in self.analysis.evidence.turns.values() if turn.user_lines and not turn.turn.live]
        left = OWN_WORDS_SHARE * self.target_tokens / self.analysis.counter.scale
        typed: dict[str, frozenset[int]] = {}
        said: set[str] = set()
        for turn in [*turns[-1:], *turns[:1], *reversed(turns[1:-1])]:
            own = [line for line in typed_lines(turn.user_lines) if line.text.strip() not in said]
            more = {line.number for line in own}.difference(self._demands[0].get(turn.turn.id, ()))
            left -= sum(turn.line_tokens[number - 1] for number in more)
            if left < 0:
                break
            said.update(line.text.strip() for line in own)
            typed[turn.turn.id] = frozenset(line.number for line in own)
        return typed

    @lazy_property
    def told(self) -> dict[str, frozenset[int]]:
        """The lines of failures that the brief tells."""
        return told_failures(self.brief, self.analysis.evidence)

    def failure_lines(self, turn: TurnEvidence) -> frozenset[int]:
        """Numbers of the lines that decided failures of `turn` and that the brief does not tell."""
        return frozenset(turn.decisive_lines) - self.told.get(turn.turn.id, frozenset())

    @lazy_property
    def whole(self) -> frozenset[str]:
        """Turns that stand whole: what is not answered, and what must not be touched."""
        return frozenset(
            turn_id
            for turn_id, turn in self.analysis.evidence.turns.items()
            if turn_id in self.analysis.broken or turn.turn.must_stand or (turn.turn.live and not self.is_demoted(turn))
        )


def preview_lines(turn: TurnEvidence) -> frozenset[int]:
    """Everything but results and what the user pasted, of which the first and last lines; all that he typed."""
    long = {call.result_block for call in turn.calls}
    long |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in turn.lines if line.block not in long}
    shown.update(line.number for line in typed_lines(turn.user_lines))
    for block in long:
        own = [line.number for line in turn.lines_of(block)]
        shown.update(own[:PREVIEW_LINES] + own[-PREVIEW_LINES:])
    return frozenset(shown)


def _room(target_tokens: float, least_tokens: float) -> float:
    """What brief and fill may take together, in the same tokens, where `least_tokens` stand in any case."""
    return max(LEAST_ROOM_SHARE * target_tokens, target_tokens - least_tokens)


def brief_limit(target_tokens: float, least_tokens: float) -> float:
    """How long the brief may be, in the same tokens, where `least_tokens` stand in any case."""
    return BRIEF_SHARE * _room(target_tokens, least_tokens)


def least_tokens(request: PlanRequest) -> int:
    """What stands of ``request.history`` whatever a planner says: the live tail, and what is pinned."""
    nothing = Proposal({}, Provenance(planner="none"))
    return int(_Selecting(request, nothing)._take_least() * request.counter.scale)


def weight_of(score: float) -> float:
    """What a line's relevance is multiplied with for its turn's score: 1 at .5, from half to twice."""
    return float(MOST_WEIGHT ** (2 * score - 1))


def select(request: PlanRequest, proposal: Proposal) -> Selection:
    """What stands of each turn within ``request.target_tokens``."""
    return _Selecting(request, proposal).result()


@dataclass
class _Selecting:
    request: PlanRequest
    proposal: Proposal
    chosen: dict[str, TurnDecision] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    """Raw tokens of what is chosen, by turn id."""
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pinned = self._pinned()

    def _pinned(self, brief: str = "") -> Pinned:
        request = self.request
        return Pinned(request.analysis, request.settings.window_tokens, request.target_tokens, brief)

    @property
    def turns(self) -> Mapping[str, TurnEvidence]:
        return self.request.evidence.turns

    def result(self) -> Selection:
        request, counter = self.request, self.request.counter
        beside = min(lead_tokens(request.analysis, request.settings.target_model), request.target_tokens // 2)
        budget = (request.target_tokens - beside) / counter.scale
        least = self._take_least()
        room = _room(budget, least)
        brief = self._fitted_brief(min(room, brief_limit(budget, least) * BRIEF_SLACK))
        self.pinned = self._pinned(brief)
        room += sum(-self._take_pinned(self.turns[turn_id]) for turn_id in self.pinned.told)
        left = self._take_asked(room - self._frame_tokens(brief))
        filled = left - self._fill(left, self._in_order(budget, " ".join(brief.split())))
        self._keep_ends()
        return Selection(self.chosen, brief, max(0, int(filled * counter.scale)), tuple(self.findings))

    def _fitted_brief(self, most: float) -> str:
        brief, struck = fit_brief(self.proposal.brief, self.request.counter, most)
        if struck:
            most_tokens = int(most * self.request.counter.scale)
            problem = f"the brief is longer than the {most_tokens} tokens that the target leaves it"
            repair = f"its last {struck} statements are left out"
            self.findings.append(Finding(code="brief_too_long", problem=problem, repair=repair))
        return brief

    def _frame_tokens(self, brief: str) -> float:
        root, tool = self.request.evidence.root, self.request.settings.restore_tool
        guide = guide_text(EVERY_MARK, "t10000", root, tool, "t10000-t10001, " * 6)
        return self.request.counter.raw("\n".join(note_parts("h" * 9, ["t10000", "t10001"], [guide, brief + "\n"])))

    def _take_least(self) -> float:
        """What stands in any case; the raw tokens it takes."""
        return sum(map(self._take_pinned, self.turns.values()))

    def _take_pinned(self, turn: TurnEvidence) -> float:
        """What stands of `turn` in any case; the raw tokens it takes more than what stood before."""
        return self._choose(turn, self._decision(turn, "keep" if turn.turn.id in self.pinned.whole else "drop"))

    def _choose(self, turn: TurnEvidence, decision: TurnDecision) -> float:
        """Let `decision` stand for `turn`; the raw tokens it takes more than what stood before."""
        turn_id, cost = turn.turn.id, self._raw_tokens(turn, decision)
        more = cost - self.costs.get(turn_id, 0)
        self.chosen[turn_id], self.costs[turn_id] = decision, cost
        return more

    def _decision(self, turn: TurnEvidence, step: Strategy) -> TurnDecision:
        """What `step` comes to for `turn`, with what is pinned."""
        asked = self._asked(turn)
        wanted = set(self.pinned.lines[turn.turn.id])
        if step == "summarize":
            wanted |= line_numbers(asked.excerpts, len(turn.lines))
            if not wanted and not asked.summary.strip():
                wanted = self._digest(turn)
        elif step in ("reference", "drop"):
            step = "summarize" if wanted else "reference" if media_marks(self.request.history, turn) else step
            asked = replace(asked, summary="")
        return TurnDecision(
            turn_id=turn.turn.id,
            strategy=step,
            relevance_score=asked.score,
            reason=asked.reason,
            failed_approach=turn.failed or asked.failed_approach,
            summary=asked.summary if step == "summarize" else "",
            excerpts=ranges_of(wanted) if step == "summarize" else (),
        )

    def _asked(self, turn: TurnEvidence) -> TurnProposal:
        """What the planner says of `turn`."""
        return self.proposal.turns.get(turn.turn.id) or TurnProposal(turn.turn.id, 0.5, "not ranked")

    def _digest(self, turn: TurnEvidence) -> set[int]:
        """The lines that speak for a turn of which the planner wants a summary and gives none."""
        relevance = self.request.relevance.of_lines(turn.turn.id)
        worth = {line.number: own for line, own in zip(turn.lines, relevance, strict=True) if line.text.strip()}
        return set(sorted(worth, key=lambda number: (-worth[number], number))[:DIGEST_LINES])

    def _raw_tokens(self, turn: TurnEvidence, decision: TurnDecision) -> float:
        """An upper bound of what `decision` takes in the view, whatever stands around it."""
        counter = self.request.counter
        if decision.strategy == "keep":
            return turn.tokens / counter.scale + (0 if turn.turn.live else KEPT_RAW_TOKENS)
        text = entry_text(self.request.evidence, decision, media_marks(self.request.history, turn))
        return counter.raw(text + "\n") + 1 if text else 0

    def _take_asked(self, left: float) -> float:
        """Give each turn what the planner asked for, the highest score first, of equals the newest; what is left of the
        space."""
        gave_way: list[str] = []
        for turn in sorted(self.turns.values(), key=lambda turn: (-self._asked(turn).score, -turn.turn.number)):
            turn_id, strategy = turn.turn.id, self._asked(turn).strategy
            if strategy is None or turn_id in self.pinned.whole or turn.turn.live:
                continue
            for step in STEPS[STEPS.index(strategy) : -1]:
                decision = self._decision(turn, step)
                more = self._raw_tokens(turn, decision) - self.costs[turn_id]
                if more <= left or more <= 0:
                    left -= self._choose(turn, decision)
                    break
            if STEPS.index(self.chosen[turn_id].strategy) > STEPS.index(strategy):
                gave_way.append(f"{turn_id} {strategy}")
        if gave_way:
            problem = f"the target has no room for what the planner asked of {len(gave_way)} turns: "
            problem += ", ".join(gave_way[:20])
            self.findings.append(Finding(code="gave_way", problem=problem, repair="the next step down"))
        return left

    def _in_order(self, budget: float, brief: str) -> Iterator[Pick]:
        """What may be filled in, by relevance and score: nothing of dropped turns, nor what the brief says word for
        word. Each is looked for when asked for: a pick waits while one that comes later may be worth more."""
        ranked = rank_lines(
            self.request.evidence, self.request.relevance, self.pinned.lines, self.pinned.whole, 1.5 * budget
        )
        weights = {turn_id: self._weight(turn) for turn_id, turn in self.turns.items()}
        most = max(weights.values(), default=0.0)
        waiting: list[tuple[float, int, Pick]] = []
        for place, pick in enumerate(ranked):
            while waiting and -waiting[0][0] >= pick.priority * most:
                yield heappop(waiting)[2]
            if weights[pick.turn_id] and not self._stands_in(brief, pick):
                heappush(waiting, (-pick.priority * weights[pick.turn_id], place, pick))
        while waiting:
            yield heappop(waiting)[2]

    def _weight(self, turn: TurnEvidence) -> float:
        """What the relevance of its lines is multiplied with; 0 if none of them may fill the space that is left."""
        asked = self._asked(turn)
        if turn.turn.live or asked.strategy == "drop" or self.chosen[turn.turn.id].strategy == "keep":
            return 0.0
        return 1.0 if asked.strategy is None else weight_of(asked.score)

    def _stands_in(self, brief: str, pick: Pick) -> bool:
        lines = self.turns[pick.turn_id].lines
        return all(" ".join(lines[number - 1].text.split()) in brief for number in pick.numbers)

    def _fill(self, left: float, picks: Iterator[Pick]) -> float:
        """Put the next best lines where there is space; what is left then.

        What lines come to is estimated from above, so after each pass what was saved is measured and spent on the next.
        """
        pick = next(picks, None)
        while pick is not None:
            first = pick
            grown, pick = self._pass(first, picks, left)
            for turn_id, numbers in grown.items():
                update = {"strategy": "summarize", "excerpts": ranges_of(numbers)}
                left -= self._choose(self.turns[turn_id], self.chosen[turn_id].model_copy(update=update))
            if pick is first:
                break
        return left

    def _pass(self, first: Pick, picks: Iterator[Pick], left: float) -> tuple[dict[str, set[int]], Pick | None]:
        """Take `first` and those of `picks` that surely fit into what is left; the lines that stand then of the turns
        that have more, and the first pick that may not fit."""
        standing: dict[str, set[int]] = {}
        grown: dict[str, set[int]] = {}
        for pick in chain((first,), picks):
            turn_id, numbers, _ = pick
            turn, decision = self.turns[turn_id], self.chosen[turn_id]
            if turn_id not in standing:
                standing[turn_id] = line_numbers(decision.excerpts, len(turn.lines))
            new = set(numbers) - standing[turn_id]
            cost = float(sum(turn.line_tokens[number - 1] + MARK_TOKENS for number in new))
            if new and decision.strategy == "drop" and turn_id not in grown:
                cost += self._head_tokens(turn)
            if cost > left:
                return grown, pick
            left -= cost
            if new:
                standing[turn_id] |= new
                grown[turn_id] = standing[turn_id]
        return grown, None

    def _head_tokens(self, turn: TurnEvidence) -> float:
        """What the entry of `turn` takes without any line of it."""
        head = TurnDecision(turn_id=turn.turn.id, strategy="reference", relevance_score=0, failed_approach=turn.failed)
        return self._raw_tokens(turn, head)

    def _keep_ends(self) -> None:
        """Keep the turns at either end of which every line stands: there a message is as cheap as its entry."""
        for ids in (list(self.chosen), list(reversed(self.chosen))):
            for turn_id in takewhile(self._is_complete, ids):
                self.chosen[turn_id] = self.chosen[turn_id].model_copy(update=KEPT)

    def _is_complete(self, turn_id: str) -> bool:
        decision, turn = self.chosen[turn_id], self.turns[turn_id]
        if decision.strategy == "keep" or turn.turn.live:
            return decision.strategy == "keep"
        lines = len(turn.lines)
        entry = self.costs[turn_id] * self.request.counter.scale
        return 0 < lines == len(line_numbers(decision.excerpts, lines)) and turn.tokens <= entry
