"""A session preset as a method: what it sends right after it had to compact, at the size it is given.

A preset aims at a share of its window, each at another; so the window is made wider as long as what is sent stays
within the target. Plans by rules; the store is a temporary one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from applier.bench.texts import message_tokens
from applier.session.presets import preset_named
from applier.session.session import Session
from applier.settings import SessionSettings
from planner.reading.messages import Message
from planner.reading.tokens import TokenCounter

__all__ = ["compact_by_preset"]

WINDOWS = (1.0, 2.0, 3.5, 5.0, 10.0)
"""Sizes of the window, in targets: the smallest share of a window that a preset aims at is a tenth."""
LEAST_WINDOW_TOKENS = 2_000
"""What `SessionSettings` takes at least."""


def compact_by_preset(messages: Sequence[Message], task: str, target_tokens: int, preset: str) -> list[Message]:
    """The largest list within the target that the preset sends for `messages`; else the smallest it sends.

    Raises:
        SettingsError: there is no such preset.
    """
    preset_named(preset)
    sent = list(_sent(messages, task, target_tokens, preset))
    fitting = [listed for listed in sent if message_tokens(listed) <= target_tokens]
    return max(fitting, key=message_tokens) if fitting else min(sent, key=message_tokens)


def _sent(messages: Sequence[Message], task: str, target_tokens: int, preset: str) -> Iterator[list[Message]]:
    own_counting = TokenCounter.for_model().messages(messages) / max(1, message_tokens(messages))
    for width in WINDOWS:
        window = max(LEAST_WINDOW_TOKENS, int(width * target_tokens * own_counting))
        settings = SessionSettings(preset=preset, window_tokens=window, max_output_tokens=1, planner="rules")
        with (
            tempfile.TemporaryDirectory() as folder,
            Session(task, settings=settings, store=Path(folder, "store.db")) as session,
        ):
            yield list(session.prepare(list(messages)))
