"""The order of lines: every pick takes lines, whatever rounding makes of sums that should be equal."""

from array import array
from base64 import b64encode
from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import Rows, analyze
from planner.relevance import MOST_COMPARED, KeptTexts, line_relevance, rank_lines

OWN = ["The words of the first.", "Others in the second turn.", "What a third one says."]


def test_a_line_that_is_next_but_for_rounding_is_picked_with_its_number():
    analysis = analyze([{"role": role, "content": OWN[at]} for at, role in enumerate(("user", "assistant", "user"))])
    relevance = replace(
        line_relevance(analysis),
        names=["a_name"],
        weights=array("d", [8e-12]),
        rows={"t1": Rows.of([[0]]), "t2": Rows.of([[0]]), "t3": Rows.of([[]])},
        bases={"t1": [2.0], "t2": [1.0 - 4e-12], "t3": [1.0]},
        recencies={"t1": 1.0, "t2": 1.0, "t3": 1.0},
        turn_weights={},
    )
    picks = list(rank_lines(analysis.evidence, relevance, {}, (), 10**6))
    assert sorted((pick.turn_id, pick.numbers) for pick in picks) == [("t1", (1,)), ("t2", (1,)), ("t3", (1,))]


def called(number, name, result, **arguments):
    use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True), min_size=1, max_size=6))
def test_what_one_line_says_is_picked_once_in_whichever_turns_it_stands(printed):
    rows = [[f"part_{row} stands in file_{row}.py for worker {row}" for row in own] for own in printed]
    calls = [called(at, "Bash", "\n".join(own), command=f"make show-{at}") for at, own in enumerate(rows)]
    analysis = analyze([{"role": "user", "content": "Go on."}, *(message for call in calls for message in call)])
    picks = rank_lines(analysis.evidence, line_relevance(analysis), {}, (), 10**6)
    turns = analysis.evidence.turns
    taken = {(pick.turn_id, number) for pick in picks for number in pick.numbers}
    texts = [turns[turn_id].lines[number - 1].text for turn_id, number in taken]
    said = [text for text in texts if text.startswith("part_")]
    assert sorted(said) == sorted({row for own in rows for row in own})


@given(st.integers(0, 8), st.sampled_from(["not", "nicht", "7", "only"]), st.sampled_from(["user", "assistant"]))
def test_a_sentence_with_one_word_more_is_news(place, word, part):
    words = ["the", "worker", "drain_queue", "waits", "for", "all", "of", "its", "jobs"]
    kept, other = KeptTexts(), " ".join([*words[:place], word, *words[place:]])
    kept.add(["drain_queue"], " ".join(words))
    assert kept.repeats(["drain_queue"], lambda: " ".join(reversed(words)), part)
    assert not kept.repeats(["drain_queue"], lambda: other, part)
    assert not kept.repeats([], lambda: "the worker waits", part)


@given(st.sampled_from(["not ok", "3 of 4", "FAIL", "was retried"]))
def test_a_printed_line_is_news_by_its_longer_words_and_numbers(word):
    kept = KeptTexts()
    kept.add_text("ok drain_queue is done", "t1")
    assert kept.repeats_text("M  drain_queue is done, ok", "result")
    assert not kept.repeats_text(f"{word} drain_queue is done", "result")
    assert not kept.repeats(["drain_queue"], lambda: "ok drain_queue is done", "result", {"t1"})


def test_a_line_is_compared_with_the_last_that_hold_its_rarest_name():
    """However many lines of a log name one file."""
    kept, lines = KeptTexts(), [f"main.py handled request_{at}" for at in range(2 * MOST_COMPARED)]
    for line in lines:
        kept.add(["main.py"], line)
    known = [kept.repeats(["main.py"], partial(str, line), "result") for line in lines]
    assert known == [False] * MOST_COMPARED + [True] * MOST_COMPARED
    kept.add(["main.py", "once.py"], "main.py calls once.py")
    assert kept.repeats(["main.py", "once.py"], lambda: "once.py calls main.py", "result")


@given(st.binary(min_size=600, max_size=3000), st.sampled_from(["", "data:image/png;base64,", '{"image": "']))
def test_encoded_data_takes_no_room_and_what_stands_beside_it_does(data, before):
    result = f"saved chart_7.png\n{before}{b64encode(data).decode()}\nexit of plot_all: 3 warnings"
    analysis = analyze([{"role": "user", "content": "Go on."}, *called(1, "Bash", result, command="make chart")])
    turn = analysis.evidence.turns["t2"]
    picks = rank_lines(analysis.evidence, line_relevance(analysis), {}, (), 10**6)
    taken = [turn.lines[number - 1].text for pick in picks if pick.turn_id == "t2" for number in pick.numbers]
    assert {"saved chart_7.png", "exit of plot_all: 3 warnings"} <= set(taken)
    assert sum(map(len, taken)) < len(result) / 2 + 250
