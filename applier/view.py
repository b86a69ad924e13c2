"""Applies a plan: the list that is sent to the model, and what it costs to switch to it.

Pure but for one thing: `apply` commits the originals to the store before it returns a list without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from applier.store import open_store
from applier.store.protocol import Store
from planner.broken import broken_turns
from planner.compose import check_plan, outline_of
from planner.errors import StalePlan
from planner.evidence import gather_evidence
from planner.layout.cache_cost import cache_prices, payback_calls
from planner.layout.layout import Kept, Note, Outline
from planner.layout.thinking import thinking_policy
from planner.plan import CompactionPlan
from planner.reading.history import History, read_history
from planner.reading.messages import Block, Message, blocks
from planner.reading.tokens import TokenCounter

__all__ = ["Preview", "apply", "preview"]


@dataclass(frozen=True)
class Preview:
    """What `apply` would return, and the numbers to decide by."""

    messages: list[Any]
    tokens_before: int
    tokens_after: int
    first_changed_message: int | None
    """Index of the first message that is not as it was; None if nothing changes."""
    invalidated_tokens: int
    """Cached tokens behind the first change, which are billed anew once."""
    payback_calls: float | None
    """After how many calls the smaller list has paid for that; None if nothing changes."""
    thinking: str
    """``strip``: thinking behind the first change goes; ``leave``: the API drops what it does not need."""
    plan: CompactionPlan
    """The plan as the guards left it."""


def apply(plan: CompactionPlan, messages: Sequence[object] | None = None, *, store: Store | None = None) -> list[Any]:
    """The compacted list: valid for the Messages API, every removed byte in the store first.

    Args:
        plan: From `plan_compaction`, a file, or a person; guarded again here.
        messages: The history the plan was made for, or that history with more messages behind it, which are
            appended as they are. May be left out while the plan still holds the history it was made from.
        store: Where the originals go; the default store if None.

    Raises:
        StalePlan: the plan was made for another history.
        StoreError: the originals could not be stored; nothing changed.
    """
    shown = preview(plan, messages)
    if shown.first_changed_message is not None:
        with_originals = shown.plan.bound_history
        assert with_originals is not None
        _keep_originals(with_originals, store)
    return shown.messages


def _keep_originals(history: History, store: Store | None) -> None:
    if store is not None:
        store.save_history(history)
        return
    default = open_store()
    try:
        default.save_history(history)
    finally:
        default.close()


def preview(plan: CompactionPlan, messages: Sequence[object] | None = None) -> Preview:
    """What `apply` would do, without writing anything, not even to the store.

    Raises:
        StalePlan: the plan was made for another history.
    """
    history, behind = _planned_history(plan, messages)
    counter = TokenCounter.for_model(plan.target_model)
    evidence = gather_evidence(history, counter)
    checked = check_plan(plan, history, evidence, broken_turns(history))
    outline = outline_of(checked, history, evidence)
    view = list(history.originals) if outline.first_changed is None else assemble(outline)
    before = evidence.tokens
    invalidated = 0 if outline.first_changed is None else counter.messages(history.messages[outline.first_changed :])
    return Preview(
        messages=_joined(view, behind) if outline.first_changed is not None else [*view, *behind],
        tokens_before=before,
        tokens_after=checked.estimated_tokens,
        first_changed_message=outline.first_changed,
        invalidated_tokens=invalidated,
        payback_calls=_payback(checked, before, invalidated) if outline.first_changed is not None else None,
        thinking=thinking_policy(plan.target_model),
        plan=checked,
    )


def _payback(plan: CompactionPlan, before: int, invalidated: int) -> float:
    prices = cache_prices(plan.target_model)
    calls = payback_calls(before, before - plan.estimated_tokens, before - invalidated, prices.write, prices.read)
    return calls if math.isinf(calls) else round(calls, 1)


def _planned_history(plan: CompactionPlan, messages: Sequence[object] | None) -> tuple[History, Sequence[object]]:
    if messages is None:
        if plan.bound_history is None:
            raise StalePlan("this plan holds no history: pass the messages it was made for")
        return plan.bound_history, ()
    count = plan.history.messages
    if len(messages) < count:
        raise StalePlan(f"the plan was made for {count} messages, {len(messages)} were given: plan again")
    history = read_history(list(messages[:count]))
    if history.digest != plan.history.digest:
        raise StalePlan(f"the plan was made for other messages than these {count}: plan again")
    return history, messages[count:]


def assemble(outline: Outline) -> list[Any]:
    """The outline as a list of messages: notes join the user messages beside them, roles alternate."""
    return _joined([], _parts(outline))


def _parts(outline: Outline) -> Iterator[object]:
    for segment in outline.segments:
        if isinstance(segment, Note):
            yield {"role": "user", "content": [segment.block]}
        elif isinstance(segment, Kept):
            yield from segment.originals


def _joined(view: list[Any], more: Sequence[object] | Iterator[object]) -> list[Any]:
    """`view` with `more` behind it; neighbours of one role become one message, others stay the same objects."""
    joined = list(view)
    for message in more:
        if joined and _role(joined[-1]) == _role(message):
            joined[-1] = _merged(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _role(message: Any) -> str:
    return str(message["role"] if isinstance(message, dict) else message.role)


def _merged(first: Any, second: Any) -> Message:
    left, right = read_history([first, second]).messages
    content = [*blocks(left), *blocks(right)]
    return {**left, "content": sorted(content, key=_is_behind_results) if _role(left) == "user" else content}


def _is_behind_results(block: Block) -> bool:
    """True for what has to stand behind a user message's tool results; a list that was broken stays no worse."""
    return bool(block["type"] != "tool_result")
