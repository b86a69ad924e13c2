"""Settings of the proxy: `ProxySettings` in code, or one TOML file for a proxy that a team shares.

A team's file is complete: neither the working folder nor ``COMPACTOR_…`` variables are read. It contains no keys, but
names the environment variables that do.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field
from pydantic_settings import PydanticBaseSettingsSource

from applier.adapters.proxy.upstreams import PATH_PATTERN, Upstreams
from applier.settings import SessionSettings
from applier.store.opening import store_file
from planner.errors import SettingsError, StoreError
from planner.settings import CheckedSettings

LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))
_KEY = re.compile(r"[!-~]+")
"""Provider's key that can be sent in a header: ``sk-ant-1``; not a text with a blank or a line break."""
_OTHERS_MODE = 0o077
"""Bits of a file's mode that let others than its owner read or write it."""


class _Table(CheckedSettings):
    """Table of a team's file. Unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class UpstreamTable(_Table):
    """Table ``upstreams`` of a team's file: the providers' addresses. Requests of an API without one are refused."""

    anthropic: str = ""
    openai: str = ""
    chatgpt: str = ""
    read_seconds: float = Field(default=600.0, gt=0)
    """Seconds that a provider may be silent during an answer."""
    anthropic_key_variable: str = ""
    """Environment variable with the team's key for Anthropic; empty if people send their own keys."""
    openai_key_variable: str = ""
    paths: tuple[Annotated[str, Field(pattern=PATH_PATTERN)], ...] = Field(default=(), strict=False)
    """More paths on which the team's keys may be used, such as ``/v1/embeddings`` or ``/v1/files/*``."""


class LimitTable(_Table):
    """Quota of a person for each day (UTC), for prompts, answers and planning together; None means no limit."""

    tokens_a_day: int | None = Field(default=None, ge=1)
    dollars_a_day: float | None = Field(default=None, gt=0)


class LimitsTable(LimitTable):
    """Table ``limits`` of a team's file: the quota of everybody, and other quotas of some people by name."""

    people: dict[str, LimitTable] = Field(default_factory=dict)

    def of(self, person: str) -> LimitTable:
        """Return the quota of `person`: their own if the file has one, else that of everybody."""
        return self.people.get(person, self)


class RetentionTable(_Table):
    """Table ``retention`` of a team's file: the age and total size beyond which old conversations are deleted, and how
    often this is checked. Without a bound nothing is deleted."""

    older_than_days: float | None = Field(default=None, gt=0)
    larger_than_megabytes: float | None = Field(default=None, gt=0)
    every_hours: float = Field(default=24.0, gt=0)


class TeamSettings(_Table):
    """Content of a team's file: all settings of a proxy that several people share."""

    host: str = Field(default="127.0.0.1", pattern="^[A-Za-z0-9.:-]+$")
    port: int = Field(default=8787, ge=0, le=65_535)
    store: str
    """Place of the store: the absolute path of a file, or ``postgresql://…``."""
    tokens: bool = True
    """True if each person needs their own token; False, allowed only on loopback, if nobody needs one."""
    grace_seconds: int = Field(default=30, ge=0)
    """Seconds after SIGTERM in which unfinished answers may end."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    upstreams: UpstreamTable
    limits: LimitsTable = Field(default_factory=LimitsTable)
    retention: RetentionTable = Field(default_factory=RetentionTable)
    session: dict[str, Any] = Field(default_factory=dict)
    """Settings of each conversation's session, such as ``window_tokens``."""


class OwnClient(NamedTuple):
    """Agent program that a proxy was started for, as `compactor wrap` does. The proxy recognises its requests by a
    secret, because the credentials of a login change every few hours."""

    secret: str = ""
    """Secret that the agent's requests contain; empty if the proxy was started for no agent."""
    name: str = ""
    """Name with which the ids of the agent's conversations begin."""


