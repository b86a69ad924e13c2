"""``python -m tests.bench tau2 --checkout DIR …``: a service agent goes on behind a view, on a database of tau2-bench.

``prepare RUN`` writes a prompt for each task and condition; an agent that reads one has two commands: ``act`` runs a
tool on its own copy of the database, ``say`` returns the customer's next message. ``score RUN`` compares the database
with the expected one. Asks no model: plans and summaries are answers that somebody writes into files.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Play:
    """One task under one condition, in the folder of a run."""

    run: Path
    checkout: Path
    task: str
    condition: str

    @property
    def folder(self) -> Path:
        """Folder of the task."""
        return self.run / self.task

    @property
    def log(self) -> list[Entry]:
        """Steps of the agent since the cut."""
        lines = self._log_file.read_text("utf-8").splitlines() if self._log_file.exists() else []
        kept = [json.loads(line) for line in lines]
        return [Entry(**one | {"call": Call(**one["call"]) if one["call"] else None}) for one in kept]

    @property
    def _log_file(self) -> Path:
        return self.folder / f"{self.condition}.log.jsonl"

    def at_cut(self) -> tuple[World, Story]:
        """Return the story and its database at the cut: both follow from the checkout and the task."""
        domain, number = self.task.split("-")
        world = World(self.checkout, domain)
        return world, tell_story(world, load_tasks(self.checkout, domain)[number], self.task)

    def prepare(self) -> int | None:
        """Write the prompt and return the tokens shown; None without the answer that the condition needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        world, story = self.at_cut()
        shown = self._shown(story)
        if shown is None:
            return None
        program = [sys.executable, "-m", "tests.bench", "tau2", "--checkout", str(self.checkout.resolve())]
        command = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(program)}"
        head = HEAD.format(command=command, place=f"{self.run.resolve()} {self.task} {self.condition}")
        head += RESTORABLE if self.condition in VIEWS else ""
        tools, messages = (json.dumps(part, indent=1, ensure_ascii=False) for part in (world.schemas(), list(shown)))
        text = f"{head}\n# Policy\n{world.policy}\n# Tools\n{tools}\n\n# The conversation so far\n{messages}\n"
        (self.folder / f"{self.condition}.prompt.txt").write_text(text, "utf-8")
        return message_tokens(shown)

    def _shown(self, story: Story) -> Sequence[Message] | None:
        """Return what the agent sees; None, and the question in a file, without the answer that it needs."""
        if self.condition == "whole":
            return story.messages
        if self.condition == "summary":
            answer = self.folder / "ask-summary.answer.txt"
            if answer.is_file():
                words = f"Your summary of the conversation so far:\n{answer.read_text('utf-8')}"
                return [{"role": "user", "content": words}]
            question = f"{SUMMARISE}\n{as_text(story.messages)}"
            (self.folder / "ask-summary.prompt.txt").write_text(question, "utf-8")
            return None
        is_model = self.condition.startswith("model")
        planner: Any = FolderPlanner(self.folder, f"ask-{self.condition}") if is_model else "rules"
        try:
            plan = plan_compaction(story.messages, TASK, target_ratio=VIEWS[self.condition], planner=planner)
        except NotRecorded:
            return None
        with open_store(self.folder / "store.db") as store:
            return list(apply(plan, store=store))

    def act(self, call: Call) -> str:
        """Run `call` on the database of this play, log it, and return its result."""
        if call.name == RESTORE:
            answer = self._restored(str(call.arguments.get("id")))
        else:
            answer = _after(self.at_cut()[0], self.log).run(call)
        return self._add(Entry(call=call, text=answer.text, is_error=answer.is_error))

    def _restored(self, turn_id: str) -> ToolAnswer:
        try:
            with open_store(self.folder / "store.db") as store:
                keys = [one.key for one in store.histories()]
                parts = [as_text(list(store.restore(f"{key}:{turn_id}").messages)) for key in keys]
        except CompactorError as error:
            return ToolAnswer(f"Error: {error}", True)
        return ToolAnswer(parts[0], False) if parts else ToolAnswer("Error: nothing was taken out", True)

    def say(self, text: str) -> str:
        """Log what the agent says, and return the customer's answer."""
        return self._add(Entry(said=text, text=customer_answer(self.at_cut()[1].requests, self.log)))

    def _add(self, entry: Entry) -> str:
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
        return entry.text

    def score(self) -> Score:
        """Return what the agent reached."""
        (world, story), log = self.at_cut(), self.log
        expected = [Entry(call=call) for call in story.remaining]
        is_solved = _after(world, log).digest() == _after(self.at_cut()[0], expected).digest()
        return score_log(list(calls_of(story.messages)), story.demands, log, is_solved=is_solved)


