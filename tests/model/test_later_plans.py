"""Plans after plans: what is asked then, how much is read in all, and what carries on while nothing is asked."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import analyze
from planner.api import plan_analysis, plan_compaction
from planner.brief import read_brief
from planner.errors import PlannerUnavailable
from planner.model import ModelPlanner
from planner.model.planners import RelayedPlanner
from planner.model.prompts import load_prompts
from planner.model.question import QuestionBasis, plan_questions
from planner.plan import MOST_TOKENS, CompactionPlan, Proposal, Provenance, Usage
from planner.settings import PlanSettings
from tests.bench.scripted import ScriptedPlanner
from tests.loopback import HANG_UP, HANG_UP_HALFWAY, Loopback, billed
from tests.model.sample import answer, plan_request, sent_tokens
from tests.model.test_planner import large_history
from tests.planning.planners import Answers
from tests.strategies import make_session

SESSION = make_session(420)
"""About 160,000 tokens."""
BRIEF = ("REQUEST", "- nothing is to be lost (t1)", "FACTS", "- a file was read, from its first line on (t2)")
PAGE = "\n".join(BRIEF)


def questions_of(request):
    """What is asked for `request`, and why nothing is."""
    return plan_questions(QuestionBasis.of(request), load_prompts())


def plans_of(messages, lengths, **settings):
    """The plan at each length, each behind the one before."""
    plans, known = [], None
    for length in lengths:
        known = analyze(messages[:length], known=known)
        plans.append(
            plan_analysis(
                known,
                "Fix the race",
                target_tokens=known.tokens // 8,
                planner=ScriptedPlanner(),
                now=0.0,
                previous=plans[-1] if plans else None,
                settings=PlanSettings(**settings),
            )
        )
    return plans


def assert_within(plans, ratio=0.3):
    """No plan after the first has all of them read more than `ratio` of the session."""
    first, read = plans[0].provenance.usage.read_tokens, 0
    for plan in plans:
        read += plan.provenance.usage.read_tokens
        assert plan.provenance.read_tokens == read
        assert read <= max(first, ratio * plan.history.tokens)


@pytest.mark.real
@pytest.mark.parametrize(
    ("lengths", "least"),
    [
        ([1 + 2 * n for n in range(168, 420, 42)], 2),
        pytest.param([161, 163, 165, 167, 701, 703, 705], 2, marks=pytest.mark.slow),
        pytest.param([41, 801], 2, marks=pytest.mark.slow),
    ],
    ids=["six in a row", "by fits and starts", "a long time later"],
)
def test_planners_read_three_tenths_of_a_session_however_many_compactions(lengths, least):
    plans = plans_of(SESSION, lengths)
    assert_within(plans)
    floor = 1.1 * PlanSettings().planner_input_floor_tokens
    assert plans[0].provenance.read_tokens <= max(0.25 * plans[0].history.tokens, floor)
    assert sum(plan.provenance.usage.requests > 0 for plan in plans) >= least


@pytest.mark.slow
@settings(max_examples=5)
@given(
    st.lists(st.integers(30, 240), min_size=2, max_size=5, unique=True).map(sorted),
    st.sampled_from([0.3, 0.6, 0.9]),
    st.sampled_from([4_000, 60_000]),
)
def test_planners_read_no_more_wherever_a_session_is_compacted(turns, ratio, piece_tokens):
    lengths = [2 * number - 1 for number in turns]
    assert_within(plans_of(SESSION, lengths, session_input_ratio=ratio, piece_tokens=piece_tokens), ratio)


ANSWERS = {
    "good": lambda request: billed(answer(brief=BRIEF), input_tokens=sent_tokens(request.body)),
    "nonsense": lambda request: billed("no plan", input_tokens=sent_tokens(request.body)),
    "broken off": HANG_UP,
    "broken off halfway": HANG_UP_HALFWAY,
}


@pytest.mark.real
@settings(max_examples=5)
@given(
    st.lists(st.integers(40, 100), min_size=2, max_size=4, unique=True).map(sorted),
    st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=8),
    st.sampled_from([4_000, 60_000]),
    st.sampled_from([0, 1]),
)
def test_planners_read_no_more_whatever_becomes_of_their_answers(turns, script, piece_tokens, max_retries):
    plan, read = None, 0
    options = PlanSettings(piece_tokens=piece_tokens)
    with Loopback([*map(ANSWERS.get, script), ANSWERS["good"]]) as server:
        client = server.client(max_retries=max_retries)
        for number in turns:
            plan = plan_compaction(
                SESSION[: 2 * number - 1], "Drain", client=client, target_ratio=0.1, settings=options, previous=plan
            )
            sent = sum(sent_tokens(request.body) for request in server.requests)
            assert plan.provenance.read_tokens == sent, "what was read is what was sent, answered or not"
            assert number == turns[0] or sent <= max(read, 0.3 * plan.history.tokens)
            read = sent


@pytest.mark.real
def test_without_the_bound_every_plan_asks_and_reads_a_share_of_what_is_new():
    plans = plans_of(SESSION, [1 + 2 * n for n in range(84, 252, 84)], session_input_ratio=None)
    assert all(plan.provenance.usage.requests for plan in plans)
    assert_within(plans, math.inf)


def first_plan(messages, *entries, brief=BRIEF):
    """A plan of `messages` that a model has read for."""
    planner = RelayedPlanner([answer(*entries, brief=brief)])
    return plan_compaction(messages, "Drain", planner=planner, target_ratio=0.3, now=0.0)


def later_request(turns, first, read_tokens=1, **settings):
    return replace(plan_request(large_history(turns), previous=first, **settings), read_tokens=read_tokens)


def test_a_later_question_shows_the_page_what_was_chosen_and_cards_of_what_came_since():
    first = first_plan(large_history(20), "t3 keep 9", "t5-t7 drop 0", "t9 reference 2")
    with Loopback([answer("t30 keep 9", "t3 drop 0", brief=("STATE", "- all is well (t2)"))]) as server:
        proposal = ModelPlanner(client=server.client()).propose(later_request(40, first))
    body, prompt = server.requests[0].body, server.requests[0].prompt
    assert body["system"][0]["text"] == load_prompts().render("system")
    page, chosen = (prompt.split(f"<{tag}>")[1].split(f"</{tag}>")[0].strip() for tag in ("brief", "before"))
    assert page == PAGE
    assert f"The page below has {len(read_brief(PAGE))} lines now." in prompt
    assert [line.split(" · ")[0] for line in chosen.split("\n")] == ["t3", "t5-t7", "t9"]
    assert "\n## t20 · " not in prompt
    assert "\n## t21 · " in prompt, "the last turn of the first plan was not complete"
    stood = next(decision.strategy for decision in first.turns if decision.turn_id == "t9")
    assert (proposal.turns["t3"].strategy, proposal.turns["t9"].strategy) == ("drop", stood)
    assert proposal.turns["t2"].strategy is None, "what rules chose to fill space competes again"
    assert proposal.provenance.named == ("t3", "t5", "t6", "t7", "t9", "t30")
    assert proposal.brief == "STATE\n- all is well (t2)"


@pytest.mark.real
def test_words_that_are_latest_request_and_task_are_said_once():
    messages = large_history(40)
    request = replace(later_request(40, first_plan(large_history(20))), task=messages[0]["content"])
    ((question,), _) = questions_of(request)
    assert question.values["task"] == "(those words)"


@pytest.mark.real
def test_while_nothing_is_asked_the_page_and_the_choice_carry_on_with_the_rules_record_of_what_is_new():
    first = first_plan(make_session(40), "t3 keep 9")
    carried = first
    for turns in (42, 46):
        with Loopback([]) as server:
            carried = plan_compaction(
                make_session(turns), "Drain", planner="model", client=server.client(), target_ratio=0.3,
                previous=carried, now=0.0,
            )  # fmt: skip
        assert server.requests == []
        assert carried.provenance.planner == "rules"
        assert re.search(r"not asked: .*30% .* \d+ tokens more", carried.provenance.notes[0])
        lines = carried.brief.split("\n")
        assert set(PAGE.split("\n")) <= set(lines)
        since = [one for one in read_brief(carried.brief) if one.line not in PAGE]
        assert since
        assert all(max(int(turn[1:]) for turn in one.turns) > 40 for one in since)
        assert lines.index(BRIEF[3]) == lines.index("FACTS") + 1, "what was written comes first"
        assert carried.decisions["t3"].strategy == first.decisions["t3"].strategy
        assert carried.provenance.read_turns == first.provenance.read_turns
    ((question,), _) = questions_of(later_request_of(make_session(300), carried))
    assert question.values["brief"] == PAGE, "the record of turns that are on cards now is not said twice"


def later_request_of(messages, previous):
    return replace(plan_request(messages, previous=previous), read_tokens=previous.provenance.read_tokens)


def test_a_plan_of_another_history_or_by_rules_alone_is_no_earlier_plan():
    messages = large_history(20)
    for previous in (
        first_plan(make_session(12)),
        plan_compaction(messages[:20], "Drain", planner="rules", target_ratio=0.3),
    ):
        ((question,), _) = questions_of(plan_request(messages, previous=previous))
        assert question.name == "plan"
        assert "## t2 · " in question.values["cards"]


@pytest.mark.real
def test_a_first_plan_that_failed_is_asked_again_when_what_may_be_read_allows_for_it():
    request = replace(plan_request(SESSION[:401]), read_tokens=20_000)
    questions, why_not = questions_of(request)
    assert (questions, "tokens more" in why_not) == ((), True)
    ((question,), _) = questions_of(replace(plan_request(SESSION), read_tokens=15_000))
    assert question.name == "plan"
    assert question.tokens(load_prompts(), request.counter) <= 0.3 * plan_request(SESSION).analysis.tokens - 15_000


@pytest.mark.real
def test_a_later_question_is_not_asked_again_where_that_would_read_too_much():
    first = first_plan(large_history(20))
    tokens = plan_request(large_history(60)).analysis.tokens
    for left, asked in ((60_000, 2), (15_000, 1)):
        request = later_request(60, first, read_tokens=int(0.3 * tokens) - left)
        with Loopback(["no answer", answer(brief=BRIEF)]) as server:
            planner = ModelPlanner(client=server.client())
            if asked == 1:
                with pytest.raises(PlannerUnavailable):
                    planner.propose(request)
            else:
                planner.propose(request)
        assert len(server.requests) == asked


@pytest.mark.real
@pytest.mark.parametrize(("left", "sent"), [(60_000, 2), (15_000, 1)])
def test_a_later_question_that_broke_off_is_not_sent_again_where_that_would_read_too_much(left, sent):
    first = first_plan(large_history(20))
    tokens = plan_request(large_history(60)).analysis.tokens
    request = later_request(60, first, read_tokens=int(0.3 * tokens) - left)
    with Loopback([HANG_UP]) as server, pytest.raises(PlannerUnavailable, match="cannot be reached") as failure:
        ModelPlanner(client=server.client(max_retries=1)).propose(request)
    assert len(server.requests) == failure.value.usage.requests == sent
    assert failure.value.usage.read_tokens == sum(sent_tokens(request.body) for request in server.requests) <= left


def test_tokens_from_a_cache_count_a_tenth():
    usage = Usage(input_tokens=100, cache_creation_input_tokens=50, cache_read_input_tokens=1_000, output_tokens=9)
    assert usage.read_tokens == 250


def test_what_a_provider_does_not_count_is_counted_here():
    request = plan_request(large_history(20))
    ((question,), _) = questions_of(request)
    with Loopback([billed(answer(brief=BRIEF), input_tokens=0)]) as server:
        proposal = ModelPlanner(client=server.client()).propose(request)
    assert proposal.provenance.usage.read_tokens == question.tokens(load_prompts(), request.counter)


def shown_turns(text):
    """Numbers of the turns whose cards stand in `text`, alone or in a run."""
    spans = re.findall(r"^## t(\d+)(?:-t(\d+))? · ", text, re.MULTILINE)
    return {number for first, last in spans for number in range(int(first), int(last or first) + 1)}


PIECES = {"piece_tokens": 3_000, "max_reasks": 0}


def plan_where_pieces_fail(messages, broken, **options):
    """A plan of which no piece that shows one of the turns `broken` is answered, and the turns shown in the others."""
    answered = set()

    def answers(request):
        shown = shown_turns(request.body["messages"][0]["content"])
        if shown & broken:
            return "no"
        answered.update(shown)
        return answer(brief=BRIEF)

    with Loopback([answers]) as server:
        planner = ModelPlanner(client=server.client())
        plan = plan_compaction(
            messages, "Drain", planner=planner, target_ratio=0.3, settings=PlanSettings(**PIECES), **options
        )
    return plan, answered


@pytest.mark.slow
@settings(max_examples=5)
@given(st.sets(st.integers(1, 21), max_size=3), st.sets(st.integers(1, 41), max_size=2))
def test_the_next_question_shows_the_turns_of_all_pieces_that_failed_and_of_no_other(broken, broken_later):
    messages, plan, read = large_history(50), None, set()
    for turns, failing in ((20, broken), (40, broken_later)):
        try:
            plan, answered = plan_where_pieces_fail(messages[: 2 * turns + 1], failing, previous=plan)
        except PlannerUnavailable:
            continue
        read |= answered - {turns + 1}  # the last turn was live, and may go on
        questions, _ = questions_of(plan_request(messages, previous=plan))
        asked = {turn.turn.number for question in questions for turn in question.scope.turns}
        assert asked == set(range(1, 52)) - read
        assert asked == set().union(*(shown_turns(question.values["cards"]) for question in questions))


def test_what_was_written_of_other_pieces_stands_while_nothing_is_asked_and_rules_tell_of_the_one_that_failed():
    messages = make_session(60)
    first, answered = plan_where_pieces_fail(messages[:81], {20}, now=0.0)
    unread = {int(turn[1:]) for turn in first.provenance.unread_turns}
    assert 20 in unread
    assert unread.isdisjoint(answered)
    assert first.provenance.read_turns == 40
    early, late = min(answered), max(answered & set(range(1, 40)))
    written = ["REQUEST", f"- a test run came after (t{late})", f"- a file was read, from its first line on (t{early})"]
    first = first.model_copy(update={"brief": "\n".join(written)})
    with Loopback([]) as server:
        carried = plan_compaction(
            messages[:83], "Drain", planner="model", client=server.client(), target_ratio=0.3, previous=first, now=0.0
        )
    assert server.requests == []
    assert set(written) <= set(carried.brief.split("\n"))
    since = {int(turn[1:]) for one in read_brief(carried.brief) if one.line not in written for turn in one.turns}
    assert since & unread, "the rules' record has what no planner read"
    assert carried.provenance.unread_turns == first.provenance.unread_turns


def test_a_planner_that_says_it_read_without_end_leaves_a_plan_that_can_be_read():
    most = Usage(input_tokens=MOST_TOKENS, cache_creation_input_tokens=MOST_TOKENS)
    planner = Answers(Proposal({}, Provenance(planner="endless", usage=most)))
    plan = plan_compaction(SESSION[:41], "Drain", planner=planner, target_ratio=0.3)
    assert CompactionPlan.from_json(plan.to_json()).provenance.read_tokens == MOST_TOKENS
