"""What stands where once a plan is applied: kept turns as they are, notes for the rest, and the exact sizes.

Pure: the same decisions over the same history give the same layout, and its list keeps the rules of the Messages API.
On models with preserved thinking a thinking block is bound to every message before it, so all thinking behind the
first change goes. Older models drop earlier thinking themselves, but for what leads the calls that go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Literal

from planner.analysis import Analysis
from planner.evidence import TurnEvidence
from planner.placeholders import (
    clean,
    entry_text,
    guide_text,
    history_key,
    line_numbers,
    media_marks,
    note_parts,
    preview_text,
)
from planner.plan import Layout, TurnDecision
from planner.reading.families import model_family
from planner.reading.history import History, Turn
from planner.reading.messages import THINKING, Block, Message, blocks, media_mark, plain_message

__all__ = [
    "ThinkingPolicy",
    "inner_mark",
    "joined_messages",
    "lay_out",
    "lead_tokens",
    "thinking_policy",
    "without_thinking",
]

ThinkingPolicy = Literal["strip", "leave"]


def lay_out(
    analysis: Analysis, decisions: Mapping[str, TurnDecision], *, brief: str, model: str, restore_tool: str
) -> Layout:
    """The layout of `decisions`, one for each turn, for a view that `model` reads. `brief` opens the first note.

    `restore_tool` is the tool by which the reader gets a turn back; empty if it has none.
    """
    history, evidence, counter = analysis.history, analysis.evidence, analysis.counter
    entries = {
        turn.id: entry_text(evidence, decisions[turn.id], media_marks(history, evidence.turns[turn.id]))
        for turn in history.turns
        if not turn.live and decisions[turn.id].strategy != "keep"
    }
    first, thinking, lead = _first_changed(history, decisions), thinking_policy(model), None
    if thinking == "leave" and first is not None:
        lead = leading_turn(history, lambda turn: turn.id not in entries)
    strip_behind = first if thinking == "strip" and first is not None else math.inf
    view: list[tuple[Message, object]] = []
    key, opening = history_key(history), [clean(brief)]
    for stands, turns in _runs(history, entries, lead):
        if stands:
            view += (
                pair
                for turn in turns
                for pair in _kept(history, evidence.turns[turn.id], decisions, strip_behind, restore_tool)
            )
            continue
        parts = [*opening, *(entries[turn.id] for turn in turns)]
        if opening:
            parts.insert(0, guide_text([*opening, *entries.values()], turns[0].id, evidence.root, restore_tool))
        leads = turns[-1] is lead
        if any(parts) or _parts_messages(history, turns) or (leads and len(turns) > 1):
            text = "\n".join(note_parts(key, [turn.id for turn in turns], parts))
            note: Message = {"role": "user", "content": [{"type": "text", "text": text}]}
            view.append((note, note))
        if leads:
            view += ((message, message) for message in lead_messages(history, turns[-1]))
        key, opening = "", []
    messages = joined_messages((), (sent for _, sent in view))
    pairs = zip(reversed(messages), reversed(history.originals), strict=False)
    untouched = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    return Layout(tuple(messages), counter.messages(plain for plain, _ in view), first, untouched, entries)


def _parts_messages(history: History, turns: Sequence[Turn]) -> bool:
    """True if what stands around a note may not meet, even if the note says nothing.

    A system message: with nothing of the user before it, the API may refuse it. Thinking behind an answer: joined with
    that it would no longer lead its message.
    """
    before = history.messages[turns[0].start - 1 : turns[0].start]
    behind = history.messages[turns[-1].stop : turns[-1].stop + 1]
    answered = any(message["role"] == "assistant" for message in before)
    return any(m["role"] == "system" or (answered and leads_with_thinking(m)) for m in behind)


def _first_changed(history: History, decisions: Mapping[str, TurnDecision]) -> int | None:
    changed = (turn for turn in history.turns if decisions[turn.id].strategy != "keep")
    return next((turn.start + (turn.live and turn.kind == "tools") for turn in changed), None)


def _runs(history: History, gone: Collection[str], lead: Turn | None) -> Iterator[tuple[bool, list[Turn]]]:
    """Neighbours that stand, or that a note stands for; no note goes on behind `lead`, whose calls follow it."""
    last = lead.number if lead is not None else len(history.turns)
    for (leaves, _), run in groupby(history.turns, lambda turn: (turn.id in gone, turn.number > last)):
        yield not leaves, list(run)


def _kept(
    history: History,
    evidence: TurnEvidence,
    decisions: Mapping[str, TurnDecision],
    strip_behind: float,
    restore_tool: str,
) -> Iterator[tuple[Message, object]]:
    """The messages of one turn that stay, and each as the view has it: the caller's object where nothing changed."""
    turn, decision, place = evidence.turn, decisions[evidence.turn.id], 0
    for at in range(turn.start, turn.stop):
        own = history.messages[at]
        message = own if decision.strategy == "keep" else _demoted(own, place, evidence, decision, restore_tool)
        place += len(blocks(own))
        left = without_thinking(message) if at > strip_behind else message
        if left is not None:
            yield left, history.originals[at] if left is own else left


def lead_tokens(analysis: Analysis, model: str) -> int:
    """What a view for `model` holds of a call before the live tail, because its thinking leads the calls there."""
    leaves = thinking_policy(model) == "leave"
    lead = leading_turn(analysis.history, lambda turn: turn.live) if leaves else None
    return analysis.counter.messages(lead_messages(analysis.history, lead)) if lead is not None else 0


