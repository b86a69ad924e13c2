"""What a user may tune about sessions, from arguments, environment and project file, in this order.

Reads ``COMPACTOR_…`` variables, the nearest ``compactor.toml`` (or ``[tool.compactor]`` in a ``pyproject.toml``),
and ``CLAUDE_AUTO_COMPACT``. A project's file is a stranger's: only what `PROJECT_NAMES` lists is read from it. Checks
names and bounds; applies nothing.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from planner.errors import SettingsError
from planner.prices import register_prices
from planner.reading.families import known_window_tokens
from planner.settings import TOOL_NAME, CheckedSettings, ModelPrices, PlanSettings, explained, nearest
from planner.tools import ToolUse

__all__ = ["PROJECT_FILE", "SessionSettings", "load_settings"]

PROJECT_FILE = "compactor.toml"
PREFIX = "COMPACTOR_"
OTHER_VARIABLES = frozenset(f"{PREFIX}{name}" for name in ("STORE", "REDACT_ORIGINALS", "PROXY_TOKEN", "SESSION"))
"""Variables with this prefix that are no session settings: see `applier.store`, the proxy and what `wrap` runs."""
_WHEN = ("preset", "auto_compact", "compact_at_ratio", "window_tokens", "max_output_tokens")
_BACKGROUND = ("background", "background_debounce_seconds", "background_new_turns")
_WHY = ("prices",)
_HOW_DEEPLY = ("plan.target_ratio", "plan.window_tokens", "plan.min_savings_tokens")
PROJECT_NAMES = frozenset((*_WHEN, *_BACKGROUND, *_WHY, *_HOW_DEEPLY))
"""All that a project's file may set, in these very letters, for a repository that an agent works in brings its own:
when and how deeply is compacted; never who reads the history, what planning may cost, what is said or read for the
host, or a word that the agent reads."""
_OFF = frozenset(("0", "false", "no", "off"))


class SessionSettings(CheckedSettings, BaseSettings):
    """Settings of one session. Nested ones from the environment: ``COMPACTOR_PLAN__TARGET_RATIO=0.2``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    preset: str = "relevance"
    """Name of the table of tiers and triggers."""
    auto_compact: bool = True
    """False: only `compact` and `recover` do anything. ``CLAUDE_AUTO_COMPACT=false`` says the same."""
    compact_at_ratio: float | None = Field(default=None, gt=0, le=1)
    """A prompt over this share of what it may have is compacted. None: when the preset says, which for ``relevance``
    is when to carry the growth has cost as much as compacting it does, and before the window is full."""
    window_tokens: int = Field(default=200_000, ge=2_000)
    """The model's context window. Not set: that of the request's model where it is known to be smaller."""
    max_output_tokens: int = Field(default=8_192, ge=1)
    """What the agent asks for as ``max_tokens``; kept free, up to the preset's reserve."""
    tool_uses: dict[str, ToolUse] = Field(default_factory=dict)
    """What the agent's tools do, by name, as far as their definitions do not declare it."""
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
    project: str = ""
    """The folder that the conversation works in: what it leaves in the store is found by it again. Empty: not noted."""
    learned_tokens: int = Field(default=0, ge=0, le=500)
    """A new conversation in `project` begins with at most so many tokens of the learned lines that you approved and
    that matter to its task; 0: none."""
    permissions: tuple[str, ...] = ()
    """Permission rules of the host, said again after each compaction."""
    shorten_over_tokens: int = Field(default=0, ge=0)
    """The mod in Claude Code stores a tool's result over so many tokens and sends its beginning, its end and what must
    stay of it; 0: never."""
    compact_tool: str = Field(default="compact", pattern=rf"^{TOOL_NAME}$")
    """Name of the tool by which the model itself asks for a compaction."""
    prices: dict[str, ModelPrices] = {}
    """What models charge, by what stands in their names, in place of what is known (``planner.prices``): decides when
    ``relevance`` compacts, and what is said of dollars."""
    plan: PlanSettings = PlanSettings()
    """How plans are made. `plan.target_ratio` is the share of the history that a compaction leaves, at most that share
    of the window; for ``relevance`` at least 8,000 tokens where they fit. What the model waits for comes on top. Not
    set: the preset's share, a fifth for ``relevance``."""

    @property
    def keep_ratio(self) -> float | None:
        """Share of the history that a compaction is to leave; None if it was not set."""
        return self.plan.target_ratio if "target_ratio" in self.plan.model_fields_set else None

    def window_of(self, model: str) -> int:
        """Return the size of the window for `model`: as it is set, here or for plans, else as it is known, else the
        default."""
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
        """Arguments, then environment, then the project file; unknown variables are refused."""
        if isinstance(env_settings, EnvSettingsSource):
            _check_variables(env_settings)
        switch = {"auto_compact": False} if os.environ.get("CLAUDE_AUTO_COMPACT", "").strip().lower() in _OFF else {}
        tables = (switch, _project_table(Path.cwd()))
        return init_settings, env_settings, *(InitSettingsSource(settings_cls, init_kwargs=table) for table in tables)


