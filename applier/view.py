"""Applies a plan: makes the shorter list of messages (the view), counts what it costs, and finds a view's originals.

Only `apply` and `remember_view` write: `apply` stores the originals before it returns a list without them. A view that
comes back is recognized by the digest of its messages, in the same store and for the same owner (session); a forged one
has another digest and restores nothing. For the digest, neighbours of one role count as one message.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from applier.store.opening import open_store, store_exists
from applier.store.store import Store
from planner.analysis import Analysis, analyze
from planner.api import FIND_ORIGINALS, Originals
from planner.errors import ApplyError, ReferenceNotFound, StalePlan, StoreError, TranscriptError
from planner.guards import check_plan
from planner.layout import first_note, joined_messages, thinking_policy
from planner.plan import CompactionPlan, Layout
from planner.prices import cache_prices, payback_calls, switch_dollars
from planner.reading.messages import (
    History,
    Message,
    blocks,
    call_ids,
    message_digest,
    plain_message,
    read_history,
    readable_text,
    result_ids,
    to_json,
)

StorePlace = Store | str | os.PathLike[str] | None
"""Store, path of a store, or None for the default store."""


@dataclass(frozen=True)
class Preview:
    """List that `apply` would return, and what the change costs and saves."""

    messages: list[Any]
    tokens_before: int
    tokens_after: int
    first_changed_message: int | None
    """Index of the first message that is different; None if nothing changes."""
    invalidated_tokens: int
    """Tokens from the first changed message on, which the provider had cached and bills in full once more."""
    payback_calls: float | None
    """Number of calls until the shorter list has saved what `invalidated_tokens` cost; None if nothing changes."""
    thinking: str
    """Treatment of thinking after the first change: ``strip`` removes it, ``leave`` leaves that to the API."""
    plan: CompactionPlan
    """Plan as the guards repaired it, so that nothing needed is lost."""
    dollars: Mapping[str, float] = field(default_factory=dict)
    """Costs and savings in dollars by name (`planner.prices.switch_dollars`); empty if the price is unknown."""


def apply(plan: CompactionPlan, messages: Sequence[object] | None = None, *, store: StorePlace = None) -> list[Any]:
    """Return the compacted list, valid for the Messages API. Everything it leaves out is in the store first.

    Args:
        plan: From `plan_compaction`, a file, or a person; guarded again here.
        messages: The plan's history; messages after it are appended as they are. May be left out while the plan still
            holds its history.
        store: The place of originals, plan and view: a store, its path, or None for the default one.

    Raises:
        StalePlan: the plan was made for another history.
        PlanRejected: a field of `plan` was changed to a wrong type.
        ApplyError: `plan` is no plan, or `store` no store.
        StoreError: the originals could not be stored; nothing changed.
    """
    guarded, analysis, layout, later = _checked_plan(plan, messages, store)
    view = _view(layout, analysis.history, later)
    if layout.first_changed is not None:
        with _opened(store) as opened:
            _store_originals(opened, guarded, analysis.history, view, later)
        look_in(store)
    return view


def _store_originals(
    store: Store, plan: CompactionPlan, history: History, view: list[Any], later: Sequence[object]
) -> None:
    """Store the originals and the plan, and record from which originals `view` was made. `later`: messages after the
    plan's history."""
    key, plan_id = store.save_history(history), store.save_plan(plan)
    whole = read_history([*history.originals, *later]) if later else history
    pairs_from_end = zip(reversed(view), reversed(whole.originals), strict=False)
    unchanged = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs_from_end))
    start = len(whole.messages) - unchanged
    if start > len(history.messages):  # a later message was joined to the end of the planned part
        key = store.save_history(whole)
    remember_view(store, view, whole, start, key=key, plan_id=plan_id)


def _opened(store: StorePlace) -> AbstractContextManager[Store]:
    """Return a context manager that yields the store. A store named by a path or None is opened, and closed after."""
    if store is None or isinstance(store, str | os.PathLike):
        return open_store(store)
    if not hasattr(store, "save_history"):
        raise ApplyError(f"store: expected a store, its path or None, found {type(store).__name__}")
    return nullcontext(store)


_USED_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
"""Open stores that this process has used; they are searched for originals, as are `_USED_PATHS`."""
_USED_PATHS: set[str | os.PathLike[str] | None] = set()
"""Paths of stores that this process has used, in which a plan without a store looks for originals."""


def look_in(store: StorePlace) -> None:
    """Remember `store`, so that `apply` and plans search it for originals of lists that were compacted before."""
    if isinstance(store, Store):
        _USED_STORES.add(store)
    elif store is None or isinstance(store, str | os.PathLike):
        _USED_PATHS.add(store)


