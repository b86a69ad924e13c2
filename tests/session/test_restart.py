"""A process that dies and is started again goes on with the same list, byte for byte."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import pytest

from applier.session import Session
from applier.settings import load_settings
from applier.store import open_store
from applier.store.records import digest_of, encode, next_order, pack
from planner import ReferenceNotFound, StoreDamaged, StoreError
from planner.plan import earlier_plan
from planner.validity import check_messages
from tests.model.sample import plan_request
from tests.session.agent import Agent, Clock
from tests.session.test_host import grown, refused, thinking_history
from tests.strategies import make_session

ROOT = Path(__file__).resolve().parent.parent.parent


def run_until(folder, style, stop):
    command = [sys.executable, "-m", "tests.session.crashing_agent", folder / "s.db", folder / "log", style, str(stop)]
    assert subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode == 9
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


@pytest.mark.real
@pytest.mark.parametrize("style", ["grow", pytest.param("replace", marks=pytest.mark.slow)])
def test_killed_and_restarted_is_as_if_never_killed(tmp_path, style):
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    for stop in (24, 36):
        killed = run_until(tmp_path / "killed", style, stop)
    whole = run_until(tmp_path / "whole", style, 36)
    assert len(whole) == len(killed) == 36
    assert killed[:24] == whole[:24]
    assert killed[24][: len(killed[23])] == killed[23], "the first list after a restart goes on with the last before it"
    assert "<compacted" in str(killed[23])
    assert all(not [v for v in check_messages(sent) if v.refused] for sent in killed)
    with open_store(tmp_path / "killed" / "s.db") as store:
        assert store.verify() == []
        history = make_session(40)
        for stored in store.histories():
            assert list(store.load_history(stored.key).messages) == history[: stored.messages]


def opened(path, **wishes):
    return Session(
        "fix it", store=path, session_id="s", planner="rules", **{"window_tokens": 60_000, "clock": Clock(), **wishes}
    )


@pytest.mark.parametrize("replaces", [False, True])
def test_a_session_id_continues_with_view_log_and_undo(tmp_path, replaces):
    path, history = tmp_path / "store.db", make_session(40)
    with opened(path) as session:
        agent = Agent(session, replaces=replaces).play(history[:-4])
        view = session.compact(agent.messages).messages
        agent.messages = view if replaces else agent.messages
        agent.play(history[-4:])
        events, state = session.log(), session.state
        assert state.compactions == 1
    with opened(path) as again:
        assert again.log()[:-1] == events
        assert again.log()[-1].kind == "resumed"
        assert (again.state.compactions, again.state.reclaimed_tokens) == (state.compactions, state.reclaimed_tokens)
        assert again.prepare(agent.messages) == agent.sent[-1]
        assert list(again.restore("t2").messages) == history[1:3]
        assert again.undo()
        assert again.prepare(agent.messages) == history


@pytest.mark.real
@pytest.mark.parametrize("restarted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_store_that_is_deleted_under_a_session_is_begun_anew_and_nothing_is_lost(tmp_path, restarted):
    """The session has the whole history: that its file is gone is no reason to go over the window for good."""
    path, history = tmp_path / "store.db", grown(26, 4_000)
    session = opened(path, window_tokens=12_000)
    for end in range(1, 28, 2):
        session.prepare(history[:end])
    assert session.state.compactions
    kept_turn = session.restore("t3").messages
    for file in tmp_path.iterdir():
        file.unlink()
    for end in range(27, len(history), 2):
        sent = session.prepare(history[: end + 2])
        assert session.state.tokens <= session.state.limit_tokens
        assert session.restore("t3").messages == kept_turn
        with open_store(path) as store:
            kept = [message for stored in store.histories() for message in store.load_history(stored.key).messages]
            assert [message for message in history[:end] if message not in kept and message not in sent] == []
        if restarted:
            session.close()
            session = opened(path, window_tokens=12_000)
    assert [event.kind for event in session.log()].count("store_failed") == 1
    session.close()


@pytest.mark.real
def test_where_a_store_is_gone_and_cannot_be_begun_anew_the_list_goes_out_whole_until_it_can(tmp_path):
    folder, clock, history = tmp_path / "folder", Clock(), grown(40, 4_000)
    folder.mkdir()
    session = opened(folder / "s.db", window_tokens=12_000, clock=clock)
    for end in range(1, 42, 2):
        session.prepare(history[:end])
    assert session.state.compactions
    shutil.rmtree(folder)
    folder.write_text("no folder")
    for end in (43, 45):
        with pytest.raises(StoreError):
            session.restore("t3")
        assert session.prepare(history[:end]) == history[:end]
        with pytest.raises(StoreError):
            session.restore("t3")
    folder.unlink()
    clock.pass_(60)
    session.prepare(history[:47])
    assert session.state.tokens <= session.state.limit_tokens
    assert session.restore("t3").messages == tuple(history[3:5])


@pytest.mark.real
@pytest.mark.parametrize("replaces", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sessions_that_are_let_go_cost_their_conversations_nothing(tmp_path, replaces):
    """A cache of the newest sessions drops the others unclosed, while more conversations than it holds take turns."""
    path, names, history = tmp_path / "store.db", ("a", "b", "c"), grown(14, 4_000)

    def session_of(name):
        return Session("fix the race", store=path, planner="rules", window_tokens=12_000, session_id=name)

    newest = lru_cache(maxsize=2)(session_of)
    lists = {name: list(history[:1]) for name in names}
    for end in range(1, len(history), 2):
        for name in names:
            session = newest(name)
            sent = session.prepare(lists[name])
            assert session.state.tokens <= session.state.limit_tokens
            assert len(session._state.ledger.tracker) == end
            lists[name] = [*(sent if replaces else lists[name]), *history[end : end + 2]]
    assert newest.cache_info().misses > 2 * len(names), "each was opened again and again"
    assert [newest(name).state.compactions > 0 for name in names] == [True] * 3
    assert newest("a").restore("t3").messages == tuple(history[3:5])


def test_turns_behind_the_last_compaction_are_known_from_the_first_call_on(tmp_path):
    path, history = tmp_path / "store.db", make_session(40)
    session = opened(path)
    assert session.compact(history[:-4]).applied
    session.prepare(history)
    again = opened(path)
    newest = f"t{len(history) // 2}"
    with pytest.raises(ReferenceNotFound, match="once `prepare` was called"):
        again.restore(newest)
    again.prepare(history)
    assert list(again.restore(newest).messages) == history[-4:-2]


def test_a_compaction_that_was_undone_is_no_plan_in_force_after_a_restart(tmp_path):
    path, history = tmp_path / "store.db", make_session(40)
    with opened(path) as session:
        first = session.compact(history[:60]).plan
        assert session.compact(history).plan != first
        assert session.undo()
    with opened(path) as again:
        assert again._state.ledger.committed.frame.plan == first
        assert again.undo()
    with opened(path) as again:
        assert again._state.ledger.committed.frame.plan is None


def test_what_was_undone_is_not_compacted_again_at_once_after_a_restart(tmp_path):
    path, history = tmp_path / "store.db", make_session(60)
    wishes = {"settings": load_settings(compact_at_ratio=0.4, background=False), "window_tokens": 40_000}
    with opened(path, **wishes) as session:
        assert len(session.prepare(history)) < len(history)
        assert session.undo()
        assert session.prepare(history) == history
    with opened(path, **wishes) as again:
        assert again.prepare(history) == history
        assert len(again.prepare([*history, *make_session(60)[1:]])) < len(history)


def test_what_stood_when_the_list_went_another_way_stands_after_a_restart(tmp_path):
    path, history = tmp_path / "store.db", make_session(40)
    forked = [*history[:-6], {"role": "assistant", "content": "Another way."}, {"role": "user", "content": "Yes."}]
    with opened(path) as session:
        assert session.compact(history[:-8]).applied
        session.prepare(history)
        sent = session.prepare(forked)
        assert "<compacted" in str(sent)
    with opened(path) as again:
        assert again.prepare(forked) == sent
        assert list(again.restore("t2").messages) == forked[1:3]


def test_another_session_id_begins_anew(tmp_path):
    path = tmp_path / "store.db"
    with opened(path) as session:
        Agent(session).play(make_session(12))
    with Session("fix it", store=path, session_id="other", planner="rules", clock=Clock()) as other:
        assert other.log() == []
        assert other.prepare(make_session(5)) == make_session(5)


def test_a_state_that_cannot_be_read_is_said_at_once(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.set_state("session:s", {"version": 1, "frame": "?"})
    with pytest.raises(StoreDamaged, match="session s"):
        opened(path)
    with pytest.raises(StoreError):
        opened(tmp_path)


@pytest.fixture(scope="module")
def compacted_twice(tmp_path_factory):
    """The file of a store that holds a session which was compacted twice."""
    path, history = tmp_path_factory.mktemp("compacted") / "store.db", make_session(40)
    with opened(path) as session:
        session.compact(history[:40])
        assert session.compact(history).applied
    return path


DAMAGES = (
    {"head": [{"content": "no role"}]},
    {"head": [{"role": "user", "content": 3}]},
    {"head": [{"role": "user", "content": [{"text": "no type"}]}]},
    {"start": -1},
    {"start": 1_000},
    {"messages": -1},
    {"placeholders": [[7, "a", "b"]]},
)


@pytest.mark.parametrize(
    ("of", "damage"),
    [
        *((of, damage) for of in ("frame", "before") for damage in DAMAGES),
        *(("frame", {"key": key}) for key in ("", "h0123456789")),
    ],
)
def test_a_state_whose_frame_is_damaged_is_an_error_of_the_store(tmp_path, compacted_twice, of, damage):
    path = Path(shutil.copy(compacted_twice, tmp_path))
    with open_store(path) as store:
        state = store.get_state("session:s")
        store.set_state("session:s", {**state, of: {**state[of], **damage}})
    with pytest.raises(StoreError):
        opened(path)


SINCE = {"": {"read_tokens"}, "provenance": {"read_tokens", "read_turns", "unread_turns", "named"}}
"""What states and plans have said since session planners' reading is bounded, by where it stands."""


