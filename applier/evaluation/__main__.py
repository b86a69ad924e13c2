"""``python -m applier.evaluation``: recall of methods over transcripts, the eval command without frills."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from functools import partial
from pathlib import Path

from applier.evaluation.compactor import compact_by
from applier.evaluation.plain_methods import PLAIN_METHODS, Method
from applier.evaluation.run import evaluate_files, summarize
from applier.evaluation.transcripts import transcript_paths


def _method(name: str) -> Method:
    if name in PLAIN_METHODS:
        return PLAIN_METHODS[name]
    if ":" in name:
        module, function = name.split(":")
        found: Method = getattr(importlib.import_module(module), function)
        return found
    return partial(compact_by, planner=name)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m applier.evaluation")
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--ratio", action="append", type=float, default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lost", action="store_true", help="per cut: what was lost, what stands bare")
    given = parser.parse_args()
    started = time.monotonic()
    methods = {name: _method(name) for name in given.method or ["rules"]}
    rows = evaluate_files(
        methods, transcript_paths(given.places), given.ratio or [0.25, 0.1, 0.04], given.workers
    )
    if given.lost:
        for row in rows:
            r = row.recall
            print(
                f"{row.cut} {row.method} {row.ratio} size {row.size:.3f} needed {r.needed}"
                f" plain {r.plain:.2f} in context {r.in_context:.2f}"
                f"\n  lost {list(r.lost)}\n  bare {list(r.bare)}"
            )
    for s in summarize(rows):
        print(
            f"{s.method:24} {s.ratio:5.2f}  cuts {s.cuts:3}  size {s.size:.3f} (max {s.largest:.3f})"
            f"  plain {s.plain:.3f}  in context {s.in_context:.3f}"
        )
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
