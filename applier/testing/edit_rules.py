"""What an edit of an earlier request breaks: thinking and compaction blocks are bound to what they came with.

Compares two requests, whoever sealed their blocks; knows nothing of how the second was made.
"""

from __future__ import annotations

from collections.abc import Iterator

from applier.testing.api_request import THINKING_TYPES, Block, Request, Violation, blocks_of, canonical

__all__ = ["judge_edit"]


def judge_edit(before: Request, after: Request) -> tuple[Violation, ...]:
    """Which blocks of `after` the API no longer takes, because they came with `before` and something changed.

    Blocks that `before` does not hold are new and not judged; rules 10, 11, 14 and 23, by number.
    """
    return (
        *_latest_thinking_is_unmodified(before, after),
        *_signatures_have_their_text(before, after),
        *_thinking_stays_where_it_was(before, after),
        *_compaction_blocks_are_unmodified(before, after),
    )


def _latest_thinking_is_unmodified(before: Request, after: Request) -> Iterator[Violation]:
    """Rule 10: thinking of the latest assistant message is whole, unmodified and in order, or all left out."""
    (_, was), (at, now) = (_latest(request) for request in (before, after))
    parts = [([b for b in own if _thinks(b)], [canonical(b) for b in own if not _thinks(b)]) for own in (was, now)]
    (thought, words), (thinks, same) = parts
    if thinks and words == same and thinks != thought:
        yield Violation(10, f"messages.{at}: `thinking` blocks in the latest assistant message cannot be modified")


def _latest(request: Request) -> tuple[int, list[Block]]:
    places = [at for at, message in enumerate(request.messages) if message["role"] == "assistant"]
    return (places[-1], blocks_of(request.messages[places[-1]]["content"])) if places else (-1, [])


def _signatures_have_their_text(before: Request, after: Request) -> Iterator[Violation]:
    """Rule 11: a signature matches its text."""
    texts = {_seal(block): block["thinking"] for _, _, block in before.blocks() if block["type"] == "thinking"}
    for at, index, block in after.blocks():
        if block["type"] == "thinking" and texts.get(_seal(block), block["thinking"]) != block["thinking"]:
            yield Violation(11, f"messages.{at}.content.{index}: Invalid `signature` in `thinking` block")


def _thinking_stays_where_it_was(before: Request, after: Request) -> Iterator[Violation]:
    """Rule 14: a thinking block is valid only while everything before it is unchanged."""
    if not after.model.binds_thinking or after.drops_unbound_thinking:
        return
    known: dict[str, set[str]] = {}
    for at, index, block in before.blocks():
        if _thinks(block):
            known.setdefault(_seal(block), set()).add(before.bindings[at, index])
    for at, index, block in after.blocks():
        places = known.get(_seal(block)) if _thinks(block) else None
        if places is not None and after.bindings[at, index] not in places:
            yield Violation(14, f"messages.{at}.content.{index}: the block is bound to a different conversation")


def _compaction_blocks_are_unmodified(before: Request, after: Request) -> Iterator[Violation]:
    """Rule 23: a server's ``compaction`` block is byte-exact."""
    known = [block for _, _, block in before.blocks() if block["type"] == "compaction"]
    seals = {_seal(block) for block in known} - {""}
    for at, index, block in after.blocks():
        if block["type"] == "compaction" and block not in known and _seal(block) in seals:
            yield Violation(23, f"messages.{at}.content.{index}: the `compaction` block was changed")


def _thinks(block: Block) -> bool:
    return block["type"] in THINKING_TYPES


def _seal(block: Block) -> str:
    return str(block.get("signature") or block.get("data") or block.get("encrypted_content") or "")
