"""``python -m tests.bench COMMAND``: measurements of the project; ``python -m tests.bench --help`` lists them.

Prints only; the measuring is in the modules beside it. What survives of transcripts is `compactor eval`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from applier.adapters.transcripts import read_transcript, transcript_files
from applier.eval.evaluation import read_exams
from applier.eval.methods import RECORDED, FolderPlanner
from applier.session.presets import PRESETS
from planner.model.planners import ModelPlanner
from planner.plan import Planner
from planner.prices import CACHE_READ_PRICES
from planner.rules import RulesPlanner
from tests.bench import (
    clients,
    continuing,
    general,
    learned,
    least_cost,
    looking_up,
    many_facts,
    mod_exam,
    mod_run,
    patterns,
    planned,
    public_suites,
    several_proxies,
    tau2,
    twice,
)
from tests.bench.growth import INPUTS, measure_growth
from tests.bench.peer_costs import PEER_AGENTS
from tests.bench.preset_costs import PresetRun, measure_presets, preset_totals
from tests.bench.readings import SUMMARY, print_exams, print_labels
from tests.bench.rounds import AnsweredRounds, CompactionRounds, compact_in_rounds
from tests.bench.scripted import ScriptedPlanner
from tests.bench.speed import PARTS, measure_speed
from tests.bench.statements import rule_statements, sampled

NAME_CHARACTERS = 20
"""Characters of a transcript's name, from its end, where parts of one session differ."""
PIPE_WIDTH = 160
"""Columns without a terminal, enough for the widest table."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one measurement."""
    options = _parser().parse_args(arguments)
    options.run(Console(width=None if sys.stdout.isatty() else PIPE_WIDTH), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(required=True)
    presets = commands.add_parser("presets", help="replay transcripts through every preset and window")
    presets.add_argument("folder", type=Path)
    presets.add_argument("--preset", action="append", choices=sorted([*PRESETS, *PEER_AGENTS]))
    presets.add_argument("--longest", type=int, default=0, help="of the transcripts; all by default")
    presets.add_argument("--window", action="append", type=int)
    presets.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    presets.add_argument("--replace", action="store_true", help="agents replace their lists by what they got")
    presets.set_defaults(run=_presets)
    rounds = commands.add_parser("rounds", help="ten compactions in a row on the longest transcripts")
    rounds.add_argument("folder", type=Path)
    rounds.add_argument("--longest", type=int, default=5, help="of the transcripts; with --probes of those with exams")
    rounds.add_argument("--rounds", type=int, default=10)
    rounds.add_argument("--probes", type=Path, help="exams to hold on the last view")
    rounds.add_argument("--planner", default="rules", help="rules, model, scripted, or recorded:DIR")
    rounds.set_defaults(run=_rounds)
    exams = commands.add_parser("exams", help="exams beside the agents' own summaries, with the grades of readers")
    exams.add_argument("places", nargs="+", type=Path)
    exams.add_argument("--probes", type=Path, required=True)
    exams.add_argument("--method", action="append")
    exams.add_argument("--ratio", action="append", type=lambda text: SUMMARY if text == "summary" else float(text))
    exams.add_argument("--write-views", type=Path, help="write views for readers there, take up answers and grades")
    exams.add_argument("--look-ups", action="store_true", help="also for readers who may look into the records")
    exams.add_argument("--sheets", type=Path, help="report the grades of the answer sheets there")
    exams.set_defaults(run=_exams)
    labels = commands.add_parser("labels", help="labels made by reading, and the agents' own summaries")
    labels.add_argument("places", nargs="+", type=Path)
    labels.add_argument("--labels", type=Path, required=True)
    labels.add_argument("--method", action="append")
    labels.add_argument("--ratio", action="append", type=float)
    labels.set_defaults(run=_labels)
    statements = commands.add_parser("statements", help="what rules state, beside the record, for a reader to judge")
    statements.add_argument("transcripts", nargs="+", type=Path)
    statements.add_argument("--sample", type=int, default=0, help="so many of them; all by default")
    statements.add_argument("--seed", type=int, default=1)
    statements.set_defaults(run=_statements)
    speed = commands.add_parser("speed", help="time and memory, as ratios to one tiktoken pass over the same text")
    speed.add_argument("--tokens", type=int, default=150_000)
    speed.add_argument("--only", choices=[*PARTS], default="", help="one part")
    speed.set_defaults(run=_speed)
    growth = commands.add_parser("growth", help="seconds and memory at 1, 2, 4 and 8 times of inputs made to hurt")
    growth.add_argument("--only", default="", help="inputs whose names hold this")
    growth.set_defaults(run=_growth)
    general.add_command(commands)
    tau2.add_command(commands)
    twice.add_command(commands)
    least_cost.add_command(commands)
    clients.add_command(commands)
    mod_run.add_command(commands)
    mod_exam.add_command(commands)
    several_proxies.add_command(commands)
    continuing.add_command(commands)
    learned.add_command(commands)
    looking_up.add_command(commands)
    many_facts.add_command(commands)
    patterns.add_command(commands)
    planned.add_command(commands)
    public_suites.add_commands(commands)
    return parser


def _transcripts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"), key=lambda path: path.stat().st_size)


def _presets(console: Console, options: argparse.Namespace) -> None:
    names, windows = options.preset or list(PRESETS), options.window or [32_000, 200_000]
    paths = _transcripts(options.folder)[-options.longest :]
    rows = measure_presets(paths, names, windows, replace=options.replace, processes=options.processes)
    count = len(paths) * len(names) * len(windows)
    console.print(_preset_table(track(rows, "replaying", count, console=console, transient=True)))


def _preset_table(rows: Iterable[PresetRun]) -> Table:
    table = Table(
        title="Input cost in millions of uncached input tokens, at three cache-read prices",
        caption="names: of those the agent's messages take from before them, how many stood in what was sent; "
        "too long: transcripts with a prompt over the window",
    )
    table.add_column("window")
    table.add_column("preset", no_wrap=True)
    prices = [f"cost at {price:g}" for price in CACHE_READ_PRICES]
    for name in ("calls", "compactions", "sent", "invalidated", *prices, "names", "too long", "invalid", "lost"):
        table.add_column(name, justify="right")
    for total in preset_totals(rows):
        table.add_row(
            f"{total.window_tokens:,}",
            total.preset,
            *(f"{total.sum(name):,}" for name in ("calls", "compactions", "sent_tokens", "invalidated_tokens")),
            *(f"{cost / 1e6:.2f}" for cost in total.costs),
            f"{total.sum('met') / max(1, total.sum('needed')):.1%}",
            str(total.exceeded_transcripts),
            *(f"{total.sum(name)}" for name in ("violations", "unrestorable")),
        )
    return table


def _rounds(console: Console, options: argparse.Namespace) -> None:
    table = Table(title="After each compaction: tokens, and lines of the earliest turns that still stand")
    for name in ("transcript", "round", "history", "sent", "planner read", "demands", "failures", "exam"):
        table.add_column(name, justify="left" if name == "transcript" else "right")
    exams = {exam.transcript: exam for exam in (read_exams([options.probes]) if options.probes else ())}
    paths = [path for path in _transcripts(options.folder)[::-1] if not exams or path.stem in exams]
    for path in track(paths[: options.longest], "compacting", console=console, transient=True):
        transcript = read_transcript(path)
        run = compact_in_rounds(
            transcript.messages,
            transcript.task,
            _planner(options.planner, path.stem),
            rounds=options.rounds,
            exam=exams.get(path.stem),
            from_scratch=_planner(options.planner, path.stem, from_scratch=True),
        )
        _add_rounds(table, path.stem[-NAME_CHARACTERS:], run)
    console.print(table)


def _planner(name: str, transcript: str, *, from_scratch: bool = False) -> Planner:
    if name.startswith(RECORDED):
        folder = Path(name.removeprefix(RECORDED))
        return FolderPlanner(folder, f"{transcript}@scratch") if from_scratch else AnsweredRounds(folder, transcript)
    if name == "scripted":
        return ScriptedPlanner()
    return ModelPlanner() if name == "model" else RulesPlanner()


def _add_rounds(table: Table, name: str, run: CompactionRounds) -> None:
    for number, after in enumerate(run.rounds, 1):
        kept = ("{}/{}".format(*pair) for pair in (after.demands, after.failures))
        tokens = (f"{count:,}" for count in (after.history_tokens, after.sent_tokens, after.planner_input_tokens))
        score = run.exam_score if number == len(run.rounds) else None
        exam = "" if score is None else f"{score:.2f}"
        table.add_row(name if number == 1 else "", str(number), *tokens, *kept, exam)
    scratch = "" if run.exam_score_from_scratch is None else f"from scratch {run.exam_score_from_scratch:.2f}"
    read = f"{run.planner_input_ratio:.0%} of it"
    table.add_row("", "", "", "", read, f"{run.unplanned} unplanned", "", scratch, end_section=True)


def _exams(console: Console, options: argparse.Namespace) -> None:
    methods, targets = options.method or ["rules"], options.ratio or [SUMMARY, 0.1]
    places, rounds = (options.places, options.probes), (options.write_views, options.sheets)
    print_exams(console, *places, methods, targets, *rounds, look_ups=options.look_ups)


def _labels(console: Console, options: argparse.Namespace) -> None:
    print_labels(console, options.places, options.labels, options.method or ["rules"], options.ratio or [0.25, 0.1])


def _statements(console: Console, options: argparse.Namespace) -> None:
    every = [statement for path in transcript_files(options.transcripts) for statement in rule_statements(path)]
    for statement in sampled(every, options.sample or len(every), options.seed):
        console.print(str(statement), highlight=False, markup=False, soft_wrap=True)


def _speed(console: Console, options: argparse.Namespace) -> None:
    """Print each row as it is measured, since the longest take minutes; fail if a limit is passed."""
    over = 0
    for timing in measure_speed(options.tokens, options.only):
        over += timing.is_over
        limit = "" if timing.limit is None else f"  (at most {timing.limit:g})"
        limit += ", passed" if timing.is_over else ""
        console.print(f"{timing.value:>9.3g} {timing.unit:<12} {timing.what}{limit}", highlight=False, soft_wrap=True)
    if over:
        sys.exit(f"{over} limits are passed")


def _growth(console: Console, options: argparse.Namespace) -> None:
    """Print a line for each input: megabytes, seconds, their ratios to the first, and the peak."""
    names = [name for name in INPUTS if options.only in name]
    for growth in measure_growth(names):
        sizes = " ".join(f"{size / 1e6:.2f}" for size in growth.sizes)
        seconds = " ".join(f"{taken:.2f}" for taken in growth.seconds)
        ratios = " ".join(f"{ratio:.1f}" for ratio in growth.ratios)
        beside = " ".join(f"{peak / size:.1f}" for peak, size in zip(growth.peaks, growth.sizes, strict=True))
        row = f"{growth.name}: {sizes} MB in {seconds} s, ratios {ratios}; peak {beside} times the input"
        console.print(row, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
