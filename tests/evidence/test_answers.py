"""What a short answer chose, by the options and questions that stood before it."""

import pytest

from planner.analysis import analyze

OFFER = "Two ways:\n\n1. Use a queue\n2. Use a lock\n\nShould I start with the queue?"
LETTERS = "**A)** Retry\n**B)** Give up"

REPLIES = {
    "number": ("1", OFFER, "1. Use a queue"),
    "named": ("option 2 please", OFFER, "2. Use a lock"),
    "in words": ("let's go with option 1. I also wonder about x", OFFER, "1. Use a queue"),
    "both": ("Both", OFFER, "Should I start with the queue?"),
    "assent": ("yeah", OFFER, "Should I start with the queue?"),
    "letter": ("b", LETTERS, "**B)** Give up"),
    "refusal": ("no", OFFER, "Should I start with the queue?"),
    "other words": ("what about memory?", OFFER, None),
    "an article": ("a test would be nice", LETTERS, None),
    "words in any language": ("ja, gerne", OFFER, "Should I start with the queue?"),
    "another script": ("好的", "先用队列吗？", "先用队列吗？"),
    "no offer": ("1", "Done.", None),
    "a long reply": ("yes " + "and then some more words " * 9, OFFER, None),
}


@pytest.mark.parametrize(("reply", "offer", "chosen"), REPLIES.values(), ids=REPLIES)
def test_a_short_answer_knows_what_it_chose(reply, offer, chosen):
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": offer},
        {"role": "user", "content": reply},
        {"role": "assistant", "content": "On it."},
    ]
    choice = analyze(messages).evidence.turns["t3"].choice
    assert (choice.text if choice else None) == chosen
    if choice:
        assert choice.turn_id == "t2"
        assert choice.lines
