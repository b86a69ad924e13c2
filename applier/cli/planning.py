"""Plans a transcript by the options that say how, and applies a plan with the store. Shows no plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from applier.adapters.transcripts import Transcript, write_transcript
from applier.cli.files import write_whole
from applier.cli.options import SHARE, task, together
from applier.cli.screen import print_data
from applier.settings import load_settings
from applier.sheet import Sheet
from applier.store.opening import open_store
from applier.store.store import Store
from applier.view import apply
from planner.api import plan_compaction
from planner.placeholders import history_key
from planner.plan import CompactionPlan

__all__ = ["planned", "planning_options", "write_view"]

planning_options = together(
    task,
    click.option("--target-tokens", type=click.IntRange(1, 10**9), metavar="N", help="How many tokens may stay."),
    click.option(
        "--target-ratio", type=SHARE, metavar="R", help="The share of the tokens that may stay (default: 0.25)."
    ),
    click.option("--focus", metavar="TEXT", help="What to keep above all."),
    click.option(
        "--planner",
        type=click.Choice(["auto", "rules", "model"]),
        help="Who plans (default: auto, the model if there is a key, else rules).",
    ),
    click.option("--model", help="The model that plans, or an instructor provider string."),
    click.option("--target-model", metavar="MODEL", help="The model that will read the view: decides token counts."),
    click.option(
        "--prompts",
        "prompts_dir",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="Your own folder of prompts.",
    ),
)
"""All options that say how to plan; they arrive under the names that `planned` takes."""


def planned(
    read: Transcript,
    name: object,
    *,
    task: str | None = None,
    planner: Any = None,
    model: str | None = None,
    target_model: str | None = None,
    **more: Any,
) -> CompactionPlan:
    """The plan of `read`, a file called `name`, by `planning_options`; what none of them says is as configured.

    Raises:
        click.UsageError: two targets, or no task.
    """
    if more.get("target_tokens") and more.get("target_ratio"):
        raise click.UsageError("--target-tokens and --target-ratio exclude each other: give one.")
    task = task or read.task
    if not task:
        raise click.UsageError(f"{name} names no task: say by --task what the agent is to do now.")
    own = load_settings()
    settings = own.plan.model_copy(update={"target_model": target_model or own.plan.target_model})
    return plan_compaction(
        read.messages,
        task,
        system=read.system,
        tools=read.tools,
        planner=planner or own.planner,
        model=model or own.planner_model or None,
        settings=settings,
        **more,
    )


def write_view(sheet: Sheet, read: Transcript, output: Path, store: str | None, session_id: str = "") -> None:
    """Write the view of a reviewed plan to `output` in the format of `read`; originals, plan and facts are in `store`
    first.

    Of a session log it is a log of the session `session_id`, a new one if it is not said.
    """
    view = read.messages
    session_id = session_id or (str(uuid4()) if read.client else "")
    if sheet.changes:
        with open_store(store) as opened:
            view = _recorded(sheet, read, opened, str(output), session_id)
    text = write_transcript(view, read, session_id=session_id)
    if str(output) == "-":
        print_data(text)
    else:
        write_whole(output, text)


def _recorded(sheet: Sheet, read: Transcript, store: Store, output: str, session_id: str) -> list[Any]:
    """The view, once everything that it leaves out is in `store`, and that it went to `output`."""
    plan, now = sheet.plan, time.time()
    key = history_key(plan.history.digest)
    view = apply(plan, read.messages, store=store)
    store.note_origin(key, read.working_folder, now)
    plan_id = store.save_plan(plan)
    store.save_facts(plan.extracted_facts, key)
    sizes = {"tokens_before": plan.history.tokens, "tokens_after": plan.estimated_tokens}
    event = {"time": now, "kind": "apply", "history": key, "plan": plan_id, **sizes}
    event |= {"message": f"{key} to {output}", "dollars": sheet.cost["dollars"]}
    store.record_event(event | ({"session": session_id} if session_id else {}))
    return view
