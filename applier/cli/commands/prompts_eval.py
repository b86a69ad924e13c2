"""`compactor prompts eval`: two folders of prompts on the same transcripts, and what only one of them kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from applier.cli.options import as_json
from applier.cli.screen import clean, one_line, plain_table, print_json, progress, screen
from applier.eval.cuts import cuts_of_file, transcript_paths
from applier.eval.evaluation import evaluation_means
from applier.eval.prompt_comparison import (
    DEFAULT_RATIO,
    Difference,
    PromptComparison,
    PromptVariant,
    compare_prompts,
)

__all__ = ["command"]

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(name="eval")
@click.argument(
    "places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--prompts", "folders", metavar="DIR", type=_FOLDER, multiple=True, help="One or two; one: against the packaged."
)
@click.option("--answers", metavar="DIR", type=_FOLDER, multiple=True, help="Recorded answers, one for each --prompts.")
@click.option("--model", help="The planner model to ask.")
@click.option("--ratio", type=click.FloatRange(0, 1, min_open=True), default=DEFAULT_RATIO, show_default=True)
@as_json
def command(
    places: tuple[Path, ...],
    folders: tuple[Path, ...],
    answers: tuple[Path, ...],
    model: str | None,
    ratio: float,
    as_json: bool,
) -> None:
    """Compare two folders of prompts by what they keep.

    TRANSCRIPTS are planned by both at the same target. Below the table stands what only one of them kept: that is
    what to read when editing a prompt.
    """
    first, second = _variants(folders, answers, model)
    cuts = [cut for path in transcript_paths(places) for cut in cuts_of_file(path) if cut.kind == "cut"]
    with progress("planning", len(cuts)) as done:
        comparison = compare_prompts(first, second, cuts, ratio, done)
    if as_json:
        print_json(
            {
                "means": [asdict(mean) for mean in evaluation_means(comparison.rows)],
                "differences": [asdict(difference) for difference in comparison.differences],
            }
        )
    else:
        _print(screen(), comparison)


def _variants(
    folders: Sequence[Path], answers: Sequence[Path], model: str | None
) -> tuple[PromptVariant, PromptVariant]:
    places: list[Path | None] = [None] * (2 - len(folders)) + list(folders)
    recorded: list[Path | None] = [*answers] if answers else [None, None]
    if len(places) != 2 or len(recorded) != 2:
        raise click.UsageError("give at most two --prompts, and --answers for both or for none.")
    first, second = (PromptVariant(place, own, model=model) for place, own in zip(places, recorded, strict=True))
    return first, second


def _print(console: Console, comparison: PromptComparison) -> None:
    table = plain_table("prompts", "cuts", "size", "plain", "context", "failed", "said", right=("cuts",))
    for mean in evaluation_means(comparison.rows):
        shares = (mean.size, mean.plain, mean.in_context, mean.failures_kept, mean.demands_kept)
        table.add_row(mean.method, str(mean.cuts), *(f"{share:.2f}" for share in shares))
    console.print(table)
    for keeper in dict.fromkeys(difference.kept_by for difference in comparison.differences):
        own = [difference for difference in comparison.differences if difference.kept_by == keeper]
        console.print(clean(f"\nonly {keeper} kept:", "bold"))
        for difference in own:
            console.print(clean(_line(difference)), soft_wrap=True)


def _line(difference: Difference) -> str:
    return f"  {difference.cut} {difference.turn_id}: {one_line(difference.what)}: {one_line(difference.line)}"
