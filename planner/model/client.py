"""Opens the connection to the planner model, and reads the responses and errors of any provider.

The caller's client or model name becomes an `Endpoint`, which asks through the library instructor; Claude is asked
without forced tools, which its current models refuse. A `Meter` counts the cost of requests. No key gets into an error
text. anthropic and instructor are loaded only when a client is opened.
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
from planner.model.prompts import safe_line
from planner.plan import Account, Usage
from planner.prices import billed_tokens
from planner.reading.tokens import names_provider

DEFAULT_MODEL = "claude-haiku-5-5"
"""Model that plans if the caller names none: Claude's smallest and cheapest in anthropic 2.11, because ranking turns
and choosing lines needs reading more than reasoning."""

CONNECT_SECONDS, CONNECT_SHARE = 5.0, 0.25
"""Longest time for opening a connection: anthropic's own limit, or this share of the time for the whole request if that
is shorter, so that time remains for another try."""

_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)
"""Environment variables from which anthropic's SDK takes credentials."""
_REQUEST_HEADERS = ("accept", "anthropic-version", "connection", "content-", "host", "user-agent", "x-stainless-")
"""Beginnings of the names of HTTP headers that describe a request. All others identify the sender, such as a key."""


@dataclass(frozen=True)
class Endpoint:
    """Connection to a planner model, with what differs between providers."""

    create: Callable[..., Any]
    """instructor's function that sends a request and returns its answer as a pydantic model."""
    model: str
    """Name of the model; empty if only the caller's instructor client knows it."""
    sent_model: str
    """Model that the body of a request names; empty if the client adds the name by itself."""
    speaks_anthropic: bool
    """True if requests have the form of Anthropic's Messages API."""
    takes_timeout: bool
    """True if a request can have a time limit."""
    retries: int = 0
    """Number of times that this package repeats a request after temporary failures; 0 if the client does it itself."""
    secrets: tuple[str, ...] = ()
    """Keys that no error text may contain."""

    def body(
        self, shape: type[BaseModel], system: str, prompt: str, max_output_tokens: int, seconds: float
    ) -> Mapping[str, Any]:
        """Return the body of a request for an answer that fits the class `shape`, within `seconds`. For Claude it
        contains the JSON schema of `shape`, and a mark that puts the system prompt into the cache."""
        message = {"role": "user", "content": prompt}
        model = {"model": self.sent_model} if self.sent_model else {}
        if not self.speaks_anthropic:
            timeout = {"timeout": max(0.001, seconds)} if self.takes_timeout else {}
            return {"messages": [{"role": "system", "content": system}, message], **timeout, **model}
        import anthropic

        schema = anthropic.transform_schema(shape)
        schema["required"] = list(schema["properties"])  # also fields with a default, as the model would leave them out
        return {
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "messages": [message],
            "max_tokens": max_output_tokens,
            "timeout": sdk_timeout(seconds),
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
            **model,
        }


def has_credentials(model: str | None = None) -> bool:
    """Return True if a planner model can probably be asked: the environment has credentials for Claude, or `model` is
    another provider's, for which nothing is checked."""
    return _names_other(model) or any(os.environ.get(name) for name in _KEY_VARIABLES)


def _names_other(model: str | None) -> bool:
    """Return True for a model of a provider other than Anthropic: ``openai/gpt-5-mini``."""
    return model is not None and names_provider(model) and not model.startswith("anthropic/")


@contextmanager
def open_endpoint(client: object, model: str | None) -> Iterator[Endpoint]:
    """Yield a connection to the planner model: by the caller's `client`, or if that is None by a new one for `model`,
    which is closed after use.

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
    """Yield a synchronous, open client: `client` itself if it is one, else a new one, which is closed after use. The
    new client has the address and keys of `client` (an `Account`, or an asynchronous or closed client), or those in the
    environment if `client` is None."""
    account = client if isinstance(client, Account) else _account_of(client)
    if client is not None and account is None:
        yield client
        return
    with closing(_own_client() if account is None else _account_client(account)) as made:
        yield made


def _account_of(client: Any) -> Account | None:
    """Return address and headers of a client that is asynchronous or closed; None for one that can be used itself."""
    import anthropic

    if not isinstance(client, anthropic.AsyncAnthropic) and not (hasattr(client, "is_closed") and client.is_closed()):
        return None
    _check_key(client)
    headers = {
        name: value
        for name, value in client.default_headers.items()
        if isinstance(value, str) and not name.lower().startswith(_REQUEST_HEADERS)
    }
    return Account(str(client.base_url), headers)


def _provider_client(model: str) -> Any:
    """Return instructor's client for a `model` of any provider, ``openai/gpt-5-mini``, with keys of the environment."""
    import instructor

    logging.getLogger("instructor").addHandler(logging.NullHandler())  # its traceback says no more than our error
    refuses_tools = model.startswith("openai/")  # models of OpenAI refuse forced tools from GPT-5.4 on
    try:
        return instructor.from_provider(model, mode=instructor.Mode.JSON_SCHEMA if refuses_tools else None)
    except Exception as error:  # noqa: BLE001 - each provider's package has errors of its own
        raise PlannerUnavailable(
            f"planner model {model}: no client for this provider ({type(error).__name__}): "
            "install its package and set its key"
        ) from None


