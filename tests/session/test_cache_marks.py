"""A cache mark of ours makes no valid request invalid, and shortens no client's cache."""

import json

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from applier.session import Session
from applier.testing import Request, judge
from planner.reading.messages import cache_marks
from tests.session.agent import Clock
from tests.strategies import make_session

LONG, SHORT = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
MARKS = st.sampled_from([None, LONG, SHORT])


def refused(messages, system, top):
    body = {"model": "claude-sonnet-5-5", "max_tokens": 1_000, "messages": messages, "system": system}
    body |= {"cache_control": top} if top else {}
    return [str(found) for found in judge(Request(body=body, raw=json.dumps(body).encode(), headers={}))]


def marked(messages, places):
    made = [*messages]
    for at, mark in places.items():
        content = made[at]["content"]
        listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if mark:
            made[at] = {**made[at], "content": [*listed[:-1], {**listed[-1], "cache_control": mark}]}
    return made


@settings(max_examples=40)
@given(
    system=st.lists(MARKS, max_size=3),
    top=MARKS,
    first=MARKS,
    third_last=MARKS,
    last=MARKS,
)
def test_a_valid_request_stays_valid_and_its_cache_lives_as_long(
    tmp_path_factory, system, top, first, third_last, last
):
    blocks = [{"type": "text", "text": "You are an agent.", **({"cache_control": m} if m else {})} for m in system]
    history = make_session(40)
    messages = marked(history, {0: first, -3: third_last, -1: last})
    assume(refused(messages, blocks, top) == [])
    folder = tmp_path_factory.mktemp("marks")
    with Session("fix", store=folder / "s.db", clock=Clock(), planner="rules", model="claude-sonnet-5-5") as session:
        session.set_request(model="claude-sonnet-5-5", system=blocks, cache_control=top)
        session.prepare(history[:-2])
        assert session.compact(history[:-2]).applied
        sent = session.prepare(messages)
    assert refused(sent, blocks, top) == []
    lived = [mark.get("ttl") for mark in cache_marks(sent)]
    total = len(lived) + sum(map(bool, system)) + bool(top)
    if LONG in (first, third_last, last) and (total < 4 or LONG in (third_last, last)):
        assert "1h" in lived, "a cache of an hour stays one"
