"""What a user may tune about sessions, from arguments, environment and project file, in this order.

Reads ``COMPACTOR_…`` variables, the nearest ``compactor.toml`` (or ``[tool.compactor]`` in a ``pyproject.toml``),
and ``CLAUDE_AUTO_COMPACT``. Checks names and bounds; applies nothing.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from planner.errors import SettingsError
from planner.settings import PlanSettings

__all__ = ["PROJECT_FILE", "SessionSettings", "load_settings", "project_settings"]

PROJECT_FILE = "compactor.toml"
_OFF = frozenset(("0", "false", "no", "off"))


class SessionSettings(BaseSettings):
    """Settings of one session. Nested ones from the environment: ``COMPACTOR_PLAN__TARGET_RATIO=0.2``."""

    model_config = SettingsConfigDict(env_prefix="COMPACTOR_", env_nested_delimiter="__", extra="forbid", frozen=True)

    preset: str = "relevance"
    """Name of the table of tiers and triggers."""
    auto_compact: bool = True
    """False: only `compact` and `recover` do anything. ``CLAUDE_AUTO_COMPACT=false`` says the same."""
    window_tokens: int = Field(default=200_000, ge=2_000)
    """The model's context window."""
    max_output_tokens: int = Field(default=8_192, ge=1)
    """What the agent asks for as ``max_tokens``; kept free, up to the preset's reserve."""
    planner: Literal["auto", "model", "rules"] = "auto"
    planner_model: str = ""
    """The model that plans; empty: the planner's own default."""
    background: bool | None = None
    """Plan in a worker between calls. None: when a model plans, or the history is long."""
    background_debounce_seconds: float = Field(default=5.0, ge=0)
    """A worker starts this long after it started last, at the earliest (Aircher: after 5 s idle)."""
    background_new_turns: int = Field(default=3, ge=1)
    """And when there are this many new turns (Aircher: incremental batches of at least 3)."""
    max_failures: int = Field(default=3, ge=1)
    """So many failures of the planner in a row open the breaker."""
    rest_seconds: float = Field(default=300.0, ge=0)
    """After this long an open breaker lets one trial through."""
    recall_tokens: int = Field(default=1_500, ge=0)
    """A removed turn that the agent names comes back at once if it has at most so many tokens; 0: never."""
    file_roots: tuple[Path, ...] = ()
    """Folders from which recently read files may be read again after a compaction; none: only the store."""
    permissions: tuple[str, ...] = ()
    """Permission rules of the host, said again after each compaction."""
    compact_tool: str = "compact"
    """Name of the tool by which the model itself asks for a compaction."""
    plan: PlanSettings = PlanSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment; the project file comes in as `_ProjectFile`."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _ProjectFile(settings_cls)


class _ProjectFile(PydanticBaseSettingsSource):
    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        del field
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        found = project_settings(Path.cwd())
        said = os.environ.get("CLAUDE_AUTO_COMPACT", "").strip().lower()
        return {**found, "auto_compact": False} if said in _OFF else found


def project_settings(folder: Path) -> dict[str, Any]:
    """What the nearest project file at or above `folder` says; nothing if there is none.

    Raises:
        SettingsError: the file is not TOML.
    """
    for place in (folder, *folder.parents):
        if (place / PROJECT_FILE).is_file():
            return _toml(place / PROJECT_FILE)
        if (place / "pyproject.toml").is_file():
            table = _toml(place / "pyproject.toml").get("tool", {}).get("compactor")
            if isinstance(table, dict):
                return table
    return {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error


def load_settings(**given: Any) -> SessionSettings:
    """Settings with `given` over environment over project file over defaults; None counts as not given.

    Raises:
        SettingsError: an unknown name or a value out of bounds; the text says which.
    """
    try:
        return SessionSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"setting {name}: {first['msg']}, found {first['input']!r}") from None
