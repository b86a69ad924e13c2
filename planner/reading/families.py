"""Family of a model: its API's demands on a list of messages, its token counts, and its window.

An unknown model counts as a current Claude, the strictest case. Published data of single models (window, prices) come
from the table of the package ``genai-prices``, which is loaded at first use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from planner.reading.patterns import lazy_pattern

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

_GPT_VERSION = lazy_pattern(r"\bgpt-(\d{1,2})(?:\.(\d{1,2}))?(?![\d.])")
"""Version in the name of a GPT model: ``gpt-6.2-sol``, ``openai/gpt-7``; not ``gpt-3.5.1``."""
_VERSION = lazy_pattern(r"claude\D{0,40}?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
"""Version in the name of a Claude model: ``claude-opus-5-5``, ``claude-3.5-sonnet``; not the date in
``claude-opus-4-20250514``."""
_SMALL_LINE = lazy_pattern(r"sonnet|haiku")
_BARE_NAME = lazy_pattern(r"(?:.*/|.*\banthropic\.|[a-z-]+:)?([^/@\[]+?)(?:-v\d+(?::\d+)?)?(?:[@\[][^/]*)?", re.S)
"""Model's own name in ``openai/gpt-6-sol``, ``openai:gpt-6-sol``, ``us.anthropic.claude-opus-5-5-v1:0``,
``claude-opus-5-5@20261101`` and ``claude-opus-5-5[1m]``."""
_OPENAI = ("gpt-", "chatgpt", "o1", "o3", "o4", "openai/", "openai:")
"""Beginnings of the names of OpenAI's models."""
_CURRENT = (99, 0)
"""Version of a model whose name has none: later than all others."""
_UNLISTED_WINDOWS = {"chatgpt-4o": 128_000, "gpt-5-chat": 128_000}
"""Windows that the table lacks or has wrong, by the beginning of the name (OpenAI, "Models")."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Properties of a model that decide the form of a list of messages for it."""

    is_claude: bool
    version: tuple[int, int]
    """``(4, 6)`` for ``claude-opus-4-6``; `_CURRENT` for a name without a version, ``(0, 0)`` for OpenAI's models."""
    is_small_line: bool = False
    """True for Sonnet and Haiku, which support some features later than Opus, Fable and Mythos."""

    @property
    def accepts_prefill(self) -> bool:
        """True if the list may end with an assistant message: Claude up to 4.5, and other providers."""
        return not self.is_claude or self.version < (4, 6)

    @property
    def thinks_manually(self) -> bool:
        """True if thinking is switched on with a token budget and must then begin a message: Claude up to 4.5. Adaptive
        thinking (4.6 and later) may start anywhere."""
        return self.is_claude and self.version < (4, 6)

    @property
    def preserves_thinking(self) -> bool:
        """True if a thinking block is bound to everything before it: Fable and Mythos 5.1, the 5.5 models, and later.
        Source: Anthropic, "Prefix checks on thinking blocks", supported models."""
        return self.is_claude and self.version >= (5, 1)

    @property
    def takes_system_messages(self) -> bool:
        """True if ``system`` messages may be inside the list: Opus from 4.8, Fable and Mythos from 5, Sonnet and Haiku
        from 5.5. Source: Anthropic, "Mid-conversation system messages"; other providers take them anywhere."""
        return not self.is_claude or self.version >= ((5, 5) if self.is_small_line else (4, 8))

    @property
    def token_scale(self) -> float:
        """Factor from a count with OpenAI's vocabulary o200k to the largest count that the model may have.

        It is the worst ratio measured: 1.6 for Claude models from 4.7 on and for unknown models, 1.27 for older Claude
        models, 1 for OpenAI's models.
        """
        if not self.is_claude:
            return 1.0
        return 1.27 if self.version < (4, 7) else 1.6

    @property
    def image_tokens(self) -> int:
        """Largest number of tokens for one image; Claude scales larger images down, and less so from 4.7 on."""
        return 1_600 if self.version < (4, 7) else 4_784


@lru_cache(maxsize=256)
def binds_reasoning(model: str) -> bool:
    """Return True if the provider removes `model`'s reasoning after a changed prefix: GPT-6.2 and later. Source:
    OpenAI, "Keep the prefix unchanged". Claude's thinking blocks are `ModelFamily.preserves_thinking`."""
    match = _GPT_VERSION.search(model.lower())
    return match is not None and (int(match[1]), int(match[2] or 0)) >= (6, 2)


@lru_cache(maxsize=256)
def model_family(model: str) -> ModelFamily:
    """Return the family of `model`, in any provider's spelling; an empty or unknown name counts as a current Claude."""
    name = model.lower()
    if name.startswith(_OPENAI):
        return ModelFamily(False, (0, 0))
    match = _VERSION.search(name)
    version = (int(match[1]), int(match[2] or 0)) if match else _CURRENT
    return ModelFamily(True, version, bool(_SMALL_LINE.search(name)))


def names_provider(model: str | None) -> bool:
    """Return True if `model` names its provider, as ``anthropic/claude-haiku-5-5`` does."""
    return model is not None and "/" in model


@lru_cache(maxsize=256)
def published_model(model: str) -> ModelInfo | None:
    """Return the entry of `model`, in any provider's spelling, in the published table; None without one."""
    bare = _BARE_NAME.fullmatch(model.lower())
    if bare is None:
        return None
    from genai_prices.data_snapshot import get_snapshot  # loads an HTTP client: only where a model is named

    for name in (bare[1], bare[1].replace(".", "-")):
        try:
            _, model_info = get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        return model_info
    return None


def known_window_tokens(model: str) -> int | None:
    """Return the size of the context window of `model`; None if it is not known."""
    bare = _BARE_NAME.fullmatch(model.lower())
    unlisted = (size for start, size in _UNLISTED_WINDOWS.items() if bare and bare[1].startswith(start))
    published = published_model(model)
    return next(unlisted, None) or (published.context_window if published else None)
