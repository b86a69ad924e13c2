"""Turns: a partition of the list that never splits a call from its result and stays as the list grows."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import TranscriptError
from planner.reading.messages import call_ids, read_history, result_ids
from tests.strategies import answered_histories, histories, make_session, text


def call(name, **fields):
    return {"type": "tool_use", "id": name, "name": "Read", "input": {}, **fields}


def result(name):
    return {"type": "tool_result", "tool_use_id": name, "content": "done"}


def server(name):
    return {"type": "server_tool_use", "id": name, "name": "code_execution", "input": {}}


def server_result(name):
    return {"type": "code_execution_tool_result", "tool_use_id": name, "content": []}


def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


HI, OK = user(text("hi")), assistant(text("ok"))
USER, LIVE_USER, ANSWER = ("user", 1, False), ("user", 1, True), ("assistant", 1, False)
BY_CODE = {"caller": {"type": "code_execution_20260120", "tool_id": "s"}}


def shape(messages):
    """(kind, messages, live) of each turn."""
    return [(turn.kind, turn.stop - turn.start, turn.live) for turn in read_history(messages).turns]


@given(histories())
def test_turns_partition_the_history_in_order(messages):
    history = read_history(messages)
    at = 0
    for number, turn in enumerate(history.turns, 1):
        assert (turn.id, turn.number, turn.start) == (f"t{number}", number, at)
        assert turn.stop > turn.start
        assert history.by_id[turn.id] is turn
        at = turn.stop
    assert at == len(messages)


@given(histories())
def test_a_call_and_its_results_are_one_turn(messages):
    history = read_history(messages)
    for turn in history.turns:
        inside = history.messages_of(turn)
        called = {name for message in inside for name in call_ids(message)}
        assert called == {name for message in inside for name in result_ids(message)}


@given(histories(max_turns=8))
def test_turns_stay_as_the_list_grows(messages):
    whole = read_history(messages)
    for count in range(len(messages)):
        part = read_history(messages[:count])
        assert part.digest == whole.digest_at(count)
        assert [turn.id for turn in part.turns] == [turn.id for turn in whole.turns[: len(part.turns)]]
        for mine, later in zip(part.turns, whole.turns, strict=False):
            assert mine.start == later.start
            assert mine.stop == later.stop or mine is part.turns[-1]
            assert mine.digest == later.digest or mine is part.turns[-1]


@given(histories())
def test_live_is_what_the_model_has_not_answered(messages):
    """Behind one message of the assistant's at most, as the API joins his neighbours."""
    history = read_history(messages)
    live = [turn for turn in history.turns if turn.live]
    assert live
    assert live == list(history.turns[-len(live) :])
    roles = [message["role"] for turn in live for message in history.messages_of(turn)]
    assert [role for role, _ in groupby(roles)].count("assistant") <= 1
    before = history.messages[: live[0].start]
    assert not before or "assistant" in (history.messages[live[0].start]["role"], before[-1]["role"])


@given(answered_histories())
def test_nothing_is_live_behind_the_assistants_last_word(messages):
    assert not any(turn.live for turn in read_history(messages).turns)


@given(histories())
def test_originals_are_the_very_objects_given(messages):
    history = read_history(messages)
    assert all(original is message for original, message in zip(history.originals, messages, strict=True))
    assert history.messages == tuple(messages)


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([], []),
        ([HI], [LIVE_USER]),
        ([HI, OK, HI], [USER, ANSWER, LIVE_USER]),
        ([HI, assistant(call("a"))], [USER, ("tools", 1, True)]),
        ([HI, assistant(call("a")), user(result("a"))], [USER, ("tools", 2, True)]),
        # Words behind results in a message of their own: neither has been answered.
        ([HI, assistant(call("a")), user(result("a")), HI], [USER, ("tools", 2, True), LIVE_USER]),
        # Parallel results in messages of their own belong to the call.
        ([HI, assistant(call("a"), call("b")), user(result("a")), user(result("b")), OK],
         [USER, ("tools", 3, False), ANSWER]),
        # A server tool that is still running when the response ends (pause_turn), and its result.
        ([HI, assistant(server("s"))], [USER, ("assistant", 1, True)]),
        ([HI, assistant(server("s")), assistant(server_result("s"), text("ok"))], [USER, ("assistant", 2, False)]),
        # Code on the server that calls a client tool twice.
        ([HI, assistant(server("s"), call("a", **BY_CODE)), user(result("a")),
          assistant(call("b", **BY_CODE)), user(result("b")),
          assistant(server_result("s"), text("ok")), HI],
         [USER, ("tools", 5, False), LIVE_USER]),
        # Lists that are invalid already: nothing is lost, nothing is guessed.
        ([HI, OK, user(result("a")), OK], [USER, ANSWER, ("other", 1, False), ANSWER]),
        ([HI, assistant(call("a")), HI, user(result("a"))], [USER, ("tools", 1, True), LIVE_USER, ("other", 1, True)]),
        ([HI, {"role": "system", "content": "x"}, OK], [USER, ("other", 1, False), ANSWER]),
    ],
)  # fmt: skip
def test_turns_of(messages, turns):
    assert shape(messages) == turns


@pytest.mark.parametrize("messages", ["hello", b"hello", {"role": "user"}, None, iter([HI])])
def test_what_is_no_list_is_refused(messages):
    with pytest.raises(TranscriptError, match="expected a list of messages"):
        read_history(messages)


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, {("a", "b"): 1}])
def test_what_json_cannot_hold_is_refused_by_place(value):
    odd = assistant({**call("a"), "input": {"path": value}})
    with pytest.raises(TranscriptError, match=r"messages\[1\]: expected JSON data"):
        read_history([HI, odd])


def test_lone_surrogates_are_read():
    history = read_history([user(text("cut \ud83d"))])
    assert history.digest == read_history([user(text("cut \ud83d"))]).digest


def test_a_long_run_of_calls_is_as_many_turns():
    history = read_history(make_session(2_500))
    assert len(history.turns) == 2_500
    assert {turn.kind for turn in history.turns[1:]} == {"tools"}
    assert [turn.id for turn in history.turns if turn.live] == ["t2500"]


@given(histories(), st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_turns_of_a_history_that_grew_are_those_of_the_whole(messages, ends, notices):
    notice = {"role": "system", "content": "Be brief."}
    messages = [*messages, notice, *messages, notice] if notices else messages
    known = None
    for end in [*sorted(ends), len(messages)]:
        known = read_history(messages[:end], known)
        assert known.turns == read_history(messages[:end]).turns
