"""Relevance: what a line names is what its text names, with the parts that are names of the history by themselves."""

from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import analyze
from planner.evidence.words import parts_of, specifics_of, words_of
from planner.relevance import line_relevance
from tests.strategies import histories

PARTS = {"token_store.ts", "token_store", "test_late.py", "v2/refresh", "unheard_of.py"}
PATHS = [
    {"role": "assistant", "content": "See src/token_store.ts and https://example.org/api/v2/refresh first."},
    {"role": "user", "content": "Then tests/test_late.py, and src/token_store.ts again."},
]
"""Names of which the others but the last are parts: a turn that names one makes it a name of earlier turns."""


def named_in(analysis):
    """Each line with what its text names and what relevance says that it names."""
    for turn_id, turn in analysis.evidence.turns.items():
        for at, line in enumerate(turn.lines):
            names = analysis.once(line_relevance).names_in(turn_id, at, at + 1)
            yield line, [*specifics_of(line.text), *words_of(line.text)], names


@given(histories(max_turns=8), st.lists(st.sampled_from(sorted(PARTS)), max_size=3))
def test_lines_name_what_their_texts_name_and_the_parts_that_others_name(messages, parts):
    analysis = analyze([*PATHS, *messages, *[{"role": "user", "content": f"Look at {part}."} for part in parts]])
    known = {name for _, own, _ in named_in(analysis) for name in own}
    assert known == set(analysis.once(line_relevance).names)
    for _, own, names in named_in(analysis):
        expected = {part for name in own for part in parts_of(name) if part in known}
        assert len(names) == len(set(names))
        assert set(names) == expected


@given(histories(), st.lists(st.sampled_from(sorted(PARTS)), max_size=4), st.data())
def test_relevance_of_a_history_that_grew_is_that_of_the_whole(messages, parts, data):
    messages = [*PATHS, *messages, *[{"role": "user", "content": f"Look at {part}."} for part in parts]]
    known = None
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=4))), len(messages)]:
        known = analyze(messages[:end], known=known)
        assert line_relevance(known) == line_relevance(analyze(messages[:end]))


def test_what_the_agent_wrote_lately_is_likelier_to_be_named_again_than_what_only_stood_in_results():
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "src/called_name.py"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "import printed_name\n"}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    relevance = line_relevance(analyze([{"role": "user", "content": "Go on."}, *messages]))
    weights = dict(zip(relevance.names, relevance.weights, strict=True))
    assert weights["src/called_name.py"] > weights["printed_name"]


def test_the_answer_that_the_user_replies_to_counts_more_than_the_same_answer_before():
    answers = [
        {"role": "assistant", "content": "The room on the garden side costs 158."},
        {"role": "user", "content": "And with a balcony?"},
        {"role": "assistant", "content": "The room on the garden side costs 158."},
    ]
    asked, replied = [{"role": "user", "content": "Find a room."}, *answers], {"role": "user", "content": "Book it."}
    worths = [line_relevance(analyze([*asked, *tail])).turn_weights for tail in ([], [replied])]
    assert worths[0]["t2"] == worths[0]["t4"] == worths[1]["t2"] < worths[1]["t4"]
