"""What the server asks of a request before it answers; and what an edit of an earlier request breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from applier.testing.api_request import BOUND_THINKING, THINKING_TYPES, Block, Request, Violation
from applier.testing.call_rules import CALL_RULES
from applier.testing.prompt_cache import request_tokens
from applier.testing.shape_rules import SHAPE_RULES
from applier.testing.thinking_rules import (
    THINKING_RULES,
    last_answer,
    latest_thinking_is_whole,
    thinking_and_rest,
    without_unbound_thinking,
)

__all__ = ["judge", "judge_edit"]

MAX_BODY_BYTES = 32 * 2**20
_RULES = (*SHAPE_RULES, *CALL_RULES, *THINKING_RULES)


def judge(
    request: Request, window_tokens: int | None = None, issued: Mapping[str, list[list[str]]] | None = None
) -> tuple[Violation, ...]:
    """What the API would answer 400 to, the first one first; nothing for a request it takes.

    `issued` is the thinking of the server's own answers (see `latest_thinking_is_whole`).
    """
    if problem := request.is_well_formed():
        return (Violation(0, problem),)
    if len(request.raw) > MAX_BODY_BYTES:
        return (Violation(20, "Request exceeds the maximum size", 413),)
    broken = [Violation(number, message) for number, rule in _RULES for message in rule(request)]
    broken += [Violation(10, message) for message in latest_thinking_is_whole(request, issued or {})]
    if not broken and window_tokens is not None:
        tokens = request_tokens(without_unbound_thinking(request))
        if tokens > window_tokens:
            return (Violation(22, f"prompt is too long: {tokens} tokens > {window_tokens} maximum"),)
    return tuple(broken)


def judge_edit(before: Request, after: Request) -> tuple[Violation, ...]:
    """Which blocks of `after` the API no longer takes, because they came with `before` and something changed.

    Blocks that `before` does not hold are new and not judged; rules 10, 11, 14 and 23, by number. Whoever sealed the
    blocks; knows nothing of how the second was made.
    """
    thinking, rest = thinking_and_rest(last_answer(before)[1])
    latest = latest_thinking_is_whole(after, {rest: [thinking]})
    return (*(Violation(10, message) for message in latest), *_sealed_blocks_are_unmodified(before, after))


def _sealed_blocks_are_unmodified(before: Request, after: Request) -> Iterator[Violation]:
    """Rules 11 and 14: a signature has its text, and stands behind what it was issued behind; rule 23: a ``compaction``
    block is byte-exact."""
    known: dict[str, list[tuple[Block, str]]] = {}
    for at, index, block in before.blocks():
        known.setdefault(_seal(block), []).append((block, before.bindings[at, index]))
    binds = after.version >= BOUND_THINKING and not after.drops_unbound_thinking
    for at, index, block in after.blocks():
        kind, place = block["type"], f"messages.{at}.content.{index}"
        same = known.get(_seal(block), ()) if _seal(block) else ()
        if not same:
            continue
        if kind == "compaction" and all(block != other for other, _ in same):
            yield Violation(23, f"{place}: the `compaction` block was changed")
        if kind == "thinking" and all(block["thinking"] != other.get("thinking") for other, _ in same):
            yield Violation(11, f"{place}: Invalid `signature` in `thinking` block")
        if binds and kind in THINKING_TYPES and all(after.bindings[at, index] != binding for _, binding in same):
            yield Violation(14, f"{place}: the block is bound to a different conversation")


def _seal(block: Block) -> str:
    return str(block.get("signature") or block.get("data") or block.get("encrypted_content") or "")
