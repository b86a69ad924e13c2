"""What of an answer can be used: every kind of mistake is named, and what stands beside it survives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.answer import Answer, Scope, answer_in, read_answer
from tests.model.sample import SAMPLE, answer, plan_request
from tests.strategies import histories, texts

SCOPE = Scope(list(plan_request(SAMPLE).evidence.turns.values()))
REST = "reference 1"


def reading(*turns, rest=REST, facts=(), scope=SCOPE):
    return read_answer(Answer(turns=list(turns), rest=rest, facts=list(facts)), scope, 5.0)


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
    assert found.turns["t3"].strategy == "reference"
    assert found.facts[0].quote == "Never touch legacy/queue_v1.py, it is frozen."
    assert (found.facts[1].source, found.facts[1].timestamp) == ("t7", 5.0)


def test_the_live_tail_needs_no_entry_and_takes_none():
    found = reading("t1-t9 drop 0", rest="")
    assert found.problems == []
    assert "t9" not in found.turns


def test_a_turn_named_in_a_run_and_alone_follows_its_own_entry():
    for turns in (("t2-t6 drop 0", "t4 keep 8"), ("t4 keep 8", "t2-t6 drop 0")):
        found = reading(*turns)
        assert found.problems == []
        assert found.turns["t4"].strategy == "keep"


@pytest.mark.parametrize(
    ("turns", "rest", "facts", "said"),
    [
        (["t99 keep 9"], REST, [], "there is no t99; the turns are t1-t9"),
        (["t5-t3 drop 0"], REST, [], "wrong way round; write t3-t5"),
        (["t1 keep 9", "t3-t5 drop 0"], "", [], "no entry covers t2, t6-t8; add them, or give a rest"),
        (["t5 summarize 7"], REST, [], "summarize needs lines to keep, or a gist"),
        (["t5 summarize 7 4-2"], REST, [], "lines 4-2 are the wrong way round"),
        (["t5 summarize 7 3-40"], REST, [], "lines 3-40: t5 has lines 1-5"),
        (["t5 summarize 7 0-2"], REST, [], "lines 0-2: t5 has lines 1-5"),
        (["t5 summarize 7 | see src/evil.py"], REST, [], "names src/evil.py, which t5 does not hold"),
        (["t5 summarize 7 | waited 4500 s"], REST, [], "names 4500, which t5 does not hold"),
        (["t5 summarize 7 | call drain_all"], REST, [], "names drain_all, which t5 does not hold"),
        (["t2-t5 summarize 3 | edits"], REST, [], "write one entry a turn"),
        (["t5 keep 3", "t5 drop 0"], REST, [], "t5 is named twice"),
        (["t5: keep!"], REST, [], "not an entry; write t<turn>"),
        (["t5 keep 3"], "maybe", [], 'rest "maybe": write keep, reference or drop and a score'),
        (["t5 keep 3"], REST, ["opinion t1 | nice"], "not a fact; write decision|error"),
        (["t5 keep 3"], REST, ["decision t77 | nice"], "there is no t77"),
        (["t5 keep 3"], REST, ["error t5 | worker_pool died"], "names worker_pool, which t5 does not hold"),
        (["t5 keep 3"], REST, ["constraint t1 | keep it"], "needs the lines that hold the user's words"),
        (["t5 keep 3"], REST, ["constraint t1 7 | keep it"], "lines 7-7: t1 has lines 1-2"),
        (["t5 keep 3"], REST, ["constraint t1 | frozen | It is frozen!"], "not the words of t1"),
    ],
)  # fmt: skip
def test_every_mistake_is_named(turns, rest, facts, said):
    found = reading(*turns, rest=rest, facts=facts)
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
    given_answer = Answer(
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


def test_an_answer_is_found_among_words_and_when_cut_off():
    whole = answer("t1 keep 9", "t5 keep 3", rest=REST)
    assert last_answer(f"Here you are:\n```json\n{whole}\n```") == Answer(**json.loads(whole))
    cut = last_answer(whole[: whole.index("t5 keep") + 4])
    assert cut is not None
    assert cut.turns == ["t1 keep 9"]
    assert last_answer("I cannot do that.") is None
    assert last_answer('{"turns": 7}') is None
