"""What hosts do that once hurt them: each a law or a case that failed before."""

import base64
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.agent_tools import AGENT_TOOLS, handle_tool_use
from applier.session import Session
from applier.session.planning import Planning, Worker
from applier.session.pressure import Gauge
from applier.settings import SessionSettings, load_settings
from applier.store import history_key, open_store
from applier.store.opening import SessionStore
from planner.errors import SettingsError, StoreError
from planner.reading.messages import blocks, plain_message, read_history
from planner.settings import PlanSettings
from planner.validity import check_messages
from tests.patience import PATIENCE_SECONDS
from tests.session.agent import Agent, Clock, finished
from tests.strategies import histories, image, make_session, text

TOOLS = [{"name": f"tool_{number}", "input_schema": {"description": "some words on it " * 60}} for number in range(20)]


def grown(reads, characters, start=None):
    """A history of `reads` calls whose results have `characters` each; it ends with one that waits."""
    messages = start or [{"role": "user", "content": "Read them all, and mind src/auth.ts."}]
    for number in range(reads):
        line = f"row {number} of the file, with value_{number} in it\n"
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": f"f{number}.py"}}
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": line * (characters // len(line))}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    return messages


def refused(messages, **more):
    return [violation for violation in check_messages(messages, **more) if violation.refused]


# What the model waits for is sent whole.


@pytest.mark.real
@settings(max_examples=12)
@given(histories(min_turns=4, max_turns=10), st.integers(4_000, 60_000), st.integers(0, 20))
def test_what_the_model_waits_for_is_sent_as_it_came(tmp_path_factory, history, window, tools):
    with open_store(tmp_path_factory.mktemp("live") / "s.db") as store:
        session = Session(
            "x",
            store=store,
            clock=Clock(),
            planner="rules",
            window_tokens=window,
            tools=TOOLS[:tools] if window > 40_000 else None,
        )
        for end in range(1, len(history) + 1):
            if history[end - 1]["role"] == "user":
                sent = session.prepare(history[:end])
                newest = list(blocks(plain_message(history[end - 1])))
                waits = sum(session._state.ledger.tracker.counted[session._state.ledger.tracker.live_start :])
                if waits < session.state.limit_tokens * 0.5:
                    assert all(block in blocks(plain_message(sent[-1])) for block in newest)


@pytest.mark.real
@pytest.mark.parametrize(
    ("window", "characters"), [(60_000, 9_800), pytest.param(200_000, 60_000, marks=pytest.mark.slow)]
)
def test_a_read_is_never_cut_on_arrival(session_of, window, characters):
    session, history = session_of(window_tokens=window), grown(14, characters)
    for end in range(1, len(history) + 1, 2):
        newest = history[end - 1]["content"]
        sent = session.prepare(history[:end])[-1]["content"]
        assert sent == newest if isinstance(newest, str) else sent[0] == newest[0]


def _parallel_reads(**characters):
    """Calls by name, and the message that answers them with so many characters each."""
    calls = [{"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": name}} for name in characters]
    lines = {name: f"row {name} of the file, with value_{name} in it\n" for name in characters}
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": lines[name] * (size // len(lines[name]))}
        for name, size in characters.items()
    ]
    return calls, {"role": "user", "content": results}


@pytest.mark.real
@pytest.mark.parametrize("preset", ["relevance", "claude-code"])
def test_what_was_tried_while_a_huge_result_was_whole_does_not_rest_until_the_prompt_is_as_large_again(
    session_of, preset
):
    """What could not be helped by a plan then can be at the next calls, and must not be left to the last resorts."""
    session, history = session_of(preset=preset, settings=load_settings(max_output_tokens=500)), grown(8, 6_000)
    for end in range(1, len(history) + 1, 2):
        session.prepare(history[:end])
    asked, answered = _parallel_reads(huge=30_000, large=14_400)
    history = [*history, {"role": "assistant", "content": [text("I must look at it. " * 240), *asked]}, answered]
    session.prepare(history)
    seen = len(session.log())
    for number in range(9):
        asked, answered = _parallel_reads(**{f"later_{number}": 1_200})
        history = [*history, {"role": "assistant", "content": asked}, answered]
        session.prepare(history)
        assert session.state.tokens <= session.state.limit_tokens
    by = {event.tier for event in session.log()[seen:] if event.kind == "post_compact"}
    assert by == {"plan"}


@pytest.mark.real
@pytest.mark.parametrize("preset", ["relevance", "claude-code", "three-layer"])
def test_what_could_not_fit_while_the_model_waited_for_it_is_compacted_at_the_next_call(session_of, preset):
    """A file that the model writes is no result, so nothing can give way; once that is answered, the plan takes it."""
    session, history = session_of(preset=preset), grown(6, 4_000)
    written = "".join(f"line {number} of the module, value_{number} = {number * 7}\n" for number in range(1_200))
    call = {"type": "tool_use", "id": "w", "name": "Write", "input": {"file_path": "big.py", "content": written}}
    answer = {"type": "tool_result", "tool_use_id": "w", "content": "File written."}
    history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    session.prepare(history)
    assert session.state.tokens > session.state.limit_tokens
    assert session.log()[-1].kind == "still_too_large"
    session.prepare([*history, *grown(1, 100, [])])
    assert session.state.tokens <= session.state.limit_tokens


