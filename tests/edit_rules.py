"""What an edit of an earlier request breaks: thinking and compaction blocks are bound to what they came with.

Compares two lists; knows nothing of how the second was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from planner.reading.families import model_family
from planner.reading.messages import Block, Message, blocks, message_digest, plain_message
from planner.validity.request import THINKING, Violation, place_of

__all__ = ["check_edit"]


def check_edit(before: Sequence[object], after: Sequence[object], model: str = "") -> list[Violation]:
    """Which blocks of `after` the API no longer takes, because they came with `before` and something changed.

    Blocks that `before` does not hold are new and not judged. An empty `model` is a current Claude.

    Raises:
        TranscriptError: an entry is not a message at all.
    """
    old = [plain_message(message, place_of(at)) for at, message in enumerate(before)]
    new = [plain_message(message, place_of(at)) for at, message in enumerate(after)]
    found = [*_latest_thinking_is_unmodified(old, new), *_signatures_match(old, new)]
    if model_family(model).preserves_thinking:
        found += _thinking_keeps_its_prefix(old, new)
    return sorted([*found, *_compaction_is_unmodified(old, new)], key=lambda violation: violation.rule)


def _latest_thinking_is_unmodified(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Violation]:
    """Rule 10: thinking of the latest assistant message: unmodified, whole, in order."""
    was, now = _latest(old), _latest(new)
    if was is None or now is None or not _same_words(old[was], new[now]):
        return
    thought = _thinking(new[now])
    if thought and thought != _thinking(old[was]):
        cure = "send all of this message's thinking back as it came"
        yield Violation(10, place_of(now), "its thinking was changed", cure, "changed_thinking")


def _signatures_match(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Violation]:
    """Rule 11: a signature must match its text."""
    known = {_seal(block): block for _, _, block in _all(old) if block["type"] == "thinking"}
    for at, index, block in _all(new):
        original = known.get(_seal(block)) if block["type"] == "thinking" else None
        if original is not None and original.get("thinking") != block.get("thinking"):
            cure = "put its own text back, or remove the block"
            yield Violation(11, place_of(at, index), "a signature of another text", cure, "foreign_signature")


def _thinking_keeps_its_prefix(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Violation]:
    """Rule 14: a thinking block is valid only while every message before it is unchanged."""
    known = {_seal(block) for _, _, block in _all(old) if block["type"] in THINKING}
    pairs = zip(_flat(old), _flat(new), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    for number, (at, index, block) in enumerate(_all(new)):
        if number >= same and block["type"] in THINKING and _seal(block) in known:
            cure = "remove all thinking behind the first change, or send prefix_mismatch_behavior drop_block"
            yield Violation(14, place_of(at, index), "what comes before it has changed", cure, "unbound_thinking")


def _compaction_is_unmodified(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Violation]:
    """Rule 23: a server ``compaction`` block is byte-exact."""
    known = [block for _, _, block in _all(old) if block["type"] == "compaction"]
    seals = {_seal(block) for block in known}
    for at, index, block in _all(new):
        if block["type"] == "compaction" and block not in known and _seal(block) in seals - {""}:
            cure = "send it back as it came"
            yield Violation(23, place_of(at, index), "the compaction block was changed", cure, "compaction_changed")


def _all(messages: Sequence[Message]) -> Iterator[tuple[int, int, Block]]:
    for at, message in enumerate(messages):
        for index, block in enumerate(blocks(message)):
            yield at, index, block


def _flat(messages: Sequence[Message]) -> Iterator[str]:
    """A digest of each block with its role: neighbours of one role read as one message, as the API reads them."""
    for message in messages:
        for block in blocks(message):
            yield message_digest({"role": message["role"], "content": [block]})


def _latest(messages: Sequence[Message]) -> int | None:
    found = (at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant")
    return next(found, None)


def _thinking(message: Message) -> list[Block]:
    return [block for block in blocks(message) if block["type"] in THINKING]


def _same_words(one: Message, other: Message) -> bool:
    """True if both are the same message but for thinking: an edit of it, not another message."""
    rest = [[block for block in blocks(message) if block["type"] not in THINKING] for message in (one, other)]
    return message_digest({"role": "", "content": rest[0]}) == message_digest({"role": "", "content": rest[1]})


def _seal(block: Block) -> str:
    return str(block.get("signature") or block.get("data") or block.get("encrypted_content") or "")
