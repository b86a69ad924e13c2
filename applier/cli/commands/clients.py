"""`compactor wrap` and `resume`: a client behind the proxy; a client's session, compacted into one that it resumes.

`wrap` says at the end what the proxy saved, what planning cost, and what went out of the agent's sight. `resume` never
overwrites a session.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
from click.core import ParameterSource

from applier.adapters.transcripts import CLIENTS, Client
from applier.cli.commands import servers
from applier.cli.files import make_folder, read_file
from applier.cli.options import as_json, output_option, store_option
from applier.cli.planning import planned, planning_options, write_view
from applier.cli.screen import echo, print_json, working
from applier.plan_review import reviewed
from applier.processes import program_file
from applier.receipt import in_sight
from planner.errors import CompactorError, SettingsError, TranscriptError
from planner.placeholders import history_key
from planner.plan import Usage
from planner.prices import dollars, money

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer
    from applier.session import Session
    from applier.session.planning import Planned

__all__ = ["resume_command", "wrap_command"]

MOST_RECEIPTS = 3
"""Of the conversations used last, each a second for 100,000 tokens; of the others their commands tell."""
_LOOK_SECONDS = 0.05
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
"""Claude Code adds these to its requests, a line each."""
_CODEX_PROVIDER = "openai"
"""The provider that Codex has without any settings."""


@click.command(context_settings={"allow_interspersed_args": False})
@servers.session_options
@as_json
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
    with servers.open_proxy(own=(f"own-{secrets.token_hex(16)}", name), **how) as proxy:
        servers.warn_of_store(proxy)
        code = _run(_told(client, proxy), _environment(proxy))
        report = _report(proxy, client[0])
    if as_json:
        print_json(report, err=True)
    for line in () if as_json else _lines(report):
        echo(f"compactor: {line}", err=True)
    return code


def _upstreams(ctx: click.Context, client: Sequence[str]) -> dict[str, str]:
    """Where the environment points, or Codex' own settings, for what no option names: the keys there are for it."""
    is_codex = _is_codex(client[0])  # it reads no variable
    places = {"upstream": os.environ.get("ANTHROPIC_BASE_URL", "")}
    openai = _codex_place(os.environ, client)[1] if is_codex else os.environ.get("OPENAI_BASE_URL", "")
    if openai:  # what is no version 1 is not known: its requests are refused
        places["openai_upstream"] = openai if openai.rstrip("/").endswith("/v1") else ""
        places |= {"chatgpt_upstream": openai} if is_codex else {}
    unsaid = (name for name in places if ctx.get_parameter_source(name) is ParameterSource.DEFAULT)
    return {name: places[name] for name in unsaid if name != "upstream" or places[name]}


def _told(client: Sequence[str], proxy: ProxyServer) -> list[str]:
    """The command line of `client`; Codex is told by an option where to ask, for it reads no variable."""
    setting = _codex_place(os.environ, client)[0] if _is_codex(client[0]) else ""
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
        servers.SESSION_VARIABLE: name,
        servers.PROJECT_VARIABLE: os.path.realpath("."),
    }
    return {key: value for key, value in {**os.environ, **ours}.items() if key != servers.TOKEN_VARIABLE}


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
    metrics, sessions = proxy.metrics, proxy.gateway.conversations.sessions()
    compacted = [session for session in sessions if session.state.compactions]
    return {
        "bypassed": "" if metrics.value("arrivals") else client,
        "store_problem": proxy.gateway.store_problem(),
        "compactions": int(metrics.value("compactions")),
        "prompt_tokens": int(metrics.value("prompt_tokens")),
        "saved_tokens": int(metrics.value("saved_tokens")),
        "failed_requests": int(metrics.value("requests", kind="failed")),
        "planned": list(_planned(proxy.gateway.planned())),
        "rules_for_want_of_upstream": proxy.rules_for_want_of_upstream,
        "compacted": [_compacted(session, of_last=session in compacted[-MOST_RECEIPTS:]) for session in compacted],
    }


def _compacted(session: Session, *, of_last: bool) -> dict[str, Any]:
    """A conversation; of the last ones, too, what its last compaction left in sight, and what not, if that weighs."""
    of, receipt = session.state, ""
    with suppress(CompactorError):  # the plan is an earlier run's, whose messages it does not hold
        receipt = in_sight(session.plan) if of_last and session.plan else ""
    own = {"session": of.session_id, "messages": of.history_messages, "tokens": of.tokens}
    return {**own, "history": of.history_key, "receipt": receipt}


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
        yield f"{servers.NO_STORE}: {report['store_problem']}"
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


def _is_codex(name: str) -> bool:
    """True for ``codex``, ``/opt/bin/codex`` and ``codex.exe``."""
    return os.path.basename(name).lower().split(".")[0] == "codex"


