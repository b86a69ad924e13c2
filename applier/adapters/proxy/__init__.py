"""Proxy between an agent and its provider that compacts long conversations on the way; needs the extra ``proxy``.

This module opens the port and each conversation's session, and deletes old conversations. `entrance` admits requests,
`endpoints` answers them, `upstreams` chooses the provider, and `gateway` compacts by the conversation's session.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp

from applier.adapters.proxy.configuration import FileSession, ProxySettings, RetentionTable
from applier.adapters.proxy.conversations import IDLE_SECONDS, Conversations, PlannerAccess
from applier.adapters.proxy.endpoints import Endpoints
from applier.adapters.proxy.entrance import Entrance, People
from applier.adapters.proxy.gateway import Gateway
from applier.adapters.proxy.metrics import Metrics
from applier.adapters.proxy.responses_api import ResponsesPlanner
from applier.adapters.proxy.upstreams import RefusedError, Upstreams
from applier.serving import AppServer
from applier.session import Session
from applier.session.presets import preset_named
from applier.session.sharing import marks_of
from applier.settings import load_settings
from applier.store.opening import SessionStore, store_file
from applier.store.retention import collect_garbage
from planner.api import PlannerChoice, plan_compaction
from planner.errors import SettingsError, StoreError
from planner.plan import Account
from planner.prices import CACHE_LIFETIME_SECONDS, register_prices
from planner.reading.secrets import redact
from planner.reading.tokens import names_provider

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]

_STOP_SECONDS = 10
"""Seconds that unfinished answers have after SIGTERM, unless a team's file sets them."""
_CLOSE_SECONDS = 1
"""Further seconds for closing the sessions, as one that waits for its planner delays the others."""
_PATIENCE_SECONDS = 5.0
"""Seconds after which a request continues without the database if that does not answer."""
_SWITCH_SECONDS = 0.000_5
"""Seconds for which a thread may keep Python's interpreter while others wait (by default 0.005). The event loop waits
this long at each step of an answer. While three large lists were planned, other requests took 0.12 s instead of 0.36.
"""
_FIRST_HISTORY = (
    {"role": "user", "content": "Read a file."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {"path": "a.py"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Error: none"}]},
    {"role": "assistant", "content": "It is not there."},
)
"""Short conversation that is planned once at the start, so that all code is loaded."""
_BACKLOG = 512
"""Largest number of connections that wait to be accepted."""
_DAY_SECONDS, _HOUR_SECONDS, _MEGABYTE = 86_400, 3_600, 1_000_000
_logger = logging.getLogger("applier.proxy")


class ProxyServer(AppServer):
    """Proxy server, as a context manager; it listens from its construction.

    ::

        with ProxyServer(ProxySettings(session={"window_tokens": 60_000})) as proxy:
            client = anthropic.Anthropic(base_url=proxy.url)
    """

    def __init__(self, settings: ProxySettings | None = None) -> None:
        """Open the port, but answer no request yet.

        Raises:
            SettingsError: It would listen beyond loopback without a token, the port is taken, or a setting of a
                session is wrong.
            StoreError: The people's tokens cannot be read from the store.
        """
        settings = settings or ProxySettings()
        if not settings.is_loopback and not settings.token and not settings.has_people:
            example = secrets.token_urlsafe(24)
            raise SettingsError(
                f"{settings.host} can be reached by others: set a token ($COMPACTOR_PROXY_TOKEN), such as {example}"
            )
        self.settings, self.metrics = settings, Metrics(by_person=settings.has_people)
        self.rules_for_want_of_upstream = False
        """True after a session had to plan by rules because the model of its provider cannot be asked for plans."""
        team = settings.team
        self._session_settings = FileSession(**team.session) if team else load_settings(**settings.session)
        register_prices(self._session_settings.prices)
        preset_named(self._session_settings.preset)  # an unknown name is an error now, not at the first request
        self._store = SessionStore(settings.store, _PATIENCE_SECONDS)
        people = People(self._store, team.limits.of) if team and settings.has_people else None
        idle_seconds = CACHE_LIFETIME_SECONDS if self._is_shared else IDLE_SECONDS
        conversations = Conversations(self._open_session, settings.own, idle_seconds=idle_seconds, marks=self._marks)
        self.gateway = Gateway(conversations, self.metrics, self._store, people)
        grace_seconds = team.grace_seconds if team else _STOP_SECONDS
        super().__init__(self._app(), _listening(settings.host, settings.port), grace_seconds)
        load()  # now, because during a first large request it would delay all other requests for seconds

    @property
    def named_url(self) -> str:
        """Base URL for the agent that the proxy was started for. Its path is a secret by which the proxy recognises the
        agent, as not every agent can send it in a header."""
        return f"{self.url}/{self.settings.own.secret}" if self.settings.own.secret else self.url

    @property
    def url(self) -> str:
        """Base URL that a client sets to use the proxy: ``http://127.0.0.1:8787``."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _open_session(self, session_id: str, model: str, planner_access: PlannerAccess | None) -> Session:
        """Open the session `session_id` for requests to `model`. The provider is asked for plans by `planner_access`,
        with the agent's key.

        If the settings name a planner model with its provider, that provider is asked instead, with the key in the
        environment. If `planner_access` is None, plans are made by rules, without a model.
        """
        settings = self._session_settings
        if settings.background is None:  # plan in the background, because an agent waits for each request
            settings = settings.model_copy(update={"background": True})
        planner: PlannerChoice = settings.planner
        if names_provider(settings.planner_model):
            planner_access = None
        elif planner_access is None and planner != "rules":  # chat completions, whose providers are not asked
            planner, self.rules_for_want_of_upstream = "rules", True
        elif isinstance(planner_access, ResponsesPlanner) and planner != "rules":
            planner_access.model, planner = settings.planner_model, planner_access
        client = planner_access if isinstance(planner_access, Account) else None
        return Session(
            settings=settings,
            planner=planner,
            client=client,
            model=model,
            store=self._store,
            session_id=session_id,
            is_shared=self._is_shared,
        )

    @property
    def _is_shared(self) -> bool:
        """True if proxies on several machines may share the store, because it is a database server and not a file."""
        with suppress(StoreError):
            return store_file(self.settings.store) is None
        return False

    def _marks(self, session_ids: list[str]) -> Mapping[str, list[str]]:
        """Return by session id the digests of the newest answer that any proxy saw in it, so that a proxy notices when
        another one continued a session. Empty if the store is not shared, or fails."""
        with suppress(StoreError):
            return self._store.use(lambda store: marks_of(store, session_ids)) if self._is_shared else {}
        return {}

    def _app(self) -> ASGIApp:
        """Return the web application; at shutdown it closes all sessions, so that they are saved."""
        endpoints = Endpoints(self.settings, self.gateway, lambda: self.is_stopping)
        retention = self.settings.team.retention if self.settings.team else RetentionTable()

        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            """Delete old conversations while the proxy runs, and close its sessions when it stops."""
            usual_seconds = sys.getswitchinterval()
            sys.setswitchinterval(min(usual_seconds, _SWITCH_SECONDS))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_delete_old, SessionStore(self.settings.store), retention)
                yield
                await endpoints.client.aclose()
                tasks.cancel_scope.cancel()
            with anyio.move_on_after(self.grace_seconds + _CLOSE_SECONDS):
                await anyio.to_thread.run_sync(self.gateway.close, abandon_on_cancel=True)
            sys.setswitchinterval(usual_seconds)

        return Starlette(
            routes=endpoints.routes(),
            exception_handlers={
                RefusedError: lambda request, it: cast(RefusedError, it).answer(request.url.path, request.headers),
                ClientDisconnect: lambda _request, _error: Response(status_code=499),
            },
            lifespan=lifespan,
            middleware=[Middleware(Entrance, settings=self.settings, metrics=self.metrics, people=self.gateway.people)],
        )


def load() -> None:
    """Load everything that a first plan needs (vocabulary, patterns, modules), which takes a second."""
    redact("Read a file.")
    plan_compaction(_FIRST_HISTORY, "Read a file.", planner="rules")


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket, marked as TCP because asyncio delays data on others, or raise SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"{host}:{port}: {str(error.strerror).split(' (')[0]}; choose another host or port"
        ) from None
    return socket.socket(fileno=opened.detach())  # a new object, which looks up the protocol (TCP) by itself


async def _delete_old(store: SessionStore, bounds: RetentionTable) -> None:
    """Delete old conversations, and the oldest while the store is too large, now and every `bounds.every_hours`."""
    days, megabytes = bounds.older_than_days, bounds.larger_than_megabytes
    older = None if days is None else days * _DAY_SECONDS
    larger = None if megabytes is None else round(megabytes * _MEGABYTE)

    def clean() -> None:
        """Delete what is too old or too much; log a failure of the store."""
        try:
            garbage = store.use(
                lambda opened: collect_garbage(opened, older_than_seconds=older, larger_than_bytes=larger)
            )
            _logger.info("cleaned the store: %d conversations removed, %d kept", len(garbage.histories), garbage.kept)
            store.close()
        except StoreError as error:
            _logger.warning("the store could not be cleaned: %s", error)

    while older or larger:
        await anyio.to_thread.run_sync(clean)
        await anyio.sleep(bounds.every_hours * _HOUR_SECONDS)
