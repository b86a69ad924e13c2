"""`compactor wrap` and `resume`: compact the conversations of a coding agent's program (the client).

`wrap` runs the client with a proxy between it and the provider, and reports at the end the saved tokens, the cost of
planning, and the removed parts of the prompts. `resume` compacts a saved session into a new one that the client can
resume; it never overwrites a session.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
from click.core import ParameterSource

from applier.adapters.agent_tools import MCP_PREFIX
from applier.adapters.transcripts import CLIENTS, Client
from applier.adapters.wrapped_client import wrapped_client
from applier.cli.commands import servers
from applier.cli.files import make_folder, read_file
from applier.cli.options import as_json, existing_store, output_option, store_anywhere, store_option
from applier.cli.plan_transcripts import planned, planning_options, write_view
from applier.cli.screen import echo, print_json, screen
from applier.plan_review import reviewed
from applier.processes import program, program_file
from applier.receipt import in_sight
from applier.store.opening import STORE_VARIABLE
from planner.errors import CompactorError, SettingsError, StoreError, TranscriptError
from planner.placeholders import history_key
from planner.plan import Usage
from planner.prices import dollars, money

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer
    from applier.session import Session
    from applier.session.planning import Planned

MOST_RECEIPTS = 3
"""Number of the last used conversations for which `wrap` shows the kept and removed parts; each takes over a second."""
UNTOUCHED_SECONDS = 60
"""A session file that `resume` or `apply` wrote counts as resumed if it was changed more than these seconds later."""
_POLL_SECONDS = 0.05
"""Pause in seconds between two checks whether the client has ended."""


@click.command(context_settings={"allow_interspersed_args": False})
@servers.session_options
@as_json
@click.argument("client", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def wrap_command(ctx: click.Context, /, client: tuple[str, ...], as_json: bool, **session_values: Any) -> int:
    """Run CLIENT behind the proxy: `claude …`, `codex …`, `opencode …`, or any program that reads ANTHROPIC_BASE_URL or
    OPENAI_BASE_URL.

    The proxy sends its requests to the addresses in these variables, unless an option names another. The client's own
    model plans the compactions, with the client's key or login; for chat completions rules do, unless --planner-model
    PROVIDER/MODEL names a model. Every removed part can be restored at any time. Standard output and exit code are
    CLIENT's; the summary at the end is on standard error.
    """
    _program_of(client[0])  # raises an error for an unknown program before a store is created
    wrapped = wrapped_client(client, os.environ)
    places = wrapped.upstreams().items()
    session_values |= {name: url for name, url in places if ctx.get_parameter_source(name) is ParameterSource.DEFAULT}
    server = program("mcp") if wrapped.takes_server and find_spec("mcp") else []
    if server:
        session_values["plan"] = {"restore_tool": f"{MCP_PREFIX}restore_context"}
    logging.getLogger("applier").addHandler(logging.NullHandler())  # print nothing into the client's screen
    # all runs in a folder have the same name, so that `claude --continue` continues the same conversation
    name = f"wrap-{sha256(os.path.realpath('.').encode()).hexdigest()[:8]}"
    session_values["project"] = os.path.realpath(".")
    with servers.open_proxy(own=(f"own-{secrets.token_hex(16)}", name), **session_values) as proxy:
        servers.warn_of_store(proxy)
        added = {servers.SESSION_VARIABLE: name, servers.PROJECT_VARIABLE: session_values["project"]}
        with suppress(StoreError):  # already reported by the warning
            added[STORE_VARIABLE] = store_anywhere(session_values["store"] or os.environ.get(STORE_VARIABLE, ""))
        environment = {**os.environ, **wrapped.variables(proxy.named_url), **added}
        environment.pop(servers.TOKEN_VARIABLE, None)
        code = _run(wrapped.arguments(proxy.named_url, server, [*added]), environment)
        report = _report(proxy, client[0])
    if as_json:
        print_json(report, err=True)
    for line in () if as_json else _report_lines(report):
        echo(f"compactor: {line}", err=True)
    return code


def _run(client: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command line `client` to its end; return its exit code, or 128 plus the number of the signal that ended
    it. The terminal sends Ctrl-C to the client, too, so this process ignores it; other signals are sent on."""
    command = [_program_of(client[0]), *client[1:]]
    running, pending = list[subprocess.Popen[bytes]](), list[int]()  # the client once it runs; signals to send to it

    def send_on(number: int, _frame: object) -> None:
        """Send a signal to the client, or keep it until the client is running."""
        pending.append(number)
        while running and pending:
            running[0].send_signal(pending.pop())

    by_name = {"SIGINT": lambda _number, _frame: None, "SIGTERM": send_on, "SIGHUP": send_on}
    # Windows has no SIGHUP
    handlers = {getattr(signal, name): handler for name, handler in by_name.items() if hasattr(signal, name)}
    replaced = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        running.append(subprocess.Popen(command, env=environment))
        while pending:  # signals that came before the client was started
            running[0].send_signal(pending.pop())
        # not `wait()`: a signal that arrives just before it blocks would be sent on only after the client's end
        while (code := running[0].poll()) is None:
            time.sleep(_POLL_SECONDS)
    except OSError as error:
        raise click.ClickException(f"{client[0]}: {error.strerror}") from None
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _program_of(name: str) -> str:
    """Return the path of the program `name`, which is searched in PATH if it is no path; raise an error without one."""
    if os.path.dirname(name):
        if not os.path.exists(name):
            raise click.ClickException(f"{name}: No such file or directory")
        return name
    path = program_file(name)
    if not path:
        raise click.ClickException(f"{name}: no such program in PATH")
    return path


