"""Selection of decisions from a proposal, within the target.

Pinned parts (`planner.pinned`) always stay. Then each turn gets the planner's strategy, or the next weaker one that
fits (keep, summarize, reference, drop); the highest scores come first. Remaining space is filled with the rules' next
best lines. With a higher score or a stronger strategy a turn never gets less. Its place in the order only moves
forward, and every size is an upper bound that depends on its own turn alone. Pure: no model, no store, no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from planner.brief import PageStatement, brief_text, fit_brief, read_brief, with_record
from planner.evidence import TurnEvidence
from planner.pinned import memory_room, pinned
from planner.placeholders import (
    entry_text,
    guide_text,
    history_key,
    line_numbers,
    line_text,
    media_marks,
    note_parts,
    ranges_of,
)
from planner.plan import Finding, Provenance, Strategy, TurnDecision
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.lazy import lazy_pattern
from planner.relevance import MARK_TOKENS, KeptTexts, Pick, one_line, rank_lines
from planner.rules import effects_records

STEPS: tuple[Strategy, ...] = ("keep", "summarize", "reference", "drop")
"""Strategies, the strongest first."""
BRIEF_SHARE = 0.95
"""Share of the free room that a planner is asked to fill with its brief. The rest is for exact lines, and for a brief
that is too long, as a planner cannot count tokens exactly.

On six sessions a page in the planner's own words answered more than twice as many questions as lines of the same size.
On two sessions of 220,000 tokens, 11,000 more tokens of lines answered .03 more.
"""
LEAST_SHARE = 0.2
"""Smallest share of the target for brief and filling lines together, however many failures stay."""
LEAST_BRIEF_SHARE, LEAST_BRIEF_TOKENS, MOST_LEAST_SHARE = 0.5, 1_000, 0.8
"""Smallest room for a model's brief: a share of the target, or if that is more these tokens, but at most another share
of the target. Pages of the whole target, written freely, answered .96 of 196 questions about twelve short sessions,
pages of .4 of it .77."""
RECORD_SHARE = 0.25
"""Largest size of the record of effects, as a share of the room for brief and filling lines."""
LEAST_RECORD_SHARE = 0.1
"""Share of the target that the record of effects may always take, if there is room."""
RECORD_FORMS = (1.0, 0.5, 0.25)
"""Lengths of actions and receipts as shares of their longest form; these are tried in order until all fit."""
KEPT_RAW_TOKENS = 40
"""Raw tokens that a kept turn costs in addition to its own: the note before it is closed, and another one opened."""
OPENING_LINES = 2
"""Number of first lines that, with the last line, represent a turn if a summary is wanted and none is valid."""
IMAGE_SHARE = 0.1
"""Share of the remaining space that a turn with the user's image or document may take to stay whole. No line describes
an image, so that an agent would have to guess whether to restore it."""
MOST_WEIGHT = 2.0
"""Factor on the priority of the lines of a turn with score 1; with score 0 the priority is divided by it."""
SMALLER_ROOM = 0.9
"""Share of the room that is tried next after lines took more tokens than estimated."""
MOST_ROUNDS = 3
"""Number of rounds in which free space is filled; each writes the growing entries again."""
EVERY_MARK = ("✗\n> \n| \n+ …",)
"""Entry with every mark, to compute the largest size of a view's guide."""
RECORDED = frozenset({"EFFECTS", "PENDING", "NOTES"})
"""Headings whose statements stay even if an entry repeats them."""
KEPT: Mapping[str, Any] = {"strategy": "keep", "summary": "", "excerpts": ()}
"""Fields of a decision that keeps its turn."""

_HEAD = lazy_pattern(r"(?:t\d+ )?(?:✗ )?> ")
"""Beginning of the line of a call in an entry: ``t4 ✗ >``, ``>``."""
_CHANGED = lazy_pattern(r"(?<=\S): (?:edited|written)$")
"""End of a statement that only reports the change of a file: ``a.py: edited``; not ``a.py: removed``."""