def _find_originals(messages: Sequence[object], store: StorePlace = None) -> Originals | None:
    """Return the original messages of a list that begins with a compacted part made by this program, from `store`, or
    else from any store used so far. None if it begins with no such part, or no store has its originals."""
    with suppress(TranscriptError):  # the caller reads the list, too, and then reports what is wrong in it
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not holds_view(messages):
            return None
        for place in (store,) if store is not None else (*_USED_STORES, *{*_USED_PATHS, None}):  # None: default store
            with suppress(StoreError):
                if hasattr(place, "save_history") or store_exists(place):
                    with _opened(place) as opened:
                        if earlier := originals_behind(opened, messages):
                            return Originals(earlier.messages, earlier.plan)
    return None


FIND_ORIGINALS.append(_find_originals)  # so `plan_compaction` plans from originals


def preview(plan: CompactionPlan, messages: Sequence[object] | None = None, *, store: Any = None) -> Preview:
    """Return what `apply` would return for the same arguments, with the costs; write nothing, not even to the store.

    Raises:
        StalePlan: the plan was made for another history.
        PlanRejected: a field of `plan` was changed to a wrong type.
        ApplyError: `plan` is no plan.
    """
    guarded, analysis, layout, later = _checked_plan(plan, messages, store)
    first_changed, before, after = layout.first_changed, analysis.tokens, guarded.estimated_tokens
    changed_messages = () if first_changed is None else analysis.history.messages[first_changed:]  # billed once more
    invalidated, model = analysis.counter.messages(changed_messages), guarded.target_model
    calls = payback_calls(before, before - after, before - invalidated, cache_prices(model))
    return Preview(
        messages=_view(layout, analysis.history, later),
        tokens_before=before,
        tokens_after=after,
        first_changed_message=first_changed,
        invalidated_tokens=invalidated,
        payback_calls=None if first_changed is None else round(calls, 1),
        thinking=thinking_policy(model),
        plan=guarded,
        dollars=switch_dollars(model, before, after, before - invalidated, guarded.provenance),
    )


def laid_out(plan: CompactionPlan, messages: Sequence[object]) -> Layout:
    """Return the list that `plan` makes of `messages`, and which parts of it are kept messages or texts for others."""
    _, _, layout, _ = _checked_plan(plan, messages)
    return layout


def _view(layout: Layout, history: History, later: Sequence[object]) -> list[Any]:
    """Return the list to send: the planned part, as the plan lays it out, and the later messages."""
    if layout.first_changed is None:
        return [*history.originals, *later]
    return joined_messages(layout.messages, later)


def _checked_plan(
    plan: CompactionPlan, messages: Sequence[object] | None, store: Any = None
) -> tuple[CompactionPlan, Analysis, Layout, Sequence[object]]:
    """Check `plan` by the guards. Return it, the analysis of its messages, the list it makes, and the later messages.

    The guards are skipped if they have checked this plan for the same history. If `messages` begin with a compacted
    part, their originals in `store` replace them. `messages` may be None while the plan holds its history.
    """
    if not isinstance(plan, CompactionPlan):
        cure = "pass the plan first: apply(plan, messages); a saved one is read by CompactionPlan.from_json"
        raise ApplyError(f"plan: expected a CompactionPlan, found {type(plan).__name__}: {cure}")
    plan.check_fields()
    try:
        analysis, later = _split_planned(plan, messages)
    except StalePlan:  # perhaps the list was compacted since
        earlier = _find_originals(messages, store) if messages is not None else None
        if earlier is None:
            raise
        analysis, later = _split_planned(plan, earlier.messages)
    if plan.bound is None or plan.bound.analysis is not analysis:
        plan = check_plan(plan, analysis)
    assert plan.bound is not None
    return plan, analysis, plan.bound.layout, later


def _split_planned(plan: CompactionPlan, messages: Sequence[object] | None) -> tuple[Analysis, Sequence[object]]:
    """Split `messages` into those that `plan` was made for, analysed, and later ones. None: the history that the plan
    holds. Raise StalePlan if it was made for other messages."""
    bound, count = plan.bound_analysis, plan.history.messages
    if messages is None:
        if bound is None:
            raise StalePlan("this plan has no history in memory: pass the messages it was made for")
        return bound, ()
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise ApplyError(f"messages: expected a list of messages, found {type(messages).__name__}")
    if len(messages) < count:
        raise StalePlan(f"the plan was made for {count} messages, {len(messages)} were given: plan again")
    planned, later = messages[:count], messages[count:]
    if bound is not None and all(new is old for new, old in zip(planned, bound.history.originals, strict=True)):
        return bound, later  # the same objects need not be read again
    analysis = analyze(list(planned), plan.target_model, uses=plan.tool_uses)
    if analysis.history.digest != plan.history.digest:
        raise StalePlan(f"the plan was made for other messages than these {count}: plan again")
    return analysis, later


def view_text(view: Sequence[Message]) -> str:
    """Return a list of messages as plain text: each below its role (``[user]``), a call as ``[Bash {"cmd": "ls"}]``."""
    parts = []
    for message in view:
        texts = []
        for block in blocks(message):
            if block["type"] == "tool_use":
                texts.append(f"[{block.get('name')} {to_json(block.get('input'))}]")
            else:
                texts.append(readable_text(block.get("content") if block["type"] == "tool_result" else block))
        if any(texts):
            parts.append("\n".join([f"[{message['role']}]", *filter(None, texts)]))
    return "\n\n".join(parts)