def _own_client() -> Any:
    """Return a new client of anthropic, with the credentials in the environment."""
    import anthropic

    try:
        client = anthropic.Anthropic()
    except anthropic.AnthropicError as error:
        raise PlannerUnavailable(f"planner model: {safe_line(str(error), 200)}") from None
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        client.close()
        cure = "set ANTHROPIC_API_KEY, or choose the planner `rules`"
        raise PlannerUnavailable(f"planner model: no API key found: {cure}")
    return client


def _account_client(account: Account) -> Any:
    """Return a client that sends the account's headers and follows no redirects. Headers in which the SDK identifies
    the sender are removed: they may have a key from the environment, which belongs to another host."""
    import anthropic

    def set_headers(request: Any) -> None:
        for name in [name for name in request.headers if not name.startswith(_REQUEST_HEADERS)]:
            del request.headers[name]
        request.headers.update(account.headers)

    http = anthropic.DefaultHttpxClient(follow_redirects=False, event_hooks={"request": [set_headers]})
    key = next(iter(account.secrets), "none")  # with any key, the SDK does not look for one in the environment
    return anthropic.Anthropic(base_url=account.base_url, api_key=key, http_client=http)


def _client_endpoint(client: Any, model: str | None) -> Endpoint:
    """Return the connection that uses a client of anthropic or instructor. A client of instructor that forces a tool,
    which current Claude models refuse, is replaced by one that asks for JSON."""
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
    """Return the connection through a `client` of instructor; `model` is empty if only the client knows it."""
    import instructor

    speaks_anthropic = client.provider is instructor.Provider.ANTHROPIC
    takes_timeout = hasattr(client.client, "with_options")  # the SDKs of Anthropic and OpenAI; others take none here
    return Endpoint(client.create, model, model, speaks_anthropic, takes_timeout, secrets=keys_of(client.client))


def for_planning(client: Any) -> Any:
    """Return a copy of `client` that repeats no request and has no middleware that is for agents only. A session of
    this package is such middleware: if it asked the planner through itself, it would wait for itself. A client without
    it whose methods were replaced, by a tracer for example, is returned itself, as a copy would lose them."""
    all_middleware = getattr(client, "middleware", None)
    if all_middleware is None:
        return client
    kept = [middleware for middleware in all_middleware if not getattr(middleware, "for_agents_only", False)]
    if len(kept) == len(all_middleware) and "create" in vars(client.messages):
        return client
    return client.with_options(middleware=kept, max_retries=0)


def _check_key(client: Any) -> None:
    """Raise PlannerUnavailable for a key that no HTTP header can contain, as httpx's error would show the key."""
    if any(re.search(r"[^\x21-\x7e]", key) for key in keys_of(client)):
        raise PlannerUnavailable(
            "planner model: the API key contains a space, a line break or a letter that no key has: copy it again"
        )


def is_same_account(client: Any, other: Any) -> bool:
    """Return True if both clients send to the same address with the same key."""
    # a client of instructor wraps one of anthropic
    first, second = (getattr(wrapper, "client", wrapper) for wrapper in (client, other))
    names = ("base_url", "headers", "api_key", "auth_token", "credentials")
    return all(getattr(first, name, None) == getattr(second, name, None) for name in names)


def keys_of(client: Any) -> tuple[str, ...]:
    """Return the API keys that `client` sends, so that they can be removed from error texts."""
    keys = (getattr(client, name, None) for name in ("api_key", "auth_token"))
    return tuple(key for key in keys if isinstance(key, str) and key)