@pytest.mark.real
@pytest.mark.parametrize("failures", [0, 40])
def test_where_a_plan_leaves_too_much_the_harder_steps_follow_whatever_they_came_to_before(session_of, failures):
    """And what the model waits for stays whole: it would give way last of all."""
    session, history = session_of(), grown(6, 4_000)
    written = "".join(f"line {number} of the module, value_{number} = {number * 7}\n" for number in range(600))
    failed = "".join(
        f"FAILED tests/test_{at}.py::test_{at} - AssertionError: {at} is not 3\n" for at in range(failures)
    )
    calls = [
        {"type": "tool_use", "id": "w", "name": "Write", "input": {"file_path": "big.py", "content": written}},
        {"type": "tool_use", "id": "b", "name": "Bash", "input": {"command": "pytest"}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "w", "content": "File written."},
        {"type": "tool_result", "tool_use_id": "b", "content": f"Exit code 1\n{failed}", "is_error": True},
    ]
    history += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    session.prepare(history)
    history += grown(1, 9_000, [])
    assert session.prepare(history)[-1]["content"][0] == history[-1]["content"][0]
    assert session.state.tokens <= session.state.limit_tokens


def test_system_and_tools_are_not_counted_into_a_result(session_of):
    system = "Be careful with everything. " * 1_500
    session = session_of(preset="three-layer", window_tokens=200_000, system=system, tools=TOOLS)
    history = grown(3, 60_000)
    assert session.prepare(history)[-1]["content"][0] == history[-1]["content"][0]
    assert not session.log()


@pytest.mark.real
def test_what_cannot_fit_is_cut_last_of_all_and_that_is_logged(session_of):
    session, history = session_of(window_tokens=8_000, tools=AGENT_TOOLS), grown(3, 90_000)
    sent = session.prepare(history)
    assert session.state.tokens <= session.state.limit_tokens
    assert "restore_context" in str(sent[-1])
    assert any(event.kind == "post_compact" for event in session.log())


def asked_at_once(name, contents):
    calls = [{"type": "tool_use", "id": f"r{n}", "name": name, "input": {}} for n in range(len(contents))]
    results = [{"type": "tool_result", "tool_use_id": f"r{n}", "content": each} for n, each in enumerate(contents)]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


@pytest.mark.real
@pytest.mark.parametrize(
    ("window", "pages"),
    [(12_000, 12), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((30_000, 4), (60_000, 12)))],
)
def test_pages_that_were_asked_for_at_once_give_way_where_together_they_do_not_fit(session_of, window, pages):
    session, history = session_of(window_tokens=window, tools=AGENT_TOOLS), grown(14, 30_000)
    session.prepare(history)
    calls = [{"type": "tool_use", "id": "x", "name": "restore_context", "input": {"reference": f"t{at}"}}
             for at in range(2, pages + 2)]  # fmt: skip
    looked_up = [handle_tool_use(session, call)["content"] for call in calls]
    sent = session.prepare(history + asked_at_once("restore_context", looked_up))
    assert session.state.tokens <= session.state.limit_tokens
    whole = [block["content"] in looked_up for block in blocks(sent[-1]) if block["type"] == "tool_result"]
    assert len(whole) == pages
    assert any(whole) or window < 30_000 or pages > 4


def test_screenshots_that_do_not_fit_together_give_way(session_of):
    session = session_of(window_tokens=12_000)
    shots = asked_at_once("look", [[image(1_500, 1_000)] for _ in range(12)])
    sent = session.prepare([{"role": "user", "content": "Look at all pages."}, *shots])
    assert session.state.tokens <= session.state.limit_tokens
    assert "with 1 image]" in str(sent[-1])


def test_a_preview_says_what_of_a_result_was_no_text(session_of):
    pages = base64.b64encode(b"%PDF-1.4 /Type /Page " * 40).decode()
    scan = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pages}}
    calls = [{"type": "tool_use", "id": f"c{at}", "name": "scan", "input": {}} for at in range(9)]
    content = ([scan], [scan, image(1200, 1200)], [scan, image(1200, 1200), scan])
    results = [
        {"type": "tool_result", "tool_use_id": c["id"], "content": content[at % 3]} for at, c in enumerate(calls)
    ]
    asked = [{"role": "user", "content": "Scan it."}, {"role": "assistant", "content": calls}]
    sent = session_of().prepare([*asked, {"role": "user", "content": results}])[-1]["content"]
    assert [result["content"].split("\n")[0] for result in sent[:3]] == ["[no text]"] * 3
    assert "with 1 document]" in sent[0]["content"]
    assert "with 1 image and 1 document]" in sent[1]["content"]
    assert "with 1 image and 2 documents]" in sent[2]["content"]


