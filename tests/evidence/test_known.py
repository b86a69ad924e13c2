"""A history that grew, or changed, is read from where it did: the same evidence as reading all of it."""

from hypothesis import given
from hypothesis import strategies as st

from planner.evidence import gather_evidence
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from tests.strategies import histories

COUNTER = TokenCounter(vocabulary=None)


@given(histories(), st.data())
def test_known_turns_change_nothing(messages, data):
    count = data.draw(st.integers(0, len(messages)))
    before = gather_evidence(read_history(messages[:count]), COUNTER)
    history = read_history(messages)
    again, fresh = gather_evidence(history, COUNTER, before), gather_evidence(history, COUNTER)
    assert again.root == fresh.root
    for turn_id, turn in fresh.turns.items():
        other = again.turns[turn_id]
        for field in (
            "turn",
            "lines",
            "outcomes",
            "tokens",
            "decisive_lines",
            "typed_lines",
            "superseded_by",
            "choice",
        ):
            assert getattr(other, field) == getattr(turn, field)


def test_a_known_turn_is_not_read_again():
    messages = [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Done."}]
    before = gather_evidence(read_history(messages), COUNTER)
    after = gather_evidence(read_history([*messages, {"role": "user", "content": "And now?"}]), COUNTER, before)
    assert after.turns["t1"].lines is before.turns["t1"].lines
