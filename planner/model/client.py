"""How the planner model is reached: the caller's client, a provider string, or the SDK's own settings.

Whatever is given ends as one instructor ``create``; for Claude one that forces no tool and prefills nothing.
Sends nothing itself. anthropic and instructor are loaded only when a client is opened.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import PlannerUnavailable, SettingsError
from planner.model.prompts import one_line

__all__ = [
    "DEFAULT_MODEL",
    "Endpoint",
    "for_planning",
    "has_credentials",
    "keys_of",
    "open_endpoint",
    "running_loop",
]

DEFAULT_MODEL = "claude-haiku-5-5"
"""The current model of Claude's smallest and cheapest line (anthropic 2.11's list of models): ranking turns
and pointing at lines needs reading more than reasoning."""

RULES_CURE = 'or plan with planner="rules"'
_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)


@dataclass(frozen=True)
class Endpoint:
    """A planner model that can be asked."""

    create: Callable[..., Any]
    """instructor's ``create``; a coroutine function if `loop` is set."""
    model: str
    """Empty: the one the caller's instructor client was made for."""
    speaks_anthropic: bool
    request: Mapping[str, Any]
    """What every request carries besides messages."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop an asynchronous client belongs to."""
    secrets: tuple[str, ...] = ()
    """What must never stand in an error text."""


def has_credentials(model: str | None = None) -> bool:
    """True if the environment holds what `model` needs; of providers other than Anthropic it is assumed."""
    if model is not None and "/" in model and not model.startswith("anthropic/"):
        return True
    return any(os.environ.get(name) for name in _KEY_VARIABLES)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@contextmanager
def open_endpoint(
    client: object, model: str | None, timeout_seconds: float, loop: asyncio.AbstractEventLoop | None
) -> Iterator[Endpoint]:
    """The endpoint for what the caller gave; a client that is made here is closed again.

    Raises:
        SettingsError: `client` is no client, or an asynchronous one that cannot be used from here.
        PlannerUnavailable: there is no usable key, or the provider's package is missing.
    """
    if client is None and model is not None and "/" in model and not model.startswith("anthropic/"):
        yield _provider_endpoint(model, timeout_seconds)
        return
    own = _own_client() if client is None else None
    try:
        yield _client_endpoint(client if own is None else own, model, timeout_seconds, loop)
    finally:
        if own is not None:
            own.close()


def _provider_endpoint(model: str, timeout_seconds: float) -> Endpoint:
    import instructor

    try:
        found = instructor.from_provider(model)
    except Exception as error:  # noqa: BLE001 - each provider's package has errors of its own
        raise PlannerUnavailable(
            f"planner model {model}: no client for this provider ({type(error).__name__}): install its "
            f"package and set its key, pass client=, {RULES_CURE}"
        ) from None
    return replace(_instructor_endpoint(found, None, timeout_seconds, None), model=model)


def _own_client() -> Any:
    import anthropic

    try:
        client = anthropic.Anthropic()
    except anthropic.AnthropicError as error:
        raise PlannerUnavailable(f"planner model: {one_line(str(error), 200)}, {RULES_CURE}") from None
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        client.close()
        raise PlannerUnavailable(f"planner model: no API key found: set ANTHROPIC_API_KEY, pass client=, {RULES_CURE}")
    return client


def _client_endpoint(
    client: Any, model: str | None, timeout_seconds: float, loop: asyncio.AbstractEventLoop | None
) -> Endpoint:
    import instructor

    if not isinstance(client, instructor.Instructor):
        return _anthropic_endpoint(client, model or DEFAULT_MODEL, timeout_seconds, loop)
    forces_tool = client.provider is instructor.Provider.ANTHROPIC and client.mode is not instructor.Mode.JSON
    if forces_tool and model is None:
        raise SettingsError(
            "client: this instructor client forces a tool, which current Claude models refuse: pass model= "
            "too, or build it with Mode.JSON"
        )
    if forces_tool and model is not None:
        return _anthropic_endpoint(client.client, model, timeout_seconds, loop, client.hooks)
    return _instructor_endpoint(client, model, timeout_seconds, loop)


def _instructor_endpoint(
    client: Any, model: str | None, timeout_seconds: float, loop: asyncio.AbstractEventLoop | None
) -> Endpoint:
    """The caller's instructor client as it is; without `model` it asks the one it was made for."""
    import instructor

    request: dict[str, Any] = {"model": model} if model else {}
    if hasattr(client.client, "with_options"):  # the SDKs of Anthropic and OpenAI; others take no timeout here
        request["timeout"] = timeout_seconds
    return Endpoint(
        client.create,
        model or "",
        client.provider is instructor.Provider.ANTHROPIC,
        request,
        _usable_loop(loop) if isinstance(client, instructor.AsyncInstructor) else None,
        keys_of(client.client),
    )


def _anthropic_endpoint(
    client: Any, model: str, timeout_seconds: float, loop: asyncio.AbstractEventLoop | None, hooks: Any = None
) -> Endpoint:
    import instructor
    from instructor.core import ClientError

    _check_key(client)
    try:
        asked = instructor.from_anthropic(for_planning(client), mode=instructor.Mode.JSON, hooks=hooks)
    except ClientError:
        raise SettingsError(
            "client: expected anthropic.Anthropic, anthropic.AsyncAnthropic or an instructor client, found "
            f"{type(client).__name__}"
        ) from None
    return _instructor_endpoint(asked, model.removeprefix("anthropic/"), timeout_seconds, loop)


def for_planning(client: Any) -> Any:
    """`client` without middleware that is for agents only: a session's would wait for the planner it waits for."""
    every = getattr(client, "middleware", ())
    kept = [middleware for middleware in every if not getattr(middleware, "for_agents_only", False)]
    return client if len(kept) == len(every) else client.with_options(middleware=kept)


def _usable_loop(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """`loop`, if it runs in another thread: waiting for it from its own would stop it."""
    if loop is None or not loop.is_running() or loop is running_loop():
        raise SettingsError(
            "client: an asynchronous client works in plan_compaction_async only; pass anthropic.Anthropic() here"
        )
    return loop


def _check_key(client: Any) -> None:
    """A key that cannot stand in a header is refused before libraries put it into an error text."""
    if any(re.search(r"[^\x21-\x7e]", key) for key in keys_of(client)):
        raise PlannerUnavailable(
            "planner model: the API key holds a space, a line break or a letter that no key has: copy it "
            f"again, {RULES_CURE}"
        )


def keys_of(client: Any) -> tuple[str, ...]:
    """The keys `client` sends, for taking them out of what is said."""
    keys = (getattr(client, name, None) for name in ("api_key", "auth_token"))
    return tuple(key for key in keys if isinstance(key, str) and key)
