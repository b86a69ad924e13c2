"""Laws of histories: what goes in comes out byte for byte, whole or by turn, however often and in any order."""

import json
from copy import deepcopy

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.reading.history import read_history
from planner.reading.lines import join_lines, turn_lines
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
@given(messages=histories(min_turns=2), data=st.data())
def test_cache_marks_move_and_each_save_is_exact(store, messages, data):
    """Callers move their marks on the same objects, and make blocks of text to hold them; the key is the same."""
    messages = deepcopy(messages)
    keys = set()
    for _ in range(3):
        for message in messages:
            move_marks(message, data)
        keys.add(store.save_history(read_history(messages)))
        assert exact(store.load_history(*keys).messages) == exact(messages)
    assert store.verify() == []


def move_marks(holder, data):
    """Set or remove marks on the blocks of a message, or of a result, in place."""
    if isinstance(holder.get("content"), str) and holder.get("role") and data.draw(st.booleans()):
        holder["content"] = [{"type": "text", "text": holder["content"]}]
    for block in holder["content"] if isinstance(holder.get("content"), list) else ():
        block.pop("cache_control", None)
        if data.draw(st.booleans()):
            block["cache_control"] = {"type": "ephemeral"}
        move_marks(block, data)


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
    nodes = "SELECT count(*) FROM nodes"
    with store.database.transaction() as transaction:
        assert transaction.rows(nodes) == [(len(messages),)]


def test_saving_again_stores_nothing(store):
    history = read_history(make_session(20))
    key, size = store.save_history(history), store.size()
    assert store.save_history(history) == store.save_history(read_history(make_session(20))) == key
    assert store.size() == size
    assert [found.key for found in store.histories()] == [key]
