"""Prints a review at a terminal's width; `planner.review_text` decides what it contains."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.text import Text

from applier.cli.screen import clean
from applier.plan_review import PlanReview
from applier.view import Preview
from planner.prices import money
from planner.review_text import review_sections

__all__ = ["print_review"]

INDENT = 2


def print_review(console: Console, review: PlanReview, *, whole: bool = False, **limits: Any) -> None:
    """Print `review`; with `whole` each turn, its replacement and all facts. `limits` as of `review_sections`."""
    cost = _cost(review.preview) if review.preview else ""
    for number, section in enumerate(review_sections(review.plan, review.notes, whole=whole, cost=cost, **limits)):
        if number:
            console.print("")
        if section.title:
            console.print(Text(section.title, style="bold"))
        for line in section.lines:
            text, indent = clean(line, "" if number else "bold"), INDENT if section.title else 0
            if not (section.is_prose or whole):
                text.truncate(console.width - indent, overflow="ellipsis")
            for part in text.wrap(console, console.width - indent) or [text]:
                part.rstrip()
                console.print(Text(" " * indent) + part)


def _cost(preview: Preview) -> str:
    if preview.first_changed_message is None:
        return "Nothing changes; the prompt cache stays as it is."
    calls, switch = preview.payback_calls or 0.0, preview.dollars
    before, after, invalidated = preview.tokens_before, preview.tokens_after, preview.invalidated_tokens
    pays = "never pays back in cache terms" if math.isinf(calls) else f"pays back after {calls:.1f} calls"
    written = f"{max(0, after - before + invalidated):,} tokens are written to the cache once"
    fewer = f"each later call reads {before - after:,} fewer"
    planning = f" Planning: {money(switch['planning'])}." if switch.get("planning") else ""
    return (
        f"Changes from message {preview.first_changed_message} on: {money(switch.get('rebilled'), written)}; "
        f"{money(switch.get('saved'), fewer)}; {pays}. Thinking: {preview.thinking}.{planning}"
    )
