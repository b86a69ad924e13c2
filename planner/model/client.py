"""Opens the connection to the planner model, and reads responses and errors of any provider.

A client, a provider string or None becomes one instructor ``create``; for Claude one without forced tools and prefill.
Requests are metered: by the provider's usage, or without an answer by the size that was sent, as a provider may bill
input that it has read. Sends nothing itself, and keeps keys out of texts. anthropic and instructor are loaded only when
a client is opened.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from planner.errors import PlannerUnavailable, SettingsError
from planner.model.prompts import one_line
from planner.plan import Usage
from planner.prices import billed_tokens
from planner.proposal import Account
from planner.reading.families import names_provider

__all__ = [
    "DEFAULT_MODEL",
    "Endpoint",
    "Meter",
    "for_planning",
    "has_credentials",
    "is_refusal",
    "is_same_account",
    "keys_of",
    "open_client",
    "open_endpoint",
    "response_text",
    "response_usage",
    "retries_of",
    "sdk_timeout",
    "unavailable",
]

DEFAULT_MODEL = "claude-haiku-5-5"
"""Default model: the current one of Claude's smallest and cheapest line (anthropic 2.11's list of models), as ranking
turns and pointing at lines needs reading more than reasoning."""

CONNECT_SECONDS, CONNECT_SHARE = 5.0, 0.25
"""Longest time for a connection: anthropic's own limit, or if that is shorter, a share of the time for the request,
which leaves room for another try."""

_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)
"""Environment variables from which anthropic's SDK takes credentials."""
_OF_A_REQUEST = ("accept", "anthropic-version", "connection", "content-", "host", "user-agent", "x-stainless-")
"""Prefixes of headers that describe a request, not its sender."""


@dataclass(frozen=True)
class Endpoint:
    """Planner model that can be asked, by a function and the fields that all requests to it have."""

    create: Callable[..., Any]
    """instructor's ``create``."""
    model: str
    """Model name; empty: the model of the caller's instructor client."""
    speaks_anthropic: bool
    request: Mapping[str, Any]
    """Further fields of every request."""
    takes_timeout: bool
    retries: int = 0
    """Number of repetitions by us after temporary failures; 0 if the client repeats by itself."""
    secrets: tuple[str, ...] = ()
    """Secrets that no error text may contain."""

    def body(
        self, shape: type[BaseModel], system: str, prompt: str, max_output_tokens: int, seconds: float
    ) -> Mapping[str, Any]:
        """Return the body of a request that asks for an answer of `shape`, within `seconds`; for Claude with a schema
        and a cache mark on the system prompt."""
        message = {"role": "user", "content": prompt}
        if not self.speaks_anthropic:
            timeout = {"timeout": max(0.001, seconds)} if self.takes_timeout else {}
            return {"messages": [{"role": "system", "content": system}, message], **timeout, **self.request}
        import anthropic

        schema = anthropic.transform_schema(shape)
        schema["required"] = list(schema["properties"])  # also fields with a default
        return {
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "messages": [message],
            "max_tokens": max_output_tokens,
            "timeout": sdk_timeout(seconds),
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
            **self.request,
        }


def has_credentials(model: str | None = None) -> bool:
    """Return True if the environment has credentials for `model`; other providers are not checked."""
    return _names_other(model) or any(os.environ.get(name) for name in _KEY_VARIABLES)


def _names_other(model: str | None) -> bool:
    """Return True for ``openai/gpt-5-mini``; not for ``anthropic/claude-opus-5-5``."""
    return model is not None and names_provider(model) and not model.startswith("anthropic/")


@contextmanager
def open_endpoint(client: object, model: str | None) -> Iterator[Endpoint]:
    """Yield the endpoint for the caller's client or model, and close the client afterwards if it was made here.

    Raises:
        SettingsError: `client` is no client, or an asynchronous one of another provider.
        PlannerUnavailable: there is no usable key, or the provider's package is missing.
    """
    if client is None and model is not None and _names_other(model):
        yield replace(_instructor_endpoint(_provider_client(model), ""), model=model)
        return
    with open_client(client) as usable:
        endpoint = _client_endpoint(usable, model)
        yield replace(endpoint, secrets=client.secrets) if isinstance(client, Account) else endpoint


@contextmanager
def open_client(client: Any) -> Iterator[Any]:
    """Yield `client`; for None, an account, or an asynchronous or closed client, yield a new one and close it."""
    account = client if isinstance(client, Account) else _account_of(client)
    if client is not None and account is None:
        yield client
        return
    with closing(_own_client() if account is None else _account_client(account)) as made:
        yield made


