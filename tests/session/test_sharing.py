"""One session that several processes serve from one store: whichever of them a call goes to, one view is sent."""

import json
import threading
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.session import Session, sharing
from applier.settings import SessionSettings
from applier.store import open_store
from applier.store.backend import Backend
from applier.store.store import Store
from applier.testing import PromptCache, Request, judge
from applier.testing.judge import sealed
from planner.errors import SettingsError, StoreError
from planner.plan import Proposal, Provenance
from tests.patience import PATIENCE_SECONDS
from tests.session.agent import Clock
from tests.strategies import make_session

MODEL = "claude-opus-5-5"
"""Binds its thinking to everything before it."""
WINDOW = 6_000


class Provider:
    """Answers by a script, seals its thinking, and keeps what it was sent and what that cost."""

    def __init__(self, clock):
        self.clock, self.cache = clock, PromptCache()
        self.sent, self.refused, self.cost = [], [], 0.0

    def answer(self, messages, content):
        marked = [*messages[:-1], with_mark(messages[-1])]
        body = {"model": MODEL, "max_tokens": 99, "messages": marked, "thinking": {"type": "adaptive"}}
        request = Request(body, {}, json.dumps(body).encode())
        self.sent.append(messages)
        self.refused += judge(request, WINDOW)
        usage = self.cache.charge(request, self.clock())
        self.cost += usage.cost()
        thought = {"type": "thinking", "thinking": f"Let me see, {len(self.sent)}."}
        return sealed(request, [thought, *content]), usage.as_json()


def with_mark(message):
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


class Process:
    """A proxy as far as its sessions go: it opens one when it is asked, and can be killed."""

    def __init__(self, store, clock, **wishes):
        self.store, self.clock, self.wishes, self.session = store, clock, wishes, None

    def prepare(self, messages):
        if self.session is None:
            given = {"planner": "rules", "window_tokens": WINDOW, **self.wishes}
            self.session = Session(
                store=self.store, clock=self.clock, session_id="s", is_shared=True, model=MODEL, **given
            )
        self.session.set_request(model=MODEL, thinking={"type": "adaptive"})
        return self.session.prepare(messages)

    def observe(self, usage):
        if self.session is not None:
            self.session.observe({"usage": usage})

    def kill(self):
        self.session = None


def talk(history, routes, clock, before_call=lambda number: None):
    """Play the assistant's part of `history`, each call by the last of the processes that `routes` names: it was sent
    again where one before did not answer."""
    provider, messages, number = Provider(clock), [], 0
    for message in history:
        if message["role"] == "assistant":
            before_call(number)
            for process in routes(number):
                sent = process.prepare(json.loads(json.dumps(messages)))
            content, usage = provider.answer(sent, message["content"])
            process.observe(usage)
            message, number = {**message, "content": content}, number + 1
            clock.pass_(20)
        messages.append(message)
    provider.messages = messages
    return provider


def alone(history, store, **wishes):
    clock = Clock()
    process = Process(store, clock, **wishes)
    return talk(history, lambda _: [process], clock)


def work(rounds, lines):
    """`rounds` rounds of work; some results are longer by so many lines."""
    history = make_session(rounds)
    for turn, more in lines.items():
        if 2 + 2 * turn < len(history):
            history[2 + 2 * turn]["content"][0]["content"] += "\nnothing to see here, line after line" * more
    return history


histories = st.builds(work, st.integers(8, 24), st.dictionaries(st.integers(0, 20), st.integers(50, 300), max_size=4))
presets = st.sampled_from(["relevance", "relevance", "s06", "three-layer"])


@pytest.fixture(scope="module")
def store_url(tmp_path_factory):
    """The name of a store that others may have used before."""
    return str(tmp_path_factory.mktemp("sharing") / "store.db")


def emptied(url):
    """The store at `url` without anything in it."""
    store = open_store(url)
    with store.backend.transaction(write=True):
        store.backend.remove(store.backend.keys(""))
    return store


