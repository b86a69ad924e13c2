"""The task goes on: an agent that gets a view, the whole history or a summary carries out the next request.

``python -m tests.bench continue render TASK OUT --view rules`` writes a prompt and the working tree as it was at the
cut of the long example, made anew by really running its calls; somebody lets an agent work in ``OUT/workspace``;
``continue judge OUT`` then runs hidden acceptance tests and checks the standing demands. File based: asks no model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from applier import apply
from applier.eval.methods import FolderPlanner, NotRecorded
from applier.eval.survival import message_tokens
from applier.store import open_store
from planner.api import plan_compaction
from planner.errors import CompactorError
from planner.reading.messages import Message, blocks, result_text
from tests.bench.acceptance import DEMANDS, PRELUDE, TASKS, Task
from tests.example.record import HERE, seeded
from tests.example.screenplay import load_screenplay
from tests.example.workspace import Workspace

VIEWS = ("rules", "model", "whole", "own-summary")
CHECK_SECONDS = 120
TREE = "workspace"
HEAD = """You are a software engineer at work in the folder {tree}, which the record below calls /workspace.
You may run commands, read and write files there, and nowhere else. Below stands what you have of the work so far, then
the user's next request. Carry it out, check it, commit it, and say in one paragraph what you did. The user cannot
answer questions.
"""
LOOK_UP = """A turn of the record that an id names (t12) is shown whole by this command, run in {here}:
python -m tests.bench continue turn {out} t12
"""
SUMMARISE = """Write a summary of the conversation below for yourself: it will be all that you have when you go on with
the work. Keep what the user wants and forbids, what was decided and why, what failed, where the work stands, and the
exact names that matter.
"""


@dataclass(frozen=True)
class Judged:
    """Result of one check."""

    kind: str
    """``accepted`` for the request itself, ``demand`` for an earlier one."""
    name: str
    holds: bool
    said: str


def messages_of(task: Task) -> list[Message]:
    """Return the long example up to the cut of `task`, and its request."""
    document = json.loads(files("applier.eval").joinpath("transcript.json").read_text("utf-8"))
    messages: list[Message] = document["messages"][: task.cut]
    return [*messages, {"role": "user", "content": task.request}]


def make_tree(messages: Sequence[Message], folder: Path) -> Workspace:
    """Build the tree of `messages` in `folder` by running their calls again, without refused ones."""
    folder.mkdir(parents=True)
    workspace = seeded(load_screenplay(HERE / "story")[0], folder)
    results = {b["tool_use_id"]: b for m in messages for b in blocks(m) if b["type"] == "tool_result"}
    for message in messages:
        for block in blocks(message):
            if block["type"] == "tool_use" and _was_run(results[block["id"]]):
                workspace.answer(block)
    return workspace


def _was_run(result: Mapping[str, Any]) -> bool:
    return "doesn't want to proceed" not in result_text(result)


def render(name: str, out: Path, view: str, ratio: float, answer: Path | None = None) -> str:
    """Write prompt and tree of the task `name` into `out`, and return the next instruction."""
    task = TASKS[name]
    messages = messages_of(task)
    out.mkdir(parents=True, exist_ok=True)
    if view == "own-summary" and answer is None:
        (out / "summary.prompt.txt").write_text(f"{SUMMARISE}\n{as_text(messages[:-1])}", "utf-8")
        return f"answer {out / 'summary.prompt.txt'} into a file and render again with --answer FILE"
    try:
        shown = _shown(messages, out, view, ratio, answer)
    except NotRecorded as error:
        return f"{error}, and render again"
    if not (out / TREE).exists():
        make_tree(messages[:-1], out / TREE)
        standing = [name for name, code in demands_on(task).items() if _holds(code, out / TREE)[0]]
        (out / "demands.json").write_text(json.dumps(standing), "utf-8")
    head = HEAD.format(tree=(out / TREE).resolve()) + (
        LOOK_UP.format(out=out.resolve(), here=Path.cwd()) if (out / "store.db").exists() else ""
    )
    (out / "prompt.txt").write_text(f"{head}\n{as_text(shown)}", "utf-8")
    told = {"task": name, "view": view, "tokens": message_tokens(shown), "history_tokens": message_tokens(messages)}
    (out / "task.json").write_text(json.dumps(told), "utf-8")
    return f"{out / 'prompt.txt'}: {told['tokens']:,} of {told['history_tokens']:,} tokens; judge {out} when it is done"


def _shown(messages: Sequence[Message], out: Path, view: str, ratio: float, answer: Path | None) -> Sequence[Message]:
    if view == "whole":
        return messages
    if view == "own-summary":
        assert answer is not None
        summary = f"{messages[0]['content']}\n\nSummary of the work since:\n{answer.read_text('utf-8')}"
        return [{"role": "user", "content": summary}, messages[-1]]
    if answer is not None:
        (out / "view.answer.txt").write_text(answer.read_text("utf-8"), "utf-8")
    planner: Any = FolderPlanner(out, "view") if view == "model" else "rules"
    plan = plan_compaction(messages, messages[-1]["content"], target_ratio=ratio, planner=planner)
    with open_store(out / "store.db") as store:
        return list(apply(plan, store=store))


def as_text(messages: Sequence[Message]) -> str:
    """Return `messages` as text: sender, words, calls as JSON, results."""
    return "\n\n".join(f"[{message['role']}]\n{_body(message)}" for message in messages)


def _body(message: Message) -> str:
    return "\n".join(map(_block_text, blocks(message)))


def _block_text(block: Mapping[str, Any]) -> str:
    if block["type"] == "tool_use":
        return f"call {block['name']} {json.dumps(block['input'], ensure_ascii=False)}"
    if block["type"] == "tool_result":
        return f"{'failed' if block.get('is_error') else 'result'}\n{result_text(block)}"
    return str(block.get("text") or "")


def demands_on(task: Task) -> dict[str, str]:
    """Return the checks of demands before the cut of `task`."""
    return {name: code for name, (since, code) in DEMANDS.items() if since <= task.cut}


def judge(out: Path) -> list[Judged]:
    """Check the tree in `out` against the task, and against the demands that held at the cut."""
    task = TASKS[json.loads((out / "task.json").read_text("utf-8"))["task"]]
    demands, standing = demands_on(task), json.loads((out / "demands.json").read_text("utf-8"))
    judged = [("accepted", name, code) for name, code in task.checks.items()]
    judged += [("demand", name, demands[name]) for name in standing]
    return [Judged(kind, name, *_holds(code, out / TREE)) for kind, name, code in judged]


def _holds(code: str, tree: Path) -> tuple[bool, str]:
    """Return whether `code` runs in `tree` without an exception, and else its last line."""
    command = [sys.executable, "-B", "-c", f"{PRELUDE}\n{code}"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": "America/New_York", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"took over {CHECK_SECONDS} seconds"
    return done.returncode == 0, "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]


def show_turn(out: Path, turn_id: str) -> str:
    """Return a whole turn of the record, and note the look-up in ``OUT/look_ups.txt``."""
    with open_store(out / "store.db") as store:
        key = store.histories()[0].key
        text = as_text(list(store.restore(f"{key}:{turn_id}").messages))
    with (out / "look_ups.txt").open("a", encoding="utf-8") as notes:
        notes.write(f"{turn_id} {len(text)}\n")
    return text


def add_command(commands: Any) -> None:
    """Add the command ``continue``."""
    steps = commands.add_parser("continue", help="the task goes on behind a view").add_subparsers(required=True)
    rendered = steps.add_parser("render", help="write a prompt and the working tree")
    rendered.add_argument("task", choices=list(TASKS))
    rendered.add_argument("out", type=Path)
    rendered.add_argument("--view", choices=VIEWS, default="rules")
    rendered.add_argument("--answer", type=Path, help="what a model answered to the prompt of its view")
    rendered.add_argument("--ratio", type=float, default=0.06)
    rendered.set_defaults(run=_render)
    judged = steps.add_parser("judge", help="hidden acceptance tests, and the standing demands")
    judged.add_argument("out", nargs="+", type=Path)
    judged.set_defaults(run=_judge)
    turn = steps.add_parser("turn", help="a turn of the record, whole")
    turn.add_argument("out", type=Path)
    turn.add_argument("id")
    turn.set_defaults(run=_turn)


def _render(console: Console, options: argparse.Namespace) -> None:
    done = render(options.task, options.out, options.view, options.ratio, options.answer)
    console.print(done, highlight=False, soft_wrap=True, markup=False)


def _turn(console: Console, options: argparse.Namespace) -> None:
    try:
        console.print(show_turn(options.out, options.id), highlight=False, soft_wrap=True, markup=False)
    except CompactorError as error:
        raise SystemExit(f"{options.id}: {error}") from error


def _judge(console: Console, options: argparse.Namespace) -> None:
    table = Table("task", "view", "tokens", "accepted", "demands", "look-ups", "what does not hold")
    for out in options.out:
        told, found = json.loads((out / "task.json").read_text("utf-8")), judge(out)
        (out / "judged.json").write_text(json.dumps([asdict(one) for one in found], indent=1), "utf-8")
        notes = out / "look_ups.txt"
        looks = len(notes.read_text("utf-8").splitlines()) if notes.exists() else 0
        counts = (_count([one for one in found if one.kind == kind]) for kind in ("accepted", "demand"))
        broken = "; ".join(f"{one.name}: {one.said}" for one in found if not one.holds)
        table.add_row(told["task"], told["view"], f"{told['tokens']:,}", *counts, f"{looks}", broken)
    console.print(table)


def _count(found: Sequence[Judged]) -> str:
    return f"{sum(one.holds for one in found)}/{len(found)}"
