"""`compactor proxy`, `wrap` and `mcp`: what serves a running client, until it is stopped or the client ends.

`wrap` says at the end what the proxy saved, what planning cost, and what went out of the agent's sight.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from applier.adapters.codex_settings import codex_place, is_codex_program
from applier.adapters.visible import Visible
from applier.cli import options
from applier.cli.screen import day, echo, print_data, print_json, print_table
from applier.program import program, program_file
from applier.receipt import in_sight
from applier.store.opening import open_store
from applier.store.store import Store
from planner.errors import CompactorError
from planner.plan import Usage
from planner.prices import dollars, money

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer
    from applier.session import Session, SessionState
    from applier.session.planning import Planned

__all__ = ["mcp_command", "proxy_command", "wrap_command"]

TOKEN_VARIABLE = "COMPACTOR_PROXY_TOKEN"
"""Holds the proxy's token; no option, for a command line can be read by every user of the machine."""
SESSION_VARIABLE = "COMPACTOR_SESSION"
"""Names the conversations of clients wrapped in this folder, for `compactor mcp` inside the client."""
NO_STORE = "the store cannot be used, so nothing is compacted"
TOKEN_KINDS = ("uncached", "read", "written")
PROJECT_VARIABLE = "COMPACTOR_PROJECT"
"""The folder that its conversations work in."""
MOST_RECEIPTS = 3
"""Of the conversations used last, each a second for 100,000 tokens; of the others their commands tell."""
_LOOK_SECONDS = 0.05
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
"""Claude Code adds these to its requests, a line each."""

_session_options = options.together(
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
        "--chatgpt-upstream",
        metavar="URL",
        default="https://chatgpt.com/backend-api/codex",
        show_default=True,
        help="Where requests of Codex with a ChatGPT login go ('': they are refused). Rules plan for them.",
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
    click.option(
        "--planner", type=click.Choice(["auto", "model", "rules"]), help="Who plans (default: as set, else a model)."
    ),
    options.store_option,
)
"""The options about sessions and providers; hand their values to `_open_proxy`."""


def _open_proxy(
    *,
    upstream: str,
    openai_upstream: str,
    chatgpt_upstream: str,
    store: str | None,
    host: str = "127.0.0.1",
    port: int = 0,
    own: tuple[str, str] = ("", ""),
    **session: Any,
) -> ProxyServer:
    """A proxy that listens, as the options say; it answers once it is entered or run."""
    proxy = options.import_extra("applier.adapters.proxy", "proxy")
    token = os.environ.get(TOKEN_VARIABLE, "")
    # with or without the end that base URLs of clients have
    upstream, openai_upstream = (url.rstrip("/").removesuffix("/v1") for url in (upstream, openai_upstream))
    upstreams = proxy.Upstreams(upstream, openai_upstream, chatgpt_upstream)
    session = {name: value for name, value in session.items() if value is not None}
    settings = proxy.ProxySettings(host, port, token, upstreams, store, session, own)
    server: ProxyServer = proxy.ProxyServer(settings)
    return server


def _warn_of_store(server: ProxyServer) -> None:
    if problem := server.store_problem():
        echo(f"compactor: {NO_STORE}: {problem}", err=True)