_KEY = re.compile(r"\b(?:sk|pk|key)-[\w-]{6,}")
"""Form of an API key: ``sk-ant-api03-…``; not ``task-force``."""
_LEAST_KEY = 8
"""Smallest length of a key that is removed from error texts. A shorter one is no real key, but a word such as ``any``,
which other words contain: ``many``."""
_CURES = {
    401: "the API key was refused (401): set the provider's variable, such as ANTHROPIC_API_KEY, to a valid key",
    403: "the API key may not use it (403): use another key or model",
    404: "there is no such model (404): pass model= with one your key may use",
    413: "the request was too large (413): lower settings.piece_tokens or settings.planner_input_ratio",
    429: "the rate limit is used up (429): retry later",
    529: "the API is overloaded (529): retry later",
}
"""Text for an error by HTTP status: the problem, and what the caller can do."""


def _value_at(value: Any, *path: str | int) -> Any:
    """Return ``x.a[0]`` for ``_value_at(x, "a", 0)``; None if an attribute is missing."""
    for step in path:
        value = getattr(value, step, None) if isinstance(step, str) else (value or [None])[step]
    return value


def response_text(response: Any) -> str:
    """Return the text of a response of any provider; if it has none, the arguments of the tool that the model called,
    because instructor asks some of them for JSON in that way."""
    content = _value_at(response, "content")
    if isinstance(content, list):
        return "".join(str(getattr(block, "text", "")) for block in content)
    if parts := _parts(response):
        return "".join(str(_value_at(part, "text") or _value_at(part, "arguments") or "") for part in parts)
    message = _value_at(response, "choices", 0, "message")
    return str(_value_at(message, "content") or _value_at(message, "tool_calls", 0, "function", "arguments") or "")


def is_refusal(response: Any) -> bool:
    """Return True if the model refused to answer, in the form of any provider. It is not asked again then."""
    return (
        _value_at(response, "stop_reason") == "refusal"
        or _value_at(response, "choices", 0, "finish_reason") == "content_filter"
        or bool(_value_at(response, "choices", 0, "message", "refusal"))
        or _value_at(response, "incomplete_details", "reason") == "content_filter"
        or any(_value_at(part, "type") == "refusal" for part in _parts(response))
    )


def _parts(response: Any) -> list[Any]:
    """Return the parts of messages, and the function calls, in a response of OpenAI's Responses API; else nothing."""
    items = getattr(response, "output", None)
    wanted = [item for item in items or () if getattr(item, "type", None) in ("message", "function_call")]
    return [part for item in wanted for part in getattr(item, "content", None) or [item]]


def response_usage(response: Any) -> Usage:
    """Return the tokens of one request as its `response` reports them, in the form of any provider."""
    used = getattr(response, "usage", None)

    def count(*names: str) -> int:
        """Return the first number above 0 that the response has under one of `names`, which providers choose."""
        return next((tokens for name in names if (tokens := billed_tokens(used, name))), 0)

    return Usage(
        input_tokens=count("input_tokens", "prompt_tokens"),
        output_tokens=count("output_tokens", "completion_tokens"),
        cache_read_input_tokens=count("cache_read_input_tokens"),
        cache_creation_input_tokens=count("cache_creation_input_tokens"),
        requests=1,
    )


def _retries_of(error: BaseException) -> int:
    """Return how often the SDK of Anthropic or OpenAI repeated a request before it raised `error`; 0 if unknown."""
    request = vars(_root(error)).get("request")  # by `vars`, as the property of httpx's errors may raise
    headers = getattr(request, "headers", {})
    count = str(headers.get("x-stainless-retry-count", 0))
    return int(count) if count.isdecimal() else 0


def sdk_timeout(seconds: float) -> Any:
    """Return a time limit of `seconds` for a request of anthropic's SDK, with a shorter one for the connection."""
    import anthropic

    seconds = max(0.001, seconds)
    return anthropic.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds * CONNECT_SHARE))


