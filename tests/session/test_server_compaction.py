"""Beside the server's own compaction: its block is the provider's, what stands behind it is the session's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.session import Session
from applier.session.request import used_input_tokens
from applier.store import open_store
from planner.prices import billed_tokens
from planner.reading.messages import blocks
from planner.validity import check_messages
from tests.session.agent import Agent, Clock
from tests.strategies import compacted_histories, histories, make_session

SENT = {"type": "message", "input_tokens": 70, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 0}
CLOSED = {"type": "compaction", "input_tokens": 1_000, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}
AFTER = {**SENT, "input_tokens": 7}


@pytest.mark.real
@settings(max_examples=20)
@given(histories(max_turns=6), compacted_histories(min_turns=3, max_turns=8), st.booleans())
def test_what_is_behind_the_newest_block_is_compacted_and_all_before_goes_out_as_it_is(
    tmp_path_factory, closed, history, replaces
):
    """As a client holds it that the server compacted at a threshold; the block comes amid the session."""
    messages = [*closed, *history] if closed[-1]["role"] != history[0]["role"] else history
    start = len(messages) - len(history)
    block = history[0]["content"][0]
    with open_store(tmp_path_factory.mktemp("server") / "store.db") as store:
        session = Session("fix the race", store=store, clock=Clock(), window_tokens=4_000, planner="rules")
        agent = Agent(session, replaces=replaces).play(messages)
        done = session.compact(agent.messages)
        for sent in (agent.sent[-1], done.messages, session.prepare(agent.messages)):
            held = [b for message in sent for b in blocks(message) if b["type"] == "compaction"]
            assert held == [block]
            assert len(sent) > start
            assert blocks(sent[start])[0] == block
            before = {violation.rule for violation in check_messages(messages) if violation.refused}
            assert {violation.rule for violation in check_messages(sent) if violation.refused} <= before
        assert replaces or agent.sent[-1][:start] == messages[:start]
        assert not [event for event in session.log() if event.kind in ("tier_failed", "prepare_failed")]


def test_a_session_goes_on_behind_a_block_that_came_in_its_midst(session_of, clock):
    session = session_of(window_tokens=200_000, planner="rules")
    long = make_session(30)
    session.prepare(long)
    block = {"type": "compaction", "content": "What was done so far."}
    behind = [{"role": "assistant", "content": [block, {"type": "text", "text": "Going on."}]}, *make_session(20)]
    sent = session.prepare([*long[:-1], *behind])
    assert sent == [*long[:-1], *behind]
    done = session.compact(sent)
    assert done.applied
    assert done.first_changed_message >= len(long)
    assert done.messages[: len(long)] == sent[: len(long)]


def test_usage_is_summed_over_iterations_and_measures_the_prompt_as_it_was_sent():
    threshold = {**SENT, "input_tokens": 77, "cache_read_input_tokens": 60, "iterations": [SENT, CLOSED, AFTER]}
    on_demand = {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0, "iterations": [CLOSED]}
    assert [used_input_tokens({"usage": usage}) for usage in (threshold, on_demand, SENT)] == [100, 0, 100]
    billed = [billed_tokens(usage, "input_tokens") for usage in (threshold, on_demand, SENT, None)]
    assert billed == [1_077, 1_000, 70, 0]
    assert billed_tokens(threshold, "cache_read_input_tokens") == 65
