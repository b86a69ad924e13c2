"""A real store and a clock for every test."""

from pathlib import Path

import pytest

from applier.session import Session
from applier.store import open_store
from tests.session.agent import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def session_of(store, clock):
    """A function that opens a session on the test's store and clock, planning by rules."""

    def make(task="fix the race", **wishes):
        given = {"store": store, "clock": clock, "planner": "rules", "window_tokens": 12_000, **wishes}
        return Session(task, **given)

    return make


@pytest.fixture(scope="session")
def shared_folder():
    """The folder of real transcripts beside this repository; skips where there is none."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "transcripts"
    if not folder.is_dir():
        pytest.skip("no shared transcripts beside this repository")
    return folder
