"""Rules 18, 20 and 22: how many cache marks, images, bytes and tokens a request may have."""

from __future__ import annotations

import json
from collections.abc import Iterator

from planner.reading.media import image_size, visible_pages
from planner.reading.tokens import TokenCounter
from planner.validity.request import THINKING, Request, place_of
from planner.validity.violation import Violation

__all__ = ["LIMIT_RULES"]

MAX_CACHE_MARKS = 4
MAX_IMAGES_AND_PAGES = 100
MANY_IMAGES, MAX_PIXELS_OF_MANY = 20, 2_000
MAX_BYTES = 32 * 1024 * 1024


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


LIMIT_RULES = (
    cache_marks_are_few,
    cache_marks_stand_on_content,
    longer_cache_marks_come_first,
    images_are_few,
    body_is_small,
    prompt_fits_the_window,
)
