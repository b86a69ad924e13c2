"""`ProxyServer`: the proxy on a port, with its sessions on one store; stopping it closes them."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

from applier.adapters.proxy.asgi import Upstreams, proxy_app
from applier.adapters.proxy.conversations import Conversations
from applier.adapters.proxy.gateway import Gateway
from applier.adapters.proxy.guard import LOOPBACK_HOSTS
from applier.adapters.proxy.metrics import Metrics
from applier.serving import AppServer
from applier.session import Session
from applier.session.presets import preset_named
from applier.settings import load_settings
from planner.errors import SettingsError
from planner.proposal import Account
from planner.reading.families import names_provider

__all__ = ["ProxyServer", "ProxySettings"]

_STOP_SECONDS = 10
"""How long answers under way may still run after the proxy was told to stop."""

_BACKLOG = 512


@dataclass(frozen=True)
class ProxySettings:
    """Where the proxy listens, where it sends, and what its sessions are like."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free."""
    token: str = field(default="", repr=False)
    """What every request must carry in ``x-compactor-token``; needed to listen beyond loopback."""
    upstreams: Upstreams = field(default_factory=Upstreams)
    store: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    """Settings of each session, such as ``window_tokens``, ``preset`` and ``planner``; others as always."""

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOOPBACK_HOSTS


class ProxyServer(AppServer):
    """The proxy; a context manager that listens from its start.

    ::

        with ProxyServer(ProxySettings(session={"window_tokens": 60_000})) as proxy:
            client = anthropic.Anthropic(base_url=proxy.url)
    """

    def __init__(self, settings: ProxySettings = ProxySettings()) -> None:
        """Open the port; nothing is answered yet.

        Raises:
            SettingsError: it would listen beyond loopback without a token, the port is taken, an upstream is no
                address, or a setting of a session is wrong.
        """
        if not settings.is_loopback and not settings.token:
            example = secrets.token_urlsafe(24)
            raise SettingsError(
                f"{settings.host} can be reached by others: set a token ($COMPACTOR_PROXY_TOKEN), such as {example}"
            )
        settings.upstreams.check()
        self.settings, self.metrics = settings, Metrics()
        self.rules_for_want_of_upstream = False
        """Conversations were planned by rules because no model can be asked where they go."""
        self._session_settings = load_settings(**settings.session)
        preset_named(self._session_settings.preset)
        self.gateway = Gateway(Conversations(self._open_session), self.metrics)
        app = proxy_app(self.gateway, settings.upstreams, token=settings.token, is_loopback=settings.is_loopback)
        super().__init__(app, _listening(settings.host, settings.port), _STOP_SECONDS)

    @property
    def url(self) -> str:
        """The base URL for a client."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _open_session(self, session_id: str, model: str, account: Account | None) -> Session:
        """Its planner asks as the agent does; a model that names its provider there, as the environment says."""
        settings, planner = self._session_settings, self._session_settings.planner
        if names_provider(settings.planner_model):
            account = None
        elif account is None and planner != "rules":
            planner, self.rules_for_want_of_upstream = "rules", True
        return Session(
            settings=settings,
            planner=planner,
            client=account,
            model=model,
            store=self.settings.store,
            session_id=session_id,
        )


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket that is known as TCP: asyncio sends what it is given at once on those only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise SettingsError(f"{host}:{port}: {error.strerror}; choose another host or port") from None
    return opened
