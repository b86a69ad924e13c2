"""Decides what happens to each turn by a planner's proposal, so that the compacted messages fit the target.

Pinned parts (`planner.pinned`) always stay. Then each turn gets the planner's strategy, or the next weaker one that
fits (keep, summarize, reference, drop); the highest scores come first. Remaining space is filled with the best lines by
rules. With a higher score or a stronger strategy a turn never gets less, since its place in the order only moves
forward, and its size is estimated as an upper bound without regard to other turns. No model, store or clock is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from planner.brief import (
    HEADINGS_RAW_TOKENS,
    PageStatement,
    brief_text,
    fit_brief,
    raw_tokens_of,
    read_brief,
    with_record,
)
from planner.evidence import TurnEvidence
from planner.layout import introduction_text, note_parts
from planner.pinned import Pinned, memory_room, pinned
from planner.placeholders import (
    entry_text,
    history_key,
    line_numbers,
    line_text,
    media_marks,
    ranges_of,
)
from planner.plan import Finding, PlanRequest, Proposal, Provenance, Strategy, TurnDecision, TurnProposal
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import join_lines, one_line
from planner.relevance import MARK_TOKENS, KeptTexts, Pick, rank_lines
from planner.rules import effects_records

STEPS: tuple[Strategy, ...] = ("keep", "summarize", "reference", "drop")
"""Treatments of a turn, the one that keeps most first."""
BRIEF_SHARE = 0.95
"""Share of the free room that a planner model is asked to fill with its brief (page of memory). The rest is for exact
lines, and for a brief that is too long, as a model cannot count tokens exactly.

On six sessions, a page in the model's own words answered more than twice as many test questions as lines of the same
size. On two sessions of 220,000 tokens, 11,000 more tokens of lines raised the share of answers by .03.
"""
LEAST_SHARE = 0.2
"""Smallest share of the target for brief (page of memory) and filling lines together, however many failures stay."""
LEAST_BRIEF_SHARE, LEAST_BRIEF_TOKENS, MOST_LEAST_SHARE = 0.5, 1_000, 0.8
"""Smallest room for a model's brief (page of memory): a share of the target, or these tokens if they are more, but at
most another share of the target. Pages of the whole target, written freely, answered .96 of 196 test questions about
twelve short sessions; pages of .4 of it, .77."""
RECORD_SHARE = 0.25
"""Largest size of the list of effects on the outside world, as a share of the room for brief and filling lines."""
LEAST_RECORD_SHARE = 0.1
"""Share of the target that the list of effects on the outside world may always take, if there is room."""
KEPT_RAW_TOKENS = 40
"""Raw tokens that a kept turn costs in addition to its own, as the note for removed turns before it ends, and another
one begins after it."""
OPENING_LINES = 2
"""Number of first lines that, with the last line, represent a turn if a summary is wanted and none is valid."""
IMAGE_SHARE = 0.1
"""Largest share of the remaining space for one turn with the user's image or document, up to which the turn stays
whole. No line describes an image, so that an agent would have to guess whether to look at it again."""
MORE_WORDS = "more words of the user"
"""Statement that cites turns with words of the user for which there is no room."""
MOST_UNSEEN = 8
"""Largest number of turns that the statement `MORE_WORDS` cites, the newest ones."""
MOST_WEIGHT = 2.0
"""Factor for the priority of the lines of a turn with score 1. With score 0, the priority is divided by it."""
SMALLER_ROOM = 0.9
"""Share of the room that is tried next if lines took more tokens than estimated."""
MOST_ROUNDS = 3
"""Number of rounds in which free space is filled. Each round writes the texts of the growing turns again."""
EVERY_MARK = ("✗\n> \n| \n+ …",)
"""Text with every mark that the introduction of compacted messages may have to explain, to compute its largest size."""
RECORDED = frozenset({"EFFECTS", "PENDING", "NOTES"})
"""Headings of the page of memory whose statements stay even if the text of a turn repeats them."""
KEPT: Mapping[str, Any] = {"strategy": "keep", "summary": "", "excerpts": ()}
"""Values of those fields of a decision that differ if the turn is kept whole."""

_HEAD = lazy_pattern(r"(?:t\d+ )?(?:✗ )?> ")
"""Beginning of a line about a call in the text that replaces a turn: ``t4 ✗ >``, ``>``."""
_CHANGED = lazy_pattern(r"(?<=\S): (?:edited|written)$")
"""End of a statement that only reports the change of a file: ``a.py: edited``; not ``a.py: removed``."""
_QUOTATION = lazy_pattern(r"[“\"]([^“”\"]+?)…?[”\"]")
"""Statement that only quotes: ``“Fix the parser…”``; not ``“Fix it”, replied at t9``, ``“yes” to: Shall I deploy?``."""


@dataclass(frozen=True)
class Selection:
    """Decisions on all turns that fit the target, with the page of memory (brief) that fits with them."""

    decisions: Mapping[str, TurnDecision]
    """Decision on each turn, by turn id, in order."""
    brief: str = ""
    filled_tokens: int = 0
    """Tokens of the lines that rules chose to fill remaining space."""
    findings: tuple[Finding, ...] = ()
    """Remarks on what did not fit."""


class _ShownLine(NamedTuple):
    """Line of a turn in the form in which the compacted messages show it."""

    turn_id: str
    number: int
    text: str
    names: Collection[str]
    """Names in the line; its whole text if it has no names."""


def _quoted_words(entry: str) -> list[str]:
    """Return the user's words in `entry`, the text that replaces a turn: those between ``user-words`` tags."""
    return [part.partition("</user-words>")[0] for part in entry.split("<user-words>")[1:]]


