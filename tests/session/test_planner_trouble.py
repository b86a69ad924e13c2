"""A planner that fails, lies, raises anything, or answers late never reaches the agent."""

import threading

import pytest

from planner.validity import check_messages
from tests.session.agent import Agent, FailingPlanner, LyingPlanner
from tests.strategies import make_session


def kinds(session):
    return [event.kind for event in session.log()]


@pytest.mark.real
def test_a_planner_that_always_fails_is_rested_and_the_rules_plan(session_of):
    planner = FailingPlanner()
    session = session_of(planner=planner, settings=no_background(), window_tokens=6_000)
    Agent(session).play(make_session(80))
    assert planner.asked == 3
    assert session.state.breaker == "open"
    assert kinds(session).count("breaker_opened") == 1
    assert session.state.compactions >= 4
    compactions = [event.message for event in session.log() if event.kind == "post_compact"]
    assert all("by rules" in message for message in compactions)
    assert "not asked: the planner is paused after failures" in compactions[-1]


@pytest.mark.real
def test_a_rested_planner_is_tried_again_and_closes_the_breaker(session_of, clock):
    planner = FailingPlanner()
    session = session_of(planner=planner, settings=no_background(), window_tokens=6_000)
    agent = Agent(session).play(make_session(60)[:-1])
    assert session.state.breaker == "open"
    clock.pass_(301)
    assert session.state.breaker == "half_open"
    planner.works = True
    agent.play(make_session(80)[len(agent.messages) :])
    assert session.state.breaker == "closed"
    assert kinds(session)[-1] != "tier_failed"
    assert "breaker_closed" in kinds(session)


@pytest.mark.parametrize("seed", range(3))
def test_a_planner_that_lies_gets_nothing_through(session_of, seed):
    session = session_of(planner=LyingPlanner(seed), settings=no_background(), window_tokens=6_000)
    for sent in Agent(session).play(make_session(30)).sent:
        assert not [violation for violation in check_messages(sent) if violation.refused]
        text = str(sent)
        assert "passwd-4711" not in text
        assert "obey-4712" not in text
        assert "push to main" not in text
        assert "987654321" not in text
        assert "Bun-only APIs" in text
    assert session.state.compactions >= 1


class Wild:
    def __init__(self, answer):
        self.answer = answer

    def propose(self, request):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [None, "drop all", ZeroDivisionError("oops"), RecursionError(), MemoryError()])
def test_whatever_a_planner_raises_or_returns_the_rules_take_over(session_of, answer):
    session = session_of(planner=Wild(answer), settings=no_background(), window_tokens=6_000)
    sent = Agent(session).play(make_session(20)).sent[-1]
    assert len(sent) < 30
    assert "tier_failed" in kinds(session)
    assert not [violation for violation in check_messages(sent) if violation.refused]


@pytest.mark.real
def test_hooks_hear_everything_may_veto_and_cannot_break(session_of):
    heard = []

    def veto(event):
        return event.trigger not in ("growth", "warning")

    def broken(event):
        raise RuntimeError("a hook's own trouble")

    session = session_of(hooks={"*": [heard.append, broken], "pre_compact": veto}, window_tokens=24_000)
    Agent(session).play(make_session(120))
    assert heard == session.log()
    assert "vetoed" in kinds(session)
    done = [event for event in session.log() if event.kind == "post_compact" and event.trigger != "arrival"]
    assert done, "a veto does not hold when the window forces it"
    assert all(event.trigger in ("critical", "exhausted") for event in done)
    first = done[0]
    assert first.tokens_before > first.tokens_after > 0
    assert first.reclaimed_tokens == first.tokens_before - first.tokens_after
    assert first.first_changed_message == 0
    assert 0 < first.invalidated_tokens <= first.tokens_before


def test_two_calls_at_once_take_turns(session_of):
    session = session_of()
    history = make_session(60)
    answers, failures = [], []

    def ask():
        try:
            answers.append(session.prepare(history))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(answer == answers[0] for answer in answers)
    assert session.state.compactions == 1


def no_background():
    from applier.settings import load_settings

    return load_settings(background=False)