def test_a_refused_list_whose_newest_results_are_too_long_is_recovered(session_of):
    session, history = session_of(window_tokens=60_000), grown(1, 60_000)
    sent = session.prepare(history)
    assert sent == history
    shorter = session.recover(history, "prompt is too long: 61000 tokens > 60000 maximum")
    assert shorter is not None
    assert session.state.tokens <= session.state.limit_tokens


@pytest.mark.real
def test_large_fixed_parts_leave_the_goal_to_the_messages(session_of):
    bare, heavy = (session_of(window_tokens=60_000, system=text) for text in (None, "word " * 15_000))
    sizes = []
    for session in (bare, heavy):
        done = session.compact(make_session(120))
        assert done.applied
        sizes.append(done.tokens_after - session._state.pressure.gauge.prompt(0))
    assert sizes[1] > sizes[0] * 0.4, "the system prompt does not eat what messages may keep"


# Settings.


def test_the_window_of_plans_is_the_sessions_unless_that_is_set(session_of, monkeypatch):
    monkeypatch.setenv("COMPACTOR_PLAN__WINDOW_TOKENS", "60000")
    assert session_of(window_tokens=None).state.window_tokens == 60_000
    assert session_of(window_tokens=30_000).state.window_tokens == 30_000


@pytest.mark.real
def test_the_target_ratio_is_how_much_a_compaction_leaves(session_of):
    left = {}
    for ratio in (0.1, 0.6):
        session = session_of(window_tokens=200_000, settings=SessionSettings(plan=PlanSettings(target_ratio=ratio)))
        done = session.compact(make_session(200))
        left[ratio] = done.tokens_after / done.tokens_before
    assert all(abs(share - ratio) < 0.1 for ratio, share in left.items()), left


@pytest.mark.real
def test_the_environment_says_how_much_and_when(session_of, monkeypatch):
    monkeypatch.setenv("COMPACTOR_PLAN__TARGET_RATIO", "0.5")
    monkeypatch.setenv("COMPACTOR_COMPACT_AT_RATIO", "0.3")
    session = session_of(window_tokens=40_000)
    Agent(session).play(make_session(90))
    first = next(event for event in session.log() if event.kind == "post_compact")
    assert first.trigger == "compact_at"
    assert first.tokens_before == pytest.approx(0.3 * session.state.limit_tokens, rel=0.1)
    assert first.tokens_after == pytest.approx(0.5 * first.tokens_before, rel=0.25)


def test_typos_are_errors_with_the_cure(session_of, monkeypatch):
    with pytest.raises(SettingsError, match="did you mean post_compact"):
        session_of(hooks={"post_compct": print})
    with pytest.raises(SettingsError, match="hooks: expected callables, found int"):
        session_of(hooks={"post_compact": 3})
    monkeypatch.setenv("COMPACTOR_WINDOW_TOKEN", "50000")
    with pytest.raises(SettingsError, match="did you mean COMPACTOR_WINDOW_TOKENS"):
        load_settings()
    with pytest.raises(SettingsError, match="WINDOW_TOKENS"):
        SessionSettings()


def test_credentials_are_looked_for_where_the_planner_looks(monkeypatch):
    def planning(model=""):
        return Planning("auto", None, SessionSettings(planner_model=model), Clock(), print)

    assert not planning().asks_a_model
    assert planning("openai/gpt-5-mini").asks_a_model
    monkeypatch.setenv("ANTHROPIC_IDENTITY_TOKEN", "x")
    assert planning().asks_a_model


# Calibration.


@given(
    fixed=st.integers(0, 60_000),
    told=st.booleans(),
    ratio=st.floats(0.5, 1.0),
    sizes=st.lists(st.integers(800, 20_000), min_size=2, max_size=8),
)
def test_the_gauge_learns_a_ratio_and_what_stands_beside_it(fixed, told, ratio, sizes):
    gauge, counted = Gauge(fixed if told else 0), 0
    for size in sizes:
        counted += size
        gauge = gauge.calibrated(counted, int((fixed + counted) * ratio), 200_000)
        assert gauge.prompt(counted) == pytest.approx((fixed + counted) * ratio, abs=5)
    more = counted + 5_000
    assert gauge.prompt(more) == pytest.approx((fixed + more) * ratio, rel=0.06, abs=900)
    assert gauge.of_messages(1_000) <= 1_300, "what stands beside makes no message longer"


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**8)), max_size=20), st.integers(0, 10**5))
def test_no_usage_breaks_the_gauge(usages, fixed):
    gauge = Gauge(fixed)
    for counted, actual in usages:
        before = gauge.prompt(counted)
        gauge = gauge.calibrated(counted, actual, 200_000)
        assert 0.4 <= gauge.ratio <= 2.5 or gauge.is_doubted
        assert 0 <= gauge.prompt(0) <= (2.5 * fixed + 2_000 if fixed else 200_000) + 1
        if actual >= 0.4 * counted:
            assert abs(gauge.prompt(counted) - actual) <= abs(before - actual) + 1, "usage is never ignored"