def opening_lines(turn: TurnEvidence) -> frozenset[int]:
    """Return the numbers of the lines that represent a turn if nothing better is known: the first lines that are not
    empty, and the last one."""
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _room(request: PlanRequest, least_tokens: float, least_room: float) -> float:
    """Return how many tokens there are for the brief (page of memory) and filling lines together, in addition to the
    `least_tokens`, which always stay: at least `least_room`, but never more than the context window leaves."""
    live, target = request.evidence.live_tokens, request.target_tokens
    room = memory_room(target, live) - (least_tokens - live)
    most = max(request.settings.window_tokens, target) - least_tokens
    return max(0.0, min(max(room, least_room), most))


def _brief_room(request: PlanRequest, least_tokens: float, *, by_model: bool = True) -> float:
    """Return how many tokens the brief (page of memory) may have. `least_tokens`: tokens that always stay in addition;
    `by_model`: True if a model writes the brief, which gets more room."""
    target = request.target_tokens
    least_brief = min(max(LEAST_BRIEF_SHARE * target, LEAST_BRIEF_TOKENS), MOST_LEAST_SHARE * target)
    return _room(request, least_tokens + frame_tokens(request), least_brief if by_model else LEAST_SHARE * target)


def brief_limit(request: PlanRequest, least_tokens: float) -> float:
    """Return how many tokens the brief (page of memory) of a planner model may have. `least_tokens`: tokens that always
    stay in addition to it."""
    return BRIEF_SHARE * _brief_room(request, least_tokens)


def recorded_turns(request: PlanRequest, least_tokens: float) -> list[str]:
    """Return the ids of the turns whose effects on the outside world are listed in any case, as there is room for them
    even if a model's page of memory fills its limit."""
    room = (1 - BRIEF_SHARE) * _brief_room(request, least_tokens) / request.counter.scale
    shortest = request.evidence.once(effects_records)[-1]
    costs = list(accumulate(raw_tokens_of(statement, request.counter) for statement in shortest))
    fitting = shortest[: bisect_right(costs, room)]
    return [statement.turns[-1] for statement in fitting if statement.heading == "EFFECTS"]