def _account_of(client: Any) -> Account | None:
    """Return address and headers of a client that is asynchronous or closed, and so unusable here; None for others."""
    import anthropic

    if not isinstance(client, anthropic.AsyncAnthropic) and not (hasattr(client, "is_closed") and client.is_closed()):
        return None
    _check_key(client)
    texts = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
    return Account(str(client.base_url), {n: v for n, v in texts.items() if not n.lower().startswith(_OF_A_REQUEST)})


def _provider_client(model: str) -> Any:
    """Return instructor's client for a string such as ``openai/gpt-5-mini``."""
    import instructor

    logging.getLogger("instructor").addHandler(logging.NullHandler())  # its traceback says no more than we do
    try:
        return instructor.from_provider(model, mode=instructor.Mode.JSON_SCHEMA if _is_openai(model) else None)
    except Exception as error:  # noqa: BLE001 - each provider's package has errors of its own
        raise PlannerUnavailable(
            f"planner model {model}: no client for this provider ({type(error).__name__}): "
            "install its package and set its key"
        ) from None


def _is_openai(model: str) -> bool:
    """Return True for OpenAI's own models, which from GPT-5.4 on refuse forced tools on chat completions."""
    return model.startswith("openai/")


def _own_client() -> Any:
    """Return a client of anthropic with the credentials in the environment."""
    import anthropic

    try:
        client = anthropic.Anthropic()
    except anthropic.AnthropicError as error:
        raise PlannerUnavailable(f"planner model: {one_line(str(error), 200)}") from None
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        client.close()
        cure = "set ANTHROPIC_API_KEY, or choose the planner `rules`"
        raise PlannerUnavailable(f"planner model: no API key found: {cure}")
    return client


def _account_client(account: Account) -> Any:
    """Return a client that sends the account's headers and follows no redirects.

    Before each request a hook removes all headers of the SDK that do not describe the request itself, such as keys from
    the environment, which belong to another host.
    """
    import anthropic

    def set_headers(request: Any) -> None:
        for name in [name for name in request.headers if not name.startswith(_OF_A_REQUEST)]:
            del request.headers[name]
        request.headers.update(account.headers)

    http = anthropic.DefaultHttpxClient(follow_redirects=False, event_hooks={"request": [set_headers]})
    key = next(iter(account.secrets), "none")  # with any key, the SDK does not look for one in the environment
    return anthropic.Anthropic(base_url=account.base_url, api_key=key, http_client=http)


def _client_endpoint(client: Any, model: str | None) -> Endpoint:
    """Return the endpoint of a client of anthropic or instructor; an instructor client that would force a tool, which
    current Claude models refuse, is replaced by one that does not."""
    import instructor
    from instructor.core import ClientError

    hooks = None
    if isinstance(client, instructor.AsyncInstructor):
        raise SettingsError("client: an asynchronous instructor client: pass the one of the synchronous SDK")
    if isinstance(client, instructor.Instructor):
        if client.provider is not instructor.Provider.ANTHROPIC or client.mode is instructor.Mode.JSON:
            return _instructor_endpoint(client, model or "")
        if model is None:
            raise SettingsError(
                "client: this instructor client forces a tool, which current Claude models refuse: pass model= "
                "too, or build it with Mode.JSON"
            )
        client, hooks = client.client, client.hooks
    _check_key(client)
    without_retries = for_planning(client)
    try:
        wrapped = instructor.from_anthropic(without_retries, mode=instructor.Mode.JSON, hooks=hooks)
    except ClientError:
        raise SettingsError(
            "client: expected anthropic.Anthropic, anthropic.AsyncAnthropic or an instructor client, found "
            f"{type(client).__name__}"
        ) from None
    endpoint = _instructor_endpoint(wrapped, (model or DEFAULT_MODEL).removeprefix("anthropic/"))
    return replace(endpoint, retries=client.max_retries - without_retries.max_retries)


def _instructor_endpoint(client: Any, model: str) -> Endpoint:
    """Return the endpoint of the caller's instructor client; without `model`, with the client's own model."""
    import instructor

    speaks_anthropic = client.provider is instructor.Provider.ANTHROPIC
    takes_timeout = hasattr(client.client, "with_options")  # the SDKs of Anthropic and OpenAI; others take none here
    request = {"model": model} if model else {}
    return Endpoint(client.create, model, speaks_anthropic, request, takes_timeout, secrets=keys_of(client.client))


