"""Compares plans of the shared transcripts before and after a change: ``python -m tests.compare_plans save FILE``, then
``diff``.

``save`` plans each transcript by rules at three ratios and stores the result for every turn. ``diff OLD NEW`` lists the
differences by class, with counts, and exits with 0 if there are none; ``--show CLASS`` prints examples. A FILE contains
the transcripts' text, so it must be outside the tree.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click

from applier import preview
from planner import CompactionPlan, plan_compaction
from tests.conftest import SHARED

ROOT = Path(__file__).resolve().parent.parent
RATIOS = (0.05, 0.1, 0.25)
PROCESSES = 2
CLASSES = {
    "plan": "transcripts, or plans of one, that are in one file alone",
    "turns": "the history was read as other turns",
    "tokens": "a turn counts otherwise",
    "strategy": "a turn's strategy",
    "failed": "a turn's mark as a failed approach",
    "entry": "what stands for a turn, the strategy being the same",
    "score": "a turn's score or reason",
    "brief": "statements of the brief, by heading",
    "fact": "facts",
    "finding": "findings, by code and turn",
    "size": "tokens of the view",
    "view": "the view's text",
}


class Difference(NamedTuple):
    """Difference between two plans."""

    kind: str
    what: str
    """Kind of the difference; equal kinds are counted together: ``summarize to drop``, ``added``."""
    place: str
    before: str
    after: str


def planned(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the plans of the transcript in `path`, by ratio."""
    whole = json.loads(path.read_text("utf-8"))
    made = {}
    for ratio in RATIOS:
        begun = time.perf_counter()
        plan = plan_compaction(whole["messages"], whole["task"], target_ratio=ratio, planner="rules", now=0.0)
        made[str(ratio)] = {**as_data(plan), "seconds": round(time.perf_counter() - begun, 3)}
    return path.stem, made


def as_data(plan: CompactionPlan) -> dict[str, Any]:
    """Return all parts of a plan that a reader of its view sees, as JSON."""
    shown = preview(plan)
    data = json.loads(shown.plan.to_json())
    entries = shown.plan.bound.layout.entries
    turns = {turn["turn_id"]: {**turn, "entry": entries.get(turn["turn_id"], "")} for turn in data["turns"]}
    return {
        "tokens": shown.tokens_after,
        "turns": turns,
        "brief": statements(data["brief"]),
        "facts": [[fact["type"], fact["source"], fact["content"], fact["quote"]] for fact in data["extracted_facts"]],
        "findings": data["findings"],
        "view": json.dumps(shown.messages, ensure_ascii=False, indent=1),
    }


def statements(brief: str) -> list[str]:
    """Return each statement of a brief with its heading."""
    heading, found = "", []
    for line in brief.splitlines():
        if line.startswith("- "):
            found.append(f"{heading} {line}")
        elif line.strip():
            heading = line
    return found


def compared(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Difference]:
    """Yield the differences between two files of `save`."""
    plans = [{f"{name} @{ratio}": plan for name in side for ratio, plan in side[name].items()} for side in (old, new)]
    for place in sorted({*plans[0], *plans[1]}):
        before, after = (side.get(place) for side in plans)
        if before is None or after is None:
            yield Difference("plan", f"only in the {'new' if before is None else 'old'} file", place, "", "")
        else:
            yield from _compared_plans(place, before, after)


