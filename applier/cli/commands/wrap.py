"""`compactor wrap`: run a client behind a proxy of its own, and say at the end what that saved."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from applier.cli.options import as_json
from applier.cli.proxy_options import TOKEN_VARIABLE, open_proxy, session_options
from applier.cli.screen import echo, print_json
from planner.plan import Usage
from planner.prices import dollars

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer
    from applier.session.planning import Planned

__all__ = ["SESSION_VARIABLE", "wrap_command"]

SESSION_VARIABLE = "COMPACTOR_SESSION"
"""Names the conversations of this run, for `compactor mcp` inside the client."""
TOKEN_KINDS = ("uncached", "read", "written")
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
"""Claude Code adds these to its requests, a line each."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@session_options
@as_json
@click.argument("client", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def wrap_command(ctx: click.Context, /, client: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run CLIENT (`claude …`, or any program that reads ANTHROPIC_BASE_URL or OPENAI_BASE_URL) behind the proxy.

    Its requests go where these variables point, unless an option names another place; a model plans at the same place
    as the same user. Its exit code is this command's. What was removed from its prompts can be restored at any time.
    What was saved, and what planning cost, is said at the end on standard error: standard output is the client's.
    """
    options |= _upstreams(ctx)
    logging.getLogger("applier").addHandler(logging.NullHandler())  # the terminal is the client's
    name = f"wrap-{secrets.token_hex(4)}"
    with open_proxy(**options) as proxy:
        code = _run(client, _environment(proxy, name))
        report = _report(proxy)
    if as_json:
        print_json(report, err=True)
    for line in () if as_json else _lines(report):
        echo(f"compactor: {line}", err=True)
    ctx.exit(code)


def _upstreams(ctx: click.Context) -> dict[str, str]:
    """Where the environment points, for what no option names: the keys in it were given for there."""
    anthropic, openai = (os.environ.get(name, "") for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"))
    start, version, rest = openai.rstrip("/").rpartition("/v1")
    places = {"upstream": anthropic, "openai_upstream": start if version and not rest else ""}
    pointed = {"upstream": anthropic, "openai_upstream": openai}
    return {
        option: places[option]
        for option, place in pointed.items()
        if place and ctx.get_parameter_source(option) is ParameterSource.DEFAULT
    }


def _environment(proxy: ProxyServer, name: str) -> dict[str, str]:
    """The client's: this process's, with the proxy in the provider's place."""
    named = {"x-compactor-session": name, "x-compactor-token": proxy.settings.token}
    lines = [os.environ.get(_HEADERS_VARIABLE, ""), *(f"{key}: {value}" for key, value in named.items() if value)]
    ours = {
        "ANTHROPIC_BASE_URL": proxy.url,
        "OPENAI_BASE_URL": f"{proxy.url}/v1",
        _HEADERS_VARIABLE: "\n".join(line for line in lines if line),
        SESSION_VARIABLE: name,
    }
    return {key: value for key, value in {**os.environ, **ours}.items() if key != TOKEN_VARIABLE}


def _run(client: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Run it to its end; Ctrl-C is the client's to handle."""
    try:
        process = subprocess.Popen(client, env=environment)
    except OSError as error:
        raise click.ClickException(f"{client[0]}: {error.strerror}") from None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        if process.poll() is None:
            process.terminate()
    return code if code >= 0 else 128 - code


def _report(proxy: ProxyServer) -> dict[str, Any]:
    """What was sent, what was spared, who planned, and where what was removed is."""
    metrics = proxy.metrics
    return {
        "compactions": int(metrics.value("compactions")),
        "prompt_tokens": int(sum(metrics.value("prompt_tokens", f'kind="{kind}"') for kind in TOKEN_KINDS)),
        "saved_tokens": int(metrics.value("saved_tokens")),
        "failed_requests": int(metrics.value("requests", 'kind="failed"')),
        "planned": list(_planned(proxy.gateway.conversations.planned())),
        "rules_for_want_of_upstream": proxy.rules_for_want_of_upstream,
        "compacted": [
            {
                "session": session.session_id,
                "messages": session.state.history_messages,
                "tokens": session.state.tokens,
                "history": session.state.history_key[:9],
            }
            for session in proxy.gateway.conversations.sessions()
            if session.state.compactions
        ],
    }


def _planned(asked: Sequence[Planned]) -> Iterator[dict[str, Any]]:
    """For each that was asked: how many plans it made, what it read and wrote, what that cost, how often it failed."""
    for name in dict.fromkeys(one.planner for one in asked if one.planner != "none"):
        own = [one for one in asked if one.planner == name]
        failures = [one.failure for one in own if one.failure]
        usage = sum((one.usage for one in own), Usage())
        costs = [dollars(name, one.usage) for one in own]
        yield {
            "planner": name,
            "plans": len(own) - len(failures),
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": None if None in costs else sum(cost or 0.0 for cost in costs),
            "failures": len(failures),
            "last_failure": failures[-1] if failures else "",
        }


def _planner_line(one: Mapping[str, Any]) -> str:
    line = f"planned by {one['planner']} {_times(one['plans'])}"
    if one["input_tokens"] or one["output_tokens"]:
        line += f": {one['input_tokens']:,} tokens in, {one['output_tokens']:,} out"
        line += f", about ${one['dollars']:.4f}" if one["dollars"] is not None else ""
    return f"{line}; failed {_times(one['failures'])}: {one['last_failure']}" if one["failures"] else line


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for people."""
    sent, saved = report["prompt_tokens"], report["saved_tokens"]
    yield f"{report['compactions']} compactions; {sent:,} prompt tokens sent, about {saved:,} more without"
    if failed := report["failed_requests"]:
        yield f"{failed} requests went out as they came, for something failed here"
    yield from map(_planner_line, report["planned"])
    if report["rules_for_want_of_upstream"]:
        yield "chat completions: no model is asked behind them; --planner-model PROVIDER/MODEL names one"
    for one in report["compacted"]:
        yield (
            f"{one['messages']} messages, {one['tokens']:,} tokens of them in the last prompt: compactor log "
            f"--session {one['session']}; compactor restore {one['history']}:t1"
        )
