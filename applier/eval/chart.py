"""A chart of recall against size: one line per method, one point per target. Needs matplotlib (extra ``eval``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from applier.eval.evaluation import EvaluationMean
from planner.errors import SettingsError

__all__ = ["draw_recall"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#555555")
"""Told apart also by people who do not see all colours (Okabe and Ito), then round again with dashes."""
SIZES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Marks of the horizontal axis, which is logarithmic: halving is worth the same everywhere."""
PANELS = {"plain recall": "plain", "recall in context": "in_context"}
"""Titles, each with the field of `EvaluationMean` behind it."""


def draw_recall(means: Sequence[EvaluationMean], path: Path) -> None:
    """Draw `means` of cuts of the kind ``cut`` into `path`, in the format its suffix names: ``.svg``, ``.png`` and on.

    Raises:
        SettingsError: matplotlib is not installed, or does not know the format.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingsError(f"a chart needs matplotlib: pip install 'relevance-compactor[eval]' ({error})") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    if path.suffix.removeprefix(".") not in figure.canvas.get_supported_filetypes():
        raise SettingsError(f"{path}: no known format of a picture: name it .svg or .png")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (title, field) in zip(axes, PANELS.items(), strict=True):
        _draw(axis, title, field, [mean for mean in means if mean.kind == "cut"])
    axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    # The same means give the same bytes: no date, no random ids; text stays text.
    with rc_context({"svg.hashsalt": "recall", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(axis: Any, title: str, field: str, means: Sequence[EvaluationMean]) -> None:
    for number, method in enumerate(dict.fromkeys(mean.method for mean in means)):
        points = sorted((mean.size, getattr(mean, field)) for mean in means if mean.method == method)
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": "--" if number >= len(COLOURS) else "-"}
        axis.plot(*zip(*points, strict=True), label=method, marker="o", markersize=4, **style)
    axis.set(
        title=title, xscale="log", xlim=(SIZES[0], SIZES[-1]), ylim=(0, 1), xlabel="size, as a share of the tokens"
    )
    axis.set_xticks(SIZES, [f"{size:g}" for size in SIZES])
    axis.minorticks_off()
    axis.grid(axis="y", color="#dddddd")