def _after(world: World, log: Sequence[Entry]) -> World:
    """Return the database after the calls of `log`."""
    for entry in log:
        if entry.call and entry.call.has_effect:
            world.run(entry.call)
    return world


def add_command(commands: Any) -> None:
    """Add the command ``tau2``."""
    parser = commands.add_parser("tau2", help="customer service goes on behind a view, on tau2-bench's databases")
    parser.add_argument("--checkout", type=Path, required=True, help="of sierra-research/tau2-bench, with its data")
    steps = parser.add_subparsers(required=True)
    helps = {
        "prepare": "write prompts, and the questions whose answers further prompts need",
        "act": "run a tool",
        "say": "speak to the customer",
        "score": "compare databases with the expected ones",
    }
    step = {name: steps.add_parser(name, help=text) for name, text in helps.items()}
    for name, runs in (("prepare", _prepare), ("act", _step), ("say", _step), ("score", _score)):
        step[name].add_argument("run_folder", type=Path)
        step[name].set_defaults(run=runs)
    step["prepare"].add_argument("--only", action="append", choices=TASKS, metavar="TASK")
    step["score"].add_argument("--each", action="store_true", help="also a line for each task and condition")
    for name, words in (("act", ("tool", "arguments")), ("say", ("text",))):
        step[name].add_argument("task", choices=TASKS, metavar="TASK")
        step[name].add_argument("condition", choices=CONDITIONS, metavar="CONDITION")
        for word in words:
            step[name].add_argument(word)


def _prepare(console: Console, options: argparse.Namespace) -> None:
    table = Table("task", *CONDITIONS, title="Tokens shown; ask: answer the ask-CONDITION prompts, and prepare again")
    for task in options.only or TASKS:
        sizes = [Play(options.run_folder, options.checkout, task, condition).prepare() for condition in CONDITIONS]
        table.add_row(task, *("ask" if size is None else f"{size:,}" for size in sizes))
    console.print(table)


def _step(console: Console, options: argparse.Namespace) -> None:
    play = Play(options.run_folder, options.checkout, options.task, options.condition)
    if "text" in options:
        answer = play.say(options.text)
    else:
        try:
            arguments = json.loads(options.arguments)
        except ValueError as error:
            raise SystemExit(f"arguments of {options.tool} are not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise SystemExit(f"arguments of {options.tool}: expected an object, found {type(arguments).__name__}")
        answer = play.act(Call(options.tool, arguments))
    console.print(answer, highlight=False, soft_wrap=True, markup=False)


def _score(console: Console, options: argparse.Namespace) -> None:
    each = Table("task", "condition", *Score._fields)
    sums = Table("condition", "tasks", *Score._fields)
    for condition in CONDITIONS:
        tasks = sorted(log.parent.name for log in options.run_folder.glob(f"*/{condition}.log.jsonl"))
        scores = [Play(options.run_folder, options.checkout, task, condition).score() for task in tasks]
        for task, score in zip(tasks, scores, strict=True):
            each.add_row(task, condition, *map(str, score))
        if scores:
            sums.add_row(condition, str(len(scores)), *(str(sum(counts)) for counts in zip(*scores, strict=True)))
    if options.each:
        console.print(each)
    console.print(sums)