def _compared_plans(place: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    if [*before["turns"]] != [*after["turns"]]:
        yield Difference("turns", "other turns", place, str(len(before["turns"])), str(len(after["turns"])))
    for turn_id, turn in before["turns"].items():
        if turn_id in after["turns"]:
            yield from _compared_turns(f"{place} {turn_id}", turn, after["turns"][turn_id])
    listed = [
        difference
        for kind, name in (("brief", "brief"), ("fact", "facts"), ("finding", "findings"))
        for difference in _compared_lists(kind, place, *(Counter(map(_line, side[name])) for side in (before, after)))
    ]
    yield from listed
    if before["findings"] != after["findings"] and all(difference.kind != "finding" for difference in listed):
        texts = ("\n".join(map(str, side["findings"])) for side in (before, after))
        yield Difference("finding", "worded otherwise", place, *texts)
    sizes = before["tokens"], after["tokens"]
    if sizes[0] != sizes[1]:
        yield Difference("size", "larger" if sizes[0] < sizes[1] else "smaller", place, *map(str, sizes))
    if before["view"] != after["view"]:
        yield Difference("view", "other text", place, before["view"], after["view"])


def _compared_turns(place: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    was, now = before["strategy"], after["strategy"]
    if before["tokens_before"] != after["tokens_before"]:
        yield Difference("tokens", "of the turn", place, str(before["tokens_before"]), str(after["tokens_before"]))
    if was != now:
        yield Difference("strategy", f"{was} to {now}", place, _said(before), _said(after))
    elif _said(before) != _said(after):
        yield Difference("entry", was, place, _said(before), _said(after))
    if before["failed_approach"] != after["failed_approach"]:
        what = "no longer" if before["failed_approach"] else "now"
        yield Difference("failed", what, place, before["entry"], after["entry"])
    opinions = [f"{turn['relevance_score']} {turn['reason']}" for turn in (before, after)]
    if opinions[0] != opinions[1]:
        yield Difference("score", "score or reason", place, *opinions)


def _said(turn: dict[str, Any]) -> str:
    """Return the text left for a turn, and its source."""
    lines = ", ".join(f"{first}-{last}" for first, last in turn["excerpts"])
    return "\n".join(filter(None, (turn["entry"], turn["summary"] and f"summary: {turn['summary']}", lines)))


def _line(item: Any) -> str:
    """Return a statement, a fact or a finding as one line; of a finding without numbers."""
    if isinstance(item, dict):
        return f"{item['code']} {item['turn_id']}".strip()
    return item if isinstance(item, str) else " ".join(filter(None, item))


def _compared_lists(kind: str, place: str, before: Counter[str], after: Counter[str]) -> Iterator[Difference]:
    for what, lines in (("removed", before - after), ("added", after - before)):
        for line in lines.elements():
            group = f"{what}, {line.split()[0]}"
            yield Difference(kind, group, place, *((line, "") if what == "removed" else ("", line)))


@click.group
def command() -> None:
    """Plans of the shared transcripts, before and after a change."""


@command.command
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=SHARED, help="Of transcripts.")
def save(file: Path, folder: Path) -> None:
    """Plan every transcript and write the results to FILE."""
    if file.resolve().is_relative_to(ROOT):
        raise click.UsageError(f"{file} is in the tree; it would hold the transcripts' text: name a place elsewhere")
    paths = sorted(folder.glob("*.json"), key=lambda path: -path.stat().st_size)
    if not paths:
        click.echo(f"no transcripts in {folder}: nothing to plan")
        return
    begun = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES) as pool:
        made = dict(sorted(pool.map(planned, paths)))
    file.write_text(json.dumps(made, ensure_ascii=False), "utf-8")
    seconds = sum(plan["seconds"] for plans in made.values() for plan in plans.values())
    click.echo(
        f"{len(paths)} transcripts at {len(RATIOS)} ratios: {seconds:.0f} s of planning, "
        f"{time.perf_counter() - begun:.0f} s in all; {file.stat().st_size / 1e6:.1f} MB"
    )


@command.command
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--show", type=click.Choice(list(CLASSES)), multiple=True, help="Print examples of these classes.")
@click.option("--most", default=10, show_default=True, help="So many examples of a class.")
def diff(old: Path, new: Path, show: tuple[str, ...], most: int) -> None:
    """List the differences between OLD and NEW; exit 0 if there are none."""
    before, after = (json.loads(path.read_text("utf-8")) for path in (old, new))
    found = list(compared(before, after))
    for kind in CLASSES:
        own = [difference for difference in found if difference.kind == kind]
        if own:
            plans = {" ".join(difference.place.split()[:2]) for difference in own}
            click.echo(f"{kind}: {len(own)} in {len(plans)} plans  ({CLASSES[kind]})")
            for what, count in Counter(difference.what for difference in own).most_common():
                click.echo(f"    {count:>6} {what}")
            for difference in own[: most if kind in show else 0]:
                _print(difference)
    both = [(name, ratio) for name in before for ratio in before[name] if ratio in after.get(name, ())]
    sizes = [sum(side[name][ratio]["tokens"] for name, ratio in both) for side in (before, after)]
    click.echo(f"{len(both)} plans in both: views of {sizes[0]:,} tokens before, of {sizes[1]:,} after")
    sys.exit(1 if found else 0)


def _print(difference: Difference) -> None:
    click.echo(f"  {difference.place}: {difference.what}")
    before, after = ([line for line in text.splitlines() if line] for text in (difference.before, difference.after))
    click.echo("".join(f"    - {line}\n" for line in before if line not in after), nl=False)
    click.echo("".join(f"    + {line}\n" for line in after if line not in before), nl=False)


if __name__ == "__main__":
    command()
