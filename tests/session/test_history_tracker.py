"""Whichever way the caller holds its list, the history behind it is found."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.session.history_tracker import HistoryTracker
from planner import TokenCounter, read_history
from tests.strategies import histories, make_session

COUNTER = TokenCounter.for_model()
MARK = {"type": "ephemeral"}


def tracker_of(messages):
    return HistoryTracker(COUNTER).extended_by(messages)[0]


@pytest.mark.real
@given(histories(max_turns=8), st.data())
def test_a_growing_list_is_taken_message_by_message(messages, data):
    tracker, taken = HistoryTracker(COUNTER), 0
    while taken < len(messages):
        more = data.draw(st.integers(taken + 1, len(messages)))
        given_list = messages[:more] if data.draw(st.booleans()) else deepcopy(messages[:more])
        tracker, arrival = tracker.extended_by(given_list)
        assert (arrival.start, arrival.changed) == (taken, False)
        taken = more
    assert tracker.plain == messages
    assert tracker.history.digest == read_history(messages).digest
    assert [tracker.turn_id(turn.start) for turn in read_history(messages).turns] == [
        turn.id for turn in read_history(messages).turns
    ]


@pytest.mark.real
@given(histories(min_turns=4, max_turns=8), st.data())
def test_a_replaced_list_maps_back_to_the_history(messages, data):
    tracker = tracker_of(messages)
    note = {"role": "user", "content": "<compacted> … </compacted>"}
    kept = data.draw(st.integers(1, len(messages) - 1))
    view = [note, *messages[kept:]]
    tracker = tracker.recognizing(view, head=1)
    more = [{"role": "assistant", "content": "on it"}, {"role": "user", "content": "good"}]
    tracker, arrival = tracker.extended_by(deepcopy([*view, *more]) if data.draw(st.booleans()) else [*view, *more])
    assert (arrival.start, arrival.changed) == (len(messages), False)
    assert tracker.plain == [*messages, *more]


@pytest.mark.real
@given(histories(min_turns=3, max_turns=8), st.data())
def test_a_changed_history_is_cut_where_it_changed(messages, data):
    tracker = tracker_of(messages)
    at = data.draw(st.integers(0, len(messages) - 1))
    changed = [*messages[:at], {"role": messages[at]["role"], "content": "something else entirely"}]
    tracker, arrival = tracker.extended_by(changed)
    assert (arrival.start, arrival.changed) == (at, True)
    assert tracker.plain == changed
    assert all(result.message < len(changed) for result in tracker.results)


def test_a_rewound_list_is_a_change_that_keeps_the_rest():
    messages = make_session(8)
    tracker = tracker_of(messages)
    tracker, arrival = tracker.extended_by(messages[:9])
    assert (arrival.start, arrival.changed, len(tracker)) == (9, True, 9)


def test_a_divergence_inside_the_compacted_region_starts_a_new_history():
    messages = make_session(8)
    tracker = tracker_of(messages)
    view = [{"role": "user", "content": "the note"}, *messages[10:]]
    tracker = tracker.recognizing(view, head=1)
    other = [{"role": "user", "content": "another note"}, *messages[10:]]
    tracker, arrival = tracker.extended_by(other)
    assert arrival.start == 0
    assert tracker.plain == other


def test_cache_marks_that_move_change_nothing_but_are_taken_over():
    messages = make_session(4)
    marked = deepcopy(messages)
    marked[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tracker = tracker_of(marked)
    more = [{"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
    tracker, arrival = tracker.extended_by([*messages, *more])
    assert (arrival.start, arrival.changed) == (len(messages), False)
    assert arrival.replaced
    assert tracker.originals[: len(messages)] == messages
    assert "cache_control" not in tracker.plain[len(messages) - 1]["content"][-1]


def test_marks_move_behind_a_list_that_is_a_few_calls_old():
    """The caller goes on from an older compacted list: a mark that it took off must not stay, or there are five."""
    messages = make_session(8)[:13]
    marked = {**messages[10], "content": [{**block, "cache_control": MARK} for block in messages[10]["content"]]}
    tracker = tracker_of(messages[:9])
    view = [{"role": "user", "content": "<compacted> … </compacted>"}, *messages[6:9]]
    tracker = tracker.recognizing(view, head=1)
    tracker, _ = tracker.extended_by([*messages[:10], marked])
    tracker, arrival = tracker.extended_by([*view, *messages[9:]])
    assert (arrival.start, arrival.changed) == (11, False)
    assert [index for index, message in enumerate(tracker.originals) if "cache_control" in str(message)] == []


def test_the_newest_message_changed_in_place_is_noticed():
    messages = make_session(4)
    tracker = tracker_of(messages)
    messages[-1]["content"].append({"type": "text", "text": "and hurry"})
    tracker, arrival = tracker.extended_by(messages)
    assert (arrival.start, arrival.changed) == (len(messages) - 1, True)
    assert tracker.plain[-1]["content"][-1]["text"] == "and hurry"


@pytest.mark.parametrize("edited", [(2,), (2, 4), (4,)])
def test_a_caller_who_keeps_his_list_may_edit_what_was_sent_shortened(edited):
    messages = make_session(6)
    tracker = tracker_of(messages)
    answer = {**messages[2]["content"][0], "content": "[stored: 900 lines]"}
    tracker = tracker.recognizing([*messages[:2], {"role": "user", "content": [answer]}, *messages[3:]], head=0)
    for at in edited:
        messages[at]["content"][0]["content"] = "(taken out)"
    more = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    tracker, arrival = tracker.extended_by(more)
    assert (arrival.start, arrival.changed, arrival.edited) == (len(messages), False, set(edited))
    assert tracker.plain == more


@pytest.mark.real  # loads the SDK
def test_sdk_objects_are_the_same_message_as_their_dicts():
    from anthropic.types import TextBlock

    said = {"role": "assistant", "content": [TextBlock(type="text", text="hello", citations=None)]}
    tracker = tracker_of([{"role": "user", "content": "hi"}, said])
    again = {"role": "assistant", "content": [TextBlock(type="text", text="hello", citations=None)]}
    tracker, arrival = tracker.extended_by(
        [{"role": "user", "content": "hi"}, again, {"role": "user", "content": "bye"}]
    )
    assert (arrival.start, arrival.changed) == (2, False)
