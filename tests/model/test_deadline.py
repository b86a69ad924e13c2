"""One deadline for a planning call: servers that never end, waits they ask for, re-asks and pieces included."""

import asyncio
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import pytest

from applier.testing import Failure
from planner.errors import PlannerUnavailable
from planner.model import ModelPlanner
from tests.loopback import KEY, STALL, Loopback
from tests.model.sample import answer, plan_request, sent_tokens
from tests.model.test_planner import large_history
from tests.patience import PATIENCE_SECONDS

IN_TIME = r"no answer in time: raise settings\.timeout_seconds"


@contextmanager
def dripping():
    """A server that sends a byte of its answer now and then, and never the last."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

        def do_POST(self):
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000000")
            self.end_headers()
            try:
                while not closing.wait(0.02):
                    self.wfile.write(b" ")
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_drips_is_given_up():
    with (
        dripping() as url,
        anthropic.Anthropic(api_key=KEY, base_url=url) as client,
        pytest.raises(PlannerUnavailable, match=IN_TIME),
    ):
        ModelPlanner(client=client).propose(plan_request(timeout_seconds=0.3))


def test_a_server_that_asks_to_wait_is_not_waited_for():
    wait = Failure(429, "rate_limit_error", "later", (("retry-after", "50"),))
    with Loopback([wait]) as server, pytest.raises(PlannerUnavailable, match=r"rate limit is used up"):
        ModelPlanner(client=server.client()).propose(plan_request(timeout_seconds=5))
    assert len(server.requests) <= 1


@pytest.mark.real
def test_what_was_spent_before_time_ran_out_is_said():
    with Loopback(["no plan at all", STALL]) as server:
        with pytest.raises(PlannerUnavailable, match=IN_TIME) as failure:
            ModelPlanner(client=server.client(max_retries=0)).propose(plan_request(timeout_seconds=3))
        sent = server.exchanges[0].usage.prompt_tokens
        unanswered = sent_tokens(server.requests[1].body)
    assert (failure.value.usage.requests, failure.value.usage.input_tokens) == (2, sent + unanswered)


@pytest.mark.real
def test_nothing_is_sent_again_once_time_is_up():
    before = set(threading.enumerate())
    with Loopback([STALL]) as server, server.client(max_retries=2) as client:
        with pytest.raises(PlannerUnavailable, match=IN_TIME) as failure:
            ModelPlanner(client=client).propose(plan_request(timeout_seconds=3))
        for thread in set(threading.enumerate()) - before:
            if thread.name == "planner model":
                thread.join()
        assert len(server.requests) == failure.value.usage.requests == 1


@pytest.mark.real
def test_pieces_share_the_deadline_and_those_in_time_are_used():
    def last_stalls(request):
        shown = request.body["messages"][0]["content"]
        return STALL if "\n## t60 · " in shown else answer("t2 keep 5", brief=("STATE", "- first half read (t2)"))

    request = plan_request(large_history(), piece_tokens=3_000, timeout_seconds=12)
    with Loopback([last_stalls]) as server:
        proposal = ModelPlanner(client=server.client(max_retries=0)).propose(request)
    assert proposal.turns["t2"].strategy == "keep"
    assert proposal.brief.endswith("- first half read (t2)")
    assert "no answer in time" in proposal.provenance.notes[-1]


def test_an_asynchronous_client_keeps_the_deadline():
    async def plan(url):
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as client:
            await asyncio.to_thread(ModelPlanner(client=client).propose, plan_request(timeout_seconds=0.3))

    with dripping() as url, pytest.raises(PlannerUnavailable, match=IN_TIME):
        asyncio.run(plan(url))


@pytest.mark.slow
def test_nothing_that_is_asked_outlives_the_interpreter():
    code = """
import socket, anthropic
from planner.errors import PlannerUnavailable
from planner.model import ModelPlanner
from tests.model.sample import plan_request
server = socket.create_server(("127.0.0.1", 0))
client = anthropic.Anthropic(api_key="k", base_url=f"http://127.0.0.1:{server.getsockname()[1]}", timeout=900)
try:
    ModelPlanner(client=client).propose(plan_request(timeout_seconds=0.3))
except PlannerUnavailable as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert "no answer in time" in ran.stdout