@given(
    st.sampled_from([0, 20_000, 90_000, 120_000, 150_000]),
    st.floats(0.5, 1.0),
    st.lists(st.integers(3_000, 6_000), min_size=2, max_size=6),
)
def test_two_prompts_tell_how_large_an_untold_system_prompt_is(system, ratio, sizes):
    gauge, counted = Gauge(), 0
    for number, size in enumerate(sizes):
        counted += size
        gauge = gauge.calibrated(counted, system + round(counted * ratio), 200_000)
        if number:
            assert gauge.ratio == pytest.approx(ratio, abs=0.01)
            assert gauge.prompt(counted) == pytest.approx(system + counted * ratio, abs=5)
    gauge = gauge.calibrated(counted + 100, system + round((counted + 100) * ratio), 200_000)
    assert gauge.ratio == pytest.approx(ratio, abs=0.01), "and so it stays while little is added"


def test_an_untold_system_prompt_cuts_nothing(session_of):
    session, history = session_of(window_tokens=200_000), grown(2, 8_000)
    session.prepare(history[:3])
    session.observe({"usage": {"input_tokens": 15_000 + session.state.tokens}})
    assert session.prepare(history)[-1]["content"][0] == history[-1]["content"][0]
    assert session._state.pressure.gauge.ratio == 1.0


# The request.


def thinking_history(turns):
    history = make_session(turns)
    for number, message in enumerate(history[1::2]):
        message["content"].insert(0, {"type": "thinking", "thinking": f"Let me see {number}.", "signature": "c2ln"})
    return history


def test_manual_thinking_stays_where_the_request_needs_it(session_of):
    session, history = session_of(window_tokens=60_000), thinking_history(30)
    session.set_request(model="claude-sonnet-4-5", thinking={"type": "enabled", "budget_tokens": 2_000})
    done = session.compact(history)
    assert done.applied
    assert refused(done.messages, model="claude-sonnet-4-5", thinking_enabled=True) == []
    assert done.messages[-2]["content"][0]["type"] == "thinking"


@pytest.mark.real
def test_preserved_thinking_goes_unless_the_api_drops_it_itself(session_of):
    for thinking, left in (({"type": "adaptive"}, False), (None, False)):
        session = session_of(window_tokens=60_000)
        session.set_request(model="claude-opus-5-5", thinking=thinking)
        assert ("Let me see" in str(session.compact(thinking_history(30)).messages)) is left


def test_what_was_thought_behind_a_compaction_goes_when_that_is_undone(session_of):
    session, history = session_of(window_tokens=60_000, model="claude-opus-5-5"), thinking_history(30)
    session.prepare(history[:-4])
    session.compact(history[:-4])
    session.prepare(history[:-2])
    assert session.undo()
    sent = session.prepare(history)  # with an answer to the list that was compacted
    assert "Let me see 29." not in str(sent)
    assert all(a is b for a, b in zip(sent[:-2], history[:-2], strict=True)), "what was thought before stands again"