def for_planning(client: Any) -> Any:
    """Return a copy of `client` that repeats nothing and has no middleware for agents, as a session that plans in its
    own middleware would wait for itself.

    A client with replaced methods (by a tracer, for example) is returned itself, as a copy would not call the
    replacement.
    """
    all_middleware = getattr(client, "middleware", None)
    if all_middleware is None:
        return client
    kept = [middleware for middleware in all_middleware if not getattr(middleware, "for_agents_only", False)]
    if len(kept) == len(all_middleware) and "create" in vars(client.messages):
        return client
    return client.with_options(middleware=kept, max_retries=0)


def _check_key(client: Any) -> None:
    """Raise PlannerUnavailable for a key that cannot be in a header, before a library puts it into an error text."""
    if any(re.search(r"[^\x21-\x7e]", key) for key in keys_of(client)):
        raise PlannerUnavailable(
            "planner model: the API key contains a space, a line break or a letter that no key has: copy it again"
        )


def is_same_account(client: Any, other: Any) -> bool:
    """Return True if both clients send to the same address with the same key."""
    ours, theirs = (getattr(one, "client", one) for one in (client, other))  # instructor's clients wrap another
    names = ("base_url", "headers", "api_key", "auth_token", "credentials")
    return all(getattr(ours, name, None) == getattr(theirs, name, None) for name in names)


def keys_of(client: Any) -> tuple[str, ...]:
    """Return the keys that `client` sends, for removing them from texts."""
    keys = (getattr(client, name, None) for name in ("api_key", "auth_token"))
    return tuple(key for key in keys if isinstance(key, str) and key)


_KEY = re.compile(r"\b(?:sk|pk|key)-[\w-]{6,}")
"""Form of a key: ``sk-ant-api03-…``; not ``task-force``."""
_CURES = {
    401: "the API key was refused (401): set ANTHROPIC_API_KEY to a valid key",
    403: "the API key may not use it (403): use another key or model",
    404: "there is no such model (404): pass model= with one your key may use",
    413: "the request was too large (413): lower settings.piece_tokens or settings.planner_input_ratio",
    429: "the rate limit is used up (429): retry later",
    529: "the API is overloaded (529): retry later",
}
"""Problem and remedy by HTTP status."""


def response_text(response: Any) -> str:
    """Return the text of a response: Anthropic's text blocks, or text or tool arguments of others' first choice."""
    content = getattr(response, "content", None)
    if isinstance(content, list):
        return "".join(str(getattr(block, "text", "")) for block in content)
    choices = getattr(response, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    calls = getattr(message, "tool_calls", None) or [None]
    return str(getattr(message, "content", None) or getattr(getattr(calls[0], "function", None), "arguments", ""))


def is_refusal(response: Any) -> bool:
    """Return True if the model refused to answer; it would refuse again."""
    choice = (getattr(response, "choices", None) or [None])[0]
    return (
        getattr(response, "stop_reason", None) == "refusal"
        or getattr(choice, "finish_reason", None) == "content_filter"
        or bool(getattr(getattr(choice, "message", None), "refusal", None))
    )


def response_usage(response: Any) -> Usage:
    """Return the tokens of one request by the provider's count."""
    used = getattr(response, "usage", None)

    def count(*names: str) -> int:
        return next((tokens for name in names if (tokens := billed_tokens(used, name))), 0)

    return Usage(
        input_tokens=count("input_tokens", "prompt_tokens"),
        output_tokens=count("output_tokens", "completion_tokens"),
        cache_read_input_tokens=count("cache_read_input_tokens"),
        cache_creation_input_tokens=count("cache_creation_input_tokens"),
        requests=1,
    )


def retries_of(error: BaseException) -> int:
    """Return how often the SDK of Anthropic or OpenAI repeated a request before it raised `error`; 0 if unknown."""
    headers = getattr(vars(_root(error)).get("request"), "headers", {})  # httpx's own `request` may raise
    count = str(headers.get("x-stainless-retry-count", 0))
    return int(count) if count.isdecimal() else 0


def sdk_timeout(seconds: float) -> Any:
    """Return a timeout of `seconds` for anthropic's SDK, with a shorter limit for the connection."""
    import anthropic

    seconds = max(0.001, seconds)
    return anthropic.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds * CONNECT_SHARE))