def lead_messages(history: History, turn: Turn) -> tuple[Message, ...]:
    """The calls of `turn` with the thinking that leads them; of their results nothing: the note before has them."""
    shown = f"[{turn.id}: in the record above]"
    messages: list[Message] = []
    for message in history.messages_of(turn):
        if message["role"] == "user":
            results = [block for block in blocks(message) if block["type"] == "tool_result"]
            message = {**message, "content": [{**result, "content": shown} for result in results]}
        messages.append(message)
    return tuple(messages)


def _demoted(
    message: Message, first: int, evidence: TurnEvidence, decision: TurnDecision, restore_tool: str
) -> Message:
    """`message` of the live tail, whose blocks count from `first`, with the text of each result and of what the user
    pasted cut to the excerpts; its images and marks stay, and a document leaves a mark."""
    chosen = line_numbers(decision.excerpts, len(evidence.lines))
    results = {call.result_block for call in evidence.calls}
    content = []
    for place, block in enumerate(blocks(message), first):
        if place in results:
            shown = _preview(evidence, block, place, chosen, restore_tool)
            block = {**block, **inner_mark(block), "content": shown}
        elif block["type"] == "text" and not chosen.issuperset(line.number for line in evidence.lines_of(place)):
            block = {**block, "text": preview_text(evidence, place, chosen, restore_tool)}
        content.append(block)
    if all(new is old for new, old in zip(content, blocks(message), strict=True)):
        return message
    return {**message, "content": content}


def _preview(
    evidence: TurnEvidence, block: Block, place: int | None, chosen: set[int], restore_tool: str
) -> str | list[Block]:
    text = preview_text(evidence, place, chosen, restore_tool)
    inside = block.get("content")
    items = inside if isinstance(inside, list) else []
    images = [item for item in items if item.get("type") == "image"]
    others = [clean(media_mark(item)) for item in items if item.get("type") != "image"]
    text = "\n".join(filter(None, (text, *others)))
    return [{"type": "text", "text": text}, *images] if images else text


def inner_mark(block: Block) -> Block:
    """The cache mark that stands inside the result: on the result itself, once its content gives way."""
    inside = block.get("content")
    items = inside if isinstance(inside, list) and "cache_control" not in block else []
    marks = [item["cache_control"] for item in items if isinstance(item, dict) and "cache_control" in item]
    return {"cache_control": marks[-1]} if marks else {}


def joined_messages(view: Sequence[Any], more: Iterable[object]) -> list[Any]:
    """`view` with `more` behind it; neighbours of one role become one message, others stay the same objects.

    A system message inside the list keeps its place behind the user's and before the assistant's: the API refuses one
    between two messages of the user, and two in a row.
    """
    messages = list(view)
    for message in more:
        at = len(messages) - 1
        if _role(message) == "user":
            while at > 0 and _role(messages[at]) == "system" and _role(messages[at - 1]) in ("user", "system"):
                at -= 1
        if messages and _role(messages[at]) == _role(message):
            messages[at] = _merged(messages[at], message)
        else:
            messages.append(message)
    return messages


def _role(message: Any) -> str:
    return str(message["role"] if isinstance(message, dict) else message.role)


def _merged(first: Any, second: Any) -> Message:
    left, right = plain_message(first), plain_message(second)
    content = [*blocks(left), *blocks(right)]
    return {**left, "content": sorted(content, key=_is_behind_results) if left["role"] == "user" else content}


def _is_behind_results(block: Block) -> bool:
    """True for what has to stand behind a user message's tool results; a list that was broken stays no worse."""
    return bool(block["type"] != "tool_result")


def thinking_policy(model: str) -> ThinkingPolicy:
    """``strip`` for models with preserved thinking and unknown ones, ``leave`` for those that drop it themselves."""
    return "strip" if model_family(model).preserves_thinking else "leave"


def without_thinking(message: Message) -> Message | None:
    """`message` without its thinking blocks: the same object if it has none, None if nothing else was in it."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    rest = [block for block in content if block["type"] not in THINKING]
    if len(rest) == len(content):
        return message
    return {**message, "content": rest} if rest else None


def leading_turn(history: History, stands: Callable[[Turn], bool]) -> Turn | None:
    """The turn whose thinking must lead the last calls of a view in which only turns that `stands` are messages; mostly
    None.

    Manual thinking comes once, before the first call of a run, and without it the API refuses the last ("Expected
    `thinking` …, but found `tool_use`"). In a view notes and the user's words are text behind results, so a run there
    goes back over kept calls to the last kept answer.
    """
    messages, standing = history.messages, [turn for turn in history.turns if stands(turn)]
    shown = (at for turn in reversed(standing) for at in reversed(range(turn.start, turn.stop)))
    last = next((at for at in shown if messages[at]["role"] == "assistant"), -1)
    if (
        last < 0
        or leads_with_thinking(messages[last])
        or all(block["type"] != "tool_use" for block in blocks(messages[last]))
    ):
        return None
    first = last
    for turn in reversed(standing):
        if turn.stop <= last and turn.kind != "user":
            if turn.kind != "tools":
                break
            first = turn.start
    while first > 0 and not leads_with_thinking(messages[first]) and not _is_words(messages[first - 1]):
        first -= 1
    found = next((turn for turn in history.turns if turn.start == first and turn.kind == "tools"), None)
    return found if found is not None and leads_with_thinking(messages[first]) and not stands(found) else None


def leads_with_thinking(message: Message) -> bool:
    """True for a message of the assistant that begins with thinking."""
    return message["role"] == "assistant" and any(block["type"] in THINKING for block in blocks(message)[:1])


def _is_words(message: Message) -> bool:
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))
