"""Tier that removes pictures from a request with more of them, or more bytes, than the provider accepts.

Old pictures in tool results are removed first, pictures that the user showed last. Their originals are in the store; a
mark and the text of the result remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from applier.session.edits import Edits, Place, with_texts
from applier.session.history_tracker import Load, picture_load
from applier.session.pressure import MediaLimits
from applier.session.tiers import Situation
from planner.placeholders import clean, media_mark
from planner.reading.media import MANY_IMAGES, source_data
from planner.reading.messages import Block, blocks, pictures_in, plain_message, readable_text

ROOM_SHARE = 0.5
"""Share of a limit that pictures may fill after a removal. The free rest makes removals rare, as after each of them the
provider must read the list again without its cache."""
TEXT_CHARACTERS = 2_000
"""Largest length of the text that remains of a tool result with a removed picture."""
REMOVED_FROM_HEAD = "[picture removed, its turn is stored]"
"""Line below the text that remains of a picture in the compacted part."""


@dataclass(frozen=True, slots=True)
class _PictureBlock:
    """Block of the sent list that contains pictures, as a candidate for removal."""

    place: Place
    """Index of the block's message (below zero in the compacted part: -1 is its last message), and of the block."""
    block: Block
    load: Load
    rank: tuple[int, Place]
    """Sort key for the removal: tool results, the user's pictures, then unanswered messages; oldest first."""


def fit_pictures(situation: Situation) -> Edits | None:
    """Remove pictures until the request, which has too many, has no more pictures and bytes than the provider accepts;
    None if there are none to remove."""
    limits, load, tracker, frame = situation.limits, situation.load, situation.tracker, situation.frame
    candidates = [  # of the compacted part, with places below zero, and of the later messages
        *_picture_blocks(frame.head, -len(frame.head), situation),
        *_picture_blocks(tracker.plain[frame.start :], frame.start, situation),
    ]
    removed = _pictures_to_remove(sorted(candidates, key=lambda block: block.rank), limits, load)
    if not removed:
        return None
    texts = {block.place: _text_of(block.block) for block in removed}
    in_head = {place: f"{clean(text)}\n{REMOVED_FROM_HEAD}" for place, text in texts.items() if place[0] < 0}
    head = tuple(with_texts(message, in_head, at) for at, message in enumerate(frame.head, -len(frame.head)))
    count = sum(block.load.images for block in removed)
    return Edits(
        f"{count} pictures: {load.images} pictures and {load.size:,} bytes are more than a request may have",
        placeholders={place: text for place, text in texts.items() if place[0] >= 0},
        head=head if in_head else (),
    )


def _picture_blocks(messages: Sequence[object], start: int, situation: Situation) -> Iterator[_PictureBlock]:
    """Yield the blocks with pictures in the user's messages among `messages`. `start`: index of the first of them."""
    live_start, replaced = situation.tracker.live_start, situation.frame.placeholders
    for at, message in enumerate(map(plain_message, messages), start):
        for number, block in enumerate(blocks(message)):
            pictures = [] if (at, number) in replaced else [*pictures_in([block])]
            load = sum(map(picture_load, pictures), Load(size=sum(len(source_data(picture)) for picture in pictures)))
            if load.images and message["role"] == "user":
                is_unanswered, of_user = at >= max(live_start, 0), block["type"] != "tool_result"
                kind_rank = (2 if is_unanswered else 0) + (1 if of_user else 0)
                yield _PictureBlock((at, number), block, load, (kind_rank, (at, number)))


def _pictures_to_remove(candidates: Sequence[_PictureBlock], limits: MediaLimits, load: Load) -> list[_PictureBlock]:
    """Return the blocks to remove, so that a request with this `load` of pictures and bytes is within `limits`. First
    come pictures that are too large alone. Then, as a request with more than `MANY_IMAGES` may have no large picture,
    large ones in tool results. Then others in the order of `candidates`."""
    removed = [block for block in candidates if block.load.largest > limits.largest]
    load = _load_without(load, removed, limits)
    if load.large and load.images > MANY_IMAGES:
        of_tools = (block for block in candidates if block.block["type"] == "tool_result")
        large = [block for block in of_tools if block.load.large and block not in removed]
        removed, load = removed + large, _load_without(load, large, limits)
    has_large = load.large and load.images > MANY_IMAGES  # the user's: they stay, so the number must fall
    present_limits = replace(limits, images=MANY_IMAGES) if has_large else limits
    if present_limits.excess(replace(load, large=0)) <= 1:  # the request fits
        return removed
    for block in candidates:
        if present_limits.excess(replace(load, large=0)) <= ROOM_SHARE:
            break
        if block not in removed:
            removed, load = [*removed, block], _load_without(load, [block], limits)
    return removed


def _load_without(load: Load, removed: Sequence[_PictureBlock], limits: MediaLimits) -> Load:
    """Return what remains of `load` (number of pictures, bytes) without the blocks `removed`."""
    # `largest` cannot be subtracted; blocks with a too large picture are always removed together
    freed = sum((block.load for block in removed), Load())
    largest = 0 if freed.largest > limits.largest else load.largest
    return Load(load.images - freed.images, load.large - freed.large, load.size - freed.size, largest)


def _text_of(block: Block) -> str:
    """Return the text in place of a block with pictures: its own text, and a mark for each removed picture."""
    inner = block.get("content")
    parts = inner if isinstance(inner, list) else [block]
    marks = [mark for part in parts if isinstance(part, dict) and (mark := media_mark(part))]
    text = "\n".join(readable_text([part]) for part in parts if not (isinstance(part, dict) and media_mark(part)))
    return "\n".join(filter(None, [text[:TEXT_CHARACTERS], *marks]))
