"""Clients under `compactor wrap`: how each gets the proxy's address, and where its requests went before.

Clients that need more than two variables have their own class; all others read ANTHROPIC_BASE_URL and OPENAI_BASE_URL.
Reads the client's settings; writes and starts nothing.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

from applier.adapters.transcripts.codex import home_folder

ANTHROPIC, OPENAI, CHATGPT = "upstream", "openai_upstream", "chatgpt_upstream"
"""Names of the proxy's upstreams."""


class WrappedClient:
    """Client that reads ANTHROPIC_BASE_URL and OPENAI_BASE_URL."""

    takes_server = False
    """True if the command line can give the client an MCP server."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Store the person's `command` and `environment`."""
        self.command, self.environment = list(command), environment

    def upstreams(self) -> dict[str, str]:
        """Return the addresses to which the client's requests went without the proxy, by the proxy's upstream. An
        upstream that is missing keeps its default address; an empty address means that the proxy cannot serve it."""
        places = {
            ANTHROPIC: self.environment.get("ANTHROPIC_BASE_URL", ""),
            OPENAI: _version_1(self.environment.get("OPENAI_BASE_URL", "")),
        }
        return {name: url for name, url in places.items() if url is not None and (url or name != ANTHROPIC)}

    def variables(self, url: str) -> dict[str, str]:
        """Return the variables that send the client's requests to the proxy at `url`."""
        return {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}

    def arguments(self, url: str, server: Sequence[str], variables: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Return the client's command line with the options that send its requests to the proxy at `url`. `server`: the
        command of our MCP server; empty to give the client none. `variables`: the variables that this server reads."""
        return self.command


class _AddressSetting(NamedTuple):
    """Setting of Codex that contains the address of its provider."""

    name: str = ""
    """Empty for a provider that is built into Codex (``ollama``): its address cannot be changed."""
    url: str = ""
    """Empty for OpenAI's own address."""


class _Codex(WrappedClient):
    """Codex, which reads its provider's address only from settings and starts MCP servers without the environment."""

    takes_server = True

    def upstreams(self) -> dict[str, str]:
        places = super().upstreams()
        places.pop(OPENAI, None)  # Codex does not read the variable
        url = self._address().url
        version_1 = _version_1(url)
        return {**places, **({CHATGPT: url, OPENAI: version_1 or ""} if url else {})}

    def arguments(self, url: str, server: Sequence[str], variables: Sequence[str]) -> list[str]:
        setting = self._address().name
        options: dict[str, object] = {setting: f"{url}/v1"} if setting else {}
        if server:
            table = "mcp_servers.compactor"
            more = {"command": server[0], "args": [*server[1:]], "env_vars": [*variables]}
            options |= {f"{table}.{key}": value for key, value in more.items()}
        words = [word for key, value in options.items() for word in ("-c", f"{key}={json.dumps(value)}")]
        return [self.command[0], *words, *self.command[1:]]

    def _address(self) -> _AddressSetting:
        """Return the setting of the person's provider."""
        settings = self._settings("config.toml")
        if profile := _profile(self.command):
            settings = _merged(settings, self._settings(f"{profile}.config.toml"))
        provider = settings.get("model_provider", "openai")
        if provider == "openai":
            url, name = settings.get("openai_base_url"), "openai_base_url"
        else:
            others = settings.get("model_providers")
            other = others.get(str(provider)) if isinstance(others, dict) else None
            if not isinstance(other, dict):
                return _AddressSetting()
            url, name = other.get("base_url"), f"model_providers.{provider}.base_url"
        return _AddressSetting(name, url if isinstance(url, str) else "")

    def _settings(self, name: str) -> dict[str, Any]:
        try:
            return tomllib.loads((home_folder(self.environment) / name).read_text("utf-8"))
        except (OSError, ValueError):
            return {}


class _Copilot(WrappedClient):
    """Copilot with the person's own provider and key; with a GitHub login its address cannot be changed."""

    _PLACE = "COPILOT_PROVIDER_BASE_URL"

    def upstreams(self) -> dict[str, str]:
        return {self._upstream: self.environment[self._PLACE]} if self._upstream else {}

    def variables(self, url: str) -> dict[str, str]:
        ends = {ANTHROPIC: "", OPENAI: "/v1"}
        return {self._PLACE: f"{url}{ends[self._upstream]}"} if self._upstream else {}

    @property
    def _upstream(self) -> str:
        """Proxy's upstream for the person's provider; empty if there is none, or the proxy does not serve it."""
        url, kind = (self.environment.get(name, "") for name in (self._PLACE, "COPILOT_PROVIDER_TYPE"))
        if kind == "anthropic":
            return ANTHROPIC if url else ""
        return OPENAI if kind in ("", "openai") and _version_1(url) else ""


_CLIENTS = {"codex": _Codex, "copilot": _Copilot}


def wrapped_client(command: Sequence[str], environment: Mapping[str, str]) -> WrappedClient:
    """Return the client that `command` runs: ``codex``, ``/opt/bin/codex`` and ``codex.exe`` are Codex."""
    name = os.path.basename(command[0]).lower().split(".")[0]
    return _CLIENTS.get(name, WrappedClient)(command, environment)


def _version_1(url: str) -> str | None:
    """Return `url` if it is the base URL of version 1 of an API; an empty text if it is another URL; None if it is
    empty."""
    if not url:
        return None
    return url if url.rstrip("/").endswith("/v1") else ""


def _profile(arguments: Sequence[str]) -> str:
    """Return the profile that the command line `arguments` of Codex chooses: by ``-p work``, ``-pwork`` or
    ``--profile=work``; empty without one."""
    for flag, value in pairwise([*takewhile(lambda one: one != "--", arguments), ""]):
        if flag in ("-p", "--profile"):
            return value
        if flag.startswith(("-p", "--profile=")):
            return flag.removeprefix("--profile").removeprefix("-p").removeprefix("=")
    return ""


def _merged(settings: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with the values of `others` added or replaced. Tables in both are merged in the same way."""
    tables = {
        key: _merged(settings[key], value)
        for key, value in others.items()
        if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **others, **tables}
