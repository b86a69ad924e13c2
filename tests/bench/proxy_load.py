"""What the proxy adds to a request, and what it holds under load: ``python -m tests.bench.proxy_load``.

Times to the first byte of a stream with and without it, and the memory of its process with many conversations at
once. Against the test server on this machine, whose own work is in both columns.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import click
import httpx

from applier.program import program
from applier.testing import MessagesServer

__all__ = ["conversation", "first_bytes", "running_proxy"]

_MODEL = "claude-opus-5-5"
_HEADERS = {"x-api-key": "loopback"}
_TOKENS_PER_ROUND = 1_000


def conversation(name: str, rounds: int) -> list[dict[str, Any]]:
    """A task and so many rounds of one call, about 1,000 tokens each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Check the modules of {name}."}]
    for number in range(rounds):
        call = {"type": "tool_use", "id": f"{name}_{number}", "name": "bash", "input": {"command": f"check {number}"}}
        output = "\n".join(f"src/module_{number}_{line}.py:{line}: checked by {name}, fine" for line in range(45))
        result = {"type": "tool_result", "tool_use_id": f"{name}_{number}", "content": output}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


@contextmanager
def running_proxy(upstream: str, window_tokens: int) -> Iterator[tuple[str, int]]:
    """The URL and process id of a proxy in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", "0", "--upstream", upstream, "--window", str(window_tokens), "--planner", "rules"]
        command = program("proxy", *options, "--store", f"{folder}/store.db")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            yield process.stderr.readline().strip().removeprefix("ANTHROPIC_BASE_URL="), process.pid
            process.terminate()


def first_bytes(url: str, tokens: int, requests: int) -> list[float]:
    """Seconds to the first byte of each streamed answer in a growing conversation of so many tokens."""
    rounds = tokens // _TOKENS_PER_ROUND
    whole, seconds = conversation("load", rounds + requests), []
    with httpx.Client(timeout=120) as client:
        for number in range(requests + 1):
            messages = whole[: 1 + 2 * (rounds + number)]
            body = {"model": _MODEL, "max_tokens": 99, "stream": True, "messages": messages}
            started = time.perf_counter()
            with client.stream("POST", f"{url}/v1/messages", json=body, headers=_HEADERS) as answer:
                chunks = answer.iter_raw()
                next(chunks)
                seconds.append(time.perf_counter() - started)
                list(chunks)
    return seconds[1:]


def _talk_at_once(url: str, conversations: int, rounds: int) -> None:
    """So many conversations at once, each sent anew after every round."""

    def talk(number: int) -> None:
        whole = conversation(f"talk{number}", rounds)
        with httpx.Client(timeout=120) as client:
            for end in range(1, len(whole) + 1, 2):
                body = {"model": _MODEL, "max_tokens": 99, "messages": whole[:end]}
                client.post(f"{url}/v1/messages", json=body, headers=_HEADERS).raise_for_status()

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(conversations)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _compactions(url: str) -> int:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("compactor_compactions_total "))


def _resident_mb(process_id: int) -> float:
    """Resident memory of a process, where ``/proc`` says it."""
    pages = Path(f"/proc/{process_id}/statm").read_text().split()[1]
    return int(pages) * 4096 / 2**20


@click.command
@click.option("--tokens", default=150_000, show_default=True, help="Size of the conversation that is timed.")
@click.option("--requests", default=40, show_default=True)
@click.option("--conversations", default=50, show_default=True)
@click.option("--waves", default=4, show_default=True, help="How often so many conversations are held.")
def _main(tokens: int, requests: int, conversations: int, waves: int) -> None:
    """Print times and memory."""
    with MessagesServer("ok", window_tokens=10**9) as server:
        columns = {"direct": first_bytes(server.url, tokens, requests)}
        for name, window in (("proxy, four times the window", 4 * tokens), ("proxy", tokens)):
            with running_proxy(server.url, window) as (url, _):
                seconds = first_bytes(url, tokens, requests)
                columns[f"{name}, {_compactions(url)} compactions"] = seconds
        for name, seconds in columns.items():
            cuts = quantiles(seconds, n=100)
            click.echo(f"{name}: first byte p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms")
    with MessagesServer("ok", window_tokens=10**9) as server, running_proxy(server.url, 24_000) as (url, process_id):
        click.echo(f"memory at the start: {_resident_mb(process_id):.0f} MB")
        for wave in range(waves):
            _talk_at_once(url, conversations, 30)
            click.echo(f"after {(wave + 1) * conversations} conversations: {_resident_mb(process_id):.0f} MB")
            server.exchanges.clear()


if __name__ == "__main__":
    _main()