def _report(proxy: ProxyServer, client: str) -> dict[str, Any]:
    """Return what the proxy did while `client` ran, as JSON data. ``bypassed`` names it if it sent no request."""
    metrics, sessions = proxy.metrics, proxy.gateway.conversations.sessions()
    compacted = [session for session in sessions if session.state.compactions]
    return {
        "bypassed": "" if metrics.value("arrivals") else client,
        "store_problem": proxy.gateway.store_problem(),
        "compactions": int(metrics.value("compactions")),
        "prompt_tokens": int(metrics.value("prompt_tokens")),
        "saved_tokens": int(metrics.value("saved_tokens")),
        "failed_requests": int(metrics.value("requests", kind="failed")),
        "waited_seconds": [round(seconds, 2) for seconds in proxy.gateway.waits],
        "removed_reasoning": int(metrics.value("removed_reasoning")),
        "planned": list(_planned(proxy.gateway.planned())),
        "rules_for_want_of_upstream": proxy.rules_for_want_of_upstream,
        "compacted": [_session_data(one, with_receipt=one in compacted[-MOST_RECEIPTS:]) for one in compacted],
    }


def _session_data(session: Session, *, with_receipt: bool) -> dict[str, Any]:
    """Return id, key and sizes of a conversation; if `with_receipt`, also what its last compaction kept and removed."""
    state, receipt = session.state, ""
    with suppress(CompactorError):  # no receipt without messages, as for a plan of an earlier run
        receipt = in_sight(session.plan) if with_receipt and session.plan else ""
    sizes = {"session": state.session_id, "messages": state.history_messages, "tokens": state.tokens}
    return {**sizes, "history": state.history_key, "receipt": receipt}


def _planned(calls: Sequence[Planned]) -> Iterator[dict[str, Any]]:
    """Yield for each planner (a model, or the rules) the sums of its `calls`: plans, failures, tokens, dollars."""
    for name in dict.fromkeys(call.planner for call in calls if call.planner != "none"):
        its_calls = [call for call in calls if call.planner == name]
        failures = [call.failure for call in its_calls if call.failure]
        usage = sum((call.usage for call in its_calls), Usage())
        yield {
            "planner": name,
            "plans": len(its_calls) - len(failures),
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": dollars(name, *(call.usage for call in its_calls)),
            "failures": len(failures),
            "last_failure": failures[-1] if failures else "",
        }


