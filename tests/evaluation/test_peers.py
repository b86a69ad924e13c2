"""Other people's packages as methods: run for real, when they are there."""

import importlib.util
import sys

import pytest

from applier.eval.survival import message_tokens
from planner.errors import SettingsError
from planner.validity import check_messages
from tests.bench.peers import PEERS
from tests.evaluation.work import TASK
from tests.strategies import make_session

PACKAGES = {"trim_messages": "langchain_core", "clear_tool_uses": "langchain", "headroom": "headroom"}


@pytest.fixture(params=PEERS)
def peer(request):
    if importlib.util.find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"{PACKAGES[request.param]} is not installed")
    return PEERS[request.param]


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.9])
def test_peers_give_back_messages_with_their_pairs(peer, ratio):
    messages = make_session(40)
    result = peer(messages, TASK, int(ratio * message_tokens(messages)))
    assert message_tokens(result) <= message_tokens(messages)
    assert not [violation for violation in check_messages(result) if violation.refused and violation.rule <= 2]


def test_newest_messages_stay_the_same_objects():
    pytest.importorskip("langchain_core")
    messages = make_session(30)
    result = PEERS["trim_messages"](messages, TASK, message_tokens(messages) // 3)
    assert result
    assert all(kept is messages[-len(result) + place] for place, kept in enumerate(result))


def test_a_missing_package_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "headroom", None)
    with pytest.raises(SettingsError, match=r"pip install '\.\[bench\]'"):
        PEERS["headroom"]([], TASK, 10)
