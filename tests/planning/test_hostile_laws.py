"""What holds for every history, whatever a plan says: the guards, the view and the store together."""

import json
import re
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.store import open_store
from applier.testing import Request, judge
from applier.view import apply, preview
from planner.analysis import analyze
from planner.brief import covered_failures
from planner.guards import check_plan
from planner.layout import joined_messages
from planner.placeholders import history_key
from planner.plan import CompactionPlan
from planner.reading.lines import join_lines
from planner.reading.messages import blocks, read_history
from planner.reading.tokens import TokenCounter
from planner.validity import check_messages
from tests.strategies import TAGS, answered_histories, compacted_histories, histories, plans
from tests.viewed import MODELS, plan_of, refusals, refused, removed, said


@st.composite
def attacks(draw):
    """A list, the history it is, any plan for it, and the model and window of what reads the view."""
    messages = draw(st.one_of(histories(), answered_histories()))
    history = read_history(messages)
    change = {
        "target_model": draw(st.sampled_from(MODELS)),
        "target_tokens": draw(st.sampled_from([0, 50, 2_000, 10**6])),
        "window_tokens": draw(st.sampled_from([1_000, 200_000])),
        "restore_tool": draw(st.sampled_from(["", "restore_context"])),
    }
    return messages, history, draw(plans(history)).model_copy(update=change)


def evidence_for(plan, messages):
    return analyze(messages, plan.target_model).evidence


@pytest.mark.real
@given(attacks())
def test_the_view_is_never_worse_for_the_api(attack):
    messages, _, plan = attack
    before = {str(v.rule) for v in refused(messages, plan.target_model)}
    shown = preview(plan, messages)
    assert {str(v.rule) for v in refused(shown.messages, plan.target_model, messages)} <= before
    assert {v.rule for v in refusals(shown.messages)} <= {v.rule for v in refusals(messages)}


@given(compacted_histories(), st.data())
def test_the_servers_own_compaction_stands_first_and_once_as_it_came(messages, data):
    block = messages[0]["content"][0]
    plan = data.draw(plans(messages)).model_copy(update={"target_tokens": 50, "window_tokens": 1_000})
    view = preview(plan, messages).messages
    assert refused(view, before=messages) == []
    assert [b for message in view for b in blocks(message) if b["type"] == "compaction"] == [block]
    assert (view[0]["role"], view[0]["content"][0]) == (messages[0]["role"], block)


FOUND = [{"type": "tool_reference", "tool_name": "Monitor"}]