def least_tokens(request: PlanRequest) -> int:
    """Return how many tokens of ``request.history`` stay whatever a model decides: unanswered turns, and the user's
    words. Lines on failures and later successes do not count, as the model is asked to replace them by its page of
    memory."""
    selecting = _Selecting(request, Proposal({}, Provenance(planner="none")), None)
    selecting.pinned = replace(selecting.pinned, failures={}, successes={})
    return int(selecting.take_least() * request.counter.scale)


def frame_tokens(request: PlanRequest) -> float:
    """Return the tokens of the fixed text in compacted messages: tags, and the introduction without any marks."""
    return _frame_raw(request, ()) * request.counter.scale


def _frame_raw(request: PlanRequest, marked: Sequence[str], brief: str = "") -> int:
    """Return the raw tokens of the text around the turns in compacted messages: tags, the introduction to marks that
    occur in `marked`, and the page of memory, `brief`."""
    introduction = introduction_text(marked, "t10000", request.evidence.root, request.settings.restore_tool)
    key = history_key(request.history.digest)
    return request.counter.raw("\n".join(note_parts(key, ["t10000", "t10001"], [introduction, brief + "\n"])))


def select(request: PlanRequest, proposal: Proposal) -> Selection:
    """Choose what happens to each turn by the planner's `proposal`, so that the compacted messages fit
    ``request.target_tokens``.

    Space is given to pinned parts first, then to the page of memory (brief) with the list of effects, the planner's
    strategies, the user's images, and the best lines by rules. Sizes here are raw tokens, except `least`.
    """
    counter, selecting = request.counter, _Selecting(request, proposal, proposal.brief)
    least = selecting.take_least() * counter.scale
    room = _room(request, least, LEAST_SHARE * request.target_tokens) / counter.scale
    brief_room = _brief_room(request, least, by_model=_is_by_model(proposal)) / counter.scale
    with_effects = _brief_with_record(request, proposal, brief_room)
    brief, struck = fit_brief(_with_more_words(with_effects, selecting.pinned), counter, brief_room)
    if struck:
        problem = f"the brief is longer than the {int(brief_room * counter.scale)} tokens that the target leaves it"
        repair = f"its last {struck} statements are left out or shortened"
        selecting.findings.append(Finding(code="brief_too_long", problem=problem, repair=repair))
    if brief != proposal.brief:  # it may replace fewer lines on failures and successes
        selecting.pin(brief)
        room -= selecting.take_least()
    left_after_asked = selecting.take_asked(room - _frame_raw(request, EVERY_MARK, brief))
    left_after_images = selecting.keep_images(left_after_asked)
    picks = selecting.in_order(request.target_tokens / counter.scale)
    filled_raw = left_after_images - selecting.fill(left_after_images, picks, brief)
    selecting.keep_ends()
    selecting.explain_drops()
    brief = selecting.without_repeats(brief)
    return Selection(selecting.chosen, brief, max(0, int(filled_raw * counter.scale)), tuple(selecting.findings))


def _is_by_model(proposal: Proposal) -> bool:
    """Return True if a model or the user's own planner made `proposal`, and not the rules."""
    return proposal.provenance.planner != "rules"


def _brief_with_record(request: PlanRequest, proposal: Proposal, room: float) -> str:
    """Return the page of memory of `proposal` with the list of effects on the outside world. `room`: raw tokens for the
    page and filling lines."""
    counter, records = request.counter, request.evidence.once(effects_records)
    written = [statement for statement in read_brief(proposal.brief) if statement not in records[0]]
    raw = {statement: raw_tokens_of(statement, counter) for statement in written}
    limit = max(RECORD_SHARE * room, min(LEAST_RECORD_SHARE * request.target_tokens / counter.scale, room))
    if _is_by_model(proposal):  # a model was asked to leave room for the record: its whole brief stays
        limit = max(min(limit, room - sum(raw.values())), (1 - BRIEF_SHARE) * room)
    else:  # addresses of pages, the facts on a page by rules, give way to effects
        facts_raw = sum(raw[statement] for statement in written if statement.heading == "FACTS")
        limit = min(limit + facts_raw, room - HEADINGS_RAW_TOKENS - (sum(raw.values()) - facts_raw))
    return with_record(brief_text(written), records, counter, limit)


