"""Settings of a session: of several values for a setting, the first of these sources decides.

The sources are the arguments, the ``COMPACTOR_…`` variables, the variable ``CLAUDE_AUTO_COMPACT`` (if it is off, it
switches `auto_compact` off), and the nearest ``compactor.toml``, or ``[tool.compactor]`` in a ``pyproject.toml``. A
project's file may come from a stranger, so only `PROJECT_NAMES` are read from it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from planner.errors import SettingsError
from planner.prices import ModelPrices, register_prices
from planner.reading.secrets import quoted
from planner.reading.tokens import known_window_tokens
from planner.settings import (
    TOOL_NAME,
    CheckedSettings,
    PlannerName,
    PlanSettings,
    ToolUse,
    explained,
    nearest,
)

__all__ = ["PROJECT_FILE", "SessionSettings", "load_settings"]

PROJECT_FILE = "compactor.toml"
PREFIX = "COMPACTOR_"
_PLAN_PREFIX = f"{PREFIX}PLAN__"
OTHER_VARIABLES = frozenset(f"{PREFIX}{name}" for name in ("STORE", "REDACT_ORIGINALS", "PROXY_TOKEN", "SESSION"))
"""Variables that begin with ``COMPACTOR_`` but are no session settings: the store, the proxy and `wrap` use them."""
_WHEN = ("preset", "auto_compact", "compact_at_ratio", "window_tokens", "max_output_tokens")
_BACKGROUND = ("background", "background_debounce_seconds", "background_new_turns")
_HOW_DEEPLY = ("plan.target_ratio", "plan.window_tokens", "plan.min_savings_tokens")
PROJECT_NAMES = frozenset((*_WHEN, *_BACKGROUND, "prices", *_HOW_DEEPLY))
"""Settings that a project's file may have: when and how deeply to compact. The file may be a stranger's, so it never
decides which provider gets the conversation, what planning costs, or any text that the agent or its user reads."""
_OFF = frozenset(("0", "false", "no", "off"))
"""Values of ``CLAUDE_AUTO_COMPACT`` that switch automatic compaction off."""


class SessionSettings(CheckedSettings, BaseSettings):
    """Settings of one session. In the environment, ``COMPACTOR_PLAN__TARGET_RATIO=0.2`` sets ``plan.target_ratio``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    preset: str = "relevance"
    """Name of the preset: the table of ways to shorten the message list, and when each of them runs."""
    auto_compact: bool = True
    """Automatic compaction; False: only `compact` and `recover` compact. ``CLAUDE_AUTO_COMPACT=false`` sets it, too."""
    compact_at_ratio: float | None = Field(default=None, gt=0, le=1)
    """Share of the space for a prompt at which the conversation is compacted. None: the preset decides; ``relevance``
    compacts when reading the growth has cost as much as a compaction, and before the window is full."""
    window_tokens: int = Field(default=200_000, ge=2_000)
    """Context window of the model. Not set: `plan.window_tokens` if set, else the known one of the request's model."""
    max_output_tokens: int = Field(default=8_192, ge=1)
    """Agent's ``max_tokens``, for which room is kept free in the window: at most 20,000 tokens or a quarter of it."""
    tool_uses: dict[str, ToolUse] = Field(default_factory=dict)
    """Effects of the agent's tools by name, for tools without a declaration of their own."""
    planner: PlannerName = "auto"
    planner_model: str = ""
    """Model that plans; empty: the planner's own default."""
    background: bool | None = None
    """Make plans in advance, in a worker thread. None: if a model makes them, or the history is long."""
    background_debounce_seconds: float = Field(default=5.0, ge=0)
    """Shortest time between the starts of two plans in advance (Aircher: after 5 s idle)."""
    background_new_turns: int = Field(default=3, ge=1)
    """Number of new turns before the next plan in advance (Aircher: incremental batches of at least 3)."""
    max_failures: int = Field(default=3, ge=1)
    """Number of failures of the planner in a row after which it is paused."""
    rest_seconds: float = Field(default=300.0, ge=0)
    """Time after which a paused planner has one trial."""
    project: str = ""
    """Folder in which the conversation works, noted with its originals in the store; empty: not noted."""
    learned_tokens: int = Field(default=0, ge=0, le=500)
    """Largest size of approved lessons in a new conversation of `project`, selected by its task; 0: none."""
    permissions: tuple[str, ...] = ()
    """Permission rules of the agent's program, repeated after each compaction."""
    shorten_over_tokens: int = Field(default=0, ge=0)
    """Size from which the mod in Claude Code stores a tool's result and sends only its beginning, its end and important
    lines; 0: never."""
    compact_tool: str = Field(default="compact", pattern=rf"^{TOOL_NAME}$")
    """Name of the tool by which the model itself asks for a compaction."""
    prices: dict[str, ModelPrices] = {}
    """Prices of models by a part of their names, instead of the known ones (``planner.prices``): they decide when
    ``relevance`` compacts, and every amount in dollars."""
    plan: PlanSettings = PlanSettings()
    """Settings of planning. `plan.target_ratio` is the share of the history that a compaction keeps, at most that share
    of the window; for ``relevance`` at least 8,000 tokens where they fit. The newest, unanswered messages are added.
    Not set: the preset's share, a fifth for ``relevance``."""

    @property
    def keep_ratio(self) -> float | None:
        """Share of the history that a compaction should leave; None if it was not set."""
        return self.plan.target_ratio if "target_ratio" in self.plan.model_fields_set else None

    def window_of(self, model: str) -> int:
        """Return the window for `model`: as set for sessions or plans, else as known for it, else the default."""
        if "window_tokens" in self.model_fields_set:
            return self.window_tokens
        if "window_tokens" in self.plan.model_fields_set:
            return self.plan.window_tokens
        return known_window_tokens(model) or self.window_tokens

    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # it is called by these names
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        **_others: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings, the first of which wins: arguments, variables, the switch of Claude Code,
        project file. Raise SettingsError if a ``COMPACTOR_…`` variable is unknown, or a value is wrong."""
        if isinstance(env_settings, EnvSettingsSource):
            _check_variables(env_settings)
        switch = {"auto_compact": False} if os.environ.get("CLAUDE_AUTO_COMPACT", "").strip().lower() in _OFF else {}
        tables = (switch, _project_table(Path.cwd()))
        return init_settings, env_settings, *(InitSettingsSource(settings_cls, init_kwargs=table) for table in tables)


_JSON_FORMS = {
    "plan": '{"target_ratio": 0.2}',
    "tool_uses": '{"read_order": {"effect": "reads"}}',
    "prices": '{"my-model": {"input": 2, "output": 10, "cache_read": 0.05}}',
}
"""Examples of JSON, shown in errors, for settings whose environment variables contain JSON."""


def _known_variables() -> frozenset[str]:
    """Return the names of all ``COMPACTOR_…`` variables that this program reads, in capital letters."""
    names = [*SessionSettings.model_fields, *(f"PLAN__{name}" for name in PlanSettings.model_fields)]
    return OTHER_VARIABLES | {f"{PREFIX}{name}".upper() for name in names}


def _check_variables(source: EnvSettingsSource) -> None:
    """Raise SettingsError for a ``COMPACTOR_…`` variable with an unknown name or a wrong value."""
    known, fields = sorted(_known_variables()), SessionSettings.model_fields
    for variable, value in ((name.upper(), value) for name, value in source.env_vars.items()):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and variable not in known:
            prefix = _PLAN_PREFIX if variable.startswith(_PLAN_PREFIX) else PREFIX
            cure = nearest(variable, [name for name in known if name.startswith(prefix)], prefix)
            raise SettingsError(f"environment variable {variable} sets nothing: {cure}")
        if variable in known and name in fields and source.field_is_complex(fields[name]):  # its value is JSON
            try:
                json.loads(value or "")
            except (ValueError, RecursionError):
                form = _JSON_FORMS.get(name, '["one", "another"]')
                wanted = f"expected JSON such as {form}, found {quoted(value, 80)}"
                raise SettingsError(f"environment variable {variable}: {wanted}") from None
    try:
        SessionSettings.model_validate(source())
    except ValidationError as error:  # its place is ``("plan", "target_ratio")``: name the variable that was set
        outer, *inner = map(str, error.errors(include_url=False)[0]["loc"])
        names = ["__".join((outer, *inner)), outer]
        name = next(name for name in names if f"{PREFIX}{name}".lower() in source.env_vars)
        with explained(SessionSettings, f"environment variable {PREFIX}{name.upper()}: "):
            raise


def _project_table(folder: Path) -> dict[str, Any]:
    """Return the settings in the nearest project file, in `folder` or above it; empty without one."""
    for place in (folder, *folder.parents):
        own_file, pyproject = place / PROJECT_FILE, place / "pyproject.toml"
        path = own_file if own_file.is_file() else pyproject
        table = _settings_table(path) if path.is_file() else {}
        if table or path is own_file:  # even an empty file of our own ends the search
            _check_project_names(table, path)
            with explained(SessionSettings, f"{path}: "):
                SessionSettings.model_validate(table)
            return table
    return {}


def _settings_table(path: Path) -> dict[str, Any]:
    """Return the settings in a ``compactor.toml``, or in ``[tool.compactor]`` of a ``pyproject.toml``."""
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))  # an editor may have put a byte order mark before it
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error
    tools = content.get("tool", {})
    if path.name == PROJECT_FILE:
        if "tool" in content:
            cure = "write the settings without a table: [tool.compactor] is for a pyproject.toml"
            raise SettingsError(f"{path}: {cure}")
        return content
    table = tools.get("compactor", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        cure = "write [tool.compactor] on a line of its own, and each setting on a line below"
        raise SettingsError(f"{path}: tool.compactor: expected a table of settings, found {quoted(table, 80)}: {cure}")
    return table


def _check_project_names(table: Mapping[str, Any], path: Path) -> None:
    """Raise SettingsError if a project's file sets something that is not in `PROJECT_NAMES`."""
    plan = table.get("plan")
    nested = plan if isinstance(plan, dict) else {}  # any other value is refused when the settings are validated
    names = {*table, *(f"plan.{name}" for name in nested)} - PROJECT_NAMES - {"plan"}
    if names:
        name = min(names)
        variable = PREFIX + name.upper().replace(".", "__")
        problem = f"sets nothing in a project's file: {nearest(name, sorted(PROJECT_NAMES))}"
        if variable in _known_variables():
            cure = f"set {variable}, or pass it to the session"
            problem = f"is not read from a project's file, which may be a stranger's: {cure}"
        raise SettingsError(f"{path}: {name!r:.80} {problem}")


def load_settings(**values: Any) -> SessionSettings:
    """Return the settings: from `values`, else the environment, else the project file, else the defaults.

    A value that is None counts as missing.

    Raises:
        SettingsError: an unknown name or a value out of bounds; the text names it.
    """
    settings = SessionSettings(**{name: value for name, value in values.items() if value is not None})
    register_prices(settings.prices)
    return settings
