"""Rules 15 to 24, and what a body must be to be a request at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from applier.testing.api_request import THINKING_TYPES, Block, Request, Violation, blocks_of
from applier.testing.pictures import image_pixels, pdf_pages

__all__ = ["MAX_BODY_BYTES", "SHAPE_RULES"]

MAX_BODY_BYTES = 32 * 2**20
_MAX_MARKS, _MAX_MEDIA, _MANY_IMAGES, _MANY_IMAGES_PIXELS, _MAX_MESSAGES = 4, 100, 20, 2000, 100_000
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair, as ``json`` reads ``"\\ud83d"``; a whole pair is one character by then."""
_MESSAGE_KEYS = {"role", "content"}
_BLOCK_KEYS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "tool_use": {"id", "name", "input", "caller", "toolset_name"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
"""Fields of common blocks beside ``type`` and ``cache_control``; other blocks are not looked into."""
_REQUIRED = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}


def fields_are_known(request: Request) -> Iterator[Violation]:
    """Messages and blocks hold the fields they need, and no others."""
    for at, message in enumerate(request.messages):
        for key in sorted(message.keys() - _MESSAGE_KEYS):
            rule = 18 if key == "cache_control" else 0
            yield Violation(rule, f"messages.{at}.{key}: Extra inputs are not permitted")
    for at, index, block in request.blocks():
        place, kind = f"messages.{at}.content.{index}.{block['type']}", block["type"]
        for key in _REQUIRED.get(kind, ()):
            if key not in block:
                yield Violation(0, f"{place}.{key}: Field required")
        if kind in _BLOCK_KEYS:
            for key in sorted(block.keys() - _BLOCK_KEYS[kind] - {"type", "cache_control"}):
                yield Violation(0, f"{place}.{key}: Extra inputs are not permitted")


