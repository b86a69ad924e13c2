"""Facts of a whole store are found by their words as if all were read, and what is forgotten leaves every index."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.store import open_store
from applier.store.listing import known_facts
from applier.store.records import read
from applier.store.search import FactIndex, asked_terms, ranked
from planner.plan import ExtractedFact
from planner.reading.messages import read_history

WORD = "zyxwvutsrqpon"

texts = st.lists(st.sampled_from(["hen", "fox", "queue", "drain", "src/a.py", "大阪城"]), min_size=1, max_size=6)


def save(store, number, *contents, kind="decision", time=1.0):
    key = store.save_history(read_history([{"role": "user", "content": f"Work on number {number}, please."}]))
    facts = [ExtractedFact(type=kind, content=content, source="t1", timestamp=time) for content in contents]
    store.save_facts(facts, key)
    return key


def index_of(backend, **limits):
    index = FactIndex(backend)
    for name, limit in limits.items():
        setattr(index, name, limit)
    return index


def found(store, index, words, **asked):
    """The contents of what `index` finds."""
    keys = [key for some in index.keys(words, **asked) for key in some]
    with store.backend.transaction():
        return [json.loads(content)["content"] for content in read(store.backend, keys).values()]


def stored_parts(store):
    with store.backend.transaction():
        return store.backend.keys("index/")


@settings(max_examples=20, deadline=None)
@given(
    batches=st.lists(st.lists(texts, min_size=1, max_size=4), min_size=1, max_size=4),
    words=st.lists(
        st.sampled_from(["hens", "fox", "queue", '"queue drain"', "src/a.py", "大阪"]), min_size=1, max_size=3
    ),
    most_recent=st.integers(0, 8),
    first=st.integers(1, 8),
)
def test_a_table_that_is_kept_ranks_like_one_of_all_facts_whoever_asks_when(batches, words, most_recent, first):
    every, errors = [], []
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        kept = index_of(store.backend, most_recent=most_recent)
        for number, batch in enumerate(batches):
            contents = [f"{' '.join(text)} n{number}x{at}" for at, text in enumerate(batch)]
            key = save(store, number, *contents, kind=("decision", "error")[number % 2])
            every += contents
            errors += contents if number % 2 else []
            best = [every[at] for at, _ in ranked(every, " ".join(words))]
            for index in (
                kept,
                index_of(store.backend, most_recent=most_recent, first=first),
                FactIndex(store.backend),
            ):
                for asked, wanted in (({}, every), ({"kind": "error"}, errors), ({"histories": {key}}, contents)):
                    assert found(store, index, " ".join(words), **asked) == [one for one in best if one in wanted]
                    assert found(store, index, "", **asked) == wanted[::-1]
        assert bool(stored_parts(store)) == (len(every) > most_recent)


def test_what_is_forgotten_leaves_the_table_that_is_stored_and_those_of_other_processes(tmp_path):
    place = tmp_path / "store.db"
    with open_store(place) as store, open_store(place) as other:
        gone, _ = save(store, 1, f"the {WORD} is forgotten"), save(store, 2, "the hen stays")
        for index in (index_of(store.backend, most_recent=1), there := index_of(other.backend, most_recent=1)):
            assert found(store, index, WORD) == [f"the {WORD} is forgotten"]
        reading = FactIndex(other.backend)  # which never stores its table
        assert len(found(other, reading, "the")) == 2
        assert stored_parts(store)
        assert WORD.encode() in b"".join(path.read_bytes() for path in tmp_path.iterdir())
        store.forget(gone)
        assert stored_parts(store) == []
        assert WORD.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for index in (there, reading, index_of(store.backend, most_recent=1)):
            assert found(store, index, WORD) == []
            assert found(store, index, "the") == ["the hen stays"]
        assert WORD.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("was_stored", [False, True])
def test_a_table_that_was_read_before_something_was_forgotten_is_not_stored(tmp_path, was_stored):
    with open_store(tmp_path / "store.db") as store:
        gone, _ = save(store, 1, f"the {WORD} is forgotten"), save(store, 2, "the hen stays")
        if was_stored:
            list(index_of(store.backend, most_recent=0).keys("hen"))
            save(store, 3, "the fox is new")
        index = FactIndex(store.backend)
        list(index.keys("hen"))
        parts = stored_parts(store)
        store.forget(gone)
        index._store_table(parts)
        assert stored_parts(store) == []


def test_a_damaged_table_is_made_anew(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        save(store, 1, "the hen stays")
        list(index_of(store.backend, most_recent=0).keys("hen"))
        (part,) = stored_parts(store)
        with store.backend.transaction(write=True):
            store.backend.remove([part])
            store.backend.add({part: b"noise"})
        assert found(store, index_of(store.backend, most_recent=0), "hens") == ["the hen stays"]
        assert stored_parts(store) != [part]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(texts, min_size=1, max_size=8),
    st.lists(st.sampled_from(["hens", "fox", "queue", "src/a.py", "大阪"]), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_where_other_words_find_enough_common_ones_find_nothing_of_the_first_and_all_of_it_then(
    contents, words, first, common
):
    every = [f"{' '.join(text)} n{at}" for at, text in enumerate(contents)]
    best = [every[at] for at, _ in ranked(every, " ".join(words))]
    terms = asked_terms(" ".join(words)).split(" OR ")
    seldom = [term for term in terms if len(ranked(every, term)) <= common]
    found_so = {every[at] for term in seldom for at, _ in ranked(every, term)}
    if len(found_so) >= first and len(seldom) < len(terms):
        firsts = [one for one in best if one in found_so][:first]
        best = [*firsts, *(one for one in best if one not in firsts)]
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        save(store, 0, *every)
        assert found(store, index_of(store.backend, first=first, common=common), " ".join(words)) == best


def test_facts_are_chosen_by_type_time_and_project_and_told_once_a_folder(store):
    for number, folder in enumerate(("/code/app", "/code/app/web", "/code/other", "")):
        key = save(store, number, "the hen stays", f"hen number {number}", time=float(number))
        save(store, number, "a hen failed", kind="error", time=float(number))
        store.note_origin(key, folder, 1.0)
    own = known_facts(store, project="/code/app", words="hens")
    assert sorted((one.folder, one.fact.content) for one in own if one.fact.type == "decision") == [
        ("/code/app", "hen number 0"),
        ("/code/app", "the hen stays"),
        ("/code/app/web", "hen number 1"),
        ("/code/app/web", "the hen stays"),
    ]
    assert {one.fact.type for one in known_facts(store, kind="error")} == {"error"}
    assert {one.fact.timestamp for one in known_facts(store, since=2.0, words="hen")} == {2.0, 3.0}
    assert next(one.fact.content for one in known_facts(store, words="number")) == "hen number 3"
    assert known_facts(store, project="/code/none", words="hen") == []
    save(store, 9, "the hen stays")  # of an unknown folder, again
    assert len([one for one in known_facts(store, words="stays") if not one.folder]) == 1


def test_a_search_waits_for_no_table_where_many_facts_were_saved(store, monkeypatch):
    """The table is stored while facts are saved; who asks first reads the newest ones only."""
    monkeypatch.setattr("applier.store.records.MOST_RECENT", 40)
    monkeypatch.setattr(FactIndex, "most_recent", 40)
    for number in range(13):
        save(store, number, *(f"the hen {number} of {at}" for at in range(10)))
    with store.backend.transaction():
        assert len(store.backend.keys("recent/")) <= 40
    assert stored_parts(store)
    assert len(found(store, index_of(store.backend), "hen")) == 130
    store.forget(store.histories()[0].key)
    assert len(found(store, index_of(store.backend), "hen")) == 120
