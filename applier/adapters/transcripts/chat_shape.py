"""What an OpenAI chat message looks like. Refuses what is none; keeps fields it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from planner.errors import TranscriptError

__all__ = ["check_chat_message", "is_chat"]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _ImageUrl(_Open):
    url: str


class _Part(_Open):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: _ImageUrl | None = None

    @model_validator(mode="after")
    def _holds_its_type(self) -> _Part:
        needed = self.type in ("text", "refusal", "image_url")
        if needed and (self.type not in self.model_fields_set or getattr(self, self.type) is None):
            raise ValueError(f"expected a {self.type!r} in a part of that type")
        return self


class _Function(_Open):
    name: str
    arguments: str


class _Custom(_Open):
    name: str
    input: str


class _Call(_Open):
    id: str
    function: _Function | None = None
    custom: _Custom | None = None

    @model_validator(mode="after")
    def _calls_something(self) -> _Call:
        if (self.function is None) == (self.custom is None):
            raise ValueError("expected a 'function' or a 'custom' tool in a tool call")
        return self


class _Words(_Open):
    role: Literal["system", "developer", "user"]
    content: str | list[_Part]


class _Assistant(_Open):
    role: Literal["assistant"]
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Tool(_Open):
    role: Literal["tool"]
    tool_call_id: str
    content: str | list[_Part] | None = None


class _FunctionResult(_Open):
    """The older form of a tool's answer: it passes through untouched."""

    role: Literal["function"]
    content: str


_MESSAGE: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Words | _Assistant | _Tool | _FunctionResult, Field(discriminator="role")]
)

_ONLY_CHAT_ROLES = frozenset({"tool", "developer", "function"})
_ONLY_CHAT_PARTS = frozenset({"image_url", "input_audio", "refusal", "file"})
_ONLY_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use"}
)


def check_chat_message(message: dict[str, Any], place: str) -> None:
    """Raise if `message` is no OpenAI chat message.

    Raises:
        TranscriptError: the text names `place`, the field, what was expected and what was found.
    """
    try:
        _MESSAGE.validate_python(message)
    except ValidationError as error:
        raise TranscriptError(f"{place}: {_problem(error, message)}") from None


def _problem(error: ValidationError, message: dict[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    fields = [str(step) for step in first["loc"] if not str(step)[:1].isupper() and "[" not in str(step)]
    field = ".".join(fields[1:] if fields and fields[0] == message.get("role") else fields)
    problem = first["msg"].removeprefix("Value error, ")
    if field.startswith("content.str") or field == "content":
        return f"expected 'content' to be text or a list of parts, found {message.get('content')!r:.60}"
    if not field:
        return f"{problem}, found {message.get('role')!r}"
    return f"{field}: {problem}, found {first['input']!r:.60}"


def is_chat(messages: Sequence[object]) -> bool | None:
    """Whether `messages` are OpenAI chat messages, by the first thing that only one of the two formats has.

    None: nothing in them tells.
    """
    for message in messages:
        if not isinstance(message, dict):
            continue
        if message.get("role") in _ONLY_CHAT_ROLES or "tool_calls" in message or "function_call" in message:
            return True
        content = message.get("content")
        if "content" in message and content is None:
            return True
        kinds = {b.get("type") for b in content if isinstance(b, dict)} if isinstance(content, list) else set()
        if kinds & _ONLY_CHAT_PARTS:
            return True
        if kinds & _ONLY_ANTHROPIC_BLOCKS:
            return False
    return None
