"""How `compactor wrap` makes a coding agent (the client) send its requests to the proxy, and where they went before.

Most clients read the address from ANTHROPIC_BASE_URL and OPENAI_BASE_URL; others have a class here. The client's
settings are read; nothing is written or started.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from applier.adapters.transcripts.codex import home_folder

ANTHROPIC, OPENAI, CHATGPT = "upstream", "openai_upstream", "chatgpt_upstream"
"""Names of the proxy's options for the addresses of the providers (upstreams)."""


class WrappedClient:
    """Client that reads the addresses of providers from ANTHROPIC_BASE_URL and OPENAI_BASE_URL, as most do."""

    takes_server = False
    """True if options in the command line can add an MCP server to the client."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Store the command line and the environment variables with which the person starts the client."""
        self.command, self.environment = list(command), environment

    def upstreams(self) -> dict[str, str]:
        """Return the addresses to which the client would send its requests without the proxy, by the name of the
        proxy's option. A missing one has its default address; an empty one means that the proxy cannot serve it."""
        anthropic, openai = (self.environment.get(f"{name}_BASE_URL", "") for name in ("ANTHROPIC", "OPENAI"))
        return {
            **({ANTHROPIC: anthropic} if anthropic else {}),
            **({OPENAI: _version_1(openai)} if openai else {}),
        }

    def variables(self, url: str) -> dict[str, str]:
        """Return the environment variables that make the client send its requests to the proxy at `url`."""
        return {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}

    def arguments(self, url: str, server: Sequence[str], variables: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Return the client's command line with the options, if it needs any, that make it send its requests to the
        proxy at `url`. `server`: command line of the MCP server to add; empty to add none. `variables`: names of the
        environment variables that the server reads."""
        return self.command


class _Codex(WrappedClient):
    """Codex, which reads its provider's address only from settings, and starts MCP servers without the environment."""

    takes_server = True

    def upstreams(self) -> dict[str, str]:
        """Return the address in Codex's settings, which it uses with a key of OpenAI and with a ChatGPT login."""
        addresses = super().upstreams()
        addresses.pop(OPENAI, None)  # Codex does not read the variable
        _, url = self._address()
        return {**addresses, **({CHATGPT: url, OPENAI: _version_1(url)} if url else {})}

    def arguments(self, url: str, server: Sequence[str], variables: Sequence[str]) -> list[str]:
        """Return the command line with options ``-c key=value``, which change settings. A value is TOML; JSON's texts
        and lists are that, too."""
        setting, _ = self._address()
        options: dict[str, object] = {setting: f"{url}/v1"} if setting else {}
        if server:  # without `env_vars` it would run without any variable of the environment
            table = "mcp_servers.compactor"
            more = {"command": server[0], "args": [*server[1:]], "env_vars": [*variables]}
            options |= {f"{table}.{key}": value for key, value in more.items()}
        words = [word for key, value in options.items() for word in ("-c", f"{key}={json.dumps(value)}")]
        return [self.command[0], *words, *self.command[1:]]

    def _address(self) -> tuple[str, str]:
        """Return the name of the setting for the address of the person's provider, such as ``openai_base_url``, and
        the address. The name is empty for a provider that is built into Codex (``ollama``), as its address cannot be
        set; the address is empty if it is OpenAI's own."""
        settings = self._settings("config.toml")
        if profile := _profile(self.command):
            settings = _merged(settings, self._settings(f"{profile}.config.toml"))
        provider = settings.get("model_provider", "openai")
        if provider == "openai":
            url, name = settings.get("openai_base_url"), "openai_base_url"
        else:
            tables = settings.get("model_providers")
            table = tables.get(str(provider)) if isinstance(tables, dict) else None
            if not isinstance(table, dict):
                return "", ""
            url, name = table.get("base_url"), f"model_providers.{provider}.base_url"
        return name, url if isinstance(url, str) else ""

    def _settings(self, name: str) -> dict[str, Any]:
        """Return the settings in the file `name` of Codex's folder; none if it cannot be read."""
        try:
            return tomllib.loads((home_folder(self.environment) / name).read_text("utf-8"))
        except (OSError, ValueError):
            return {}


class _Copilot(WrappedClient):
    """Copilot with a provider and a key that the person set; with a GitHub login its address cannot be changed."""

    _URL_VARIABLE = "COPILOT_PROVIDER_BASE_URL"

    def upstreams(self) -> dict[str, str]:
        return {self._upstream: self.environment[self._URL_VARIABLE]} if self._upstream else {}

    def variables(self, url: str) -> dict[str, str]:
        ends = {ANTHROPIC: "", OPENAI: "/v1"}
        return {self._URL_VARIABLE: f"{url}{ends[self._upstream]}"} if self._upstream else {}

    @property
    def _upstream(self) -> str:
        """Name of the proxy's option for the person's provider; empty if none is set, or the proxy cannot serve it."""
        url, kind = (self.environment.get(name, "") for name in (self._URL_VARIABLE, "COPILOT_PROVIDER_TYPE"))
        if kind == "anthropic":
            return ANTHROPIC if url else ""
        return OPENAI if kind in ("", "openai") and _version_1(url) else ""


_CLIENTS = {"codex": _Codex, "copilot": _Copilot}
"""Classes of clients by the name of their program; all others are a `WrappedClient`."""


def wrapped_client(command: Sequence[str], environment: Mapping[str, str]) -> WrappedClient:
    """Return the object for the client that `command` starts: ``/opt/bin/codex`` and ``codex.exe`` are Codex."""
    name = os.path.basename(command[0]).lower().split(".")[0]
    return _CLIENTS.get(name, WrappedClient)(command, environment)


def _version_1(url: str) -> str:
    """Return `url` if it ends in ``/v1``, as the proxy needs; else an empty text."""
    return url if url.rstrip("/").endswith("/v1") else ""


def _profile(arguments: Sequence[str]) -> str:
    """Return the settings profile that Codex's command line chooses: ``work`` for ``-p work``, ``-pwork`` or
    ``--profile=work``; empty if it chooses none."""
    for flag, value in pairwise([*takewhile(lambda word: word != "--", arguments), ""]):
        if flag in ("-p", "--profile"):
            return value
        if flag.startswith(("-p", "--profile=")):
            return flag.removeprefix("--profile").removeprefix("-p").removeprefix("=")
    return ""


def _merged(settings: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with the values of `others` added or replaced, also inside tables that are in both."""
    tables = {
        key: _merged(settings[key], value)
        for key, value in others.items()
        if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **others, **tables}
