"""What stands where once a plan is applied: kept turns as they are, notes for the rest, and the exact sizes.

Pure: the same decisions over the same history give the same layout, and its list keeps the rules of the Messages API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from planner.decision import TurnDecision
from planner.evidence import Evidence, TurnEvidence
from planner.layout.placeholders import (
    clean,
    entry_text,
    excerpt_numbers,
    guide_text,
    history_key,
    media_marks,
    note_parts,
    preview_text,
)
from planner.layout.thinking import ThinkingPolicy, leading_turn, leads_with_thinking, without_thinking
from planner.reading.history import History, Turn
from planner.reading.lazy_property import lazy_property
from planner.reading.media import media_mark
from planner.reading.messages import Block, Message, blocks, plain_message
from planner.reading.tokens import TokenCounter

__all__ = ["Kept", "Layout", "Note", "inner_mark", "joined_messages", "lay_out", "lead_messages"]

MOST_SPANS = 6
"""Of runs of kept turns the guide names at most so many."""


@dataclass(frozen=True)
class Kept:
    """Messages of one turn that stay; ``originals`` are the caller's objects where nothing changed."""

    turn: Turn
    messages: tuple[Message, ...]
    originals: tuple[object, ...]


@dataclass(frozen=True)
class Note:
    """The stand-in of neighbouring turns."""

    turns: tuple[Turn, ...]
    text: str

    @property
    def block(self) -> Block:
        """The note as a text block."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True)
class Layout:
    """Kept turns and notes, in order."""

    segments: tuple[Kept | Note, ...]
    first_changed: int | None
    """Index of the first message that is not as it was; None if nothing changed."""
    entries: Mapping[str, str]
    """What the notes say of each turn that they stand for, by turn id."""
    tokens: int
    """Of the whole view."""
    originals: tuple[object, ...]
    """The messages of the history, as the caller holds them."""

    @lazy_property
    def messages(self) -> tuple[Any, ...]:
        """The view as a list for the Messages API; what did not change are the caller's own objects."""
        return tuple(joined_messages((), self._parts()))

    @lazy_property
    def untouched(self) -> int:
        """How many messages at the end of the view are the history's last ones, the very objects."""
        pairs = zip(reversed(self.messages), reversed(self.originals), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))

    def _parts(self) -> Iterator[object]:
        for segment in self.segments:
            if isinstance(segment, Note):
                yield {"role": "user", "content": [segment.block]}
            else:
                yield from segment.originals


def lay_out(
    history: History,
    evidence: Evidence,
    counter: TokenCounter,
    decisions: Mapping[str, TurnDecision],
    *,
    brief: str = "",
    thinking: ThinkingPolicy = "strip",
    restore_tool: str = "",
) -> Layout:
    """The layout of `decisions`; a turn without a decision is kept. `brief` opens the first note.

    `restore_tool` is the tool by which the reader gets a turn back; empty if it has none.
    """
    first = _first_changed(history, decisions)
    brief = clean(brief)
    entries = {
        turn.id: entry_text(evidence, decisions[turn.id], media_marks(history, evidence.turns[turn.id]))
        for turn in history.turns
        if not _stands(turn, decisions.get(turn.id))
    }
    lead = None
    if thinking == "leave" and first is not None:
        lead = leading_turn(history, lambda turn: _stands(turn, decisions.get(turn.id)))
    segments: list[Kept | Note] = []
    opening = True
    for kept, turns in _runs(history, decisions, lead):
        if kept:
            segments += [
                _kept(history, evidence.turns[turn.id], decisions.get(turn.id), first, thinking, restore_tool)
                for turn in turns
            ]
            continue
        parts = [entries[turn.id] for turn in turns]
        if opening:
            standing = _spans(history, decisions)
            guide = guide_text([brief, *entries.values()], turns[0].id, evidence.root, restore_tool, standing)
            parts = [guide, brief, *parts]
        leads = turns[-1] is lead
        if opening or any(parts) or _parts_messages(history, turns) or (leads and len(turns) > 1):
            key = history_key(history) if opening else ""
            text = counter.joined(note_parts(key, [turn.id for turn in turns], parts))
            segments.append(Note(tuple(turns), text))
            opening = False
        if leads:
            messages = lead_messages(history, turns[-1])
            segments.append(Kept(turns[-1], messages, messages))
    tokens = sum(
        counter.block(segment.block) if isinstance(segment, Note) else counter.messages(segment.messages)
        for segment in segments
    )
    return Layout(tuple(segments), first, entries, tokens, history.originals)


