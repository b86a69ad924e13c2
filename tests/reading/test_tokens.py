"""Counting: never under the model's own count, the same with or without a vocabulary, and never over a network."""

import base64
import gzip
import hashlib
import importlib.util
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.session.session import Session
from applier.view import preview
from planner import CompactionPlan, PlanSettings, SettingsError, plan_compaction
from planner.reading.media import image_size, visible_pages
from planner.reading.tokens import MOST_REMEMBERED, O200K_URL, TokenCounter, estimate_tokens, load_vocabulary
from tests.conftest import NetworkTouched
from tests.strategies import LONG, POOL, histories, image, text, texts

CACHED_NAME = hashlib.sha1(O200K_URL.encode(), usedforsecurity=False).hexdigest()
HELLO = {"role": "user", "content": "hello"}


@dataclass
class Letters:
    """A vocabulary in which every character is a token; counts how often it is asked."""

    asked: list[str] = field(default_factory=list)

    def encode_ordinary(self, words):
        self.asked.append(words)
        return list(words)


def letters(scale=1.0):
    return TokenCounter(scale, Letters())


@pytest.fixture
def fresh_vocabulary():
    """Look for the vocabulary anew, and again afterwards."""
    load_vocabulary.cache_clear()
    yield
    load_vocabulary.cache_clear()


@pytest.fixture
def no_extra(monkeypatch, fresh_vocabulary, tmp_path):
    """A machine without the ``offline`` extra and with an empty cache folder, which it gives."""
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def bundled_ranks():
    """The vocabulary file as OpenAI publishes it, from the extra."""
    extra = importlib.util.find_spec("bpe_openai")
    return gzip.decompress((Path(extra.origin).parent / "data" / "o200k_base.tiktoken.gz").read_bytes())


RANKS = bundled_ranks()


# The vocabulary: where it comes from, and that nothing is ever fetched.


def test_without_any_vocabulary_counting_goes_on_by_shape(no_extra):
    counter = TokenCounter.for_model("claude-opus-5-5")
    assert counter.vocabulary is None
    assert counter.message(HELLO) > 0


def test_vocabulary_from_the_cache_folder(no_extra):
    (no_extra / CACHED_NAME).write_bytes(RANKS)
    assert len(load_vocabulary().encode_ordinary("hello world")) == 2


def test_vocabulary_from_the_extra(monkeypatch, fresh_vocabulary, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert len(load_vocabulary().encode_ordinary("hello world")) == 2


@pytest.mark.parametrize("damage", [lambda ranks: ranks[:-4000], lambda ranks: b"", lambda ranks: b"<html>503</html>"])
def test_damaged_cache_is_as_good_as_none(no_extra, damage):
    (no_extra / CACHED_NAME).write_bytes(damage(RANKS))
    assert load_vocabulary() is None


def test_damaged_cache_falls_back_to_the_extra(monkeypatch, fresh_vocabulary, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / CACHED_NAME).write_bytes(RANKS[:-4000])
    assert load_vocabulary() is not None


def test_the_guard_against_live_calls_stands():
    """What makes the tests above prove that nothing was fetched."""
    with pytest.raises(NetworkTouched):
        socket.create_connection(("openaipublic.blob.core.windows.net", 443), timeout=1)
    with socket.socket() as raw, pytest.raises(NetworkTouched):
        raw.connect(("192.0.2.1", 443))


# The estimate: without a vocabulary, rather over than under.


@given(texts(max_lines=4))
def test_estimate_of_any_text_is_never_far_under(words):
    assert estimate_tokens(words) >= 0.7 * len(load_vocabulary().encode_ordinary(words)) - 4


@given(histories())
def test_estimate_of_a_history_is_conservative(messages):
    counted, estimated = TokenCounter().messages(messages), TokenCounter(vocabulary=None).messages(messages)
    assert estimated >= 0.97 * counted - 4  # a few odd characters may come to more than their lengths tell


@pytest.mark.parametrize("words", sorted(set(POOL)))
def test_estimate_of_each_kind_of_line(words):
    many = f"{words}\n" * 20
    assert estimate_tokens(many) >= 0.75 * len(load_vocabulary().encode_ordinary(many))


@pytest.mark.real
def test_estimate_of_shared_transcripts_is_within_a_quarter(shared_transcripts):
    for name, transcript in shared_transcripts:
        messages = transcript["messages"][:20]
        true = TokenCounter(1.0).messages(messages)
        estimated = TokenCounter(1.0, vocabulary=None).messages(messages)
        assert 1.0 <= estimated / true <= 1.25, f"{name}: {estimated / true:.3f}"


def test_estimate_sees_through_encoded_data():
    packed = base64.b64encode(bytes((n * n * 31 + n) % 251 for n in range(30_000))).decode()
    assert estimate_tokens(packed) >= 0.95 * len(load_vocabulary().encode_ordinary(packed))


def test_characters_by_four_would_undercount_what_the_estimate_does_not():
    for words in (LONG[0], "文" * 400, "/srv/app/config/prod.yaml " * 20):
        assert estimate_tokens(words) > len(words) / 4


# Counting: by family, once each, everything in it.


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        ("", 1.6),
        ("claude-opus-4-7", 1.6),
        ("claude-sonnet-5-5", 1.6),
        ("who-knows", 1.6),
        ("claude-opus-4-6", 1.27),
        ("claude-sonnet-4-20250514", 1.27),
        ("claude-3-5-haiku-20241022", 1.27),
        ("gpt-5", 1.0),
        ("openai/o3", 1.0),
    ],
)
def test_scale_of_a_family(model, scale):
    assert TokenCounter.for_model(model).scale == scale