@dataclass(frozen=True)
class Selection:
    """Decisions for every turn, in order, and the brief that fits with them."""

    decisions: Mapping[str, TurnDecision]
    brief: str = ""
    filled_tokens: int = 0
    """Tokens of the lines that filled remaining space."""
    findings: tuple[Finding, ...] = ()


class _ShownLine(NamedTuple):
    """Line of a turn as its entry shows it."""

    turn_id: str
    number: int
    text: str
    names: Collection[str]
    """Names in the line; its whole text if it has none."""


def _quoted_words(entry: str) -> list[str]:
    """Return the user's words in an entry, which are between ``user-words`` tags."""
    return [part.partition("</user-words>")[0] for part in entry.split("<user-words>")[1:]]


def opening_lines(turn: TurnEvidence) -> frozenset[int]:
    """Return the numbers of the lines that represent a turn: the first ones that are not empty, and the last."""
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _room(request: PlanRequest, least_tokens: float, least_room: float) -> float:
    """Return the tokens that brief and filling lines together may have beside the `least_tokens`, which always stay. It
    is at least `least_room`, but never more than the window leaves."""
    live, target = request.evidence.live_tokens, request.target_tokens
    room = memory_room(target, live) - (least_tokens - live)
    most = max(request.settings.window_tokens, target) - least_tokens
    return max(0.0, min(max(room, least_room), most))


def _brief_room(request: PlanRequest, least_tokens: float, *, by_model: bool = True) -> float:
    """Return the tokens that a brief may have. `least_tokens`: tokens that always stay beside it, without the frame of
    its note."""
    target = request.target_tokens
    least_brief = min(max(LEAST_BRIEF_SHARE * target, LEAST_BRIEF_TOKENS), MOST_LEAST_SHARE * target)
    return _room(request, least_tokens + frame_tokens(request), least_brief if by_model else LEAST_SHARE * target)


def brief_limit(request: PlanRequest, least_tokens: float) -> float:
    """Return the tokens of the longest brief that a planner may write. `least_tokens`: tokens that always stay."""
    return BRIEF_SHARE * _brief_room(request, least_tokens)


def recorded_turns(request: PlanRequest, least_tokens: float) -> list[str]:
    """Return the turn id of each effect, the newest first, for which there is room even if a brief fills its limit."""
    room = (1 - BRIEF_SHARE) * _brief_room(request, least_tokens) / request.counter.scale
    shortest = _settled_records(request)[-1]
    costs = list(accumulate(request.counter.raw(one.line + "\n") for one in shortest))
    return [one.turns[0] for one in shortest[: bisect_right(costs, room)] if one.heading == "EFFECTS"]


def least_tokens(request: PlanRequest) -> int:
    """Return the tokens of ``request.history`` that stay beside a model's brief: the live tail and pinned parts. Lines
    of failures, and of later successes, do not count, as the brief is asked to replace them."""
    selecting = _Selecting(request, Proposal({}, Provenance(planner="none")), None)
    selecting.pinned = replace(selecting.pinned, failures={}, successes={})
    return int(selecting.take_least() * request.counter.scale)


def frame_tokens(request: PlanRequest) -> float:
    """Return the tokens of the text around brief and turns in a view without marks: its tags, and its introduction."""
    return _frame_raw(request, ()) * request.counter.scale


def _frame_raw(request: PlanRequest, marked: Sequence[str], brief: str = "") -> int:
    """Return the tokens, before `counter.scale`, of the text around the turns of a view: its tags, the guide to the
    marks in `marked`, and `brief`."""
    guide = guide_text(marked, "t10000", request.evidence.root, request.settings.restore_tool)
    key = history_key(request.history.digest)
    return request.counter.raw("\n".join(note_parts(key, ["t10000", "t10001"], [guide, brief + "\n"])))


