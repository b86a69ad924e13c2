"""What holds for every history, whatever a plan says: the guards, the view and the store together."""

from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.store import open_store
from applier.view import apply, preview
from planner.broken import broken_turns
from planner.compose import check_plan
from planner.evidence import gather_evidence
from planner.evidence.grounding import invented
from planner.guards import may_demote
from planner.layout.placeholders import clean, entry_text
from planner.reading.history import read_history
from planner.reading.messages import blocks
from planner.reading.tokens import TokenCounter
from tests.strategies import answered_histories, histories, plans
from tests.viewed import MODELS, plan_of, refused, removed, said


@st.composite
def attacks(draw):
    """A list, the history it is, any plan for it, and the model that reads the view."""
    messages = draw(st.one_of(histories(), answered_histories()))
    history = read_history(messages)
    model = draw(st.sampled_from(MODELS))
    plan = draw(plans(history)).model_copy(update={"target_model": model})
    return messages, history, plan.model_copy(update={"target_tokens": draw(st.sampled_from([0, 50, 2_000, 10**6]))})


def evidence_for(plan, history):
    return gather_evidence(history, TokenCounter.for_model(plan.target_model))


@given(attacks())
def test_the_view_is_never_worse_for_the_api(attack):
    messages, _, plan = attack
    before = {str(v.rule) for v in refused(messages, plan.target_model)}
    shown = preview(plan, messages)
    assert {str(v.rule) for v in refused(shown.messages, plan.target_model, messages)} <= before
    roles = [message["role"] for message in shown.messages]
    assert all(one != other for one, other in pairwise(roles))
    assert roles[0] == "user"


@given(attacks())
def test_the_view_never_grows_and_its_numbers_are_true(attack):
    messages, _, plan = attack
    shown = preview(plan, messages)
    counter = TokenCounter.for_model(plan.target_model)
    assert shown.tokens_before == counter.messages(messages)
    assert shown.tokens_after == shown.plan.estimated_tokens == counter.messages(shown.messages)
    assert shown.tokens_after <= shown.tokens_before
    assert (shown.first_changed_message is None) == all(a is b for a, b in zip(shown.messages, messages, strict=False))


@given(attacks())
def test_guarding_twice_is_guarding_once(attack):
    messages, history, plan = attack
    once = preview(plan, messages).plan
    again = check_plan(once, history, evidence_for(plan, history), broken_turns(history))
    assert again == once
    assert preview(once, messages).messages == preview(plan, messages).messages


@given(attacks())
def test_failures_and_the_users_words_stand(attack):
    messages, history, plan = attack
    evidence = evidence_for(plan, history)
    shown = preview(plan, messages)
    text = said(shown.messages)
    for turn_id, turn in evidence.turns.items():
        if shown.plan.decisions[turn_id].strategy == "keep":
            continue
        for number in turn.decisive_lines:
            line = turn.lines[number - 1].text.strip()
            assert clean(evidence.shown(line)) in text or clean(line) in text
        for number in turn.pinned_lines:
            assert clean(turn.lines[number - 1].text) in text


@given(attacks())
def test_the_live_tail_is_untouched_unless_it_is_too_large(attack):
    messages, history, plan = attack
    evidence = evidence_for(plan, history)
    shown = preview(plan, messages)
    for turn in (turn for turn in history.turns if turn.live):
        decision = shown.plan.decisions[turn.id]
        if decision.strategy == "keep":
            kept = said(shown.messages)
            assert all(said([message]) in kept for message in messages[turn.start : turn.stop])
        else:
            assert may_demote(evidence, plan.target_tokens)
            assert turn.kind == "tools"
            assert f'restore_context("{turn.id}")' in said(shown.messages)


@given(attacks())
def test_no_stand_in_names_what_its_turn_does_not_hold(attack):
    messages, history, plan = attack
    evidence = evidence_for(plan, history)
    shown = preview(plan, messages)
    for turn_id, decision in shown.plan.decisions.items():
        source = said(messages[slice(*span(history, turn_id))]) + calls(history, turn_id)
        assert not invented(decision.summary, source)
        assert all(name in source for name in decision.mentions)
        assert entry_text(evidence, decision) is not None
    for fact in shown.plan.extracted_facts:
        source = said(messages[slice(*span(history, fact.source))]) + calls(history, fact.source)
        assert not invented(f"{fact.content}\n{fact.quote}", source)


def span(history, turn_id):
    turn = history.by_id[turn_id]
    return turn.start, turn.stop


def calls(history, turn_id):
    """What its calls say, as lines of a turn have it."""
    evidence = gather_evidence(history, TokenCounter.for_model("")).turns[turn_id]
    return "".join(f"\n{line.text}" for line in evidence.lines if line.part == "call")


@given(attacks())
def test_the_list_that_was_given_is_neither_changed_nor_copied(attack):
    messages, _, plan = attack
    snapshot, objects = deepcopy(messages), list(messages)
    shown = preview(plan, messages)
    assert messages == snapshot
    assert all(a is b for a, b in zip(messages, objects, strict=True))
    whole = [message for message in shown.messages if not any_note(message)]
    given = {id(message) for message in messages}
    changed = [message for message in whole if id(message) not in given]
    assert all(stripped_or_demoted(message, messages) for message in changed)


def any_note(message):
    return any(str(block.get("text", "")).startswith("<compacted") for block in blocks(message))


def stripped_or_demoted(message, originals):
    """True if an original says the same, but for thinking, or for what a live result is cut to."""
    return any(
        rest(message) == rest(original) or (original in originals[-2:] and "restore_context" in said([message]))
        for original in originals
    )


def rest(message):
    return [b for b in blocks(message) if b["type"] not in ("thinking", "redacted_thinking")]


@given(st.one_of(histories(), answered_histories()), st.sampled_from(MODELS))
def test_keeping_everything_gives_back_the_same_objects(messages, model):
    history = read_history(messages)
    shown = preview(plan_of(history, {turn.id: "keep" for turn in history.turns}, model=model), messages)
    assert len(shown.messages) == len(messages)
    assert all(a is b for a, b in zip(shown.messages, messages, strict=True))
    assert (shown.first_changed_message, shown.payback_calls, shown.invalidated_tokens) == (None, None, 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("laws") / "store.db") as opened:
        yield opened


@given(attack=attacks())
def test_every_turn_that_a_note_stands_for_comes_back_exactly(store, attack):
    messages, history, plan = attack
    view = said(apply(plan, messages, store=store))
    gone = removed(preview(plan, messages).plan)
    key = "h" + history.digest.removeprefix("sha256:")[:8]
    for turn_id in gone:
        assert f'<compacted history="{key}" turns="' in view or f'restore_context("{turn_id}")' in view
        assert list(store.restore(f"{key}:{turn_id}").messages) == messages[slice(*span(history, turn_id))]