def _codex_place(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> tuple[str, str]:
    """The name of the setting that says where Codex asks, and where that is; empty: where OpenAI is.

    No name: its provider is one that it has built in (``ollama``), whose place no setting changes.
    """
    settings = _codex_settings(environment, "config.toml")
    if profile := _profile(arguments):
        settings = _over(settings, _codex_settings(environment, f"{profile}.config.toml"))
    provider = settings.get("model_provider", _CODEX_PROVIDER)
    if provider == _CODEX_PROVIDER:
        url, name = settings.get("openai_base_url"), "openai_base_url"
    else:
        others = settings.get("model_providers")
        other = others.get(str(provider)) if isinstance(others, dict) else None
        if not isinstance(other, dict):
            return "", ""
        url, name = other.get("base_url"), f"model_providers.{provider}.base_url"
    return name, url if isinstance(url, str) else ""


def _profile(arguments: Sequence[str]) -> str:
    """The profile that Codex is called with: ``-p work``, ``-pwork``, ``--profile=work``; empty without one."""
    for flag, value in pairwise([*takewhile(lambda one: one != "--", arguments), ""]):
        if flag in ("-p", "--profile"):
            return value
        if flag.startswith(("-p", "--profile=")):
            return flag.removeprefix("--profile").removeprefix("-p").removeprefix("=")
    return ""


def _over(settings: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with `others` in their place."""
    both = {
        key: value for key, value in others.items() if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **others, **{key: _over(settings[key], value) for key, value in both.items()}}


def _codex_settings(environment: Mapping[str, str], file_name: str) -> dict[str, Any]:
    home = environment.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    try:
        with open(os.path.join(home, file_name), "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError):
        return {}


@click.command
@click.argument("session", metavar="SESSION")
@planning_options
@output_option("Write the new session there.")
@click.option("--in-client", is_flag=True, help="Write it where the client looks, not beside SESSION.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@store_option
@as_json
def resume_command(
    session: str, output: Path | None, in_client: bool, dry_run: bool, store: str | None, as_json: bool, **how: Any
) -> None:
    """Compact a client's session so that the client resumes it.

    SESSION is the log of a session of Claude Code (in ~/.claude/projects) or of Codex (in ~/.codex/sessions): a file,
    the session's id, or "last" for the newest one of this folder. The compacted one gets an id of its own and is
    written beside it; SESSION is not touched. Every original is in the store first.
    """
    if output and in_client:
        raise click.UsageError("-o and --in-client exclude each other: give one.")
    log = _log_of(session)
    read = read_file(log)
    client = read.client
    if client is None:
        known = " or ".join(form.title for form in CLIENTS)
        raise TranscriptError(f"{log}: expected a session log ({known}), found {read.format} messages")
    with working("planning…"):
        sheet = reviewed(planned(read, log, **how), read.messages)
    session_id, now = str(uuid4()), datetime.now(UTC)
    name = client.log_name(session_id, now)
    in_place = client.log_folder(read.working_folder, now, os.environ) / name
    place = in_place if in_client else output or log.absolute().parent / name
    written = sheet.changes and not dry_run
    if written:
        if place.exists():
            raise SettingsError(f"{place}: is there already: a session is never overwritten; name a new file")
        make_folder(place.parent)
        write_view(sheet, read, place, store, session_id)
    typed = _typed(client, read.working_folder, session_id, place, in_place)
    if as_json:
        new = {"session": str(log), "written": written, "session_id": session_id, "file": str(place), "resume": typed}
        print_json({**sheet.to_json(), **new})
        return
    before, after = sheet.plan.history.tokens, sheet.plan.estimated_tokens
    if not sheet.changes:
        echo(f"Nothing to compact: all {before:,} tokens stay. No session was written.")
    elif dry_run:
        echo(f"{before:,} tokens would become {after:,}, in {place}")
    else:
        originals = f"{history_key(sheet.plan.history.digest)}:t1, t2, …"
        lines = (f"{before:,} tokens became {after:,}, in {place}", in_sight(sheet.plan), f"Go on there:  {typed}")
        echo("\n".join(filter(None, lines)))
        echo(f"Originals:    compactor restore {originals}; the old session is as it was")


def _log_of(session: str) -> Path:
    """The log that `session` is, or that a client keeps under this id, or as the last one of this folder."""
    if Path(session).is_file():
        return Path(session)
    folder = os.getcwd() if session == "last" else ""
    logs = [log for client in CLIENTS for log in client.logs(folder, os.environ)]
    named = [log for log in logs if folder or log.stem[-36:] == session]
    if not named:
        where = f"worked in {folder}" if folder else "has this id"
        raise click.UsageError(f"{session}: no such file, and no session that the clients keep {where}: name its log.")
    return max(named, key=lambda log: log.stat().st_mtime)


def _typed(client: Client, folder: str, session_id: str, place: Path, in_place: Path) -> str:
    """What a person types to go on: where the client does not look, the file is copied to `in_place` first."""
    steps = [client.resume_command(session_id)]
    if folder:
        steps.insert(0, f"cd {shlex.quote(folder)}")
    if not client.finds(place, in_place):
        goal = in_place.parent
        is_home = goal.is_relative_to(Path.home())
        target = f"~/{shlex.quote(str(goal.relative_to(Path.home())))}" if is_home else shlex.quote(str(goal))
        steps.insert(0, f"mkdir -p {target} && cp {shlex.quote(str(place))} {target}/{in_place.name}")
    return " && ".join(steps)
