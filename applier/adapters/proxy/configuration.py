"""How the proxy is set up: in code by `ProxySettings`, for a team by one TOML file that is named by its path.

Of a team's proxy the file says all: neither the working folder nor ``COMPACTOR_…`` variables are asked. Keys stand in
variables that it names.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field
from pydantic_settings import PydanticBaseSettingsSource

from applier.adapters.proxy.upstreams import Upstreams
from applier.settings import SessionSettings
from applier.store.opening import store_file
from planner.errors import SettingsError, StoreError
from planner.settings import CheckedSettings

__all__ = ["ProxySettings", "TeamSettings", "file_session", "in_file", "read_team", "team_proxy"]

LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))
_KEY = re.compile(r"[!-~]+")
"""What a header can carry; not what has a blank or a line's end in it."""
_OTHERS_MODE = 0o077


class _Table(CheckedSettings):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class UpstreamTable(_Table):
    """Where requests go; what is not named is refused."""

    anthropic: str = ""
    openai: str = ""
    chatgpt: str = ""
    read_seconds: float = Field(default=600.0, gt=0)
    """How long a provider may say nothing."""
    anthropic_key_variable: str = ""
    """The environment variable with the key that goes out in place of what people show; empty: their own keys do."""
    openai_key_variable: str = ""


class LimitTable(_Table):
    """How much a person may spend a day (UTC), prompts, answers and planning together; not said: any amount."""

    tokens_a_day: int | None = Field(default=None, ge=1)
    dollars_a_day: float | None = Field(default=None, gt=0)


class LimitsTable(LimitTable):
    """Of everybody, and of some by name."""

    people: dict[str, LimitTable] = Field(default_factory=dict)

    def of(self, person: str) -> LimitTable:
        """What `person` may spend."""
        return self.people.get(person, self)


class RetentionTable(_Table):
    """What of the store goes, and how often it is looked for; neither bound said: nothing."""

    older_than_days: float | None = Field(default=None, gt=0)
    larger_than_megabytes: float | None = Field(default=None, gt=0)
    every_hours: float = Field(default=24.0, gt=0)


class TeamSettings(_Table):
    """The whole file."""

    host: str = Field(default="127.0.0.1", pattern="^[A-Za-z0-9.:-]+$")
    port: int = Field(default=8787, ge=0, le=65_535)
    store: str
    """A file's whole path, or postgresql://…"""
    tokens: bool = True
    """Each person needs one of his own. False: none is asked for; on loopback only."""
    grace_seconds: int = Field(default=30, ge=0)
    """How long answers under way may still run after the proxy was told to stop."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    upstreams: UpstreamTable
    limits: LimitsTable = Field(default_factory=LimitsTable)
    retention: RetentionTable = Field(default_factory=RetentionTable)
    session: dict[str, Any] = Field(default_factory=dict)
    """Settings of each session."""


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
    own: tuple[str, str] = field(default=("", ""), repr=False)
    """A secret, and the name of the conversations of the one client that shows it as its name (see `Conversations`)."""
    team: TeamSettings | None = None
    """Of a team: tokens, quotas, retention, grace; `session` is all that is said of sessions then."""

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOOPBACK_HOSTS

    @property
    def has_people(self) -> bool:
        """Each person has a token of his own."""
        return self.team is not None and self.team.tokens


class _FileSession(SessionSettings):
    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # it is called by these names
        cls, _settings_cls: object, init_settings: PydanticBaseSettingsSource, **_others: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def file_session(table: Mapping[str, Any]) -> SessionSettings:
    """Settings of a session as `table` of a team's file says them, and nothing else does.

    Raises:
        SettingsError: an unknown name or a value out of bounds; the text says which.
    """
    return _FileSession(**table)


@contextmanager
def in_file(path: Path, key: str = "") -> Iterator[None]:
    """Errors of settings and of the store name the file, and the key in it."""
    try:
        yield
    except (SettingsError, StoreError) as error:
        raise SettingsError(": ".join(filter(None, (str(path), key, str(error))))) from None


def read_team(path: Path) -> TeamSettings:
    """What the file at `path` says.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; the text names file, key and cure.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {getattr(error, 'strerror', None) or error}") from None
    with in_file(path):
        team = TeamSettings(**table)
        _check(team, path)
    with in_file(path, "session"):
        file_session(team.session)
    return team


def _check(team: TeamSettings, path: Path) -> None:
    """What no field alone can say."""
    upstreams = team.upstreams
    for name in ("anthropic", "openai", "chatgpt"):
        with in_file(Path(f"upstreams.{name}")):
            Upstreams(**{**dict.fromkeys(("anthropic", "openai", "chatgpt"), ""), name: getattr(upstreams, name)})
    if not (upstreams.anthropic or upstreams.openai or upstreams.chatgpt):
        raise SettingsError("upstreams: none is named: give at least one address, such as anthropic")
    if not team.tokens and team.host not in LOOPBACK_HOSTS:
        raise SettingsError(f"tokens: {team.host} can be reached by others: say true")
    if not team.tokens and team.limits != LimitsTable():
        raise SettingsError("limits: nobody is told apart without tokens: say tokens = true")
    if "project" in team.session:
        raise SettingsError("session.project: a team's conversations work in many folders: leave it out")
    with in_file(Path("store")):
        file = store_file(team.store)
    if file is not None and str(file) != team.store.removeprefix("sqlite:///"):
        raise SettingsError(f"store: {team.store!r} depends on where the proxy starts: give the whole path")
    if file is None and urlsplit(team.store).password and path.stat().st_mode & _OTHERS_MODE:
        cure = f"chmod 600 {path}, or leave the password to the user's ~/.pgpass"
        raise SettingsError(f"store: holds a password, and others may read the file: {cure}")


def team_proxy(team: TeamSettings, environment: Mapping[str, str] = os.environ) -> ProxySettings:
    """The settings of the proxy that `team` describes, with the keys that it names.

    Raises:
        SettingsError: a variable that should hold a key holds none.
    """
    of = team.upstreams
    keys = {
        name: _key(f"upstreams.{name}_variable", variable, environment)
        for name, variable in (("anthropic_key", of.anthropic_key_variable), ("openai_key", of.openai_key_variable))
    }
    anthropic, openai = (url.rstrip("/").removesuffix("/v1") for url in (of.anthropic, of.openai))
    upstreams = Upstreams(anthropic, openai, of.chatgpt, of.read_seconds, **keys)
    return ProxySettings(team.host, team.port, "", upstreams, team.store, team.session, team=team)


def _key(place: str, variable: str, environment: Mapping[str, str]) -> str:
    key = environment.get(variable, "").strip() if variable else ""
    if variable and not _KEY.fullmatch(key):
        raise SettingsError(f"{place}: ${variable} holds no key: set it in the environment that the proxy starts in")
    return key
