"""Planning ahead in a worker: on a snapshot, taken up only if it still fits, never waited for."""

import threading

import pytest

from applier.session.planning import Worker
from applier.settings import load_settings
from planner.plan import Proposal, Provenance
from planner.reading.messages import blocks
from tests.patience import PATIENCE_SECONDS
from tests.session.agent import Agent, finished
from tests.strategies import make_session


class SlowPlanner:
    """Answers when it is let go."""

    def __init__(self):
        self.go = threading.Event()
        self.threads = []
        self.fails = False

    def propose(self, request):
        self.threads.append(threading.current_thread().name)
        assert self.go.wait(PATIENCE_SECONDS)
        if self.fails:
            raise ValueError("half an answer")
        return Proposal({}, Provenance(planner="slow"))


@pytest.fixture
def planner():
    made = SlowPlanner()
    yield made
    made.go.set()


def worker_of(session):
    return session._state.planning.worker


def grown_to_the_worker(session, history=None):
    """An agent that has played until the worker was started, and the rest of its history."""
    agent, history = Agent(session), history or make_session(300)
    for index, message in enumerate(history):
        if message["role"] == "assistant":
            agent.call()
            if worker_of(session).is_running:
                return agent, history[index:]
        agent.messages.append(message)
    raise AssertionError("no worker was started")


def session_ahead(session_of, planner, clock, **wishes):
    return session_of(planner=planner, settings=load_settings(background_debounce_seconds=5), **wishes)


@pytest.mark.parametrize(("model", "left"), [("claude-opus-5-5", False), ("claude-opus-4-6", True)])
def test_what_was_thought_since_a_plan_was_made_goes_where_the_model_binds_it(session_of, planner, clock, model, left):
    session = session_ahead(session_of, planner, clock, model=model)
    session.set_request(model=model, thinking={"type": "adaptive"})
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    history = [
        {**message, "content": [thought, *message["content"]]} if message["role"] == "assistant" else message
        for message in make_session(300)
    ]
    agent, rest = grown_to_the_worker(session, history)
    for _ in range(4):  # meanwhile the agent goes on
        agent.messages.append(rest.pop(0))
    planner.go.set()
    finished(worker_of(session))
    while session.state.compactions == 0:
        agent.messages.append(rest.pop(0))
        if agent.messages[-1]["role"] == "user":
            agent.call()
    assert set(planner.threads) == {"compactor-plan"}, "the plan in force was made ahead"
    plan = session._state.ledger.committed.frame.plan
    assert plan.history.messages < len(agent.messages)
    sent = agent.sent[-1]
    assert any(block["type"] == "thinking" for message in sent for block in blocks(message)) is left


def test_a_plan_made_ahead_is_taken_up_without_asking_again(session_of, planner, clock):
    session = session_ahead(session_of, planner, clock)
    agent, rest = grown_to_the_worker(session)
    assert session.state.compactions == 0, "nothing waits for the worker"
    planner.go.set()
    finished(worker_of(session))
    while session.state.compactions == 0:
        agent.messages.append(rest.pop(0))
        if agent.messages[-1]["role"] == "user":
            clock.pass_(6)
            agent.call()
            finished(worker_of(session))
    assert set(planner.threads) == {"compactor-plan"}
    event = next(event for event in session.log() if event.kind == "post_compact")
    assert "by slow" in event.message
    assert agent.sent[-1][-1]["content"][0] == agent.messages[-1]["content"][0]


def test_while_the_worker_asks_nothing_is_asked_twice_and_rules_plan_when_the_window_forces_it(
    session_of, planner, clock
):
    session = session_ahead(session_of, planner, clock)
    agent, rest = grown_to_the_worker(session)
    while session.state.compactions == 0:
        agent.messages.append(rest.pop(0))
        if agent.messages[-1]["role"] == "user":
            agent.call()
    assert planner.threads == ["compactor-plan"]
    event = next(event for event in session.log() if event.kind == "post_compact")
    assert event.trigger in ("critical", "exhausted")
    assert "by rules (not asked: another plan is still being made" in event.message


def test_a_failure_in_the_worker_changes_nothing_but_the_breaker(session_of, planner, clock):
    session = session_ahead(session_of, planner, clock)
    agent, rest = grown_to_the_worker(session)
    before = agent.sent[-1]
    planner.fails = True
    planner.go.set()
    finished(worker_of(session))
    agent.messages.append(rest.pop(0))
    agent.messages.append(rest.pop(0))
    assert agent.call()[: len(before)] == before
    assert [event.kind for event in session.log() if event.kind == "tier_failed"] == ["tier_failed"]


@pytest.mark.real
def test_a_plan_for_a_history_that_has_changed_is_thrown_away(session_of, planner, clock):
    session = session_ahead(session_of, planner, clock)
    grown_to_the_worker(session)
    planner.go.set()
    finished(worker_of(session))
    other = [{"role": "user", "content": "another task altogether"}, *make_session(200)[1:]]
    sent = session.prepare(other)
    assert "another task altogether" in str(sent)
    assert all("by slow" not in event.message for event in session.log()) or len(planner.threads) > 1


def test_the_worker_is_debounced_and_does_one_job_at_a_time():
    worker, release = Worker(5.0), threading.Event()
    assert worker.start(lambda: release.wait(PATIENCE_SECONDS) and 1, now=100.0)
    assert not worker.start(lambda: 2, now=200.0), "one is running"
    release.set()
    finished(worker)
    assert worker.take().result() == 1
    assert worker.take() is None
    assert not worker.start(lambda: 3, now=104.9), "too soon"
    assert worker.start(lambda: 1 / 0, now=105.0)
    finished(worker)
    assert isinstance(worker.take().exception(), ZeroDivisionError)


def test_the_event_of_a_compaction_says_how_long_it_held_the_agent_up(session_of, planner, clock):
    class Deliberate:
        def propose(self, request):
            clock.pass_(7.5)
            return Proposal({}, Provenance(planner="deliberate"))

    session = session_of(planner=Deliberate(), window_tokens=60_000)
    assert session.compact(make_session(60)).applied
    (event,) = [event for event in session.log() if event.kind == "post_compact"]
    assert event.waited_seconds == 7.5
    ahead = session_ahead(session_of, planner, clock)
    agent, rest = grown_to_the_worker(ahead)
    clock.pass_(30.0)
    planner.go.set()
    finished(worker_of(ahead))
    while ahead.state.compactions == 0:
        agent.messages.append(rest.pop(0))
        if agent.messages[-1]["role"] == "user":
            agent.call()
    assert [event.waited_seconds for event in ahead.log() if event.kind == "post_compact"] == [0.0]
