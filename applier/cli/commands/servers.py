"""`compactor proxy`, `wrap` and `mcp`: what serves a running client, until it is stopped or the client ends.

`wrap` says at the end what the proxy saved, and what planning cost.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from applier.cli.options import (
    as_json,
    existing_store,
    import_extra,
    known_history,
    store_anywhere,
    store_option,
    together,
)
from applier.cli.screen import echo, print_json
from applier.program import program
from applier.settings import SessionSettings
from planner.plan import Usage
from planner.prices import dollars

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer
    from applier.session.planning import Planned

__all__ = ["mcp_command", "proxy_command", "wrap_command"]

TOKEN_VARIABLE = "COMPACTOR_PROXY_TOKEN"
"""Holds the proxy's token; no option, for a command line can be read by every user of the machine."""
SESSION_VARIABLE = "COMPACTOR_SESSION"
"""Names the conversations of a wrapped client's run, for `compactor mcp` inside the client."""
TOKEN_KINDS = ("uncached", "read", "written")
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
"""Claude Code adds these to its requests, a line each."""
_PLANNERS = get_args(SessionSettings.model_fields["planner"].annotation)


_session_options = together(
    click.option(
        "--upstream",
        metavar="URL",
        default="https://api.anthropic.com",
        show_default=True,
        help="Where requests of Anthropic's API go ('': they are refused), the planner's included.",
    ),
    click.option(
        "--openai-upstream",
        metavar="URL",
        default="https://api.openai.com",
        show_default=True,
        help="Where requests of OpenAI's API go ('': they are refused). Rules plan for them.",
    ),
    click.option(
        "--window", "window_tokens", type=click.IntRange(2_000), metavar="TOKENS", help="The model's context window."
    ),
    click.option("--preset", help="Table of tiers and triggers (default: as set, else relevance)."),
    click.option(
        "--planner-model",
        metavar="MODEL",
        help="The model that plans, asked at --upstream with the agent's own key; PROVIDER/MODEL: at that "
        "provider, with your environment's key for it.",
    ),
    click.option("--planner", type=click.Choice(_PLANNERS), help="Who plans (default: as set, else a model)."),
    store_option,
)
"""The options about sessions and providers; hand their values to `_open_proxy`."""


def _open_proxy(
    *, upstream: str, openai_upstream: str, store: str | None, host: str = "127.0.0.1", port: int = 0, **session: Any
) -> ProxyServer:
    """A proxy that listens, as the options say; it answers once it is entered or run.

    Raises:
        ClickException: the extra is not installed.
        SettingsError: a setting is wrong, an upstream is no address, or others can reach it and there is no token.
    """
    proxy = import_extra("applier.adapters.proxy", "proxy")
    settings = proxy.ProxySettings(
        host=host,
        port=port,
        token=os.environ.get(TOKEN_VARIABLE, ""),
        upstreams=proxy.Upstreams(upstream, openai_upstream),
        store=store,
        session={name: value for name, value in session.items() if value is not None},
    )
    server: ProxyServer = proxy.ProxyServer(settings)
    return server


@click.command
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback needs $COMPACTOR_PROXY_TOKEN.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True)
@_session_options
@as_json
def proxy_command(as_json: bool, **options: Any) -> None:
    """Keep the conversations of any client within their window.

    Speaks Anthropic's Messages API and OpenAI's chat completions; /metrics and /health are its own. Keys are passed
    on, never stored. Ctrl-C stops it; started again on the same store it goes on where it was.
    """
    server = _open_proxy(**options)
    bases = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
    if as_json:
        print_json(bases)
    for name, url in () if as_json else bases.items():
        echo(f"{name}={url}", err=True)
    server.run()


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_session_options
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
    with _open_proxy(**options) as proxy:
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
    headers = {"x-compactor-session": name, "x-compactor-token": proxy.settings.token}
    lines = [os.environ.get(_HEADERS_VARIABLE, ""), *(f"{key}: {value}" for key, value in headers.items() if value)]
    ours = {
        "ANTHROPIC_BASE_URL": proxy.url,
        "OPENAI_BASE_URL": f"{proxy.url}/v1",
        _HEADERS_VARIABLE: "\n".join(line for line in lines if line),
        SESSION_VARIABLE: name,
    }
    return {key: value for key, value in {**os.environ, **ours}.items() if key != TOKEN_VARIABLE}


def _run(client: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Run it to its end, with the proxy: Ctrl-C is the client's own, and what would end us is sent on to it."""
    command, running = [_found(client[0]), *client[1:]], list[subprocess.Popen[bytes]]()
    pending: list[int] = []

    def send_on(number: int, _frame: object) -> None:
        if not running:
            pending.append(number)
        for process in running:
            process.send_signal(number)

    handlers: dict[str, Any] = {"SIGINT": lambda _number, _frame: None, "SIGTERM": send_on, "SIGHUP": send_on}
    numbers = {getattr(signal, name): handler for name, handler in handlers.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    try:
        running.append(subprocess.Popen(command, env=environment))
        for number in tuple(pending):  # came before there was a client
            running[0].send_signal(number)
        code = running[0].wait()
    except OSError as error:
        raise click.ClickException(f"{client[0]}: {error.strerror}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _found(name: str) -> str:
    """The program called `name`; a bare name is looked up in PATH, but for entries relative to the folder we are in."""
    if os.path.dirname(name):
        return name
    places = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    program_file = shutil.which(name, path=os.pathsep.join(places))
    if program_file is None or not os.path.isabs(program_file):
        raise click.ClickException(f"{name}: no such program in PATH")
    return program_file


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


@click.command
@click.option("--session", envvar=SESSION_VARIABLE, help="A session, or the name of a client's (set by `wrap`).")
@click.option("--history", metavar="KEY", help="A stored history instead, such as h1a2b3c4d.")
@click.option("--config", is_flag=True, help="Print this server for a client's configuration, and end.")
@store_option
def mcp_command(session: str | None, history: str | None, config: bool, store: str | None) -> None:
    """Let a client look behind the references of one conversation: search, restore, facts, brief, log, preview.

    Nothing of other conversations in the store can be reached, whatever the client asks for; nothing at all where none
    is named.
    """
    if config:
        print_json(_configuration(session, history, store and store_anywhere(store)))
        return
    if history:
        with existing_store(store) as opened:
            known_history(opened, history)
    adapter = import_extra("applier.adapters.mcp", "mcp")
    visible = adapter.Visible(lambda: existing_store(store), session=session or "", history=history or "")
    try:
        adapter.mcp_server(visible).run("stdio")
    finally:
        visible.close()


def _configuration(session: str | None, history: str | None, store: str | None) -> dict[str, object]:
    """What MCP clients call a server, with the options that were given: the same program wherever it is run."""
    options = {"--session": session, "--history": history, "--store": store}
    command, *arguments = program("mcp", *(part for name, value in options.items() if value for part in (name, value)))
    return {"type": "stdio", "command": command, "args": arguments}