@settings(max_examples=4)
@given(
    histories, presets, st.lists(st.integers(0, 2), min_size=1, max_size=20), st.sets(st.integers(0, 24), max_size=3)
)
def test_whichever_process_a_call_goes_to_the_lists_are_those_of_one(store_url, history, preset, routing, kills):
    with ExitStack() as stack:
        one = alone(history, stack.enter_context(emptied(store_url)), preset=preset)
        clock, first = Clock(), stack.enter_context(emptied(store_url))
        stores = [first, *(stack.enter_context(open_store(store_url)) for _ in range(2))]
        processes = [Process(store, clock, preset=preset) for store in stores]

        def routes(number):
            return [processes[routing[number % len(routing)]]]

        several = talk(history, routes, clock, lambda number: routes(number)[0].kill() if number in kills else None)
    assert several.refused == one.refused == []
    assert several.sent == one.sent
    assert several.cost == one.cost


class Losing(Backend):
    """A database that cannot be reached while it `is_lost`."""

    def __init__(self, inner):
        self.inner, self.is_lost = inner, False

    def transaction(self, *, write=False):
        self._reach()
        return self.inner.transaction(write=write)

    def hold(self, name, seconds):
        self._reach()
        return self.inner.hold(name, seconds)

    def _reach(self):
        if self.is_lost:
            raise StoreError("the database is gone")

    def keys(self, prefix):
        return self.inner.keys(prefix)

    def get(self, keys):
        return self.inner.get(keys)

    def add(self, records):
        self.inner.add(records)

    def remove(self, keys):
        self.inner.remove(keys)

    def close(self):
        self.inner.close()


@settings(max_examples=8)
@given(
    histories,
    presets,
    st.lists(st.sampled_from([[0], [1], [2], [0], [1], [0, 1], [1, 0], [2, 0]]), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 2)), max_size=8),
    st.sets(st.integers(0, 24), max_size=2),
)
def test_while_the_store_is_lost_the_lists_are_valid_and_afterwards_nothing_is(
    store_url, history, preset, routing, turned, kills
):
    """Each process loses and finds the store on its own: a network may be partitioned."""
    clock = Clock()
    with ExitStack() as stack:
        stores = [Store(Losing(stack.enter_context(emptied(store_url)).backend))]
        stores += [Store(Losing(stack.enter_context(open_store(store_url)).backend)) for _ in range(2)]
        processes = [Process(store, clock, preset=preset) for store in stores]

        def routes(number):
            return [processes[which] for which in routing[number % len(routing)]]

        def before_call(number):
            if number in kills:
                routes(number)[-1].kill()
            for at, which in turned:
                if at == number:
                    stores[which].backend.is_lost = not stores[which].backend.is_lost

        several = talk(history, routes, clock, before_call)
        assert [violation for violation in several.refused if violation.rule != 22] == []
        for store in stores:
            store.backend.is_lost = False
        for process in processes:
            last = process.prepare(several.messages)
            stored = [message for one in stores[0].histories() for message in stores[0].load_history(one.key).messages]
            assert all(message in last or message in stored for message in several.messages)


@pytest.mark.parametrize("garbage", [None, [1], {"number": 7}, {"number": 7, "frame": "?"}])
def test_a_state_that_is_gone_or_cannot_be_read_is_written_anew(store_url, garbage):
    clock = Clock()
    with emptied(store_url) as one, open_store(store_url) as other:
        processes = [Process(one, clock), Process(other, clock)]

        def before_call(number):
            if number == 8:
                other.set_state("session:s", garbage)

        several = talk(work(20, {}), lambda number: [processes[number % 2]], clock, before_call)
        assert several.refused == []
        assert other.get_state("session:s")["messages"] == len(several.sent) * 2 - 1
        assert processes[1].session.state.compactions > 0


@pytest.fixture
def impatient(monkeypatch):
    """Calls that wait for another process do not wait long."""
    monkeypatch.setattr(sharing, "HOLD_SECONDS", 0.05)


