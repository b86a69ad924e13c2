"""Judges a request by all rules of the API; this file has rules 10 to 14, on thinking (the model's reasoning), and 22.

Thinking must be sent back unchanged and at its place. To check this without a record of its answers, the test server
signs each thinking block: the signature has a digest of its text and a digest of the conversation before it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from applier.testing.api_forms import (
    ADAPTIVE_THINKING,
    BOUND_THINKING,
    THINKING_TYPES,
    Block,
    PlacedBlock,
    Refusal,
    Request,
    blocks_of,
    canonical,
    chained,
)
from applier.testing.judge_rules import RULES
from applier.testing.prompt_cache import request_tokens

MAX_BODY_BYTES = 32 * 2**20
"""Size of the largest request."""
_DIGEST = 64
"""Number of hex digits of a digest; a signature of thinking consists of two (`_sealed`)."""


def judge(
    request: Request | Mapping[str, Any],
    window_tokens: int | None = None,
    issued: Mapping[str, list[list[str]]] | None = None,
) -> tuple[Refusal, ...]:
    """Return the reasons why the API would refuse `request`; empty if it would accept it. A dict counts as the body of
    a request without headers. With `window_tokens` (size of the context window), a longer prompt is refused, too.

    `issued`: thinking in the answers that the server sent, to check that a request repeats it whole. The key is the
    other content of an answer, as `thinking_and_rest` returns it; the value has the thinking blocks of each answer with
    this content.
    """
    request = Request(request, {}) if isinstance(request, Mapping) else request
    if problem := request.shape_problem():
        return (Refusal(0, problem),)
    if len(request.raw) > MAX_BODY_BYTES:
        return (Refusal(20, "Request exceeds the maximum size", 413),)
    refusals = [Refusal(number, message) for number, rule in _RULES for message in rule(request)]
    refusals += [Refusal(10, message) for message in _latest_thinking_is_whole(request, issued or {})]
    if not refusals and window_tokens is not None:
        tokens = request_tokens(without_unbound_thinking(request))
        if tokens > window_tokens:
            return (Refusal(22, f"prompt is too long: {tokens} tokens > {window_tokens} maximum"),)
    return tuple(refusals)


def judge_edit(before: Request, after: Request) -> tuple[Refusal, ...]:
    """Return the reasons why the API would refuse the request `after`, which was made from `before` by an edit, such as
    a compaction. Only blocks that were in `before` are judged, by the rules 10, 11, 14 and 23."""
    thinking, rest = thinking_and_rest(_last_answer(before)[1])
    latest = _latest_thinking_is_whole(after, {rest: [thinking]})
    return (*(Refusal(10, message) for message in latest), *_sealed_blocks_are_unmodified(before, after))


def _sealed_blocks_are_unmodified(before: Request, after: Request) -> Iterator[Refusal]:
    """Check the blocks that `before` and `after` share, recognised by their signature: the text must be the same (rule
    11), and everything before the block (rule 14). A ``compaction`` block must be wholly the same (rule 23)."""
    blocks_by_seal: dict[str, list[PlacedBlock]] = {}
    for placed in before.blocks():
        blocks_by_seal.setdefault(_seal(placed[2]), []).append(placed)
    is_binding = after.version >= BOUND_THINKING and not after.drops_unbound_thinking
    for at, index, block in after.blocks():
        kind, place = block["type"], f"messages.{at}.content.{index}"
        earlier = blocks_by_seal.get(_seal(block), ()) if _seal(block) else ()
        if not earlier:
            continue
        if kind == "compaction" and all(block != known for _, _, known in earlier):
            yield Refusal(23, f"{place}: the `compaction` block was changed")
        if kind == "thinking" and all(block["thinking"] != known.get("thinking") for _, _, known in earlier):
            yield Refusal(11, f"{place}: Invalid `signature` in `thinking` block")
        bindings = [before.bindings[message, position] for message, position, _ in earlier]
        if is_binding and kind in THINKING_TYPES and after.bindings[at, index] not in bindings:
            yield Refusal(14, f"{place}: the block is bound to a different conversation")


def _seal(block: Block) -> str:
    """Return the part of a block that only the API can make: signature, redacted data, encrypted content; or empty."""
    return str(block.get("signature") or block.get("data") or block.get("encrypted_content") or "")


def sealed(request: Request, content: list[Block]) -> list[Block]:
    """Return the blocks of an answer (`content`) to `request`, with a signature in each thinking block, by which it is
    checked if a later request contains it."""
    before, signed = request.digests[-1], []
    for block in content:
        signed.append(_sealed(block, before))
        before = chained(before, ("assistant", signed[-1]))
    return signed


def _sealed(block: Block, binding: str) -> Block:
    """Return a thinking block with its signature, and any other block as it is. The signature is a digest of the text,
    then `binding`, a digest of everything before the block; redacted thinking has it at the end of its data."""
    if block["type"] == "thinking":
        seal = _digest(block["thinking"]) + binding
        return {"type": "thinking", "thinking": block["thinking"], "signature": seal}
    if block["type"] == "redacted_thinking":
        payload = base64.b64encode(str(block.get("data", "")).encode()).decode()
        return {"type": "redacted_thinking", "data": f"{payload}.{_digest(payload)}{binding}"}
    return block


def _digest(text: str) -> str:
    """Return the SHA-256 digest of `text` in hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seal_of(block: Block) -> tuple[str, str]:
    """Return the signed text of a thinking block, and its signature."""
    if block["type"] == "thinking":
        return str(block.get("thinking", "")), str(block.get("signature", ""))
    payload, _, seal = str(block.get("data", "")).partition(".")
    return payload, seal


