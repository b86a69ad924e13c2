"""Laws of histories: what goes in comes out byte for byte, whole or by turn, however often and in any order."""

import json
from copy import deepcopy

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from applier.store import history_key
from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import read_history
from tests.strategies import answered_histories, histories, make_session

one_store = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

texts = st.text(st.characters(), max_size=30)  # every code point, lone surrogates and NUL among them
numbers = st.one_of(st.integers(), st.integers(10**30, 10**40), st.floats())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
blocks = st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_use", "tool_result", "x"]), "data": values})
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.one_of(texts, st.lists(blocks, max_size=3))},
    optional={"extra": values},
)


def exact(messages):
    return json.dumps(list(messages))


@one_store
@given(messages=st.one_of(histories(), st.lists(odd_messages, max_size=6)))
def test_a_history_comes_back_byte_for_byte(store, messages):
    history = read_history(messages)
    key = store.save_history(history)
    loaded = store.load_history(key)
    assert exact(loaded.messages) == exact(history.messages)
    assert loaded.turns == history.turns
    assert store.load_history(history.digest).digest == history.digest


@one_store
@given(messages=st.one_of(histories(), answered_histories()), data=st.data())
def test_every_turn_of_every_saved_prefix_comes_back(store, messages, data):
    lengths = data.draw(st.permutations(range(1, len(messages) + 1)))[:4]
    keys = {n: store.save_history(read_history(messages[:n])) for n in lengths}
    for n, key in keys.items():
        history = read_history(messages[:n])
        for turn in history.turns:
            restored = store.restore(f"{key}:{turn.id}")
            assert exact(restored.messages) == exact(history.messages_of(turn))
            assert restored.text == join_lines(turn_lines(history, turn))


@one_store
@given(messages=histories(min_turns=2), coin=st.randoms(use_true_random=True))
def test_a_key_gives_back_for_ever_what_it_was_given_for(store, messages, coin):
    """Callers move their marks on the same objects, and make blocks of text to hold them: each form has its key."""
    messages = deepcopy(messages)
    saved = {}
    for _ in range(4):
        for message in messages:
            move_marks(message, coin)
        key = store.save_history(read_history(messages))
        assert saved.setdefault(key, exact(messages)) == exact(messages)
    assert {key: exact(store.load_history(key).messages) for key in saved} == saved
    assert len(set(saved.values())) == len(saved)
    assert {found.key for found in store.histories()} == set(saved)
    assert next(iter(saved)) == history_key(read_history(messages).digest)
    assert store.verify() == []
    store.forget(next(iter(saved)))
    assert store.histories() == ()


def test_a_text_and_a_block_of_it_come_back_each_in_its_form(store):
    forms = [[{"role": "user", "content": "x"}], [{"role": "user", "content": [{"type": "text", "text": "x"}]}]]
    keys = [store.save_history(read_history(form)) for form in forms]
    assert [list(store.load_history(key).messages) for key in keys] == forms
    assert [list(store.restore(f"{key}:t1").messages) for key in keys] == forms
    assert keys == [store.save_history(read_history(form)) for form in forms]


def move_marks(holder, coin):
    """Set or remove marks on the blocks of a message, or of a result, in place."""
    if isinstance(holder.get("content"), str) and holder.get("role") and coin.random() < 0.5:
        holder["content"] = [{"type": "text", "text": holder["content"]}]
    for block in holder["content"] if isinstance(holder.get("content"), list) else ():
        block.pop("cache_control", None)
        if coin.random() < 0.5:
            block["cache_control"] = {"type": "ephemeral"}
        move_marks(block, coin)


@one_store
@given(first=histories(), second=histories(), data=st.data())
def test_forks_share_and_stay_apart(store, first, second, data):
    cut = data.draw(st.integers(0, len(first)))
    forked = [*first[:cut], *second]
    keys = [store.save_history(read_history(messages)) for messages in (first, forked, first)]
    assert keys[0] == keys[2]
    assert exact(store.load_history(keys[0]).messages) == exact(first)
    assert exact(store.load_history(keys[1]).messages) == exact(forked)


@one_store
@given(data=st.data())
def test_a_message_is_stored_once_whichever_conversations_hold_it(store, data):
    """A fork, a session that was resumed, a subagent with the same words and files: none costs what is there."""
    with store.backend.transaction(write=True):
        store.backend.remove(store.backend.keys(""))
    pool = data.draw(histories(min_turns=2))
    picks = st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=6)
    saved = [[pool[at] for at in data.draw(picks)] for _ in range(data.draw(st.integers(1, 5)))]
    for messages in saved:
        for n in range(1, len(messages) + 1):
            store.save_history(read_history(messages[:n]))
    distinct = {exact([message]) for messages in saved for message in messages}
    assert store.size().messages == len(distinct)
    with store.backend.transaction():
        assert len(store.backend.keys("node/")) == len(
            {exact(messages[:n]) for messages in saved for n in range(1, len(messages) + 1)}
        )


@one_store
@given(messages=histories(min_turns=3), other=histories(min_turns=2), data=st.data())
def test_forgetting_a_conversation_leaves_one_that_forks_off_whole(store, messages, other, data):
    fork = [*messages[: data.draw(st.integers(0, len(messages) - 1))], *other]
    pairs = zip(read_history(messages).digests, read_history(fork).digests, strict=False)
    shared = next((n for n, (mine, others) in enumerate(pairs) if mine != others), None)
    assume(shared is not None)
    kept = [store.save_history(read_history(fork[:n])) for n in (1, len(fork))]
    keys = [store.save_history(read_history(messages[:n])) for n in range(1, len(messages) + 1)]
    store.forget(data.draw(st.sampled_from(keys[shared:])))
    assert len(store.load_history(kept[0]).messages) == 1
    assert exact(store.load_history(kept[1]).messages) == exact(fork)
    assert not set(keys[shared:]) & {history.key for history in store.histories()}
    assert store.verify() == []
    store.forget(read_history(fork).digest)
    assert (store.size().histories, store.size().messages) == (0, 0)


def test_what_a_longer_history_costs_is_its_new_messages(store):
    messages = make_session(60)
    store.save_history(read_history(messages[:-2]))
    before = store.size()
    store.save_history(read_history(messages))
    assert store.size().messages == before.messages + 2
    with store.backend.transaction():
        assert len(store.backend.keys("node/")) == len(messages)


def test_saving_again_stores_nothing(store):
    history = read_history(make_session(20))
    key, size = store.save_history(history), store.size()
    assert store.save_history(history) == store.save_history(read_history(make_session(20))) == key
    assert store.size() == size
    assert [found.key for found in store.histories()] == [key]