_JSON_FORMS = {
    "plan": '{"target_ratio": 0.2}',
    "prices": '{"my-model": {"input": 2, "output": 10, "cache_read": 0.05}}',
}


def _known_variables() -> frozenset[str]:
    names = [*SessionSettings.model_fields, *(f"PLAN__{name}" for name in PlanSettings.model_fields)]
    return OTHER_VARIABLES | {f"{PREFIX}{name}".upper() for name in names}


def _check_variables(source: EnvSettingsSource) -> None:
    """Refuse a ``COMPACTOR_…`` variable that sets nothing, or one of several values that is no JSON."""
    known, fields = sorted(_known_variables()), SessionSettings.model_fields
    for variable, value in ((name.upper(), value) for name, value in source.env_vars.items()):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and variable not in known:
            raise SettingsError(f"environment variable {variable} sets nothing: {nearest(variable, known, PREFIX)}")
        if variable in known and name in fields and source.field_is_complex(fields[name]):
            try:
                json.loads(value or "")
            except (ValueError, RecursionError):
                form = _JSON_FORMS.get(name, '["one", "another"]')
                wanted = f"expected JSON such as {form}, found {value!r:.80}"
                raise SettingsError(f"environment variable {variable}: {wanted}") from None


def _project_table(folder: Path) -> dict[str, Any]:
    """What the nearest project file at or above `folder` says; empty if there is none."""
    for place in (folder, *folder.parents):
        own, shared = place / PROJECT_FILE, place / "pyproject.toml"
        path = own if own.is_file() else shared
        table = _table(path) if path.is_file() else {}
        if table or path is own:
            _check_trust(table, path)
            with explained(SessionSettings, f"{path}: "):
                SessionSettings.model_validate(table)
            return table
    return {}


def _table(path: Path) -> dict[str, Any]:
    """What a ``compactor.toml`` says, or the table ``[tool.compactor]`` of a ``pyproject.toml``; empty without one."""
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))  # an editor may have put a byte order mark before it
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error
    tools = content.get("tool", {})
    if path.name == PROJECT_FILE:
        if "tool" in content:
            cure = "settings stand here by themselves: [tool.compactor] is for a pyproject.toml"
            raise SettingsError(f"{path}: {cure}")
        return content
    table = tools.get("compactor", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        cure = "write [tool.compactor] on a line of its own, and each setting on a line below"
        raise SettingsError(f"{path}: tool.compactor: expected a table of settings, found {table!r:.80}: {cure}")
    return table


def _check_trust(table: Mapping[str, Any], path: Path) -> None:
    """Refuse of a project's file whatever is not listed above: in other letters it would be applied as well."""
    plan = table.get("plan")
    nested = plan if isinstance(plan, dict) else {}  # what is no table sets nothing, and its value is refused
    names = {*table, *(f"plan.{name}" for name in nested)} - PROJECT_NAMES - {"plan"}
    if names:
        name = min(names)
        variable = PREFIX + name.upper().replace(".", "__")
        set_elsewhere = f"set {variable}, or hand it to the session"
        cure = set_elsewhere if variable in _known_variables() else f"it may set {', '.join(sorted(PROJECT_NAMES))}"
        raise SettingsError(
            f"{path}: {name!r:.80} is not read from a project's file, which may be a stranger's: {cure}"
        )


def load_settings(**given: Any) -> SessionSettings:
    """Settings with `given` over environment over project file over defaults; None counts as not given.

    Raises:
        SettingsError: an unknown name or a value out of bounds; the text says which.
    """
    settings = SessionSettings(**{name: value for name, value in given.items() if value is not None})
    register_prices(settings.prices)
    return settings
