"""The cost of round-robin over two proxies on one PostgreSQL, beside one proxy, and of a killed proxy and a restarted
database: ``python -m tests.bench proxies``.

With ``--seconds`` the calls are spread over that time, and memory is shown by time. Needs PostgreSQL's programs.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from applier.store import open_store
from applier.testing import MessagesServer, PromptUsage, Request, say, use
from tests.bench.proxy_load import RunningProxy, conversation, resident_mb
from tests.postgres_server import PostgresServer

_MODEL = "claude-opus-5-5"
_WINDOW = 14_000
_PROVIDERS_WINDOW = 24_000
"""Window with room for calls while the database is away, ten times as fast as an agent's."""
_TOO_LONG = 22
"""Rule of the test server for a prompt that is too long."""
_NO_REQUEST = Request({}, {})
_SAMPLES = 15
_DOWN_SECONDS = 2.0
"""Seconds without the database."""
_TRIES = 5
"""Tries of a balancer; all fail only if no proxy is left."""


@dataclass
class _Run:
    """Way to send the same conversations."""

    name: str
    proxies: int
    route: Callable[[int, int], int]
    """Proxy for a client and the number of its call."""
    troubles: bool = False
    """True if one proxy and then the database are killed and restarted."""
    calls: int = 0
    errors: int = 0
    """Calls that failed for a client."""
    repeated: int = 0
    """Calls that the balancer repeated after a proxy was gone."""
    invalid: int = 0
    too_long: int = 0
    """Valid lists that were too long, since nothing is compacted without the database."""
    compactions: int = 0
    bill: PromptUsage = field(default_factory=PromptUsage)
    memory: list[int] = field(default_factory=list)
    """Megabytes of all proxies together, at even distances."""
    open: list[int] = field(default_factory=list)
    """Open sessions of all proxies together, at the same times."""
    started: float = 0.0
    seconds: float = 0.0


def _runs() -> list[_Run]:
    return [
        _Run("one proxy", 1, lambda client, call: 0),
        _Run("two, sticky", 2, lambda client, call: client),
        _Run("two, round-robin", 2, lambda client, call: client + call),
        _Run("two, killed and restarted", 2, lambda client, call: client + call, troubles=True),
    ]


def _answering(request: Request) -> list[dict[str, object]]:
    """Return the next round of the client's conversation in the model's words."""
    number = sum(message["role"] == "assistant" for message in request.messages)
    return [say(f"Check {number}, of {len(request.raw)} bytes."), use("bash", command=f"check {number}")]


class _Clients:
    """Clients that each run one conversation after the other."""

    def __init__(self, run: _Run, proxies: list[RunningProxy], options: argparse.Namespace) -> None:
        self.run, self.proxies, self.options = run, proxies, options
        self._calls_a_client = options.conversations * options.rounds
        self.total = options.clients * self._calls_a_client
        self._lock = threading.Lock()

    def play(self) -> None:
        """Run all conversations."""
        with ThreadPoolExecutor(self.options.clients) as threads:
            list(threads.map(self._client, range(self.options.clients)))

    def _client(self, client: int) -> None:
        call = 0
        with httpx.Client(timeout=120) as http:
            for number in range(self.options.conversations):
                script = conversation(f"part{client}x{number}", self.options.rounds)
                messages = script[:1]
                for result in script[2::2]:
                    due = self.run.started + self.options.seconds * call / self._calls_a_client
                    time.sleep(max(0.0, due - time.monotonic()))
                    content = self._ask(http, client, call, messages)
                    call += 1
                    if content is None:
                        break
                    made = next((block for block in content if block["type"] == "tool_use"), None)
                    if made is None:  # the window has cut it off
                        break
                    answer = {**result["content"][0], "tool_use_id": made["id"]}
                    messages = [*messages, {"role": "assistant", "content": content}]
                    messages = [*messages, {"role": "user", "content": [answer]}]

    def _ask(self, http: httpx.Client, client: int, call: int, messages: list[dict[str, Any]]) -> Any:
        newest = messages[-1]["content"]
        blocks = [{"type": "text", "text": newest}] if isinstance(newest, str) else list(newest)
        marked = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
        sent = [*messages[:-1], {**messages[-1], "content": marked}]
        body = {"model": _MODEL, "max_tokens": 99, "thinking": {"type": "adaptive"}, "messages": sent}
        for attempt in range(_TRIES):
            proxy = self.proxies[(self.run.route(client, call) + attempt) % len(self.proxies)]
            try:
                answer = http.post(f"{proxy.url}/v1/messages", json=body, headers={"x-api-key": f"client{client}"})
            except httpx.TransportError:
                with self._lock:
                    self.run.repeated += 1
                continue
            with self._lock:
                self.run.calls += 1
                self.run.errors += answer.status_code != 200
            return answer.json()["content"] if answer.status_code == 200 else None
        with self._lock:
            self.run.errors += 1
        return None


