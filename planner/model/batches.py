"""Questions sent together by Anthropic's batch API: half the price, answered within a day.

A batch is known by its id, which outlives the process that sent it. Judges no answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["MOST_REQUESTS", "PRICE_SHARE", "answers_of", "batch_since", "send_batch"]

PRICE_SHARE = 0.5
"""Of the price of the same requests sent one by one (Anthropic, "Batch processing")."""
MOST_REQUESTS = 2_000
"""Of one batch: 256 MB are allowed, and a question by cards seldom has more than 100 KB."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
"""Between two looks whether a batch has ended; each pause is twice the one before."""
CLOCKS_SECONDS = 300.0
"""So far the provider's clock and ours may be apart."""


def send_batch(client: Any, requests: Mapping[str, Mapping[str, Any]]) -> str:
    """Send the bodies of `requests`, by names of letters, digits, ``_`` and ``-``; the id of the batch.

    Raises:
        anthropic.AnthropicError: it was not taken.
    """
    sent = [{"custom_id": name, "params": dict(body)} for name, body in requests.items()]
    return str(client.messages.batches.create(requests=sent).id)


def batch_since(client: Any, time: float, requests: int) -> str:
    """The id of the newest batch of so many requests that was sent after `time`, in seconds since the epoch; empty if
    there is none: what was sent by a process that ended before it was told the id.

    Raises:
        anthropic.AnthropicError: it cannot be reached.
    """
    for batch in client.messages.batches.list(limit=100):  # newest first
        if batch.created_at.timestamp() < time - CLOCKS_SECONDS:
            break
        if sum(batch.request_counts.model_dump().values()) == requests:
            return str(batch.id)
    return ""


def answers_of(client: Any, batch: str) -> Iterator[tuple[str, Any]]:
    """Wait until it has ended; then each request's name with the message that answers it, or why there is none. A batch
    that the provider no longer knows has no answers.

    Raises:
        anthropic.AnthropicError: it cannot be reached.
    """
    import anthropic

    pause = FIRST_PAUSE_SECONDS
    try:
        while client.messages.batches.retrieve(batch).processing_status != "ended":
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
    except anthropic.NotFoundError:
        return
    for row in client.messages.batches.results(batch):
        yield row.custom_id, row.result.message if row.result.type == "succeeded" else row.result.type
