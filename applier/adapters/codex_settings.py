"""Where Codex asks, as its own settings and its command line say; reads them only."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

__all__ = ["codex_place", "is_codex_program"]

_OWN = "openai"
"""The provider that Codex has without any settings."""


def is_codex_program(name: str) -> bool:
    """True for ``codex``, ``/opt/bin/codex`` and ``codex.exe``."""
    return os.path.basename(name).lower().split(".")[0] == "codex"


def codex_place(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> tuple[str, str]:
    """The name of the setting that says where Codex asks, and where that is; empty: where OpenAI is.

    No name: its provider is one that it has built in (``ollama``), whose place no setting changes.
    """
    settings = _settings(environment, "config.toml")
    if profile := _profile(arguments):
        settings = _over(settings, _settings(environment, f"{profile}.config.toml"))
    provider = settings.get("model_provider", _OWN)
    if provider == _OWN:
        url, name = settings.get("openai_base_url"), "openai_base_url"
    else:
        others = settings.get("model_providers")
        other = others.get(str(provider)) if isinstance(others, dict) else None
        if not isinstance(other, dict):
            return "", ""
        url, name = other.get("base_url"), f"model_providers.{provider}.base_url"
    return name, url if isinstance(url, str) else ""


def _profile(arguments: Sequence[str]) -> str:
    """The profile that Codex is called with: ``-p work``, ``-pwork``, ``--profile=work``; empty without one."""
    for flag, value in pairwise([*takewhile(lambda one: one != "--", arguments), ""]):
        if flag in ("-p", "--profile"):
            return value
        if flag.startswith(("-p", "--profile=")):
            return flag.removeprefix("--profile").removeprefix("-p").removeprefix("=")
    return ""


def _over(settings: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with `others` in their place."""
    both = {
        key: value for key, value in others.items() if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **others, **{key: _over(settings[key], value) for key, value in both.items()}}


def _settings(environment: Mapping[str, str], file_name: str) -> dict[str, Any]:
    home = environment.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    try:
        with open(os.path.join(home, file_name), "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError):
        return {}
