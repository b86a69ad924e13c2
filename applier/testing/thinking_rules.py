"""Rules 10 to 14: thinking comes back as it was issued, where it was issued.

A signature seals a block's text and the conversation before it, so that any server can check it without memory.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from applier.testing.api_request import THINKING_TYPES, Block, Request, Violation, add_block, blocks_of, canonical

__all__ = ["THINKING_RULES", "IssuedThinking", "sealed", "without_unbound_thinking"]

_DIGEST = 64
"""Hex digits of each half of a seal: the text's, the conversation's."""


def sealed(request: Request, content: list[Block]) -> list[Block]:
    """`content`, an answer to `request`, with its thinking signed (redacted data: sealed) where it stands."""
    before = request.digest()
    issued = []
    for block in content:
        issued.append(_sealed(block, before.hexdigest()))
        add_block(before, "assistant", issued[-1])
    return issued


def _sealed(block: Block, binding: str) -> Block:
    if block["type"] == "thinking":
        seal = _digest(block["thinking"]) + binding
        return {"type": "thinking", "thinking": block["thinking"], "signature": seal}
    if block["type"] == "redacted_thinking":
        payload = base64.b64encode(str(block.get("data", "")).encode()).decode()
        return {"type": "redacted_thinking", "data": f"{payload}.{_digest(payload)}{binding}"}
    return block


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seal_of(block: Block) -> tuple[str, str]:
    """The sealed text of a thinking block, and its seal."""
    if block["type"] == "thinking":
        return str(block.get("thinking", "")), str(block.get("signature", ""))
    payload, _, seal = str(block.get("data", "")).partition(".")
    return payload, seal


class IssuedThinking:
    """The thinking of every answer given, to tell whether the latest one comes back whole (rule 10)."""

    def __init__(self) -> None:
        """Nothing issued yet."""
        self._issued: dict[str, list[list[str]]] = {}

    def remember(self, content: list[Block]) -> None:
        """Take note of an answer."""
        thinking, rest = _split(content)
        if thinking:
            self._issued.setdefault(rest, []).append(thinking)

    def check(self, request: Request) -> Iterator[Violation]:
        """Rule 10: thinking of the latest assistant message is whole, unmodified and in order, or all left out."""
        last = _last_assistant(request)
        if last is None:
            return
        thinking, rest = _split(blocks_of(request.messages[last]["content"]))
        known = self._issued.get(rest)
        if thinking and known is not None and thinking not in known:
            yield Violation(
                10,
                f"messages.{last}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                "modified. These blocks must remain as they were in the original response.",
            )


def _split(content: list[Block]) -> tuple[list[str], str]:
    thinking = [canonical(block) for block in content if block["type"] in THINKING_TYPES]
    return thinking, "".join(canonical(block) for block in content if block["type"] not in THINKING_TYPES)


def thinking_has_its_place(request: Request) -> Iterator[Violation]:
    """Rule 10: thinking stands in assistant messages, is never last, and leads a message that thinks manually."""
    merged = request.merged()
    for at, role, blocks in merged:
        kinds = [block["type"] in THINKING_TYPES for block in blocks]
        if not any(kinds):
            continue
        if role != "assistant":
            yield Violation(10, f"messages.{at}: `thinking` blocks can only be in `assistant` messages")
        elif all(kinds) or (kinds[-1] and at == merged[-1][0]):
            yield Violation(10, f"messages.{at}: The final block in an assistant message cannot be `thinking`.")
        elif not request.model.thinks_adaptively and request.thinking == "manual" and not kinds[0]:
            yield Violation(
                10,
                f"messages.{at}.content.0.type: If an assistant message contains any thinking blocks, the first block "
                "must be `thinking` or `redacted_thinking`. Found `text`.",
            )


def signatures_match_their_text(request: Request) -> Iterator[Violation]:
    """Rule 11: a signature matches its text."""
    for at, index, block in request.blocks("assistant"):
        if block["type"] in THINKING_TYPES:
            text, seal = _seal_of(block)
            if seal[:_DIGEST] != _digest(text):
                kind = "signature" if block["type"] == "thinking" else "data"
                yield Violation(11, f"messages.{at}.content.{index}: Invalid `{kind}` in `{block['type']}` block")


def manual_thinking_leads_the_last_calls(request: Request) -> Iterator[Violation]:
    """Rule 12: with manual thinking, the last assistant turn that calls tools starts with thinking.

    A run of calls and results is one assistant turn to the API: thinking before its first call will do, for the
    model only thinks again between calls when asked to interleave.
    """
    last = _last_assistant(request)
    if request.thinking != "manual" or request.model.thinks_adaptively or last is None:
        return
    if not any(block["type"] == "tool_use" for block in blocks_of(request.messages[last]["content"])):
        return
    start = last
    while start > 0 and not _are_words(request, start - 1):
        start -= 1
    run = [at for at in range(start, last + 1) if _speaks(request, at)]
    leads = [blocks_of(request.messages[at]["content"])[0]["type"] for at in (run[0], last)]
    if not any(kind in THINKING_TYPES for kind in leads):
        yield Violation(
            12,
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{leads[-1]}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`.",
        )


def no_thinking_while_it_is_off(request: Request) -> Iterator[Violation]:
    """Rule 13: with thinking off, the final assistant message holds none."""
    last = _last_assistant(request)
    if request.thinking != "off" or last is None:
        return
    if any(block["type"] in THINKING_TYPES for block in blocks_of(request.messages[last]["content"])):
        yield Violation(
            13,
            f"messages.{last}.content.0: When thinking is disabled, an `assistant` message in the final position "
            "cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request.",
        )


def thinking_is_bound_to_its_conversation(request: Request) -> Iterator[Violation]:
    """Rule 14: system, tools and every message before a thinking block are what it was issued behind."""
    if not request.model.binds_thinking or request.drops_unbound_thinking:
        return
    for at, index in _unbound(request):
        yield Violation(
            14,
            f"messages.{at}.content.{index}: Invalid `signature` in `thinking` block. The block is bound to a "
            "different conversation",
        )


def without_unbound_thinking(request: Request) -> Request:
    """`request` as the model sees it: thinking of another conversation is left out where the request asks for it."""
    if not (request.model.binds_thinking and request.drops_unbound_thinking):
        return request
    gone = set(_unbound(request))
    messages = [
        {
            **message,
            "content": [block for i, block in enumerate(blocks_of(message["content"])) if (at, i) not in gone],
        }
        for at, message in enumerate(request.messages)
    ]
    return Request({**request.body, "messages": messages}, request.headers, request.raw) if gone else request


def _unbound(request: Request) -> Iterator[tuple[int, int]]:
    """Places of thinking blocks that were not issued behind what stands before them."""
    for at, index, block in request.blocks("assistant"):
        if block["type"] in THINKING_TYPES:
            _, seal = _seal_of(block)
            if seal[_DIGEST:] != request.bindings[at, index]:
                yield at, index


def _last_assistant(request: Request) -> int | None:
    return next((at for at in reversed(range(len(request.messages))) if _speaks(request, at)), None)


def _speaks(request: Request, at: int) -> bool:
    message = request.messages[at]
    return message["role"] == "assistant" and bool(message["content"])


def _are_words(request: Request, at: int) -> bool:
    """True of a user message without results: a new turn begins behind it."""
    message = request.messages[at]
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks_of(message["content"]))


THINKING_RULES = (
    thinking_has_its_place,
    signatures_match_their_text,
    manual_thinking_leads_the_last_calls,
    no_thinking_while_it_is_off,
    thinking_is_bound_to_its_conversation,
)
