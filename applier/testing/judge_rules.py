"""Rules of the API except those on thinking: on calls and results (1 to 9), and others (0, 15 to 21, 23 to 25).

Each rule is a function that yields an error text, in the API's words, for each place where a request breaks it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from applier.testing.api_forms import (
    ADAPTIVE_THINKING,
    NO_SAMPLING,
    THINKING_TYPES,
    Block,
    Request,
    blocks_of,
    image_pixels,
    pdf_pages,
)

_MAX_MARKS, _MAX_MEDIA, _MAX_MESSAGES = 4, 100, 100_000
"""Largest number of cache marks, of images and document pages together, and of messages in a request."""
_MANY_IMAGES, _MANY_IMAGES_PIXELS = 20, 2000
"""Number of images above which the API limits the size of each, and the largest width and height in pixels then."""
_MARK = "cache_control"
"""Field of a block that marks where the prompt is cached (cache mark)."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone half of a surrogate pair, as ``json`` reads ``"\\ud83d"``; ``json`` reads a whole pair as one character."""
_REQUIRED = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "image": ("source",),
    "tool_addition": ("tool",),
    "tool_removal": ("tool",),
}
"""Required fields of common blocks, by type; blocks of other types are not checked."""
_OPTIONAL = {
    "text": ("citations",),
    "tool_use": ("caller", "toolset_name"),
    "tool_result": ("content", "is_error"),
}
"""Fields that blocks may have, by type; all may have ``type`` and ``cache_control``."""
_SYSTEM_FIELDS = {
    "output_config": {"mid-conversation-output-config-2026-07-01", "per-turn-control-2026-07-01"},
    "clear_at": {"mid-conversation-system-clear-at-2026-08-21"},
}
"""Fields that a system message inside the list may have, if the request names one of these betas. From
``BetaSystemMessageParam`` in the SDK; the second beta of the first field is the name that Claude Code 2.1.330 sends."""
_TOOL_CHANGES, _TOOL_BETA = ("tool_addition", "tool_removal"), "mid-conversation-tool-changes-2026-07-01"
"""Blocks of a system message that add or remove tools, and the beta that the request must name then."""
_INLINE_TOOLS = "inline-tools-2026-09-15"
"""Beta that the request must name if a system message contains a tool's definition."""
_STRICT_API = "2026-10-21"
"""API version from which sampling parameters, documents of the assistant and citations of the user are refused."""
_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
"""Valid id: ``toolu_01-a``; not ``toolu:01``, nor an empty one."""
_ID_KEYS = {"tool_use": "id", "server_tool_use": "id", "mcp_tool_use": "id", "tool_result": "tool_use_id"}
"""Field with the id of a call, for each type of block."""
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of blocks that are calls: of the client's tools, then of those that the server runs."""


def fields_are_known(request: Request) -> Iterator[str]:
    """Check that messages and blocks have the required fields, and no unknown ones."""
    for at, message in enumerate(request.messages):
        extra_fields = _SYSTEM_FIELDS if message["role"] == "system" else {}
        allowed = {name for name, betas in extra_fields.items() if betas & request.betas}
        for key in sorted(message.keys() - {"role", "content", _MARK, *allowed}):
            yield f"messages.{at}.{key}: Extra inputs are not permitted"
    for at, index, block in request.blocks():
        kind = block["type"]
        if kind in _TOOL_CHANGES and (request.messages[at]["role"] != "system" or _TOOL_BETA not in request.betas):
            yield f"messages.{at}.content.{index}.{kind}: Input tag '{kind}' is not expected here"
        is_inline = kind == "tool_addition" and (block.get("tool") or {}).get("type") == "tool_definition"
        if is_inline and _INLINE_TOOLS not in request.betas:
            yield f"messages.{at}.content.{index}.tool_addition.tool: 'tool_definition' needs the beta {_INLINE_TOOLS}"
        required = _REQUIRED.get(kind, ())
        place = f"messages.{at}.content.{index}.{kind}"
        yield from (f"{place}.{key}: Field required" for key in required if key not in block)
        if required:
            extra = block.keys() - {*required, *_OPTIONAL.get(kind, ()), "type", _MARK}
            yield from (f"{place}.{key}: Extra inputs are not permitted" for key in sorted(extra))


