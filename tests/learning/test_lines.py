"""Which lines lessons come to, and that a file keeps what a person made of it."""

from dataclasses import replace
from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from applier.learning.learned import BEGIN, END, approved_lines, digest_of, learned_lines, merged
from applier.learning.lesson import Lesson, sentence_key
from applier.learning.propose import Heard, proposed_lines

TODAY = date(2026, 11, 23)
SUBJECTS = ["queue for refresh", "no force push", "one file a format", "tests before code", "names of the field"]


def heard(kind, words, conversation="c1", turn=1, days_ago=1, **more):
    lesson = Lesson(kind, f"“{words}”", words, f"t{turn}", more.pop("subject", sentence_key(words)), **more)
    return Heard(lesson, conversation, (TODAY - timedelta(days=days_ago)).isoformat())


def error(conversation, days_ago, mended="t9", words="biome: command not found in this tree"):
    return heard("error", words, conversation, 4, days_ago, mended=mended, lasting=False)


numbered = st.integers(1, 40)
lessons = st.builds(
    heard,
    st.sampled_from(["decision", "wish"]),
    st.sampled_from(SUBJECTS),
    st.sampled_from(["c1", "c2", "h1a2b3c4d"]),
    numbered,
    st.integers(0, 400),
)
errors = st.builds(error, st.sampled_from(["c1", "c2", "c3"]), st.integers(0, 400))
all_heard = st.lists(st.one_of(lessons, errors), max_size=8)
OWN = ["", "# Rules\n\n- Use bun.\n", f"{END}\n\n- Use bun.\n", f"- Use bun.\n{BEGIN}\n- Mine.", f"{END}{BEGIN}\nMine."]
"""What may stand in a file that holds more than our lines, marks that belong to nothing among it."""
acts = st.lists(st.sampled_from(["keep", "delete", "edit"]), min_size=12, max_size=12)


def approving(text, lines, approved, shared):
    """The file and the approvals after a yes."""
    new = merged(text, lines, approved, TODAY, shared=shared)
    keys = {digest_of(line.line): line.key for line in lines}
    fresh = {
        keys[digest_of(row)]: digest_of(row) for row in learned_lines(new, shared=shared) if digest_of(row) in keys
    }
    return new, {**approved, **fresh}


@given(all_heard, all_heard, acts, st.booleans(), st.sampled_from(OWN))
def test_what_a_person_wrote_edited_or_deleted_stays_so(first, later, acts, shared, own):
    text, approved = approving(own if shared else "", proposed_lines(first, TODAY), {}, shared)
    rows, deleted, edited = [], [], []
    for row, act in zip(text.splitlines(), acts * 4, strict=False):
        if not row.startswith("- ") or act == "keep" or row in own:
            rows.append(row)
        elif act == "delete":
            deleted.append(row)
        else:
            edited.append(f"{row.rstrip(')')}) I said so.")
            rows.append(edited[-1])
    changed = "".join(f"{row}\n" for row in rows)
    again, _ = approving(changed, proposed_lines([*first, *later], TODAY), approved, shared)
    assert not set(deleted) & set(again.splitlines())
    assert set(edited) <= set(again.splitlines())
    assert set(own.splitlines()) <= set(again.splitlines()) or not shared
    keys = {line.key for line in proposed_lines(first, TODAY) if line.line in deleted}
    told = {line.line for line in proposed_lines([*first, *later], TODAY) if line.key in keys}
    assert not told & set(again.splitlines())


@given(all_heard, st.booleans(), st.sampled_from(OWN))
def test_what_was_approved_is_not_proposed_again_and_the_order_of_reading_says_nothing(some, shared, own):
    lines = proposed_lines(some, TODAY)
    text, approved = approving(own if shared else "", lines, {}, shared)
    assert set(approved) == {line.key for line in lines}
    assert merged(text, lines, approved, TODAY, shared=shared) == text
    assert {line.line for line in proposed_lines(some[::-1], TODAY)} == {line.line for line in lines}


@given(all_heard)
def test_every_line_cites_where_it_was_said(some):
    for line in proposed_lines(some, TODAY):
        assert line.sources
        assert all(one in some for one in line.sources)
        assert line.sources[0].lesson.words in line.line
        assert line.sources[0].source in line.line


