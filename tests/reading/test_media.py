"""Media are counted by their size, wherever JSON data holds them, and never as the text of their base64."""

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placeholders import media_mark
from planner.reading.tokens import TokenCounter

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (1200).to_bytes(4, "big") + (800).to_bytes(4, "big") + b"\x08\x02\0\0\0"


def encoded(head, size=900_000):
    return base64.b64encode(head + os.urandom(size)).decode()


IMAGE, PDF, SOUND = encoded(PNG), encoded(b"%PDF-1.4 " + b"/Type /Page\n" * 3), encoded(b"RIFF")
SOURCE = {"type": "base64", "media_type": "image/png", "data": IMAGE}
SHEET = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}
HOLDERS = [
    lambda data, media: {"type": "input_file", "filename": "a", "file_data": f"data:{media};base64,{data}"},
    lambda data, media: {"type": "item", "item": {"type": "custom_call", "result": data, "media_type": media}},
    lambda data, media: {"type": "opaque", "part": {"kind": "binary", "media_type": media, "data": data}},
    lambda data, media: {"type": "item", "item": {"output": f'[{{"mimeType": "{media}", "data": "{data}"}}]'}},
    lambda data, media: {"type": "mcp_tool_result", "content": [{"type": media, media: {"data": data}}]},
]
MEDIA = {
    "image/png": (IMAGE, 1280),
    "application/pdf": (PDF, 9000),
    "audio/wav": (SOUND, 3001),
    "video/mp4": (SOUND, 3001),
}


@pytest.mark.parametrize("media", MEDIA)
@given(holder=st.sampled_from(HOLDERS), depth=st.integers(0, 3))
def test_a_medium_costs_its_size_whoever_holds_it(media, holder, depth):
    data, tokens = MEDIA[media]
    block = holder(data, media)
    for _ in range(depth):
        block = {"type": "holder", "content": [block]}
    assert tokens <= TokenCounter().block(block) <= tokens + 150


def test_blocks_of_media_cost_the_same_inside_every_result():
    counter = TokenCounter()
    image, document = counter.block({"type": "image", "source": SOURCE}), counter.block(SHEET)
    fetched = {"type": "web_fetch_result", "url": "https://x.org/a.pdf", "content": SHEET}
    for kind, content, tokens in [
        ("mcp_tool_result", [{"type": "image", "source": SOURCE}], image),
        ("web_fetch_tool_result", fetched, document),
        ("tool_result", [SHEET], document),
    ]:
        assert tokens <= counter.block({"type": kind, "tool_use_id": "a", "content": content}) <= tokens + 60


def test_encrypted_text_counts_as_the_text_it_holds():
    found = [{"type": "web_search_result", "url": "https://x.org", "encrypted_content": "E" * 40_000}]
    block = {"type": "web_search_tool_result", "tool_use_id": "a", "content": found}
    assert 8_000 <= TokenCounter().block(block) <= 8_100


@given(st.text(alphabet="abc/+=-_ .\n", min_size=1, max_size=300))
def test_base64_in_what_a_person_or_a_tool_wrote_is_text(words):
    long = words + "QUJD" * 300
    counter = TokenCounter()
    for block in ({"type": "text", "text": long}, {"type": "tool_result", "tool_use_id": "a", "content": long}):
        assert counter.block(block) >= counter.text(long)


def test_each_medium_has_a_mark():
    assert media_mark({"type": "image", "source": SOURCE}) == "[image 1200x800]"
    assert media_mark({**SHEET, "title": "contract.pdf"}) == "[document contract.pdf]"
    assert media_mark({"type": "input_audio", "input_audio": {"data": SOUND}}) == "[audio]"
    assert media_mark({"type": "video_url", "video_url": {"url": "https://x.org/a"}}) == "[video]"
    assert media_mark({"type": "file", "file": {"file_id": "f1"}}) == "[file f1]"
    assert media_mark({"type": "text", "text": "a video"}) == ""
