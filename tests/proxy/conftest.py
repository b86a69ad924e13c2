"""A proxy on a store of its own, in front of a test server; and `compactor wrap` in this process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from tests.cli.conftest import compactor, folder

__all__ = ["compactor", "folder"]


@pytest.fixture(scope="session", autouse=True)
def servers_that_end_soon():
    """Shorten uvicorn's waits: it looks each tenth of a second whether it is to end, and again whether it has."""

    async def sleep(seconds):
        await asyncio.sleep(seconds / 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        yield


@pytest.fixture
def proxied(tmp_path):
    """Starts a proxy in front of a server (or a URL); stopped at the end of the test."""
    opened = []

    def start(server, **more) -> ProxyServer:
        url = server if isinstance(server, str) else server.url
        given = {
            "upstreams": Upstreams(url, url),
            "store": str(tmp_path / "store.db"),
            "session": {"window_tokens": 12_000, "planner": "rules"},
        }
        opened.append(ProxyServer(ProxySettings(**{**given, **more})).__enter__())
        return opened[-1]

    yield start
    for proxy in opened:
        proxy.__exit__(None, None, None)


@pytest.fixture
def wrap(compactor, folder, monkeypatch):
    """`compactor wrap` in this process, for a user whose home is an empty folder; the client is one of its own."""

    def call(*arguments, **environment):
        with monkeypatch.context() as patch:
            for name, value in {"HOME": str(folder), **environment}.items():
                patch.setenv(name, value)
            return compactor("wrap", *arguments)

    return call