def test_an_error_is_told_when_it_came_back_and_was_mended():
    assert proposed_lines([error("c1", 3)], TODAY) == []
    assert proposed_lines([error("c1", 3, ""), error("c2", 2, "")], TODAY) == []
    with_cause = replace(error("c1", 3), lesson=replace(error("c1", 3).lesson, lasting=True))
    assert len(proposed_lines([with_cause], TODAY)) == 1
    assert proposed_lines([error("c1", 3), error("c1", 2)], TODAY) == []
    (line,) = proposed_lines([error("c1", 3), error("c2", 2, "")], TODAY)
    assert line.line.endswith("(c1:t4, c2:t4, 2026-11-21)")


def test_errors_expire_unless_they_are_seen_again():
    old = [error("c1", 40), error("c2", 35)]
    assert proposed_lines(old, TODAY) == []  # of a machine that may be another by now
    assert len(proposed_lines([*old, error("c3", 2)], TODAY)) == 1
    general = [error("c1", 40, words="must be 12 lowercase hex"), error("c2", 35, words="must be 12 lowercase hex")]
    lines = proposed_lines(general, TODAY)
    text, approved = approving("", lines, {}, shared=False)
    assert approved_lines(text, approved.values(), TODAY)
    later = TODAY + timedelta(days=90)
    assert approved_lines(text, approved.values(), later) == []
    assert learned_lines(merged(text, proposed_lines(general, later), approved, later)) == []
    edited = text.replace("lowercase hex", "lowercase hexadecimal digits")
    assert merged(edited, [], approved, later) == edited


def test_an_error_that_is_seen_again_after_it_expired_stands_with_its_new_day():
    old = [error("c1", 40), error("c2", 35)]
    then = TODAY - timedelta(days=30)
    text, approved = approving("", proposed_lines(old, then), {}, shared=False)
    (line,) = learned_lines(merged(text, proposed_lines([*old, error("c3", 2)], TODAY), approved, TODAY))
    assert line.endswith("2026-11-21)")


def test_a_newer_decision_replaces_the_older_and_says_so():
    older = heard("decision", "use a mutex", "c1", 3, 20, subject="how to wait")
    newer = heard("decision", "use a queue", "c2", 5, 2, subject="how to wait")
    text, approved = approving("", proposed_lines([older], TODAY), {}, shared=False)
    text, _ = approving(text, proposed_lines([older, newer], TODAY), approved, shared=False)
    (line,) = learned_lines(text)
    assert line == "- “use a queue”; replaces “use a mutex” (c1:t3, 2026-11-03) (c2:t5, 2026-11-21)"


def test_of_two_decisions_of_one_day_the_later_is_the_newer():
    one, other = (
        replace(heard("decision", words, name, 3, 2, subject="how to wait"), time=time)
        for words, name, time in (("use a mutex", "c9", 1.0), ("use a queue", "c1", 2.0))
    )
    (line,) = proposed_lines([other, one], TODAY)
    assert line.text == "“use a queue”; replaces “use a mutex” (c9:t3, 2026-11-21)"


def test_wishes_against_each_other_are_both_shown_unless_one_says_that_it_changes_the_other():
    one, other = "Always squash commits of a branch", "Never squash commits of a branch"
    lines = proposed_lines([heard("wish", one, "c1", 1, 9), heard("wish", other, "c2", 1, 2)], TODAY)
    assert [line.sources[0].lesson.words for line in lines] == [other, one]
    assert all("CONTRADICTS" in line.line for line in lines)
    later = heard("wish", "From now on never squash commits of a branch", "c2", 1, 2)
    text, approved = approving("", proposed_lines([heard("wish", one, "c1", 1, 9)], TODAY), {}, shared=False)
    text, _ = approving(text, proposed_lines([heard("wish", one, "c1", 1, 9), later], TODAY), approved, shared=False)
    (line,) = learned_lines(text)
    assert "From now on" in line
    assert f"replaces “{one}”" in line


def test_a_form_that_begins_several_conversations_is_no_wish_of_a_person():
    form = [heard("wish", "Never use interactive commands, for they hang", c, is_long=True) for c in ("c1", "c2")]
    assert proposed_lines(form, TODAY) == []
    assert len(proposed_lines(form[:1], TODAY)) == 1


@given(st.text(), st.booleans())
def test_a_file_of_a_person_is_not_touched_where_nothing_is_proposed(text, shared):
    assert merged(text, [], {}, TODAY, shared=shared) == text
