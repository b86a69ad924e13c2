"""``python -m applier.evaluation``: recall of methods over transcripts, the eval command without frills."""

from __future__ import annotations

import argparse
from pathlib import Path

from applier.evaluation.labels import read_labels
from applier.evaluation.run import Job, Row, evaluate_files
from applier.evaluation.samples import transcript_paths
from applier.evaluation.summary import summarize


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m applier.evaluation")
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--ratio", action="append", type=float, default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--labels", action="append", type=Path, default=[])
    parser.add_argument("--full", action="store_true", help="validity, restores, payback too")
    parser.add_argument("--lost", action="store_true", help="per cut: what was lost, what stands bare")
    given = parser.parse_args()
    job = Job(
        tuple(given.method or ["rules"]),
        tuple(given.ratio or [0.25, 0.1, 0.04]),
        labels=read_labels(given.labels),
        quick=not given.full,
    )
    rows = evaluate_files(job, transcript_paths(given.places), given.workers)
    for row in rows if given.lost else ():
        _print_lost(row)
    for s in summarize(rows):
        print(
            f"{s.kind:11} {s.method:15} {s.ratio:.2f} cuts {s.cuts:2} size {s.size:.3f} (max {s.largest:.3f})"
            f" plain {s.plain:.3f} context {s.in_context:.3f}"
            f" failures {s.failures_kept:.2f} demands {s.demands_kept:.2f}"
        )
        if s.violations is not None:
            print(
                f"   violations {s.violations} restored {s.restored} first changed {s.first_changed_message}"
                f" payback {s.payback_calls}"
            )
        if s.labelled_failed is not None:
            print(
                f"   labels: failed {s.labelled_failed:.2f} constraints {s.labelled_constraints:.2f}"
                f" answers {s.labelled_answers:.2f}"
            )


def _print_lost(row: Row) -> None:
    recall, survival = row.recall, row.survival
    print(
        f"{row.cut} {row.kind} {row.method} {row.ratio:.2f} size {row.size:.3f} needed {recall.needed}"
        f" plain {recall.plain:.2f} in context {recall.in_context:.2f}"
        f"\n  lost {list(recall.lost)}\n  bare {list(recall.bare)}"
        f"\n  failures {survival.failures}, lost {list(survival.failures_lost)}"
        f"\n  demands {survival.demands}, lost {list(survival.demands_lost)}"
    )
    if row.labelled:
        print(f"  labels lost {list(row.labelled.lost)}")


if __name__ == "__main__":
    main()
