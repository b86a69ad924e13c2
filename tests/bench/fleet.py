"""Thousands of transcripts planned in one command: ``python -m tests.bench.fleet FOLDER``.

Makes changed copies of the transcripts in FOLDER (those of at most ``--kilobytes``), plans them on one core and on two,
kills a run halfway and lets it go on; with ``--ray`` also by a stage on a local Ray. All must come to the same rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from applier.fleet import PlanOptions, planned_rows
from applier.processes import program

FOREIGN = 5


def changed_copies(sources: Sequence[Path], folder: Path, count: int) -> None:
    """Write `count` transcripts into `folder`, each one of `sources` with another end, and a few other files."""
    folder.mkdir()
    for number in range(count - FOREIGN):
        transcript = json.loads(sources[number % len(sources)].read_text("utf-8"))
        words = {"role": "user", "content": f"Go on with item {number} of the list, please."}
        transcript["messages"] = [*transcript["messages"][: -1 - number % 3], words]
        (folder / f"{number:05}.json").write_text(json.dumps(transcript), "utf-8")
    for number in range(FOREIGN):
        (folder / f"package{number}.json").write_text(json.dumps({"name": f"foreign-{number}"}))


def _rows(output: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    return sorted(rows, key=lambda row: str(row["path"]))


def _begin(folder: Path, output: Path, cores: int) -> subprocess.Popen[str]:
    command = program("plan", str(folder), "--planner", "rules", "-o", str(output), "--workers", str(cores))
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE)


def _plan(folder: Path, output: Path, cores: int) -> tuple[float, str]:
    started = time.monotonic()
    _, table = _begin(folder, output, cores).communicate()
    return time.monotonic() - started, table


def _kill_halfway(folder: Path, output: Path, cores: int, count: int) -> int:
    """Return the number of rows when the run was killed."""
    run = _begin(folder, output, cores)
    while run.poll() is None and (not output.exists() or output.read_bytes().count(b"\n") < count // 2):
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    return output.read_bytes().count(b"\n")


def _by_ray(folder: Path, cores: int) -> tuple[float, list[dict[str, Any]]]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    started = time.monotonic()
    files = ray.data.from_items([{"path": str(path)} for path in sorted(folder.iterdir())])
    rows = list(planned_rows(files, PlanOptions()).iter_rows())
    seconds = time.monotonic() - started
    ray.shutdown()
    return seconds, sorted(rows, key=lambda row: str(row["path"]))


@click.command
@click.argument("sources", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--files", default=2_000, show_default=True)
@click.option("--kilobytes", default=60, show_default=True)
@click.option("--ray", is_flag=True)
def main(sources: Path, files: int, kilobytes: int, ray: bool) -> None:
    """Print files a second."""
    small = [path for path in sorted(sources.glob("*.json")) if path.stat().st_size <= 1_000 * kilobytes]
    with tempfile.TemporaryDirectory() as place:
        folder, quarter = Path(place, "all"), Path(place, "quarter")
        changed_copies(small, folder, files)
        changed_copies(small, quarter, files // 4)
        size = sum(path.stat().st_size for path in folder.iterdir())
        click.echo(f"{files} files of {len(small)} transcripts, {size / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")
        for cores in (1, 2):
            seconds, _ = _plan(quarter, Path(place, f"quarter{cores}.jsonl"), cores)
            click.echo(f"{cores} cores: {files // 4 / seconds:.1f} files a second ({seconds:.0f} s)")
        seconds, table = _plan(folder, Path(place, "rows.jsonl"), 2)
        click.echo(f"all, 2 cores: {files / seconds:.1f} files a second ({seconds:.0f} s)\n{table}")
        rows = _rows(Path(place, "rows.jsonl"))
        again = Path(place, "again.jsonl")
        stood = _kill_halfway(folder, again, 2, files)
        seconds, _ = _plan(folder, again, 2)
        click.echo(f"killed at {stood}, resumed in {seconds:.0f} s: the same rows: {_rows(again) == rows}")
        seconds, _ = _plan(folder, again, 2)
        click.echo(f"nothing left to plan: {seconds:.1f} s")
        if ray:
            seconds, made = _by_ray(folder, 2)
            click.echo(f"Ray: {files / seconds:.1f} files a second ({seconds:.0f} s), the same rows: {made == rows}")


if __name__ == "__main__":
    main()
