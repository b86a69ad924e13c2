"""Stores what a frame removes; the one place where a frame becomes something that may be sent.

A session sends only from a `Committed`, and only `commit` makes one: originals cannot come second.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from applier.session.edits import Edits
from applier.session.frame import Frame
from applier.session.ledger import Ledger
from applier.store.protocol import Store
from planner.layout.placeholders import history_key

__all__ = ["Committed", "commit", "key_for"]


@dataclass(frozen=True, slots=True)
class Committed:
    """A frame whose originals are in the store."""

    frame: Frame = field(default_factory=Frame)
    key: str = ""
    """The history that was stored last; empty if none was."""
    messages: int = 0
    """How many messages of the present history that one holds."""
    plan_id: str = ""


def key_for(edits: Edits, ledger: Ledger, before: Committed) -> str:
    """The history to name in the stand-ins of `edits`: the one stored last if it holds all they replace."""
    covered = all(made.message < before.messages for made in edits.stand_ins)
    return before.key if before.key and covered and edits.plan is None else history_key(ledger.history)


def commit(frame: Frame, key: str, ledger: Ledger, store: Store, before: Committed) -> Committed:
    """Store the history (unless `key` holds all that `frame` changes), the plan and its facts; then it may be sent.

    A stand-in reaches further than its own message: thinking behind it goes, too.

    Raises:
        StoreError: nothing may be sent that was not before.
    """
    if key != before.key or any(message >= before.messages for message in frame.edited):
        before = replace(before, key=store.save_history(ledger.history), messages=len(ledger))
    plan_id = before.plan_id
    if frame.plan is not None and frame.plan is not before.frame.plan:
        plan_id = store.save_plan(frame.plan)
        store.save_facts(frame.plan.extracted_facts, before.key)
    return replace(before, frame=frame, plan_id=plan_id)
