"""A stage of Ray Data that plans: of each transcript file the row of `plan_row`, on as many machines as Ray has.

Starts no Ray and reads no folder: those are the caller's. Where Ray's machines do not share a disk, it hands in what
the files hold.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from applier.fleet import PlanOptions, Row, plan_row

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["planned_rows"]


def planned_rows(files: Dataset, options: PlanOptions, **resources: Any) -> Dataset:
    """The rows of `files`, a dataset with a column ``path`` and perhaps ``bytes`` (``ray.data.read_binary_files(…,
    include_paths=True)``), in any order; `resources` are those of ``Dataset.map``, such as ``num_cpus``."""
    return files.map(partial(_row, options=options), **resources)


def _row(file: dict[str, Any], options: PlanOptions) -> Row:
    return plan_row(str(file["path"]), options, file.get("bytes"))
