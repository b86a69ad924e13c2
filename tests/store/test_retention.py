"""Laws of retention: what a live conversation refers to stays byte for byte, what nobody refers to goes."""

import json
import re
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.session.session import Session
from applier.store import collect_garbage, open_store
from applier.store.retention import LIVE_SECONDS
from planner.errors import ReferenceNotFound, SettingsError
from planner.reading.messages import read_history
from tests.store.damage import fact, plan_for
from tests.strategies import make_session

DAY = 86_400.0
NOW = 1_000 * DAY
one_store = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def said(number, text):
    return {"role": "user", "content": [{"type": "text", "text": f"{number}: {text}"}]}


@st.composite
def conversations(draw):
    """Each: what it forks off and where, what it adds, which earlier one a message, or its session, speaks of, whether
    the cache mark stands on its last message, how often it was saved on the way, and its age in days."""
    count = draw(st.integers(1, 7))
    earlier = [st.none() | st.integers(0, n - 1) if n else st.none() for n in range(count)]
    return [
        {
            "parent": draw(earlier[n]),
            "cut": draw(st.integers(0, 6)),
            "adds": draw(st.integers(1, 4)),
            "mentions": draw(earlier[n]),
            "before": draw(earlier[n]),
            "marked": draw(st.booleans()),
            "saves": draw(st.integers(1, 3)),
            "age": draw(st.sampled_from([0.5, 3, 29, 31, 400])),
        }
        for n in range(count)
    ]


