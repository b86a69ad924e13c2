"""A session whose store can be read and not written: a full disk."""

import pytest

from applier.session import Session
from applier.store import open_store
from planner.errors import StoreError
from planner.reading.messages import read_history
from tests.strategies import make_session


def fill_disk(store):
    """Let the database take no page more."""
    with store.backend.transaction():
        (pages,) = store.backend.rows("PRAGMA page_count")[0]
        store.backend.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.save_history(read_history(make_session(300)))


@pytest.mark.parametrize("grown", [0, 6])
def test_what_was_removed_is_restored_and_found(tmp_path, grown):
    messages = make_session(60)
    with open_store(tmp_path / "store.db") as store:
        with Session(planner="rules", store=store, session_id="a", window_tokens=20_000) as session:
            assert session.compact(messages).applied
            fill_disk(store)
            session.prepare([*messages, *make_session(60 + grown)[60:]])
            assert list(session.restore("t2").messages) == messages[1:3]
            assert list(session.restore(f"{session.state.history_key}:t2").messages) == messages[1:3]
        with Session(planner="rules", store=store, session_id="a", window_tokens=20_000) as again:
            assert list(again.restore("t2").messages) == messages[1:3]