@given(histories(max_turns=6), histories(max_turns=6, live_tail="user"), st.booleans(), st.data())
def test_what_loads_or_changes_the_agents_tools_stands(before, behind, is_change, data):
    """A deferred tool is there from where a search found it, and no longer without that; a host changes others."""
    search = {"type": "tool_use", "id": "toolu_search", "name": "ToolSearch", "input": {"query": "Monitor"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_search", "content": FOUND}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}
    change = {"role": "system", "content": [removal], "output_config": {"effort": "low"}}
    loads = [{"role": "assistant", "content": [search]}, {"role": "user", "content": [result]}]
    done = {"role": "assistant", "content": "Done."}
    messages = [
        *before,
        done,
        behind[0],
        *([change] * is_change),
        *loads,
        done,
        behind[0],
        *([change] * is_change),
        done,
    ]
    messages += behind[:1]
    plan = data.draw(plans(messages)).model_copy(update={"target_tokens": 50})
    view = preview(plan, messages).messages
    assert refused(view, before=messages) == []
    contents = [block for message in view for block in blocks(message)]
    assert [block for block in contents if block.get("content") == FOUND] == [result]
    assert contents.count(removal) == 2 * is_change
    assert sum("output_config" in message for message in view) == 2 * is_change


def test_of_two_system_messages_that_meet_the_newer_says_how_to_answer_and_what_stays_stays():
    def system(words, effort, **more):
        return {"role": "system", "content": words, "output_config": {"effort": effort}, **more}

    words = {"role": "user", "content": "go on"}
    passing = system("for this turn", "low", clear_at="next_user_message")
    user, joined = joined_messages([words, passing], [words, system("for good", "high")])
    texts = [{"type": "text", "text": text} for text in ("for this turn", "for good")]
    assert joined == {"role": "system", "content": texts, "output_config": {"effort": "high"}}
    assert len(user["content"]) == 2


def thinking_once(messages):
    """As manual thinking leaves a list: each run of calls begins with it, no later call of the run does."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    words = True
    for message in messages:
        content = list(blocks(message))
        if message["role"] == "assistant" and words:
            content = [thought, *content]
        words = message["role"] == "user" and all(block["type"] != "tool_result" for block in content)
        yield {**message, "content": content}


@pytest.mark.real
@given(
    st.one_of(
        histories(thinks=False, min_turns=3, live_tail="tools", splits=False), histories(thinks=False, splits=False)
    ),
    st.data(),
)
def test_thinking_leads_the_last_calls_where_it_stands_by_hand(drawn, data):
    messages = list(thinking_once(drawn))
    history = read_history(messages)
    plan = data.draw(plans(history)).model_copy(update={"target_model": "claude-sonnet-4-5", "target_tokens": 50})

    def broken(listed):
        body = {"model": plan.target_model, "max_tokens": 2_000, "messages": listed}
        violations = judge(Request({**body, "thinking": {"type": "enabled", "budget_tokens": 1_024}}, {}))
        ours = check_messages(listed, model=plan.target_model, thinking_enabled=True)
        return {v.rule for v in violations} - {11}, {v.rule for v in ours if v.refused}

    shown = preview(plan, messages)
    for after, before in zip(broken(shown.messages), broken(messages), strict=True):
        assert after <= before


@given(attacks())
def test_the_view_never_grows_and_its_numbers_are_true(attack):
    messages, _, plan = attack
    shown = preview(plan, messages)
    counter = TokenCounter.for_model(plan.target_model)
    assert shown.tokens_before == counter.messages(messages)
    assert shown.tokens_after == shown.plan.estimated_tokens == counter.messages(shown.messages)
    assert shown.tokens_after <= shown.tokens_before
    assert (shown.first_changed_message is None) == all(a is b for a, b in zip(shown.messages, messages, strict=False))


@pytest.mark.real
@given(attacks())
def test_guarding_twice_is_guarding_once(attack):
    messages, _, plan = attack
    once = preview(plan, messages).plan
    assert check_plan(once, analyze(messages, plan.target_model)) == once
    assert preview(once, messages).messages == preview(plan, messages).messages


@given(attacks())
def test_applying_a_checked_plan_reads_and_lays_out_nothing_again(attack):
    messages, _, plan = attack
    checked = check_plan(plan, analyze(messages, plan.target_model))
    bound = checked.bound
    shown = preview(checked, messages)
    assert shown.plan is checked
    assert checked.bound is bound
    assert joined_messages([], shown.messages) == joined_messages([], bound.layout.messages)
    loaded = CompactionPlan.from_json(checked.to_json())
    assert json.dumps(preview(loaded, messages).messages) == json.dumps(shown.messages)


@given(attacks())
def test_failures_and_the_users_demands_stand(attack):
    messages, _, plan = attack
    shown = preview(plan, messages)
    text, evidence = said(shown.messages), evidence_for(plan, messages)
    flat = " ".join(text.split())
    stored = "user_words_cut" in {finding.code for finding in shown.plan.findings}
    for turn_id, turn in evidence.turns.items():
        if shown.plan.decisions[turn_id].strategy == "keep":
            continue
        covered = covered_failures(shown.plan.brief, evidence).get(turn_id, frozenset())
        for number in set(turn.decisive_lines) - covered:
            line = " ".join(turn.lines[number - 1].text.split())
            assert unframed(evidence.shown(line)) in flat or unframed(line) in flat
        if stored:
            continue
        for line in turn.typed_lines:
            assert unframed(line.text) in text


def unframed(words):
    """`words` as a view has them: only what would open or close one of its frames is written otherwise."""
    for tag in (tag for tag in TAGS if tag.startswith("<") and "system" not in tag and "function" not in tag):
        words = words.replace(tag, "‹" + tag[1:])
    return words


@given(attacks())
def test_the_live_tail_is_untouched_unless_it_would_fill_half_of_the_window(attack):
    messages, history, plan = attack
    counter = TokenCounter.for_model(plan.target_model)
    shown = preview(plan, messages)
    live = [turn for turn in history.turns if turn.live]
    size = sum(counter.messages(messages[turn.start : turn.stop]) for turn in live)
    for turn in live:
        if shown.plan.decisions[turn.id].strategy == "keep":
            kept = said(shown.messages)
            assert all(said([message]) in kept for message in messages[turn.start : turn.stop])
        else:
            assert turn.kind == "tools"
            assert size > plan.window_tokens / 2
            assert "live_demoted" in {finding.code for finding in shown.plan.findings}
            cure = f'restore_context("{turn.id}")' if plan.restore_tool else f"stored whole as {turn.id}"
            assert cure in said(shown.messages)


@pytest.mark.real
@given(attacks())
def test_nothing_but_what_the_plan_may_say_is_added_to_the_users_words(attack):
    messages, _, plan = attack
    shown = preview(plan, messages)
    source = unframed("\n".join(join_lines(turn.lines) for turn in evidence_for(plan, messages).turns.values()))
    for turn_id, decision in shown.plan.decisions.items():
        if decision.summary:
            assert "invented_summary" not in {f.code for f in shown.plan.findings if f.turn_id == turn_id}
    for words in FRAMED.findall("\n".join(notes(shown.messages))):
        assert all(piece in source for line in words.split("\n") for piece in line.split("…"))


FRAMED = re.compile(r"<user-words>(?!\.)(.*?)</user-words>", re.S)
"""A frame of the user's words; not ``in <user-words>.``, by which the guide names it."""


def notes(messages):
    """The texts of the notes in a view."""
    return [str(block.get("text")) for message in messages for block in blocks(message) if is_note(block)]


def is_note(block):
    return str(block.get("text", "")).startswith("<compacted")


def span(history, turn_id):
    turn = history.by_id[turn_id]
    return turn.start, turn.stop


@given(attacks())
def test_the_list_that_was_given_is_neither_changed_nor_copied(attack):
    messages, _, plan = attack
    snapshot, objects = deepcopy(messages), list(messages)
    shown = preview(plan, messages)
    assert messages == snapshot
    assert all(a is b for a, b in zip(messages, objects, strict=True))
    whole = [message for message in shown.messages if not any(map(is_note, blocks(message)))]
    given = {id(message) for message in messages}
    changed = [message for message in whole if id(message) not in given]
    assert all(stripped_or_demoted(message, messages) for message in changed)


def stripped_or_demoted(message, originals):
    """True if originals say the same, block by block, but for thinking, or for what a live result is cut to."""
    given = [block for original in originals for block in rest(original)]
    return all(block in given or "lines left out here" in str(block) for block in rest(message))


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


@pytest.mark.real
@given(attack=attacks())
def test_every_turn_that_a_note_stands_for_comes_back_exactly(store, attack):
    messages, history, plan = attack
    view = said(apply(plan, messages, store=store))
    gone = removed(preview(plan, messages).plan)
    key = history_key(history.digest)
    for turn_id in gone:
        assert f'<compacted history="{key}" turns="' in view or "lines left out here; " in view
        assert list(store.restore(f"{key}:{turn_id}").messages) == messages[slice(*span(history, turn_id))]