def without(data, names):
    return {name: value for name, value in data.items() if name not in names}


def make_older(store):
    """Have the state of session s and the plan of its frame say no more than an earlier version's did."""
    state = without(store.get_state("session:s"), SINCE[""])
    plan = store.load_plan(state["frame"]["plan_id"]).model_dump(mode="json")
    assert plan["provenance"].keys() >= SINCE["provenance"]
    body = encode({**plan, "provenance": without(plan["provenance"], SINCE["provenance"])}, "plan")
    says = plan["history"]["digest"].removeprefix("sha256:")
    with store.backend.transaction(write=True):
        store.backend.add({f"plan/{digest_of(body)}/{says}/{next_order(store.backend)}": pack(body)})
    older = {**state["frame"], "plan_id": f"p{digest_of(body)}"}
    store.set_state("session:s", {**state, "frame": older, "before": None})


def test_a_state_of_an_earlier_version_goes_on_and_is_planned_from_scratch(tmp_path):
    path, history = tmp_path / "store.db", make_session(60)
    with opened(path) as session:
        session.prepare(history[:-4])
        assert session.compact(history[:-4]).applied
        sent = session.prepare(history)
    with open_store(path) as store:
        make_older(store)
    with opened(path) as again:
        assert again.prepare(history) == sent
        assert again.log()[-1].kind == "resumed"
        assert again._state.planning.read_tokens == 0
        assert earlier_plan(plan_request(history, previous=again._state.planning.previous)) is None
        assert again.compact(history).applied
    with opened(path) as once_more:
        assert not [violation for violation in check_messages(once_more.prepare(history)) if violation.refused]