def _parts_messages(history: History, turns: Sequence[Turn]) -> bool:
    """True if what stands around a note may not meet, even if the note says nothing.

    A system message: with nothing of the user before it, the API may refuse it. Thinking behind an answer: joined with
    that it would no longer lead its message.
    """
    before = history.messages[turns[0].start - 1 : turns[0].start]
    behind = history.messages[turns[-1].stop : turns[-1].stop + 1]
    answered = any(message["role"] == "assistant" for message in before)
    return any(m["role"] == "system" or (answered and leads_with_thinking(m)) for m in behind)


def _stands(turn: Turn, decision: TurnDecision | None) -> bool:
    """True if the turn's messages stay in the view, whole or (in the live tail) with results demoted."""
    return decision is None or decision.strategy == "keep" or turn.live


def _spans(history: History, decisions: Mapping[str, TurnDecision]) -> str:
    """The turns that stay as messages, as runs: ``t1, t40-t52``; only so many runs as tell where one is."""
    runs = [turns for kept, turns in _runs(history, decisions) if kept]
    names = [turns[0].id if len(turns) == 1 else f"{turns[0].id}-{turns[-1].id}" for turns in runs]
    return ", ".join(names if len(names) <= MOST_SPANS else [*names[: MOST_SPANS - 1], "…", names[-1]])


def _first_changed(history: History, decisions: Mapping[str, TurnDecision]) -> int | None:
    for turn in history.turns:
        decision = decisions.get(turn.id)
        if decision is not None and decision.strategy != "keep":
            return turn.start + 1 if turn.live and turn.kind == "tools" else turn.start
    return None


def _runs(
    history: History, decisions: Mapping[str, TurnDecision], lead: Turn | None = None
) -> Iterator[tuple[bool, list[Turn]]]:
    """Neighbours that stand, or that a note stands for; no note goes on behind `lead`, whose calls follow it."""
    run: list[Turn] = []
    kept = True
    for turn in history.turns:
        stands = _stands(turn, decisions.get(turn.id))
        if run and (stands != kept or (not kept and run[-1] is lead)):
            yield kept, run
            run = []
        kept = stands
        run.append(turn)
    if run:
        yield kept, run


def _kept(
    history: History,
    evidence: TurnEvidence,
    decision: TurnDecision | None,
    first_changed: int | None,
    thinking: ThinkingPolicy,
    restore_tool: str,
) -> Kept:
    turn = evidence.turn
    messages: list[Message] = []
    originals: list[object] = []
    for at in range(turn.start, turn.stop):
        plain: Message | None = history.messages[at]
        if decision is not None and decision.strategy != "keep":
            plain = _demoted(plain, evidence, decision, restore_tool) if plain else None
        if plain is not None and thinking == "strip" and first_changed is not None and at > first_changed:
            plain = without_thinking(plain)
        if plain is not None:
            messages.append(plain)
            originals.append(history.originals[at] if plain is history.messages[at] else plain)
    return Kept(turn, tuple(messages), tuple(originals))


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


def _demoted(message: Message, evidence: TurnEvidence, decision: TurnDecision, restore_tool: str) -> Message:
    """`message` of the live tail with the text of each result cut to the excerpts; its images and marks stay, and a
    document leaves a mark."""
    chosen = excerpt_numbers(decision, len(evidence.lines))
    places = {id(call.result): call.result_block for call in evidence.calls}
    content = [
        {**block, **inner_mark(block), "content": _preview(evidence, block, places[id(block)], chosen, restore_tool)}
        if id(block) in places
        else block
        for block in blocks(message)
    ]
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
