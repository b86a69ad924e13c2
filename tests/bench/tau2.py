"""``python -m tests.bench tau2 --checkout DIR …``: a service agent goes on behind a view, on a database of tau2-bench.

``prepare RUN`` writes a prompt for each task and condition; an agent that reads one has three commands: ``act`` runs a
tool on its own copy of the database, ``say`` returns the customer's next message, and ``score RUN`` compares the
database with the expected one. Asks no model: plans and summaries are answers that somebody writes into files.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
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
from planner.reading.messages import Message
from tests.bench.continuing import as_text
from tests.bench.tau2_score import Entry, Score, customer_answer, score_log
from tests.bench.tau2_story import Story, calls_of, tell_story
from tests.bench.tau2_world import Call, ToolAnswer, World, load_tasks

__all__ = ["CONDITIONS", "TASKS", "add_command"]

TASKS = (
    *(f"retail-{number}" for number in (16, 23, 30, 41, 54, 98, 102, 104)),
    *(f"airline-{number}" for number in (7, 17, 18, 23, 33, 44)),
)
"""Tasks with at least two actions of known tools, by domain and number."""
VIEWS = {"rules10": 0.1, "rules25": 0.25, "model10": 0.1, "model25": 0.25}
CONDITIONS = (*VIEWS, "whole", "summary")
RESTORE = "restore_context"
TASK = "Serve this customer to the end of the conversation, by the rules of the shop and of the customer."
SUMMARISE = """The conversation below no longer fits your context window. Write a summary of it for yourself: it is all
that you will have when you go on serving the customer. Keep what the customer asked for, agreed to and forbids, what
was done and with which result, what failed, what is left to do, and the exact ids, names, amounts and dates.
Answer with the summary only.
"""
HEAD = """You are the customer service agent of the policy below, in the middle of a conversation with a customer. All
that you have of the conversation is at the end of this file, as a list of messages; its last message is the result of
your last call. Go on from there until the customer ends the conversation.

Run a tool with this shell command, its arguments as one JSON object:
  {command} act {place} TOOL 'JSON'
Speak to the customer with this one; it prints the customer's answer:
  {command} say {place} 'TEXT'
Neither text may contain an apostrophe. Use no other command, read no other file, and change nothing else. The customer
reads only what you say. When the answer ends with "[conversation ends]" you are done: report in one sentence what you
did.
"""
RESTORABLE = f"""Parts of the conversation were taken out; where an id such as t12 names one, the tool {RESTORE} with
the arguments {{"id": "t12"}} prints that part whole.
"""


def prepare(run: Path, checkout: Path, task: str) -> dict[str, int]:
    """Write the story of `task` and the prompts whose answers are there; return the tokens shown, by condition."""
    domain, number = task.split("-")
    world, folder = World(checkout, domain), run / task
    folder.mkdir(parents=True, exist_ok=True)
    story = tell_story(world, load_tasks(checkout, domain)[number], task)
    (folder / "story.json").write_text(json.dumps(asdict(story)), "utf-8")
    shown = {condition: _shown(folder, story, condition) for condition in CONDITIONS}
    for condition, messages in shown.items():
        if messages is not None:
            prompt = _prompt(world, run, checkout, f"{task} {condition}", condition in VIEWS, messages)
            (folder / f"{condition}.prompt.txt").write_text(prompt, "utf-8")
    return {condition: message_tokens(messages) for condition, messages in shown.items() if messages is not None}


def _shown(folder: Path, story: Story, condition: str) -> Sequence[Message] | None:
    """Return what the agent sees under `condition`; None, and the question in a file, without the answer it needs."""
    if condition == "whole":
        return story.messages
    if condition == "summary":
        answer = folder / "ask-summary.answer.txt"
        if answer.is_file():
            return [
                {"role": "user", "content": f"Your summary of the conversation so far:\n{answer.read_text('utf-8')}"}
            ]
        (folder / "ask-summary.prompt.txt").write_text(f"{SUMMARISE}\n{as_text(story.messages)}", "utf-8")
        return None
    planner: Any = "rules" if condition.startswith("rules") else FolderPlanner(folder, f"ask-{condition}")
    try:
        plan = plan_compaction(story.messages, TASK, target_ratio=VIEWS[condition], planner=planner)
    except NotRecorded:
        return None
    with open_store(folder / "store.db") as store:
        return list(apply(plan, store=store))


def _prompt(world: World, run: Path, checkout: Path, place: str, is_view: bool, shown: Sequence[Message]) -> str:
    program = [sys.executable, "-m", "tests.bench", "tau2", "--checkout", str(checkout.resolve())]
    command = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(program)}"
    head = HEAD.format(command=command, place=f"{run.resolve()} {place}") + (RESTORABLE if is_view else "")
    tools, messages = (json.dumps(part, indent=1, ensure_ascii=False) for part in (world.schemas(), list(shown)))
    return f"{head}\n# Policy\n{world.policy}\n# Tools\n{tools}\n\n# The conversation so far\n{messages}\n"


def act(run: Path, checkout: Path, task: str, condition: str, call: Call) -> str:
    """Run `call` on the condition's own database, log it, and return its result."""
    folder = run / task
    if call.name == RESTORE:
        answer = _restored(folder, str(call.arguments.get("id")))
    else:
        answer = _world_after(checkout, _story(folder), _log(folder, condition)).run(call)
    _add(folder, condition, Entry(call=call, text=answer.text, is_error=answer.is_error))
    return answer.text


