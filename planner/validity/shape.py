"""Rules 15 to 17, 19, 21, 23 and 24: what a list may begin, end and be made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from planner.reading.messages import Message, blocks
from planner.reading.patterns import lazy_pattern
from planner.validity.request import Request, place_of
from planner.validity.violation import Violation

__all__ = ["SHAPE_RULES"]

_SURROGATE = lazy_pattern("[\ud800-\udfff]")
_ROLES = ("user", "assistant", "system")
MAX_MESSAGES = 100_000


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
        if role not in _ROLES:
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


SHAPE_RULES = (
    list_does_not_end_with_prefill,
    prefill_does_not_end_blank,
    nothing_is_blank,
    roles_are_known,
    system_messages_stand_between_turns,
    text_is_unicode,
    compaction_blocks_lead,
    list_starts_with_the_user,
)