def settings_suit_the_model(request: Request) -> Iterator[str]:
    """Check that sampling, forced tools, and the mode and budget of thinking suit the model."""
    body = request.body
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: Field required"
        return
    for name, default in (("temperature", 1.0), ("top_p", None), ("top_k", None)):
        if request.version >= NO_SAMPLING and body.get(name) not in (None, default):
            yield f"{name}: is not supported by this model"
    is_call_forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    if is_call_forced and (request.version >= NO_SAMPLING or request.thinking == "manual"):
        yield "Thinking may not be enabled when tool_choice forces tool use."
    if request.thinking == "adaptive" and request.version < ADAPTIVE_THINKING:
        yield "adaptive thinking is not supported on this model"
    if request.thinking == "manual":
        budget = body["thinking"].get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif budget >= body["max_tokens"] and "interleaved-thinking-2025-05-14" not in request.betas:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."


def the_newest_version_is_stricter(request: Request) -> Iterator[str]:
    """Check the refusals that are new in API version 2026-10-21. There must be no sampling parameter, no document of
    the assistant, and no citation in the user's text."""
    if request.headers.get("anthropic-version", "") < _STRICT_API:
        return
    for name in ("temperature", "top_p", "top_k"):
        if name in request.body:
            yield f"{name}: Extra inputs are not permitted"
    for at, index, block in request.blocks():
        place, role = f"messages.{at}.content.{index}", request.messages[at]["role"]
        if role == "assistant" and block["type"] == "document":
            yield f"{place}: `document` blocks are not permitted in `assistant` messages"
        if role == "user" and any(text.get("citations") for text in _texts_without_citations(block)):
            yield f"{place}.citations: not permitted on `text` blocks in `user` messages"


def _texts_without_citations(block: Block) -> Iterator[Block]:
    """Yield the texts in a user's `block` that must not have citations: itself if it is a text, and the texts of search
    results, also of those in a tool result. Other texts in a tool result may have some."""
    if block.get("type") == "text":
        yield block
    inner = block.get("content")
    for part in inner if block.get("type") in ("search_result", "tool_result") and isinstance(inner, list) else ():
        if isinstance(part, dict) and (block["type"] == "search_result" or part.get("type") == "search_result"):
            yield from _texts_without_citations(part)


def no_prefill(request: Request) -> Iterator[str]:
    """Check that the list does not end with a begun answer (prefill), which Claude 4.6 and later refuse. An answer that
    paused while its server tools run may end it."""
    content = _prefill(request)
    if content is not None and request.version >= ADAPTIVE_THINKING and not _is_paused(content):
        yield "This model does not support assistant message prefill. The conversation must end with a user message."


def prefill_has_no_trailing_space(request: Request) -> Iterator[str]:
    """Check that a begun answer at the end (prefill), which models before 4.6 accept, does not end with white space."""
    content = _prefill(request)
    text = str(content[-1].get("text", "")) if content else ""
    if request.version < ADAPTIVE_THINKING and text != text.rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


def texts_are_not_blank(request: Request) -> Iterator[str]:
    """Check that no message is empty, and no text block is empty or blank."""
    for at, message in enumerate(request.messages):
        if not message["content"] and not (message["role"] == "system" and message.get("output_config")):
            yield f"messages.{at}: {message['role']} messages must have non-empty content"
    for place, block in _all_blocks(request):
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            kind = "non-whitespace text" if block.get("text") else "non-empty"
            yield f"{place}: text content blocks must be {kind}"


