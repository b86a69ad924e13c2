"""compact, dry run, recover, undo, restore, search, subagents, requests: what callers ask for by name."""

import gc
import re
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.agent_tools import handle_tool_use
from applier.session import PRESETS, Preset, Session
from applier.session.refusals import TooHeavy, TooLong, read_refusal
from applier.session.tiers import PlanTurns, SnipMiddle
from applier.settings import SessionSettings
from applier.store import open_store
from planner import PlanSettings, ReferenceNotFound, SettingsError, TranscriptError
from planner.validity import check_messages
from tests.session.agent import Agent, FailingStore
from tests.strategies import histories, make_session

ROOMY = 200_000


def test_a_dry_run_shows_what_compact_does_and_writes_nothing(session_of, store):
    session, history = session_of(window_tokens=60_000), make_session(30)
    session.prepare(history)
    shown = session.compact(history, dry_run=True)
    assert not shown.applied
    assert (session.log(), store.histories(), store.events()) == ([], (), ())
    assert session.prepare(history) == history
    done = session.compact(history)
    assert done.applied
    assert done.messages == shown.messages
    assert done.tokens_after == shown.tokens_after < done.tokens_before
    assert 0 < done.payback_calls < 20
    assert session.prepare(history) == done.messages
    assert session.prepare(done.messages) == done.messages, "whether the caller replaces its list or not"


def test_a_dry_run_on_a_view_creates_no_store(session_of, tmp_path):
    view = session_of(window_tokens=60_000).compact(make_session(30)).messages
    elsewhere = tmp_path / "elsewhere" / "store.db"
    with session_of(window_tokens=60_000, store=elsewhere) as session:
        session.compact(view, dry_run=True)
    assert not elsewhere.parent.exists()


def test_a_dry_run_changes_neither_the_session_nor_what_is_stored_at_its_end(session_of, store):
    session, history = session_of(window_tokens=60_000), make_session(30)
    view = session.compact(history).messages
    with session:
        session.compact([*history, {"role": "assistant", "content": "Fixed."}], dry_run=True)
        session.compact(make_session(4), dry_run=True)
        assert session.prepare(history) == view
        assert session.undo()
    assert [len(store.load_history(one.key).messages) for one in store.histories()] == [len(history)]


