"""What holds for every session whatever interrupts a call: the session stays as it was before that call."""

import gc
import signal
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from applier.session import Session
from planner import TranscriptError
from tests.session.agent import Clock
from tests.strategies import make_session


def interrupted(act, after_calls):
    """True if a Ctrl-C, after so many calls of functions, ended `act`; False if it was done before."""
    left = after_calls

    def count(_frame, event, _argument):
        nonlocal left
        left -= event == "call"
        if left == 0:
            left = -1
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.setprofile(count)
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, before)
    return False


def opened(folder, is_shared):
    wishes = {"session_id": "s1", "is_shared": is_shared, "planner": "rules", "window_tokens": 6_000}
    return Session("fix the race", store=folder / "store.db", clock=Clock(), **wishes)


ACTS = {
    "prepare": lambda session, messages: session.prepare(messages),
    "compact": lambda session, messages: session.compact(messages).messages,
    "recover": lambda session, messages: session.recover(messages, "prompt is too long"),
    "undo": lambda session, messages: session.undo(),
}


@settings(max_examples=20)
@given(
    act=st.sampled_from(sorted(ACTS)),
    calls=st.integers(1, 12),
    after=st.integers(1, 60_000),
    is_shared=st.booleans(),
)
def test_an_interrupted_call_leaves_the_session_as_it_was(tmp_path_factory, act, calls, after, is_shared):
    history = make_session(30)
    lists = [history[: 5 * (number + 1)] for number in range(calls)]
    session, before, done = (opened(tmp_path_factory.mktemp("s"), is_shared) for _ in range(3))
    for messages in lists[:-1]:
        sent = [one.prepare(messages) for one in (session, before, done)]
        assert sent[0] == sent[1] == sent[2]
    ACTS[act](done, lists[-1])
    assume(interrupted(lambda: ACTS[act](session, lists[-1]), after))
    assert session.prepare(lists[-1]) in (before.prepare(lists[-1]), done.prepare(lists[-1]))
    sent = session.prepare(history)
    assert "prepare_failed" not in [event.kind for event in session.log()]
    assert session.state.history_messages == len(history)
    assert list(session.restore("t2").messages) == history[1:3]
    assert len(sent) < len(history)


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def with_nested(history, depth):
    call = {"type": "tool_use", "id": "deep", "name": "query", "input": nested(depth)}
    answer = {"type": "tool_result", "tool_use_id": "deep", "content": "ok"}
    return [*history[:1], {"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}, *history[1:]]


@pytest.mark.parametrize("depth", [450, 550, 700])
def test_a_deeply_nested_input_is_compacted_like_any_other(session_of, depth):
    session, history = session_of(window_tokens=6_000), with_nested(make_session(30), depth)
    sent = session.prepare(history)
    assert len(sent) < len(history)
    assert list(session.restore("t2").messages) == history[1:3]
    assert session.recover(history, "prompt is too long") is None or session.state.history_messages == len(history)


def test_what_is_nested_too_deeply_to_be_read_is_sent_and_breaks_nothing_later(session_of):
    session, history = session_of(window_tokens=6_000), make_session(30)
    deep = with_nested(history, 100_000)
    sent = session.prepare(deep)
    assert all(message is known for message, known in zip(sent, deep, strict=True))
    assert session.recover(deep, "prompt is too long") is None
    with pytest.raises(TranscriptError, match="recursion"):
        session.compact(deep)
    assert len(session.prepare(history)) < len(history)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_of_the_host_goes_on_after_a_plan_by_rules(session_of, was_enabled):
    heard = []
    session = session_of(hooks={"pre_compact": lambda _: heard.append(gc.isenabled())})
    (gc.enable if was_enabled else gc.disable)()
    try:
        session.compact(make_session(40))
        assert heard == [False]
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()


def test_calls_with_the_id_of_earlier_ones_get_their_own_once_refused(tmp_path):
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "c", "content": "text"}
    once = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    messages = [{"role": "user", "content": "Go."}, *once, *once]
    with Session(planner="rules", store=tmp_path / "s.db") as session:
        session.prepare(messages)
        mended = session.recover(messages, "messages.3.content.0: `tool_use` ids must be unique")
        assert mended is not None
        assert [block["id"] for at in (1, 3) for block in mended[at]["content"]] == ["c", "c_2"]
        assert session.recover(messages, "messages.3.content.0: `tool_use` ids must be unique") is None
