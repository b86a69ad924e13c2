"""When the agent names something that only a reference holds, the turn that holds it comes back."""

from applier.session import Preset
from applier.session.tiers import PlanTurns, SnipMiddle
from tests.session.agent import Agent
from tests.strategies import make_session

PLACE = "src/secret_handshake.ts"


def history_with(detail, turns=40):
    """A session whose third turn holds `detail` deep in a long result, long ago."""
    history = make_session(turns)
    lines = [f"filler line {number}" for number in range(60)]
    history[4]["content"][0]["content"] = "\n".join([*lines, detail, *lines])
    return history


def said(words):
    return {"role": "assistant", "content": words}


def ask(words="go on"):
    return {"role": "user", "content": words}


SNIPPED = Preset("snipped", manual=(SnipMiddle(60, 1, 2, 0), PlanTurns(0.2)))
"""Drops the middle once; by then the list is short, and the next time plans."""


GROWN = make_session(60)[79:]
"""What the agent does next, long enough to be worth a plan."""


def compacted(session, detail):
    agent = Agent(session).play(history_with(detail))
    assert session.compact(agent.messages).tier == "snip"
    agent.call()
    assert detail not in str(agent.sent[-1])
    return agent


def test_a_small_turn_comes_back_at_once_and_stays(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, f"zz {PLACE} zz")
    before = agent.sent[-1]
    agent.play([said(f"Let me think about {PLACE} again."), ask()])
    sent = agent.sent[-1]
    assert sent[: len(before)] == before, "nothing in front of it changed"
    assert '<restored turn="t3">' in str(sent[-1])
    assert PLACE in str(sent[-1])
    event = session.log()[-1]
    assert (event.kind, PLACE in event.message) == ("recalled", True)
    agent.play([said("fine"), ask()])
    assert agent.sent[-1][: len(sent)] == sent
    assert [event.kind for event in session.log()].count("recalled") == 1


def test_a_turn_that_is_too_large_is_left_to_its_reference(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, f"zz {PLACE} zz")
    session._state.settings = session._state.settings.model_copy(update={"recall_tokens": 0})
    before = agent.sent[-1]
    agent.play([said(f"Let me think about {PLACE} again."), ask()])
    assert session.log()[-1].kind == "post_compact"
    assert agent.sent[-1][: len(before)] == before
    assert f"zz {PLACE} zz" not in str(agent.sent[-1])


def test_what_still_stands_or_was_never_there_is_not_recalled(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, f"zz {PLACE} zz")
    agent.play([said("Back to src/auth.ts and its getUserById, and some/new_file.py."), ask()])
    assert session.log()[-1].kind == "post_compact"


def test_what_another_list_removed_is_not_recalled(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    compacted(session, f"zz {PLACE} zz")
    other = [ask("Another task."), said(f"Let me see {PLACE}."), ask("Yes, please.")]
    assert session.prepare(other) == other
    assert not [event for event in session.log() if event.kind in ("prepare_failed", "recalled")]


def test_a_call_that_works_brings_its_own(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, f"zz {PLACE} zz")
    call = {"type": "tool_use", "id": "toolu_x1", "name": "Read", "input": {"file_path": PLACE}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_x1", "content": "fresh content"}
    agent.play([{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}])
    assert session.log()[-1].kind == "post_compact"


def test_a_call_that_fails_brings_the_turn_back(session_of):
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, f"zz {PLACE} zz")
    call = {"type": "tool_use", "id": "toolu_x1", "name": "Read", "input": {"file_path": PLACE}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_x1", "content": "no such file", "is_error": True}
    agent.play([{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}])
    assert session.log()[-1].kind == "recalled"


def test_without_a_plan_there_is_nothing_to_recall(session_of):
    session = session_of(window_tokens=1_000_000)
    Agent(session).play([*history_with(PLACE), said(f"see {PLACE}"), ask()])
    assert session.log() == []


def test_a_dropped_turn_returns_when_the_task_returns_to_it(session_of):
    detail = "the handshake_token is rotated by rotate_handshake_key in src/secret_handshake.ts"
    session = session_of(window_tokens=60_000, preset=SNIPPED)
    agent = compacted(session, detail)
    agent.play(GROWN)
    session.task = "Change rotate_handshake_key in src/secret_handshake.ts"
    session.compact(agent.messages, focus="rotate_handshake_key handshake_token src/secret_handshake.ts")
    agent.call()
    assert "rotate_handshake_key" in str(agent.sent[-1])