@pytest.mark.real
def test_one_at_a_time_holds_a_session(postgres_url):
    with ExitStack() as stack:
        one, other = stack.enter_context(emptied(postgres_url)), stack.enter_context(open_store(postgres_url))
        first = one.backend.hold("session:s", 0)
        assert first.__enter__()
        with other.backend.hold("session:s", 0) as second, other.backend.hold("session:t", 0) as third:
            assert (second, third) == (False, True)
        first.__exit__(None, None, None)
        with other.backend.hold("session:s", 0) as second:
            assert second


@pytest.mark.real
@pytest.mark.usefixtures("impatient")
def test_a_call_that_finds_the_session_held_goes_on_with_the_view_that_stands(postgres_url):
    clock, history = Clock(), work(24, {})
    with emptied(postgres_url) as one, open_store(postgres_url) as other, open_store(postgres_url) as third:
        processes = [Process(one, clock), Process(other, clock)]
        with third.backend.hold("session:s", 0):
            held = talk(history, lambda number: [processes[number % 2]], clock)
    assert held.refused == []


class SlowPlanner:
    """Plans when it is let."""

    def __init__(self):
        self.is_asked, self.may = threading.Event(), threading.Event()
        self.times = 0

    def propose(self, request):
        self.times += 1
        self.is_asked.set()
        assert self.may.wait(PATIENCE_SECONDS)
        return Proposal({}, Provenance(planner="slow"))


@pytest.mark.real
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answered", [0, 1], ids=["the planning one", "the other one"])
def test_while_one_process_plans_another_answers_and_does_not_plan(postgres_url, answered):
    """A client that has waited too long asks again, and a balancer sends that to another process."""
    clock, history, planner = Clock(), work(40, {}), SlowPlanner()
    given = {
        "planner": planner,
        "settings": SessionSettings(background=False, max_output_tokens=500, compact_at_ratio=0.6),
    }
    provider, messages, calls = Provider(clock), [], 0
    with emptied(postgres_url) as one, open_store(postgres_url) as other:
        processes = [Process(one, clock, **given), Process(other, clock, **given)]
        for message in history:
            if message["role"] == "assistant":
                lists = [None, None]

                def prepare(which, lists=lists):
                    lists[which] = processes[which].prepare(json.loads(json.dumps(messages)))

                planner.is_asked.clear()
                planner.may.clear()
                asking = threading.Thread(target=prepare, args=(calls % 2,))
                asking.start()
                while asking.is_alive() and not planner.is_asked.wait(0.01):
                    pass
                if planner.is_asked.is_set():
                    prepare(1 - calls % 2)
                    planner.may.set()
                asking.join()
                sent = lists[calls % 2] if answered == 0 else lists[1 - calls % 2] or lists[calls % 2]
                content, usage = provider.answer(sent, message["content"])
                processes[calls % 2 if answered == 0 or lists[1 - calls % 2] is None else 1 - calls % 2].observe(usage)
                message, calls = {**message, "content": content}, calls + 1
                clock.pass_(20)
            messages.append(message)
        compactions = max(process.session.state.compactions for process in processes if process.session)
    assert provider.refused == []
    assert 1 <= planner.times <= compactions


def test_a_process_without_a_call_yet_looks_up_and_previews_what_another_stored(tmp_path):
    history = work(30, {})
    wishes = {"store": tmp_path / "s.db", "planner": "rules", "session_id": "s", "is_shared": True}
    with Session(window_tokens=60_000, **wishes) as first:
        first.compact(history[:-2])
        with Session(window_tokens=60_000, **wishes) as second:
            assert second.restore("t2").messages == tuple(history[1:3])
            assert second.search("TimeoutError").turns == first.search("TimeoutError").turns > 0
        with Session(window_tokens=60_000, **wishes) as third:
            shown = third.compact(history, dry_run=True)
            assert shown.tokens_before < len(str(history)) / 3
            assert shown.messages == third.compact(history).messages


def test_a_session_is_shared_by_its_name(tmp_path):
    with pytest.raises(SettingsError, match="session_id"):
        Session(store=tmp_path / "store.db", is_shared=True)
