"""Whichever way the caller holds its list, the history behind it is found."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from applier.session.ledger import Ledger
from planner import TokenCounter, read_history
from tests.strategies import histories, make_session

COUNTER = TokenCounter.for_model()


def ledger_of(messages):
    ledger = Ledger(COUNTER)
    ledger.take(messages)
    return ledger


@given(histories(max_turns=8), st.data())
def test_a_growing_list_is_taken_message_by_message(messages, data):
    ledger, taken = Ledger(COUNTER), 0
    while taken < len(messages):
        more = data.draw(st.integers(taken + 1, len(messages)))
        given_list = messages[:more] if data.draw(st.booleans()) else deepcopy(messages[:more])
        arrival = ledger.take(given_list)
        assert (arrival.start, arrival.changed) == (taken, False)
        taken = more
    assert ledger.plain == messages
    assert ledger.history.digest == read_history(messages).digest
    assert [ledger.turn_id(turn.start) for turn in read_history(messages).turns] == [
        turn.id for turn in read_history(messages).turns
    ]


@given(histories(min_turns=4, max_turns=8), st.data())
def test_a_replaced_list_maps_back_to_the_history(messages, data):
    ledger = ledger_of(messages)
    note = {"role": "user", "content": "<compacted> … </compacted>"}
    kept = data.draw(st.integers(1, len(messages) - 1))
    view = [note, *messages[kept:]]
    ledger.returned(view, head=1)
    more = [{"role": "assistant", "content": "on it"}, {"role": "user", "content": "good"}]
    arrival = ledger.take(deepcopy([*view, *more]) if data.draw(st.booleans()) else [*view, *more])
    assert (arrival.start, arrival.changed) == (len(messages), False)
    assert ledger.plain == [*messages, *more]


@given(histories(min_turns=3, max_turns=8), st.data())
def test_a_changed_history_is_cut_where_it_changed(messages, data):
    ledger = ledger_of(messages)
    at = data.draw(st.integers(0, len(messages) - 1))
    changed = [*messages[:at], {"role": messages[at]["role"], "content": "something else entirely"}]
    arrival = ledger.take(changed)
    assert (arrival.start, arrival.changed) == (at, True)
    assert ledger.plain == changed
    assert all(result.message < len(changed) for result in ledger.results)


def test_a_rewound_list_is_a_change_that_keeps_the_rest():
    messages = make_session(8)
    ledger = ledger_of(messages)
    arrival = ledger.take(messages[:9])
    assert (arrival.start, arrival.changed, len(ledger)) == (9, True, 9)


def test_a_divergence_inside_the_compacted_region_starts_a_new_history():
    messages = make_session(8)
    ledger = ledger_of(messages)
    view = [{"role": "user", "content": "the note"}, *messages[10:]]
    ledger.returned(view, head=1)
    other = [{"role": "user", "content": "another note"}, *messages[10:]]
    assert ledger.take(other).start == 0
    assert ledger.plain == other


def test_cache_marks_that_move_change_nothing_but_are_taken_over():
    messages = make_session(4)
    marked = deepcopy(messages)
    marked[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    ledger = ledger_of(marked)
    more = [{"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
    arrival = ledger.take([*messages, *more])
    assert (arrival.start, arrival.changed) == (len(messages), False)
    assert arrival.refreshed == {len(messages) - 1: messages[-1]}
    assert "cache_control" not in ledger.plain[len(messages) - 1]["content"][-1]


def test_the_newest_message_changed_in_place_is_noticed():
    messages = make_session(4)
    ledger = ledger_of(messages)
    messages[-1]["content"].append({"type": "text", "text": "and hurry"})
    arrival = ledger.take(messages)
    assert (arrival.start, arrival.changed) == (len(messages) - 1, True)
    assert ledger.plain[-1]["content"][-1]["text"] == "and hurry"


def test_sdk_objects_are_the_same_message_as_their_dicts():
    from anthropic.types import TextBlock

    said = {"role": "assistant", "content": [TextBlock(type="text", text="hello", citations=None)]}
    ledger = ledger_of([{"role": "user", "content": "hi"}, said])
    again = {"role": "assistant", "content": [TextBlock(type="text", text="hello", citations=None)]}
    arrival = ledger.take([{"role": "user", "content": "hi"}, again, {"role": "user", "content": "bye"}])
    assert (arrival.start, arrival.changed) == (2, False)


def test_repeated_results_are_found():
    read = {"type": "tool_use", "name": "Read", "input": {"file_path": "a.py"}}
    messages = [{"role": "user", "content": "go"}]
    for number in range(3):
        messages.append({"role": "assistant", "content": [{**read, "id": f"toolu_{number}"}]})
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x = 1"}
        messages.append({"role": "user", "content": [answer]})
    ledger = ledger_of(messages)
    assert [len(ledger.repeated_by(result)) for result in ledger.results] == [0, 1, 2]
