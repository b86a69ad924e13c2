"""Where Codex asks, as its own settings say; reads them only."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any

__all__ = ["codex_place", "is_codex_program"]

_OWN = "openai"
"""The provider that Codex has without any settings."""


def is_codex_program(name: str) -> bool:
    """True for ``codex``, ``/opt/bin/codex`` and ``codex.exe``."""
    return os.path.basename(name).lower().split(".")[0] == "codex"


def codex_place(environment: Mapping[str, str]) -> tuple[str, str]:
    """The name of the setting that says where Codex asks, and where that is; empty: where OpenAI is."""
    settings = _settings(environment)
    provider = settings.get("model_provider", _OWN)
    if provider == _OWN or not isinstance(provider, str):
        url, name = settings.get("openai_base_url"), "openai_base_url"
    else:
        others = settings.get("model_providers")
        other = others.get(provider) if isinstance(others, dict) else None
        url, name = (other or {}).get("base_url"), f"model_providers.{provider}.base_url"
    return name, url if isinstance(url, str) else ""


def _settings(environment: Mapping[str, str]) -> dict[str, Any]:
    home = environment.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    try:
        with open(os.path.join(home, "config.toml"), "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError):
        return {}
