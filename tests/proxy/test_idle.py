"""Which sessions of a proxy stay open."""

from applier.adapters.proxy.gateway import IDLE_SECONDS, Conversations
from applier.session import Session
from applier.store import open_store
from tests.session.agent import Clock
from tests.strategies import make_session


def test_a_conversation_that_nobody_used_for_an_hour_is_let_go_and_goes_on_from_the_store(tmp_path):
    history, clock = make_session(40), Clock()
    with open_store(tmp_path / "store.db") as store:
        wishes = {"store": store, "planner": "rules", "window_tokens": 12_000}
        conversations = Conversations(lambda name, *_: Session("t", session_id=name, **wishes), clock=clock)

        def session_of(messages, who):
            return conversations.session(messages, {"model": ""}, {"x-api-key": who}, None)

        first = session_of(history, "one")
        sent = first.prepare(history)
        assert sent != history
        clock.pass_(IDLE_SECONDS - 1)
        session_of(history, "two")
        assert len(conversations) == 2
        clock.pass_(2)
        session_of(history, "two")
        assert len(conversations) == 1
        again = session_of(history, "one")
        assert again is not first
        assert again.session_id == first.session_id
        assert again.prepare(history) == sent
        conversations.close()
