"""What stands where once a plan is applied: kept turns as they are, notes for the rest, and their exact sizes.

Pure: the same decisions over the same history give the same outline. Makes no API list; that is the view's part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.evidence import Evidence, TurnEvidence
from planner.layout.placeholders import (
    clean,
    entry_text,
    excerpt_numbers,
    facts_text,
    guide_text,
    history_key,
    note_text,
)
from planner.layout.thinking import ThinkingPolicy, without_thinking
from planner.plan import ExtractedFact, TurnDecision
from planner.reading.history import History, Turn
from planner.reading.messages import Block, Message, blocks
from planner.reading.tokens import TokenCounter

__all__ = ["Kept", "Note", "Outline", "Segment", "draw_outline"]


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

    @cached_property
    def block(self) -> Block:
        """The note as a text block."""
        return {"type": "text", "text": self.text}


Segment = Kept | Note


@dataclass(frozen=True)
class Outline:
    """Kept turns and notes, in order."""

    segments: tuple[Segment, ...]
    first_changed: int | None
    """Index of the first message that is not as it was; None if nothing changed."""
    entries: Mapping[str, str]
    """What the notes say of each turn that they stand for, by turn id."""

    def tokens(self, counter: TokenCounter) -> int:
        """Of the whole view."""
        return sum(
            counter.block(segment.block) if isinstance(segment, Note) else counter.messages(segment.messages)
            for segment in self.segments
        )


def draw_outline(
    history: History,
    evidence: Evidence,
    decisions: Mapping[str, TurnDecision],
    facts: Sequence[ExtractedFact] = (),
    thinking: ThinkingPolicy = "strip",
) -> Outline:
    """The outline of `decisions`; a turn without a decision is kept."""
    first = _first_changed(history, decisions)
    entries = {
        turn.id: entry_text(evidence, decisions[turn.id])
        for turn in history.turns
        if not _stands(turn, decisions.get(turn.id))
    }
    segments: list[Segment] = []
    first_note = True
    for kept, turns in _runs(history, decisions):
        if kept:
            segments += [_kept(history, evidence.turns[t.id], decisions.get(t.id), first, thinking) for t in turns]
        else:
            said = [entries[turn.id] for turn in turns]
            if first_note:
                guide = guide_text(entries.values(), turns[0].id, evidence.root)
                said = [guide, _front(evidence, decisions, facts, entries), *said]
            key = history_key(history) if first_note else ""
            segments.append(Note(tuple(turns), note_text(key, [turn.id for turn in turns], said)))
            first_note = False
    return Outline(tuple(segments), first, entries)


def _stands(turn: Turn, decision: TurnDecision | None) -> bool:
    """True if the turn's messages stay in the view, whole or (in the live tail) with results demoted."""
    return decision is None or decision.strategy == "keep" or turn.live


def _first_changed(history: History, decisions: Mapping[str, TurnDecision]) -> int | None:
    for turn in history.turns:
        decision = decisions.get(turn.id)
        if decision is not None and decision.strategy != "keep":
            return turn.start + 1 if turn.live and turn.kind == "tools" else turn.start
    return None


def _runs(history: History, decisions: Mapping[str, TurnDecision]) -> Iterator[tuple[bool, list[Turn]]]:
    run: list[Turn] = []
    kept = True
    for turn in history.turns:
        stands = _stands(turn, decisions.get(turn.id))
        if run and stands != kept:
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
) -> Kept:
    turn = evidence.turn
    messages: list[Message] = []
    originals: list[object] = []
    for at in range(turn.start, turn.stop):
        plain: Message | None = history.messages[at]
        if decision is not None and decision.strategy != "keep":
            plain = _demoted(plain, evidence, decision) if plain else None
        if plain is not None and thinking == "strip" and first_changed is not None and at > first_changed:
            plain = without_thinking(plain)
        if plain is not None:
            messages.append(plain)
            originals.append(history.originals[at] if plain is history.messages[at] else plain)
    return Kept(turn, tuple(messages), tuple(originals))


def _demoted(message: Message, evidence: TurnEvidence, decision: TurnDecision) -> Message:
    """`message` of the live tail with each result cut to the excerpts, and a word on how to get it whole."""
    results = [b for b in blocks(message) if b["type"] == "tool_result"]
    if not results:
        return message
    chosen = excerpt_numbers(decision)
    preview = {call.result_block: call for call in evidence.calls}
    places = {id(call.result): place for place, call in preview.items()}
    content = [
        {**block, "content": _preview(evidence, places[id(block)], chosen)} if id(block) in places else block
        for block in blocks(message)
    ]
    return {**message, "content": content}


def _preview(evidence: TurnEvidence, block: int | None, chosen: set[int]) -> str:
    lines = [line for line in evidence.lines if line.block == block]
    shown = [line for line in lines if line.number in chosen]
    note = f'[{len(lines) - len(shown)} lines left out here; restore_context("{evidence.turn.id}") returns all]'
    text = "".join(
        ("" if at and line.continues and shown[at - 1].number == line.number - 1 else "\n" * (at > 0))
        + ("…" if at and shown[at - 1].number != line.number - 1 else "")
        + clean(line.text)
        for at, line in enumerate(shown)
    )
    return f"{text}\n{note}" if text.strip() else note


def _front(
    evidence: Evidence,
    decisions: Mapping[str, TurnDecision],
    facts: Sequence[ExtractedFact],
    entries: Mapping[str, str],
) -> str:
    failed = [d.turn_id for d in decisions.values() if d.failed_approach and d.strategy != "keep"]
    shown = [fact for fact in facts if fact.in_view]
    standing = "\n".join(entries.values()) if shown else ""
    return facts_text(evidence, shown, failed, standing)