def marks_are_few_and_well_placed(request: Request) -> Iterator[str]:
    """Check that there are at most four cache marks, none on thinking or empty text, and none with a lifetime of an
    hour after one of five minutes."""
    for at, message in enumerate(request.messages):
        if _MARK in message:
            yield f"messages.{at}.{_MARK}: Extra inputs are not permitted"
    marked = [(place, block) for place, block in _all_blocks(request) if block.get(_MARK)]
    count = len(marked) + (1 if request.body.get(_MARK) else 0)  # a mark in the body is for its last block
    if count > _MAX_MARKS:
        yield f"A maximum of {_MAX_MARKS} blocks with {_MARK} may be provided. Found {count}."
    has_short = False  # a mark of five minutes came before
    for place, block in marked:
        if block.get("type") in THINKING_TYPES:
            yield f"{place}.{block['type']}.cache_control: Extra inputs are not permitted"
        if block.get("type") == "text" and not block.get("text"):
            yield f"{place}.text: cache_control cannot be set for empty text blocks"
        is_long = block[_MARK].get("ttl") == "1h"
        if is_long and has_short:
            yield f"{place}.{_MARK}.ttl: a ttl='1h' {_MARK} block must not come after a ttl='5m' {_MARK} block."
        has_short = has_short or not is_long


def system_messages_are_allowed(request: Request) -> Iterator[str]:
    """Check that ``system`` messages are only in requests to models that accept them. Each must follow a user's
    message, or an answer that paused while its server tools run; an assistant's message or nothing must follow it."""
    may_follow = False
    for at, message in enumerate(request.messages):
        role = message["role"]
        next_role = next((follower["role"] for follower in request.messages[at + 1 : at + 2]), "assistant")
        if role not in ("user", "assistant", "system") or (role == "system" and not request.takes_system_messages):
            yield (
                f'messages.{at}: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.'
            )
        elif role == "system" and not (may_follow and next_role == "assistant"):
            yield (
                f"messages.{at}: a `system` message must follow a `user` message and be last or followed by an "
                "`assistant` message"
            )
        may_follow = role == "user" or (role == "assistant" and _is_paused(blocks_of(message["content"])))


def media_are_few_and_small(request: Request) -> Iterator[str]:
    """Check that there are at most 100 images and pages; of more than 20 images, none above 2000 pixels a side."""
    blocks = list(_all_blocks(request))
    images = [(place, block) for place, block in blocks if block.get("type") == "image"]
    pages = sum(pdf_pages(block) for _, block in blocks if block.get("type") == "document")
    if len(images) + pages > _MAX_MEDIA:
        yield f"messages: Too many images and document pages: {len(images) + pages} > {_MAX_MEDIA}"
    if len(images) > _MANY_IMAGES:
        for place, block in images:
            if max(image_pixels(block) or (0,)) > _MANY_IMAGES_PIXELS:
                yield (
                    f"{place}.image.source.base64.data: At least one of the image dimensions exceed max allowed size "
                    f"for many-image requests: {_MANY_IMAGES_PIXELS} pixels"
                )


def text_is_unicode(request: Request) -> Iterator[str]:
    """Check that no text has a lone surrogate (half of a character)."""
    for part in ("messages", "system", "tools"):
        if _SURROGATE.search(json.dumps(request.body.get(part), ensure_ascii=False)):
            yield f"{part}: The request body is not valid JSON: no low surrogate in string"


def compaction_blocks_lead(request: Request) -> Iterator[str]:
    """Check that a ``compaction`` block is the first block of its message and not empty, and that only one is signed,
    which must be the first block of the conversation."""
    signed = 0
    for at, index, block in request.blocks():
        if block["type"] != "compaction":
            continue
        signed += 1 if block.get("signature") else 0
        if signed > 1:
            yield f"messages.{at}.content.{index}: `messages` holds more than one `compaction` block"
        if index or (at and block.get("signature")) or request.messages[at]["role"] == "system":
            yield f"messages.{at}.content.{index}: the `compaction` block is not the first block of the conversation"
        elif block.get("content") == "":
            yield f"messages.{at}.content.{index}.compaction.content: must not be empty"


