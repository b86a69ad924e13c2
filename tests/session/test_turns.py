"""A model whose reasoning is bound to what stands before it is compacted between turns, where that costs none."""

from __future__ import annotations

import threading

import pytest

from applier.settings import load_settings
from planner.plan import Proposal, Provenance
from planner.reading.tokens import binds_reasoning
from tests.patience import PATIENCE_SECONDS
from tests.session.agent import finished

BOUND = ["gpt-6.2-sol", "gpt-6.2", "openai/gpt-6.10-astra", "GPT-7", "gpt-10.1"]
FREE = ["gpt-6-astra", "gpt-6.1-sol", "gpt-5.5", "o3", "claude-opus-5-5", "", "gpt-4o", "gpt-oss-120b", "my-gpt-6.2.1"]


@pytest.mark.parametrize("model", BOUND + FREE)
def test_which_models_bind_their_reasoning(model):
    assert binds_reasoning(model) == (model in BOUND)


def call_of(number: int) -> list[dict]:
    """A call and its result, about 700 tokens."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": f"check {number}"}}
    text = "\n".join(f"src/module_{number}_{line}.py: {line} rows" for line in range(60))
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def compacted_at(session, messages, calls: int) -> list[tuple[bool, str]]:
    """Play a turn of so many calls, then the user's next words: where it was compacted, and at which level."""
    seen = []
    for number in range(calls + 1):
        before, level = session.state.compactions, session.state.level
        session.prepare(messages)
        if session.state.compactions > before:
            seen.append((bool(number % (calls + 1)), level))
        if number < calls:
            messages += call_of(len(messages))
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now the rest, please."}]
    before = session.state.compactions
    session.prepare(messages)
    return [*seen, *([(False, "next")] if session.state.compactions > before else [])]


@pytest.mark.parametrize(("model", "where"), [("gpt-5.5", "inside"), ("gpt-6.2-sol", "between")])
def test_a_turn_is_not_cut_where_that_costs_its_reasoning(model, where, session_of):
    session = session_of(model=model, window_tokens=40_000, settings=load_settings(compact_at_ratio=0.3))
    messages = [{"role": "user", "content": "Check the modules."}]
    seen = compacted_at(session, messages, 16)
    assert bool([one for one in seen if one[0]]) == (where == "inside")
    assert seen[-1] == (False, "next") or where == "inside"


def test_a_window_that_is_full_is_compacted_at_any_time(session_of):
    session = session_of(model="gpt-6.2-sol", window_tokens=12_000)
    messages = [{"role": "user", "content": "Check the modules."}]
    for number in range(40):
        messages += call_of(number)
        session.prepare(messages)
        assert session.state.tokens <= session.state.limit_tokens
    assert session.state.compactions >= 2


class GatedPlanner:
    """Notes in which thread it was asked, and answers once it may."""

    def __init__(self) -> None:
        self.threads, self.go = [], threading.Event()

    def propose(self, request):
        self.threads.append(threading.current_thread().name)
        assert self.go.wait(PATIENCE_SECONDS)
        return Proposal({}, Provenance(planner="gated"))


def test_the_plan_is_made_while_the_user_reads_the_answer(session_of):
    planner = GatedPlanner()
    settings = load_settings(compact_at_ratio=0.3, background_debounce_seconds=0)
    session = session_of(model="gpt-6.2-sol", window_tokens=40_000, planner=planner, settings=settings)
    messages = [{"role": "user", "content": "Check the modules."}]
    for number in range(16):
        session.prepare(messages)
        session.observe({"usage": {"input_tokens": session.state.tokens}})
        messages += call_of(number)
    session.prepare(messages)
    assert planner.threads == [], "not while a plan would have to wait for the end of the turn"
    session.observe({"usage": {"input_tokens": session.state.tokens}, "stop_reason": "end_turn"})
    planner.go.set()
    finished(session._state.planning.worker)
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now the rest, please."}]
    session.prepare(messages)
    assert (session.state.compactions, session.plan.provenance.planner) == (1, "gated")
    assert {*planner.threads} == {"compactor-plan"}, "nobody waited for it"