def settings_suit_the_model(request: Request) -> Iterator[Violation]:
    """Sampling, forced tools, the thinking mode and its budget are what this model takes."""
    body, model = request.body, request.model
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield Violation(0, "max_tokens: Field required")
        return
    for name, default in (("temperature", 1.0), ("top_p", None), ("top_k", None)):
        if not model.takes_sampling and body.get(name) not in (None, default):
            yield Violation(0, f"{name}: is not supported by this model")
    forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    if forced and (not model.takes_sampling or request.thinking == "manual"):
        yield Violation(0, "Thinking may not be enabled when tool_choice forces tool use.")
    if request.thinking == "adaptive" and not model.thinks_adaptively:
        yield Violation(0, "adaptive thinking is not supported on this model")
    if request.thinking == "manual":
        budget = body["thinking"].get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield Violation(0, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        elif budget >= body["max_tokens"] and "interleaved-thinking-2025-05-14" not in request.betas:
            yield Violation(0, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def no_prefill(request: Request) -> Iterator[Violation]:
    """Rule 15: Claude 4.6 and later do not continue an assistant message, but a turn that paused for its tools."""
    last = request.messages[-1] if request.messages else None
    if last and last["role"] == "assistant" and not request.model.takes_prefill and not _is_paused(last):
        yield Violation(
            15,
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        )


def prefill_has_no_trailing_space(request: Request) -> Iterator[Violation]:
    """Rule 16: where prefill is taken, its text does not end with white space."""
    last = request.messages[-1] if request.messages else None
    content = blocks_of(last["content"]) if last and last["role"] == "assistant" else []
    text = str(content[-1].get("text", "")) if content else ""
    if request.model.takes_prefill and text != text.rstrip():
        yield Violation(16, "messages: final assistant content cannot end with trailing whitespace")


def texts_are_not_blank(request: Request) -> Iterator[Violation]:
    """Rule 17: no empty content, no empty or blank text block."""
    for at, message in enumerate(request.messages):
        if not message["content"]:
            yield Violation(17, f"messages.{at}: {message['role']} messages must have non-empty content")
    for place, block in _all_blocks(request):
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            kind = "non-whitespace text" if block.get("text") else "non-empty"
            yield Violation(17, f"{place}: text content blocks must be {kind}")


def marks_are_few_and_well_placed(request: Request) -> Iterator[Violation]:
    """Rule 18: at most four cache marks, never on empty text or thinking; one hour before five minutes."""
    marked = [(place, block) for place, block in _all_blocks(request) if block.get("cache_control")]
    automatic = 1 if request.body.get("cache_control") else 0
    if len(marked) + automatic > _MAX_MARKS:
        yield Violation(
            18,
            f"A maximum of {_MAX_MARKS} blocks with cache_control may be provided. Found {len(marked) + automatic}.",
        )
    short = False
    for place, block in marked:
        if block.get("type") in THINKING_TYPES:
            yield Violation(18, f"{place}.{block['type']}.cache_control: Extra inputs are not permitted")
        if block.get("type") == "text" and not block.get("text"):
            yield Violation(18, f"{place}.text: cache_control cannot be set for empty text blocks")
        long = block["cache_control"].get("ttl") == "1h"
        if long and short:
            yield Violation(
                18,
                f"{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block.",
            )
        short = short or not long


def system_messages_are_allowed(request: Request) -> Iterator[Violation]:
    """Rule 19: ``system`` messages only for models that take them, behind the user's and before the assistant's."""
    for at, message in enumerate(request.messages):
        role = message["role"]
        if role in ("user", "assistant"):
            continue
        if role != "system" or not request.model.takes_system_messages:
            yield Violation(
                19,
                f'messages.{at}: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.',
            )
            continue
        before = request.messages[at - 1] if at else {"role": "", "content": ""}
        after = request.messages[at + 1]["role"] if at + 1 < len(request.messages) else "assistant"
        if (before["role"] != "user" and not _is_paused(before)) or after != "assistant":
            yield Violation(
                19,
                f"messages.{at}: a `system` message must follow a `user` message and be last or followed by an "
                "`assistant` message",
            )


def media_are_few_and_small(request: Request) -> Iterator[Violation]:
    """Rule 20: at most 100 images and pages; more than 20 images each at most 2,000 pixels wide and high."""
    blocks = list(_all_blocks(request))
    images = [(place, block) for place, block in blocks if block.get("type") == "image"]
    pages = sum(pdf_pages(block) for _, block in blocks if block.get("type") == "document")
    if len(images) + pages > _MAX_MEDIA:
        yield Violation(20, f"messages: Too many images and document pages: {len(images) + pages} > {_MAX_MEDIA}")
    if len(images) > _MANY_IMAGES:
        for place, block in images:
            if max(image_pixels(block) or (0,)) > _MANY_IMAGES_PIXELS:
                yield Violation(
                    20,
                    f"{place}.image.source.base64.data: At least one of the image dimensions exceed max allowed size "
                    f"for many-image requests: {_MANY_IMAGES_PIXELS} pixels",
                )


def body_is_small(request: Request) -> Iterator[Violation]:
    """Rule 20: 32 MB."""
    if len(request.raw) > MAX_BODY_BYTES:
        yield Violation(20, "Request exceeds the maximum size", 413)


def text_is_unicode(request: Request) -> Iterator[Violation]:
    """Rule 21: no lone surrogate anywhere."""
    for part in ("messages", "system", "tools"):
        if _has_surrogate(request.body.get(part)):
            yield Violation(21, f"{part}: The request body is not valid JSON: no low surrogate in string")


def compaction_blocks_lead(request: Request) -> Iterator[Violation]:
    """Rule 23: a server's compaction block comes first in its message, and none is asked for amid a call."""
    for at, index, block in request.blocks():
        if block["type"] != "compaction":
            continue
        if index or request.messages[at]["role"] != "assistant":
            yield Violation(
                23, f"messages.{at}.content.{index}: `compaction` blocks must come first in an assistant message"
            )
        elif block.get("content") == "":
            yield Violation(23, f"messages.{at}.content.{index}.compaction.content: must not be empty")
    edits = (request.body.get("context_management") or {}).get("edits") or []
    last = request.messages[-1] if request.messages else {"role": "user", "content": ""}
    calls = last["role"] == "assistant" and any(b["type"] == "tool_use" for b in blocks_of(last["content"]))
    if calls and any(str(edit.get("type", "")).startswith("compact_") for edit in edits):
        yield Violation(23, "context_management: compaction is not possible with an unanswered `tool_use`")


def list_begins_with_the_user(request: Request) -> Iterator[Violation]:
    """Rule 24: 1 to 100,000 messages, the first of the user, unless a compaction block stands for what was before."""
    messages = request.messages
    if not messages:
        yield Violation(24, "messages: at least one message is required")
    elif messages[0]["role"] != "user" and [b["type"] for b in blocks_of(messages[0]["content"])][:1] != ["compaction"]:
        yield Violation(24, 'messages: first message must use the "user" role')
    if len(messages) > _MAX_MESSAGES:
        yield Violation(24, f"messages: List should have at most {_MAX_MESSAGES} items, not {len(messages)}")


def _all_blocks(request: Request) -> Iterator[tuple[str, Block]]:
    """Place and block of everything that may carry a mark, in the order the API reads."""
    yield from ((f"tools.{at}", tool) for at, tool in enumerate(request.tools))
    yield from ((f"system.{at}", block) for at, block in enumerate(request.system))
    for at, index, block in request.blocks():
        place = f"messages.{at}.content.{index}"
        inner = block.get("content") if block["type"] == "tool_result" else None
        for number, item in enumerate(inner if isinstance(inner, list) else ()):
            yield f"{place}.content.{number}", item
        yield place, block


def _is_paused(message: Block) -> bool:
    """True of an assistant message whose server tools still run (``pause_turn``)."""
    content = blocks_of(message["content"]) if message["role"] == "assistant" else []
    kind = content[-1]["type"] if content else ""
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _has_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(_has_surrogate(key) or _has_surrogate(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_surrogate, value))


SHAPE_RULES = (
    body_is_small,
    text_is_unicode,
    fields_are_known,
    settings_suit_the_model,
    list_begins_with_the_user,
    texts_are_not_blank,
    system_messages_are_allowed,
    no_prefill,
    prefill_has_no_trailing_space,
    marks_are_few_and_well_placed,
    media_are_few_and_small,
    compaction_blocks_lead,
)
