"""`compactor eval --probes`: questions that a model writes, answers from the compacted list, and grades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from applier.bench.probes import ExamMean, ProbeKind, asking, exam_means, hold_exams, load_probes, save_probes
from applier.bench.run import Job
from applier.cli.screen import plain_table, print_json, progress, screen
from planner.plan import Usage

__all__ = ["exam"]


def exam(job: Job, paths: Sequence[Path], probes: Path, *, as_json: bool) -> None:
    """Hold the exams of `job` and print the scores; questions that had to be written are added to `probes`.

    Raises:
        PlannerUnavailable: there is no usable key, or the model does not answer.
    """
    with asking(None, job.model) as (ask, cost), progress("asking", len(paths)) as done:
        rows, known = hold_exams(job, paths, ask, load_probes(probes), done)
    save_probes(known, probes)
    if as_json:
        means = [asdict(mean) for mean in exam_means(rows)]
        print_json({"means": means, "cuts": [asdict(row) for row in rows], "usage": cost.usage.model_dump()})
    else:
        _print(exam_means(rows), cost.usage)


def _print(means: Sequence[ExamMean], usage: Usage) -> None:
    kinds: tuple[ProbeKind, ...] = get_args(ProbeKind)
    table = plain_table("method", "target", "cuts", "size", "score", *kinds, right=("target", "cuts", "size", "score"))
    for mean in means:
        shares = (mean.size, mean.score, *(mean.by_kind.get(kind) for kind in kinds))
        cells = ("" if share is None else f"{share:.2f}" for share in shares)
        table.add_row(mean.method, f"{mean.ratio:.2f}", str(mean.cuts), *cells)
    screen().print(table if means else "no cut of these transcripts is long enough to ask about")
    screen().print(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {usage.requests} requests")
