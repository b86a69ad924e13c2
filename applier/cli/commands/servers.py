"""`compactor proxy` and `mcp`: servers for agents, which run until they are stopped.

`compactor mod` is the command that this project's plugins inside agents call. It reads JSON and writes JSON.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from applier.adapters import claude_code_mod as mod
from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.adapters.visible import Visible
from applier.cli import options
from applier.cli.files import read_file
from applier.cli.screen import day, echo, print_data, print_json, print_table
from applier.processes import program
from applier.store.opening import open_store
from applier.store.store import Store
from planner.errors import CompactorError, SettingsError, StoreError
from planner.reading.lines import one_line
from planner.settings import PlannerName

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer

TOKEN_VARIABLE = "COMPACTOR_PROXY_TOKEN"
"""Environment variable with the proxy's token; no option, as every user of a machine can read command lines."""
SESSION_VARIABLE = "COMPACTOR_SESSION"
"""Environment variable with the name of the agent's conversations. `wrap` sets it for `mcp`, which the agent starts."""
NO_STORE = "the store cannot be used, so nothing is compacted"
"""Beginning of a warning, before the reason."""
PROJECT_VARIABLE = "COMPACTOR_PROJECT"
"""Environment variable with the folder in which the agent works. `wrap` sets it for `mcp`, which the agent starts."""

_CHATGPT = "https://chatgpt.com/backend-api/codex"


def _upstream(name: str, url: str, api: str, more: str) -> options.Decorator:
    """Return the option `name` for the address of the provider of `api` (default: `url`). `more`: end of the help."""
    text = f"Where requests of {api} go ('': they are refused){more}."
    return click.option(name, metavar="URL", default=url, show_default=True, help=text)


session_options = options.together(
    _upstream("--upstream", "https://api.anthropic.com", "Anthropic's API", ", the planner's included"),
    _upstream("--openai-upstream", "https://api.openai.com", "OpenAI's API", ", the planner's included (Responses)"),
    _upstream("--chatgpt-upstream", _CHATGPT, "Codex with a ChatGPT login", ", the planner's included"),
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
        "--planner", type=click.Choice(get_args(PlannerName)), help="Who plans (default: as set, else a model)."
    ),
    options.store_option,
)
"""Options of `proxy` and `wrap` about sessions and providers; their values are arguments of `open_proxy`."""


def _proxy() -> Any:
    """Import and return the proxy's package; if its extra is not installed, raise an error with the remedy."""
    return options.import_extra("applier.adapters.proxy", "proxy")


