"""An answer's forms, and what of it can be used: every mistake is named, and what stands beside it survives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.answer import FactEntry, PlanAnswer, Scope, TurnEntry, answer_in, read_answer, read_entry, read_fact
from tests.model.sample import SAMPLE, plan_request
from tests.strategies import histories, texts

SCOPE = Scope(list(plan_request(SAMPLE).evidence.turns.values()))


def reading(*turns, facts=(), scope=SCOPE):
    return read_answer(PlanAnswer(turns=list(turns), facts=list(facts)), scope, 5.0)


def test_a_right_answer_is_taken_as_it_is():
    found = reading(
        "t5 summarize 6 failed 3-4 | the lock deadlocks",
        "t1 keep 9",
        facts=("constraint t1 2 | the old queue is frozen", "decision t7 | use a sentinel"),
    )
    assert found.problems == []
    assert found.turns["t5"].excerpts == ((3, 4),)
    assert found.turns["t5"].failed_approach
    assert found.turns["t5"].summary == "the lock deadlocks"
    assert found.turns["t1"].score == 1.0
    assert "t3" not in found.turns, "its best lines fill what is left"
    assert found.facts[0].quote == "Never touch legacy/queue_v1.py, it is frozen."
    assert (found.facts[1].source, found.facts[1].timestamp) == ("t7", 5.0)


def test_the_live_tail_needs_no_entry_and_takes_none():
    found = reading("t1-t9 drop 0")
    assert found.problems == []
    assert "t9" not in found.turns


def test_a_turn_named_in_a_run_and_alone_follows_its_own_entry():
    for turns in (("t2-t6 drop 0", "t4 keep 8"), ("t4 keep 8", "t2-t6 drop 0")):
        found = reading(*turns)
        assert found.problems == []
        assert found.turns["t4"].strategy == "keep"


@pytest.mark.parametrize(
    ("turns", "facts", "said"),
    [
        (["t99 keep 9"], [], "there is no t99; the turns are t1-t9"),
        (["t5 keep 3 maybe"], [], "'maybe' is no part of an entry"),
        (["t5 summarize 7 4-2"], [], "lines 4-2: t5 has lines 1-5"),
        (["t5 summarize 7 30-40"], [], "lines 30-40: t5 has lines 1-5"),
        (["t5 summarize 7 0-2"], [], "lines 0-2: t5 has lines 1-5"),
        (["t5 summarize 7 | see src/evil.py"], [], "names src/evil.py, which t5 does not contain"),
        (["t5 summarize 7 | waited 4500 s"], [], "names 4500, which t5 does not contain"),
        (["t5 summarize 7 | call drain_all"], [], "names drain_all, which t5 does not contain"),
        (["t2-t5 summarize 3 | edits"], [], "write one entry a turn"),
        (["t5: keep!"], [], "not an entry; write t<turn>"),
        (["t5 keep 3"], ["opinion t1 | nice"], "not a fact; write decision|error"),
        (["t5 keep 3"], ["decision t77 | nice"], "there is no t77"),
        (["t5 keep 3"], ["error t5 | worker_pool died"], "names worker_pool, which t5 does not contain"),
        (["t5 keep 3"], ["constraint t1 | keep it"], "needs the lines with the user's words"),
        (["t5 keep 3"], ["constraint t1 7 | keep it"], "t1 has lines 1-2"),
    ],
)  # fmt: skip
def test_every_mistake_is_named(turns, facts, said):
    found = reading(*turns, facts=facts)
    assert any(said in problem for problem in found.problems)


def test_a_wrong_gist_costs_only_the_gist():
    found = reading("t5 summarize 7 failed 3-4,90-95 | waited 4500 s")
    assert found.turns["t5"].excerpts == ((3, 4),)
    assert found.turns["t5"].summary == ""
    assert found.turns["t5"].failed_approach


def test_plain_words_and_ids_of_turns_are_no_inventions():
    found = reading("t5 summarize 6 | a re-run after t3-t4, head-and-tail, see t123: it timed out")
    assert found.problems == []


@given(st.data(), histories(max_turns=8))
def test_nothing_an_answer_says_gets_past_what_the_turns_hold(data, messages):
    evidence = plan_request(messages).evidence
    scope = Scope(list(evidence.turns.values()))
    number = st.integers(0, 12)
    entry = st.builds(
        "t{}-t{} {} {} {}-{} | {}".format,
        number, number, st.sampled_from(["keep", "summarize", "drop"]), st.integers(0, 9), number, number, texts(),
    )  # fmt: skip
    fact = st.builds("constraint t{} {} | {} | {}".format, number, number, texts(), texts())
    given_answer = PlanAnswer(
        turns=data.draw(st.lists(st.one_of(entry, texts()))), facts=data.draw(st.lists(st.one_of(fact, texts())))
    )
    found = read_answer(given_answer, scope, 0.0)
    for turn_id, proposal in found.turns.items():
        lines = evidence.turns[turn_id].lines
        assert all(1 <= low <= high <= len(lines) for low, high in proposal.excerpts)
        assert scope.invented(proposal.summary, int(turn_id[1:])) == []
        assert 0 <= proposal.score <= 1
    for extracted in found.facts:
        assert extracted.quote in scope.by_number[int(extracted.source[1:])].text


def test_a_range_that_runs_over_the_end_is_cut_and_no_mistake():
    found = reading("t5 summarize 7 3-40")
    assert found.problems == []
    assert found.turns["t5"].excerpts == ((3, 5),)


def written(*turns, brief=()):
    """An answer as models write it: one string a line."""
    lists = {"brief": brief, "turns": turns}
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(one) for one in items) + "\n]" for name, items in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}"


BRIEF = (
    "REQUEST",
    '- "Never touch legacy/queue_v1.py" (t1)',
    "STATE",
    "- 5 passed in 0.42s (t9)",
    "FACTS",
    "- drain_queue (t5)",
)
TEXT = written("t1 keep 9", "t5 keep 3", brief=BRIEF)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"Here you are:\n```json\n{TEXT}\n```\nAnything else?",
        f"I read {{all of it}}. As in the example,\n{written('t1 keep 9')}\nbut:\n{TEXT}",
        json.dumps({"brief": "\n".join(BRIEF), "turns": "t1 keep 9\nt5 keep 3", "more": {"x": 1}}),
        json.dumps({"answer": {"brief": BRIEF, "turns": ["t1 keep 9", 7, None, "t5 keep 3"]}}),
    ],
    ids=["whole", "among words", "behind an example", "texts for lists", "within another object"],
)
def test_an_answer_is_read_from_any_near_form(text):
    found = answer_in(text)
    assert tuple(found.brief) == BRIEF
    assert [read_entry(turn).runs for turn in found.turns] == [((1, 1),), ((5, 5),)]


def test_what_stands_of_an_answer_cut_off_is_read():
    found = answer_in(TEXT[: TEXT.index("t5 keep") + 4])
    assert (tuple(found.brief), found.turns) == (BRIEF, ["t1 keep 9"])


NO_JSON = (TEXT.replace('\\"', '"'), TEXT.replace(",\n", "\n"), "BRIEF:\n" + "\n".join(BRIEF))
"""The model is asked again, or by cards, and what is wrong is said to it."""


@pytest.mark.parametrize(
    "text", ["", "I cannot do that.", '{"turns": 7}', "{" * 50_000, "[]", "null", '{"brief": []}', *NO_JSON]
)
def test_what_is_no_answer_is_an_empty_one(text):
    assert answer_in(text) == PlanAnswer()


@pytest.mark.real
@pytest.mark.parametrize(
    "text",
    [
        '{"turns": ' + "[" * 200_000,
        '{"turns": [' + "9" * 5_000 + "]}",
        '{"turns": ["t' + "9" * 5_000 + ' keep 9"]}',
        '{"turns": ["t5 summarize 5 1-' + "9" * 5_000 + '"]}',
        '{"turns": ["t5 summarize 5 | \\ud800"]}',
        '{"turns": ["' + " " * 300_000 + '|"]}',
        '{"turns": ["' + "t5," * 100_000 + ' keep 1"]}',
        '{"brief": ["' + "(t1" * 100_000 + '"]}',
    ],
    ids=["nesting", "number", "turn id", "line number", "surrogate", "blanks", "runs", "citations"],
)
def test_a_hostile_answer_is_read_or_refused_in_no_time(text):
    found = answer_in(text)
    read_answer(found, SCOPE, 0.0)
    json.dumps(found.model_dump(), ensure_ascii=False).encode()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_without_an_error(text):
    answer_in(text)
    answer_in('{"turns": [' + text)
    read_entry(text)
    read_fact(text)


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
    fact = read_fact(f"{kind} t{turn} {written_ranges(ranges)} | {words}")
    assert fact == FactEntry(kind, turn, ranges, words.strip())


@pytest.mark.parametrize(
    ("form", "runs", "score", "lines"),
    [
        ("t4-9 drop 0", ((4, 9),), 0, ()),
        ("t4–t9, t12 DROP 0", ((4, 9), (12, 12)), 0, ()),
        ("t9 summarize 6 3-7, 12", ((9, 9),), 6, ((3, 7), (12, 12))),
        ("t9 summarize 6 3-7 failed | stuck", ((9, 9),), 6, ((3, 7),)),
        ("t9 keep 5 12-19", ((9, 9),), 5, ((12, 19),)),
        ("t9 keep 5 lines 12-19", ((9, 9),), 5, ((12, 19),)),
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


@pytest.mark.parametrize("text", [" " * 200_000, "t" * 200_000, "t1," * 70_000, "error t1 | " + " |" * 100_000])
def test_long_forms_take_no_longer_than_their_length(text):
    """Each took minutes by a regular expression with three open ends; reading word by word is linear."""
    read_entry(text)
    read_fact(text)
