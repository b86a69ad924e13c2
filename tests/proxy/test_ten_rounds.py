"""Ten compactions of one conversation behind the proxy: what stood in the first view stands in the last."""

import pytest

from applier.testing import MessagesServer
from tests import http_client
from tests.strategies import make_session
from tests.viewed import said

MODEL = "claude-opus-5-5"
ROUNDS = 10


@pytest.mark.slow
def test_ten_rounds_through_the_proxy_keep_demands_and_failures(proxied):
    """The client sends its whole history each time; at each twelfth the proxy is started anew on its store."""
    history, views = make_session(110), []
    with MessagesServer("ok") as server:
        proxy = proxied(server, session={"window_tokens": 5_000, "planner": "rules"})
        for end in range(1, len(history) + 1, 2):
            if len(views) % 12 == 11:
                proxy.__exit__(None, None, None)
                proxy = proxied(server, session={"window_tokens": 5_000, "planner": "rules"})
            body = {"model": MODEL, "max_tokens": 9, "messages": history[:end]}
            answer = http_client.post(f"{proxy.url}/v1/messages", json=body, headers={"x-api-key": "k"})
            assert answer.status_code == 200
            views.append(server.exchanges[-1].request.body["messages"])
        assert server.violations == []
    compacted = [view for view in views if "<compacted history=" in said(view)]
    heads = {said(view[:2]).partition("</compacted>")[0] for view in compacted}
    assert len(heads) >= ROUNDS
    for view in compacted:
        assert "please no Bun-only APIs" in said(view)
        assert "TimeoutError: 3 s" in said(view)
        assert said(view).count("<compacted history=") == 1
