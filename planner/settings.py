"""Defines the settings of planning, with their bounds, and the user's declarations of what tools do.

Unknown settings are refused. A tool without a declaration counts as one that may change the outside world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import SettingsError
from planner.reading.secrets import quoted

PlannerName = Literal["auto", "model", "rules"]
"""Name of a planner; ``auto`` is ``model`` if there is an API key, else ``rules``."""

TOOL_NAME = "[a-zA-Z0-9_-]{1,128}"
"""Pattern of a tool's name: ``mcp__memory__restore_context``. It allows nothing that could end a sentence, a line or a
tag, as the name is shown to the agent."""
OptionalToolName = Annotated[str, Field(pattern=rf"^({TOOL_NAME})?$")]


class CheckedSettings(BaseModel):
    """Base of settings whose errors name the wrong field and what is expected there."""

    model_config = ConfigDict(defer_build=True)

    def __init__(self, **values: Any) -> None:
        """Check and store the values.

        Raises:
            SettingsError: an unknown name or a value out of bounds; the text names it and the expected form.
        """
        with explained(type(self)):
            super().__init__(**values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # nested: their names stay in the error

    def changed(self, **values: Any) -> Self:
        """Return a copy with these `values` changed and checked. Files and environment variables are not read again."""
        with explained(type(self)):
            return self.model_validate({name: getattr(self, name) for name in self.model_fields_set} | values)


@contextmanager
def explained(settings: type[BaseModel], place: str = "") -> Iterator[None]:
    """Turn pydantic's error about a value of the class `settings`, raised in a ``with`` block, into a SettingsError
    whose text begins with `place` and names the wrong setting."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{place}setting {name}: {_cure(first, settings)}") from None


def _cure(error: Mapping[str, Any], settings: type[BaseModel]) -> str:
    """Return what the user should write instead, for one error of pydantic: the expected form, or for an unknown name
    the most similar known one."""
    if error["type"] != "extra_forbidden":
        expected = error["msg"].replace("valid tuple", "valid list")  # users write lists, as in JSON and TOML
        return f"{expected[0].lower()}{expected[1:]}, found {quoted(error['input'], 200)}"
    *outer, name = error["loc"]
    for part in outer:
        settings = _table_at(settings, part)
    return f"there is none; {nearest(str(name), sorted(settings.model_fields))}"


def _table_at(settings: type[BaseModel], part: object) -> type[BaseModel]:
    """Return the class of the nested settings in the field `part` of the class `settings`; of a field with a mapping,
    the class of its values; `settings` itself if `part` has no nested settings (then it may be a key of a mapping)."""
    field = settings.model_fields.get(str(part))
    kinds = (field.annotation, *get_args(field.annotation)) if field else ()
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), settings)


