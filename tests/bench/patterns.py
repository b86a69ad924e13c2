"""``python -m tests.bench patterns``: what patterns, tables and numbers of the planner change, and how patterns grow.

With transcripts each is made neutral in turn: a pattern matches nothing, a table is empty, a number is doubled. A row
counts the turns whose evidence changes, the views that change, and the exam answers won or lost; what changes nothing
may go. With ``--linear`` each pattern of both packages is attacked by hostile texts, and the command fails if one takes
more than 2.3 times the work for twice the text: in steps, and in the processor's time up to 64,000 characters.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from applier.adapters.transcripts import transcript_files
from tests.bench.ablation import Ablation, ablations
from tests.bench.linear_patterns import SCREENING_STEPS, Growth, count_growth, time_growth
from tests.bench.pattern_sites import PatternSite, pattern_sites

SIZES = (16_000, 32_000, 64_000)
"""Characters of the timed attacks."""


def superlinear(
    sites: Iterable[PatternSite], screening_steps: int = SCREENING_STEPS, sizes: Sequence[int] = ()
) -> Iterator[Growth]:
    """Yield the growth of patterns that take more than linear steps, or time at `sizes`, under their worst attack."""
    for site in sites:
        growth = count_growth(site, screening_steps)
        if growth.is_linear and sizes:
            growth = time_growth(site, growth.attack, sizes)
        if not growth.is_linear:
            yield growth


def add_command(commands: Any) -> None:
    """Add `patterns` to the commands of ``python -m tests.bench``."""
    parser = commands.add_parser("patterns", help="what patterns, tables and numbers change, and how patterns grow")
    parser.add_argument("transcripts", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="those whose file begins so, as planner/evidence")
    parser.add_argument("--linear", action="store_true", help="attack the patterns instead")
    parser.add_argument("--probes", type=Path, help="exams of the transcripts")
    parser.add_argument("--ratio", type=float, default=0.1)
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    if options.linear:
        _print_linear(console, options.only)
        return
    paths = transcript_files(options.transcripts)
    for row in ablations(paths, options.only, options.ratio, options.probes):
        console.print(_line(row), highlight=False, markup=False, soft_wrap=True)


def _line(row: Ablation) -> str:
    answers = f", answers {row.answers:+d}" if row.answers else ""
    changed = f"turns {row.turns}, views {row.views}{answers}"
    return f"{row.where}: {row.error or (changed if row.turns or row.views else 'changes nothing')}"


def _print_linear(console: Console, only: str) -> None:
    """Print the patterns that grow too much; exit with 1 if there are any."""
    found = 0
    for growth in superlinear((site for site in pattern_sites() if site.where.startswith(only)), sizes=SIZES):
        found += 1
        attack = growth.attack
        work = ", ".join("stopped" if one == math.inf else f"{one:.3g}" for one in growth.work)
        parts = " ".join(map(ascii, (attack.prefix, attack.unit, attack.end)))
        console.print(f"{growth.site.where}: {work} for {parts}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{found} patterns take more than linear time")
    if found:
        sys.exit(1)