def test_a_session_whose_plan_was_forgotten_goes_on_with_its_view(tmp_path, compacted_twice):
    path, history = Path(shutil.copy(compacted_twice, tmp_path)), make_session(40)
    with opened(path) as session:
        sent = session.prepare(history)
        (plan_id,) = {session._state.ledger.frame.plan_id}
    with open_store(path) as store:
        store.forget(plan_id)
    with opened(path) as again:
        assert again.prepare(history) == sent
        assert again.compact(history, focus="the race").applied
        assert again.plan is not None


def test_the_calibration_that_was_stored_is_where_a_restart_begins(tmp_path):
    path, history = tmp_path / "store.db", make_session(60)

    def told(session, messages):
        session.prepare(messages)
        session.observe({"usage": {"input_tokens": 9_000 + int(session._state.ledger.last.counted_tokens * 0.6)}})

    with opened(path) as session:
        for end in (21, 41, 81):
            told(session, history[:end])
        assert session.compact(history[:81]).applied
        ratio = session._state.pressure.gauge.ratio
        assert ratio == pytest.approx(0.6, abs=0.01)
    with opened(path) as again:
        told(again, history[:83])
        assert again._state.pressure.gauge.ratio == ratio


def test_a_restart_knows_the_model_and_the_thinking_of_the_last_request(tmp_path):
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    path, history = tmp_path / "store.db", thinking_history(30)
    with opened(path) as session:
        session.set_request(model="claude-sonnet-4-5", thinking=thinking)
        assert session.compact(history[:-4]).applied
    with opened(path) as session:
        done = session.compact(history)
        assert done.applied
        assert refused(done.messages, model="claude-sonnet-4-5", thinking_enabled=True) == []
        assert done.messages[-2]["content"][0]["type"] == "thinking"
    with opened(path, model="claude-opus-5-5") as session:
        assert "Let me see" not in str(
            session.compact([*history, {"role": "user", "content": "Go on."}]).messages[-5:]
        ), "another model is told"


def test_a_view_whose_plan_is_gone_stays_compacted_when_the_list_goes_another_way(tmp_path):
    path, history = tmp_path / "store.db", make_session(40)
    with Session("fix it", store=path, planner="rules", window_tokens=60_000) as session:
        view = session.compact(history).messages
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("DELETE FROM records WHERE key LIKE 'plan/%'").rowcount
    call, answer = {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}
    with Session("fix it", store=path, planner="rules", window_tokens=60_000) as again:
        again.prepare([*view, call, answer, call, answer])
        assert "<compacted" in str(again.prepare([*history, {**call, "content": "Another way."}, answer]))


def test_every_fact_of_every_plan_is_stored_once(session_of, store, clock):
    for length in (40, 60):
        session = session_of(session_id="s")  # opened again: the store knows which facts it has
        session.compact(make_session(length))
        clock.now += 60.0
    stored = [fact.model_copy(update={"timestamp": 0.0}) for fact in store.facts(session.state.history_key)]
    plans = [store.load_plan(plan_id) for plan_id in store.plans(session.state.history_key)]
    planned = [fact.model_copy(update={"timestamp": 0.0}) for plan in plans for fact in plan.extracted_facts]
    assert len(plans) == 2
    assert sorted(map(str, stored)) == sorted({*map(str, planned)})