def fill(store, plans):
    """What each conversation is, and every history that was saved of it: (exact messages, key, days ago), by number."""
    whole, saved = [], []
    for number, plan in enumerate(plans):
        messages = deepcopy(whole[plan["parent"]][: plan["cut"]]) if plan["parent"] is not None else []
        start = len(messages)
        messages += [said(number, f"message {n}, {'and so on ' * 40}") for n in range(plan["adds"])]
        if plan["mentions"] is not None:
            key = saved[plan["mentions"]][-1][1]
            messages[-1]["content"].append({"type": "text", "text": f"as\n{key}:t1 says"})
        whole.append(deepcopy(messages))
        store.clock = lambda age=plan["age"]: NOW - age * DAY
        lengths = sorted({len(messages), *range(max(start, len(messages) - plan["saves"] + 1), len(messages))} - {0})
        own = []
        for length in lengths:
            part = deepcopy(messages[:length])
            if plan["marked"]:
                part[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
            own.append((part, store.save_history(read_history(part)), plan["age"]))
        saved.append(own)
        key, history = own[-1][1], read_history(own[-1][0])
        store.save_plan(plan_for(history, task=f"task {number}"))
        store.save_facts([fact(f"fact {number}")], key)
        frames = {"key": key, "before": None if plan["before"] is None else {"key": saved[plan["before"]][-1][1]}}
        store.set_state(f"session:{number}", frames)
        store.record_event({"time": NOW - plan["age"] * DAY, "session": str(number)})
    store.clock = lambda: NOW
    return saved


def referred(saved, plans, live):
    """All keys that the histories with the keys `live` refer to, by their texts and forms alone."""
    every = {key: part for own in saved for part, key, _ in own}
    digests = {key: read_history(part).digests for key, part in every.items()}
    kept, new = set(), set(live)
    while new:
        kept |= new
        below = {key for key in every for one in new if digests[one][: len(digests[key])] == digests[key]}
        words = {word for key in new for word in re.findall(r"h[0-9a-f]{32}", json.dumps(every[key]))}
        states = set()
        for number, plan in enumerate(plans):
            own = {saved[number][-1][1]} | (set() if plan["before"] is None else {saved[plan["before"]][-1][1]})
            if any(digests[one][: len(digests[key])] == digests[key] for key in own for one in new):
                states |= own
        new = (below | states | (words & every.keys())) - kept
    return kept


@one_store
@given(plans=conversations())
def test_age_takes_what_no_live_conversation_refers_to_and_nothing_else(store, plans):
    clear(store)
    saved = fill(store, plans)
    list(store.find_facts())
    used = {}
    for own in saved:
        for part, key, age in own:
            used[key] = min(age, used.get(key, (age,))[0]), part
    kept = referred(saved, plans, [key for key, (age, _) in used.items() if age < 30])
    shown = collect_garbage(store, older_than_seconds=30 * DAY, dry_run=True)
    assert {one.key for one in store.histories()} == set(used)
    done = collect_garbage(store, older_than_seconds=30 * DAY)
    assert [one.key for one in done.histories] == [one.key for one in shown.histories]
    assert {one.key for one in done.histories} == used.keys() - kept
    assert store.verify() == []
    facts = {content.content for one in store.histories() for content in store.facts(one.key)}
    assert {one.content for _, one in store.find_facts()} == facts
    for key, (_, part) in used.items():
        if key in kept:
            assert json.dumps(list(store.load_history(key).messages)) == json.dumps(part)
            for turn in read_history(part).turns:
                restored = store.restore(f"{key}:{turn.id}").messages
                assert json.dumps(list(restored)) == json.dumps(list(read_history(part).messages_of(turn)))
        else:
            with pytest.raises(ReferenceNotFound):
                store.restore(f"{key}:t1")
    for number, own in enumerate(saved):
        stays = own[-1][1] in kept
        assert (store.get_state(f"session:{number}") is not None) == stays
        assert bool(store.events(str(number))) == stays


@one_store
@given(plans=conversations(), share=st.floats(0.05, 0.95))
def test_size_takes_what_was_used_longest_ago_and_nothing_live(store, plans, share):
    clear(store)
    saved = fill(store, plans)
    used = {key: max(store_time(store, key), 0) for own in saved for _, key, _ in own}
    parts = {key: part for own in saved for part, key, _ in own}
    live = referred(saved, plans, [key for key, time in used.items() if time > NOW - LIVE_SECONDS])
    if not (size := store.size().file_bytes):
        return  # the backend cannot say
    done = collect_garbage(store, larger_than_bytes=int(size * share))
    gone, kept = {one.key for one in done.histories}, {one.key for one in store.histories()}
    assert gone.isdisjoint(live)
    assert gone | kept == set(used)
    assert kept == referred(saved, plans, kept)
    latest = max((used[key] for key in gone), default=0)
    assert {key for key, time in used.items() if time > latest} <= kept
    assert store.verify() == []
    assert {key: json.dumps(list(store.load_history(key).messages)) for key in kept} == {
        key: json.dumps(parts[key]) for key in kept
    }


def store_time(store, key):
    return next(one.used for one in store.histories() if one.key == key)


def clear(store):
    with store.backend.transaction(write=True):
        store.backend.remove(store.backend.keys(""))


def test_a_store_becomes_as_small_as_was_asked(sqlite_path):
    with open_store(sqlite_path) as store:
        for number in range(40):
            store.clock = lambda number=number: NOW - (60 - number) * DAY
            noise = [said(number, " ".join(str(hash((number, n, m))) for m in range(100))) for n in range(10)]
            store.save_history(read_history(noise))
        store.flush()
        store.clock = lambda: NOW
        limit = store.size().file_bytes // 2
        done = collect_garbage(store, larger_than_bytes=limit)
        assert limit * 0.8 < store.size().file_bytes <= limit
        assert done.bytes_after == store.size().file_bytes
        assert [one.used for one in done.histories] == [
            NOW - (60 - number) * DAY for number in range(len(done.histories))
        ]
        assert collect_garbage(store, larger_than_bytes=limit).histories == ()


def test_what_is_restored_or_saved_again_is_used_again(store):
    messages = [said(1, "first"), said(1, "second")]
    store.clock = lambda: NOW - 60 * DAY
    keys = [store.save_history(read_history(messages[:n])) for n in (1, 2)]
    other = store.save_history(read_history([said(2, "x")]))
    store.clock = lambda: NOW
    store.restore(f"{keys[0]}:t1")
    assert {one.key for one in collect_garbage(store, older_than_seconds=30 * DAY, dry_run=True).histories} == {
        keys[1],
        other,
    }
    assert store.save_history(read_history(messages)) == keys[1]
    assert {one.key for one in collect_garbage(store, older_than_seconds=30 * DAY).histories} == {other}
    assert list(store.load_history(keys[1]).messages) == messages


def test_a_session_that_only_goes_on_keeps_what_its_view_refers_to(sqlite_path):
    clock = [NOW]
    with open_store(sqlite_path) as store:
        store.clock = lambda: clock[0]
        with Session("go on", store=store, window_tokens=20_000, planner="rules", clock=store.clock) as session:
            messages = make_session(60)
            view = session.compact(messages, at_limit=True).messages
            key = session.state.history_key
            assert len(view) < len(messages)
            assert key in json.dumps(view)
            for _ in range(5):
                clock[0] += 10 * DAY
                session.prepare(messages)
            assert collect_garbage(store, older_than_seconds=20 * DAY).histories == ()
            assert store.restore(f"{key}:t3").messages
            clock[0] += 30 * DAY  # nobody asks
            assert collect_garbage(store, older_than_seconds=20 * DAY).histories


def test_old_events_of_no_conversation_go_with_age(store):
    store.clock = lambda: NOW
    key = store.save_history(read_history([said(1, "kept")]))
    store.record_event({"time": NOW - 50 * DAY, "kind": "old"})
    store.record_event({"time": NOW - 50 * DAY, "kind": "its", "history": key})
    store.record_event({"time": NOW - 1 * DAY, "kind": "new"})
    assert collect_garbage(store, older_than_seconds=30 * DAY).events == 1
    assert [event["kind"] for event in store.events()] == ["its", "new"]


def test_a_history_whose_use_was_never_noted_is_not_old(store):
    store.clock = lambda: 0.0
    key = store.save_history(read_history([said(1, "of before")]))
    store.clock = lambda: NOW
    assert collect_garbage(store, older_than_seconds=30 * DAY).histories == ()
    assert store.load_history(key).messages


@pytest.mark.parametrize(
    "limits", [{"older_than_seconds": 0}, {"larger_than_bytes": -1}, {"older_than_seconds": float("nan")}]
)
def test_a_limit_that_keeps_nothing_is_refused(store, limits):
    with pytest.raises(SettingsError, match="has to be more than nothing"):
        collect_garbage(store, **limits)


def test_no_file_holds_what_was_collected(sqlite_path):
    secret = "x7Gq-not-to-be-found"
    with open_store(sqlite_path) as store:
        store.clock = lambda: NOW - 60 * DAY
        key = store.save_history(read_history([said(1, secret)]))
        store.save_facts([fact(f"is {secret}")], key)
        store.save_plan(plan_for(read_history([said(1, secret)]), task=f"find {secret}"))
        store.set_state("session:a", {"key": key, "head": secret})
        store.record_event({"time": NOW - 60 * DAY, "session": "a", "message": secret})
        store.record_event({"time": NOW - 60 * DAY, "message": secret})
        store.clock = lambda: NOW
        kept = store.save_history(read_history([said(2, "kept")]))
        assert collect_garbage(store, older_than_seconds=30 * DAY).left == ()
        assert secret.encode() not in b"".join(path.read_bytes() for path in sqlite_path.parent.iterdir())
        assert store.load_history(kept).messages
