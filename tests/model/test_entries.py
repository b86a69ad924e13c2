"""The short answer forms: what is written is what is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.entries import FactEntry, TurnEntry, read_entry, read_fact

TURN = st.integers(1, 9_999)
RANGES = st.lists(st.tuples(st.integers(1, 999), st.integers(1, 999)), max_size=4).map(tuple)
WORDS = st.from_regex(r"[A-Za-z`'/._:()]{1,8}( [\w|,.-]{1,8}){0,5}", fullmatch=True)


def written_ranges(ranges):
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


STRATEGIES = st.sampled_from(["keep", "summarize", "reference", "drop"])


@given(TURN, TURN, STRATEGIES, st.integers(0, 9), st.booleans(), RANGES, WORDS)
def test_an_entry_is_read_as_it_was_written(first, last, strategy, score, failed, ranges, words):
    turns = f"t{first}" if first == last else f"t{first}-t{last}"
    parts = [turns, strategy, str(score), *(["failed"] if failed else []), written_ranges(ranges)]
    entry = read_entry(f"{' '.join(parts).rstrip()} | {words}")
    assert entry == TurnEntry(first, last, "summarize" if ranges else strategy, score, failed, ranges, words.strip())


@given(st.sampled_from(["decision", "error", "constraint"]), TURN, RANGES, WORDS.filter(lambda w: "|" not in w))
def test_a_fact_is_read_as_it_was_written(kind, turn, ranges, words):
    fact = read_fact(f"{kind} t{turn} {written_ranges(ranges)} | {words} | “as they said”")
    assert fact == FactEntry(kind, turn, ranges, words.strip(), "as they said")


@pytest.mark.parametrize(
    ("form", "first", "last", "lines"),
    [
        ("t4-9 drop 0", 4, 9, ()),
        ("t4 – t9 drop 0", None, None, None),
        ("t4 - t9 drop 0", 4, 9, ()),
        ("t9 summarise 6 lines 3 - 7, 12", 9, 9, ((3, 7), (12, 12))),
        ("t9 summarize 6 3-7 failed | stuck", 9, 9, ((3, 7),)),
        ("t9 keep 5 12-19", 9, 9, ((12, 19),)),
        ("t9 keep 10", None, None, None),
        ("t9 keep 0.9", None, None, None),
        ("t9 delete 3", None, None, None),
        ("turn 9 keep 3", None, None, None),
        ("", None, None, None),
    ],
)
def test_near_forms_are_read_and_others_are_not(form, first, last, lines):
    entry = read_entry(form)
    found = (entry.first, entry.last, entry.lines) if entry else (None, None, None)
    assert found == (first, last, lines)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_without_an_error(text):
    read_entry(text)
    read_fact(text)