MOST_ALIKE = 8
"""Largest number of compacted lists with the same first messages that a store remembers."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Caller's list that begins with a compacted part, with the original messages from the store in place of it."""

    messages: list[Any]
    """Whole list: the first `start` messages are from the store, the later ones the caller's own objects, or originals
    if they were sent shortened."""
    head: int
    """Number of messages at the beginning of the caller's list that were compacted from the first `start` originals."""
    start: int
    """Number of original messages that these were made of."""
    key: str
    """Key of the originals' history in the store."""
    plan_id: str
    """Id of the plan by which the list was compacted; empty if there was none."""
    plan: CompactionPlan | None
    """Plan by which the list was compacted; None if it is not stored."""


def holds_view(messages: Sequence[object]) -> bool:
    """Return True if `messages` seem to contain a part that this program compacted, whether a store knows it or not."""
    return first_note(list(map(plain_message, messages))) is not None


def remember_view(
    store: Store, view: Sequence[object], history: History, start: int, *, owner: str = "", key: str, plan_id: str
) -> None:
    """Record in `store` that the compacted list `view` was made of `history`, to recognize it when it comes back.

    Then it is planned from its originals. The last messages of the view are those of the history from index `start` on,
    one for one; the messages before them replace the first `start`. `key`, `plan_id`: the store's keys for history and
    plan. `owner`: id of the session that can look it up; empty for no session.
    """
    plain = [plain_message(message) for message in view]
    head = len(plain) - (len(history.messages) - start)
    joined = joined_messages((), plain[:head])
    first_compacted = first_note(joined)
    if first_compacted is None:
        return
    edited = {  # messages after the head that the view changed: their positions in the history, their digests
        str(at): message_digest(plain[at - start + head])
        for at in range(start, len(history.messages))
        if view[at - start + head] is not history.originals[at]
    }
    # all lists with the same messages up to the first compacted one share an entry in the store
    name, digest = _views_name(owner, joined[: first_compacted + 1]), _digest(joined)
    place = {"head": len(joined), "digest": digest, "start": start, "edited": edited}
    new_record = {"history": key, "plan": plan_id, **place}

    def with_new(records: list[dict[str, Any]] | None) -> list[dict[str, Any]]:  # None: no entry yet
        others = [record for record in records or [] if record["digest"] != digest]
        return [*others, new_record][-MOST_ALIKE:]

    store.change_state(name, with_new)


def originals_behind(store: Store, messages: Sequence[object], owner: str = "") -> Earlier | None:
    """Return the list `messages`, which begins with a part that `owner` compacted, with its originals; None if `store`
    has none."""
    plain = [plain_message(message) for message in messages]
    joined = joined_messages((), plain)
    first_compacted = first_note(joined)
    if first_compacted is None:
        return None
    records = reversed(store.get_state(_views_name(owner, joined[: first_compacted + 1])) or [])
    row = next((record for record in records if _digest(joined[: record["head"]]) == record["digest"]), None)
    if row is None:
        return None
    # the recorded number of compacted messages counts neighbours of one role as one message
    role_changes = [at for at in range(1, len(plain)) if plain[at]["role"] != plain[at - 1]["role"]]
    head = [*role_changes, len(plain)][row["head"] - 1]
    stored, start, edited = store.load_history(row["history"]), row["start"], row["edited"]
    # a message after the compacted part may have been sent changed: then its original takes its place
    later = [
        stored.messages[at] if edited and edited.get(str(at)) == message_digest(as_plain) else message
        for at, (as_plain, message) in enumerate(zip(plain[head:], messages[head:], strict=True), start)
    ]
    plan = None
    with suppress(ReferenceNotFound):
        plan = store.load_plan(row["plan"]) if row["plan"] else None
    later_ids = {call_id for message in plain[head:] for call_id in call_ids(message)}
    earlier = [_with_other_ids(message, later_ids, row["history"]) for message in stored.messages[:start]]
    return Earlier([*earlier, *later], head, start, row["history"], row["plan"], plan)


def _with_other_ids(message: Message, later_ids: set[str], key: str) -> Message:
    """Return `message` with ``-KEY`` appended to the ids of its calls and results that are also in `later_ids`, as an
    agent's program may use ids again, but in one list they must be unique."""
    if later_ids.isdisjoint((*call_ids(message), *result_ids(message))):
        return message
    content = []
    for block in blocks(message):
        changed = {field: f"{block[field]}-{key}" for field in ("id", "tool_use_id") if block.get(field) in later_ids}
        content.append({**block, **changed})
    return {**message, "content": content}


def _views_name(owner: str, opening: Sequence[Message]) -> str:
    """Return the name under which the store has the records of an owner's views that begin with `opening`."""
    return f"view:{owner}:{_digest(opening)}"


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256("".join(map(message_digest, messages)).encode()).hexdigest()
