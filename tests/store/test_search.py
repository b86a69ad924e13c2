"""Search by words: ranked by BM25, in any language, alike on every store."""

import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from math import isclose, log
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from applier.store import open_store
from applier.store.excerpt import find_matches
from applier.store.search import ranked
from planner.reading.messages import read_history

words = st.sampled_from(["zu", "yak", "xi", "wok", "vow"])  # their own stems
texts = st.lists(st.lists(words, max_size=12).map(" ".join), min_size=1, max_size=12)
unspaced = st.text(st.sampled_from("東京大阪城犬猫はがニホンกรุงเทพ한국어"), min_size=1, max_size=12)


def bm25(documents, terms):
    """Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, equations 3.3 and 3.15."""
    average = sum(map(len, documents)) / len(documents)
    rarity = {}
    for term in terms:
        holding = sum(term in document for document in documents)
        rarity[term] = max(log((len(documents) - holding + 0.5) / (holding + 0.5)), 1e-6)
    for document in documents:
        counts = Counter(document)
        norm = 1.2 * (1 - 0.75 + 0.75 * len(document) / average) if average else 0
        yield sum(rarity[term] * counts[term] * 2.2 / (counts[term] + norm) for term in terms if counts[term])


@given(texts=texts, terms=st.lists(words, min_size=1, unique=True))
def test_the_rank_is_bm25(texts, terms):
    scores = list(bm25([text.split() for text in texts], terms))
    found = ranked(texts, " ".join(terms))
    assert {at for at, _ in found} == {at for at, score in enumerate(scores) if score}
    assert all(isclose(score, scores[at], rel_tol=1e-6) for at, score in found)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


@given(text=unspaced, around=unspaced, data=st.data())
def test_what_is_written_without_spaces_is_found_by_any_part_of_it(text, around, data):
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : data.draw(st.integers(start + 1, len(text)))]
    assume(not set(part) & set(around))
    assert [at for at, _ in ranked([around, f"so {around}{text} it is", "else"], f"zebra {part}")] == [1]


@given(texts=st.lists(st.text(st.characters()), max_size=4), search=st.text(st.characters(), max_size=40))
@example(texts=["of no words"], search="***")
def test_whatever_is_asked_of_whatever_is_answered(texts, search):
    assert len({at for at, _ in ranked(texts, search)}) <= len(texts)
    history = read_history([{"role": "user", "content": text} for text in texts])
    assert find_matches(history, search).turns <= len(texts)


def test_a_word_is_found_in_its_other_forms_and_a_name_by_its_parts():
    texts = [
        "the hens were running",
        "drain_queue() of src/auth.ts",
        "café au lait",
        "नमस्ते दुनिया",
        "to drain, to queue",
    ]
    asked = ["hen runs", "queues drained", "auth, please", "some cafe", "दुनिया है", "drain_queue, please"]
    assert [ranked(texts, search)[0][0] for search in asked] == [0, 4, 1, 2, 3, 1]
    assert ranked(texts, '"queue drain" "hens were"') == ranked(texts, '"hens were"') != []


TURNS = [
    {"role": "user", "content": "Why does the token refresh fail at night?"},
    {"role": "assistant", "content": "The refresh token is read before the clock is set."},
    {"role": "user", "content": "大阪城はどこですか"},
    {"role": "assistant", "content": "Two clocks differ."},
]


def test_a_whole_question_finds_what_answers_it(store):
    key = store.save_history(read_history(TURNS))
    found = store.search("What did we learn about the refreshing of tokens?", key)
    assert [match.turn_id for match in found.matches][:2] == ["t2", "t1"]
    assert found.turns == 2
    assert store.search("城 zebra", key).matches[0].excerpt == "1: 大阪城はどこですか"


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=texts, terms=st.lists(words, min_size=2, unique=True))
def test_every_store_ranks_alike(store, texts, terms):
    key = store.save_history(read_history([{"role": "user", "content": text} for text in texts]))
    matches = store.search(" ".join([*terms, "zebra"]), key).matches
    assert [match.turn_id for match in matches] == [f"t{at + 1}" for at, _ in ranked(texts, " ".join(terms))]


def test_a_search_writes_nothing(sqlite_path):
    with open_store(sqlite_path) as store:
        key = store.save_history(read_history(TURNS))
        store.flush()
        before = sqlite_path.read_bytes()
        assert store.search("clock zebra", key).matches
        assert sqlite_path.read_bytes() == before


CONVERSATION = {
    "speaker_a": "Ann",
    "speaker_b": "Bob",
    "session_1_date_time": "1 May",
    "session_1": [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "I went to the lake."},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice!"},
    ],
    "qa": [
        {"question": "When did Ann go to lakes?", "evidence": ["D1:1"], "category": 4},
        {"question": "Where is zebra?", "evidence": ["D1:2"], "category": 4},
        {"question": "What was never said?", "evidence": ["D1:2"], "category": 5},
    ],
}


@pytest.mark.real
def test_the_measure_on_locomo_counts_questions_whose_evidence_is_among_the_best(tmp_path):
    with zipfile.ZipFile(tmp_path / "locomo.zip", "w") as archive:
        archive.writestr("1.json", json.dumps(CONVERSATION))
    command = [sys.executable, "-m", "tests.bench.locomo", str(tmp_path / "locomo.zip")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert re.search(r"all +2 questions  hit at 10 0\.500", done.stdout)
