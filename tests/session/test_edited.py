"""Messages that the caller edits in place after a compaction: their old text is never sent again."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.session import PRESETS, Session
from applier.store import open_store
from planner.validity import check_messages
from tests.session.agent import Clock, FailingStore
from tests.strategies import make_session

MORE = [{"role": "assistant", "content": "Not yet."}, {"role": "user", "content": "Go on, please."}]


def order(at):
    """The number that only message `at` holds."""
    return f"ORD-{7000 + at}-QX"


def marked(turns):
    """A session whose user messages each hold a number of their own: in the task, and in each result."""
    history = make_session(turns)
    history[0]["content"] += f"\nNever ship {order(0)}."
    for at in range(2, len(history), 2):
        history[at]["content"][0]["content"] += f"\nERROR: {order(at)} failed"
    return history


def redact(history, at):
    """Replace the number of message `at` in place."""
    history[at] = json.loads(json.dumps(history[at]).replace(order(at), "REDACTED"))


def is_valid(messages):
    return not any(violation.refused for violation in check_messages(messages))


@pytest.mark.parametrize("call", ["prepare", "compact"])
def test_an_edit_inside_the_compacted_part_makes_a_new_view_at_once(session_of, call):
    session, history = session_of(), marked(40)
    assert order(0) in str(session.prepare(history))
    assert session.state.compactions == 1
    redact(history, 0)
    history += MORE
    sent = session.prepare(history) if call == "prepare" else session.compact(history).messages
    assert is_valid(sent)
    assert order(0) not in str(sent)
    assert "REDACTED" in str(sent)
    assert len(sent) < len(history)
    kinds = [(event.kind, event.trigger) for event in session.log()]
    assert ("post_compact", "edited") in kinds
    edited = next(event for event in session.log() if event.kind == "history_edited")
    assert edited.message == (
        "message 0 was edited in place; it is read again, and the compacted part, which may hold its old text, "
        "is replaced"
    )


def test_a_correction_that_makes_the_message_longer_is_sent(session_of):
    session, history = session_of(), marked(40)
    session.prepare(history)
    history[0] = {"role": "user", "content": "Wrong: it is ticket-1 that must be fixed. " * 60}
    assert "Wrong: it is ticket-1" in str(session.prepare([*history, *MORE]))


def test_a_preview_of_an_edited_result_is_replaced(session_of):
    session, history = session_of(preset="three-layer", window_tokens=200_000), marked(12)
    history[-1]["content"][0]["content"] = f"{order(len(history) - 1)}\n" + "a line of a long result\n" * 12_000
    at, sent = len(history) - 1, session.prepare(history)
    assert "[stored" in str(sent[-1])
    assert order(at) in str(sent[-1])
    history += MORE
    session.prepare(history)
    redact(history, at)
    sent = session.prepare([*history, *MORE])
    assert order(at) not in str(sent)
    assert is_valid(sent)


def test_undo_returns_to_no_list_with_the_old_text(session_of):
    session, history = session_of(), marked(40)
    session.prepare(history)
    redact(history, 0)
    history += MORE
    session.prepare(history)
    assert session.undo()
    assert order(0) not in str(session.prepare(history))


def test_where_the_store_fails_the_edited_messages_are_sent_whole(session_of, store):
    failing = FailingStore(store)
    session, history = session_of(store=failing, window_tokens=60_000), marked(40)
    assert session.compact(history).applied
    session.prepare(history)
    failing.broken = True
    redact(history, 0)
    history += MORE
    assert session.prepare(history) == history


def test_a_compaction_is_only_made_again_for_edits_of_what_it_has_read(session_of):
    session, history = session_of(), [*marked(40), *MORE]
    session.prepare(history)
    before = session.state.compactions
    history += [*MORE, *MORE]
    session.prepare(history)
    history[-4] = {"role": "assistant", "content": "Not yet, but soon."}
    sent = session.prepare([*history, *MORE])
    assert sent[-6]["content"] == "Not yet, but soon."
    assert session.state.compactions == before
    assert [event.message for event in session.log() if event.kind == "history_edited"] == [
        f"message {len(history) - 4} was edited in place; it is read again"
    ]


@pytest.mark.real
@settings(max_examples=12)
@given(st.data(), st.sampled_from(sorted(PRESETS)), st.sampled_from([4_000, 12_000]), st.booleans())
def test_no_old_text_is_ever_sent_again(tmp_path_factory, data, preset, window, manual):
    with open_store(tmp_path_factory.mktemp("edits") / "s.db") as store:
        failing = FailingStore(store)
        session = Session("x", store=failing, clock=Clock(), planner="rules", window_tokens=window, preset=preset)
        messages, edited = [], set()
        for message, following in pairwise([*marked(30), None]):
            messages.append(message)
            if message["role"] != "user":
                continue
            if len(messages) > 6 and data.draw(st.integers(0, 3)) == 0:
                at = 2 * data.draw(st.integers(0, len(messages) // 2 - 2))
                redact(messages, at)
                edited.add(order(at))
            failing.broken = data.draw(st.integers(0, 7)) == 0
            sent = session.prepare(messages)
            if manual and data.draw(st.integers(0, 5)) == 0:
                compacted = session.compact(messages).messages
                assert not [old for old in edited if old in str(compacted)]
            if data.draw(st.integers(0, 7)) == 0:
                session.undo()
            assert not [old for old in edited if old in str(sent)]
            assert is_valid(sent) or following is None
        assert not [event for event in session.log() if event.kind in ("tier_failed", "prepare_failed")]