@dataclass(frozen=True)
class ProxySettings:
    """Settings of a proxy: its address, the providers' addresses, and what its sessions use."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port to listen on; 0 for any free one."""
    token: str = field(default="", repr=False)
    """Value of ``x-compactor-token`` that every request needs; required to listen beyond loopback."""
    upstreams: Upstreams = field(default_factory=Upstreams)
    store: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    """Settings of each session, such as ``window_tokens``; others come from environment, project or defaults."""
    own: OwnClient = field(default=OwnClient(), repr=False)
    """Agent program that the proxy was started for, if there is one."""
    team: TeamSettings | None = None
    """Settings of a team; None without one. A team's sessions have the settings in its `session` and no others."""

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the proxy."""
        return self.host in LOOPBACK_HOSTS

    @property
    def has_people(self) -> bool:
        """True if each person has a token of their own."""
        return self.team is not None and self.team.tokens


class FileSession(SessionSettings):
    """Settings of a session that come only from a team's file, not from the environment or a project's folder."""

    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # it is called by these names
        cls, _settings_cls: object, init_settings: PydanticBaseSettingsSource, **_others: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the only source of values: the arguments."""
        return (init_settings,)


@contextmanager
def in_file(path: Path, key: str = "") -> Iterator[None]:
    """Put ``path: key: `` (file and key in it) before the text of each settings or store error in a ``with`` block."""
    try:
        yield
    except (SettingsError, StoreError) as error:
        raise SettingsError(": ".join(filter(None, (str(path), key, str(error))))) from None


def read_team(path: Path) -> TeamSettings:
    """Read and check a team's file, or raise SettingsError with the file, the key in it and what to do."""
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {getattr(error, 'strerror', None) or error}") from None
    with in_file(path):
        team = TeamSettings(**table)
        _check(team, path)
    with in_file(path, "session"):
        FileSession(**team.session)
    return team


def _check(team: TeamSettings, path: Path) -> None:
    """Raise SettingsError if settings of `team` contradict each other, or if others can read a password in the file."""
    upstreams, names = team.upstreams, ("anthropic", "openai", "chatgpt")
    for name in names:  # `Upstreams` checks the address; each alone, so that an error names its key
        with in_file(Path(f"upstreams.{name}")):
            Upstreams(**{**dict.fromkeys(names, ""), name: getattr(upstreams, name)})
    if not (upstreams.anthropic or upstreams.openai or upstreams.chatgpt):
        raise SettingsError("upstreams: no address: set at least one, such as anthropic")
    if not team.tokens and team.host not in LOOPBACK_HOSTS:
        raise SettingsError(f"tokens: {team.host} can be reached by others: set true")
    if not team.tokens and team.limits != LimitsTable():
        raise SettingsError("limits: without tokens all people are one: set tokens = true")
    if "project" in team.session:
        raise SettingsError("session.project: a team's conversations work in many folders: leave it out")
    with in_file(Path("store")):
        file = store_file(team.store)
    if file is not None and str(file) != team.store.removeprefix("sqlite:///"):
        raise SettingsError(f"store: {team.store!r} depends on where the proxy starts: set an absolute path")
    if file is None and urlsplit(team.store).password and path.stat().st_mode & _OTHERS_MODE:
        cure = f"chmod 600 {path}, or leave the password to the user's ~/.pgpass"
        raise SettingsError(f"store: holds a password, and others may read the file: {cure}")


def team_proxy(team: TeamSettings, environment: Mapping[str, str] = os.environ) -> ProxySettings:
    """Return the settings of a proxy for `team`, with the providers' keys from the environment variables that its file
    names. Raise SettingsError if such a variable contains no key."""
    table, keys = team.upstreams, list[str]()
    for name in ("anthropic_key_variable", "openai_key_variable"):
        variable = getattr(table, name)
        keys.append(environment.get(variable, "").strip() if variable else "")
        if variable and not _KEY.fullmatch(keys[-1]):
            cure = "set it in the environment that the proxy starts in"
            raise SettingsError(f"upstreams.{name}: ${variable} holds no key: {cure}")
    anthropic, openai = (url.rstrip("/").removesuffix("/v1") for url in (table.anthropic, table.openai))
    upstreams = Upstreams(anthropic, openai, table.chatgpt, table.read_seconds, keys[0], keys[1], table.paths)
    return ProxySettings(team.host, team.port, "", upstreams, team.store, team.session, team=team)
