"""Time that the proxy adds to a request, and its memory under load: ``python -m tests.bench.proxy_load``.

Measures the first byte of a stream with and without it, and the memory of its process with many conversations. The test
server on this machine is in both columns.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles
from typing import IO, Any

import click
import httpx

from applier.processes import program
from applier.testing import MessagesServer

_MODEL = "claude-opus-5-5"
_HEADERS = {"x-api-key": "loopback"}
_TOKENS_PER_ROUND = 1_000


def conversation(name: str, rounds: int) -> list[dict[str, Any]]:
    """Return a task and `rounds` rounds of one call, about 1,000 tokens each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Check the modules of {name}."}]
    for number in range(rounds):
        call = {"type": "tool_use", "id": f"{name}_{number}", "name": "bash", "input": {"command": f"check {number}"}}
        output = "\n".join(f"src/module_{number}_{line}.py:{line}: checked by {name}, fine" for line in range(45))
        result = {"type": "tool_result", "tool_use_id": f"{name}_{number}", "content": output}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


class RunningProxy:
    """Proxy in a process of its own, as a context manager, with its own file or the named `store`."""

    def __init__(self, upstream: str, window_tokens: int, store: str = "") -> None:
        """Prepare it without starting."""
        self._folder = tempfile.TemporaryDirectory()
        options = ["--upstream", upstream, "--window", str(window_tokens), "--planner", "rules"]
        self._options = [*options, "--store", store or f"{self._folder.name}/store.db"]
        self.url = ""

    def start(self) -> None:
        """Start it and wait for its address."""
        port = self.url.rpartition(":")[2] or "0"
        command = program("proxy", "--port", port, *self._options)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().strip().removeprefix("ANTHROPIC_BASE_URL=")
        threading.Thread(target=_read_to_its_end, args=(self._process.stderr,), daemon=True).start()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    @property
    def process_id(self) -> int:
        """Id of the running or last process."""
        return self._process.pid

    def compactions(self) -> int:
        """Number of its compactions."""
        return self._metric("compactor_compactions_total")

    def open_conversations(self) -> int:
        """Number of its open sessions; 0 if it does not run."""
        try:
            return self._metric("compactor_open_conversations")
        except httpx.TransportError:
            return 0

    def _metric(self, name: str) -> int:
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"{name} "))

    def __enter__(self) -> RunningProxy:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to end, and wait."""
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def _read_to_its_end(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


def first_bytes(url: str, tokens: int, requests: int) -> list[float]:
    """Return the seconds to the first byte of each streamed answer in a growing conversation."""
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
    """Run `conversations` conversations at once, each sent again after every round."""

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


def resident_mb(process_id: int) -> float:
    """Return the resident memory of a process from ``/proc``; 0 after its end."""
    pages = Path(f"/proc/{process_id}/statm")
    return int(pages.read_text().split()[1]) * 4096 / 2**20 if pages.exists() else 0.0


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
            with RunningProxy(server.url, window) as proxy:
                seconds = first_bytes(proxy.url, tokens, requests)
                columns[f"{name}, {proxy.compactions()} compactions"] = seconds
        for name, seconds in columns.items():
            cuts = quantiles(seconds, n=100)
            click.echo(f"{name}: first byte p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms")
    with MessagesServer("ok", window_tokens=10**9) as server, RunningProxy(server.url, 24_000) as proxy:
        click.echo(f"memory at the start: {resident_mb(proxy.process_id):.0f} MB")
        for wave in range(waves):
            _talk_at_once(proxy.url, conversations, 30)
            click.echo(f"after {(wave + 1) * conversations} conversations: {resident_mb(proxy.process_id):.0f} MB")
            server.exchanges.clear()


if __name__ == "__main__":
    _main()
