"""What several commands do: plan a transcript by the options they were given, and apply a plan with the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import click

from applier.adapters.transcripts import Transcript, write_transcript
from applier.settings import load_settings
from applier.sheet import Sheet
from applier.store.opening import open_store
from applier.store.protocol import Store
from applier.store.reference import history_key
from applier.view import apply
from planner.api import plan_compaction
from planner.plan import CompactionPlan

__all__ = ["applied_text", "apply_and_record", "planned"]


def planned(
    read: Transcript,
    name: object,
    *,
    task: str | None = None,
    target_tokens: int | None = None,
    target_ratio: float | None = None,
    focus: str | None = None,
    planner: Any = None,
    model: str | None = None,
    target_model: str | None = None,
    prompts_dir: str | None = None,
) -> CompactionPlan:
    """The plan of `read`, a file called `name`, by the options of `planning`; what is not given is as configured.

    Raises:
        click.UsageError: two targets, or no task.
    """
    if target_tokens and target_ratio:
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
        target_tokens=target_tokens,
        target_ratio=target_ratio,
        focus=focus,
        planner=planner or own.planner,
        model=model or own.planner_model or None,
        prompts_dir=prompts_dir,
        settings=settings,
    )


def apply_and_record(plan: CompactionPlan, messages: Sequence[object], store: Store, **event: Any) -> list[Any]:
    """The view of `plan`, once originals, plan and facts are in `store`, and an event with the fields `event`."""
    key = history_key(plan.history.digest)
    view = apply(plan, messages, store=store)
    plan_id = store.save_plan(plan)
    store.save_facts(plan.extracted_facts, key)
    sizes = {"tokens_before": plan.history.tokens, "tokens_after": plan.estimated_tokens}
    store.record_event({"time": time.time(), "kind": "apply", "history": key, "plan": plan_id, **sizes, **event})
    return view


def applied_text(sheet: Sheet, read: Transcript, output: object, store: str | None) -> str:
    """The new transcript in the format of `read`, which is to be written to `output`; originals are in `store` first.

    Of a session log it is a log with a session id of its own.
    """
    view = read.messages
    if sheet.changes:
        with open_store(store) as opened:
            place = f"{history_key(sheet.plan.history.digest)} to {output}"
            view = apply_and_record(sheet.plan, read.messages, opened, message=place)
    return write_transcript(view, read, session_id=str(uuid4()) if read.client else "")
