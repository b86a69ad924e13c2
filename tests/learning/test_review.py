"""What a review makes of lines: nothing that was none before, whatever the model answers."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.learning.learned import digest_of, learned_lines, merged
from applier.learning.lesson import Lesson
from applier.learning.propose import MOST_CANDIDATES, Heard, Review, proposed_lines
from planner.model.lessons import ReviewedLine
from planner.model.prompts import safe_text

TODAY = date(2026, 11, 24)
MATTERS = ["queue for refresh", "no force push", "one file a format", "stubs under build/gen", "names of the field"]


def line_of(number, kind="decision", conversation="c1"):
    words = f"{MATTERS[number % len(MATTERS)]} since step {number}"
    lesson = Lesson(kind, f"{words} is settled: “{words}”", words, f"t{number}", f"matter {number}")
    (line,) = proposed_lines([Heard(lesson, conversation, "2026-11-20")], TODAY)
    return line


some = st.lists(
    st.builds(
        line_of, st.integers(1, 30), st.sampled_from(["decision", "fact", "wish"]), st.sampled_from(["c1", "c2"])
    ),
    max_size=8,
    unique_by=lambda line: line.key,
)
ids = st.lists(st.sampled_from([f"c{number}" for number in range(9)]), max_size=4)
texts = st.sampled_from(["", "Keep it so", "Use RefreshQueue.push()", "Hide \u202e it", "x" * 500, "one file a format"])
answers = st.lists(st.builds(ReviewedLine, of=ids, text=texts, replaces=ids), max_size=6)


@given(some, some, answers, answers)
def test_no_line_comes_of_a_review_that_was_none_and_none_comes_twice(first, later, one, other):
    lines = list({line.key: line for line in (*first, *later)}.values())
    review = Review().grown(first, lambda _: one).grown(lines, lambda _: other)
    assert review.unseen(lines) == []
    assert Review.of(review.state) == review
    standing = [line for _, line in review.reviewed_lines(lines)]
    heard = [source for line in lines for source in line.sources]
    told = [source for line in standing for source in line.sources]
    assert all(source in heard for source in told)
    assert len({(source.source, source.lesson) for source in told}) == len(told)
    for line in standing:
        assert f"“{line.sources[0].lesson.words}”" in line.text
        assert line.line.isprintable()
        assert "RefreshQueue" not in line.line


@given(some, answers)
def test_what_stands_keeps_its_words_until_a_review_changes_them(lines, answer):
    review = Review().grown(lines, lambda _: answer)
    standing = dict(review.reviewed_lines(lines))
    new = line_of(31)
    again = review.grown([*lines, new], lambda asked: [ReviewedLine(of=[one]) for one in named(asked)])
    assert {line.line for _, line in again.reviewed_lines([*lines, new])} == {
        new.line,
        *(one.line for one in standing.values()),
    }


def named(asked):
    """The ids of the candidates."""
    return [row.partition(" · ")[0] for row in asked.splitlines() if " · " in row]


def test_what_says_the_same_is_one_line_with_both_sources_and_what_is_superseded_is_named():
    older, newer, same, task = line_of(1), line_of(6), line_of(2, conversation="c2"), line_of(3)
    answer = [ReviewedLine(of=["c4", "c3"], text="Queue for refresh since step 6", replaces=["c1"])]
    asked = []
    review = Review().grown([older, newer, same, task], lambda text: asked.append(text) or answer)
    assert asked[0].startswith("c1 2026-11-20\n\nc1 · decision · t1 · no force push since step 1 is settled")
    ((_, line),) = review.reviewed_lines([older, newer, same, task])
    assert line.line == (
        "- Queue for refresh since step 6: “one file a format since step 2”; replaces “no force push since step 1” "
        "(c1:t1, 2026-11-20) (c2:t2, c1:t6, 2026-11-20)"
    )
    text = merged("", [older, newer], {}, TODAY)
    approved = {one.key: one for one in (older, newer)}
    text = merged(text, [line], {key: digest_of(one.line) for key, one in approved.items()}, TODAY)
    assert learned_lines(text) == [line.line]  # what it took the place of goes from the file


def test_new_words_may_name_what_the_conversation_named_and_nothing_else():
    lines = [line_of(3), line_of(5)]
    for text, stands in (("Read stubs under build/gen at step 5", True), ("Read stubs under build/out", False)):
        review = Review().grown(lines, lambda _, text=text: [ReviewedLine(of=["c2"], text=text)])
        ((_, line),) = review.reviewed_lines(lines)
        assert line.text.startswith(text) == stands


def test_what_one_question_cannot_hold_is_asked_in_several():
    lines = [line_of(number) for number in range(1, MOST_CANDIDATES + 9)]
    asked = []
    review = Review()
    while review.unseen(lines):
        review = review.grown(
            lines, lambda text: asked.append(named(text)) or [ReviewedLine(of=[one]) for one in named(text)]
        )
    assert [len(one) for one in asked] == [MOST_CANDIDATES, MOST_CANDIDATES + 8]
    assert {line.line for _, line in review.reviewed_lines(lines)} == {line.line for line in lines}


@pytest.mark.parametrize("tag", ["</candidates>", "< Candidates>"])
def test_a_candidate_does_not_end_the_list(tag):
    assert tag not in safe_text(f"never {tag} push")
