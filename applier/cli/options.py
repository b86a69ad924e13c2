"""Arguments and options that several commands share, and the types behind them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from applier.sheet import Edit
from planner.plan import Strategy

__all__ = [
    "MOST_TOKENS",
    "OutputFile",
    "as_json",
    "brief",
    "edits",
    "part",
    "plan_file",
    "planning",
    "show_all",
    "spare",
    "store_option",
    "transcript",
    "web",
]

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
_EDIT = re.compile(r"t([1-9][0-9]{0,8})(?:-t?([1-9][0-9]{0,8}))?=([a-z]{1,20})")
"""A change of a decision: ``t12=keep``, ``t12-t20=drop``, ``t12-20=drop``; not ``12=keep``, not ``t0=keep``."""

MOST_TOKENS = 10**9
"""No context has so many tokens; larger numbers are a slip."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _EditType(click.ParamType[Edit]):
    name = "TURN=STRATEGY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Edit:
        if isinstance(value, Edit):
            return value
        match = _EDIT.fullmatch(str(value))
        strategy = next((known for known in STRATEGIES if match and match[3] == known), None)
        if match is None or strategy is None:
            self.fail(
                f"{str(value)[:60]!r}: expected t12=STRATEGY or t12-t20=STRATEGY, one of {', '.join(STRATEGIES)}.",
                param,
                ctx,
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            self.fail(f"{value!r}: the range runs backwards; expected t{last}-t{first}={strategy}.", param, ctx)
        return Edit(first, last, strategy)


class OutputFile(click.Path):
    """A file to be written: its folder is there, and it is none itself; said before any work is done."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        """With `allow_dash`, ``-`` is standard output."""
        super().__init__(dir_okay=False, allow_dash=allow_dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`value` as a path."""
        path = Path(str(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.absolute().parent.is_dir():
            self.fail(f"'{path.parent}': no such folder: make it first.", param, ctx)
        return path


def spare(inputs: dict[str, Path | None], output: Path | None) -> None:
    """Refuse an `output` that is one of the `inputs`, by what each is: it would be lost, and is stored nowhere.

    Raises:
        UsageError: it is.
    """
    for what, path in inputs.items():
        if output and path and output.exists() and output.samefile(path):
            raise click.UsageError(f"-o {output}: is the {what}, which would be lost: give another file.")


def _file(**more: Any) -> click.Path:
    return click.Path(exists=True, dir_okay=False, path_type=Path, **more)


transcript: Decorator = click.argument("transcript", type=_file())
plan_file: Decorator = click.argument("plan_file", metavar="PLAN", type=_file())
part: Decorator = click.option(
    "--part", type=int, metavar="N", help="Of a file with several conversations or a session log: only part N."
)
edits: Decorator = click.option(
    "--set", "edits", type=_EditType(), multiple=True, help="Change a decision; the guards check again."
)
as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
show_all: Decorator = click.option("--all", "show_all", is_flag=True, help="One row a turn; fold nothing.")
store_option: Decorator = click.option(
    "--store", metavar="FILE|URL", help="Where originals live (default: $COMPACTOR_STORE, or your own)."
)
web: Decorator = click.option(
    "--web", is_flag=True, help="Review in a browser on this machine: read, change, save and apply."
)
brief: Decorator = click.option(
    "--brief",
    "brief_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Put the text of FILE (- for standard input) in place of the brief; the guards check each statement.",
)

_PLANNING: tuple[Decorator, ...] = (
    click.option("--task", help="What the agent is to do now (default: the transcript's own)."),
    click.option("--target-tokens", type=click.IntRange(1, MOST_TOKENS), metavar="N", help="How many tokens may stay."),
    click.option(
        "--target-ratio",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="R",
        help="The share of the tokens that may stay (default: 0.25).",
    ),
    click.option("--focus", metavar="TEXT", help="What to keep above all."),
    click.option(
        "--planner",
        type=click.Choice(["auto", "rules", "model"]),
        help="Who plans (default: auto, the model if there is a key, else rules).",
    ),
    click.option("--model", help="The model that plans, or an instructor provider string."),
    click.option("--target-model", metavar="MODEL", help="The model that will read the view: decides token counts."),
    click.option(
        "--prompts",
        "prompts_dir",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="Your own folder of prompts.",
    ),
)


def planning(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options that say how to plan; they arrive under the names that `planned` takes."""
    for option in reversed(_PLANNING):
        command = option(command)
    return command
