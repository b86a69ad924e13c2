"""Why a planner model could not be used, in one line with its cure, whatever library said so.

Never repeats a key, and of a provider's text no more than a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.errors import PlannerUnavailable
from planner.model.clients import RULES_CURE

__all__ = ["unavailable"]

_KEY = re.compile(r"\b(?:sk|pk|key)-[\w-]{6,}")
_CURES = {
    401: "the API key was refused (401): set ANTHROPIC_API_KEY to a valid key or pass client=",
    403: "the API key may not use it (403): use another key or model",
    404: "there is no such model (404): pass model= with one your key may use",
    413: "the request was too large (413): lower settings.piece_tokens or settings.planner_input_ratio",
    429: "the rate limit is used up (429): retry later",
    529: "the API is overloaded (529): retry later",
}


def unavailable(error: BaseException, model: str, secrets: Iterable[str] = ()) -> PlannerUnavailable:
    """`error`, from instructor or a provider's SDK, as ours."""
    cause = _root(error)
    what = _what(cause)
    for secret in secrets:
        what = what.replace(secret, "(key)")
    name = f"planner model {model}" if model else "planner model"
    return PlannerUnavailable(f"{name}: {_KEY.sub('(key)', what)}, {RULES_CURE}")


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
        return f"the API refused the request ({status}: {_said(cause)}): change what it names"
    if "Timeout" in name:
        return "no answer in time: raise settings.timeout_seconds"
    if "Connection" in name:
        return f"cannot be reached ({_said(cause.__cause__ or cause)}): check the network and the base URL"
    if "Incomplete" in name:
        return "the answer was cut off: raise settings.max_output_tokens or lower settings.piece_tokens"
    if name in ("ValidationError", "ResponseParsingError", "JSONDecodeError"):
        return "its answers could not be used: try another model"
    return f"failed ({name}): check the client and the model's name"


def _said(error: BaseException) -> str:
    """The provider's own message, one line of it."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else None
    text = " ".join(str(said or error).split())
    return text if len(text) <= 160 else text[:159] + "…"
