"""Settings of planning, and declarations of what tools do. Bounds are on the fields; unknown keys are refused.

A tool without a declaration counts as one that may act.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import SettingsError
from planner.reading.secrets import quoted

PlannerName = Literal["auto", "model", "rules"]
"""Planner by name; ``auto`` is the model if there is a key, else the rules."""

TOOL_NAME = "[a-zA-Z0-9_-]{1,128}"
"""Characters of a tool's name, for the API and for a view that mentions it: ``mcp__memory__restore_context``; nothing
that could end a sentence, a line or a frame."""
RESTORE_TOOL = "restore_context"
"""Agent's tool that restores the content of a reference."""
_SERVER = "compactor"
"""Name of this project's MCP server, unless the person who configured it chose another."""
OptionalToolName = Annotated[str, Field(pattern=rf"^({TOOL_NAME})?$")]


class CheckedSettings(BaseModel):
    """Settings whose errors name the wrong field."""

    model_config = ConfigDict(defer_build=True)

    def __init__(self, **values: Any) -> None:
        """Check the arguments.

        Raises:
            SettingsError: an unknown name or a value out of bounds; the text names it and the expected form.
        """
        with explained(type(self)):
            super().__init__(**values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # nested: their names stay in the error

    def changed(self, **values: Any) -> Self:
        """Return a copy with some values changed and checked; nothing else is read again."""
        with explained(type(self)):
            return self.model_validate({name: getattr(self, name) for name in self.model_fields_set} | values)


@contextmanager
def explained(settings: type[BaseModel], place: str = "") -> Iterator[None]:
    """Raise errors in values of `settings` as a SettingsError that names their `place`."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{place}setting {name}: {_cure(first, settings)}") from None


def _cure(error: Mapping[str, Any], settings: type[BaseModel]) -> str:
    """Return the expected form for one error of pydantic; for an unknown name the nearest known one."""
    if error["type"] != "extra_forbidden":
        return f"{error['msg'][0].lower()}{error['msg'][1:]}, found {quoted(error['input'], 200)}"
    *outer, name = error["loc"]
    for part in outer:
        settings = _table_at(settings, part)
    return f"there is none; {nearest(str(name), sorted(settings.model_fields))}"


def _table_at(settings: type[BaseModel], part: object) -> type[BaseModel]:
    """Return the settings class of the field `part`; if the field is a mapping, of its values."""
    field = settings.model_fields.get(str(part))
    kinds = (field.annotation, *get_args(field.annotation)) if field else ()
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), settings)


def nearest(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Return the advice for an unknown `name`: the most similar of the `known` names, or all of them. `prefix`:
    beginning of all names, which does not make them similar."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name.removeprefix(prefix), [own.removeprefix(prefix) for own in known], 1)
    return f"did you mean {prefix}{near[0]}?" if near else f"there are {', '.join(known)}"


class PlanSettings(CheckedSettings):
    """Settings of one planning call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_ratio: float = Field(default=0.25, gt=0, le=1)
    """Share of the history's tokens that the view may have without a target."""
    target_model: str = ""
    """Model that will read the view: decides token counts and thinking. Empty: a current Claude."""
    window_tokens: int = Field(default=200_000, ge=1_000)
    """Context window of the model that will read the view. A live tail that would fill it is shortened to previews."""
    restore_tool: OptionalToolName = ""
    """Agent's tool that returns a whole turn, to be named in the view; empty without one."""
    min_savings_tokens: int = Field(default=0, ge=0)
    """Smallest saving in tokens; a plan that saves less keeps everything."""
    planner_input_ratio: float = Field(default=0.24, gt=0, le=1)
    """Share of the history's tokens that the planner model may read, prompt and cards together."""
    planner_input_floor_tokens: int = Field(default=23_000, ge=500)
    """Tokens of a small history that the planner may always read. On two sessions plans from 19,000 and 22,000 tokens
    answered .09 less than from 29,000 and 36,000. Twice as many tokens answered no more."""
    session_input_ratio: float | None = Field(default=0.3, gt=0)
    """Share of a session's tokens that all its plans together may read; the first plan has the two bounds above. If the
    next question would read more, the plan is by rules, with the last brief. None: no such bound."""
    piece_tokens: int = Field(default=60_000, ge=2_000)
    """Size of cards in tokens from which they are planned in parallel pieces of at most this size."""
    max_output_tokens: int = Field(default=16_384, ge=256)
    """Output limit of the planner model for one piece: the brief of 230,000 tokens takes six tenths of it."""
    timeout_seconds: float = Field(default=180.0, gt=0)
    """Time for one planning call by a model, including its requests, questions about answers, retries and pieces."""
    max_reasks: int = Field(default=2, ge=0, le=10)
    """Number of times that an answer that is not a valid plan is returned to the model."""

    def first_input_tokens(self, tokens: float) -> int:
        """Return how many tokens the planner of a first plan may read. `tokens`: size of the history.

        It is the floor or the ratio, whichever is more. Between small and large histories it is 1.5 times the ratio,
        but at most 1.25 times the floor. The reason: of 11 answers that plans from 23,000 of 80,000 tokens lost, 8 were
        on no card. A smaller history does not get more, as its next plan would come late.
        """
        share = self.planner_input_ratio * tokens
        between = min(1.25 * self.planner_input_floor_tokens, 1.5 * share)
        return int(max(self.planner_input_floor_tokens, share, between))


class PriceBand(BaseModel):
    """Prices of a request whose prompt is longer than a limit; they apply to the whole request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above_tokens: int = Field(ge=1)
    """Size of the prompt above which the band holds."""
    input: float = Field(default=1.0, gt=0)
    """Factor on the model's `input` price, and so on the prices of its cache."""
    output: float = Field(default=1.0, gt=0)
    """Factor on the model's `output` price."""


class ModelPrices(BaseModel):
    """Prices of one model; the defaults are Anthropic's general ratios."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(gt=0)
    """Dollars for a million tokens of a prompt."""
    output: float = Field(gt=0)
    """Dollars for a million tokens of an answer."""
    cache_read: float = Field(default=0.1, gt=0, le=1)
    """Price of a token that is read from the cache, in units of `input`."""
    cache_write: float | None = Field(default=1.25, ge=1)
    """Price of a token that is written to the cache, in units of `input`; None if writing costs nothing more."""
    bands: tuple[PriceBand, ...] = ()
    """Other prices for longer prompts."""

    @property
    def write_price(self) -> float:
        """Price of a token that is written to the cache, in units of `input`."""
        return self.cache_write or 1.0

    def factor(self, prompt_tokens: float) -> float:
        """Return the factor on the prices of a prompt of `prompt_tokens`."""
        band = self._band(prompt_tokens)
        return band.input if band else 1.0

    def output_factor(self, prompt_tokens: float) -> float:
        """Return the factor on the price of an answer to a prompt of `prompt_tokens`."""
        band = self._band(prompt_tokens)
        return band.output if band else 1.0

    def _band(self, prompt_tokens: float) -> PriceBand | None:
        """Return the band with the highest limit that a prompt of `prompt_tokens` exceeds; None without one."""
        reached = [band for band in self.bands if prompt_tokens > band.above_tokens]
        return max(reached, key=lambda band: band.above_tokens, default=None)


def bare_tool_name(name: str) -> str:
    """Return a tool's own name, without the server's name, which clients of MCP put before it.

    The own name of ``mcp__SERVER__restore_context`` is ``restore_context``, whatever the server. For this project's
    server it also is for ``compactor-restore_context`` (Copilot) and ``compactor_restore_context`` (OpenCode).
    """
    server, _, own = name.rpartition("__")
    return own if server else re.sub(f"^{_SERVER}[-_]", "", name)


def restore_tool_of(tools: Sequence[Mapping[str, Any]], called: str = RESTORE_TOOL) -> str:
    """Return the name of the tool among `tools` that restores removed content; empty if there is none.

    `called`: the tool's name without its server. The host's own tool takes precedence over one of this project's
    server, and that over one of an unknown server.
    """
    all_names = (str((tool.get("function") or tool).get("name", "")) for tool in tools)
    names = [name for name in all_names if called in (name, bare_tool_name(name)) and re.fullmatch(TOOL_NAME, name)]
    of_own_server = re.compile(rf"(.*{_SERVER}__|{_SERVER}[-_]){re.escape(called)}")
    hosts_own = (name for name in names if name == called)
    own_servers = filter(of_own_server.fullmatch, names)
    return next(chain(hosts_own, own_servers, names), "")


class ToolUse(CheckedSettings):
    """One tool's declaration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: Literal["reads", "acts"] = "acts"
    """Effect of the tool. ``reads``: it only reads, so a later read replaces an earlier one. ``acts``: it changes
    something outside of the conversation, so its result is listed as an effect."""
    object_arguments: tuple[str, ...] = Field(default=())
    """Names of the arguments that identify the object that the tool reads or changes; all arguments if empty."""
    keep_fields: tuple[str, ...] = Field(default=())
    """Names of fields of its JSON result that are shown with the call."""


def declared_uses(uses: Mapping[str, ToolUse], tools: Sequence[Mapping[str, Any]] = ()) -> dict[str, ToolUse]:
    """Return the declarations of tools by name: `uses` take precedence over the annotations in `tools`.

    A ``readOnlyHint`` of true is used to recognise repeated reads, never as a licence to drop an effect. If it is
    false, or if there is a ``destructiveHint``, the tool acts (MCP specification, ToolAnnotations).
    """
    hinted: dict[str, ToolUse] = {}
    for tool in tools:
        hints = tool.get("annotations")
        if isinstance(hints, Mapping) and isinstance(hints.get("readOnlyHint"), bool):
            hinted[str(tool.get("name", ""))] = ToolUse(effect="reads" if hints["readOnlyHint"] else "acts")
        elif isinstance(hints, Mapping) and hints.get("destructiveHint") is True:
            hinted[str(tool.get("name", ""))] = ToolUse(effect="acts")
    return {**hinted, **uses}
