"""LangChain messages through a session and back; what it leaves alone comes back as the same objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from langchain_core.messages import (
    AnyMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)

from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from planner.reading.messages import Message, message_digest

__all__ = ["through"]


def through(
    act: Callable[[list[Message]], list[Message] | None], messages: Sequence[AnyMessage]
) -> list[AnyMessage] | None:
    """`messages` after `act` on their plain form, None if that says None; system messages stay in front, untouched."""
    system = [message for message in messages if isinstance(message, SystemMessage)]
    groups = _grouped([message for message in messages if not isinstance(message, SystemMessage)])
    plain = [(_plain(group), group) for group in groups]
    view = act([message for message, _ in plain])
    if view is None:
        return None
    known = {message_digest(message): group for message, group in plain}
    return [*system, *(m for message in view for m in known.get(message_digest(message)) or _built(message))]


def _grouped(messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
    """Results of parallel calls stand together, as in one message."""
    groups: list[list[AnyMessage]] = []
    for message in messages:
        if groups and isinstance(message, ToolMessage) and isinstance(groups[-1][0], ToolMessage):
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _plain(group: list[AnyMessage]) -> Message:
    plain = strip_openai(from_openai(convert_to_openai_messages(group)))[0]
    for message, block in zip(group, plain["content"], strict=False):
        if isinstance(message, ToolMessage) and message.status == "error":
            block["is_error"] = True
    return plain


def _built(message: Message) -> list[AnyMessage]:
    return cast(list[AnyMessage], convert_to_messages(to_openai([message])))
