"""What a response of any provider says, without its SDK's types: its text, its usage, whether it refuses."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from planner.model.answer import Answer
from planner.plan import Usage

__all__ = ["is_refusal", "last_answer", "response_text", "response_usage"]


def last_answer(text: str) -> Answer | None:
    """The answer in `text`, also when it was cut off in the middle."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text, start)
    except json.JSONDecodeError:
        data = _partial(text[start:])
    try:
        return Answer.model_validate(data)
    except ValidationError:
        return None


def _partial(text: str) -> Any:
    try:
        return from_json(text, allow_partial=True)
    except ValueError:
        return None


def response_text(response: Any) -> str:
    """What a response says: Anthropic's text blocks, or the first choice of others."""
    content = getattr(response, "content", None)
    if isinstance(content, list):
        return "".join(str(getattr(block, "text", "")) for block in content)
    choices = getattr(response, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    calls = getattr(message, "tool_calls", None) or [None]
    return str(getattr(message, "content", None) or getattr(getattr(calls[0], "function", None), "arguments", ""))


def is_refusal(response: Any) -> bool:
    """True if the model declined: asking again would only be declined again."""
    choice = (getattr(response, "choices", None) or [None])[0]
    return (
        getattr(response, "stop_reason", None) == "refusal"
        or getattr(choice, "finish_reason", None) == "content_filter"
        or bool(getattr(getattr(choice, "message", None), "refusal", None))
    )


def response_usage(response: Any) -> Usage:
    """Tokens as the provider counted them, for one request."""
    used = getattr(response, "usage", None)

    def count(*names: str) -> int:
        return next((n for name in names if isinstance(n := getattr(used, name, None), int)), 0)

    return Usage(
        input_tokens=count("input_tokens", "prompt_tokens"),
        output_tokens=count("output_tokens", "completion_tokens"),
        cache_read_input_tokens=count("cache_read_input_tokens"),
        cache_creation_input_tokens=count("cache_creation_input_tokens"),
        requests=1,
    )
