"""What holds for every history, every preset and either style of caller."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.session import PRESETS, Session
from applier.session.edits import first_difference
from applier.session.tiers import PlanTurns
from applier.store import open_store
from planner.reading.messages import blocks, plain_message, result_text
from planner.validity import check_messages
from tests.session.agent import Agent, Clock, FailingStore, LyingPlanner
from tests.strategies import histories, make_session

REFERENCE = re.compile(r'restore_context\("(h[0-9a-f]+:t\d+)"\)')


def refused(messages):
    return [violation for violation in check_messages(messages) if violation.refused]


def played(tmp_path_factory, history, **wishes):
    """An agent that has played `history`, its session, and the store of both."""
    store = open_store(tmp_path_factory.mktemp("laws") / "store.db")
    session = Session("fix the race", store=store, clock=Clock(), window_tokens=4_000, **wishes)
    return session, store


@pytest.mark.real
@settings(max_examples=15)
@given(
    histories(min_turns=5, max_turns=12),
    st.sampled_from(sorted(PRESETS)),
    st.booleans(),
    st.sampled_from(["rules", LyingPlanner()]),
)
def test_every_list_is_valid_restorable_and_stable(tmp_path_factory, history, preset, replaces, planner):
    session, store = played(tmp_path_factory, history, preset=preset, planner=planner)
    with store:
        agent = Agent(session, replaces=replaces).play(history)
        for before, after in zip(agent.sent, agent.sent[1:], strict=False):
            assert refused(after) == []
            first = first_difference(before, after)
            changes = [e for e in session.log() if e.kind == "post_compact"]
            assert first is None or changes, "the prefix changed without a compaction"
        assert not [event for event in session.log() if event.kind in ("tier_failed", "prepare_failed")]
        assert everything_is_somewhere(history, agent.sent[-1], store)
        for stored in store.histories():
            held = list(store.load_history(stored.key).messages)
            assert held == history[: len(held)]
        for reference in REFERENCE.findall(str(agent.sent[-1])):
            assert store.restore(reference).messages


def everything_is_somewhere(history, sent, store):
    """Each message is sent as it is, or stored."""
    stored = [store.load_history(found.key).messages for found in store.histories()]
    return all(message in sent or any(message in messages for messages in stored) for message in history)


def test_thinking_that_goes_with_an_older_result_is_stored_first(session_of, store):
    history = make_session(12)
    for message in history[1::2]:
        message["content"].insert(0, {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"})
    for message in history[2::2]:
        message["content"][0]["content"] = "a line of some result\n" * 30
    agent = Agent(session_of(preset="s06", window_tokens=200_000))
    for message in history:
        if message["role"] == "assistant":
            assert everything_is_somewhere(agent.messages, agent.call(), store)
        agent.messages.append(message)
    assert str(agent.sent[-1]).count("Let me see.") < len(agent.sent[-1]) // 2


def thoughtful(turns):
    history = make_session(turns)
    for number, message in enumerate(history[1::2]):
        message["content"].insert(0, {"type": "thinking", "thinking": f"Let me see {number}.", "signature": "c2ln"})
    return history


def undone(session, history):
    """`history` was sent compacted but for its last two answers; the last of these is still to come."""
    session.prepare(history[:-4])
    assert session.compact(history[:-4]).applied
    sent = session.prepare(history[:-2])
    assert session.undo()
    return sent


def test_thinking_that_goes_because_a_compaction_was_undone_is_stored_first(session_of, store):
    session, history = session_of(window_tokens=60_000, model="claude-opus-5-5"), thoughtful(60)
    undone(session, history)
    sent = session.prepare(history)
    assert "Let me see 59." not in str(sent)
    assert everything_is_somewhere(history, sent, store)
    written = [stored.key for stored in store.histories()]
    more = [*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    assert everything_is_somewhere(history, session.prepare(more), store)
    assert [stored.key for stored in store.histories()] == written, "nothing new is left out"


def compacted_in_flight(session, history):
    """Only the last answer of `history` is still to come when it is compacted."""
    sent = session.prepare(history[:-2])
    assert session.compact(history[:-2]).applied
    return sent


def test_thinking_that_goes_because_a_compaction_came_before_its_answer_is_stored_first(session_of, store):
    session, history = session_of(preset="off", window_tokens=60_000, model="claude-opus-5-5"), thoughtful(60)
    compacted_in_flight(session, history)
    sent = session.prepare(history)
    assert "Let me see 59." not in str(sent)
    assert everything_is_somewhere(history, sent, store)


def test_a_compaction_stands_only_if_the_store_takes_the_thinking_of_the_answer_it_came_before(session_of, store):
    failing = FailingStore(store)
    session = session_of(preset="off", store=failing, window_tokens=60_000, model="claude-opus-5-5")
    history = thoughtful(60)
    whole = compacted_in_flight(session, history)
    failing.broken = True
    sent = session.prepare(history)
    assert first_difference(whole, sent) is None, "the answer is bound to the list that it was thought behind"
    assert all(message is known for message, known in zip(sent, history, strict=True))
    assert "store_failed" in [event.kind for event in session.log()]
    assert not session.undo()


def test_thinking_left_out_of_what_a_manual_compaction_hands_out_is_stored_first(session_of, store):
    session, history = session_of(preset="off", window_tokens=60_000, model="claude-opus-5-5"), thoughtful(60)
    undone(session, history)
    setup = session._state.setup
    session._state.setup = replace(setup, preset=replace(setup.preset, manual=()))
    done = session.compact(history)
    assert not done.applied
    assert "Let me see 59." not in str(done.messages)
    assert everything_is_somewhere(history, done.messages, store)


@pytest.mark.real
def test_a_compaction_stays_undone_only_if_the_store_takes_what_that_leaves_out(session_of, store, clock):
    failing = FailingStore(store)
    session, history = session_of(store=failing, window_tokens=60_000, model="claude-opus-5-5"), thoughtful(60)
    compacted = undone(session, history)
    failing.broken = True
    sent = session.prepare(history)
    assert first_difference(compacted, sent) is None, "the answer is bound to the list that it was thought behind"
    assert all(message is known for message, known in zip(sent[-2:], history[-2:], strict=True))
    assert "store_failed" in [event.kind for event in session.log()]
    failing.broken = False
    assert session.undo()
    sent = session.prepare(history)
    assert len(sent) == len(history)
    assert everything_is_somewhere(history, sent, store)


def test_an_edit_where_something_else_stands_for_the_message_is_stored(session_of, store):
    session, history = session_of(window_tokens=60_000), make_session(60)
    assert session.compact(history[:-2]).applied
    history[4]["content"][0]["content"] = "what the host has put in its place"
    sent = session.prepare(history)
    assert len(sent) < len(history)
    assert everything_is_somewhere(history, sent, store)


def test_an_edit_that_the_store_does_not_take_is_sent(session_of, store):
    failing = FailingStore(store)
    session, history = session_of(store=failing, window_tokens=60_000), make_session(60)
    assert session.compact(history[:-2]).applied
    history[4]["content"][0]["content"] = "what the host has put in its place"
    failing.broken = True
    assert all(message is known for message, known in zip(session.prepare(history), history, strict=True))
    assert session.log()[-1].kind == "store_failed"


@pytest.mark.parametrize("replaces", [False, True])
def test_nothing_to_do_means_the_same_objects(session_of, replaces):
    session = session_of(window_tokens=1_000_000)
    history = make_session(20)
    agent = Agent(session, replaces=replaces).play(history)
    assert all(a is b for a, b in zip(agent.sent[-1], history, strict=True))
    assert session.log() == []


def test_off_leaves_even_an_overfull_window_alone(session_of):
    session = session_of(preset="off", window_tokens=2_000)
    history = make_session(30)
    sent = Agent(session).play(history).sent[-1]
    assert all(a is b for a, b in zip(sent, history, strict=True))
    assert session.state.level == "exhausted"


@pytest.mark.real
@pytest.mark.parametrize(
    ("preset", "replaces"), [*zip(sorted(set(PRESETS) - {"off"}), [False, True] * 5, strict=False)]
)
def test_the_window_holds_and_the_users_words_and_failures_outlive_everything(session_of, preset, replaces):
    session = session_of(preset=preset, window_tokens=8_000)
    agent = Agent(session, replaces=replaces)
    for message in make_session(48):
        if message["role"] == "assistant":
            sent = agent.call()
            assert session.state.tokens <= session.state.limit_tokens
            assert refused(sent) == []
            text = "\n".join(all_text(message) for message in sent)
            assert "please no Bun-only APIs" in text
            assert "TimeoutError: 3 s" in text or len(agent.sent) < 5
        agent.messages.append(message)
    assert session.state.compactions >= 1


def all_text(message):
    return "\n".join(
        str(block.get("text") or block.get("input") or result_text(block)) for block in blocks(plain_message(message))
    )


@pytest.mark.real
def test_a_store_that_fails_leaves_the_list_as_it_was(store, session_of, clock):
    failing = FailingStore(store)
    session = session_of(store=failing)
    history = make_session(60)
    failing.broken = True
    broken = Agent(session).play(history).sent[-1]
    assert all(a is b for a, b in zip(broken, history, strict=True))
    spoken = [event.kind for event in session.log()]
    assert spoken[:3] == ["pre_compact", "store_failed", "still_too_large"]
    failing.broken = False
    clock.pass_(1)  # no rest while the prompt is over the window
    more = [*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    assert len(session.prepare(more)) < len(more)
    assert store.histories()


@pytest.mark.real
def test_a_store_that_breaks_later_leaves_the_view_of_before(store, session_of):
    failing = FailingStore(store)
    session = session_of(store=failing)
    history = make_session(90)
    agent = Agent(session).play(history[:81])
    view = agent.sent[-1]
    failing.broken = True
    agent.play(history[81:])
    assert first_difference(view, agent.sent[-1]) is None, "only new messages behind the stored view"
    assert refused(agent.sent[-1]) == []


@pytest.mark.parametrize("nonsense", [[], [{"content": "no role"}], ["words"], [{"role": "user", "content": 3}]])
def test_what_is_no_list_of_messages_comes_back_as_it_is(session_of, nonsense):
    session = session_of()
    assert session.prepare(nonsense) == nonsense
    assert len(session.log()) == bool(nonsense)


def test_a_later_list_is_fine_after_nonsense(session_of):
    session = session_of()
    history = make_session(6)
    session.prepare(history)
    session.prepare([*history, {"content": "no role"}])
    assert session.prepare(history) == history


MATERIAL = {
    "one line of JSON": lambda n: json.dumps([{"id": at, "rule": f"must not be only {at * 7}"} for at in range(n)]),
    "CSV": lambda n: "\n".join(f"{at},user {at} must never be only {at * 7}" for at in range(n)),
    "dictation": lambda n: " ".join(f"and then we must not do {at} and only do {at + 1} never else" for at in range(n)),
    "one word": lambda n: "word" * n * 8,
}


@pytest.mark.real
@settings(max_examples=10)
@given(
    st.sampled_from(sorted(MATERIAL)),
    st.sampled_from(sorted(set(PRESETS) - {"off"})),
    st.integers(0, 8),
    st.integers(100, 3_000),
    st.booleans(),
)
def test_whatever_a_user_pastes_the_list_is_made_to_fit(tmp_path_factory, kind, preset, at, size, replaces):
    history, pasted = make_session(18), {"role": "user", "content": f"Use this:\n{MATERIAL[kind](size)}"}
    ends = [end for end, message in enumerate(history) if message["role"] == "assistant"]
    place = ends[at] + 1 + bool(history[ends[at] + 1 :])
    history = [*history[:place], {"role": "assistant", "content": "Go on."}, pasted]
    history += [{"role": "assistant", "content": "I will."}, *make_session(18)[place:]] if at % 2 else []
    session, store = played(tmp_path_factory, [], preset=preset, planner="rules")
    with store:
        agent = Agent(session, replaces=replaces)
        for message in history:
            if message["role"] == "assistant":
                agent.call()
            agent.messages.append(message)
        sent = agent.call()
        assert session.state.tokens <= session.state.limit_tokens
        assert refused(sent) == []
        assert everything_is_somewhere(history, sent, store)
        assert not [event for event in session.log() if event.kind in ("tier_failed", "still_too_large")]
        assert "Use this" in str(sent)


@pytest.mark.real
@settings(max_examples=8)
@given(
    st.sampled_from(sorted(set(PRESETS) - {"off"})),
    st.integers(5_000, 16_000),
    st.dictionaries(st.integers(0, 22), st.integers(300, 400), max_size=8),
)
def test_no_plan_that_nobody_forced_or_asked_for_frees_a_handful_of_tokens(tmp_path_factory, preset, window, lines):
    history = make_session(24)
    for turn, more in lines.items():
        history[2 + 2 * turn]["content"][0]["content"] += "\nnothing to see here" * more
    store = open_store(tmp_path_factory.mktemp("laws") / "store.db")
    with store:
        session = Session("t", store=store, clock=Clock(), preset=preset, planner="rules", window_tokens=window)
        Agent(session).play(history)
        plans = {step.tier.name for step in PRESETS[preset].steps if isinstance(step.tier, PlanTurns)}
        done = [event for event in session.log() if event.kind == "post_compact" and event.tier in plans]
        free = [event.reclaimed_tokens for event in done if event.trigger not in ("critical", "exhausted")]
        assert min(free, default=2_000) >= min(2_000, 0.4 * session.state.limit_tokens)
