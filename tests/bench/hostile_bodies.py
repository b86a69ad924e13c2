"""Small compressed bodies that become large, and large ones of media, against a proxy: ``python -m
tests.bench.hostile_bodies``.

For each: how much memory the proxy's process takes at most, and the slowest of another client's requests meanwhile.
Fails where one takes more than 200 MB (300 if it is large itself), or another request more than a second.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import httpx
import zstandard

from tests.bench.proxy_load import RunningProxy, conversation
from tests.hosts import hosts

MOST_MB, MOST_LARGE_MB, MOST_SECONDS = 200, 300, 1.0
_PLAIN_BYTES = 60 * 2**20
_HEADERS = {"x-api-key": "loopback"}
_EMOJI = "\U0001f600"


class HostileBody(NamedTuple):
    """A request as an attacker sends it."""

    path: str
    content: bytes
    encoding: str = "zstd"

    @property
    def most_mb(self) -> int:
        """Most memory that it may take."""
        return MOST_LARGE_MB if len(self.content) > _PLAIN_BYTES // 2 else MOST_MB

    def send(self, url: str, patience_seconds: float = 60) -> int:
        """Return the status of the answer; 0 if none came in time."""
        headers = {**_HEADERS, **({"content-encoding": self.encoding} if self.encoding else {})}
        try:
            return httpx.post(
                url + self.path, content=self.content, headers=headers, timeout=patience_seconds
            ).status_code
        except httpx.TransportError:
            return 0


def _zstd(plain: bytes, path: str = "/v1/messages") -> HostileBody:
    return HostileBody(path, zstandard.ZstdCompressor().compress(plain))


def _repeated(entry: bytes, size: int = _PLAIN_BYTES, field: bytes = b"messages") -> bytes:
    return b'{"model":"m","%s":[' % field + (entry + b",") * (size // (len(entry) + 1)) + entry + b"]}"


def _answered(first: object) -> bytes:
    """Return a conversation with an answer, so that it has a session."""
    messages = [("user", first), ("assistant", "b"), ("user", "c")]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": text} for role, text in messages]}
    return json.dumps(body, ensure_ascii=False).encode()


def _item() -> HostileBody:
    """Return a compaction item as ours that unpacks to millions of objects."""
    held = _repeated(b"{}").removesuffix(b"}") + b',"users":[],"by":""}'
    packed = "compactor.1." + base64.b64encode(zlib.compress(held, 9)).decode()
    items = [{"type": "compaction", "id": "x", "encrypted_content": packed}, {"role": "user", "content": "hi"}]
    return HostileBody("/v1/responses", json.dumps({"model": "m", "input": items}).encode(), "")


def _pictures(count: int) -> HostileBody:
    """Return a body of one size, whose pictures are `count`."""
    source = {"type": "base64", "media_type": "image/png", "data": "ab+/" * (_PLAIN_BYTES // 4 // count)}
    return HostileBody("/v1/messages", _answered([{"type": "image", "source": source}] * count), "")


_PAIR = b'{"role":"user","content":"a"},{"role":"assistant","content":"b"}'
_WORDS = [f"{random.Random(4).getrandbits(24) + at:x}" for at in range(3_000)]
HOSTILE: dict[str, Callable[[], HostileBody]] = {
    "objects": lambda: _zstd(_repeated(b"{}")),
    "lists": lambda: _zstd(_repeated(b"[]")),
    "strings": lambda: _zstd(_repeated(b'"ab"')),
    "numbers": lambda: _zstd(_repeated(b"1.5")),
    "keys": lambda: _zstd(b'{"messages":[{' + b",".join(b'"%d":0' % at for at in range(2**21)) + b"}]}"),
    "depth": lambda: _zstd(b'{"messages":' + b"[" * 2**24 + b"]" * 2**24 + b"}"),
    "messages": lambda: _zstd(_repeated(_PAIR)),
    "20,000 messages": lambda: _zstd(_repeated(_PAIR, 9_990 * (len(_PAIR) + 1))),
    "messages of the Responses API": lambda: _zstd(_repeated(_PAIR, field=b"input"), "/v1/responses"),
    "messages of chat completions": lambda: _zstd(_repeated(_PAIR), "/v1/chat/completions"),
    "blocks": lambda: _zstd(_answered([{"type": "text", "text": "a b"}] * 2**19)),
    "one text": lambda: _zstd(_answered("a" * _PLAIN_BYTES + _EMOJI)),
    "one text, 6 MB": lambda: _zstd(_answered("a" * (6 * 2**20 - 2**10) + _EMOJI)),
    "lines": lambda: _zstd(_answered("\n" * 2**21)),
    "150,000 lines, 6 MB": lambda: _zstd(_answered("def f(x, y, z): return x + 1 if y else\n" * 149_000 + _EMOJI)),
    "150,000 different lines": lambda: _zstd(
        _answered("".join(f"line_{at}: {_WORDS[at % 999]}\n" for at in range(149_000)))
    ),
    "words, 1 MB compressed": lambda: _zstd(_answered(" ".join(random.Random(5).choices(_WORDS, k=430_000)))),
    "compaction item": _item,
    "one picture of 60 MB": lambda: _pictures(1),
    "a hundred pictures, 60 MB": lambda: _pictures(100),
}


def warm_up(url: str) -> None:
    """Have the proxy load everything by a conversation that it compacts."""
    body = {"model": "m", "max_tokens": 9, "messages": conversation("warm", 30)}
    for end in (57, 59, 61):
        httpx.post(
            f"{url}/v1/messages", json={**body, "messages": body["messages"][:end]}, headers=_HEADERS, timeout=120
        )


def peak_mb(process_id: int, field: str = "VmHWM") -> int:
    """Return the most memory that a process ever had; what it has now with ``VmRSS``."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def _attacked(body: HostileBody, patience_seconds: float) -> tuple[int, float]:
    """Return the memory that `body` took, and the seconds of the slowest other request."""
    small = _answered("hi")
    with hosts(1) as (upstream,), RunningProxy(upstream.url, 20_000) as proxy, httpx.Client(timeout=120) as client:

        def ask() -> float:
            started = time.perf_counter()
            client.post(f"{proxy.url}/v1/messages", content=small, headers=_HEADERS).raise_for_status()
            return time.perf_counter() - started

        warm_up(proxy.url)
        before = peak_mb(proxy.process_id, "VmRSS")
        attack = threading.Thread(target=body.send, args=(proxy.url, 2 * patience_seconds), daemon=True)
        attack.start()
        end, seconds = time.monotonic() + patience_seconds, [ask()]
        while attack.is_alive() and time.monotonic() < end:
            seconds.append(ask())
            time.sleep(0.01)
        taken = peak_mb(proxy.process_id) - before
        proxy.kill()
    return taken, max(seconds)


@click.command
@click.argument("names", nargs=-1)
@click.option("--patience", default=60.0, show_default=True, help="Seconds after which an attack is left alone.")
def _main(names: tuple[str, ...], patience: float) -> None:
    """Print what each body takes; all of them, unless NAMES are given."""
    failed = False
    for name in names or HOSTILE:
        body = HOSTILE[name]()
        taken, slowest = _attacked(body, patience)
        is_over = taken > body.most_mb or slowest > MOST_SECONDS
        kilobytes, mark = len(body.content) / 1024, " !" if is_over else ""
        click.echo(f"{name:30} {kilobytes:7.1f} kB: {taken:4} MB, slowest other {slowest:5.2f} s{mark}")
        failed = failed or is_over
    sys.exit(failed)


if __name__ == "__main__":
    _main()
