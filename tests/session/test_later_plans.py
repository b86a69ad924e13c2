"""What planners read for all compactions of a session, and what carries on while none is asked."""

import pytest

from applier.settings import load_settings
from planner.errors import PlannerUnavailable
from planner.plan import Usage
from tests.bench.rounds import MeteredPlanner
from tests.bench.scripted import ScriptedPlanner
from tests.session.agent import Agent
from tests.strategies import make_session

pytestmark = pytest.mark.real

HISTORY = make_session(200)
"""About 70,000 tokens."""


class Unsteady:
    """Asks the planner inside; fails on demand, after it has read."""

    def __init__(self):
        self.inside = ScriptedPlanner()
        self.fails = False

    def propose(self, request):
        if self.fails:
            raise PlannerUnavailable("no model today", Usage(input_tokens=5_000, requests=1))
        return self.inside.propose(request)


@pytest.fixture
def planner():
    return MeteredPlanner(Unsteady())


@pytest.fixture
def session(session_of, planner):
    return session_of(planner=planner, settings=load_settings(background=False), window_tokens=200_000)


def read_so_far(session):
    return session._state.planning.read_tokens


def test_an_agent_that_is_compacted_often_pays_three_tenths_at_most(session_of, planner):
    session = session_of(planner=planner, settings=load_settings(background=False), window_tokens=24_000)
    Agent(session).play(HISTORY)
    assert session.state.compactions >= 4
    first = planner.usages[0].read_tokens
    assert planner.input_tokens == read_so_far(session) <= max(first, 0.3 * session._state.ledger.tracker.tokens)
    events = [event.message for event in session.log() if event.kind == "post_compact"]
    assert any("tokens more; the brief of t1-" in message for message in events)


def test_what_was_read_for_a_dry_run_is_not_read_again(session, planner):
    shown = session.compact(HISTORY, dry_run=True)
    done = session.compact(HISTORY)
    assert done.plan.brief == shown.plan.brief
    assert done.plan.provenance.named == shown.plan.provenance.named
    assert planner.input_tokens == planner.usages[0].input_tokens == read_so_far(session)


def test_a_planner_that_fails_leaves_its_last_brief_in_force_and_what_it_read_counts(session, planner):
    first = session.compact(HISTORY[:161]).plan
    read, planner.planner.fails = read_so_far(session), True
    done = session.compact(HISTORY)
    assert done.plan.provenance.planner == "rules"
    view = "\n".join(block["text"] for block in done.messages[0]["content"] if block["type"] == "text")
    statements = [line.removeprefix("- ").partition(" (t")[0] for line in first.brief.split("\n") if line[:2] == "- "]
    assert [words for words in statements if words not in view] == []
    assert read_so_far(session) == read + 5_000


def test_a_plan_by_place_does_not_take_the_place_of_what_a_planner_wrote(session):
    first = session.compact(HISTORY[:161]).plan
    assert session.recover(HISTORY, "prompt is too long: 90000 tokens > 2000 maximum") is not None
    assert session._state.planning.previous.provenance.read_turns == first.provenance.read_turns


def test_a_restarted_session_goes_on_counting(session_of, session, planner, store):
    session.compact(HISTORY[:161])
    again = session_of(planner=planner, settings=load_settings(background=False), session_id=session.session_id)
    assert read_so_far(again) == read_so_far(session) == planner.input_tokens
    assert again._state.planning.previous == session._state.planning.previous


def test_what_was_read_for_plans_that_came_to_nothing_counts_after_a_restart_too(session_of, planner):
    wishes = {"planner": planner, "settings": load_settings(background=False), "window_tokens": 1_000_000}
    session = session_of(**wishes)
    session.compact(HISTORY, dry_run=True)
    assert session.prepare(HISTORY) == HISTORY
    again = session_of(**wishes, session_id=session.session_id)
    assert read_so_far(again) == planner.input_tokens > 0
    assert again.prepare(HISTORY) == HISTORY