def nearest(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Return the advice for an unknown `name`, such as ``did you mean task?``, or all `known` names if none is similar.
    `prefix`: beginning of all names, which is not compared."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name.removeprefix(prefix), [known_name.removeprefix(prefix) for known_name in known], 1)
    return f"did you mean {prefix}{near[0]}?" if near else f"there are {', '.join(known)}"


class PlanSettings(CheckedSettings):
    """Settings for making one plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_ratio: float = Field(default=0.25, gt=0, le=1)
    """Size of the compacted messages, as a share of the history's tokens, if the caller sets no target."""
    target_model: str = ""
    """Model that will read the compacted messages: decides token counts and thinking. Empty: a current Claude."""
    window_tokens: int = Field(default=200_000, ge=1_000)
    """Context window of the model that will read the compacted messages, in tokens. Newest messages that would fill it
    are shortened to previews."""
    restore_tool: OptionalToolName = ""
    """Tool with which the agent can read a removed turn, to be named in the compacted messages; empty without one."""
    min_savings_tokens: int = Field(default=0, ge=0)
    """Smallest saving in tokens; a plan that saves less keeps everything."""
    planner_input_ratio: float = Field(default=0.24, gt=0, le=1)
    """Largest share of a large history's tokens that the planner model reads: prompt and excerpts of turns together."""
    planner_input_floor_tokens: int = Field(default=23_000, ge=500)
    """Tokens of a history that the planner model may always read, even if it is small. On two sessions, the share
    of test questions that plans answered was .09 lower with 19,000 and 22,000 tokens than with 29,000 and 36,000. Twice
    as many tokens answered no more."""
    session_input_ratio: float | None = Field(default=0.3, gt=0)
    """Largest share of a session's tokens that planner models read for all its plans; the first plan has the two bounds
    above. If the next question would exceed it, rules make the plan, with the last page of memory. None: no bound."""
    piece_tokens: int = Field(default=60_000, ge=2_000)
    """Largest size of the excerpts of turns in one question, in tokens; more are divided among parallel questions."""
    max_output_tokens: int = Field(default=16_384, ge=256)
    """Output limit of the planner model for one question. A page of memory for 230,000 tokens takes .6 of it."""
    timeout_seconds: float = Field(default=180.0, gt=0)
    """Time for making one plan with a model, including all its questions, repetitions and corrections."""
    max_reasks: int = Field(default=2, ge=0, le=10)
    """Number of times that the planner model is asked again after an answer that is no valid plan."""

    def first_input_tokens(self, tokens: float) -> int:
        """Return how many tokens the planner model may read for a first plan. `tokens`: size of the history.

        It is `planner_input_floor_tokens` or `planner_input_ratio` of the history, whichever is more. Between small and
        large histories it is 1.5 times the ratio, but at most 1.25 times the floor. The reason: of 11 test questions
        that plans from 23,000 of 80,000 tokens lost, the answers to 8 were in no excerpt. A smaller history does not
        get more, as its next plan would come late.
        """
        share = self.planner_input_ratio * tokens
        between = min(1.25 * self.planner_input_floor_tokens, 1.5 * share)
        return int(max(self.planner_input_floor_tokens, share, between))


class ToolUse(CheckedSettings):
    """Declaration of what one of the agent's tools does, by the user or by the annotations of the tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: Literal["reads", "acts"] = "acts"
    """Effect of the tool. ``reads``: it only reads, so that a later read replaces an earlier one. ``acts``: it changes
    something outside of the conversation, so that its calls stay in the list of what was done."""
    object_arguments: tuple[str, ...] = Field(default=())
    """Names of the arguments that identify the object that the tool reads or changes; all arguments if empty."""
    keep_fields: tuple[str, ...] = Field(default=())
    """Names of fields of the tool's JSON result that are always shown with the call."""


class _Declared(BaseModel):
    """Wrapper by which errors about a declaration have the name ``tool_uses``."""

    tool_uses: dict[str, ToolUse]


def declared_uses(
    uses: Mapping[str, ToolUse | Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
) -> dict[str, ToolUse]:
    """Return what is declared about tools, by name: by the user (`uses`), or else by the annotations in `tools`, the
    agent's own definitions. A ``readOnlyHint`` of true serves to recognise repeated reads, never to drop an action. If
    it is false, or if there is none and ``destructiveHint`` is true, the tool acts (MCP specification,
    ToolAnnotations).

    Raises:
        SettingsError: `uses` is not a dict of `ToolUse`, or of dicts with its fields.
    """
    hinted: dict[str, ToolUse] = {}
    for tool in tools:
        hints = tool.get("annotations")
        if isinstance(hints, Mapping) and isinstance(hints.get("readOnlyHint"), bool):
            hinted[str(tool.get("name", ""))] = ToolUse(effect="reads" if hints["readOnlyHint"] else "acts")
        elif isinstance(hints, Mapping) and hints.get("destructiveHint") is True:
            hinted[str(tool.get("name", ""))] = ToolUse(effect="acts")
    with explained(_Declared):
        declared = _Declared.model_validate({"tool_uses": uses}).tool_uses
    return {**hinted, **declared}


def misnamed_uses(uses: Mapping[str, ToolUse], tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a remark for each name in the declarations `uses` that is probably misspelled, as it is not in `tools`, the
    agent's own definitions.

    A tool is only reported if the name of one without a declaration is similar, because declarations may be shared by
    several agents. An argument is reported if the tool's schema lists others.
    """
    from difflib import get_close_matches  # few agents declare a tool that they do not have

    schemas = {str(tool.get("name", "")): tool.get("input_schema") for tool in tools}
    for name, use in uses.items():
        if name not in schemas:
            near = get_close_matches(name, sorted(schemas.keys() - uses.keys()), 1)
            yield from (f"tool_uses: the agent has no tool {name}; did you mean {similar}?" for similar in near)
            continue
        schema = schemas[name]
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        arguments = [*map(str, properties)] if isinstance(properties, Mapping) else []
        for argument in use.object_arguments if arguments else ():
            if argument not in arguments:
                advice = nearest(argument, arguments)
                yield f"tool_uses.{name}.object_arguments: the tool has no argument {argument}; {advice}"