@settings(max_examples=25)
@given(histories(min_turns=3, max_turns=9), st.booleans(), st.booleans(), st.booleans())
def test_compacting_again_at_once_plans_and_changes_nothing(tmp_path_factory, history, at_limit, is_sent, goes_on):
    """Whether the list was handed out meanwhile or the session is opened anew; once something is answered, it does."""
    with open_store(tmp_path_factory.mktemp("again") / "s.db") as store:

        def opened():
            return Session(store=store, planner="rules", window_tokens=12_000, session_id="a", clock=lambda: 0.0)

        session = opened()
        done = session.compact(history, at_limit=at_limit)
        if is_sent:
            session.prepare(history)
        session = opened() if goes_on else session
        before = session.log(), session.plan, session.state.planned
        again = session.compact(history, at_limit=at_limit)
        assert again.is_repeated == done.applied
        if done.applied:
            assert again.messages == done.messages
            assert (session.log(), session.plan, session.state.planned) == before
        answered = [*history, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
        assert not session.compact(answered).is_repeated


def test_who_asks_at_his_limit_gets_a_share_of_that_whatever_the_window(session_of):
    """A client with a smaller window of its own, asking again and again: each time there is room again."""
    session = session_of(window_tokens=ROOMY)
    for end in range(30, 70, 8):
        done = session.compact(make_session(end), at_limit=True)
        assert done.tokens_after < done.tokens_before * 0.75
    assert session.state.limit_tokens > ROOMY / 2


@pytest.mark.real
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_compacts_on_command(session_of, preset):
    session, history = session_of(window_tokens=30_000, preset=preset), make_session(30)
    done = session.compact(history)
    assert done.applied
    assert done.tokens_after < done.tokens_before / 1.5
    assert not [violation for violation in check_messages(done.messages) if violation.refused]


@pytest.mark.real
def test_compacting_again_and_again_leaves_what_was_left_before(session_of):
    session = session_of(window_tokens=ROOMY)
    left = [session.compact(make_session(turns)).tokens_after for turns in (30, 36, 42, 48, 54, 60)]
    assert min(left) >= left[0] * 0.9, left


def test_nothing_worth_compacting_is_a_result(session_of):
    done = session_of(window_tokens=ROOMY).compact([{"role": "user", "content": "Please, do it."}])
    assert not done.applied
    assert "not shrink" in done.reason


def test_the_models_own_tool_asks_for_a_compaction(session_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    call = {"type": "tool_use", "id": "toolu_c", "name": "compact", "input": {"focus": "ticket-4703"}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_c", "content": "It will be done."}
    session.prepare(history)
    session.prepare([*history, {"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}])
    assert session.log()[-1].trigger == "tool"
    assert session.state.compactions == 1


def test_a_request_is_served_at_the_next_call(session_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    session.prepare(history)
    session.request_compaction()
    assert len(session.prepare(history)) < len(history)


def test_undo_goes_back_and_waits(session_of):
    session, history = session_of(window_tokens=60_000), make_session(30)
    session.prepare(history)
    session.compact(history)
    assert session.undo()
    assert session.prepare(history) == history
    assert not session.undo()
    assert [event.kind for event in session.log()] == ["pre_compact", "post_compact", "undone"]
    assert session.state.reclaimed_tokens == 0


@pytest.mark.real
def test_old_plans_hold_nothing_of_what_they_were_made_from_and_the_newest_can_be_undone(session_of):
    session = session_of(window_tokens=ROOMY)
    plans = (session.compact(make_session(turns)).plan for turns in range(30, 58, 2))
    read = [weakref.ref(plan.bound_analysis) for plan in plans]
    gc.collect()
    assert [analysis() is not None for analysis in read[:-2]] == [False] * 12
    undone = 0
    while session.undo():
        undone += 1
    assert undone == 10


@pytest.mark.real
def test_restore_and_search_reach_everything(session_of):
    session, history = session_of(), make_session(30)
    Agent(session).play(history)
    assert list(session.restore("t2").messages) == history[1:3]
    assert list(session.restore("t30").messages) == history[-2:]
    assert session.restore("t2", lines=(1, 1)).text == "Step 1: read for ticket-4701."
    assert "value7 " in session.restore("t2", search="value7 ").text
    best = session.search("ticket-4703").matches[0]
    assert (best.turn_id, best.lines) == ("t4", (1,))
    cut = session.search("refresh", limit=5)
    assert len(cut.matches) == 5 < cut.turns
    with pytest.raises(ReferenceNotFound):
        session.restore("t600")


TOO_LONG = "prompt is too long: 90000 tokens > 40000 maximum"


@pytest.mark.real
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_prompt_too_long_gets_one_shorter_list(session_of, preset):
    session, history = session_of(window_tokens=ROOMY, preset=preset), make_session(60)
    sent = session.prepare(history)
    shorter = session.recover(history, TOO_LONG)
    assert len(str(shorter)) < len(str(sent)) / 2
    assert not [violation for violation in check_messages(shorter) if violation.refused]
    assert session.state.tokens < session.state.limit_tokens <= 40_000, "the provider's own numbers are believed"
    assert session.recover(history, TOO_LONG) is None, "once"
    assert session.prepare(history) == shorter


def test_a_refusal_without_numbers_is_not_the_end_of_the_session(session_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    before = session.prepare(history)
    shorter = session.recover(history, RefusedError("request body", 413))
    assert len(str(shorter)) < len(str(before)) / 2
    grown = [*history, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And the other?"}]
    assert session.prepare(grown)[: len(shorter)] == shorter, "one refusal must not make every later prompt too long"


def test_another_error_is_not_ours(session_of):
    session = session_of()
    session.prepare(make_session(30))
    assert session.recover(make_session(30), "overloaded_error") is None


def test_recovery_without_a_store_gives_up(session_of, store, clock):
    from tests.session.agent import FailingStore

    failing = FailingStore(store)
    failing.broken = True
    session, history = session_of(store=failing, window_tokens=ROOMY), make_session(30)
    session.prepare(history)
    assert session.recover(history, TOO_LONG) is None
    assert session.prepare(history) == history


class RefusedError(Exception):
    def __init__(self, text, status_code):
        super().__init__(text)
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (TOO_LONG, TooLong(90_000, 40_000)),
        ("prompt is too long: 214,001 tokens > 200,000 maximum", TooLong(214_001, 200_000)),
        (RefusedError("Error code: 400 - prompt is too long", 400), TooLong()),
        (RefusedError("request body", 413), TooHeavy(is_size=True)),
        (RefusedError("messages: Too many images and document pages: 101 > 100", 400), TooHeavy(images=100)),
        (RefusedError("request contains 51 images, exceeding the maximum of 50 allowed", 400), TooHeavy(images=50)),
        (RefusedError("image exceeds 5 MB maximum: 6088408 bytes > 5242880 bytes", 400), TooHeavy(largest=5_242_880)),
        (RefusedError("exceed max allowed size for many-image requests: 2000 pixels", 400), TooHeavy(images=20)),
        (RefusedError("messages.0.content.1: invalid image", 400), None),
        ("This model's maximum context length is 8192 tokens", TooLong(0, 8_192)),
        (
            "maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens",
            TooLong(9_001, 8_192),
        ),
        ("`max_tokens` exceed context limit: 199211 + 20000 > 200000, decrease", TooLong(199_211, 180_000)),
        ({"stop_reason": "model_context_window_exceeded", "content": []}, TooLong()),
        ({"stop_reason": "end_turn", "content": "the prompt is too long"}, None),
        (RefusedError("invalid api key", 401), None),
        (None, None),
    ],
)
def test_which_errors_mean_too_long(error, read):
    assert read_refusal(error) == read


def test_usage_calibrates_the_counter(session_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    session.prepare(history)
    counted = session.state.tokens
    usage = {"input_tokens": 10, "cache_read_input_tokens": counted // 2, "cache_creation_input_tokens": 0}
    session.observe({"usage": usage})
    assert session.state.tokens == pytest.approx(counted // 2 + 10, abs=1)
    session.observe({"usage": {"input_tokens": 3}})
    assert session.state.tokens == pytest.approx(counted // 2 + 10, abs=1), "that was about another prompt"
    session.observe("what is this")


CUT_OFF = {"stop_reason": "model_context_window_exceeded", "usage": None}


def sdk_message(**fields):
    from anthropic.types import Message

    return Message.model_construct(**fields)


@pytest.mark.parametrize("answer_of", [dict, pytest.param(sdk_message, marks=pytest.mark.real)])  # loads the SDK
def test_an_answer_cut_off_by_the_window_asks_for_a_compaction(session_of, answer_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    session.prepare(history)
    session.observe(answer_of(**CUT_OFF))
    assert len(session.prepare(history)) < len(history)


@pytest.mark.real
def test_system_and_tools_that_leave_no_room_are_an_error_not_a_loop(session_of):
    tools = [{"name": f"tool_{number}", "input_schema": {"description": "x y z " * 50}} for number in range(100)]
    with pytest.raises(SettingsError, match="raise window_tokens"):
        session_of(tools=tools)
    session, history = session_of(), make_session(30)
    session.set_request(tools=tools)
    assert session.prepare(history) == history
    session.set_request(tools=tools)
    session.prepare(history)
    assert [event.kind for event in session.log()] == ["fixed_parts_too_large"]
    session.set_request()
    assert len(session.prepare(history)) < len(history)


def test_an_unknown_preset_is_named(session_of):
    with pytest.raises(SettingsError, match="three-layer"):
        session_of(preset="layers")


@pytest.mark.parametrize("planner", ["gpt-5", None, object()])
def test_an_unknown_planner_is_said_at_once(tmp_path, planner):
    with pytest.raises(SettingsError, match="have a propose method"):
        Session(store=tmp_path / "store.db", planner=planner or 5)


def test_claude_auto_compact_off_leaves_only_what_is_asked_for(session_of, monkeypatch):
    monkeypatch.setenv("CLAUDE_AUTO_COMPACT", "false")
    session, history = session_of(), make_session(30)
    assert session.prepare(history) == history
    assert session.compact(history).applied


@pytest.mark.real
def test_children_have_their_own_budget_and_the_same_store(session_of, store):
    with session_of(session_id="root", window_tokens=ROOMY) as parent:
        child = parent.child("look for the test", window_tokens=8_000)
        assert child.session_id.startswith("root.")
        assert child.state.window_tokens == 8_000
        Agent(child).play(make_session(30))
        assert child.state.compactions >= 1
        assert parent.state.compactions == 0
        child.close()
        assert list(parent.restore(f"{child.state.history_key}:t2").messages) == make_session(30)[1:3]
    assert {event["session"] for event in store.events()} == {child.session_id}


def test_a_child_after_a_restart_begins_a_new_history(session_of):
    ids, history = set(), make_session(30)
    for _ in range(2):
        with session_of(session_id="root") as parent, parent.child("look for the test") as child:
            assert child.state.history_messages == 0
            assert child.compact(history).applied
            assert child.state.compactions == 1
            ids.add(child.session_id)
    assert len(ids) == 2


def test_a_session_opens_its_store_only_when_it_must(tmp_path, clock):
    with Session("x", store=tmp_path / "deep" / "store.db", clock=clock, planner="rules") as session:
        session.prepare(make_session(5))
    assert not (tmp_path / "deep").exists()


def test_cache_marks_of_a_compacted_region_are_left_out(session_of):
    history = make_session(30)
    for message in history:
        if isinstance(message["content"], list):
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    session = session_of(window_tokens=60_000)
    done = session.compact(history)
    assert str(done.messages).count("cache_control") <= 4


def test_idle_time_makes_a_compaction_free(session_of, clock):
    history = make_session(60)
    session = session_of(window_tokens=60_000)
    session.prepare(history[:-2])
    assert session.log() == []
    clock.pass_(301)
    session.prepare(history)
    assert session.log()[-1].trigger == "idle"


@pytest.mark.real
def test_what_a_dry_run_has_seen_is_still_new_to_the_tiers(session_of):
    history = make_session(4)
    history[-1]["content"][0]["content"] = "\n".join(f"row {number} of a long listing" for number in range(5_000))
    session = session_of(window_tokens=30_000)
    session.compact(history, dry_run=True)
    assert len(str(session.prepare(history))) < len(str(history)) / 3
    assert session.log()[-1].trigger == "arrival"


@pytest.mark.real
def test_a_recovery_keeps_as_much_as_the_user_says(session_of):
    left = {}
    for ratio in (0.1, 0.5):
        plan = PlanSettings(target_ratio=ratio)
        session = session_of(window_tokens=ROOMY, settings=SessionSettings(plan=plan))
        session.prepare(make_session(60))
        session.recover(make_session(60), "prompt is too long: 45000 tokens > 40000 maximum")
        left[ratio] = session.state.tokens / session.state.limit_tokens
    assert left[0.1] < 0.25 < left[0.5] < 0.75


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": None},
        {"task": ["fix"]},
        {"model": 5},
        {"system": [5]},
        {"system": 5},
        {"tools": [None]},
        {"preset": {"relevance"}},
        {"hooks": [print]},
        {"hooks": {"post_compact": 3}},
        {"hooks": {"post_compact": [print, None]}},
        {"hooks": {"*": "print"}},
        {"session_id": 7},
        {"clock": 3.0},
    ],
    ids=str,
)
def test_an_argument_of_the_wrong_type_is_named_when_a_session_begins(session_of, wrong):
    (name,) = wrong
    with pytest.raises(SettingsError, match=f"{name}"):
        session_of(**wrong)


@pytest.mark.real
@pytest.mark.parametrize(
    "wrong",
    [
        {"model": 5},
        {"system": [5]},
        {"tools": [None]},
        {"thinking": "on"},
        {"max_output_tokens": "many"},
    ],
    ids=str,
)
def test_a_request_of_the_wrong_form_changes_nothing(session_of, wrong):
    session, history = session_of(), make_session(40)
    before = session._state.pressure.call
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        session.set_request(**wrong)
    assert session._state.pressure.call is before
    session.set_request(thinking=None)
    for what in ({"body": 5}, {"body": {}, "headers": "x-api-key"}):
        with pytest.raises(SettingsError, match=next(reversed(what))):
            session.note_sent(client=None, **what)
    assert check_messages(session.prepare(history)) == []
    assert {event.kind for event in session.log()} <= {"pre_compact", "post_compact"}


@pytest.mark.parametrize("wrong", [None, 5, "words", {"role": "user"}, b"", [5]], ids=str)
def test_what_is_no_list_of_messages_is_refused_by_name(session_of, wrong):
    session = session_of()
    with pytest.raises(TranscriptError, match="messages"):
        session.compact(wrong)
    assert session.recover(wrong, "prompt is too long") is None
    assert session.prepare(wrong) == wrong


def test_what_is_no_name_and_no_text_is_not_looked_for(session_of):
    session = session_of()
    session.prepare(make_session(40))
    with pytest.raises(ReferenceNotFound, match="None is no reference"):
        session.restore(None)
    for wrong in ({"text": None}, {"text": b"x"}, {"text": "x", "tool": 5}, {"text": "x", "limit": "all"}):
        with pytest.raises(SettingsError, match=next(reversed(wrong))):
            session.search(**wrong)
    with pytest.raises(SettingsError, match="task"):
        session.task = None
    block = {"type": "tool_use", "id": "c1", "name": "restore_context", "input": "t3"}
    assert handle_tool_use(session, block)["is_error"]


# What stands in the way of a compaction, and what is counted of one.


def test_over_the_window_a_store_that_works_again_is_used_at_the_next_call(store, session_of):
    """It rests for half a minute otherwise; meanwhile every request would be refused by the provider."""
    failing = FailingStore(store)
    session, history = session_of(store=failing), make_session(30)
    failing.broken = True
    assert session.prepare(history) == history
    assert session.state.tokens > session.state.limit_tokens
    spoken = len(session.log())
    assert session.prepare(history) == history
    assert len(session.log()) == spoken, "and while it does not, nothing is planned in vain"
    failing.broken = False
    session.prepare(history)
    assert session.state.tokens <= session.state.limit_tokens
    assert [event.tier for event in session.log() if event.kind == "post_compact"] == ["plan"], "not a harder step"


def test_what_is_compacted_again_is_reclaimed_once(session_of):
    session, history = session_of(window_tokens=ROOMY), make_session(30)
    for _ in range(3):
        done = session.compact(history)
        assert session.state.reclaimed_tokens == done.tokens_before - done.tokens_after > 0
        assert session.undo()
        assert session.state.reclaimed_tokens == 0
    assert session.compact(history).applied
    session.prepare(history[:3])
    assert session.state.reclaimed_tokens == 0, "of a list that was rewound nothing is left out"


def test_a_dropped_turn_returns_when_the_task_returns_to_it(session_of):
    detail = "the handshake_token is rotated by rotate_handshake_key in src/secret_handshake.ts"
    preset = Preset("snipped", manual=(SnipMiddle(60, 1, 2, 0), PlanTurns(0.2)))
    session, history = session_of(window_tokens=60_000, preset=preset), make_session(40)
    filler = [f"filler line {number}" for number in range(60)]
    history[4]["content"][0]["content"] = "\n".join([*filler, detail, *filler])
    agent = Agent(session).play(history)
    assert session.compact(agent.messages).tier == "snip"
    agent.call()
    assert detail not in str(agent.sent[-1])
    agent.play(make_session(60)[79:])
    session.task = "Change rotate_handshake_key in src/secret_handshake.ts"
    session.compact(agent.messages, focus="rotate_handshake_key handshake_token src/secret_handshake.ts")
    agent.call()
    assert "rotate_handshake_key" in str(agent.sent[-1])


@pytest.mark.parametrize("end", ["", "Now the tests, please."])
def test_the_task_of_a_session_is_the_users_own_words(session_of, end):
    """A host's text in front of them would fill the planner's room for the task."""
    history = make_session(20)
    words = history[0]["content"]
    reminder = f"<system-reminder>\n{'Attribution for commits: none. ' * 200}\n</system-reminder>"
    history[0] = {"role": "user", "content": [{"type": "text", "text": text} for text in (reminder, words)]}
    if end:
        history += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": end}]
    done = session_of(window_tokens=60_000, task="").compact(history, dry_run=True)
    assert done.plan.task == "\n".join(filter(None, (words, end)))


def test_an_empty_list_cannot_be_compacted(session_of):
    session, history = session_of(), make_session(20)
    assert (session.compact([]).reason, session.compact([]).messages) == ("no messages", [])
    session.prepare(history)
    done = session.compact([])
    assert (done.applied, done.reason, done.messages) == (False, "no messages", [])
    assert session.state.history_messages == len(history)
    assert session.log() == []


@pytest.mark.parametrize("value", [{"role": "user", "content": "x"}, "hallo", None, 5, {}, ""], ids=str)
def test_a_value_that_is_no_list_of_messages_is_returned_unchanged(session_of, value):
    session = session_of()
    assert session.prepare(value) is value
    assert [event.kind for event in session.log()] == ["prepare_failed"]
    assert f"expected a list of messages, found {type(value).__name__}" in session.log()[0].message
    assert session.recover(value, "tool_use ids were found without tool_result blocks immediately after: a") is None


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"lines": "1-3"}, r"lines: expected the first and the last line, as in \(1, 3\), found '1-3'"),
        ({"lines": (1,)}, r"lines: .* found \(1,\)"),
        ({"lines": ("1", "3")}, r"lines: .* found \('1', '3'\)"),
        ({"search": 5}, "search: expected text to search for, found int"),
        ({"max_characters": "9"}, "max_characters: expected a number of characters, found str"),
    ],
)
def test_a_wrong_argument_of_restore_is_named(session_of, wrong, problem):
    session = session_of()
    session.prepare(make_session(20))
    with pytest.raises(SettingsError, match=problem):
        session.restore("t2", **wrong)
    assert session.restore("t2", lines=[1, 1]).lines == (1, 1)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"limit": -1}, "limit: expected a number of turns, from 0 on, or None for all, found -1"),
        ({"limit": "3"}, "limit: .* found '3'"),
        ({"part": "foo"}, "part: expected one of user, assistant, call, result, found 'foo'"),
        ({"part": 5}, "part: .* found 5"),
    ],
)
def test_a_wrong_argument_of_search_is_named(session_of, wrong, problem):
    session = session_of()
    session.prepare(make_session(20))
    with pytest.raises(SettingsError, match=problem):
        session.search("refresh", **wrong)


@pytest.mark.parametrize(("reference", "wanted"), [("T26", {}), ("t0", {}), ("", {}), ("t2", {"search": "nowhere"})])
def test_an_error_that_no_later_call_cures_names_none(session_of, reference, wanted):
    session = session_of()
    session.compact(make_session(40))
    with pytest.raises(ReferenceNotFound) as caught:
        session.restore(reference, **wanted)
    assert "prepare" not in str(caught.value)


def test_a_turn_needs_its_key_while_a_view_of_an_unknown_store_leads_the_list(session_of, tmp_path):
    history = make_session(40)
    with open_store(tmp_path / "other.db") as other:
        first = session_of(store=other)
        view = first.prepare(history)
        assert first.state.compactions == 1
        key = first.state.history_key
    more = [{"role": "assistant", "content": "No."}, {"role": "user", "content": "Please send it."}]
    session = session_of(window_tokens=60_000)
    session.prepare([*view, *more])
    session.prepare([*view, *more, *more])
    events = [event for event in session.log() if event.kind == "unknown_view"]
    assert len(events) == 1
    assert key in events[0].message
    needs_key = pytest.raises(
        ReferenceNotFound, match=f"begins with a view of {key}, .*{key}:t2 for a turn of the view"
    )
    with needs_key as raised:
        session.restore("t2")
    own = re.search(r"or (h\w+:t2) for one of this session", str(raised.value))[1]
    assert session.restore(own).messages
    with pytest.raises(ReferenceNotFound, match=f"no history {key}"):
        session.restore(f"{key}:t2")
    session.prepare(history)
    assert session.restore("t2").messages[0] == history[1]
