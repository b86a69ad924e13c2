"""Validity, references, cache and the planner's price of an outcome."""

import pytest

from applier.eval.evaluation import count_violations, payback_of
from applier.eval.methods import compact_by
from applier.eval.survival import message_tokens
from tests.evaluation.restoring import restored_share
from tests.evaluation.work import TASK
from tests.strategies import make_session

SESSION = make_session(60)


@pytest.fixture(scope="module")
def outcome():
    return compact_by(SESSION, TASK, message_tokens(SESSION) // 3)


def edited(outcome, old, new):
    """`outcome` with `old` replaced wherever text says it."""
    messages = []
    for message in outcome:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        changed = [{**b, "text": b["text"].replace(old, new)} if "text" in b else b for b in blocks]
        messages.append({**message, "content": changed})
    return messages


def test_a_sound_outcome_is_valid_restorable_and_pays_back(outcome):
    assert (count_violations(outcome), restored_share(SESSION, outcome)) == (0, 1.0)
    assert payback_of(SESSION, outcome) > 0


def test_a_reference_that_is_gone_counts_as_not_restored(outcome):
    assert not restored_share(SESSION, edited(outcome, "<compacted", "<shortened"))
    narrowed = edited(outcome, 'turns="t2-', 'turns="t40-')
    assert 0 < restored_share(SESSION, narrowed) < 1


def test_an_unchanged_list_changes_nothing_and_never_pays_back():
    assert (payback_of(SESSION, list(SESSION)), restored_share(SESSION, list(SESSION))) == (None, 1.0)


def test_what_the_api_would_refuse_is_counted():
    assert count_violations(SESSION[2:3]) >= 1