def select(request: PlanRequest, proposal: Proposal) -> Selection:
    """Return a decision for each turn, and the brief, within ``request.target_tokens``.

    Pinned parts come first, then brief and record of effects, the planner's strategies, the user's images, and the
    rules' next best lines. Sizes here are raw tokens (before `counter.scale`) except `least`.
    """
    counter, selecting = request.counter, _Selecting(request, proposal, proposal.brief)
    least = selecting.take_least() * counter.scale
    room = _room(request, least, LEAST_SHARE * request.target_tokens) / counter.scale
    brief_room = _brief_room(request, least, by_model=_is_by_model(proposal)) / counter.scale
    brief, struck = fit_brief(_brief_with_record(request, proposal, brief_room), counter, brief_room)
    if struck:
        problem = f"the brief is longer than the {int(brief_room * counter.scale)} tokens that the target leaves it"
        repair = f"its last {struck} statements are left out or shortened"
        selecting.findings.append(Finding(code="brief_too_long", problem=problem, repair=repair))
        selecting.pin(brief)
        room -= selecting.take_least()
    left_after_asked = selecting.take_asked(room - _frame_raw(request, EVERY_MARK, brief))
    left_after_images = selecting.keep_images(left_after_asked)
    picks = selecting.in_order(request.target_tokens / counter.scale)
    filled_raw = left_after_images - selecting.fill(left_after_images, picks, brief)
    selecting.keep_ends()
    brief = selecting.without_repeats(brief)
    return Selection(selecting.chosen, brief, max(0, int(filled_raw * counter.scale)), tuple(selecting.findings))


def _is_by_model(proposal: Proposal) -> bool:
    return proposal.provenance.planner != "rules"


def _brief_with_record(request: PlanRequest, proposal: Proposal, room: float) -> str:
    """Return the brief of `proposal` with the record of effects. `room`: raw tokens for brief and filling lines."""
    counter, records = request.counter, _settled_records(request)
    brief = brief_text(one for one in read_brief(proposal.brief) if one not in records[0])
    limit = max(RECORD_SHARE * room, min(LEAST_RECORD_SHARE * request.target_tokens / counter.scale, room))
    if _is_by_model(proposal):  # a model was asked to leave room for the record: its whole brief stays
        limit = max(min(limit, room - counter.raw(brief)), (1 - BRIEF_SHARE) * room)
    return with_record(brief, records, counter, limit)


def _settled_records(request: PlanRequest) -> list[list[PageStatement]]:
    """Return the record of effects without the live tail, in ever shorter forms."""
    turns = request.evidence.turns
    records = effects_records(request.evidence, RECORD_FORMS)
    return [[one for one in record if not turns[one.turns[0]].turn.live] for record in records]


