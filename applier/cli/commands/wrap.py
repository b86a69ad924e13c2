"""`compactor wrap`: run a client behind a proxy of its own, and say at the end what that saved."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from applier.cli.options import as_json
from applier.cli.proxy_options import TOKEN_VARIABLE, open_proxy, session_options
from applier.cli.screen import echo, print_json

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer

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

    Its exit code is this command's. What was removed from its prompts can be restored at any time. What was saved is
    said at the end on standard error: standard output is the client's.
    """
    source = click.get_current_context().get_parameter_source("upstream")
    if source is not None and source.name == "DEFAULT" and os.environ.get("ANTHROPIC_BASE_URL"):
        options["upstream"] = os.environ["ANTHROPIC_BASE_URL"]
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
    """What was sent, what was spared, and where what was removed is."""
    metrics = proxy.metrics
    return {
        "compactions": int(metrics.value("compactions")),
        "prompt_tokens": int(sum(metrics.value("prompt_tokens", f'kind="{kind}"') for kind in TOKEN_KINDS)),
        "saved_tokens": int(metrics.value("saved_tokens")),
        "failed_requests": int(metrics.value("requests", 'kind="failed"')),
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


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for people."""
    sent, saved = report["prompt_tokens"], report["saved_tokens"]
    yield f"{report['compactions']} compactions; {sent:,} prompt tokens sent, about {saved:,} more without"
    if failed := report["failed_requests"]:
        yield f"{failed} requests went out as they came, for something failed here"
    for one in report["compacted"]:
        yield (
            f"{one['messages']} messages, {one['tokens']:,} tokens of them in the last prompt: compactor log "
            f"--session {one['session']}; compactor restore {one['history']}:t1"
        )