def compaction_is_possible(request: Request) -> Iterator[str]:
    """Check that no compaction by the API is requested after an unanswered call, or with settings that exclude it."""
    edits = (request.body.get("context_management") or {}).get("edits") or []
    has_open_call = any(block["type"] == "tool_use" for block in _prefill(request) or ())
    on_demand = bool(request.body.get("compaction"))
    if has_open_call and (on_demand or any(str(edit.get("type", "")).startswith("compact_") for edit in edits)):
        yield "context_management: compaction is not possible with an unanswered `tool_use`"
    for name in ("context_management", "stop_sequences") if on_demand else ():
        if request.body.get(name):
            yield f"compaction: cannot be combined with `{name}`"


def list_begins_with_the_user(request: Request) -> Iterator[str]:
    """Check that there are 1 to 100,000 messages, the first from the user unless it is a compaction block."""
    messages = request.messages
    if not messages:
        yield "messages: at least one message is required"
    elif messages[0]["role"] != "user" and [b["type"] for b in blocks_of(messages[0]["content"])][:1] != ["compaction"]:
        yield 'messages: first message must use the "user" role'
    if len(messages) > _MAX_MESSAGES:
        yield f"messages: List should have at most {_MAX_MESSAGES} items, not {len(messages)}"


def _all_blocks(request: Request) -> Iterator[tuple[str, Block]]:
    """Yield each block that may have a cache mark, after its place (``messages.2.content.0``), in the prompt's order:
    tools, system prompt, messages. The content of a tool result comes before the result."""
    yield from ((f"tools.{at}", tool) for at, tool in enumerate(request.tools))
    yield from ((f"system.{at}", block) for at, block in enumerate(request.system))
    for at, index, block in request.blocks():
        place = f"messages.{at}.content.{index}"
        inner = block.get("content") if block["type"] == "tool_result" else None
        for number, item in enumerate(inner if isinstance(inner, list) else ()):
            yield f"{place}.content.{number}", item
        yield place, block


def _prefill(request: Request) -> list[Block] | None:
    """Return the content of the last message if it is the assistant's; else None."""
    last = request.messages[-1] if request.messages else None
    return blocks_of(last["content"]) if last and last["role"] == "assistant" else None


def _is_paused(content: list[Block]) -> bool:
    """Return True for the content of an assistant's message that paused while its server tools run (``pause_turn``): it
    ends with a call of a server tool, or its result."""
    kind = content[-1]["type"] if content else ""
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _ids(blocks: list[Block], kind: str) -> list[str]:
    """Return the ids of the `blocks` of this `kind` (``tool_use``); for results, the ids of their calls."""
    return [str(block.get(_ID_KEYS[kind])) for block in blocks if block["type"] == kind]


def every_call_is_answered(request: Request) -> Iterator[str]:
    """Check that each ``tool_use`` has its result in the next message."""
    for (at, role, blocks), (_, next_role, follower) in pairwise([*request.merged(), (0, "", [])]):
        calls = _ids(blocks, "tool_use")
        answered = _ids(follower, "tool_result") if next_role == "user" else []
        missing = [call for call in calls if call not in answered]
        if role != "assistant" and calls:
            yield f"messages.{at}: `tool_use` blocks can only be in `assistant` messages"
        elif missing:
            yield (
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )


