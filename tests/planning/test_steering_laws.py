"""What a planner says steers: a higher score or a stronger strategy never gets a turn less, and planners that disagree
give different plans."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.view import preview
from planner import plan_compaction
from planner.analysis import analyze
from planner.pinned import unknown_view
from planner.plan import Proposal, Provenance, TurnProposal
from tests.planning.planners import STRATEGIES, Answers, Says
from tests.strategies import answered_histories, histories
from tests.viewed import said

TRANSCRIPT = json.loads((Path(__file__).parents[1] / "example" / "failing.json").read_text(encoding="utf-8"))
SCORES = (0.0, 0.3, 0.5, 0.9, 1.0)
RATIOS = (0.02, 0.1, 0.25, 0.5, 0.8)


@st.composite
def proposals(draw, messages):
    """Any sound answer for `messages`: any strategies and scores, lines of the turn, words it holds."""
    turns = {}
    for turn_id, turn in analyze(messages).evidence.turns.items():
        last = len(turn.lines)
        picks = draw(st.lists(st.integers(1, last), max_size=3)) if last else []
        turns[turn_id] = TurnProposal(
            turn_id,
            draw(st.sampled_from(SCORES)),
            strategy=draw(st.sampled_from([*STRATEGIES, None])),
            summary=draw(st.sampled_from(["", "it was looked at", "tried and given up"])),
            excerpts=tuple((number, number) for number in sorted(set(picks))),
        )
    return Proposal(turns, Provenance(planner="drawn"))


@st.composite
def asks(draw):
    """A list, an answer for it, a share of its size, and one turn of it."""
    messages = draw(st.one_of(histories(min_turns=3), answered_histories(min_turns=3)))
    proposal = draw(proposals(messages))
    return messages, proposal, draw(st.sampled_from(RATIOS)), draw(st.sampled_from(sorted(proposal.turns)))


def planned(messages, proposal, ratio, **wishes):
    return plan_compaction(messages, "fix it", planner=Answers(proposal), target_ratio=ratio, now=0.0, **wishes)


def gets(plan, turn_id):
    """What a turn gets: how much at all (whole, words and lines, a pointing line, nothing), and which lines."""
    decision = plan.decisions[turn_id]
    lines = {number for first, last in decision.excerpts for number in range(first, last + 1)}
    return ("drop", "reference", "summarize", "keep").index(decision.strategy), lines, decision.summary


def is_no_less(after, before):
    """True if `after` (see `gets`) holds all of `before`."""
    return after[0] == 3 or (
        after[0] >= before[0] and after[1] >= before[1] and (not before[2] or after[2] == before[2])
    )


def raised(proposal, turn_id, **change):
    return replace(proposal, turns={**proposal.turns, turn_id: replace(proposal.turns[turn_id], **change)})


@pytest.mark.real
@given(asks(), st.sampled_from(SCORES))
def test_a_higher_score_never_gets_a_turn_less(ask, score):
    messages, proposal, ratio, turn_id = ask
    higher = raised(proposal, turn_id, score=max(score, proposal.turns[turn_id].score))
    before, after = (planned(messages, answer, ratio) for answer in (proposal, higher))
    assert is_no_less(gets(after, turn_id), gets(before, turn_id))


@pytest.mark.real
@given(asks(), st.sampled_from(STRATEGIES))
def test_a_stronger_strategy_never_gets_a_turn_less(ask, strategy):
    messages, proposal, ratio, turn_id = ask
    weaker = proposal.turns[turn_id].strategy
    if weaker is None or STRATEGIES.index(weaker) > STRATEGIES.index(strategy):
        weaker, strategy = sorted((weaker or "drop", strategy), key=STRATEGIES.index)
    plans = (planned(messages, raised(proposal, turn_id, strategy=one), ratio) for one in (weaker, strategy))
    before, after = (gets(plan, turn_id) for plan in plans)
    asked = {number for number, _ in proposal.turns[turn_id].excerpts}
    has_what_was_asked = after[0] >= before[0] and asked <= after[1] and not asked <= before[1]
    assert is_no_less(after, before) or has_what_was_asked, "lines that were asked for may stand in place of others"


@given(asks())
def test_what_is_asked_happens_or_a_finding_says_what_gave_way(ask):
    messages, proposal, ratio, _ = ask
    plan = planned(messages, proposal, ratio)
    if {"saves_too_little", "would_grow"} & {finding.code for finding in plan.findings}:
        return
    less = [
        turn_id
        for turn_id, asked in proposal.turns.items()
        if asked.strategy and gets(plan, turn_id)[0] < STRATEGIES.index(asked.strategy)
    ]
    problems = " ".join(finding.problem for finding in plan.findings if finding.code == "gave_way")
    assert [turn_id for turn_id in less if f" {turn_id} " not in problems] == []


def numbers_of_call(turn, call):
    return [line.number for block in (call.block, call.result_block) for line in turn.lines.of_block(block)]


@given(st.one_of(histories(min_turns=3), answered_histories(min_turns=3)), st.sampled_from(RATIOS))
def test_drop_leaves_nothing_but_what_is_pinned_and_marks_of_images(messages, ratio):
    plan = plan_compaction(messages, "fix it", planner=Says("drop", 0.5), target_ratio=ratio, now=0.0)
    if {"saves_too_little", "would_grow"} & {finding.code for finding in plan.findings}:
        return
    analysis = analyze(messages)
    for turn_id, turn in analysis.evidence.turns.items():
        strength, lines, words = gets(plan, turn_id)
        if turn.turn.live or turn.turn.must_stay or turn_id in (*analysis.broken, unknown_view(analysis.history)):
            continue
        if strength == 3:
            own = {line.number for line in turn.user_lines}
            assert set(range(1, len(turn.lines) + 1)) == {*turn.decisive_lines} | own
        else:
            assert lines >= {*turn.decisive_lines}
            done = {number for call in turn.calls if call.acts for number in numbers_of_call(turn, call)}
            rest = lines - {*turn.decisive_lines} - done
            assert rest <= {line.number for line in turn.user_lines}, "the user's words"
            assert words == ""
            has_media = any(
                kind in str(messages[turn.turn.start : turn.turn.stop]) for kind in ("'image'", "'document'")
            )
            assert strength != 1 or has_media


@pytest.mark.real
@pytest.mark.parametrize("ratio", [0.25, 0.4])
def test_planners_that_disagree_give_different_plans(ratio):
    messages, task = TRANSCRIPT["messages"], TRANSCRIPT["task"]
    ten = {
        (strategy, score): plan_compaction(messages, task, planner=Says(strategy, score), target_ratio=ratio, now=0.0)
        for strategy in (*STRATEGIES, None)
        for score in (0.0, 1.0)
    }
    views = {asked: said(preview(plan).messages) for asked, plan in ten.items()}
    for one, other in combinations(ten, 2):
        assert ten[one].turns != ten[other].turns
        assert one[0] == other[0] or views[one] != views[other]


def test_who_ranks_the_other_half_higher_gets_the_other_half():
    messages, task = TRANSCRIPT["messages"], TRANSCRIPT["task"]
    ids = list(analyze(messages).evidence.turns)
    halves = [
        Proposal(
            {one: TurnProposal(one, float(at % 2 == odd), strategy="keep") for at, one in enumerate(ids)},
            Provenance(planner="half"),
        )
        for odd in (0, 1)
    ]
    even, odd = (plan_compaction(messages, task, planner=Answers(half), target_ratio=0.3, now=0.0) for half in halves)
    kept = [
        {turn_id for turn_id, decision in plan.decisions.items() if decision.strategy == "keep"} for plan in (even, odd)
    ]
    assert kept[0] - kept[1] <= set(ids[::2])
    assert kept[1] - kept[0] <= set(ids[1::2])
    assert kept[0] - kept[1]
    assert kept[1] - kept[0]
