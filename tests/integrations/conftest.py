"""A session that needs no key, and a real conversation for it to grow."""

import json
from importlib.resources import files

import pytest

from applier.session import Session

MODEL = "claude-sonnet-5-5"


@pytest.fixture(scope="session")
def conversation() -> list[dict]:
    """The example's transcript: about 105,000 tokens as the session counts them."""
    return json.loads(files("applier.eval").joinpath("transcript.json").read_text(encoding="utf-8"))["messages"]


@pytest.fixture
def new_session(tmp_path):
    """Opens sessions with the rules planner on one store; all are closed at the end."""
    opened: list[Session] = []

    def new(**given) -> Session:
        chosen = {"model": MODEL, "planner": "rules", "store": tmp_path / "store.db", "window_tokens": 24_000}
        opened.append(Session(**{**chosen, **given}))
        return opened[-1]

    yield new
    for session in opened:
        session.close()