def every_result_was_called(request: Request) -> Iterator[str]:
    """Check that each ``tool_result`` has its ``tool_use`` in the message before."""
    before: list[str] = []
    for at, role, blocks in request.merged():
        called = before if role == "user" else []
        for index, block in enumerate(blocks):
            if block["type"] == "tool_result" and str(block.get("tool_use_id")) not in called:
                yield (
                    f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` "
                    "block in the previous message."
                )
        before = _ids(blocks, "tool_use") if role == "assistant" else []


def results_lead_their_message(request: Request) -> Iterator[str]:
    """Check that tool results come first in a user message."""
    for at, role, blocks in request.merged():
        are_results = [block["type"] == "tool_result" for block in blocks]
        if role == "user" and are_results != sorted(are_results, reverse=True):
            late = are_results.index(True, are_results.index(False))  # first result after other content
            yield (
                f"messages.{at}: `tool_result` blocks must come first in the content of a `user` message; "
                f"found other content before `tool_result` at content.{late}"
            )


def one_result_per_call(request: Request) -> Iterator[str]:
    """Check that no call has two results."""
    for place, call in _repeated(request, "tool_result"):
        yield f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call}"


def call_ids_are_unique(request: Request) -> Iterator[str]:
    """Check that no two calls have the same id."""
    for place, _call in _repeated(request, "tool_use"):
        yield f"{place}: `tool_use` ids must be unique"


def _repeated(request: Request, kind: str) -> Iterator[tuple[str, str]]:
    """Yield place and id of each block of this `kind` that repeats the id of an earlier one."""
    known: set[str] = set()
    for at, index, block in request.blocks():
        for call in _ids([block], kind):
            if call in known:
                yield f"messages.{at}.content.{index}", call
            known.add(call)


def ids_match_the_pattern(request: Request) -> Iterator[str]:
    """Check that ids consist of letters, digits, ``_`` and ``-``."""
    for at, index, block in request.blocks():
        key = _ID_KEYS.get(block["type"])
        if key and not _ID.match(str(block.get(key) or "")):
            place = f"messages.{at}.content.{index}.{block['type']}.{key}"
            yield f"{place}: String should match pattern '^[a-zA-Z0-9_-]+$'"


def inputs_are_objects(request: Request) -> Iterator[str]:
    """Check that the input of a call is a JSON object."""
    for at, index, block in request.blocks():
        if block["type"] in _CALLS and not isinstance(block.get("input"), dict):
            yield f"messages.{at}.content.{index}.{block['type']}.input: Input should be a valid dictionary"


def server_results_follow_their_calls(request: Request) -> Iterator[str]:
    """Check that the result of a server tool follows its call in the same message, and that no call is without a
    result, unless its message is the last one, or also calls the client's tools."""
    for at, role, blocks in request.merged():
        called: set[str] = set()
        unanswered: set[str] = set()
        for index, block in enumerate(blocks):
            kind, call = block["type"], str(block.get("tool_use_id"))
            if kind in _CALLS[1:]:
                called.add(str(block.get("id")))
                unanswered.add(str(block.get("id")))
            elif kind.endswith("_tool_result"):
                unanswered.discard(call)
                if call not in called:
                    yield (
                        f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `{kind}` blocks: {call}. "
                        f"Each `{kind}` block must have a corresponding `server_tool_use` block before it"
                        f"{'' if role == 'assistant' else ', in an assistant message'}."
                    )
        if unanswered and at + 1 < len(request.messages) and not _ids(blocks, "tool_use"):
            calls = ", ".join(sorted(unanswered))
            yield f"messages.{at}: `server_tool_use` ids were found without a corresponding result block: {calls}"


RULES = (
    (21, text_is_unicode),
    (0, fields_are_known),
    (0, settings_suit_the_model),
    (25, the_newest_version_is_stricter),
    (24, list_begins_with_the_user),
    (17, texts_are_not_blank),
    (19, system_messages_are_allowed),
    (15, no_prefill),
    (16, prefill_has_no_trailing_space),
    (18, marks_are_few_and_well_placed),
    (20, media_are_few_and_small),
    (23, compaction_blocks_lead),
    (23, compaction_is_possible),
    (1, every_call_is_answered),
    (2, every_result_was_called),
    (3, results_lead_their_message),
    (5, one_result_per_call),
    (6, call_ids_are_unique),
    (7, ids_match_the_pattern),
    (8, inputs_are_objects),
    (9, server_results_follow_their_calls),
)
"""Rules with their numbers, in the order in which the API checks them. Rule 4 is not here: the API joins messages of
the same role, so that a request that breaks it is accepted."""