def thinking_and_rest(content: Sequence[Block]) -> tuple[list[str], str]:
    """Return the thinking blocks of an answer, and its other blocks as one text, without cache marks."""
    thinking = [canonical(block) for block in content if block["type"] in THINKING_TYPES]
    return thinking, "".join(canonical(block) for block in content if block["type"] not in THINKING_TYPES)


def _latest_thinking_is_whole(request: Request, issued: Mapping[str, list[list[str]]]) -> Iterator[str]:
    """Check rule 10: the latest answer in the request has all the thinking with which the server sent it, or none.
    `issued`: the thinking that the server sent, by the rest of the answer (see `judge`)."""
    last, content = _last_answer(request)
    thinking, rest = thinking_and_rest(content)
    if thinking and thinking not in issued.get(rest, [thinking]):
        yield (
            f"messages.{last}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response."
        )


def thinking_has_its_place(request: Request) -> Iterator[str]:
    """Check that thinking is only in assistant messages, that no message consists of thinking alone, and that the
    prompt does not end with thinking. With manual thinking, a message with thinking must begin with it."""
    merged = request.merged()
    for at, role, blocks in merged:
        are_thinking = [block["type"] in THINKING_TYPES for block in blocks]
        if not any(are_thinking):
            continue
        if role != "assistant":
            yield f"messages.{at}: `thinking` blocks can only be in `assistant` messages"
        elif all(are_thinking) or (are_thinking[-1] and at == merged[-1][0]):
            yield f"messages.{at}: The final block in an assistant message cannot be `thinking`."
        elif request.version < ADAPTIVE_THINKING and request.thinking == "manual" and not are_thinking[0]:
            yield (
                f"messages.{at}.content.0.type: If an assistant message contains any thinking blocks, the first block "
                "must be `thinking` or `redacted_thinking`. Found `text`."
            )


def signatures_match_their_text(request: Request) -> Iterator[str]:
    """Check that the text of each thinking block is the one that was signed."""
    for at, index, block in request.blocks("assistant"):
        if block["type"] in THINKING_TYPES:
            text, seal = _seal_of(block)
            if seal[:_DIGEST] != _digest(text):
                kind = "signature" if block["type"] == "thinking" else "data"
                yield f"messages.{at}.content.{index}: Invalid `{kind}` in `{block['type']}` block"