@click.group(invoke_without_command=True)
@click.option("--config", metavar="FILE", type=options.EXISTING_FILE, help="A team's proxy: all of it in one TOML.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback needs $COMPACTOR_PROXY_TOKEN.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True)
@_session_options
@options.as_json
@click.pass_context
def proxy_command(ctx: click.Context, /, config: Path | None, as_json: bool, **how: Any) -> None:
    """Keep the conversations of any client within their window.

    Speaks Anthropic's Messages API and OpenAI's Responses and chat completions; /metrics, /health and /ready are its
    own. Keys are passed on, never stored. Ctrl-C stops it; started again on the same store it goes on where it was.
    """
    ctx.obj = config
    beside = [name for name in how if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if config and beside:
        raise click.UsageError(f"{beside[0]}: with --config, {config.name} says it all.")
    if ctx.invoked_subcommand:
        return
    server = _open_team(config) if config else _open_proxy(**how)
    bases = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
    if as_json:
        print_json(bases)
    for name, url in () if as_json else bases.items():
        echo(f"{name}={url}", err=True)
    _warn_of_store(server)
    server.run()


def _open_team(config: Path) -> ProxyServer:
    """The proxy that `config` describes, listening; its log goes to standard error."""
    proxy = options.import_extra("applier.adapters.proxy", "proxy")
    configuration = options.import_extra("applier.adapters.proxy.configuration", "proxy")
    team = configuration.read_team(config)
    with configuration.in_file(config):
        settings = configuration.team_proxy(team)
    with configuration.in_file(config, "store"):
        open_store(team.store).close()
    with configuration.in_file(config, "port"):
        server: ProxyServer = proxy.ProxyServer(settings)
    lines = logging.StreamHandler()
    entrance = options.import_extra("applier.adapters.proxy.entrance", "proxy")
    lines.setFormatter(entrance.WithoutTexts("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("applier")
    log.addHandler(lines)
    log.setLevel(team.log_level.upper())
    return server


@proxy_command.group(name="token")
def token_command() -> None:
    """Give the people of a team tokens, list them, and revoke them."""


def _with_team_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with the store of the team whose proxy `--config` describes."""

    @click.option("--config", metavar="FILE", type=options.EXISTING_FILE, help="The TOML of the team's proxy.")
    @click.pass_context
    @wraps(command)
    def run(ctx: click.Context, /, config: Path | None, **more: Any) -> Any:
        config = config or ctx.obj
        if config is None:
            raise click.UsageError("whose proxy? say --config FILE, its TOML.")
        configuration = options.import_extra("applier.adapters.proxy.configuration", "proxy")
        team = configuration.read_team(config)
        with configuration.in_file(config, "store"):
            store = open_store(team.store)
        with store:
            return command(store=store, **more)

    return run


@token_command.command
@click.argument("name")
@_with_team_store
@options.as_json
def create(name: str, store: Store, as_json: bool) -> None:
    """Print a new token for NAME, this once: only its digest is kept."""
    token = _people().create_token(store, name, time.time())
    if as_json:
        print_json({"name": name, "token": token})
    else:
        print_data(f"{token}\n")
        echo(f"compactor: {name}'s; it cannot be shown again", err=True)


@token_command.command(name="list")
@_with_team_store
@options.as_json
def list_(store: Store, as_json: bool) -> None:
    """List who has a token, and whose were revoked."""
    known = [{"name": one.name, "created": one.created, "revoked": one.revoked} for one in _people().list_tokens(store)]
    if as_json:
        print_json(known)
        return
    rows = ((one["name"], *(day(one[when] or 0) for when in ("created", "revoked"))) for one in known)
    print_table(("name", "created", "revoked"), rows, empty="no tokens")


@token_command.command
@click.argument("name")
@_with_team_store
def revoke(name: str, store: Store) -> None:
    """Refuse the token of NAME from now on."""
    _people().revoke_token(store, name, time.time())
    echo(f"{name}'s token is revoked")


def _people() -> Any:
    return options.import_extra("applier.adapters.proxy.people", "proxy")


@click.command(context_settings={"allow_interspersed_args": False})
@_session_options
@options.as_json
@click.argument("client", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def wrap_command(ctx: click.Context, /, client: tuple[str, ...], as_json: bool, **how: Any) -> int:
    """Run CLIENT (`claude …`, `codex …`, or any program that reads ANTHROPIC_BASE_URL or OPENAI_BASE_URL) behind the
    proxy.

    Its requests go where these variables point, unless an option names another place; a model plans at the same place
    as the same user. Its exit code is this command's. What was removed from its prompts can be restored at any time.
    What was saved, and what planning cost, is said at the end on standard error: standard output is the client's.
    """
    _found(client[0])  # before a store is made
    how |= _upstreams(ctx, client)
    logging.getLogger("applier").addHandler(logging.NullHandler())  # the terminal is the client's
    # of one folder, whatever run and login: `claude --continue` goes on with what was said in it last
    name = f"wrap-{sha256(os.path.realpath('.').encode()).hexdigest()[:8]}"
    how["project"] = os.path.realpath(".")
    with _open_proxy(own=(f"own-{secrets.token_hex(16)}", name), **how) as proxy:
        _warn_of_store(proxy)
        code = _run(_told(client, proxy), _environment(proxy))
        report = _report(proxy, client[0])
    if as_json:
        print_json(report, err=True)
    for line in () if as_json else _lines(report):
        echo(f"compactor: {line}", err=True)
    return code


def _upstreams(ctx: click.Context, client: Sequence[str]) -> dict[str, str]:
    """Where the environment points, or Codex' own settings, for what no option names: the keys there are for it."""
    is_codex = is_codex_program(client[0])  # it reads no variable
    places = {"upstream": os.environ.get("ANTHROPIC_BASE_URL", "")}
    openai = codex_place(os.environ, client)[1] if is_codex else os.environ.get("OPENAI_BASE_URL", "")
    if openai:  # what is no version 1 is not known: its requests are refused
        places["openai_upstream"] = openai if openai.rstrip("/").endswith("/v1") else ""
        places |= {"chatgpt_upstream": openai} if is_codex else {}
    unsaid = (name for name in places if ctx.get_parameter_source(name) is ParameterSource.DEFAULT)
    return {name: places[name] for name in unsaid if name != "upstream" or places[name]}


def _told(client: Sequence[str], proxy: ProxyServer) -> list[str]:
    """The command line of `client`; Codex is told by an option where to ask, for it reads no variable."""
    setting = codex_place(os.environ, client)[0] if is_codex_program(client[0]) else ""
    option = ["-c", f'{setting}="{proxy.named_url}/v1"'] if setting else []
    return [client[0], *option, *client[1:]]


def _environment(proxy: ProxyServer) -> dict[str, str]:
    """The client's: this process's, with the proxy in the provider's place."""
    secret, name = proxy.settings.own
    headers = {"x-compactor-session": secret, "x-compactor-token": proxy.settings.token}
    lines = [os.environ.get(_HEADERS_VARIABLE, ""), *(f"{key}: {value}" for key, value in headers.items() if value)]
    ours = {
        "ANTHROPIC_BASE_URL": proxy.url,
        "OPENAI_BASE_URL": f"{proxy.named_url}/v1",
        _HEADERS_VARIABLE: "\n".join(line for line in lines if line),
        SESSION_VARIABLE: name,
        PROJECT_VARIABLE: os.path.realpath("."),
    }
    return {key: value for key, value in {**os.environ, **ours}.items() if key != TOKEN_VARIABLE}


def _run(client: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it to its end, with the proxy: Ctrl-C is the client's own, and what would end us is sent on to it."""
    command, pending, running = [_found(client[0]), *client[1:]], list[int](), list[subprocess.Popen[bytes]]()

    def send_on(number: int, _frame: object) -> None:
        pending.append(number)
        while running and pending:
            running[0].send_signal(pending.pop())

    names = {"SIGINT": lambda _number, _frame: None, "SIGTERM": send_on, "SIGHUP": send_on}
    handlers = {getattr(signal, name): handler for name, handler in names.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        running.append(subprocess.Popen(command, env=environment))
        while pending:  # came before there was a client
            running[0].send_signal(pending.pop())
        # not `wait()`: a signal that comes just before it blocks would be sent on only when the client has ended
        while (code := running[0].poll()) is None:
            time.sleep(_LOOK_SECONDS)
    except OSError as error:
        raise click.ClickException(f"{client[0]}: {error.strerror}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _found(name: str) -> str:
    """The program called `name`; a bare name is looked up on PATH."""
    if os.path.dirname(name):
        if not os.path.exists(name):
            raise click.ClickException(f"{name}: No such file or directory")
        return name
    place = program_file(name)
    if not place:
        raise click.ClickException(f"{name}: no such program in PATH")
    return place


def _report(proxy: ProxyServer, client: str) -> dict[str, Any]:
    metrics, conversations = proxy.metrics, proxy.gateway.conversations
    compacted = [session for session in conversations.sessions() if session.state.compactions]
    return {
        "bypassed": "" if metrics.value("arrivals") else client,
        "store_problem": proxy.store_problem(),
        "compactions": int(metrics.value("compactions")),
        "prompt_tokens": int(sum(metrics.value("prompt_tokens", f'kind="{kind}"') for kind in TOKEN_KINDS)),
        "saved_tokens": int(metrics.value("saved_tokens")),
        "failed_requests": int(metrics.value("requests", 'kind="failed"')),
        "planned": list(_planned(conversations.planned())),
        "rules_for_want_of_upstream": proxy.rules_for_want_of_upstream,
        "compacted": [
            {**_compacted(session.state), "receipt": _receipt(session) if session in compacted[-MOST_RECEIPTS:] else ""}
            for session in compacted
        ],
    }


def _compacted(of: SessionState) -> dict[str, Any]:
    return {
        "session": of.session_id,
        "messages": of.history_messages,
        "tokens": of.tokens,
        "history": of.history_key[:9],
    }


def _receipt(session: Session) -> str:
    """What its last compaction left in the agent's sight, and what not; empty if nothing weighs."""
    with suppress(CompactorError):  # the plan is an earlier run's, whose messages it does not hold
        return in_sight(session.plan) if session.plan else ""
    return ""


def _planned(asked: Sequence[Planned]) -> Iterator[dict[str, Any]]:
    """For each that was asked: how many plans it made, what it read and wrote, what that cost, how often it failed."""
    for name in dict.fromkeys(one.planner for one in asked if one.planner != "none"):
        own = [one for one in asked if one.planner == name]
        failures = [one.failure for one in own if one.failure]
        usage = sum((one.usage for one in own), Usage())
        yield {
            "planner": name,
            "plans": len(own) - len(failures),
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": dollars(name, *(one.usage for one in own)),
            "failures": len(failures),
            "last_failure": failures[-1] if failures else "",
        }


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    sent, saved = report["prompt_tokens"], report["saved_tokens"]
    if report["bypassed"]:
        yield (
            f"bypassed: nothing came from {report['bypassed']}. Its own settings may name another address "
            "(ANTHROPIC_BASE_URL in Claude Code's, model_provider or openai_base_url in Codex')"
        )
    else:
        yield f"{report['compactions']} compactions; {sent:,} prompt tokens sent, about {saved:,} more without"
    if report["store_problem"]:
        yield f"{NO_STORE}: {report['store_problem']}"
    if failed := report["failed_requests"]:
        yield f"{failed} requests went out as they came, for something failed here"
    for one in report["planned"]:
        tokens = f": {one['input_tokens']:,} tokens in, {one['output_tokens']:,} out" if one["input_tokens"] else ""
        failed = f"; failed {_times(one['failures'])}: {one['last_failure']}" if one["failures"] else ""
        yield f"planned by {one['planner']} {_times(one['plans'])}{money(one['dollars'], tokens)}{failed}"
    if report["rules_for_want_of_upstream"]:
        yield "Chat completions: no model is asked behind them; --planner-model PROVIDER/MODEL names one"
    for one in report["compacted"]:
        yield (
            f"{one['messages']} messages, {one['tokens']:,} tokens of them in the last prompt: compactor log "
            f"--session {one['session']}; compactor restore {one['history']}:t1"
        )
        yield from one["receipt"].splitlines()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


@click.command
@click.option("--session", envvar=SESSION_VARIABLE, help="A session, or the name of a client's (set by `wrap`).")
@click.option("--history", metavar="KEY", help="A stored history instead, such as h1a2b3c4d.")
@click.option("--project", metavar="DIR", envvar=PROJECT_VARIABLE, help="Also the facts of all that worked in DIR.")
@click.option("--config", is_flag=True, help="Print this server for a client's configuration, and end.")
@options.store_option
def mcp_command(session: str | None, history: str | None, project: str | None, config: bool, store: str | None) -> None:
    """Let a client look behind the references of one conversation: search, restore, facts, brief, log, preview.

    Nothing of other conversations in the store can be reached, whatever the client asks for, but facts of those that
    worked in the folder DIR, where it is named; nothing at all where none is named.
    """
    if config:
        print_json(_configuration(session, history, project, store and options.store_anywhere(store)))
        return
    if history:
        with options.existing_store(store) as opened:
            opened.load_history(history)
    adapter = options.import_extra("applier.adapters.mcp", "mcp")
    visible = Visible(
        lambda: options.existing_store(store), session=session or "", history=history or "", project=project or ""
    )
    with closing(visible):
        adapter.mcp_server(visible).run("stdio")


def _configuration(
    session: str | None, history: str | None, project: str | None, store: str | None
) -> dict[str, object]:
    """What MCP clients call a server, with the options that were given."""
    named = {"--session": session, "--history": history, "--project": project, "--store": store}
    command, *arguments = program("mcp", *(part for name, value in named.items() if value for part in (name, value)))
    return {"type": "stdio", "command": command, "args": arguments}