@dataclass
class _Selecting:
    """Choices so far."""

    request: PlanRequest
    proposal: Proposal
    brief: InitVar[str | None]
    """Brief that may replace lines of failures; None if it is not written yet."""
    chosen: dict[str, TurnDecision] = field(default_factory=dict)
    """Decisions so far, by turn id."""
    costs: dict[str, float] = field(default_factory=dict)
    """Raw tokens of these decisions, by turn id."""
    findings: list[Finding] = field(default_factory=list)
    head_costs: dict[str, float] = field(default_factory=dict)
    """Results of `_head_tokens` so far, by turn id."""

    def __post_init__(self, brief: str | None) -> None:
        self.turns, asked = self.request.evidence.turns, self.proposal.turns
        self.asked = {turn_id: asked.get(turn_id) or TurnProposal(turn_id, 0.5, "not ranked") for turn_id in self.turns}
        self.pin(brief)

    def pin(self, brief: str | None) -> None:
        """Compute the pinned parts in addition to `brief`, which may replace lines of failures."""
        request, settings = self.request, self.request.settings
        view = settings.window_tokens, request.target_tokens, settings.target_model
        self.pinned = pinned(request.analysis, *view, brief, self.proposal.provenance.planner)

    def take_least(self) -> float:
        """Reduce all turns to the parts that always stay; return the change in raw tokens."""
        additional = 0.0
        for turn_id in self.turns:
            additional += self._choose(self._decision(turn_id, "keep" if turn_id in self.pinned.whole else "drop"))
        return additional

    def _choose(self, decision: TurnDecision) -> float:
        """Apply `decision`; return its raw tokens minus those of the decision that it replaces."""
        turn_id, cost = decision.turn_id, self._raw_tokens(decision)
        more = cost - self.costs.get(turn_id, 0)
        self.chosen[turn_id], self.costs[turn_id] = decision, cost
        return more

    def _decision(self, turn_id: str, step: Strategy) -> TurnDecision:
        """Return the decision for a turn with the strategy `step`, or a stronger one if it must not lose so much.

        With pinned lines, ``reference`` and ``drop`` become ``summarize``. With an image or document, ``drop`` becomes
        ``reference``.
        """
        turn, asked = self.turns[turn_id], self.asked[turn_id]
        kept_lines, summary = self.pinned.lines.get(turn_id, frozenset()), ""
        if step == "summarize":
            summary = asked.summary
            kept_lines |= line_numbers(asked.excerpts, len(turn.lines))
            if not kept_lines and not summary.strip():
                kept_lines = opening_lines(turn)
        elif step in ("reference", "drop") and kept_lines:
            step = "summarize"
        elif step == "drop" and turn.once(media_marks, self.request.history):
            step = "reference"
        return TurnDecision(
            turn_id=turn_id,
            strategy=step,
            relevance_score=asked.score,
            reason=asked.reason,
            failed_approach=turn.failed or asked.failed_approach,
            summary=summary,
            excerpts=ranges_of(kept_lines) if step == "summarize" else (),
        )

    def _raw_tokens(self, decision: TurnDecision) -> float:
        """Return an upper bound of the raw tokens of `decision` in the view, whatever its neighbours are."""
        counter, turn = self.request.counter, self.turns[decision.turn_id]
        if decision.strategy == "keep":
            return turn.tokens / counter.scale + (0 if turn.turn.live else KEPT_RAW_TOKENS)
        text = entry_text(self.request.evidence, decision, self.request.history)
        return counter.raw(text + "\n") + 1 if text else 0

    def take_asked(self, left: float) -> float:
        """Give each turn the planner's strategy, or the next weaker one that fits in `left` raw tokens. The turn with
        the highest score comes first, of equal scores the newest turn. Return the remaining raw tokens."""
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
        """Keep turns with the user's images, the newest first, each if it takes at most `IMAGE_SHARE` of the raw tokens
        that are `left` then. Return the remaining raw tokens."""
        for turn_id, turn in reversed(list(self.turns.items())):
            if turn.turn.kind == "user" and self._weight(turn_id) and turn.once(media_marks, self.request.history):
                decision = self._decision(turn_id, "keep")
                if self._raw_tokens(decision) - self.costs[turn_id] <= left * IMAGE_SHARE:
                    left -= self._choose(decision)
        return left

    def in_order(self, budget: float) -> list[Pick]:
        """Return the lines that may fill free room, the best first by relevance and score. Turns that the planner drops
        have none. `budget`: raw tokens of the target; the ranking ends at 1.25 times as many."""
        pins = self.pinned.lines, self.pinned.whole
        ranked = rank_lines(self.request.evidence, self.request.relevance, *pins, 1.25 * budget)
        weights = {turn_id: self._weight(turn_id) for turn_id in self.turns}
        picks = [pick for pick in ranked if weights[pick.turn_id]]
        return sorted(picks, key=lambda pick: -pick.priority * weights[pick.turn_id])

    def _weight(self, turn_id: str) -> float:
        """Return the factor on the priority of a turn's lines: .5 for score 0, 1 for score .5, 2 for score 1. It is 0
        if they may not fill space, and 1 if the planner left the choice to the rules."""
        asked = self.asked[turn_id]
        if self.turns[turn_id].turn.live or asked.strategy == "drop" or self.chosen[turn_id].strategy == "keep":
            return 0.0
        return 1.0 if asked.strategy is None else float(MOST_WEIGHT ** (2 * asked.score - 1))

    def fill(self, left: float, picks: Sequence[Pick], brief: str) -> float:
        """Add the next best lines within `left` raw tokens, without lines that only repeat others. Return the remaining
        raw tokens.

        Each round adds lines that fit in `room` by their estimated sizes, then counts the entries exactly. If these are
        too long, the round is undone, and the next one has less room. Otherwise the next round uses what is left.
        """
        kept_texts, room = self._kept_texts(brief), left
        for _ in range(MOST_ROUNDS):
            if not picks:
                break
            lines_of_turns, later_picks = self._fitting(room, picks)
            decisions_before = {turn_id: self.chosen[turn_id] for turn_id in lines_of_turns}
            costs_before = {turn_id: self.costs[turn_id] for turn_id in lines_of_turns}
            additional = self._grow(decisions_before, lines_of_turns)
            if additional <= left:
                fewer_lines = self._without_repeated_lines(kept_texts, decisions_before)
                left -= additional + self._grow(decisions_before, fewer_lines)
                picks, room = later_picks, left
                continue
            self.chosen |= decisions_before
            self.costs |= costs_before
            if len(later_picks) == len(picks) - 1:  # not even the best line fits
                break
            room *= SMALLER_ROOM
        return left

    def _fitting(self, left: float, picks: Sequence[Pick]) -> tuple[dict[str, set[int]], Sequence[Pick]]:
        """Return the kept lines, old and new, of each turn that grows by the first `picks`, and the remaining picks. As
        many picks are used as fit in `left` raw tokens, but at least one."""
        lines_of_turns: dict[str, set[int]] = {}
        count = 0
        for pick in picks:
            lines = lines_of_turns.get(pick.turn_id) or self._lines_kept(pick.turn_id)
            added = set(pick.numbers) - lines
            turn = self.turns[pick.turn_id]
            head_cost = 0 if lines and len(turn.calls) < 2 else self._head_tokens(pick.turn_id)
            cost = head_cost + turn.tokens_of(added) + MARK_TOKENS * len(added)
            if cost > left and lines_of_turns:
                break
            left -= cost
            count += 1
            lines |= added
            lines_of_turns[pick.turn_id] = lines
        return lines_of_turns, picks[count:]

    def _grow(self, before: Mapping[str, TurnDecision], lines_of_turns: Mapping[str, set[int]]) -> float:
        """Give the turns of `lines_of_turns` their decisions `before`, with these lines as their only excerpts. Return
        the change in raw tokens."""
        additional = 0.0
        for turn_id, lines in lines_of_turns.items():
            update = {"strategy": "summarize", "excerpts": ranges_of(lines)} if lines else {}
            additional += self._choose(before[turn_id].model_copy(update=update))
        return additional

    def _head_tokens(self, turn_id: str) -> float:
        """Return the average raw tokens of the line of one call of a turn; without calls, of the turn's first words."""
        if turn_id not in self.head_costs:
            turn = self.turns[turn_id]
            head = TurnDecision(turn_id=turn_id, strategy="reference", relevance_score=0, failed_approach=turn.failed)
            self.head_costs[turn_id] = self._raw_tokens(head) / max(1, len(turn.calls))
        return self.head_costs[turn_id]

    def _kept_texts(self, brief: str) -> KeptTexts:
        """Return a collection of the names and words that `brief` and the chosen lines contain so far."""
        kept_texts = KeptTexts()
        for statement in read_brief(brief):
            kept_texts.add_text(statement.text)
        for turn_id in self.chosen:
            self._note_heads(kept_texts, turn_id)
            for number in self._lines_kept(turn_id):
                line = self._shown_line(turn_id, number)
                kept_texts.add(line.names, line.text, turn_id)
        return kept_texts

    def _note_heads(self, kept_texts: KeptTexts, turn_id: str) -> None:
        """Add the lines of calls in a turn's entry to `kept_texts`, with the owner ``> t12``."""
        entry = entry_text(self.request.evidence, self.chosen[turn_id], self.request.history)
        for head in filter(_HEAD.match, entry.split("\n")):
            kept_texts.add_text(head, f"> {turn_id}")

    def _shown_line(self, turn_id: str, number: int) -> _ShownLine:
        """Return the line with this number of a turn."""
        turn = self.turns[turn_id]
        text = line_text(turn, turn.lines[number - 1], self.request.evidence.root)
        names = self.request.relevance.names_in(turn_id, number - 1, number) or [one_line(text)]
        return _ShownLine(turn_id, number, text, names)

    def _without_repeated_lines(self, kept_texts: KeptTexts, before: Mapping[str, TurnDecision]) -> dict[str, set[int]]:
        """Return the remaining lines of each turn that loses lines, because these were added since the decisions
        `before` and only repeat kept text. Of two such lines the shorter one is lost."""
        added: list[_ShownLine] = []
        kept = {turn_id: line_numbers(old.excerpts, len(self.turns[turn_id].lines)) for turn_id, old in before.items()}
        for turn_id, old_numbers in kept.items():
            if old_numbers:
                self._note_heads(kept_texts, turn_id)
            added += (self._shown_line(turn_id, number) for number in self._lines_kept(turn_id) - old_numbers)
        shortened: set[str] = set()  # ids of turns that lose lines
        for line in sorted(added, key=lambda line: (-len(line.text), line.number)):
            turn_id = line.turn_id
            part = self.turns[turn_id].lines.text_at(line.number - 1).part
            own_owners = {turn_id} if part == "result" else {turn_id, f"> {turn_id}"}
            if kept_texts.repeats(line.names, partial(str, line.text), part, own_owners):
                shortened.add(turn_id)
                continue
            if not kept[turn_id]:  # with its first line, the entry also shows the turn's calls
                self._note_heads(kept_texts, turn_id)
            kept_texts.add(line.names, line.text, turn_id)
            kept[turn_id].add(line.number)
        return {turn_id: numbers for turn_id, numbers in kept.items() if turn_id in shortened}

    def _lines_kept(self, turn_id: str) -> set[int]:
        return line_numbers(self.chosen[turn_id].excerpts, len(self.turns[turn_id].lines))

    def without_repeats(self, brief: str) -> str:
        """Return `brief` without statements that entries of the cited turns repeat; those under `RECORDED` all stay."""
        statements = read_brief(brief)
        rest = [one for one in statements if one.heading in RECORDED or not self._is_repeated_below(one)]
        return brief if len(rest) == len(statements) else brief_text(rest)

    def _is_repeated_below(self, statement: PageStatement) -> bool:
        """Return True if the entries of the turns that `statement` cites contain all that it reports. False if one of
        these turns has lines of a failure that the brief replaces."""
        if not self.pinned.covered.keys().isdisjoint(statement.turns):
            return False
        kept_texts, text = KeptTexts(), _CHANGED.sub("", statement.text)
        for turn_id in statement.turns:
            if self.chosen[turn_id].strategy != "keep":
                entry = entry_text(self.request.evidence, self.chosen[turn_id], self.request.history)
                for line in (*entry.split("\n"), *_quoted_words(entry)):
                    kept_texts.add_text(line)
        return kept_texts.repeats_text(text, "assistant")

    def keep_ends(self) -> None:
        """Keep whole the turns at the beginning and the end of the history that `_is_complete` allows, up to the first
        other turn."""
        for ids in (list(self.chosen), list(reversed(self.chosen))):
            for turn_id in takewhile(self._is_complete, ids):
                self.chosen[turn_id] = self.chosen[turn_id].model_copy(update=KEPT)

    def _is_complete(self, turn_id: str) -> bool:
        """Return True for a turn that is kept whole, or may be: its entry has all its lines and is no shorter."""
        decision, turn = self.chosen[turn_id], self.turns[turn_id]
        if decision.strategy == "keep" or turn.turn.live:
            return decision.strategy == "keep"
        entry_tokens = self.costs[turn_id] * self.request.counter.scale
        return 0 < len(turn.lines) == len(self._lines_kept(turn_id)) and turn.tokens <= entry_tokens
