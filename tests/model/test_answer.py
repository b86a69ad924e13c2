"""What of an answer can be used: every kind of mistake is named, and what stands beside it survives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.brief import read_brief
from planner.model.answer import Answer, Scope, answer_in, read_answer
from planner.model.entries import read_entry
from tests.model.sample import SAMPLE, plan_request
from tests.strategies import histories, texts

SCOPE = Scope(list(plan_request(SAMPLE).evidence.turns.values()))


def reading(*turns, facts=(), scope=SCOPE):
    return read_answer(Answer(turns=list(turns), facts=list(facts)), scope, 5.0)


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
        (["t5 summarize 7 | see src/evil.py"], [], "names src/evil.py, which t5 does not hold"),
        (["t5 summarize 7 | waited 4500 s"], [], "names 4500, which t5 does not hold"),
        (["t5 summarize 7 | call drain_all"], [], "names drain_all, which t5 does not hold"),
        (["t2-t5 summarize 3 | edits"], [], "write one entry a turn"),
        (["t5 keep 3", "t5 drop 0"], [], "t5 is named twice"),
        (["t5: keep!"], [], "not an entry; write t<turn>"),
        (["t5 keep 3"], ["opinion t1 | nice"], "not a fact; write decision|error"),
        (["t5 keep 3"], ["decision t77 | nice"], "there is no t77"),
        (["t5 keep 3"], ["error t5 | worker_pool died"], "names worker_pool, which t5 does not hold"),
        (["t5 keep 3"], ["constraint t1 | keep it"], "needs the lines that hold the user's words"),
        (["t5 keep 3"], ["constraint t1 7 | keep it"], "t1 has lines 1-2"),
        (["t5 keep 3"], ["constraint t1 | frozen | It is frozen!"], "not the words of t1"),
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
        TEXT.replace('\\"', '"'),
        TEXT.replace(",\n", "\n"),
        "BRIEF:\n" + "\n".join(BRIEF) + "\n\n## Turns\n\n- t1 keep 9\n- t5 keep 3\n",
        json.dumps({"brief": "\n".join(BRIEF), "turns": "t1 keep 9\nt5 keep 3", "more": {"x": 1}}),
        TEXT.replace(",\n", "\n", 1),
        f"I read {{all of it}}. As in the example,\n{written('t1 keep 9')}\nbut:\n{TEXT}",
        json.dumps({"Answer": {"Brief": BRIEF, "Turns": {"t1": "keep 9", "t5": "keep 3"}}}),
        json.dumps(
            {
                "brief": {head: [line] for head, line in zip(BRIEF[::2], BRIEF[1::2], strict=True)},
                "turns": [{"turn": "t1", "strategy": "keep", "score": 9}, {"turn": "t5", "strategy": "keep"}],
            }
        ),
    ],
    ids=[
        "whole",
        "among words",
        "quotes not escaped",
        "commas forgotten",
        "sections",
        "texts for lists",
        "one comma forgotten",
        "behind an example",
        "within another object",
        "mappings for lists",
    ],
)
def test_an_answer_is_read_from_any_near_form(text):
    found = answer_in(text)
    assert tuple(found.brief) == BRIEF
    assert [read_entry(turn).runs for turn in found.turns] == [((1, 1),), ((5, 5),)]


def test_a_page_without_any_form_is_a_brief():
    found = answer_in("Here is the memory:\n\n" + "\n".join(f"## {line}" if line.isupper() else line for line in BRIEF))
    assert [statement.line for statement in read_brief("\n".join(found.brief))] == list(BRIEF[1::2])


def test_what_stands_of_an_answer_cut_off_is_read():
    found = answer_in(TEXT[: TEXT.index("t5 keep") + 4])
    assert (tuple(found.brief), found.turns) == (BRIEF, ["t1 keep 9"])


@pytest.mark.parametrize("text", ["", "I cannot do that.", '{"turns": 7}', "{" * 50_000, "[]", "null", '{"brief": []}'])
def test_what_is_no_answer_is_none(text):
    assert answer_in(text) is None


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
    if found is not None:
        read_answer(found, SCOPE, 0.0)
        json.dumps(found.model_dump(), ensure_ascii=False).encode()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_without_an_error(text):
    answer_in(text)
    answer_in('{"turns": [' + text)
