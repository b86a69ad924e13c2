"""`compactor watch` and `eval`: show what compaction does to recorded conversations.

`watch` replays a conversation call by call, and shows each compaction and its cost. `eval` lets methods of compaction
compact conversations to several sizes, and measures how much of what the agent needed later they keep: by the names
that it used again, or by exams (questions with answers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, get_args

import click

from applier.adapters.transcripts import transcript_files
from applier.cli import options
from applier.cli.files import read_file
from applier.cli.screen import clean, echo, print_json, print_table, progress, screen, show_page
from applier.eval import evaluation
from applier.eval.methods import METHODS
from applier.eval.replay import Replay, replay
from applier.session.events import Event
from applier.session.presets import PRESETS, preset_named
from applier.settings import load_settings
from applier.store.opening import temporary_store
from planner.errors import SettingsError, TranscriptError
from planner.prices import CACHE_READ_PRICES, WRITE_5_MINUTES, cached_prompt, dollars, money, switch_money
from planner.reading.lines import one_line
from planner.settings import PlannerName

HEIGHT = 8
"""Number of terminal lines for the curve that shows the size of each prompt."""
BLOCKS = " ▁▂▃▄▅▆▇█"
"""Characters of the curve, from an empty to a full one: a line of the curve shows eight steps."""
CALL_FIELDS = ("history_tokens", "sent_tokens", "cached_tokens", "invalidated_tokens", "level")
"""Fields of a replayed call that ``--json`` and the page in the browser show."""


@click.command
@options.transcript
@click.option(
    "--preset",
    "presets",
    type=click.Choice([*PRESETS, "all"]),
    multiple=True,
    help="Preset; several, or `all`, are compared (default: $COMPACTOR_PRESET, the project's, or relevance).",
)
@click.option(
    "--window",
    type=click.IntRange(2_000),
    help="Window in tokens (default: $COMPACTOR_WINDOW_TOKENS, the project's, or 200,000).",
)
@click.option("--task", help="Task of the agent (default: the transcript's own).")
@click.option("--model", default="", help="Model of the agent; decides counts, thinking and prices.")
@click.option("--planner", type=click.Choice(get_args(PlannerName)), default="rules", show_default=True)
@options.part
@options.as_json
@click.option(
    "--web",
    is_flag=True,
    help="Show it in a browser on this machine: prompt sizes, compactions, restored content and cost.",
)
def watch_command(
    transcript: Path,
    presets: tuple[str, ...],
    window: int | None,
    task: str | None,
    model: str,
    planner: Any,
    part: int | None,
    as_json: bool,
    web: bool,
) -> None:
    """Replay a recorded conversation call by call, with compactions.

    Shows the size of each prompt and each compaction. No agent model is called, and nothing is stored.
    """
    if web and as_json:
        raise click.UsageError("--json and --web exclude each other: use one.")
    conversation = read_file(transcript, part)
    if not any(message["role"] == "assistant" for message in conversation.messages[1:]):
        raise TranscriptError(f"{transcript}: contains no answer of an agent, so there is no call to replay")
    task = task or conversation.task
    settings = load_settings(background=False, window_tokens=window)
    names = tuple(PRESETS) if "all" in presets else presets or (preset_named(settings.preset).name,)
    options_of_all = {"task": task, "model": model, "planner": planner, "settings": settings}
    options_of_all["system"] = conversation.system
    runs = []
    with progress("replaying", len(names)) as step:
        for name in names:
            with temporary_store() as store:
                runs.append(replay(conversation.messages, name, settings.window_tokens, store=store, **options_of_all))
            step()
    data = [_run_data(run, model) for run in runs]
    if web:
        show_page(options.import_extra("applier.web", "web").PageServer({"task": task, "runs": data}))
    elif as_json:
        print_json(data)
    elif len(runs) == 1:
        _print_one(runs[0], model)
    else:
        _print_comparison(runs, model)


def _print_one(run: Replay, model: str) -> None:
    """Print the result of a replay: a curve of the sizes of all prompts, a table of the compactions, and sums. `model`:
    the agent's model, for its prices."""
    sent = [call.sent_tokens for call in run.calls]
    top = max([call.limit_tokens for call in run.calls[-1:]] + sent, default=1)
    for index, line in enumerate(curve_lines(sent, screen().width - 10, HEIGHT, top)):  # 10 columns for the numbers
        echo(f"{top * (HEIGHT - index) // HEIGHT:>9,} {line}")
    echo(f"tokens sent in each of {len(sent)} calls; limit of a prompt: {top:,}\n")
    numbers = ("before", "after", "from", "invalidated")
    titles = ("call", "tier", "why", *numbers, "")
    print_table(titles, starmap(_compaction_cells, _compactions(run)), right=("call", *numbers), empty="no compaction")
    echo("")
    for line in _sum_lines(run, model):
        screen().print(line)


