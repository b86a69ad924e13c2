"""Which sessions of a proxy stay open."""

import json
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.proxy.conversations import IDLE_SECONDS, Conversations
from applier.session import Session
from applier.session.sharing import marks_of
from applier.store import open_store
from planner.prices import CACHE_LIFETIME_SECONDS
from tests.session.agent import Clock
from tests.strategies import make_session


def test_a_conversation_that_nobody_used_for_an_hour_is_let_go_and_goes_on_from_the_store(tmp_path):
    history, clock = make_session(40), Clock()
    with open_store(tmp_path / "store.db") as store:
        wishes = {"store": store, "planner": "rules", "window_tokens": 12_000}
        conversations = Conversations(lambda name, *_: Session("t", session_id=name, **wishes), clock=clock)

        def session_of(messages, who):
            return conversations.find(messages, {"model": ""}, {"x-api-key": who}, None).session

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


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Opens a new store each time."""
    folder, names = tmp_path_factory.mktemp("idle"), iter(range(10_000))
    return lambda: open_store(folder / f"{next(names)}.db")


def calls(store, order, limit_tokens, idle_seconds):
    """What goes out where the conversations go on in this `order`, each after so many seconds; and how many sessions
    were opened."""
    clock, opened, sent = Clock(), [], []
    histories = [[{"role": "user", "content": f"Fix part {who}."}, *make_session(60)[1:]] for who in range(3)]
    at = [13, 13, 13]

    def opening(name, *_):
        opened.append(name)
        wishes = {"planner": "rules", "window_tokens": 3_000, "clock": clock}
        return Session(store=store, session_id=name, is_shared=True, **wishes)

    bounds = {"limit_tokens": limit_tokens, "idle_seconds": idle_seconds}
    conversations = Conversations(opening, clock=clock, marks=partial(marks_of, store), **bounds)
    for who, steps, seconds in order:
        for _ in range(steps):
            messages = json.loads(json.dumps(histories[who][: at[who]]))
            session = conversations.find(messages, {"model": ""}, {"x-api-key": str(who)}, None).session
            sent.append(session.prepare(messages))
            session.observe({"usage": {"input_tokens": sum(map(len, map(str, sent[-1]))) // 4}})
            at[who] = min(at[who] + 2, len(histories[who]))
            clock.pass_(seconds)
    conversations.close()
    return sent, len(opened)


@settings(max_examples=3)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(2, 6), st.sampled_from([5, 400])),
        min_size=3,
        max_size=5,
        unique_by=lambda step: step[:2],
    )
)
def test_a_shared_session_that_was_let_go_sends_what_one_sends_that_was_held(stores, order):
    with stores() as one, stores() as other:
        held, few = calls(one, order, 10**9, float("inf"))
        let_go, many = calls(other, order, 0, CACHE_LIFETIME_SECONDS)
    assert few == len({who for who, _, _ in order})
    assert many == 1 + sum(before[0] != after[0] for before, after in pairwise(order))
    assert let_go == held