def _with_more_words(brief: str, pins: Pinned) -> str:
    """Return the page of memory `brief` with a statement that cites the newest turns with words of the user of which
    none stay, as far as the page cites them nowhere else, so that the agent knows where to look."""
    statements = [statement for statement in read_brief(brief) if statement.text != MORE_WORDS]
    cited = {turn_id for statement in statements for turn_id in statement.turns}
    unseen = [turn_id for turn_id in pins.words_left_out if not pins.user_words.get(turn_id) and turn_id not in cited]
    if not unseen:
        return brief
    newest = sorted(unseen, key=lambda turn_id: int(turn_id[1:]))[-MOST_UNSEEN:]
    return brief_text([*statements, PageStatement("REQUEST", MORE_WORDS, tuple(newest))])


@dataclass
class _Selecting:
    """Selection while it is made: the decision on each turn so far. Its methods give space to one turn after the
    other."""

    request: PlanRequest
    proposal: Proposal
    brief: InitVar[str | None]
    """Page of memory, which may replace lines on failures; None if it is not written yet."""
    chosen: dict[str, TurnDecision] = field(default_factory=dict)
    """Decision on each turn so far, by turn id."""
    costs: dict[str, float] = field(default_factory=dict)
    """Raw tokens that each turn takes by its decision, by turn id."""
    findings: list[Finding] = field(default_factory=list)
    head_costs: dict[str, float] = field(default_factory=dict)
    """Cache of `_head_tokens`, by turn id."""

    def __post_init__(self, brief: str | None) -> None:
        self.turns, asked = self.request.evidence.turns, self.proposal.turns
        self.asked = {turn_id: asked.get(turn_id) or TurnProposal(turn_id, 0.5, "not ranked") for turn_id in self.turns}
        self.pin(brief)

    def pin(self, brief: str | None) -> None:
        """Compute the parts of the history that always stay in addition to the page of memory, `brief`."""
        request, settings = self.request, self.request.settings
        view = settings.window_tokens, request.target_tokens, settings.target_model
        self.pinned = pinned(request.analysis, *view, brief, self.proposal.provenance.planner)

    def take_least(self) -> float:
        """Reduce all turns to the parts that always stay. Return the change in raw tokens."""
        additional = 0.0
        for turn_id in self.turns:
            additional += self._choose(self._decision(turn_id, "keep" if turn_id in self.pinned.whole else "drop"))
        return additional

    def _choose(self, decision: TurnDecision) -> float:
        """Choose `decision` for its turn. Return how many raw tokens it takes more than the decision before."""
        turn_id, cost = decision.turn_id, self._raw_tokens(decision)
        additional = cost - self.costs.get(turn_id, 0)
        self.chosen[turn_id], self.costs[turn_id] = decision, cost
        return additional

    def _decision(self, turn_id: str, step: Strategy) -> TurnDecision:
        """Return a decision on a turn with the strategy `step`, or a stronger one if the turn must not lose so much. If
        lines of the turn always stay, ``reference`` and ``drop`` become ``summarize``. If it has an image or document,
        ``drop`` becomes ``reference``."""
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
        """Return an upper bound of the raw tokens that the turn of `decision` takes in the compacted messages, whatever
        happens to the turns next to it."""
        counter, turn = self.request.counter, self.turns[decision.turn_id]
        if decision.strategy == "keep":
            return turn.tokens / counter.scale + (0 if turn.turn.live else KEPT_RAW_TOKENS)
        text = entry_text(self.request.evidence, decision, self.request.history)
        return counter.raw(text + "\n") + 1 if text else 0

    def take_asked(self, left_tokens: float) -> float:
        """Give each turn the strategy that the planner asked for, or the next weaker one that fits in `left_tokens`
        (raw). Turns with high scores come first, of equal scores the newest. Return the remaining raw tokens."""
        gave_way: list[str] = []
        newest_first = list(reversed(self.asked.values()))
        for asked in sorted(newest_first, key=lambda asked: -asked.score):
            turn_id, strategy = asked.turn_id, asked.strategy
            if strategy is None or turn_id in self.pinned.whole or self.turns[turn_id].turn.live:
                continue
            for step in STEPS[STEPS.index(strategy) : -1]:
                decision = self._decision(turn_id, step)
                additional = self._raw_tokens(decision) - self.costs[turn_id]
                if additional <= left_tokens or additional <= 0:
                    left_tokens -= self._choose(decision)
                    break
            if STEPS.index(self.chosen[turn_id].strategy) > STEPS.index(strategy):
                gave_way.append(f"{turn_id} {strategy}")
        if gave_way:
            problem = f"the target has no room for what the planner asked of {len(gave_way)} turns: "
            problem += ", ".join(gave_way[:20])
            self.findings.append(Finding(code="gave_way", problem=problem, repair="the next step down"))
        return left_tokens

    def keep_images(self, left_tokens: float) -> float:
        """Keep turns with the user's images whole, the newest first, if each takes at most `IMAGE_SHARE` of the
        remaining `left_tokens` (raw). Return the remaining raw tokens."""
        for turn_id, turn in reversed(list(self.turns.items())):
            if turn.turn.kind == "user" and self._weight(turn_id) and turn.once(media_marks, self.request.history):
                decision = self._decision(turn_id, "keep")
                if self._raw_tokens(decision) - self.costs[turn_id] <= left_tokens * IMAGE_SHARE:
                    left_tokens -= self._choose(decision)
        return left_tokens

    def in_order(self, budget: float) -> list[Pick]:
        """Return the lines that may fill free space, the best first by their relevance and the planner's scores. Lines
        of turns that the planner drops are left out. `budget`: raw tokens of the target; the ranking ends at 1.25 times
        as many."""
        pins = self.pinned.lines, self.pinned.whole
        ranked = rank_lines(self.request.evidence, self.request.relevance, *pins, 1.25 * budget)
        weights = {turn_id: self._weight(turn_id) for turn_id in self.turns}
        picks = [pick for pick in ranked if weights[pick.turn_id]]
        return sorted(picks, key=lambda pick: -pick.priority * weights[pick.turn_id])

    def _weight(self, turn_id: str) -> float:
        """Return the factor for the priority of a turn's lines by the planner's score: .5 for score 0, 1 for .5, 2 for
        1. It is 0 if the lines may not fill space, and 1 if the planner left the choice to the rules."""
        asked = self.asked[turn_id]
        if self.turns[turn_id].turn.live or asked.strategy == "drop" or self.chosen[turn_id].strategy == "keep":
            return 0.0
        return 1.0 if asked.strategy is None else float(MOST_WEIGHT ** (2 * asked.score - 1))

    def fill(self, left_tokens: float, picks: Sequence[Pick], brief: str) -> float:
        """Fill `left_tokens` (raw) with lines, the best of `picks` first, without lines that only repeat others. Return
        the remaining raw tokens.

        Each round adds lines that fit in `room` by their estimated sizes, then counts the texts of their turns exactly.
        If these are too long, the round is undone, and the next one has less room. Otherwise the next round uses the
        remaining space.
        """
        kept_texts, room = self._kept_texts(brief), left_tokens
        for _ in range(MOST_ROUNDS):
            if not picks:
                break
            lines_of_turns, later_picks = self._fitting(room, picks)
            decisions_before = {turn_id: self.chosen[turn_id] for turn_id in lines_of_turns}
            costs_before = {turn_id: self.costs[turn_id] for turn_id in lines_of_turns}
            additional = self._grow(decisions_before, lines_of_turns)
            if additional <= left_tokens:
                fewer_lines = self._without_repeated_lines(kept_texts, decisions_before)
                left_tokens -= additional + self._grow(decisions_before, fewer_lines)
                picks, room = later_picks, left_tokens
                continue
            self.chosen |= decisions_before
            self.costs |= costs_before
            if len(later_picks) == len(picks) - 1:  # not even the best line fits
                break
            room *= SMALLER_ROOM
        return left_tokens

    def _fitting(self, left_tokens: float, picks: Sequence[Pick]) -> tuple[dict[str, set[int]], Sequence[Pick]]:
        """Take the first `picks` (lines to add) that fit in `left_tokens` (raw) by their estimated sizes; at least one.
        Return all kept lines, old and new, of each of their turns, and the remaining picks."""
        lines_of_turns: dict[str, set[int]] = {}
        count = 0
        for pick in picks:
            lines = lines_of_turns.get(pick.turn_id) or self._lines_kept(pick.turn_id)
            added = set(pick.numbers) - lines
            turn = self.turns[pick.turn_id]
            head_cost = 0 if lines and len(turn.calls) < 2 else self._head_tokens(pick.turn_id)
            cost = head_cost + turn.tokens_of(added) + MARK_TOKENS * len(added)
            if cost > left_tokens and lines_of_turns:
                break
            left_tokens -= cost
            count += 1
            lines |= added
            lines_of_turns[pick.turn_id] = lines
        return lines_of_turns, picks[count:]

    def _grow(self, before: Mapping[str, TurnDecision], lines_of_turns: Mapping[str, set[int]]) -> float:
        """Change the decisions `before` of some turns: they keep `lines_of_turns`. Return the additional raw tokens."""
        additional = 0.0
        for turn_id, lines in lines_of_turns.items():
            update = {"strategy": "summarize", "excerpts": ranges_of(lines)} if lines else {}
            additional += self._choose(before[turn_id].model_copy(update=update))
        return additional

    def _head_tokens(self, turn_id: str) -> float:
        """Return how many raw tokens the line about one call of a turn takes on average; without calls, the first words
        of the turn."""
        if turn_id not in self.head_costs:
            turn = self.turns[turn_id]
            head = TurnDecision(turn_id=turn_id, strategy="reference", relevance_score=0, failed_approach=turn.failed)
            self.head_costs[turn_id] = self._raw_tokens(head) / max(1, len(turn.calls))
        return self.head_costs[turn_id]

    def _kept_texts(self, brief: str) -> KeptTexts:
        """Collect the lines kept so far and the statements of the page of memory, to find lines that repeat them."""
        kept_texts = KeptTexts()
        for statement in read_brief(brief):
            kept_texts.add_text(statement.text)
        for turn_id in self.chosen:
            self._note_heads(kept_texts, turn_id)
            for line in self._shown_lines(turn_id, self._lines_kept(turn_id)):
                kept_texts.add(line.names, line.text, turn_id)
        return kept_texts

    def _note_heads(self, kept_texts: KeptTexts, turn_id: str) -> None:
        """Add the lines about calls in the text of a turn to `kept_texts`, with an owner such as ``> t12``."""
        entry = entry_text(self.request.evidence, self.chosen[turn_id], self.request.history)
        for head in filter(_HEAD.match, entry.split("\n")):
            kept_texts.add_text(head, f"> {turn_id}")

    def _shown_lines(self, turn_id: str, numbers: Iterable[int]) -> Iterator[_ShownLine]:
        """Yield the lines with these `numbers` of a turn, as the compacted messages show them."""
        turn, root, names_in = self.turns[turn_id], self.request.evidence.root, self.request.relevance.names_in
        for line in turn.lines.numbered(numbers):
            text = line_text(turn, line, root)
            names = names_in(turn_id, line.number - 1, line.number) or [one_line(text)]
            yield _ShownLine(turn_id, line.number, text, names)

    def _without_repeated_lines(self, kept_texts: KeptTexts, before: Mapping[str, TurnDecision]) -> dict[str, set[int]]:
        """Find lines that were added since the decisions `before` and only repeat kept text. Return the other lines of
        each turn that has such lines. Of two lines that repeat each other, the shorter one is removed."""
        added: list[_ShownLine] = []
        kept_lines = {
            turn_id: line_numbers(old.excerpts, len(self.turns[turn_id].lines)) for turn_id, old in before.items()
        }
        for turn_id, old_numbers in kept_lines.items():
            if old_numbers:
                self._note_heads(kept_texts, turn_id)
            added += self._shown_lines(turn_id, self._lines_kept(turn_id) - old_numbers)
        shortened: set[str] = set()  # ids of turns that lose lines
        for line in sorted(added, key=lambda line: (-len(line.text), line.number)):
            turn_id = line.turn_id
            part = self.turns[turn_id].lines.text_at(line.number - 1).part
            owners_of_turn = {turn_id} if part == "result" else {turn_id, f"> {turn_id}"}
            if kept_texts.repeats(line.names, partial(str, line.text), part, owners_of_turn):
                shortened.add(turn_id)
                continue
            if not kept_lines[turn_id]:  # with the first line, the text of the turn also shows its calls
                self._note_heads(kept_texts, turn_id)
            kept_texts.add(line.names, line.text, turn_id)
            kept_lines[turn_id].add(line.number)
        return {turn_id: numbers for turn_id, numbers in kept_lines.items() if turn_id in shortened}

    def _lines_kept(self, turn_id: str) -> set[int]:
        """Return the numbers of the lines of a turn that its decision so far keeps verbatim."""
        return line_numbers(self.chosen[turn_id].excerpts, len(self.turns[turn_id].lines))

    def without_repeats(self, brief: str) -> str:
        """Return the page of memory `brief` without statements that only repeat the texts of the turns that they cite,
        or only quote the user in turns that stay whole. Statements under the headings in `RECORDED` all stay."""
        statements = read_brief(brief)
        left_statements = [
            statement
            for statement in statements
            if statement.heading in RECORDED
            or not (self._quotes_kept_words(statement) or self._is_repeated_below(statement))
        ]
        return brief if len(left_statements) == len(statements) else brief_text(left_statements)

    def _quotes_kept_words(self, statement: PageStatement) -> bool:
        """Return True if `statement` is only a quotation of the user's words in turns that stay whole. Later, when they
        are answered and the page is the same, it would look like an open request."""
        quotation = _QUOTATION.fullmatch(statement.text)
        kept = [turn_id for turn_id in statement.turns if self.chosen[turn_id].strategy == "keep"]
        words = (one_line(join_lines(self.turns[turn_id].user_lines)) for turn_id in kept)
        return quotation is not None and any(quotation[1] in text for text in words)

    def _is_repeated_below(self, statement: PageStatement) -> bool:
        """Return True if the texts in place of the turns that `statement` cites contain all that it reports. Return
        False if the page of memory replaces a line on a failure in one of these turns."""
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
        """Keep whole the first and the last turns of the history if all their lines were chosen, up to the first other
        turn: a message then costs no more than the text that would replace it."""
        for ids in (list(self.chosen), list(reversed(self.chosen))):
            for turn_id in takewhile(self._is_complete, ids):
                self.chosen[turn_id] = self.chosen[turn_id].model_copy(update=KEPT)

    def explain_drops(self) -> None:
        """Add ``(no room)`` to the rules' reason for a turn with a high score that is dropped all the same."""
        for turn_id, decision in self.chosen.items():
            if decision.strategy == "drop" and decision.relevance_score >= 0.5 and not _is_by_model(self.proposal):
                self.chosen[turn_id] = decision.model_copy(update={"reason": f"{decision.reason} (no room)"})

    def _is_complete(self, turn_id: str) -> bool:
        """Return True if a turn is kept whole, or the text in its place has all its lines and is no shorter."""
        decision, turn = self.chosen[turn_id], self.turns[turn_id]
        if decision.strategy == "keep" or turn.turn.live:
            return decision.strategy == "keep"  # an unanswered turn that is shortened stays so
        entry_tokens = self.costs[turn_id] * self.request.counter.scale
        return 0 < len(turn.lines) == len(self._lines_kept(turn_id)) and turn.tokens <= entry_tokens
