"""What a response of any provider says, without its SDK's types, and why there was none, in one line with its cure.

Never repeats a key, and of a provider's text no more than a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from planner.errors import PlannerUnavailable
from planner.model.client import RULES_CURE
from planner.plan import Usage

__all__ = ["is_refusal", "response_text", "response_usage", "unavailable"]

_KEY = re.compile(r"\b(?:sk|pk|key)-[\w-]{6,}")
"""What keys look like: ``sk-ant-api03-…``; not ``task-force``."""
_CURES = {
    401: "the API key was refused (401): set ANTHROPIC_API_KEY to a valid key or pass client=",
    403: "the API key may not use it (403): use another key or model",
    404: "there is no such model (404): pass model= with one your key may use",
    413: "the request was too large (413): lower settings.piece_tokens or settings.planner_input_ratio",
    429: "the rate limit is used up (429): retry later",
    529: "the API is overloaded (529): retry later",
}


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
        return next((n for name in names if isinstance(n := getattr(used, name, None), int) and n >= 0), 0)

    return Usage(
        input_tokens=count("input_tokens", "prompt_tokens"),
        output_tokens=count("output_tokens", "completion_tokens"),
        cache_read_input_tokens=count("cache_read_input_tokens"),
        cache_creation_input_tokens=count("cache_creation_input_tokens"),
        requests=1,
    )


def unavailable(error: BaseException, model: str, secrets: Iterable[str], usage: Usage) -> PlannerUnavailable:
    """`error`, from instructor or a provider's SDK, as ours; `usage` is what was spent until then."""
    what = _what(_root(error))
    for secret in secrets:
        what = what.replace(secret, "(key)")
    name = f"planner model {model}" if model else "planner model"
    return PlannerUnavailable(f"{name}: {_KEY.sub('(key)', what)}, {RULES_CURE}", usage)


def _root(error: BaseException) -> BaseException:
    """Below instructor's wrapping: the error of the SDK."""
    while type(error).__name__ == "InstructorRetryException" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _what(cause: BaseException) -> str:
    name, status = type(cause).__name__, getattr(cause, "status_code", None)
    if status in _CURES:
        return _CURES[status]
    if isinstance(status, int) and status >= 500:
        return f"the API failed ({status}): retry later"
    if isinstance(status, int):
        return f"the API refused the request ({status}: {_message(cause)}): change what it names"
    if "Timeout" in name:
        return "no answer in time: raise settings.timeout_seconds"
    if "Connection" in name:
        return f"cannot be reached ({_message(cause.__cause__ or cause)}): check the network and the base URL"
    if "Incomplete" in name:
        return "the answer was cut off: raise settings.max_output_tokens or lower settings.piece_tokens"
    if name in ("ValidationError", "ResponseParsingError", "JSONDecodeError"):
        return "its answers could not be used: try another model"
    return f"failed ({name}): check the client and the model's name"


def _message(error: BaseException) -> str:
    """The provider's own message, one line of it."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    text = " ".join(str(message or error).split())
    return text if len(text) <= 160 else text[:159] + "…"
