"""Several proxies on one store: whichever a request goes to, what goes out is what one proxy would have sent."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from applier.store import open_store
from applier.testing import MessagesServer, use
from planner.reading.messages import read_history
from tests import http_client
from tests.patience import PATIENCE_SECONDS
from tests.strategies import make_session

MODEL = "claude-opus-5-5"
SETTINGS = {"window_tokens": 9_000, "planner": "rules"}
THINKING = {"type": "adaptive"}


def answering(request):
    """The next step of the work; what it says is its own, so that conversations are told apart by it."""
    number = sum(message["role"] == "assistant" for message in request.messages)
    return [use("bash", command=f"npm test {number}", of=request.headers["x-name"])]


def talk(urls, name, rounds, *, key="k", rewound_at=(), before_round=lambda number: None):
    """A client whose requests go to one after the other of `urls`; at times the user goes some rounds back."""
    results = [message["content"][0]["content"] for message in make_session(2 * rounds)[2::2]]
    messages = [{"role": "user", "content": f"Fix {name}. It must support Node 18+."}]
    statuses = []
    with http_client.Client() as client:
        for number in range(rounds):
            before_round(number)
            if number in rewound_at:
                messages = [*messages[:-6], {"role": "user", "content": f"No, another way, after {number}."}]
            body = {"model": MODEL, "max_tokens": 99, "messages": messages, "thinking": THINKING}
            headers = {"x-api-key": key, "x-name": name}
            answer = client.post(f"{urls[number % len(urls)]}/v1/messages", json=body, headers=headers)
            statuses.append(answer.status_code)
            content = answer.json()["content"]
            (call,) = (block for block in content if block["type"] == "tool_use")
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": results[number]}
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    assert set(statuses) == {200}
    return messages


@pytest.mark.real
def test_round_robin_sends_what_one_proxy_sends_and_a_user_may_go_back(proxied, database):
    bodies = []
    for count in (1, 2):
        with MessagesServer(answering, window_tokens=10_000) as server:
            urls = [proxied(server, store=database.url, session=SETTINGS).url for _ in range(count)]
            talk(urls, "auth", 38, key=str(count), rewound_at=(14, 17, 34))
            assert server.violations == []
            bodies.append([exchange.request.body["messages"] for exchange in server.exchanges])
            cost = server.bill.cost()
    assert bodies[0] == bodies[1]
    assert cost > 0
    assert any("<compacted" in str(body) for body in bodies[0])


class Wire:
    """A network between a client and a server's socket, on a port of its own, that may go silent."""

    def __init__(self, target):
        self.target, self.is_silent = target, threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://store@127.0.0.1:{self.listening.getsockname()[1]}/postgres"
        self.ends, self.threads = [], []
        self._start(self._accept)

    def _start(self, act, *arguments):
        self.threads.append(threading.Thread(target=act, args=arguments))
        self.threads[-1].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self.listening.accept()[0], socket.socket(socket.AF_UNIX)
                self.ends += [near, far]
                far.connect(str(self.target))
                self._start(self._carry, near, far)
                self._start(self._carry, far, near)

    def _carry(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not self.is_silent.is_set():
                    other.sendall(data)
        _shut(one, other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _shut(self.listening, *self.ends)
        for thread in self.threads:
            thread.join()
        for end in (self.listening, *self.ends):
            end.close()


def _shut(*ends):
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def database(postgres):
    """A server whose store holds nothing yet."""
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS compactor CASCADE")
    return postgres


def everything_is_stored(url, conversations):
    with open_store(url) as store:
        stored = {digest for one in store.histories() for digest in store.load_history(one.key).digests}
    return all(stored.issuperset(read_history(messages).digests[:-2]) for messages in conversations)


@pytest.mark.real
def test_a_database_that_is_started_anew_costs_no_client_a_request(proxied, database):
    """Nor does one that is started meanwhile, and knows nothing of what the others have sent."""
    with MessagesServer(answering, window_tokens=20_000) as server:
        proxies = [proxied(server, store=database.url, session=SETTINGS) for _ in range(2)]
        urls = [proxy.url for proxy in proxies]

        def before_round(number):
            if number == 15:
                database.stop()
                proxies.append(proxied(server, store=database.url, session=SETTINGS))
                urls.append(proxies[-1].url)
            if number == 18:
                database.start()

        messages = talk(urls, "auth", 40, before_round=before_round)
        assert server.violations == []
        assert all(proxy.metrics.value("requests", kind="failed") == 0 for proxy in proxies)
        for proxy in proxies:
            proxy.__exit__(None, None, None)
    assert everything_is_stored(database.url, [messages])


@pytest.mark.real
def test_a_proxy_that_is_cut_off_from_the_database_goes_on_and_comes_back(proxied, database):
    with Wire(database.socket) as wire, MessagesServer(answering, window_tokens=20_000) as server:

        def before_round(number):
            if number == 12:
                wire.is_silent.set()
            if number == 15:
                wire.is_silent.clear()

        proxies = [proxied(server, store=store, session=SETTINGS) for store in (database.url, wire.url)]
        talk([proxy.url for proxy in proxies], "auth", 36, before_round=before_round)
        assert server.violations == []
        assert all(proxy.metrics.value("requests", kind="failed") == 0 for proxy in proxies)
        for proxy in proxies:
            proxy.__exit__(None, None, None)


@pytest.mark.slow
def test_thirty_two_clients_write_at_once_while_the_database_is_started_anew(proxied, database):
    reached, restarted = threading.Semaphore(0), threading.Event()

    def before_round(number):
        if number == 3:
            reached.release()
        if number == 5:
            assert restarted.wait(PATIENCE_SECONDS)

    def restart():
        for _ in range(16):
            reached.acquire()
        database.stop()
        database.start()
        restarted.set()

    with MessagesServer(answering, window_tokens=20_000) as server, ThreadPoolExecutor(33) as threads:
        proxies = [proxied(server, store=database.url, session=SETTINGS) for _ in range(2)]
        urls = [proxy.url for proxy in proxies]
        restarting = threads.submit(restart)
        names = [f"part{number}" for number in range(32)]
        talks = [threads.submit(talk, urls, name, 7, before_round=before_round) for name in names]
        conversations = [one.result() for one in talks]
        restarting.result()
        assert server.violations == []
        for proxy in proxies:
            proxy.__exit__(None, None, None)
    assert everything_is_stored(database.url, conversations)