@pytest.fixture(scope="module")
def lettered():
    """A model of whose tokens each is a character."""
    TokenCounter.register("letters", len)
    return "letters"


@given(histories(max_turns=6), st.sampled_from([0.3, 0.6]))
def test_a_registered_tokenizer_counts_for_its_model_wherever_something_is_counted(lettered, messages, ratio):
    counter = TokenCounter.for_model(lettered)
    assert all(counter.text(words) == len(words) for message in messages for words in [str(message["content"])])
    own = PlanSettings(target_model=lettered)
    plan = plan_compaction(messages, "go on", planner="rules", target_ratio=ratio, settings=own, now=0.0)
    assert plan.history.tokens == counter.messages(messages)
    read = preview(CompactionPlan.from_json(plan.to_json()), messages)
    assert read.tokens_after == plan.estimated_tokens == counter.messages(read.messages)
    assert read.tokens_before == plan.history.tokens


def test_a_session_counts_with_the_tokenizer_of_its_model(lettered, tmp_path):
    with Session("task", model=lettered, planner="rules", store=tmp_path / "store.db", window_tokens=50_000) as session:
        session.prepare([{"role": "user", "content": "word " * 4_000}])
        assert 20_000 <= session.state.tokens < 21_000
        session.prepare([{"role": "user", "content": "word " * 12_000}])
        assert session.state.tokens < 50_000


@pytest.mark.parametrize("tokenizer", [str.split, lambda text: -1, lambda text: 1.5, None, "o200k"])
def test_what_is_no_tokenizer_is_refused(tokenizer):
    with pytest.raises(SettingsError, match="tokenizer of 'other': expected a function that returns the number of"):
        TokenCounter.register("other", tokenizer)
    assert TokenCounter.for_model("other").tokenizer is None


@given(histories(max_turns=6))
def test_a_message_costs_at_least_its_text_and_a_list_the_sum_of_it(messages):
    counter = TokenCounter()
    assert counter.messages(messages) == sum(counter.message(message) for message in messages)
    for message in messages:
        words = message["content"] if isinstance(message["content"], str) else ""
        assert counter.message(message) >= counter.text(words)


def test_each_text_is_counted_once():
    counter = letters()
    for _ in range(3):
        counter.messages([HELLO, {"role": "assistant", "content": [text("hello"), text("ok")]}])
    assert counter.vocabulary.asked == ["hello", "ok"]


@given(st.lists(texts() | st.sampled_from(["\r\n", "\n", "\v", "\u2028", "word " * 1_000]), max_size=10))
def test_a_text_of_any_length_is_counted_by_its_lines(parts):
    counter, words = letters(), "".join(parts)
    assert counter.raw(words) == len(words)
    lines = words.splitlines(keepends=True) if "\n" in words else [words]
    assert set(counter.vocabulary.asked) == set(lines)