def manual_thinking_leads_the_last_calls(request: Request) -> Iterator[str]:
    """Check that, with manual thinking, thinking leads the calls in the assistant's last answer. It may also begin the
    first answer of the same run of calls and results, as the model thinks between calls only if asked to."""
    last, content = _last_answer(request)
    has_calls = any(block["type"] == "tool_use" for block in content)
    if request.thinking != "manual" or request.version >= ADAPTIVE_THINKING or not has_calls:
        return
    latest_first = reversed(request.messages[: last + 1])
    # back to the user's message with which the run of calls and results begins
    run = list(takewhile(lambda message: message["role"] != "user" or not has_no_result(message), latest_first))
    first = next(message for message in reversed(run) if _is_answer(message))
    leading = [blocks_of(message["content"])[0]["type"] for message in (first, request.messages[last])]
    if not any(kind in THINKING_TYPES for kind in leading):
        yield (
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{leading[-1]}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`."
        )


def no_thinking_while_it_is_off(request: Request) -> Iterator[str]:
    """Check that, with thinking switched off, the last assistant message contains none."""
    last, content = _last_answer(request)
    if request.thinking == "off" and any(block["type"] in THINKING_TYPES for block in content):
        yield (
            f"messages.{last}.content.0: When thinking is disabled, an `assistant` message in the final position "
            "cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."
        )


def thinking_is_bound_to_its_conversation(request: Request) -> Iterator[str]:
    """Check that everything before a thinking block is as it was when the block was written."""
    for at, index in [] if request.drops_unbound_thinking else _unbound(request):
        yield (
            f"messages.{at}.content.{index}: Invalid `signature` in `thinking` block. The block is bound to a "
            "different conversation"
        )


def without_unbound_thinking(request: Request) -> Request:
    """Return `request` as the model sees it: without thinking blocks of another conversation, if the request asks the
    API to leave them out (`drops_unbound_thinking`)."""
    unbound = sorted(_unbound(request), reverse=True) if request.drops_unbound_thinking else ()
    if not unbound:
        return request
    contents = [list(blocks_of(message["content"])) for message in request.messages]
    for at, index in unbound:
        del contents[at][index]
    messages = [{**message, "content": content} for message, content in zip(request.messages, contents, strict=True)]
    return Request({**request.body, "messages": messages}, request.headers, request.raw)


def _unbound(request: Request) -> Iterator[tuple[int, int]]:
    """Yield message and block index of each thinking block that was written after another beginning of the
    conversation; none for models that do not check this."""
    for at, index, block in request.blocks("assistant") if request.version >= BOUND_THINKING else ():
        if block["type"] in THINKING_TYPES and _seal_of(block)[1][_DIGEST:] != request.bindings[at, index]:
            yield at, index


def _last_answer(request: Request) -> tuple[int, list[Block]]:
    """Return index and content of the last assistant message with content; -1 and an empty list without one."""
    for at, message in reversed(list(enumerate(request.messages))):
        if _is_answer(message):
            return at, blocks_of(message["content"])
    return -1, []


def _is_answer(message: Block) -> bool:
    """Return True for a message of the assistant that is not empty."""
    return message["role"] == "assistant" and bool(message["content"])


def has_no_result(message: Block) -> bool:
    """Return True for a message without tool results. If it is the user's, it begins a new run of calls and results."""
    return all(block["type"] != "tool_result" for block in blocks_of(message["content"]))


_RULES = (
    *RULES,
    (10, thinking_has_its_place),
    (11, signatures_match_their_text),
    (12, manual_thinking_leads_the_last_calls),
    (13, no_thinking_while_it_is_off),
    (14, thinking_is_bound_to_its_conversation),
)
"""All rules for which the request alone is enough, each with its number."""
