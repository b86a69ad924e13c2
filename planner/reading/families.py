"""Which family of models a name belongs to: what the API demands of it, how it counts and its window.

A name nobody knows counts as a current Claude: the strictest answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from planner.reading.patterns import lazy_pattern

__all__ = ["ModelFamily", "known_window_tokens", "model_family"]

_VERSION = lazy_pattern(r"claude\D*?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_OPENAI = ("gpt-", "chatgpt", "o1", "o3", "o4", "openai/", "openai:")
_CURRENT = (99, 0)
_SMALL_WINDOWS = (
    ("gpt-3.5", 16_385),
    ("gpt-4-turbo", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-4.", 0),
    ("gpt-4", 8_192),
    ("gpt-5-chat", 128_000),
    ("chatgpt-4o", 128_000),
)
"""Windows below 200,000 tokens of models that are still served, by the beginning of a name, first match first (the
providers' pages of models). 0: larger, though a name below begins it; ``gpt-4.1`` is no ``gpt-4``."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """What of a model decides how a message list for it must look."""

    is_claude: bool
    version: tuple[int, int]
    """``(4, 6)`` for ``claude-opus-4-6``; very high when the name says none."""

    @property
    def accepts_prefill(self) -> bool:
        """The list may end with an assistant message: up to Claude 4.5 (removed in 4.6), and elsewhere."""
        return not self.is_claude or self.version < (4, 6)

    @property
    def thinks_manually(self) -> bool:
        """Thinking is switched on with a token budget, and then has to lead a message: up to Claude 4.5.

        Adaptive thinking (4.6 and later) may start anywhere.
        """
        return self.is_claude and self.version < (4, 6)

    @property
    def preserves_thinking(self) -> bool:
        """A thinking block is bound to everything before it: Fable and Mythos 5.1, the 5.5 models, and later.

        Source: Anthropic, "Prefix checks on thinking blocks", supported models.
        """
        return self.is_claude and self.version >= (5, 1)

    @property
    def takes_system_messages(self) -> bool:
        """``system`` messages may stand inside the list: Claude 4.8 and later.

        Source: Anthropic, "Mid-conversation system messages"; other providers take them anywhere.
        """
        return not self.is_claude or self.version >= (4, 8)

    @property
    def token_scale(self) -> float:
        """What an o200k count is multiplied with so that the model never counts more: the worst ratio measured.

        1.6 for current Claude models (4.7 and later) and unknown ones, 1.27 for older Claude models, 1 for
        OpenAI's, whose tokenizer it is.
        """
        if not self.is_claude:
            return 1.0
        return 1.27 if self.version < (4, 7) else 1.6

    @property
    def image_tokens(self) -> int:
        """The most one image costs, larger ones are scaled down: more from Claude 4.7 on."""
        return 1_600 if self.version < (4, 7) else 4_784


def known_window_tokens(model: str) -> int | None:
    """The context window of `model`, if it is known to be smaller than the usual 200,000 tokens."""
    name = model.lower().rpartition("/")[2].removeprefix("openai:").removeprefix("anthropic.")
    return next((tokens for start, tokens in _SMALL_WINDOWS if name.startswith(start)), 0) or None


def names_provider(model: str | None) -> bool:
    """True if `model` says whose it is, ``anthropic/claude-haiku-5-5``: it is asked there, with the key for there."""
    return model is not None and "/" in model


@lru_cache(maxsize=256)
def model_family(model: str) -> ModelFamily:
    """The family of `model`, as any provider spells it; an empty or unknown name is a current Claude."""
    name = model.lower()
    if name.startswith(_OPENAI):
        return ModelFamily(False, (0, 0))
    found = _VERSION.search(name)
    return ModelFamily(True, (int(found[1]), int(found[2] or 0)) if found else _CURRENT)