def test_counts_are_remembered_as_far_as_there_is_room():
    counter, lines = letters(), [f"{number}\n" for number in range(MOST_REMEMBERED + 100)]
    assert counter.raw("".join(lines)) == len("".join(lines))
    assert counter.vocabulary.asked == lines
    counter.raw("".join(lines[-40:]))
    assert counter.vocabulary.asked == lines
    counter.raw(lines[0])
    assert counter.vocabulary.asked == [*lines, lines[0]]


def test_system_and_tools_count():
    counter, tools = letters(), [{"name": "Read", "input_schema": {"type": "object"}}]
    alone = counter.request([HELLO])
    assert alone == counter.messages([HELLO])
    assert counter.request([HELLO], "be brief") == alone + len("be brief")
    assert counter.request([HELLO], [text("be brief")]) >= alone + len("be brief")
    assert counter.request([HELLO], tools=tools) >= alone + len("Read") + len("input_schema")


def test_nested_results_count_all_they_hold():
    counter, words = letters(), "x" * 100
    search = {"type": "search_result", "source": "https://x.org", "title": "T", "content": [text(words)]}
    paper = {"type": "document", "source": {"type": "content", "content": [text(words)]}}
    for inner in (text(words), search, paper):
        result = {"type": "tool_result", "tool_use_id": "a", "content": [inner, image(750, 1)]}
        assert counter.block(result) >= 100 + 1
    assert counter.block({"type": "tool_result", "tool_use_id": "a"}) > 0


def test_calls_count_name_and_input():
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "y" * 50}}
    assert letters().block(call) >= 50 + len("Bash")
    assert letters().block({"type": "block_of_next_year", "payload": "z" * 50}) >= 50


def test_images_cost_by_size_up_to_the_most_a_family_takes():
    current, older = TokenCounter.for_model("claude-opus-5-5"), TokenCounter.for_model("claude-sonnet-4-5")
    assert current.block(image(750, 100)) == 100
    assert current.block(image(1500, 1500)) == 3000
    assert older.block(image(1500, 1500)) == 1600
    unknown = {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}}
    assert (current.block(unknown), older.block(unknown)) == (4784, 1600)


@pytest.mark.parametrize("data", ["", "AAAA", "not base64!", "é", "iVBORw0KGgo=", "/9j/4AAQSkZJRg==", "R0lGODlh"])
def test_image_of_no_readable_size_costs_the_most(data):
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    assert image_size(block) is None
    assert TokenCounter().block(block) == 4784


def test_a_gif_has_a_size():
    gif = base64.b64encode(b"GIF89a" + (300).to_bytes(2, "little") + (20).to_bytes(2, "little") + b"\0" * 20).decode()
    assert image_size({"type": "image", "source": {"type": "base64", "data": gif}}) == (300, 20)


def test_documents_cost_by_page_or_by_text():
    counter = letters()
    pdf = base64.b64encode(b"%PDF-1.4 /Type /Pages " + b"/Type /Page\n" * 3).decode()
    paper = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}
    assert visible_pages(paper) == 3
    assert counter.block(paper) >= 3 * 3000
    sealed = {"type": "document", "source": {"type": "base64", "data": "A" * 400_000}}
    assert counter.block(sealed) >= 6 * 3000
    assert counter.block({"type": "document", "source": {"type": "text", "data": "x" * 70}}) >= 70
    assert counter.block({"type": "document", "source": {"type": "file", "file_id": "f"}}) >= 3000


def test_sealed_reasoning_counts_by_its_seal():
    hidden = {"type": "thinking", "thinking": "", "signature": "A" * 5000}
    assert letters().block(hidden) >= 1000
    assert letters().block({"type": "redacted_thinking", "data": "A" * 5000}) >= 1000
    assert letters().block({"type": "thinking", "thinking": "h" * 80, "signature": "A"}) >= 80


@given(texts(surrogates=True))
def test_lone_surrogates_count(words):
    assert TokenCounter().text(words) >= TokenCounter(vocabulary=None, scale=0.1).text("x")


@pytest.mark.parametrize(
    "unit", [" ", "文", "word ", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("\n", "a", "="))]
)
def test_megabytes_of_anything_count(unit):
    """tiktoken's own splitter panics on a megabyte of blanks."""
    words = unit * (1_200_000 // len(unit))
    counted = TokenCounter(1.0).raw(words)
    assert 0 < counted <= len(words)
    assert TokenCounter(1.0, vocabulary=None).raw(words) >= 0.8 * counted
