"""What a conversion cannot say in the other format's words, kept beside it so that it can be undone exactly.

The remainder holds only the difference to the plain way back, and counts only while it still agrees with what
it stands beside: a message that was changed since comes back as it now is, never as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["REMAINDER", "with_remainder", "without_remainder"]

REMAINDER = "openai"
"""The key that holds it, on a message or a block. The Anthropic API refuses it."""

Data = dict[str, Any]


def with_remainder(converted: Data, original: Data, back: Callable[[Data], Data | None]) -> Data:
    """`converted`, carrying what ``back(converted)`` lacks of `original`; `original` if nothing differs."""
    plain = back(converted)
    if converted == original == plain:
        return original
    rest = _difference(original, plain or {})
    return {**converted, REMAINDER: rest} if rest else converted


def without_remainder(
    converted: Data, forward: Callable[[Data], Data], back: Callable[[Data], Data | None]
) -> Data | None:
    """What `forward` made `converted` from; ``back(converted)`` if it carries nothing or was changed."""
    rest = converted.get(REMAINDER)
    if not isinstance(rest, dict):
        return back(converted)
    plain = back({key: value for key, value in converted.items() if key != REMAINDER})
    original = _restored(plain or {}, rest)
    return original if forward(original) == converted else plain


def _difference(full: Data, plain: Data) -> Data:
    """How to get from `plain` to `full`: keys to set, keys to drop, and the same for dicts inside."""
    inside = {
        key: _difference(value, plain[key])
        for key, value in full.items()
        if isinstance(value, dict) and isinstance(plain.get(key), dict)
    }
    steps = {
        "set": {k: v for k, v in full.items() if k not in inside and (k not in plain or plain[k] != v)},
        "drop": [key for key in plain if key not in full],
        "inside": {key: steps for key, steps in inside.items() if steps},
    }
    return {name: step for name, step in steps.items() if step}


def _restored(plain: Data, rest: Data) -> Data:
    kept = {key: value for key, value in plain.items() if key not in rest.get("drop", ())}
    inside = {key: _restored(kept[key], steps) for key, steps in rest.get("inside", {}).items() if key in kept}
    return {**kept, **rest.get("set", {}), **inside}