def _measured(run: _Run, options: argparse.Namespace) -> _Run:
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer())
        server = stack.enter_context(MessagesServer(_answering, window_tokens=_PROVIDERS_WINDOW))
        given = server.url, _WINDOW, database.url
        proxies = [stack.enter_context(RunningProxy(*given)) for _ in range(run.proxies)]
        clients = _Clients(run, proxies, options)
        playing = threading.Thread(target=clients.play)
        due = _due(clients.total, proxies, database, troubles=run.troubles)
        run.started = time.monotonic()
        playing.start()
        at, act = next(due)
        while playing.is_alive():
            playing.join(0.2)
            _let_go(server)
            while run.calls >= at:
                act(run)
                at, act = next(due)
        run.seconds = time.monotonic() - run.started
        rules = [{violation.rule for violation in exchange.violations} for exchange in server.exchanges]
        run.too_long = sum(broken == {_TOO_LONG} for broken in rules)
        run.bill, run.invalid = server.bill, sum(map(bool, rules)) - run.too_long
        with open_store(database.url) as store:
            run.compactions = sum(event.get("kind") == "post_compact" for event in store.events())
    return run


def _let_go(server: MessagesServer) -> None:
    """Drop the lists of requests that were counted."""
    for at, exchange in enumerate(server.exchanges):
        if exchange.request is not _NO_REQUEST:
            server.exchanges[at] = replace(exchange, request=_NO_REQUEST, content=())


def _due(
    total: int, proxies: list[RunningProxy], database: PostgresServer, *, troubles: bool
) -> Iterator[tuple[float, Callable[[_Run], object]]]:
    """Yield the actions by number of calls, in order."""

    def measure(run: _Run) -> None:
        run.memory.append(round(sum(resident_mb(proxy.process_id) for proxy in proxies)))
        run.open.append(sum(proxy.open_conversations() for proxy in proxies))

    def restart(_: _Run) -> None:
        database.stop()
        time.sleep(_DOWN_SECONDS)
        database.start()

    acts: list[tuple[float, Callable[[_Run], object]]] = []
    acts += [(total * at / _SAMPLES * 0.98, measure) for at in range(1, _SAMPLES + 1)]
    if troubles:
        acts += [(total * 0.08, lambda _: proxies[1].kill()), (total * 0.12, lambda _: proxies[1].start())]
        acts += [(total * 0.2, restart)]
    yield from sorted(acts, key=lambda act: act[0])
    yield float("inf"), measure


def _table(runs: Sequence[_Run]) -> Table:
    table = Table(title="The same conversations, by how they are sent", caption="cost: input in uncached tokens")
    table.add_column("")
    for name in (
        "calls",
        "errors",
        "sent on",
        "invalid lists",
        "too long",
        "compactions",
        "cost",
        "to one",
        "seconds",
    ):
        table.add_column(name, justify="right")
    for run in runs:
        counts = (
            run.calls,
            run.errors,
            run.repeated,
            run.invalid,
            run.too_long,
            run.compactions,
            round(run.bill.cost()),
        )
        ratio = f"{run.bill.cost() / max(1.0, runs[0].bill.cost()):.3f}"
        table.add_row(run.name, *(f"{count:,}" for count in counts), ratio, f"{run.seconds:.0f}")
    return table


def _memory(run: _Run) -> Table:
    third = len(run.memory) // 3
    middle, last = (sum(run.memory[at * third :][:third]) / max(1, third) for at in (1, 2))
    caption = f"the last third has {last / max(1.0, middle):.3f} of the middle third"
    table = Table(title=f"{run.name}: all proxies together, by fifteenths of the calls", caption=caption)
    for name, row in (("open sessions", run.open), ("memory, MB", run.memory)):
        table.add_row(name, " ".join(map(str, row)))
    return table


def _print(console: Console, options: argparse.Namespace) -> None:
    runs = [_measured(run, options) for run in _runs() if options.only in run.name]
    console.print(_table(runs), *map(_memory, runs))


def add_command(commands: Any) -> None:
    """Add the command ``proxies``."""
    command = commands.add_parser("proxies", help="what several proxies on one PostgreSQL cost beside one")
    command.add_argument("--clients", type=int, default=20)
    command.add_argument("--conversations", type=int, default=15, help="of each client, one after the other")
    command.add_argument("--rounds", type=int, default=20, help="of each conversation, about 1,000 tokens each")
    command.add_argument("--seconds", type=int, default=0, help="over which each run spreads its calls; 0: at once")
    command.add_argument("--only", default="", help="runs that have this in their names")
    command.set_defaults(run=_print)
