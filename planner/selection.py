"""From a proposal to decisions: what the planner says happens, as far as the target goes.

The turn with the highest score first gets what the planner asked for, else the next step down (keep, summarize,
reference, drop); what is pinned always stands. Space left over is filled with the rules' next best lines. A higher
score or a stronger strategy never gets a turn less: its place in the order only moves forward, and every size is an
upper bound that depends on its own turn alone. Pure: no model, no store, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, takewhile

from planner.brief import fit_brief
from planner.decision import Strategy, TurnDecision
from planner.evidence import TurnEvidence
from planner.layout.placeholders import entry_text, excerpt_numbers, guide_text, media_marks, note_parts, ranges_of
from planner.plan import Finding, Provenance
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.lazy_property import lazy_property
from planner.relevance.ranking import MARK_TOKENS, Pick, pinned_lines, rank_lines

__all__ = ["STEPS", "Selection", "brief_limit", "demotes_live", "least_tokens", "select", "weight_of"]

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
LIVE_SHARE = 0.5
"""A live tail may fill this share of the window; what is larger would leave no room for an answer and is demoted."""
MOST_WEIGHT = 2.0
"""How much more than by itself a line is worth in the fill at score 1; at score 0 so much less."""


@dataclass(frozen=True)
class Selection:
    """Decisions for every turn, in order, and the brief that fits beside them."""

    decisions: Mapping[str, TurnDecision]
    brief: str
    filled_tokens: int
    """What the rules chose of it."""
    findings: tuple[Finding, ...]


def demotes_live(request_tokens: int, window_tokens: int) -> bool:
    """True if a live tail of so many tokens would not fit the window otherwise."""
    return request_tokens > window_tokens * LIVE_SHARE


def _room(target_tokens: float, least_tokens: float) -> float:
    """What brief and fill may take together, in the same tokens, where `least_tokens` stand in any case."""
    return max(LEAST_ROOM_SHARE * target_tokens, target_tokens - least_tokens)


def brief_limit(target_tokens: float, least_tokens: float) -> float:
    """How long the brief may be, in the same tokens, where `least_tokens` stand in any case."""
    return BRIEF_SHARE * _room(target_tokens, least_tokens)


def least_tokens(request: PlanRequest) -> int:
    """What stands of ``request.history`` whatever a planner says: the live tail, and what is pinned."""
    provenance = Provenance(planner="none")
    return int(_Selecting(request, Proposal({}, provenance))._take_least() * request.counter.scale)


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

    @lazy_property
    def demoted(self) -> bool:
        live = sum(turn.tokens for turn in self.request.evidence.turns.values() if turn.turn.live)
        return demotes_live(live, self.request.settings.window_tokens)

    @lazy_property
    def pinned(self) -> dict[str, frozenset[int]]:
        turns = self.request.evidence.turns.items()
        return {turn_id: pinned_lines(turn, self.demoted and turn.turn.live) for turn_id, turn in turns}

    @lazy_property
    def media(self) -> dict[str, tuple[str, ...]]:
        history, turns = self.request.history, self.request.evidence.turns.items()
        return {turn_id: marks for turn_id, turn in turns if (marks := media_marks(history, turn))}

    @lazy_property
    def whole(self) -> frozenset[str]:
        """Turns that stand whole whatever the target: what is not answered, and what must not be touched."""
        return frozenset(
            turn_id
            for turn_id, turn in self.request.evidence.turns.items()
            if turn_id in self.request.analysis.broken
            or turn.turn.must_stand
            or (turn.turn.live and not (self.demoted and turn.turn.kind == "tools"))
        )

    def result(self) -> Selection:
        request = self.request
        budget = request.target_tokens / request.counter.scale
        least = self._take_least()
        room = _room(budget, least)
        most = min(room, brief_limit(budget, least) * BRIEF_SLACK)
        brief, struck = fit_brief(self.proposal.brief, request.counter, most)
        if struck:
            most_tokens = int(most * request.counter.scale)
            problem = f"the brief is longer than the {most_tokens} tokens that the target leaves it"
            repair = f"its last {struck} statements are left out"
            self.findings.append(Finding(code="brief_too_long", problem=problem, repair=repair))
        left = room - self._frame_tokens(brief)
        left = self._take_asked(left)
        before = left
        left = self._fill(left, budget, " ".join(brief.split()))
        self._keep_ends()
        filled = max(0, int((before - left) * request.counter.scale))
        return Selection(self.chosen, brief, filled, tuple(self.findings))

    def _frame_tokens(self, brief: str) -> float:
        evidence, counter = self.request.evidence, self.request.counter
        every_mark = ("✗\n> \n| \n+ …",)
        guide = guide_text(
            every_mark, "t10000", evidence.root, self.request.settings.restore_tool, "t10000-t10001, " * 6
        )
        return counter.raw("\n".join(note_parts("h" * 9, ["t10000", "t10001"], [guide, brief + "\n"])))

    def _take_least(self) -> float:
        """What stands in any case; the raw tokens it takes."""
        spent = 0.0
        for turn_id, turn in self.request.evidence.turns.items():
            strategy: Strategy = "keep" if turn_id in self.whole else "drop"
            spent += self._choose(turn, self._decision(turn, strategy))
        return spent

    def _choose(self, turn: TurnEvidence, decision: TurnDecision) -> float:
        """Let `decision` stand for `turn`; the raw tokens it takes more than what stood before."""
        turn_id, cost = turn.turn.id, self._raw_tokens(turn, decision)
        more = cost - self.costs.get(turn_id, 0)
        self.chosen[turn_id], self.costs[turn_id] = decision, cost
        return more

    def _decision(self, turn: TurnEvidence, step: Strategy, lines: frozenset[int] = frozenset()) -> TurnDecision:
        """What `step` comes to for `turn`, with what is pinned; `lines` stand as well."""
        asked = self.asked(turn)
        wanted = self.pinned[turn.turn.id] | lines
        summary = ""
        if step == "summarize":
            wanted |= frozenset(_numbers(asked.excerpts, len(turn.lines)))
            summary = asked.summary
            if not wanted and not summary.strip():
                wanted |= self._digest(turn)
        if step in ("reference", "drop") and wanted:
            step = "summarize"
        if step == "drop" and turn.turn.id in self.media:
            step = "reference"
        if turn.turn.live and step != "keep" and not wanted:
            step = "keep"
        return TurnDecision(
            turn_id=turn.turn.id,
            strategy=step,
            relevance_score=asked.score,
            reason=asked.reason,
            failed_approach=turn.failed or asked.failed_approach,
            summary=summary if step == "summarize" else "",
            excerpts=ranges_of(wanted) if step == "summarize" else (),
        )

    def asked(self, turn: TurnEvidence) -> TurnProposal:
        """What the planner says of `turn`."""
        return self.proposal.turns.get(turn.turn.id) or TurnProposal(turn.turn.id, 0.5, "not ranked")

    def _digest(self, turn: TurnEvidence) -> frozenset[int]:
        """The lines that speak for a turn of which the planner wants a summary and gives none."""
        relevance = self.request.relevance.of_lines(turn.turn.id)
        worth = {line.number: own for line, own in zip(turn.lines, relevance, strict=True) if line.text.strip()}
        best = sorted(worth, key=lambda number: (-worth[number], number))
        return frozenset(best[:DIGEST_LINES])

    def _raw_tokens(self, turn: TurnEvidence, decision: TurnDecision) -> float:
        """An upper bound of what `decision` takes in the view, whatever stands around it."""
        counter = self.request.counter
        if decision.strategy == "keep":
            return turn.tokens / counter.scale + (0 if turn.turn.live else KEPT_RAW_TOKENS)
        text = entry_text(self.request.evidence, decision, self.media.get(turn.turn.id, ()))
        return counter.raw(text + "\n") + 1 if text else 0

    def _take_asked(self, left: float) -> float:
        """Give each turn what the planner asked for, the highest score first; what is left of the space."""
        gave_way: list[str] = []
        for turn in sorted(self.request.evidence.turns.values(), key=self._rank):
            turn_id, strategy = turn.turn.id, self.asked(turn).strategy
            if strategy is None or turn_id in self.whole or turn.turn.live:
                continue
            for step in STEPS[STEPS.index(strategy) : -1]:
                decision = self._decision(turn, step)
                more = self._raw_tokens(turn, decision) - self.costs[turn_id]
                if more <= left or more <= 0:
                    left -= self._choose(turn, decision)
                    break
            if step_of(self.chosen[turn_id], strategy):
                gave_way.append(f"{turn_id} {strategy}")
        if gave_way:
            problem = f"the target has no room for what the planner asked of {len(gave_way)} turns: "
            self.findings.append(
                Finding(code="gave_way", problem=problem + ", ".join(gave_way[:20]), repair="the next step down")
            )
        return left

    def _rank(self, turn: TurnEvidence) -> tuple[float, int]:
        """The highest score first; of equals the newest."""
        return -self.asked(turn).score, -turn.turn.number

    def _fill(self, left: float, budget: float, brief: str) -> float:
        """Put the next best lines where there is space; what is left then.

        What lines come to is estimated from above, so after each pass what was saved is measured and spent on the
        next picks of the same order, which are looked for only then.
        """
        waiting = (
            pick
            for pick in self._in_order(budget)
            if self.chosen[pick.turn_id].strategy != "keep" and not self._stands_in(brief, pick)
        )
        first = next(waiting, None)
        while first is not None:
            rest, lines = self._pass(chain([first], waiting), left)
            for turn_id, numbers in lines.items():
                turn, was = self.request.evidence.turns[turn_id], self.chosen[turn_id]
                numbers |= excerpt_numbers(was, len(turn.lines))
                update = {"strategy": "summarize", "excerpts": ranges_of(numbers)}
                left -= self._choose(turn, was.model_copy(update=update))
            if rest is first:
                break
            first = rest
        return left

    def _stands_in(self, brief: str, pick: Pick) -> bool:
        """True if the brief says word for word what the lines of a pick say."""
        lines = self.request.evidence.turns[pick.turn_id].lines
        return all(" ".join(lines[number - 1].text.split()) in brief for number in pick.numbers)

    def _pass(self, picks: Iterable[Pick], left: float) -> tuple[Pick | None, dict[str, set[int]]]:
        """The first of `picks` that may not fit into what is left, and the lines of those before it by turn id."""
        evidence = self.request.evidence
        lines: dict[str, set[int]] = {}
        standing: dict[str, set[int]] = {}
        for pick in picks:
            turn, decision = evidence.turns[pick.turn_id], self.chosen[pick.turn_id]
            there = standing.get(pick.turn_id)
            if there is None:
                there = standing[pick.turn_id] = excerpt_numbers(decision, len(turn.lines))
            new = {number for number in pick.numbers if number not in there}
            cost: float = sum([turn.line_tokens[number - 1] + MARK_TOKENS for number in new])
            if new and decision.strategy == "drop" and pick.turn_id not in lines:
                cost += self._head_tokens(turn)
            if cost > left:
                return pick, lines
            left -= cost
            if new:
                lines.setdefault(pick.turn_id, set()).update(new)
                there |= new
        return None, lines

    def _head_tokens(self, turn: TurnEvidence) -> float:
        """What the entry of `turn` takes without any line of it."""
        head = TurnDecision(turn_id=turn.turn.id, strategy="reference", relevance_score=0, failed_approach=turn.failed)
        return self._raw_tokens(turn, head)

    def _in_order(self, budget: float) -> Iterator[Pick]:
        """What may be filled in, by relevance and score; nothing of dropped turns.

        A pick comes once no later one can be worth more: priorities only fall, and no weight is above the highest.
        """
        request = self.request
        weights = {turn_id: self._weight(turn) for turn_id, turn in request.evidence.turns.items() if self._fills(turn)}
        most = max(weights.values(), default=1.0)
        waiting: list[tuple[float, int, Pick]] = []
        ranked = rank_lines(request.evidence, request.relevance, self.pinned, self.whole, 1.5 * budget)
        for at, pick in enumerate(ranked):
            while waiting and -waiting[0][0] >= pick.priority * most:
                yield heappop(waiting)[2]
            weight = weights.get(pick.turn_id)
            if weight == most and not waiting:
                yield pick
            elif weight is not None:
                heappush(waiting, (-pick.priority * weight, at, pick))
        yield from (pick for *_, pick in sorted(waiting))

    def _fills(self, turn: TurnEvidence) -> bool:
        """True if lines of `turn` may fill the space that is left."""
        return turn.turn.id not in self.whole and not turn.turn.live and self.asked(turn).strategy != "drop"

    def _weight(self, turn: TurnEvidence) -> float:
        asked = self.asked(turn)
        return 1.0 if asked.strategy is None else weight_of(asked.score)

    def _keep_ends(self) -> None:
        """Keep the turns at either end of which every line stands: there a message is as cheap as its entry."""
        turns = self.request.evidence.turns
        ids = list(turns)

        def complete(turn_id: str) -> bool:
            decision = self.chosen[turn_id]
            if decision.strategy == "keep":
                return True
            lines = len(turns[turn_id].lines)
            everything = 0 < lines == len(excerpt_numbers(decision, lines)) and not turns[turn_id].turn.live
            entry = self.costs[turn_id] * self.request.counter.scale
            return everything and turns[turn_id].tokens <= entry

        ends = [*takewhile(complete, ids), *takewhile(complete, reversed(ids))]
        for turn_id in ends:
            if self.chosen[turn_id].strategy != "keep":
                update = {"strategy": "keep", "excerpts": (), "summary": ""}
                self.chosen[turn_id] = self.chosen[turn_id].model_copy(update=update)


def step_of(decision: TurnDecision, asked: Strategy) -> bool:
    """True if `decision` gives a turn less than was asked for."""
    return STEPS.index(decision.strategy) > STEPS.index(asked)


def _numbers(excerpts: tuple[tuple[int, int], ...], most: int) -> Iterator[int]:
    for first, last in excerpts:
        yield from range(max(1, first), min(last, most) + 1)
