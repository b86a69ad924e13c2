"""Pictures and bytes are budgets like tokens: no request has more than the provider accepts, and what the user showed
goes last."""

import base64
import json
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.session import Session
from applier.session.history_tracker import load_of
from applier.session.pressure import MediaLimits
from applier.testing import Request, judge
from planner.reading.messages import blocks, pictures_in, plain_message
from tests.session.agent import Clock

SMALL, LARGE = (64, 64), (2_400, 1_400)


def image(size, extra=0):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tEXt", b"c\0" + b"x" * extra) + chunk(b"IEND", b"")
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    return {"type": "image", "source": source}


def shown(*pictures, text="Make the page look like this. Never touch checkout.css."):
    return {"role": "user", "content": [{"type": "text", "text": text}, *pictures]}


def looked(number, *pictures):
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "screenshot", "input": {"page": number}}
    content = [{"type": "text", "text": f"page {number} of the shop"}, *pictures]
    answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]


def counted(messages):
    return sum(1 for message in messages for _ in pictures_in(blocks(plain_message(message))))


def refused(messages):
    body = {"model": "claude-sonnet-5-5", "max_tokens": 1_000, "messages": messages}
    return [str(found) for found in judge(Request(body=body, raw=json.dumps(body).encode(), headers={}))]


def opened(folder, **wishes):
    given_all = {"store": folder / "store.db", "clock": Clock(), "planner": "rules", "model": "claude-sonnet-5-5"}
    return Session("make the page look like the mock-up", **{**given_all, **wishes})


def test_a_large_picture_of_the_user_stays_and_old_screenshots_go(tmp_path):
    session, messages = opened(tmp_path), [shown(image(LARGE))]
    for number in range(30):
        messages += looked(number, image((800, 600)))
        sent = session.prepare(messages)
        assert refused(sent) == []
    assert messages[0]["content"][1] in blocks(plain_message(sent[0]))
    assert blocks(plain_message(sent[-1]))[0]["content"][1]["type"] == "image", "the newest is what the agent waits for"
    assert "page 0 of the shop" in str(sent)
    assert session.restore("t2").messages == tuple(messages[1:3])


@settings(max_examples=12)
@given(
    pictures=st.lists(st.sampled_from([SMALL, LARGE, (800, 600)]), min_size=1, max_size=3),
    turns=st.integers(2, 70),
    mockups=st.integers(0, 3),
    preset=st.sampled_from(["relevance", "codex", "s06"]),
)
def test_no_request_has_more_pictures_than_the_api_accepts(tmp_path_factory, pictures, turns, mockups, preset):
    session = opened(tmp_path_factory.mktemp("pictures"), preset=preset)
    messages = [shown(*(image(SMALL) for _ in range(mockups)))]
    for number in range(turns):
        messages += looked(number, *map(image, pictures))
        sent = session.prepare(messages)
        assert refused(sent) == []
        assert counted(sent[:1]) >= mockups or session.state.compactions
    assert not [event for event in session.log() if event.kind in ("tier_failed", "prepare_failed")]


def test_bytes_stay_within_a_body(tmp_path):
    session, messages = opened(tmp_path, window_tokens=1_000_000), [shown()]
    for number in range(50):
        messages += looked(number, image((800, 600), extra=700_000))
    sent = session.prepare(messages)
    assert len(json.dumps(sent)) < 32_000_000
    assert counted(sent) > 5
    assert blocks(plain_message(sent[-1]))[0]["content"][1]["type"] == "image"


@pytest.mark.parametrize(
    ("error", "most"),
    [
        ("messages: Too many images and document pages: 12 > 10", 10),
        ("request contains 12 images, exceeding the maximum of 8 allowed per request", 8),
        ("messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 9000 bytes > 20 bytes", 0),
        ("request_too_large: Request exceeds the maximum size", 11),
    ],
)
def test_a_refusal_for_pictures_is_recovered_from_and_remembered(tmp_path, error, most):
    session, messages = opened(tmp_path), [shown()]
    for number in range(12):
        messages += looked(number, image(SMALL))
    assert counted(session.prepare(messages)) == 12
    shorter = session.recover(messages, error)
    assert counted(shorter) <= most
    assert refused(shorter) == []
    assert counted(session.prepare(messages)) <= most
    assert session.state.limit_tokens > 150_000, "the window is as large as before"


def test_the_load_of_a_message_counts_pictures_pages_and_bytes():
    message = shown(image(SMALL), image(LARGE))
    load = load_of(message)
    assert (load.images, load.large) == (2, 1)
    assert load.size == len(json.dumps(message, ensure_ascii=False, separators=(",", ":")))
    assert MediaLimits().excess(load) < 1