def _restored(folder: Path, turn_id: str) -> ToolAnswer:
    try:
        with open_store(folder / "store.db") as store:
            key = store.histories()[0].key
            return ToolAnswer(as_text(list(store.restore(f"{key}:{turn_id}").messages)), False)
    except CompactorError as error:
        return ToolAnswer(f"Error: {error}", True)


def say(run: Path, task: str, condition: str, text: str) -> str:
    """Log what the agent says, and return the customer's answer."""
    folder = run / task
    answer = customer_answer(_story(folder).requests, _log(folder, condition))
    _add(folder, condition, Entry(said=text, text=answer))
    return answer


def score(run: Path, checkout: Path, task: str, condition: str) -> Score:
    """Return what the agent of `condition` reached."""
    story, log = _story(run / task), _log(run / task, condition)
    expected = [Entry(call=call) for call in story.remaining]
    is_solved = _world_after(checkout, story, log).digest() == _world_after(checkout, story, expected).digest()
    return score_log(list(calls_of(story.messages)), story.demands, log, is_solved=is_solved)


def _world_after(checkout: Path, story: Story, log: Sequence[Entry]) -> World:
    """Return the database after the story and the calls of `log`."""
    world = World(checkout, story.domain)
    calls = [call for call, _ in calls_of(story.messages)] + [entry.call for entry in log if entry.call]
    for call in calls:
        if call.has_effect:
            world.run(call)
    return world


def _story(folder: Path) -> Story:
    return Story.from_dict(json.loads((folder / "story.json").read_text("utf-8")))


def _log(folder: Path, condition: str) -> list[Entry]:
    file = folder / f"{condition}.log.jsonl"
    return [Entry.from_json(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def _add(folder: Path, condition: str, entry: Entry) -> None:
    with (folder / f"{condition}.log.jsonl").open("a", encoding="utf-8") as file:
        file.write(entry.as_json() + "\n")


def add_command(commands: Any) -> None:
    """Add the command ``tau2``."""
    parser = commands.add_parser("tau2", help="customer service goes on behind a view, on tau2-bench's databases")
    parser.add_argument("--checkout", type=Path, required=True, help="of sierra-research/tau2-bench, with its data")
    steps = parser.add_subparsers(required=True)
    prepared = steps.add_parser("prepare", help="write prompts, and the questions whose answers further prompts need")
    prepared.add_argument("run_folder", type=Path)
    prepared.add_argument("--only", action="append", choices=TASKS, metavar="TASK")
    prepared.set_defaults(run=_prepare)
    for name, words in (("act", ("tool", "arguments")), ("say", ("text",))):
        step = steps.add_parser(name)
        step.add_argument("run_folder", type=Path)
        step.add_argument("task", choices=TASKS, metavar="TASK")
        step.add_argument("condition", choices=CONDITIONS, metavar="CONDITION")
        for word in words:
            step.add_argument(word)
        step.set_defaults(run=_act if name == "act" else _say)
    scored = steps.add_parser("score", help="compare databases with the expected ones")
    scored.add_argument("run_folder", type=Path)
    scored.add_argument("--each", action="store_true", help="also a line for each task and condition")
    scored.set_defaults(run=_score)


def _prepare(console: Console, options: argparse.Namespace) -> None:
    table = Table("task", *CONDITIONS, title="Tokens shown; ask: answer the ask-CONDITION prompts, and prepare again")
    for task in options.only or TASKS:
        sizes = prepare(options.run_folder, options.checkout, task)
        table.add_row(task, *(f"{sizes[name]:,}" if name in sizes else "ask" for name in CONDITIONS))
    console.print(table)


def _act(console: Console, options: argparse.Namespace) -> None:
    try:
        arguments = json.loads(options.arguments)
    except ValueError as error:
        raise SystemExit(f"arguments of {options.tool} are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise SystemExit(f"arguments of {options.tool}: expected an object, found {type(arguments).__name__}")
    call = Call(options.tool, arguments)
    _print(console, act(options.run_folder, options.checkout, options.task, options.condition, call))


def _say(console: Console, options: argparse.Namespace) -> None:
    _print(console, say(options.run_folder, options.task, options.condition, options.text))


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _score(console: Console, options: argparse.Namespace) -> None:
    each = Table("task", "condition", *Score.columns())
    sums = Table("condition", "tasks", *Score.columns())
    for condition in CONDITIONS:
        logs = sorted(options.run_folder.glob(f"*/{condition}.log.jsonl"))
        scores = {
            log.parent.name: score(options.run_folder, options.checkout, log.parent.name, condition) for log in logs
        }
        for task, one in scores.items():
            each.add_row(task, condition, *one.cells())
        if scores:
            sums.add_row(condition, str(len(scores)), *sum(scores.values(), Score()).cells())
    if options.each:
        console.print(each)
    console.print(sums)