def _report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for the user about what the proxy did, from the data of `_report`."""
    sent, saved = report["prompt_tokens"], report["saved_tokens"]
    if report["bypassed"]:
        yield (
            f"bypassed: nothing came from {report['bypassed']}. Its own settings may name another address "
            "(ANTHROPIC_BASE_URL in Claude Code's, model_provider or openai_base_url in Codex', baseURL in OpenCode's) "
            "or it asks a provider that the proxy does not serve (Copilot with a GitHub login, Gemini)"
        )
    else:
        yield f"{report['compactions']} compactions; {sent:,} prompt tokens sent, about {saved:,} more without"
    if waits := report["waited_seconds"]:
        yield f"the agent waited {sum(waits):.1f} s for compactions, at most {max(waits):.1f} s for one"
    if removed := report["removed_reasoning"]:
        yield f"the provider removed {removed:,} reasoning items behind a changed prefix"
    if report["store_problem"]:
        yield f"{servers.NO_STORE}: {report['store_problem']}"
    if failed := report["failed_requests"]:
        yield f"{failed} requests were sent unchanged, because something failed here"
    for by in report["planned"]:
        tokens = f": {by['input_tokens']:,} tokens in, {by['output_tokens']:,} out" if by["input_tokens"] else ""
        failed = f"; failed {_times(by['failures'])}: {by['last_failure']}" if by["failures"] else ""
        yield f"planned by {by['planner']} {_times(by['plans'])}{money(by['dollars'], tokens)}{failed}"
    if report["rules_for_want_of_upstream"]:
        yield "Chat completions: rules planned; --planner-model PROVIDER/MODEL names a model that plans"
    for session in report["compacted"]:
        yield (
            f"{session['messages']} messages, {session['tokens']:,} tokens of them in the last prompt: compactor log "
            f"--session {session['session']}; compactor restore {session['history']}:t1"
        )
        yield from session["receipt"].splitlines()


def _times(count: int) -> str:
    """Return ``once``, or ``3 times``."""
    return "once" if count == 1 else f"{count:,} times"


@click.command
@click.argument("session", metavar="SESSION")
@planning_options
@output_option("Write the new session there.")
@click.option("--in-client", is_flag=True, help="Write it into the client's folder, not into that of SESSION.")
@click.option("--dry-run", is_flag=True, help="Show what would happen; write nothing.")
@store_option
@as_json
def resume_command(
    session: str, output: Path | None, in_client: bool, dry_run: bool, store: str | None, as_json: bool, **planning: Any
) -> None:
    """Compact a client's session into a new one that the client resumes.

    SESSION is the log of a session of Claude Code (in ~/.claude/projects) or of Codex (in ~/.codex/sessions): a file,
    the session's id, or "last" for the newest one of this folder that is not a result of this command. The new session
    gets an id of its own and is written beside it; SESSION is not changed. Every original is stored first.
    """
    if output and in_client:
        raise click.UsageError("-o and --in-client exclude each other: give one.")
    log = _log_of(session, store)
    conversation = read_file(log)
    client = conversation.client
    if client is None:
        known = " or ".join(form.title for form in CLIENTS)
        raise TranscriptError(f"{log}: expected a session log ({known}), found {conversation.format} messages")
    with screen(stderr=True).status("planning…"):
        review = reviewed(planned(conversation, log, **planning), conversation.messages)
    session_id, now = str(uuid4()), datetime.now(UTC)
    name = client.log_name(session_id, now)
    in_place = client.log_folder(conversation.working_folder, now, os.environ) / name
    place = in_place if in_client else output or log.absolute().parent / name
    written = review.changes and not dry_run
    if written:
        if place.exists():
            raise SettingsError(f"{place}: exists, and a session is never overwritten: name a new file")
        make_folder(place.parent)
        write_view(review, conversation, place, store, session_id)
    command = _resume_command(client, conversation.working_folder, session_id, place, in_place)
    if as_json:
        new = {"session": str(log), "written": written, "session_id": session_id, "file": str(place), "resume": command}
        print_json({**review.to_json(), **new})
        return
    before, after = review.plan.history.tokens, review.plan.estimated_tokens
    if not review.changes:
        echo(f"Nothing to compact: all {before:,} tokens stay. No session was written.")
    elif dry_run:
        echo(f"{before:,} tokens would become {after:,}, in {place}")
    else:
        originals = f"{history_key(review.plan.history.digest)}:t1, t2, …"
        lines = (f"{before:,} tokens became {after:,}, in {place}", in_sight(review.plan), f"Go on there:  {command}")
        echo("\n".join(filter(None, lines)))
        echo(f"Originals:    compactor restore {originals}; the old session is as it was")


def _log_of(session: str, store: str | None) -> Path:
    """Return the session log that `session` names: by a path, an id, or ``last`` for the newest one of this folder.

    ``last`` skips logs that the commands `resume` and `apply` wrote, as they are copies, unless a client has continued
    them. The events in the `store` show which logs these are.
    """
    if Path(session).is_file():
        return Path(session)
    folder = os.getcwd() if session == "last" else ""
    logs = [log for client in CLIENTS for log in client.logs(folder, os.environ)]
    if folder:
        written = dict[str, float]()  # times when `resume` and `apply` wrote sessions, by the session's id
        with suppress(StoreError), existing_store(store) as opened:
            events = (event for event in opened.events() if event["kind"] == "apply" and "session" in event)
            written = {str(event["session"]): event["time"] for event in events}
        logs = [log for log in logs if log.stat().st_mtime - written.get(_id_of(log), -inf) > UNTOUCHED_SECONDS]
    matches = [log for log in logs if folder or _id_of(log) == session]
    if not matches:
        where = f"worked in {folder}" if folder else "has this id"
        raise click.UsageError(f"{session}: no such file, and no session that the clients keep {where}: name its log.")
    return max(matches, key=lambda log: log.stat().st_mtime)


def _id_of(log: Path) -> str:
    """Return the session's id (a UUID) from the end of the name of its log."""
    return log.stem[-36:]


def _resume_command(client: Client, folder: str, session_id: str, place: Path, in_place: Path) -> str:
    """Return the shell command by which the user resumes a session in its working `folder` (empty if unknown).

    `place`: where the session file was written. If the client does not find it there, the command first copies it to
    `in_place`, where the client looks.
    """
    steps = [client.resume_command(session_id)]
    if folder:
        steps.insert(0, f"cd {shlex.quote(folder)}")
    if not client.finds(place, in_place):
        parent = in_place.parent
        is_in_home = parent.is_relative_to(Path.home())
        target = f"~/{shlex.quote(str(parent.relative_to(Path.home())))}" if is_in_home else shlex.quote(str(parent))
        steps.insert(0, f"mkdir -p {target} && cp {shlex.quote(str(place))} {target}/{in_place.name}")
    return " && ".join(steps)
