"""A picture of recall against size, as SVG: one line per method, one point per target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from applier.bench.summary import Summary

__all__ = ["recall_picture"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#555555")
"""Told apart also by people who do not see all colours (Okabe and Ito), then round again with dashes."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP, LEGEND = 980, 400, 48, 40, 46, 40, 170
SIZES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Marks of the horizontal axis, which is logarithmic: halving is worth the same everywhere."""


@dataclass(frozen=True)
class _Panel:
    left: float
    title: str
    field: str

    width = (WIDTH - LEFT - GAP - LEGEND) / 2

    def x(self, size: float) -> float:
        share = math.log(min(1.0, max(SIZES[0], size)) / SIZES[0]) / math.log(SIZES[-1] / SIZES[0])
        return self.left + share * self.width

    @staticmethod
    def y(recall: float) -> float:
        return HEIGHT - BOTTOM - recall * (HEIGHT - BOTTOM - TOP)


def recall_picture(means: Sequence[Summary]) -> str:
    """An SVG document of plain recall and recall in context of `means`, cuts of the kind ``cut`` only."""
    shown = [mean for mean in means if mean.kind == "cut"]
    methods = list(dict.fromkeys(mean.method for mean in shown))
    panels = (
        _Panel(LEFT, "plain recall", "plain"),
        _Panel(LEFT + _Panel.width + GAP, "recall in context", "in_context"),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for panel in panels:
        parts += _axes(panel)
        for number, method in enumerate(methods):
            points = [(mean.size, float(getattr(mean, panel.field))) for mean in shown if mean.method == method]
            parts += _line(panel, sorted(points), _style(number))
    for number, method in enumerate(methods):
        y = TOP + 20 * number
        parts.append(f'<path d="M{WIDTH - LEGEND + 14} {y}h22" {_style(number)} fill="none"/>')
        parts.append(f'<text x="{WIDTH - LEGEND + 42}" y="{y + 4}">{escape(method)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _style(number: int) -> str:
    dashes = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"{dashes}'


def _axes(panel: _Panel) -> Iterator[str]:
    bottom, right = panel.y(0), panel.left + panel.width
    yield f'<text x="{panel.left}" y="{TOP - 18}" font-weight="bold">{panel.title}</text>'
    for tenth in range(0, 11, 2):
        y = panel.y(tenth / 10)
        yield f'<path d="M{panel.left} {y:.1f}H{right:.1f}" stroke="#ddd"/>'
        yield f'<text x="{panel.left - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:g}</text>'
    for size in SIZES:
        yield f'<path d="M{panel.x(size):.1f} {bottom}v4" stroke="#888"/>'
        yield f'<text x="{panel.x(size):.1f}" y="{bottom + 18}" text-anchor="middle">{size:g}</text>'
    centre = panel.left + panel.width / 2
    yield f'<text x="{centre:.1f}" y="{bottom + 36}" text-anchor="middle">size, as a share of the tokens</text>'


def _line(panel: _Panel, points: Sequence[tuple[float, float]], style: str) -> Iterator[str]:
    placed = [(panel.x(size), panel.y(recall)) for size, recall in points]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
    yield f'<path d="M{path}" {style} fill="none"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {style} fill="white"/>' for x, y in placed)