def open_proxy(
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
    """Return a proxy that listens on `port` (0: a free one), and answers once ``with`` enters it or `run` is called.

    `upstream`, `openai_upstream`, `chatgpt_upstream`: addresses of the providers; if one is empty, requests for it are
    refused. `own`: secret and name of the one agent for which `wrap` starts the proxy; empty for none. `session`: the
    other values of `session_options`.
    """
    proxy = _proxy()
    token = os.environ.get(TOKEN_VARIABLE, "")
    # without ``/v1`` at the end, as the paths of clients' requests begin with it
    upstream, openai_upstream = (url.rstrip("/").removesuffix("/v1") for url in (upstream, openai_upstream))
    upstreams = proxy.Upstreams(upstream, openai_upstream, chatgpt_upstream)
    session = {name: value for name, value in session.items() if value is not None}
    own_client = proxy.configuration.OwnClient(*own)
    settings = proxy.ProxySettings(host, port, token, upstreams, store, session, own_client)
    server: ProxyServer = proxy.ProxyServer(settings)
    return server


def warn_of_store(server: ProxyServer) -> None:
    """Print a warning on standard error if the proxy's store cannot be used, because then nothing is compacted."""
    if problem := server.gateway.store_problem():
        echo(f"compactor: {NO_STORE}: {problem}", err=True)


_config = click.option(
    "--config", metavar="FILE", type=options.EXISTING_FILE, help="The settings of a team's proxy, a TOML file."
)


@click.group(invoke_without_command=True)
@_config
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback needs $COMPACTOR_PROXY_TOKEN.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True)
@session_options
@options.as_json
@click.pass_context
def proxy_command(ctx: click.Context, /, config: Path | None, as_json: bool, **session_values: Any) -> None:
    """Run a proxy that compacts the conversations of any client before they fill the model's window.

    Understands Anthropic's Messages API and OpenAI's Responses and chat completions, and has /metrics, /health and
    /ready of its own. Keys are passed on, never stored. Ctrl-C stops it; started again on the same store it continues.
    """
    ctx.obj = config  # for the subcommand ``token``
    others = [name for name in session_values if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if config and others:
        raise click.UsageError(f"{others[0]}: with --config, all settings are in {config.name}: leave it out.")
    if ctx.invoked_subcommand:
        return
    server = _open_team(config) if config else open_proxy(**session_values)
    bases = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
    if as_json:
        print_json(bases)
    for name, url in () if as_json else bases.items():
        echo(f"{name}={url}", err=True)
    warn_of_store(server)
    server.run()


def _open_team(config: Path) -> ProxyServer:
    """Return a listening proxy for a team, with the settings in the file `config`. Write its log to standard error. An
    error about a setting names the file and the setting (`in_file`)."""
    proxy = _proxy()
    team = proxy.configuration.read_team(config)
    with proxy.configuration.in_file(config):
        settings = proxy.configuration.team_proxy(team)
    with proxy.configuration.in_file(config, "store"):
        open_store(team.store).close()  # raises an error if it cannot be used
    with proxy.configuration.in_file(config, "port"):
        server: ProxyServer = proxy.ProxyServer(settings)
    lines = logging.StreamHandler()
    lines.setFormatter(proxy.entrance.WithoutTexts("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("applier")
    log.addHandler(lines)
    log.setLevel(team.log_level.upper())
    return server


@proxy_command.group(name="token")
def token_command() -> None:
    """Give the people of a team tokens, list them, and revoke them."""


def _with_team_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--config`` (a team's settings) to `command`, and pass it the open store that this file names."""

    @_config
    @click.pass_context
    @wraps(command)
    def run(ctx: click.Context, /, config: Path | None, **more: Any) -> Any:
        """Open the store, and call the command with it. The option may also be before ``token``."""
        config = config or ctx.obj
        if config is None:
            raise click.UsageError("which proxy? Name its settings: --config FILE.")
        configuration = _proxy().configuration
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
    """Print a new token for NAME, once: the store keeps only its digest."""
    token = _proxy().entrance.create_token(store, name, time.time())
    if as_json:
        print_json({"name": name, "token": token})
    else:
        print_data(f"{token}\n")
        echo(f"compactor: {name}'s; it cannot be shown again", err=True)


@token_command.command(name="list")
@_with_team_store
@options.as_json
def list_(store: Store, as_json: bool) -> None:
    """List people with a token, and revoked tokens."""
    tokens = _proxy().entrance.list_tokens(store)
    if as_json:
        print_json([{"name": token.name, "created": token.created, "revoked": token.revoked} for token in tokens])
        return
    rows = ((token.name, day(token.created), day(token.revoked or 0)) for token in tokens)
    print_table(("name", "created", "revoked"), rows, empty="no tokens")


@token_command.command
@click.argument("name")
@_with_team_store
def revoke(name: str, store: Store) -> None:
    """Refuse the token of NAME from now on."""
    _proxy().entrance.revoke_token(store, name, time.time())
    echo(f"{name}'s token is revoked")


@click.command
@click.option("--session", envvar=SESSION_VARIABLE, help="A session, or the name of a client's (set by `wrap`).")
@click.option("--history", metavar="KEY", help="A stored history instead, by its key.")
@click.option("--project", metavar="DIR", envvar=PROJECT_VARIABLE, help="Also the facts of all that worked in DIR.")
@click.option("--thread", is_flag=True, help="The conversation is the thread that the client names (Codex).")
@click.option("--config", is_flag=True, help="Print this server for a client's configuration, and end.")
@options.store_option
@click.pass_context
def mcp_command(
    ctx: click.Context,
    /,
    session: str | None,
    history: str | None,
    project: str | None,
    thread: bool,
    config: bool,
    store: str | None,
) -> None:
    """Run an MCP server with tools that search and restore one conversation, and show its facts, summary and log.

    Other conversations cannot be reached, whatever the client asks for, except the facts of those that worked in DIR.
    Without a conversation the tools report that none is set.
    """
    if config:
        place = store and options.store_anywhere(store)
        named = {"--session": session, "--history": history, "--project": project, "--store": place}
        command, *args = program("mcp", *(part for name, value in named.items() if value for part in (name, value)))
        print_json({"type": "stdio", "command": command, "args": args})
        return
    if history:
        with options.existing_store(store) as opened:
            opened.load_history(history)
    adapter = options.import_extra("applier.adapters.mcp", "mcp")
    visible = Visible(
        lambda: options.existing_store(store),
        session=session or "",
        history=history or "",
        project=project or "",
        is_typed=not thread and ctx.get_parameter_source("session") is ParameterSource.COMMANDLINE,
    )
    with closing(visible):
        adapter.mcp_server(visible, by_thread=thread).run("stdio")


@click.command
@click.argument(
    "question",
    type=click.Choice(["describe", "ahead", "compact", "receipt", "shorten", "look-up", "preview", "remember"]),
)
def mod_command(question: str) -> None:
    """Answer this project's plugins inside clients: JSON on standard input, JSON on standard output.

    The client runs this program in the project's folder. It leaves that folder before it answers, because a stranger
    may have written the settings there.
    """
    try:
        project = os.getcwd()
    except OSError:  # the folder was deleted
        project = ""
    try:
        os.chdir(Path.home())
    except (OSError, RuntimeError):  # some containers name a home that does not exist
        os.chdir(os.sep)
    answer = mod.describe() if question == "describe" else _answer(question, _input(), project)
    sys.stdout.write(json.dumps(answer))


def _answer(question: str, call: Any, project: str) -> object:
    """Return the answer to a plugin inside a client, as JSON data. `question`: a choice of `compactor mod`, such as
    ``compact``. `call`: the plugin's input, parsed JSON. `project`: folder of the client; empty if it was deleted."""
    if question == "look-up":
        return mod.look_up(call, lambda: options.existing_store(None), project, os.environ.get(SESSION_VARIABLE, ""))
    if question == "preview":
        with ExitStack() as stack:
            existing = None
            with suppress(StoreError):  # there is no store before the first compaction
                existing = stack.enter_context(options.existing_store(None))
            return mod.preview(call, existing, _review_command)
    if question == "remember":
        return _remember(call)
    with open_store() as store:
        if question == "ahead":
            return mod.ahead(call, store, project)
        if question == "compact":
            return mod.compact(call, store, time.time, options.naming_store(), project)
        if question == "receipt":
            return mod.receipt_of_own(call, store, time.time(), options.naming_store())
        return mod.shorten(call, store)


def _remember(call: Any) -> object:
    """Answer the hook that Codex calls after its own compaction (`call`: its input): store the original messages, and
    return a page of memory for Codex. An error becomes a message for the user, so that Codex can continue."""
    try:
        with open_store() as store:
            return mod.remember(call, lambda path: read_file(Path(path)).messages, store, time.time())
    except CompactorError as error:
        return {"systemMessage": f"compactor: {one_line(str(error))}; Codex' own summary is all there is"}


def _review_command(session: str) -> str:
    """Return the shell command that shows a plan for the Claude Code session with the id `session`, in the browser if
    the extra for that is installed. Return an empty text if the session has no log."""
    log = next((log for log in CLAUDE_CODE.logs("", os.environ) if log.stem == session), None)
    page = " --web" if find_spec("starlette") else ""
    return f"compactor plan {shlex.quote(str(log))} --planner rules{page}" if log else ""


def _input() -> Any:
    """Return the JSON data on standard input; raise SettingsError for another text."""
    try:
        return json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"expected JSON on standard input: {error}") from None