def curve_lines(values: Sequence[int], width: int, height: int, top: int) -> list[str]:
    """Draw `values` as a bar chart of `height` lines of block characters, at most `width` columns wide. A bar of the
    value `top` has full height. If there are more values than columns, a column shows the largest of several."""
    count = min(len(values), width)
    edges = [index * len(values) // count for index in range(count + 1)] if count else [0]
    columns = [max(values[first:last]) for first, last in pairwise(edges)]
    # heights of the bars in eighths of a line
    eighths = [min(height * 8, round(value / max(1, top) * height * 8)) for value in columns]
    return [
        "".join(BLOCKS[max(0, min(8, level - 8 * row))] for level in eighths).rstrip()
        for row in reversed(range(height))
    ]


def _compaction_cells(number: int, event: Event) -> Sequence[str]:
    """Return the cells of the row for a compaction (`event`) in the call with this `number`."""
    counts = (event.tokens_before, event.tokens_after, event.first_changed_message, event.invalidated_tokens)
    cells = ("" if n is None else f"{n:,}" for n in counts)
    return str(number), event.tier, event.trigger, *cells, switch_money(event.dollars)


def _compactions(run: Replay) -> Iterator[tuple[int, Event]]:
    """Yield the number of the call, from 1, and the event of each compaction in a replay."""
    for number, call in enumerate(run.calls, 1):
        yield from ((number, event) for event in call.events if event in run.compactions)


def _sum_lines(run: Replay, model: str) -> Iterator[str]:
    """Yield the lines with the sums of a replay: tokens and costs with and without compaction, and problems."""
    history = sum(call.history_tokens for call in run.calls)
    sent, without = _bill(run, model)
    yield (
        f"{run.preset}: {len(run.compactions)} compactions, {run.sent_tokens:,} tokens sent "
        f"({history:,} without), {run.invalidated_tokens:,} cached tokens invalidated, peak {run.peak_tokens:,}"
    )
    prices = ", ".join(f"{run.cost(price):,.0f} at {price:g}" for price in CACHE_READ_PRICES)
    yield f"input cost in uncached tokens, by the price of a cache read: {prices}"
    if sent:
        yield f"input with {model}: {money(sent)}, {money(without)} without compaction"
    yield f"{len(run.violations)} invalid lists, {run.exceeded} over the window, {len(run.unrestorable)} unrestorable"
    yield from run.violations
    yield from run.unrestorable


def _print_comparison(runs: Sequence[Replay], model: str) -> None:
    """Print a table with a row for each replay. Columns that contain only 0 are listed below it, to save width."""
    rows = [_comparison_row(run, model) for run in runs]
    zeros = [title for title in rows[0] if all(row[title] == "0" for row in rows)]
    titles = [title for title in rows[0] if title not in zeros]
    cells = ([row[title] for title in titles] for row in rows)
    print_table(titles, cells, right=titles[1:], whole=("preset", "input"))
    echo("tokens and costs in thousands" + (f"; 0 in all rows: {', '.join(zeros)}" if zeros else ""))


def _comparison_row(run: Replay, model: str) -> dict[str, str]:
    """Return the cells of the row for a replay, by the titles of their columns. Tokens and costs are in thousands."""
    tokens = {"sent": run.sent_tokens, "invalidated": run.invalidated_tokens, "peak": run.peak_tokens}
    costs = {f"at {price:g}": run.cost(price) for price in CACHE_READ_PRICES}
    problems = {"over": run.exceeded, "invalid": len(run.violations), "lost": len(run.unrestorable)}
    bill = money(_bill(run, model)[0])
    return {
        "preset": run.preset,
        "times": str(len(run.compactions)),
        **{title: f"{number / 1000:,.0f}" for title, number in (tokens | costs).items()},
        **{title: str(count) for title, count in problems.items()},
        **({"input": bill} if bill else {}),
    }


def _run_data(run: Replay, model: str) -> dict[str, Any]:
    """Return a replay as JSON data. Its ``cost`` is in uncached tokens, for several prices of a cached token."""
    bill = _bill(run, model)
    return {
        "preset": run.preset,
        "window_tokens": run.window_tokens,
        "limit_tokens": run.calls[-1].limit_tokens if run.calls else run.window_tokens,
        "calls": [{name: getattr(call, name) for name in CALL_FIELDS} for call in run.calls],
        "compactions": [
            {"call": at, **event.as_json(), "money": switch_money(event.dollars)} for at, event in _compactions(run)
        ],
        "cost": {str(price): run.cost(price) for price in CACHE_READ_PRICES},
        "cost_without": {
            str(price): sum(price * cached + WRITE_5_MINUTES * new for cached, new in _uncompacted(run))
            for price in CACHE_READ_PRICES
        },
        "dollars": bill[0],
        "dollars_without": bill[1],
        "money": [*map(money, bill)],
        "violations": run.violations,
        "exceeded": run.exceeded,
        "unrestorable": list(run.unrestorable),
    }


def _uncompacted(run: Replay) -> Iterator[tuple[int, int]]:
    """Yield for each call of a replay the number of cached and of new tokens that its prompt would have without
    compaction: then each prompt begins with the one before."""
    sizes = [0, *(call.history_tokens for call in run.calls)]
    return ((before, max(0, now - before)) for before, now in pairwise(sizes))


def _bill(run: Replay, model: str) -> tuple[float | None, float | None]:
    """Return the dollars for all prompts of a replay, with and without compaction; None if prices are unknown."""
    sent = (cached_prompt(call.cached_tokens, call.sent_tokens - call.cached_tokens) for call in run.calls)
    without = (cached_prompt(cached, new) for cached, new in _uncompacted(run))
    return dollars(model, *sent), dollars(model, *without)


COLUMNS = {
    "method": "method",
    "target": "ratio",
    "cuts": "cuts",
    "size": "size",
    "plain": "plain",
    "context": "in_context",
    "failed": "failures_kept",
    "demands": "demands_kept",
    "invalid": "violations",
    "payback": "payback_calls",
}
"""Fields of `EvaluationMean` that the table of results shows, by the titles of their columns."""

_NOTHING_MEASURED = (
    f"nothing measured: a cut needs {evaluation.LEAST_PREFIX_TOKENS:,} tokens before it, and after it "
    f"{evaluation.LEAST_NEEDS} names from before that the agent uses again; or recorded answers are missing"
)
_EXISTING = click.Path(exists=True, path_type=Path)


@click.command
@click.argument("places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=_EXISTING)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=["rules"],
    show_default=True,
    help=f"Method to measure; repeatable: {', '.join(METHODS)}, prompts:DIR, recorded:DIR, or module:function.",
)
@click.option(
    "--ratio",
    "ratios",
    type=options.SHARE,
    multiple=True,
    help="Target sizes, as shares of the tokens (default: .25, .1, .04; with --probes .1).",
)
@click.option("--model", help="Planner model of the methods `model` and `prompts:DIR`.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of processes.")
@click.option("--lost", is_flag=True, help="Also list what each cut lost.")
@click.option(
    "--probes",
    metavar="FILE|DIR",
    type=_EXISTING,
    help="Exams to run instead: questions about the transcripts, as JSON (see docs/evaluation.md).",
)
@options.as_json
def eval_command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    ratios: tuple[float, ...],
    model: str | None,
    workers: int,
    lost: bool,
    probes: Path | None,
    as_json: bool,
) -> None:
    """Measure how much of what an agent needed later is kept by a compaction.

    Each of TRANSCRIPTS (files, or folders of them) is cut, and the part before the cut is compacted. Plain recall is
    the share of names the agent wrote after the cut that the result contains. Recall in context also needs half of the
    words around them. The method never sees the part after the cut.
    """
    paths = transcript_files(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: contains no transcripts (.json, .jsonl)")
    if probes:
        views = _exam_views(probes, paths, methods, ratios or (0.10,), model)
        _print_exams(views, lost=lost, as_json=as_json)
        return
    with progress("measuring", len(paths)) as step:
        rows, problems = evaluation.evaluate_files(
            paths, methods, ratios or (0.25, 0.10, 0.04), model=model, workers=workers, done=step
        )
    if problems and not rows:
        raise TranscriptError(problems[0])
    means = evaluation.evaluation_means(rows)
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
    else:
        for row in rows if lost else ():
            _print_losses(row)
        table = [{title: getattr(mean, name) for title, name in COLUMNS.items()} for mean in means]
        _print_rows(table, _NOTHING_MEASURED)
    if problems:
        raise TranscriptError(f"not measured: {'; '.join(problems)}")


def _print_rows(rows: Sequence[Mapping[str, str | float | None]], empty: str = "") -> None:
    """Print `rows` as a table with their keys as titles, without empty columns. `empty`: text if there are no rows."""
    titles = [title for title in (rows[0] if rows else ()) if any(row[title] is not None for row in rows)]
    print_table(titles, ([_cell(row[title]) for title in titles] for row in rows), right=titles[1:], empty=empty)


def _cell(value: str | float | None) -> str:
    """Return `value` as a cell of a table: a float with two digits, None as an empty text."""
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_losses(row: evaluation.EvaluationRow) -> None:
    """Print the names, failures and demands that a compacted list does not contain."""
    losses = (row.recall.lost, row.recall.bare, row.survival.failures_lost, row.survival.demands_lost)
    titled = zip(("lost", "bare", "failed", "demands"), losses, strict=True)
    lines = (f"{title}: {what}" for title, lost in titled for what in lost)
    _print_list(f"{row.cut} {row.method} {row.ratio:.2f}", lines)


def _print_list(title: str, lines: Iterable[str]) -> None:
    """Print a bold title, and below it `lines`, indented."""
    screen().print(clean(title, "bold"), soft_wrap=True)
    for line in lines:
        echo(f"  {one_line(line)}")


def _exam_views(
    probes: Path, paths: Sequence[Path], methods: Sequence[str], ratios: Sequence[float], model: str | None
) -> list[evaluation.ExamView]:
    """Let each of the `methods` compact the transcripts `paths` to each target size in `ratios`, and return the
    compacted texts. `probes`: file or folder of the exams (questions about these transcripts). `model`: model that a
    method asks, if it asks one. Raise SettingsError if a method has no recorded answers."""
    exams = evaluation.read_exams([probes])
    views: list[evaluation.ExamView] = []
    with progress("holding exams", len(exams)) as step:
        for sample in evaluation.exam_samples(exams, paths):
            views += evaluation.exam_views(sample, methods, ratios, model)
            step()
    missing = [name for name in methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: no recorded answers: answer the prompts written to that folder")
    return views


def _print_exams(views: Sequence[evaluation.ExamView], *, lost: bool, as_json: bool) -> None:
    """Print the mean exam scores of compacted transcripts (`views`); if `lost`, also the failed questions."""
    means = evaluation.exam_means([(view, view.scores) for view in views])
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "views": [_exam_data(view) for view in views]})
        return
    for view in views if lost else ():
        answered = len(view.exam.questions) - len(view.lost)
        counts = f"{answered}/{len(view.exam.questions)} at {view.size:.3f}"
        lines = (f"{question.number} {question.kind}: {question.text} -> {question.answer}" for question in view.lost)
        _print_list(f"{view.exam.transcript} {view.method} {_cell(view.ratio)}: {counts}", lines)
    _print_rows([_score_row(mean) for mean in means])


def _exam_data(view: evaluation.ExamView) -> dict[str, object]:
    """Return data on a compacted text for ``--json``, with the numbers of the questions that it does not answer."""
    names = {"transcript": view.exam.transcript, "method": view.method, "target": view.ratio, "size": view.size}
    return {**names, "sha": view.sha, "lost": [question.number for question in view.lost]}


def _score_row(mean: evaluation.ExamMean) -> dict[str, Any]:
    """Return the row of mean scores in the table of an exam, by the titles of its columns."""
    numbers = {"exams": mean.exams, "size": f"{mean.size:.3f}", "score": mean.score}
    kinds: dict[str, Any] = {kind: mean.by_kind.get(kind) for kind in evaluation.QUESTION_KINDS}
    return {"method": mean.method, "target": mean.ratio, **numbers, **kinds}
