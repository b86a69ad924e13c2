"""The loop without middleware: the example agent with `ask` between it and the client."""

from functools import partial

import anthropic
import pytest

from applier.session import Session
from tests.example.agent import run_agent
from tests.example.plain_loop import ask
from tests.example.record import HERE, played, seeded
from tests.example.screenplay import load_screenplay
from tests.example.scripted import ScriptedPerson

MODEL = "claude-sonnet-5-5"


@pytest.fixture
def session(tmp_path):
    with Session(model=MODEL, planner="rules", store=tmp_path / "store.db", window_tokens=200_000) as session:
        yield session


def test_the_service_agent_finishes_in_a_window_it_did_not_know(tmp_path, session):
    seed, play = load_screenplay(HERE / "service")
    (tmp_path / "workspace").mkdir()
    workspace, messages = seeded(seed, tmp_path / "workspace"), []
    with played(play) as server:
        server.window_tokens = 3_000
        send = partial(ask, server.client(), session)
        for _ in run_agent(send, ScriptedPerson(play), workspace.answer, messages, model=MODEL):
            pass
    assert messages[-1]["content"][0].text == play[-1].text
    assert [violation for violation in server.violations if violation.rule != 22] == []
    assert "recovered" in [event.kind for event in session.log()]


def test_what_cannot_be_made_shorter_is_the_callers_error(session):
    _, play = load_screenplay(HERE / "service")
    with played(play) as server:
        server.window_tokens = 10
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            ask(
                server.client(),
                session,
                messages=[{"role": "user", "content": "Hi " * 50}],
                model=MODEL,
                max_tokens=100,
            )
