"""Compaction in a loop of your own, without middleware: what to put around ``messages.create``."""

from __future__ import annotations

from typing import Any

import anthropic

from applier.session import Session


def ask(client: anthropic.Anthropic, session: Session, *, messages: list[Any], **request: Any) -> Any:
    """The answer to `messages`, which the caller only ever appends to; `request` is the rest of ``create``."""
    try:
        response = client.messages.create(messages=session.prepare(messages), **request)
    except anthropic.APIStatusError as error:
        shorter = session.recover(messages, error)
        if shorter is None:
            raise
        response = client.messages.create(messages=shorter, **request)
    session.observe(response)
    return response