def test_an_answer_without_thinking_behind_an_undone_compaction_goes_out_as_it_came(session_of):
    session, history = session_of(window_tokens=60_000, model="claude-opus-5-5"), make_session(30)
    session.compact(history)
    assert session.undo()
    longer = [*history, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
    assert all(a is b for a, b in zip(session.prepare(longer), longer, strict=True))


def test_an_answer_to_the_list_that_was_sent_after_an_undo_keeps_its_thinking(session_of):
    session, history = session_of(window_tokens=60_000, model="claude-opus-5-5"), thinking_history(30)
    assert session.compact(history[:-2]).applied
    assert session.undo()
    session.prepare(history[:-2])
    assert session.prepare(history)[-2] is history[-2]


def test_the_view_names_only_tools_that_the_agent_has(session_of):
    reading = {"name": "Read", "input_schema": {}}
    for tools, named in ((None, False), ([reading], False), ([reading, *AGENT_TOOLS], True)):
        session, history = session_of(window_tokens=60_000, tools=tools), make_session(30)
        for agent in (session, session.child("look for the test", tools=tools)):
            done = agent.compact(history)
            assert done.applied
            assert ("restore_context" in str(done.messages)) is named


# Cache marks.


def marked(history, at=-1):
    listed = deepcopy(history)
    listed[at]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return listed


def marks_of(message):
    return str(message).count("cache_control")


def test_the_newest_mark_survives_and_one_ends_the_compacted_part(session_of):
    session, history = session_of(window_tokens=60_000), make_session(30)
    sent = session.compact(marked(history)).messages
    head = len(session._state.ledger.committed.frame.head)
    assert marks_of(sent[-1]) == 1
    assert marks_of(sent[head - 1]) == 1
    assert marks_of(sent) == 2


@pytest.mark.real
@pytest.mark.parametrize("taken", range(5))
def test_a_request_never_has_more_than_four_marks(session_of, taken):
    system = [{"type": "text", "text": f"part {n}", "cache_control": {"type": "ephemeral"}} for n in range(taken)]
    session = session_of(window_tokens=60_000, system=system or None)
    sent = session.compact(marked(make_session(30))).messages
    assert taken + marks_of(sent) <= max(4, taken + 1)
    assert marks_of(sent[-1]) == 1


def test_a_caller_without_marks_gets_none(session_of):
    assert marks_of(session_of(window_tokens=60_000).compact(make_session(30)).messages) == 0


def test_a_mark_inside_a_result_that_is_cut_stays(session_of):
    history = grown(2, 90_000)
    text = history[-1]["content"][0]["content"]
    history[-1]["content"][0]["content"] = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    sent = session_of(window_tokens=8_000).prepare(history)
    assert len(str(sent[-1])) < 20_000
    assert marks_of(sent[-1]) == 1


# Stores that cannot be had.


class Raising:
    """A store that fails in its own way."""

    def __init__(self, error):
        self.error = error

    def __getattr__(self, name):
        def fail(*args, **kwargs):
            raise self.error

        return fail


@pytest.mark.real
@pytest.mark.parametrize(
    "store",
    [
        "~nosuchuser/x.db",
        "a\0b",
        "postgresql://[broken",
        Raising(ValueError("no")),
        Raising(TypeError()),
        Raising(IndexError()),
    ],
)
def test_prepare_never_raises_whatever_the_store_does(clock, store):
    session, history = Session("x", store=store, clock=clock, planner="rules", window_tokens=8_000), make_session(40)
    agent = Agent(session).play(history)
    assert refused(agent.sent[-1]) == []
    assert "store_failed" in [event.kind for event in session.log()]
    assert session.recover(history, "prompt is too long") is None
    assert not session.undo()
    with pytest.raises(StoreError):
        session.restore("t1")


def test_the_end_of_a_session_never_raises_whatever_the_store_does(store, clock, tmp_path):
    from tests.session.agent import FailingStore

    failing = FailingStore(store)
    with Session("x", store=failing, clock=clock, planner="rules", window_tokens=8_000) as session:
        session.prepare(make_session(40))
        failing.broken = True
    assert session.log()[-1].kind == "store_failed"
    path = tmp_path / "own.db"
    with Session("x", store=path, clock=clock, planner="rules", window_tokens=8_000) as session:
        session.prepare(make_session(40))
        opened = session._state.setup.store.use(lambda store: store)
        with opened.backend.transaction(write=True):
            opened.backend.rows("DROP TABLE records")
    assert session.log()[-1].kind == "store_failed"
    assert not session._state.setup.store.is_open


def test_events_of_a_time_when_the_store_failed_are_recorded_once_it_works(store, clock):
    from tests.session.agent import FailingStore

    failing, history = FailingStore(store), make_session(40)
    with Session("x", store=failing, clock=clock, planner="rules", window_tokens=60_000) as session:
        failing.broken = True
        assert not session.compact(history).applied
        failing.broken = False
        assert session.compact(history).applied
        assert [event["kind"] for event in store.events()] == [event.kind for event in session.log()]
    assert "store_failed" in [event["kind"] for event in store.events()]


def test_what_fails_at_every_call_is_logged_once_and_again_after_it_worked(session_of):
    session, history = session_of(), make_session(3)
    for wrong in (7, 8, "seven", None, 7):
        for _ in range(3):
            session.prepare(history if wrong is None else [*history, wrong])
    messages = [event.message for event in session.log() if event.kind == "prepare_failed"]
    assert len(messages) == 3, messages


def test_a_store_with_a_damaged_byte_is_no_way_out_of_prepare(tmp_path, clock):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        store.set_state("a", {"b": 1})
    data = bytearray(path.read_bytes())
    data[100:110] = b"\xff" * 10
    path.write_bytes(bytes(data))
    session = Session("x", store=path, clock=clock, planner="rules", window_tokens=8_000)
    assert refused(Agent(session).play(make_session(40)).sent[-1]) == []


def test_no_home_and_no_name_is_no_way_out_either(monkeypatch, clock):
    for name in ("HOME", "XDG_STATE_HOME", "COMPACTOR_STORE"):
        monkeypatch.delenv(name, raising=False)
    session = Session("x", store="~nobody-has-this-name/x.db\0", clock=clock, planner="rules", window_tokens=8_000)
    assert session.prepare(make_session(40))


# Hosts that edit, clocks that jump, processes that fork.


@pytest.mark.real
@settings(max_examples=6)
@given(st.data())
def test_a_host_that_edits_old_messages_in_place_is_compacted_on(tmp_path_factory, data):
    with open_store(tmp_path_factory.mktemp("edits") / "s.db") as store:
        session = Session("x", store=store, clock=Clock(), planner="rules", window_tokens=8_000)
        messages, over = [], 0
        for message in make_session(40):
            messages.append(message)
            if message["role"] != "user":
                continue
            if len(messages) > 6 and data.draw(st.integers(0, 2)) == 0:
                old = messages[2 * data.draw(st.integers(1, len(messages) // 2 - 2))]
                old["content"][0]["content"] = "[image dropped]"
            sent = session.prepare(messages)
            over += session.state.tokens > session.state.limit_tokens
            assert refused(sent) == []
        assert over == 0
        assert session.state.compactions >= 1
        assert not [
            event for event in session.log() if event.kind in ("tier_failed", "prepare_failed", "history_changed")
        ]
        assert store.verify() == []
        key = session._state.ledger.tracker.history
        assert list(store.load_history(store.save_history(key)).messages) == messages


def test_an_edit_behind_the_compacted_part_is_sent(session_of):
    session, history = session_of(window_tokens=60_000), make_session(40)
    session.compact(history)
    history[-1]["content"][0]["content"] = "edited"
    more = [*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    session.prepare(more)
    more[-2]["content"] = "edited, too"
    sent = session.prepare([*more, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "and on"}])
    assert sent[-4]["content"] == "edited, too"


def test_an_image_that_is_cut_away_leaves_word_of_itself(session_of):
    history = grown(5, 6_000)
    history[2]["content"][0]["content"] = [{"type": "text", "text": "x" * 6_000}, image(640, 480)]
    sent = session_of(preset="s06", window_tokens=200_000).prepare(history)
    assert "with 1 image" in str(sent[2])


def test_a_clock_that_goes_back_ends_every_wait(store, clock):
    from tests.session.agent import FailingStore

    failing = FailingStore(store)
    failing.broken = True
    session = Session("x", store=failing, clock=clock, planner="rules", window_tokens=8_000)
    history = make_session(40)
    session.prepare(history)
    failing.broken = False
    clock.pass_(-86_400)
    session.prepare([*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}])
    assert session.state.tokens <= session.state.limit_tokens
    planning = Planning("rules", None, SessionSettings(), clock, print, failures=3, failed_at=clock() + 86_400)
    assert planning.breaker == "half_open"
    worker = Worker(5.0)
    assert worker.start(lambda: None, now=clock() + 86_400)
    finished(worker)
    worker.take()
    assert worker.start(lambda: None, now=clock())
    finished(worker)


def busy_session(session_of, hold, inside):
    """A session, its history, and the thread that is in a call with it, held by `hold`, which sets `inside`."""
    session, history = session_of(hooks={"pre_compact": hold}), make_session(30)
    busy = threading.Thread(target=session.prepare, args=(history,))
    busy.start()
    assert inside.wait(PATIENCE_SECONDS)
    return session, history, busy


def test_damage_to_one_conversation_pauses_no_other(tmp_path, clock):
    """The sessions of a proxy share a store."""
    store, history = SessionStore(tmp_path / "s.db"), make_session(60)
    wishes = {"planner": "rules", "window_tokens": 40_000, "settings": load_settings(compact_at_ratio=0.4)}
    ada, bob = (Session("x", store=store, clock=clock, session_id=name, **wishes) for name in ("ada", "bob"))
    assert ada.compact(history[:40]).applied
    assert ada.undo()
    opened = store.use(lambda opened: opened)
    with opened.backend.transaction(write=True):
        (view,) = opened.backend.keys('state/"view:')
        opened.backend.remove([view])
        opened.backend.add({view: b"forged"})
    assert "does not match its digest" in ada.compact(history[:40]).reason
    assert len(bob.prepare(history)) < len(history)
    store.close()


def test_sessions_that_save_in_one_store_at_once_each_get_their_own_history(tmp_path):
    store, messages = SessionStore(tmp_path / "store.db"), make_session(20)[1:]
    store.folder = "/work"
    saved = [
        read_history([{"role": "user", "content": f"task {number}"}, *messages[:length]])
        for length in range(2, len(messages), 2)
        for number in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(store.save, saved)] == [history_key(history.digest) for history in saved]
    store.close()


def test_a_fork_while_another_thread_prepares_does_not_hang_the_child(session_of):
    inside, go = threading.Event(), threading.Event()

    def hold(event):
        inside.set()
        go.wait(PATIENCE_SECONDS)

    session, history, busy = busy_session(session_of, hold, inside)
    child = os.fork()
    if child == 0:
        go.set()
        os._exit(0 if session.prepare(history[:3]) == history[:3] else 1)
    go.set()
    busy.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_while_another_thread_opens_the_store_does_not_hang_the_child(session_of, monkeypatch, tmp_path):
    inside, go = threading.Event(), threading.Event()

    def slow(path):
        inside.set()
        go.wait(PATIENCE_SECONDS)
        return open_store(path)

    monkeypatch.setattr("applier.store.opening.open_store", slow)
    session, history = session_of(store=tmp_path / "slow.db"), make_session(30)
    busy = threading.Thread(target=session.prepare, args=(history,))
    busy.start()
    assert inside.wait(PATIENCE_SECONDS)
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_SECONDS)
        go.set()
        os._exit(0 if len(session.prepare(history)) < len(history) else 1)
    go.set()
    busy.join()
    assert os.waitpid(child, 0)[1] == 0


def test_close_does_not_wait_for_a_planner_that_hangs(session_of, monkeypatch):
    monkeypatch.setattr("applier.session.session.CLOSE_SECONDS", 0.01)
    inside, go = threading.Event(), threading.Event()

    def hold(event):
        inside.set()
        go.wait(PATIENCE_SECONDS)

    session, _, busy = busy_session(session_of, hold, inside)
    session.close()
    go.set()
    busy.join()


# The state is a snapshot.


def test_the_state_is_read_while_another_thread_is_in_a_call(session_of):
    inside, go = threading.Event(), threading.Event()

    def hold(event):
        inside.set()
        go.wait(PATIENCE_SECONDS)

    session, _, busy = busy_session(session_of, hold, inside)
    before, reader = session.state, threading.Thread(target=lambda: (session.state, session.task, session.log()))
    reader.start()
    reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive()
    assert before.compactions == 0
    go.set()
    busy.join()
    assert session.state.compactions == 1


def test_reading_the_state_changes_nothing(session_of):
    """One session is looked at after every call and one is not: a level that is held is held in both."""
    watched, unwatched = (session_of(preset="amp", session_id=name) for name in ("watched", "unwatched"))
    history, sizes = grown(160, 500), []
    for end in range(1, len(history) + 1, 2):
        assert watched.prepare(history[:end]) == unwatched.prepare(history[:end])
        sizes.append(watched.state.tokens)
        if watched.state.level == "critical":
            break
    assert watched.compact(history[:end]).applied == unwatched.compact(history[:end]).applied
    assert watched.state.level == "normal"
    limit, each = watched.state.limit_tokens, sizes[-1] - sizes[-2]
    end += 2 * int(1 + (0.915 * limit - watched.state.tokens) / each)
    assert watched.prepare(history[:end]) == unwatched.prepare(history[:end])
    assert 0.9 <= watched.state.tokens / limit < 0.95
    assert watched.state == replace(unwatched.state, session_id="watched")


# Read once.


def test_a_compacting_call_digests_each_message_once_and_reads_only_new_turns(session_of, monkeypatch):
    import applier.session.history_tracker as tracking
    import planner.analysis as analysis

    digested, read = [], []
    digest, gather = tracking.message_digest, analysis.gather_evidence
    monkeypatch.setattr(tracking, "message_digest", lambda message: digested.append(1) or digest(message))

    def counting(history, counter, known=None, *more):
        read.append(sum(turn.digest not in (known.by_digest if known else {}) for turn in history.turns))
        return gather(history, counter, known, *more)

    monkeypatch.setattr(analysis, "gather_evidence", counting)
    session, history = session_of(window_tokens=60_000), make_session(80)
    assert session.compact(history[:121]).applied
    assert (len(digested), read) == (121 + 1, [61]), "and the head of the view, to know it again"
    assert session.compact(history).applied
    assert len(digested) <= len(history) + 2, "and the compacted head, to tell it from the list"
    assert read[1:] == [80 - 61], "only the turns that came"


def test_of_a_reminder_that_repeats_the_last_one_stays(session_of):
    reminder = {"role": "system", "content": "The task tools have not been used recently."}
    history = make_session(30)
    for at in range(53, 6, -6):
        history.insert(at, reminder)
    history.insert(3, {"role": "system", "content": "Answer briefly."})
    done = session_of(window_tokens=200_000, model="claude-opus-5-5").compact(history)
    systems = [message["content"] for message in done.messages if message["role"] == "system"]
    assert history.count(reminder) > 5
    assert str(systems).count(reminder["content"]) == 1
    assert "Answer briefly." in str(systems)
    assert check_messages(done.messages, model="claude-opus-5-5") == []


def test_the_window_is_the_models_unless_it_is_set(session_of, monkeypatch):
    def window(model, **given):
        session = Session("fix", planner="rules", model=model, **given)
        session.set_request(model=model)
        return session.state.window_tokens

    assert window("claude-opus-5-5") == window("anthropic/claude-sonnet-5") == 1_000_000
    assert window("claude-haiku-4-5") == window("nobodys-1") == 200_000
    assert window("gpt-6-sol") == 1_050_000
    assert window("gpt-5-chat-latest") == 128_000
    assert window("gpt-4o-mini") == window("openai/gpt-4o") == 128_000
    assert window("gpt-4-0613") == 8_192
    assert window("gpt-4o", window_tokens=150_000) == 150_000
    monkeypatch.setenv("COMPACTOR_WINDOW_TOKENS", "60000")
    assert window("gpt-4-0613") == 60_000
    session = session_of(model="claude-opus-5-5", window_tokens=None, settings=SessionSettings())
    session.set_request(model="gpt-4o")
    assert session.state.window_tokens == 60_000


def test_the_ratio_is_that_of_all_the_text_not_of_the_newest_result():
    """An odd result (numbers, say) behind a long talk must not say how long all the rest is."""
    gauge, counted, actual = Gauge(20_000), 5_000, 30_000
    gauge = gauge.calibrated(counted, actual, 200_000)
    for _ in range(20):
        counted, actual = counted + 1_000, actual + 1_000
        gauge = gauge.calibrated(counted, actual, 200_000)
    counted, actual = counted + 3_000, actual + 1_500
    gauge = gauge.calibrated(counted, actual, 200_000)
    assert gauge.of_messages(10_000) == pytest.approx(9_350, rel=0.05)


def test_look_up_tools_are_known_behind_a_server_name(session_of):
    tools = [{"name": "mcp__compactor__restore_context", "input_schema": {"type": "object"}}]
    session = session_of(window_tokens=60_000, tools=tools, preset="adk")
    call = {"type": "tool_use", "id": "c1", "name": tools[0]["name"], "input": {"reference": "t2"}}
    back = {"type": "tool_result", "tool_use_id": "c1", "content": "restored line\n" * 3_000}
    history = [
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [back]},
    ]
    assert session.prepare(history) == history, "what was just brought back is not demoted again"
    assert session._state.pressure.restore_tool == tools[0]["name"]


def test_a_servers_tool_named_in_full_counts_though_the_request_does_not_list_it(session_of):
    """Codex puts tools of servers behind one tool that runs scripts."""
    name = "mcp__compactor__restore_context"
    settings = SessionSettings(plan=PlanSettings(restore_tool=name))
    session = session_of(settings=settings, window_tokens=60_000, tools=[{"name": "exec"}])
    assert session.compact(grown(12, 4_000)).plan.restore_tool == name


def test_the_restore_tool_of_plans_is_the_sessions_unless_the_agent_has_only_another(session_of):
    settings = SessionSettings(plan=PlanSettings(restore_tool="ask_back"))

    def tools(*names):
        return [{"name": name, "input_schema": {"type": "object"}} for name in names]

    for had, named in (
        (None, "ask_back"),
        (tools("mcp__memory__ask_back"), "mcp__memory__ask_back"),
        (tools("mcp__evil__ask_back", "mcp__compactor__ask_back"), "mcp__compactor__ask_back"),
        (tools("mcp__evil__ask_back", "mcp__compactor__ask_back", "ask_back"), "ask_back"),
        (tools("restore_context"), "restore_context"),
        (tools("mcp__evil__ask_back", "compactor-ask_back"), "compactor-ask_back"),
        (tools("compactor_ask_back"), "compactor_ask_back"),
        (tools("mcp__evil__compactor-ask_back"), ""),
        (tools("Read"), ""),
    ):
        session, history = session_of(settings=settings, window_tokens=60_000, tools=had), grown(12, 4_000)
        whole = session.compact(history)
        assert whole.applied
        assert whole.plan.restore_tool == named
        assert (f"{named or 'ask_back'}(" in str(whole.messages)) is bool(named)
    session, history = session_of(settings=settings, window_tokens=60_000, preset="adk"), grown(1, 40_000)
    history[1]["content"][0]["name"] = "ask_back"
    assert session.prepare(history) == history, "what was just brought back is not demoted again"


@pytest.mark.parametrize(
    "given",
    [{"settings": {"preset": "s06"}}, {"store": 3}, {"tools": "bash"}, {"hooks": {"post_compact": "print"}}],
)
def test_a_session_names_the_argument_of_the_wrong_type(given):
    with pytest.raises(SettingsError, match=f"^{next(iter(given))}: expected "):
        Session("fix", **given)


def test_a_count_that_is_far_too_high_is_believed_once_and_corrected_by_the_next_usage():
    """The usage of another prompt may come between; a medium that was counted as text comes back."""
    gauge = Gauge().calibrated(1_000_000, 20_000, 200_000)
    assert gauge.prompt(1_000_000) == 1_000_000
    gauge = gauge.calibrated(1_001_000, 21_000, 200_000)
    assert gauge.prompt(1_001_000) == pytest.approx(21_000, abs=1)
    gauge = gauge.calibrated(10_000, 9_000, 200_000)
    assert gauge.prompt(10_000) == pytest.approx(9_000, abs=1)
    assert gauge.calibrated(9_000, 1_000, 200_000).prompt(9_000) == pytest.approx(8_100, abs=1)


# Unsure rules, and callers that are asynchronous.


def foreign(turns):
    """A history of a tool that the rules know nothing of, with words of both sides between."""
    history = [{"role": "user", "content": "Plan the tour for the ensemble."}]
    for number in range(turns):
        call = {"type": "tool_use", "id": f"f{number}", "name": "zorble", "input": {"venue": number}}
        rows = "\n".join(f"hall {number}.{row} seats {row * 7} fee {row * 31}" for row in range(60))
        history += [
            {"role": "assistant", "content": [{"type": "text", "text": f"I ask venue {number}."}, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"f{number}", "content": rows}]},
            {"role": "assistant", "content": f"Venue {number} is free in May; I would hold it."},
            {"role": "user", "content": f"Hold it under name {number}, please."},
        ]
    return history


def test_where_the_rules_are_unsure_old_results_go_and_the_dialogue_stays(session_of):
    session, history = session_of(window_tokens=30_000), foreign(30)
    sent = session.prepare(history)
    assert session.state.compactions
    assert session.state.tokens <= session.state.limit_tokens
    said = [message for message in history if isinstance(message["content"], str)]
    assert [message for message in sent if isinstance(message["content"], str)] == said, "every word of the dialogue"
    assert "hall 3.30" not in str(sent)
    assert session.restore("t2").messages == tuple(history[1:3])


def test_prepare_can_be_awaited(session_of):
    import asyncio

    session, other, history = session_of(), session_of(), make_session(40)
    assert asyncio.run(session.prepare_async(history)) == other.prepare(history)
