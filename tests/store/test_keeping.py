"""Plans, facts, events and states: kept exactly but for secrets, found by what they belong to."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.store import REDACT_VARIABLE, open_store
from applier.store.records import SavedChain
from planner.errors import ReferenceNotFound, StoreError
from planner.plan import Provenance, TurnDecision
from planner.reading.messages import read_history
from tests.store.damage import fact, plan_for
from tests.store.test_history_laws import values
from tests.strategies import make_session, plans

NO_KEY = f"h{0:032}"
KEY = "sk-ant-api03-" + "a1B2c3D4e5F6" * 3


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plan=plans(make_session(5)))
def test_a_plan_comes_back_equal(store, plan):
    plan_id = store.save_plan(plan)
    assert store.load_plan(plan_id) == plan
    assert store.save_plan(plan) == plan_id


def test_plans_and_facts_belong_to_the_history_and_to_longer_ones(store):
    messages = make_session(8)
    short, long = read_history(messages[:5]), read_history(messages)
    other = read_history([{"role": "user", "content": "another"}])
    keys = [store.save_history(history) for history in (short, long, other)]
    ids = [store.save_plan(plan_for(history)) for history in (short, long, other)]
    for key, said in zip(keys, ("a", "b", "c"), strict=True):
        store.save_facts([fact(said), fact(said)], key)
    assert [store.plans(key) for key in keys] == [(ids[0],), (ids[0], ids[1]), (ids[2],)]
    assert [[found.content for found in store.facts(key)] for key in keys] == [["a"], ["a", "b"], ["c"]]
    store.forget(keys[1])
    with pytest.raises(ReferenceNotFound):
        store.facts(keys[0])
    with pytest.raises(ReferenceNotFound, match=f"no plan '{ids[0]}' in this store"):
        store.load_plan(ids[0])
    assert store.plans(keys[2]) == (ids[2],)


def test_a_longer_history_goes_on_from_the_saved_one(store):
    messages = make_session(8)
    histories = [read_history(messages[:length]) for length in (0, 3, 5, len(messages))]
    chain = SavedChain()
    for history in histories:
        chain = store.save_longer(history, chain)
        assert chain.key == store.save_history(history)
        assert list(store.load_history(chain.key).messages) == list(history.messages)
    assert store.verify() == []
    assert chain == store.save_longer(histories[-1], SavedChain())


def test_a_longer_history_is_saved_whole_if_the_saved_one_was_forgotten_or_is_another(store):
    messages = make_session(8)
    chain = store.save_longer(read_history(messages[:5]), SavedChain())
    store.forget(chain.key)
    marked = [{**messages[0], "content": [{"type": "text", "text": "other"}]}, *messages[1:]]
    for longer in (messages, marked):
        chain = store.save_longer(read_history(longer), chain)
        assert list(store.load_history(chain.key).messages) == longer
    assert store.verify() == []


def test_a_plan_for_what_is_no_history_is_refused(store):
    plan = plan_for(read_history([]))
    forged = plan.model_copy(update={"history": plan.history.model_copy(update={"digest": "sha256:mine"})})
    with pytest.raises(StoreError, match="'sha256:mine' is no history key"):
        store.save_plan(forged)


@pytest.mark.parametrize("plan_id", ["", "p12", "nonsense", "p00000000"])
def test_a_plan_that_is_not_there_is_told(store, plan_id):
    with pytest.raises(ReferenceNotFound, match=r"no plan .* expected .p. and 32 hex digits"):
        store.load_plan(plan_id)


def test_facts_come_back_as_they_were(store):
    key = store.save_history(read_history(make_session(3)))
    facts = [fact("Node 18+", quote="no Bun-only APIs\nplease", timestamp=17.25), fact("päth/é", "t2")]
    store.save_facts(facts, key)
    store.save_facts(facts[:1], key)
    assert list(store.facts(key)) == facts
    with pytest.raises(ReferenceNotFound, match=f"no history {NO_KEY}"):
        store.save_facts(facts, NO_KEY)


def test_no_secret_reaches_facts_or_events(store):
    key = store.save_history(read_history(make_session(3)))
    store.save_facts([fact(f"deploy with {KEY}", quote=f"use {KEY}!")], key)
    store.record_event({"time": 1.0, "error": f"401 for {KEY}", "header": {"Authorization": "abc"}, "n": [KEY, 7]})
    (found,), (event,) = store.facts(key), store.events()
    assert (found.content, found.quote) == ("deploy with [secret]", "use [secret]!")
    assert event == {
        "time": 1.0,
        "error": "401 for [secret]",
        "header": {"Authorization": "[secret]"},
        "n": ["[secret]", 7],
    }


def test_no_secret_reaches_a_stored_plan(store):
    history = read_history([{"role": "user", "content": f"deploy with {KEY}"}])
    turn = TurnDecision(turn_id="t1", strategy="summarize", relevance_score=1, summary=f"to use {KEY}", reason=KEY)
    plan = plan_for(history, task=f"deploy with {KEY}").model_copy(
        update={
            "brief": f"FACTS\n- the key is {KEY} (t1)",
            "turns": (turn,),
            "extracted_facts": (fact(f"the key is {KEY}"),),
            "provenance": Provenance(planner="model", notes=(f"401 for {KEY}",)),
        }
    )
    text = store.load_plan(store.save_plan(plan)).to_json()
    assert KEY not in text
    assert text.count("[secret]") == 6


def test_what_no_clock_says_is_refused(store):
    for time in (10**400, -(10**400), 10**12, float("nan"), float("inf"), "1", None):
        with pytest.raises(StoreError, match="'time' has to be seconds"):
            store.record_event({"time": time})


def test_events_of_a_clock_that_went_back_come_in_the_order_of_recording(store):
    for number, time in enumerate((1_800_000_000, 1_799_913_600, 0, -5)):
        store.record_event({"time": time, "number": number})
    assert [event["number"] for event in store.events()] == [0, 1, 2]
    assert [event["number"] for event in store.events(since=-10)] == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_by_choice_no_secret_is_stored_at_all(sqlite_path, monkeypatch, way):
    messages = [{"role": "user", "content": f"my key is {KEY}"}, {"role": "assistant", "content": "thanks"}]
    history = read_history(messages)
    monkeypatch.setenv(REDACT_VARIABLE, "1" if way == "environment" else "0")
    with open_store(sqlite_path, redact_originals=True if way == "argument" else None) as store:
        key = store.save_history(history)
        store.set_state("session:a", {"head": messages})
        assert store.restore(f"{key}:t1").text == store.load_history(key).messages[0]["content"] == "my key is [secret]"
        assert store.restore(f"{key}:t2").messages == (messages[1],)
        assert store.save_history(read_history([*messages, *messages]))
        assert store.verify() == []
        store.flush()
        assert all(KEY.encode() not in path.read_bytes() for path in sqlite_path.parent.iterdir())


def test_a_choice_that_says_neither_yes_nor_no_is_not_taken_for_no(sqlite_path, monkeypatch):
    monkeypatch.setenv(REDACT_VARIABLE, "enabled")
    with pytest.raises(StoreError, match="COMPACTOR_REDACT_ORIGINALS: expected 1 or 0, found 'enabled'"):
        open_store(sqlite_path)
    assert not sqlite_path.exists()
    open_store(sqlite_path, redact_originals=True).close()


def test_the_originals_keep_their_secrets(store):
    messages = [{"role": "user", "content": f"my key is {KEY}"}]
    assert store.load_history(store.save_history(read_history(messages))).messages == tuple(messages)


def test_events_are_found_by_session_and_time(store):
    events = [{"time": t, "session": s, "kind": f"{s}{t}"} for t, s in ((1, "a"), (3.5, "b"), (2, "a"))]
    events.append({"time": 9, "kind": "no session"})
    for event in events:
        store.record_event(event)
    assert list(store.events()) == events
    assert list(store.events("a")) == [events[0], events[2]]
    assert list(store.events("a", since=2)) == [events[2]]
    assert list(store.events("null")) == list(store.events("c")) == []


@pytest.mark.parametrize("time", [None, "today"])
def test_an_event_without_a_time_is_refused(store, time):
    with pytest.raises(StoreError, match="'time' has to be seconds"):
        store.record_event({"time": time})
    assert store.events() == ()


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters()), values=st.lists(values.filter(lambda value: value is not None), min_size=1))
def test_a_state_is_the_last_value_set(store, name, values):
    for value in values:
        store.set_state(name, value)
        assert json.dumps(store.get_state(name)) == json.dumps(value)
    store.set_state(name, None)
    assert store.get_state(name) is None


def test_what_is_not_json_is_refused_and_the_old_state_stays(store):
    store.set_state("a", 1)
    with pytest.raises(StoreError, match="state a: cannot be stored, it is not JSON data"):
        store.set_state("a", {1, 2})
    assert store.get_state("a") == 1


def test_messages_that_changed_since_they_were_read_are_not_stored_under_the_old_name(store):
    messages = make_session(4)
    history = read_history(messages)
    messages[2]["content"][0]["content"] = "something else"
    with pytest.raises(StoreError, match=r"messages\[2\]: changed since the history was read"):
        store.save_history(history)
    assert store.histories() == ()


def test_histories_are_listed_with_their_size(store):
    history = read_history(make_session(6))
    key = store.save_history(history)
    (found,) = store.histories()
    assert (found.key, found.digest, found.messages, found.turns) == (key, history.digest, 11, 6)


def test_all_is_there_when_the_store_is_opened_again(store_url):
    history = read_history(make_session(6))
    with open_store(store_url) as store:
        key, plan_id = store.save_history(history), store.save_plan(plan_for(history))
        store.set_state("s", {"a": 1})
    with open_store(store_url) as store:
        assert store.load_history(key).messages == history.messages
        assert store.load_plan(plan_id) == plan_for(history)
        assert store.get_state("s") == {"a": 1}
        assert store.verify() == []