def unavailable(
    error: BaseException, model: str, secrets: Iterable[str], usage: Usage, *, declined: bool = False
) -> PlannerUnavailable:
    """Return an error of instructor or a provider's SDK as PlannerUnavailable, without `secrets`, with the `usage` so
    far; `declined`: True if the model refused to answer."""
    what = "declined to answer (refusal): try another model" if declined else _what(_root(error))
    for secret in secrets:
        what = what.replace(secret, "(key)")
    name = f"planner model {model}" if model else "planner model"
    return PlannerUnavailable(f"{name}: {_KEY.sub('(key)', what)}", usage)


def _root(error: BaseException) -> BaseException:
    """Return the SDK's error inside instructor's wrapping."""
    while type(error).__name__ == "InstructorRetryException" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _what(cause: BaseException) -> str:
    """Return what went wrong and how to mend it."""
    name, status = type(cause).__name__, getattr(cause, "status_code", None)
    if status in _CURES:
        return _CURES[status]
    if isinstance(status, int) and status >= 500:
        return f"the API failed ({status}): retry later"
    if isinstance(status, int):
        return f"the API refused the request ({status}: {_message(cause)}): change what it names"
    if "Timeout" in name:
        return "no answer in time: raise settings.timeout_seconds"
    if "Connection" in name:
        return f"cannot be reached ({_message(cause.__cause__ or cause)}): check the network and the base URL"
    if "Incomplete" in name:
        return "the answer was cut off: raise settings.max_output_tokens or lower settings.piece_tokens"
    if name in ("ValidationError", "ResponseParsingError", "JSONDecodeError"):
        return f"its answers could not be used ({_problem(cause)}): try another model"
    return f"failed ({name}): check the client and the model's name"


def _problem(error: BaseException) -> str:
    """Return the first problem of an answer that failed its validation, on one line."""
    listed = error.errors(include_url=False) if isinstance(error, ValidationError) else ()
    text = listed[0]["msg"].removeprefix("Value error, - ") if listed else str(error)
    return one_line(text.split("\n")[0], 160)


def _message(error: BaseException) -> str:
    """Return one line of the provider's own message."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    return one_line(str(message or error), 160)


# What requests cost.

_GAVE_UP_WAITING = frozenset({408, 504, 524})
"""HTTP statuses of a gateway that gave up waiting: the provider may have read the request, as after no other error."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "TypeError")
"""Errors before a request is sent, of httpx and below; TypeError: an SDK does not accept an argument, or has no key."""


class Meter:
    """Usage of the successive requests of one question, with a limit; another thread may read it."""

    def __init__(self, cost: Callable[[Mapping[str, Any]], Usage], most_tokens: float) -> None:
        """Begin with no requests; `cost` estimates a request by its body; all together may read `most_tokens`."""
        self._cost, self._most_tokens = cost, most_tokens
        self._known: tuple[Usage, Mapping[str, Any] | None] = Usage(), None
        """Usage so far, and the body of the running request; set together, so that nothing counts twice."""
        self._last: Mapping[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """Usage until now; a running request counts as read."""
        spent, under_way = self._known
        return spent if under_way is None else spent + self._cost(under_way)

    def may_read(self, tokens: int) -> bool:
        """Return True if a request that reads `tokens` stays within the limit."""
        return self.usage.read_tokens + tokens <= self._most_tokens

    def may_repeat(self) -> bool:
        """Return True if repeating the last request stays within the limit."""
        return self.may_read(self._cost(self._last).read_tokens)

    def sent(self, body: Mapping[str, Any]) -> None:
        """Note a request that is sent."""
        self._last = body
        self._known = self._known[0], body

    def answered(self, usage: Usage) -> None:
        """Record the usage of an answer; if the provider does not report the tokens it read, they are estimated."""
        if not usage.read_tokens:
            usage = self._cost(self._last).model_copy(update={"output_tokens": usage.output_tokens})
        spent, _ = self._known
        self._known = spent + usage, None

    def failed(self, failure: BaseException) -> None:
        """Charge a failed request, once for each time that the SDK sent it, unless the provider has not read it."""
        spent, body = self._known
        if body is not None and _may_be_read(failure):
            spent = sum([self._cost(body)] * (1 + retries_of(failure)), spent)
        self._known = spent, None


def _may_be_read(failure: BaseException) -> bool:
    """Return True if the provider may have read a request that failed: it was sent, and no status shows a refusal."""
    error: BaseException | None = failure
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status in _GAVE_UP_WAITING
        if type(error).__name__ in _NOT_SENT:
            return False
        error = error.__cause__
    return True
