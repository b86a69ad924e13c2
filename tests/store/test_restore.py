"""Whole turns, ranges, searches; and what a wrong reference is told."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.store.excerpt import matching_lines, numbered, range_of
from planner.errors import ReferenceNotFound, StoreError
from planner.reading.history import read_history
from planner.reading.lines import WRAP_CHARACTERS, join_lines, turn_lines
from tests.strategies import histories, make_session

SAME_START = ("n21757", "n33560")
"""Two messages whose histories have digests with the same first eight digits (found by trying)."""


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def saved(store):
    return store.save_history(read_history(make_session(9)))


def test_a_range_is_the_exact_text_of_its_lines(store, saved):
    whole = store.restore(f"{saved}:t2").text.split("\n")
    assert store.restore(f"{saved}:t2", lines=(3, 5)).text.split("\n") == whole[2:5]
    assert store.restore(f"{saved}:t2", lines=(-4, 9999)).text.split("\n") == whole
    assert store.restore(f"{saved}:t2", lines=(3, 5)).messages == store.restore(f"{saved}:t2").messages


@pytest.mark.parametrize("lines", [(5, 3), (900, 901), (0, 0)])
def test_lines_that_are_not_there_are_told(store, saved, lines):
    with pytest.raises(ReferenceNotFound, match=r"t2: no lines .* its lines: 1 to \d+"):
        store.restore(f"{saved}:t2", lines=lines)


def test_a_search_gives_numbered_lines_with_two_around_each(store):
    key = store.save_history(read_history([user("one\ntwo\nthree\nFOUR\nfive\nsix\nseven\n8\n9\nten, four")]))
    found = store.restore(f"{key}:t1", search="four")
    assert found.matches == (4, 10)
    assert found.text == "2- two\n3- three\n4: FOUR\n5- five\n6- six\n…\n8- 8\n9- 9\n10: ten, four"
    assert store.restore(f"{key}:t1", lines=(5, 10), search="four").matches == (10,)
    assert store.restore(f"{key}:t1", search="^s.+n$").matches == (7,)
    assert store.restore(f"{key}:t1", search="[nothing").text == ""


def test_a_search_finds_what_wrapping_or_a_line_break_cuts(store):
    key = store.save_history(read_history([user("x" * (WRAP_CHARACTERS - 3) + "needle in hay\nlast")]))
    assert store.restore(f"{key}:t1", search="needle in").matches == (1, 2)
    assert store.restore(f"{key}:t1", search="hay\nla").matches == (2, 3)


def test_text_is_found_as_it_stands_before_it_is_read_as_a_pattern(store):
    key = store.save_history(read_history([user("f(x)\nfx\na.b\naxb")]))
    assert store.restore(f"{key}:t1", search="f(x)").matches == (1,)
    assert store.restore(f"{key}:t1", search="A.B").matches == (3,)


def test_a_pattern_that_never_ends_is_stopped():
    history = read_history([user("a" * 5000)])
    with pytest.raises(StoreError, match="takes too long; use a simpler one"):
        matching_lines(turn_lines(history, history.turns[0]), "((a+)+)+$(?<=b)")


def test_a_history_is_searched_turn_by_turn(store, saved):
    found = store.search("timeouterror", saved)
    history = store.load_history(saved)
    holding = [turn.id for turn in history.turns if "TimeoutError" in join_lines(turn_lines(history, turn))]
    assert [match.turn_id for match in found] == holding != []
    for match in found:
        restored = store.restore(f"{saved}:{match.turn_id}", search="timeouterror")
        assert (match.lines, match.excerpt) == (restored.matches, restored.text)
    assert store.search("no such words", saved) == store.search("", saved) == []


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=histories(max_turns=4), data=st.data())
def test_what_stands_in_a_turn_is_found_there(messages, data):
    history = read_history(messages)
    lines = turn_lines(history, data.draw(st.sampled_from(history.turns)))
    text = join_lines(lines)
    if not text:
        return
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : start + data.draw(st.integers(1, 200))]
    hits = matching_lines(lines, part)
    assert part.lower().rstrip("\n") in join_lines(range_of(lines, (hits[0], hits[-1]), "t1")).lower()
    assert f"{hits[0]}: {lines[hits[0] - 1].text}" in numbered(lines, hits)


def test_a_bare_turn_is_enough_where_there_is_one_conversation(store):
    messages = make_session(9)
    for n in (3, 7, len(messages)):
        key = store.save_history(read_history(messages[:n]))
    assert store.restore("t5").reference == f"{key}:t5"
    store.save_history(read_history([user("another")]))
    with pytest.raises(ReferenceNotFound, match=r"more than one history; say which: h.*:t5, h"):
        store.restore("t5")


def test_a_short_key_of_two_histories_asks_for_more_characters(store):
    digests = []
    for text in SAME_START:
        history = read_history([user(text)])
        assert store.save_history(history) == "hf449670a"
        digests.append("h" + history.digest.removeprefix("sha256:"))
    with pytest.raises(ReferenceNotFound, match="use more characters: ") as raised:
        store.restore("hf449670a:t1")
    longer = str(raised.value).split(": ")[1].split(", ")
    texts = {store.restore(f"{key}:t1").text for key in (*longer, *digests)}
    assert texts == set(SAME_START)


def test_the_error_says_what_there_is(store, saved):
    with pytest.raises(ReferenceNotFound, match=f"no turn t40 in history {saved}; its turns are t1 to t9"):
        store.restore(f"{saved}:t40")
    with pytest.raises(ReferenceNotFound, match=f"no history h00000000 in this store; it has {saved}"):
        store.restore("h00000000:t1")
    with pytest.raises(ReferenceNotFound, match=f"it has {saved}"):
        store.load_history(saved[:-1] + ("0" if saved[-1] != "0" else "1"))


def test_an_empty_store_says_so(store):
    for name in ("t1", "h00000000:t1"):
        with pytest.raises(ReferenceNotFound, match="is empty"):
            store.restore(name)


@pytest.mark.parametrize("name", ["", "x", "t0", "h12:t1", "hXYZ:t1", "t1:h1a2b3c4d", "h1a2b3c4d:t1-t3", "h1a2b3c4d"])
def test_what_is_no_reference_is_told_how_one_looks(store, name):
    with pytest.raises(ReferenceNotFound, match="expected one like h1a2b3c4d"):
        store.restore(name)


def test_a_history_of_no_messages_is_kept_too(store):
    key = store.save_history(read_history([]))
    assert store.load_history(key).messages == ()
    with pytest.raises(ReferenceNotFound, match=r"no turn t1 in history .*; it is empty"):
        store.restore(f"{key}:t1")
    store.save_history(read_history([user("a")]))
    assert store.restore("t1").text == "a"
