"""Rules 10 to 13 and 15 to 24: thinking, the shape of a list, and how much a request may hold.

Thinking as far as one list shows it: what an edit breaks (rule 14) takes two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from planner.reading.media import image_size, visible_pages
from planner.reading.messages import ROLES, THINKING, Message, blocks
from planner.reading.patterns import lazy_pattern
from planner.reading.tokens import TokenCounter
from planner.validity.request import Request, Violation, place_of

__all__ = ["CONTENT_RULES"]

_SURROGATE = lazy_pattern("[\ud800-\udfff]")
MAX_MESSAGES = 100_000
MAX_CACHE_MARKS = 4
MAX_IMAGES_AND_PAGES = 100
MANY_IMAGES, MAX_PIXELS_OF_MANY = 20, 2_000
MAX_BYTES = 32 * 1024 * 1024


def thinking_is_whole(request: Request) -> Iterator[Violation]:
    """Rule 10: thinking has its text or data, in assistant messages only."""
    for at, index, block in request.blocks():
        if block["type"] not in THINKING:
            continue
        key = "thinking" if block["type"] == "thinking" else "data"
        if request.messages[at]["role"] != "assistant":
            cure = "remove it, or put it back into its assistant message"
            yield Violation(10, place_of(at, index), "thinking outside assistant messages", cure, "thinking_role")
        elif not isinstance(block.get(key), str):
            cure = "send the block back as it came, or remove it"
            yield Violation(10, place_of(at, index), f"thinking without its '{key}'", cure, "broken_thinking")


def thinking_is_in_order(request: Request) -> Iterator[Violation]:
    """Rule 10: thinking is never last in the list, and leads its message where it is switched on by hand.

    "The final block in an assistant message cannot be `thinking`"; "If an assistant message contains any
    thinking blocks, the first block must be `thinking`" (Claude up to 4.5).
    """
    last = len(request.messages) - 1
    for at, message in enumerate(request.messages):
        kinds = [block["type"] in THINKING for block in blocks(message)]
        if message["role"] != "assistant" or not any(kinds):
            continue
        if at == last and kinds[-1]:
            cure = "remove the message, or what makes it last"
            yield Violation(10, place_of(at), "the list ends with thinking", cure, "last_thinking")
        if request.family.thinks_manually and request.thinking_enabled is not False and not kinds[0]:
            cure = "put the thinking first, or remove all of this message's"
            yield Violation(10, place_of(at, 0), "thinking stands behind other content", cure, "late_thinking")


def thinking_is_signed(request: Request) -> Iterator[Violation]:
    """Rule 11: a thinking block has a signature; whether it matches, only the API can say."""
    for at, index, block in request.blocks("assistant"):
        if block["type"] == "thinking" and not (isinstance(block.get("signature"), str) and block["signature"]):
            cure = "send the block back as it came, or remove it"
            yield Violation(11, place_of(at, index), "thinking without a signature", cure, "unsigned_thinking")


def manual_thinking_leads_calls(request: Request) -> Iterator[Violation]:
    """Rule 12: with manual thinking on, the last assistant message that has ``tool_use`` starts with thinking.

    The API counts a run of calls and results as one assistant turn: thinking at the start of the run will do.
    """
    last = request.last_assistant
    if not (request.thinking_enabled and request.family.thinks_manually) or last is None:
        return
    run = [message for message in _loop(request, last) if message["role"] == "assistant"]
    calls = any(block["type"] == "tool_use" for block in blocks(request.messages[last]))
    if calls and not any(_starts_with_thinking(message) for message in (run[0], run[-1])):
        cure = "keep the thinking of this run of calls, or send the request without thinking"
        yield Violation(12, place_of(last, 0), "thinking is on, but the calls lost theirs", cure, "lost_thinking")


def no_thinking_when_off(request: Request) -> Iterator[Violation]:
    """Rule 13: with thinking off, the final assistant message holds none."""
    last = request.last_assistant
    if request.thinking_enabled is not False or last is None:
        return
    for index, block in enumerate(blocks(request.messages[last])):
        if block["type"] in THINKING:
            cure = "remove it, or switch thinking on"
            yield Violation(13, place_of(last, index), "thinking is off", cure, "thinking_off")
            return


def _loop(request: Request, last: int) -> list[Message]:
    """The messages up to `last` that belong to one run of calls: back to the last words of the user."""
    start = last
    while start > 0 and not _has_user_words(request.messages[start - 1]):
        start -= 1
    return list(request.messages[start : last + 1])


def _has_user_words(message: Message) -> bool:
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))


def _starts_with_thinking(message: Message) -> bool:
    content = blocks(message)
    return bool(content) and content[0]["type"] in THINKING


def list_does_not_end_with_prefill(request: Request) -> Iterator[Violation]:
    """Rule 15: the last message is not an assistant message on Claude 4.6 and later (no prefill)."""
    last = request.messages[-1] if request.messages else None
    if last and last["role"] == "assistant" and not request.family.accepts_prefill and not _is_paused(last):
        place = place_of(len(request.messages) - 1)
        cure = "end with a user message"
        yield Violation(15, place, "the list ends with an assistant message", cure, "prefill")


def prefill_does_not_end_blank(request: Request) -> Iterator[Violation]:
    """Rule 16: older models: final assistant text has no trailing white space."""
    last = request.messages[-1] if request.messages else None
    content = blocks(last) if last and last["role"] == "assistant" and request.family.is_claude else ()
    text = content[-1].get("text") if content else None
    if request.family.accepts_prefill and isinstance(text, str) and text != text.rstrip():
        place = place_of(len(request.messages) - 1, len(content) - 1)
        yield Violation(16, place, "the final text ends with white space", "strip it", "trailing_space")


def nothing_is_blank(request: Request) -> Iterator[Violation]:
    """Rule 17: no empty or blank text block, no empty content."""
    for at, message in enumerate(request.messages):
        if message["content"] == []:
            yield Violation(17, place_of(at), "no content", "leave the message out", "empty_content")
    if isinstance(request.system, str) and request.system and not request.system.strip():
        yield Violation(17, "system", "a blank system prompt", "leave it out", "blank_text")
    for place, block in request.marked_places():
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            yield Violation(17, place, "a blank text block", "leave it out", "blank_text")


def roles_are_known(request: Request) -> Iterator[Violation]:
    """Rule 19: ``user`` and ``assistant``; ``system`` only for models that take it inside the list."""
    for at, message in enumerate(request.messages):
        role = message["role"]
        if role not in ROLES:
            cure = "convert the list to Anthropic messages first"
            yield Violation(19, place_of(at), f"role {role!r}", cure, "unknown_role")
        elif role == "system" and not request.family.takes_system_messages:
            cure = "move it into the system prompt, or into a user message"
            yield Violation(19, place_of(at), "a system message inside the list", cure, "system_message")


def system_messages_stand_between_turns(request: Request) -> Iterator[Violation]:
    """Rule 19: a mid-conversation system message follows the user's, never comes between call and result.

    It is the last message, or an assistant message follows (Anthropic, "Mid-conversation system messages").
    """
    if not (request.family.is_claude and request.family.takes_system_messages):
        return
    for at, message in enumerate(request.messages):
        if message["role"] != "system":
            continue
        before = request.messages[at - 1] if at else None
        after = request.messages[at + 1] if at + 1 < len(request.messages) else None
        follows = before is not None and (before["role"] == "user" or _is_paused(before))
        if not follows or (after is not None and after["role"] != "assistant"):
            cure = "put it right behind a user message and before the assistant's"
            yield Violation(19, place_of(at), "a system message out of place", cure, "system_place")


def text_is_unicode(request: Request) -> Iterator[Violation]:
    """Rule 21: valid Unicode: no lone surrogate after a cut."""
    around: list[tuple[str, Any]] = [("system", request.system or ""), ("tools", list(request.tools or ()))]
    for place, value in [*around, *((place_of(at), message) for at, message in enumerate(request.messages))]:
        if _has_surrogate(value):
            yield Violation(21, place, "a lone surrogate", "replace it by U+FFFD", "surrogate")


def compaction_blocks_lead(request: Request) -> Iterator[Violation]:
    """Rule 23: a server ``compaction`` block comes first.

    Signed ones (on demand) come first of all, and one of them at most; others (at a threshold) lead the
    assistant message they came with (``CompactionBlockMisplacedError`` and its neighbours in the SDK).
    """
    signed = 0
    for at, index, block in request.blocks():
        if block["type"] != "compaction":
            continue
        place = place_of(at, index)
        first_of_all = at == 0 or not block.get("signature")
        if index or not first_of_all or request.messages[at]["role"] != "assistant":
            cure = "put the block first, in its assistant message, and leave out what it stands for"
            yield Violation(23, place, "a compaction block out of place", cure, "compaction_place")
        if block.get("content") == "":
            yield Violation(23, place, "an empty compaction block", "remove it", "compaction_empty")
        signed += bool(block.get("signature"))
        if signed > 1 and block.get("signature"):
            yield Violation(23, place, "a second compaction block", "keep only the latest", "compaction_repeated")


def list_starts_with_the_user(request: Request) -> Iterator[Violation]:
    """Rule 24: at most 100,000 messages, the first one of ``user`` (or a server's compaction of it all)."""
    if not request.messages:
        yield Violation(24, "messages", "no messages", "send at least one user message", "no_messages")
        return
    if len(request.messages) > MAX_MESSAGES:
        problem = f"{len(request.messages):,} messages"
        yield Violation(24, "messages", problem, f"send at most {MAX_MESSAGES:,}", "too_many_messages")
    first = request.messages[0]
    compacted = any(block["type"] == "compaction" for block in blocks(first)[:1])
    if first["role"] == "assistant" and not compacted:
        cure = "start with a user message"
        yield Violation(24, place_of(0), "the list starts with an assistant message", cure, "first_role")


def _is_paused(message: Message) -> bool:
    """True if the server still works on it (``pause_turn``): it is sent back as it is, to be continued."""
    content = blocks(message)
    kind = content[-1]["type"] if message["role"] == "assistant" and content else ""
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _has_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(map(_has_surrogate, chain.from_iterable(value.items())))
    return isinstance(value, list | tuple) and any(map(_has_surrogate, value))


def cache_marks_are_few(request: Request) -> Iterator[Violation]:
    """Rule 18: at most 4 ``cache_control`` marks in a request."""
    marked = [place for place, block in request.marked_places() if block.get("cache_control")]
    for place in marked[MAX_CACHE_MARKS:]:
        problem = f"cache mark number {marked.index(place) + 1}"
        yield Violation(18, place, problem, f"keep the last {MAX_CACHE_MARKS}", "too_many_cache_marks")


def cache_marks_stand_on_content(request: Request) -> Iterator[Violation]:
    """Rule 18: never on empty text, thinking, or a message object."""
    cure = "mark the last block with content instead"
    for at, message in enumerate(request.messages):
        if "cache_control" in message:
            yield Violation(18, place_of(at), "a cache mark on the message itself", cure, "cache_mark_place")
    for place, block in request.marked_places():
        kind = block.get("type")
        empty = kind in THINKING or (kind == "text" and not str(block.get("text") or "").strip())
        if block.get("cache_control") and empty:
            yield Violation(18, place, f"a cache mark on {kind} without text", cure, "cache_mark_place")


def longer_cache_marks_come_first(request: Request) -> Iterator[Violation]:
    """Rule 18: 1 h marks before 5 min ones, in the order tools, system, messages."""
    short = False
    for place, block in request.marked_places():
        mark = block.get("cache_control")
        if not isinstance(mark, dict):
            continue
        if mark.get("ttl") == "1h" and short:
            cure = "give every mark before it one hour, too"
            yield Violation(18, place, "a one-hour cache mark behind a five-minute one", cure, "cache_mark_order")
        short = short or mark.get("ttl") != "1h"


def images_are_few(request: Request) -> Iterator[Violation]:
    """Rule 20: at most 100 images and pages; over 20 images each at most 2000 px."""
    images = [(place, block) for place, block in request.places if block.get("type") == "image"]
    documents = [block for _, block in request.places if block.get("type") == "document"]
    total = len(images) + sum(map(visible_pages, documents))
    if total > MAX_IMAGES_AND_PAGES:
        problem = f"{total} images and pages"
        yield Violation(20, "messages", problem, f"send at most {MAX_IMAGES_AND_PAGES}", "too_many_images")
    if len(images) > MANY_IMAGES:
        for place, block in images:
            size = image_size(block)
            if size and max(size) > MAX_PIXELS_OF_MANY:
                problem = f"{size[0]} x {size[1]} px beside more than {MANY_IMAGES - 1} other images"
                yield Violation(20, place, problem, f"scale it to {MAX_PIXELS_OF_MANY} px", "large_image")


def body_is_small(request: Request) -> Iterator[Violation]:
    """Rule 20: a 32 MB body."""
    size = sum(map(_json_bytes, (*request.messages, request.system, request.tools)))
    if size > MAX_BYTES:
        problem = f"{size / 1024 / 1024:.0f} MB"
        yield Violation(20, "messages", problem, "send at most 32 MB", "too_many_bytes")


def _json_bytes(value: object) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_fits_the_window(request: Request) -> Iterator[Violation]:
    """Rule 22: an over-long prompt; asked only when the window is given."""
    if request.window_tokens is None:
        return
    counter = TokenCounter.for_model(request.model)
    tokens = counter.request(request.messages, request.system, request.tools)
    if tokens > request.window_tokens:
        problem = f"about {tokens:,} tokens for a window of {request.window_tokens:,}"
        yield Violation(22, "messages", problem, "compact it", "too_long")


CONTENT_RULES = (
    thinking_is_whole,
    thinking_is_in_order,
    thinking_is_signed,
    manual_thinking_leads_calls,
    no_thinking_when_off,
    list_does_not_end_with_prefill,
    prefill_does_not_end_blank,
    nothing_is_blank,
    roles_are_known,
    system_messages_stand_between_turns,
    text_is_unicode,
    compaction_blocks_lead,
    list_starts_with_the_user,
    cache_marks_are_few,
    cache_marks_stand_on_content,
    longer_cache_marks_come_first,
    images_are_few,
    body_is_small,
    prompt_fits_the_window,
)
