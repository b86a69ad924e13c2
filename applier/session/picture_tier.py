"""Tier of pictures: chooses which to remove from a list with more pictures or bytes than a request may have.

Old pictures of tool results are removed first, the user's pictures last. The text and a mark remain, and a picture is
restored like any other result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from applier.session.frame import Edits, Place
from applier.session.media_load import MANY_IMAGES, Load, MediaLimits, picture_load, pictures_in
from applier.session.tiers import Situation
from planner.placeholders import clean
from planner.reading.media import media_mark, source_data
from planner.reading.messages import Block, blocks, plain_message, readable_text

__all__ = ["fit_pictures"]

ROOM_SHARE = 0.5
"""Share of a limit that stays in use after a removal, so that removals, which rewrite the cache, are rare."""
TEXT_CHARACTERS = 2_000
"""Length of the text that remains of a result whose picture is removed."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Block of the list that is sent, with its pictures."""

    place: Place
    """Message and block in the history; in the compacted part with a message below zero."""
    block: Block
    load: Load
    rank: tuple[int, Place]
    """Sort key of the order of removal."""


def fit_pictures(situation: Situation) -> Edits | None:
    """Remove pictures until the request is within the limits; None if it already is, or if there are none to remove."""
    limits, load, tracker, frame = situation.limits, situation.load, situation.tracker, situation.frame
    if limits.excess(load) <= 1:
        return None
    held = [
        *_held(frame.head, -len(frame.head), situation),
        *_held(tracker.plain[frame.start :], frame.start, situation),
    ]
    gone = _chosen(sorted(held, key=lambda one: one.rank), limits, load)
    if not gone:
        return None
    texts = {one.place: _text_of(one.block) for one in gone}
    cut = {place: text for place, text in texts.items() if place[0] < 0}
    count = sum(one.load.images for one in gone)
    return Edits(
        f"{count} pictures: {load.images} pictures and {load.size:,} bytes are more than a request may have",
        placeholders={place: text for place, text in texts.items() if place[0] >= 0},
        head=_without(frame.head, cut) if cut else (),
    )


def _held(messages: Sequence[object], start: int, situation: Situation) -> Iterator[_Held]:
    """Yield the blocks with pictures in messages that are sent from `start` of the history on."""
    live_start, replaced = situation.tracker.live_start, situation.frame.placeholders
    for at, message in enumerate(map(plain_message, messages), start):
        for number, block in enumerate(blocks(message)):
            pictures = () if (at, number) in replaced else pictures_in([block])
            load = sum(map(picture_load, pictures), Load())
            if load.images and message["role"] == "user":
                of_user, is_live = block["type"] != "tool_result", at >= live_start and at >= 0
                yield _Held((at, number), block, load, (2 * is_live + of_user, (at, number)))


def _chosen(held: Sequence[_Held], limits: MediaLimits, load: Load) -> list[_Held]:
    """Return the blocks to remove, in order: pictures that are refused by size or number, then the oldest."""
    gone = [one for one in held if one.load.largest > limits.largest]
    load = _less(load, gone, limits)
    if load.large and load.images > MANY_IMAGES:
        large = [one for one in held if one.load.large and one not in gone and one.block["type"] == "tool_result"]
        gone, load = gone + large, _less(load, large, limits)
    is_mixed = load.large and load.images > MANY_IMAGES
    most = replace(limits, images=MANY_IMAGES) if is_mixed else limits
    if most.excess(replace(load, large=0)) <= 1:
        return gone
    for one in held:
        if most.excess(replace(load, large=0)) <= ROOM_SHARE:
            break
        if one not in gone:
            gone, load = [*gone, one], _less(load, [one], limits)
    return gone


def _less(load: Load, gone: Sequence[_Held], limits: MediaLimits) -> Load:
    less = sum((one.load for one in gone), Load())
    size = sum(len(source_data(picture)) for one in gone for picture in pictures_in([one.block]))
    largest = 0 if less.largest > limits.largest else load.largest
    return Load(load.images - less.images, load.large - less.large, load.size - size, largest)


def _text_of(block: Block) -> str:
    """Return the remaining text: the block's own, and a mark for each picture."""
    inner = block.get("content")
    parts = inner if isinstance(inner, list) else [block]
    marks = [mark for part in parts if isinstance(part, dict) and (mark := media_mark(part))]
    text = "\n".join(readable_text([part]) for part in parts if not (isinstance(part, dict) and media_mark(part)))
    return "\n".join(filter(None, [text[:TEXT_CHARACTERS], *marks]))


def _without(head: Sequence[object], cut: dict[Place, str]) -> tuple[object, ...]:
    """Return `head` with texts that replace the blocks at these places."""
    made: list[object] = []
    for at, message in enumerate(head, -len(head)):
        numbers = {number for place, number in cut if place == at}
        if not numbers:
            made.append(message)
            continue
        plain = plain_message(message)
        content = [*blocks(plain)]
        for number in numbers:
            text = f"{clean(cut[at, number])}\n[picture removed, its turn is stored]"
            content[number] = _as_text(content[number], text)
        made.append({**plain, "content": content})
    return tuple(made)


def _as_text(block: Block, text: str) -> Block:
    return {**block, "content": text} if block["type"] == "tool_result" else {"type": "text", "text": text}
