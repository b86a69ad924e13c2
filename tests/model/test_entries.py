"""The short answer forms: what is written is what is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.entries import FactEntry, TurnEntry, read_entry, read_fact

TURN = st.integers(1, 9_999)
RANGES = st.lists(st.tuples(st.integers(1, 999), st.integers(1, 999)), max_size=4).map(tuple)
WORDS = st.from_regex(r"[A-Za-z`'/._:()]{1,8}( [\w|,.-]{1,8}){0,5}", fullmatch=True)


def written_ranges(ranges, mark=""):
    return ",".join(f"{mark}{low}" if low == high else f"{mark}{low}-{mark}{high}" for low, high in ranges)


STRATEGIES = st.sampled_from(["keep", "summarize", "reference", "drop"])


@given(
    st.lists(st.tuples(TURN, TURN), min_size=1, max_size=3), STRATEGIES, st.integers(0, 9), st.booleans(), RANGES, WORDS
)
def test_an_entry_is_read_as_it_was_written(runs, strategy, score, failed, ranges, words):
    parts = [written_ranges(runs, "t"), strategy, str(score), *(["failed"] if failed else []), written_ranges(ranges)]
    entry = read_entry(f"{' '.join(parts).rstrip()} | {words}")
    strategy = "summarize" if ranges else strategy
    assert entry == TurnEntry(tuple(runs), strategy, score, failed, ranges, words.strip())


@given(st.sampled_from(["decision", "error", "constraint"]), TURN, RANGES, WORDS.filter(lambda w: "|" not in w))
def test_a_fact_is_read_as_it_was_written(kind, turn, ranges, words):
    fact = read_fact(f"{kind} t{turn} {written_ranges(ranges)} | {words} | “as they said”")
    assert fact == FactEntry(kind, turn, ranges, words.strip(), "as they said")


@pytest.mark.parametrize(
    ("form", "runs", "score", "lines"),
    [
        ("t4-9 drop 0", ((4, 9),), 0, ()),
        ("t4 – t9 drop 0", ((4, 9),), 0, ()),
        ("t4 - t9, t12 drop 0", ((4, 9), (12, 12)), 0, ()),
        ("- t9: summarise 6 lines 3 - 7, 12", ((9, 9),), 6, ((3, 7), (12, 12))),
        ("t9 summarize 6 3-7 failed | stuck", ((9, 9),), 6, ((3, 7),)),
        ("t9 keep 5 12-19", ((9, 9),), 5, ((12, 19),)),
        ("t9 keep 10", ((9, 9),), 9, ()),
        ("t9 keep 0.9", ((9, 9),), 8, ()),
        ("t9 keep", ((9, 9),), 7, ()),
        ("t9 keep failed", ((9, 9),), 7, ()),
        ("t9 delete 3", None, None, None),
        ("turn 9 keep 3", None, None, None),
        ("t99999999 keep 3", None, None, None),
        ("t9 keep 3 " + "9" * 5_000, ((9, 9),), 3, ()),
        ("", None, None, None),
    ],
)
def test_near_forms_are_read_and_others_are_not(form, runs, score, lines):
    entry = read_entry(form)
    assert ((entry.runs, entry.score, entry.lines) if entry else (None, None, None)) == (runs, score, lines)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_without_an_error(text):
    read_entry(text)
    read_fact(text)


@pytest.mark.parametrize("text", [" " * 200_000, "t" * 200_000, "t1," * 70_000, "error t1 | " + " |" * 100_000])
def test_long_forms_take_no_longer_than_their_length(text):
    """Each took minutes by a regular expression with three open ends; reading word by word is linear."""
    read_entry(text)
    read_fact(text)