def unavailable(
    error: BaseException, model: str, secrets: Iterable[str], usage: Usage, *, declined: bool = False
) -> PlannerUnavailable:
    """Turn `error`, of instructor or a provider's SDK, into our PlannerUnavailable, whose text has the cause, what to
    do about it, and no key. `secrets`: keys to remove; `usage`: tokens used until then; `declined`: True if the model
    refused to answer."""
    text = "declined to answer (refusal): try another model" if declined else _problem_and_cure(_root(error))
    for secret in secrets:
        text = text.replace(secret, "(key)") if len(secret) >= _LEAST_KEY else text
    name = f"planner model {model}" if model else "planner model"
    return PlannerUnavailable(f"{name}: {_KEY.sub('(key)', text)}", usage)


def _root(error: BaseException) -> BaseException:
    """Return the error of the SDK that instructor wrapped in `error`."""
    while type(error).__name__ == "InstructorRetryException" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _problem_and_cure(cause: BaseException) -> str:
    """Return what happened, by the HTTP status or class name of an SDK's error, and what the caller can do about it."""
    name, status = type(cause).__name__, getattr(cause, "status_code", None)
    if isinstance(status, int):
        otherwise = f"the API refused the request ({status}: {_message(cause)}): change what it names"
        return _CURES.get(status, f"the API failed ({status}): retry later" if status >= 500 else otherwise)
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
    """Return the first mistake that pydantic lists in a model's answer, or the first line of another `error`."""
    listed = error.errors(include_url=False) if isinstance(error, ValidationError) else ()
    text = listed[0]["msg"].removeprefix("Value error, - ") if listed else str(error)
    return safe_line(text.split("\n")[0], 160)


def _message(error: BaseException) -> str:
    """Return the provider's message, from a body ``{"error": {"message": …}}`` or ``{"message": …}``."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    return safe_line(str(message or error), 160)


# Cost of requests.

_GAVE_UP_WAITING = frozenset({408, 504, 524})
"""HTTP statuses of a gateway that gave up waiting: only then the provider may have read the request and bill it."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "TypeError")
"""Classes of errors that are raised before a request is sent; a TypeError comes from an SDK that lacks the key."""


class Meter:
    """Counter of the tokens that the requests of one question use, one request after the other, with a limit. Another
    thread may read it while a request runs."""

    def __init__(self, cost: Callable[[Mapping[str, Any]], Usage], most_tokens: float) -> None:
        """Begin without requests. `cost` estimates the tokens of a request from its body; `most_tokens`: limit of the
        input tokens of all requests together."""
        self._cost, self._most_tokens = cost, most_tokens
        self._body: Mapping[str, Any] = {}
        """Body of the newest request; empty before the first."""
        self._spending: tuple[Usage, bool] = Usage(), False
        """Tokens used by all finished requests, and whether the newest one is running. Both are replaced together, so
        that another thread never counts a request twice."""

    @property
    def usage(self) -> Usage:
        """Tokens used until now. A running request is estimated, as the provider may bill it."""
        finished, is_running = self._spending
        return finished + self._cost(self._body) if is_running else finished

    def may_read(self, tokens: int) -> bool:
        """Return True if one more request with `tokens` of input stays within the limit of the question."""
        return self.usage.read_tokens + tokens <= self._most_tokens

    def may_repeat(self) -> bool:
        """Return True if sending the newest request once more stays within the limit of the question."""
        return self.may_read(self._cost(self._body).read_tokens)

    def sent(self, body: Mapping[str, Any]) -> None:
        """Record that a request with this `body` is sent now, so that it counts even if no response comes."""
        self._body = body
        self._spending = self._spending[0], True

    def answered(self, usage: Usage) -> None:
        """Record the tokens that the provider reports for the running request. Missing input tokens are estimated."""
        if not usage.read_tokens:
            usage = self._cost(self._body).model_copy(update={"output_tokens": usage.output_tokens})
        self._spending = self._spending[0] + usage, False

    def failed(self, failure: BaseException) -> None:
        """Charge the running request, which failed, once for each time it was sent; not if the provider refused it."""
        finished, is_running = self._spending
        times_sent = 1 + _retries_of(failure) if is_running and _may_be_read(failure) else 0
        self._spending = sum([self._cost(self._body)] * times_sent, finished), False


def _may_be_read(failure: BaseException) -> bool:
    """Return True if the request that failed was sent and not refused at once, so that the provider may bill it."""
    error: BaseException | None = failure
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status in _GAVE_UP_WAITING
        if type(error).__name__ in _NOT_SENT:
            return False
        error = error.__cause__  # the errors of instructor and the SDKs have httpx's error as their cause
    return True
