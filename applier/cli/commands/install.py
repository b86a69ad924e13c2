"""`compactor install`, `uninstall`, `status`: add this project's plugin to a coding agent's program (the client),
remove it, and check it.

Changes are shown first. The plugin's folder is complete or absent; if an installation was interrupted, the next one
repairs it. No setting of the client is changed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from applier.adapters import client_plugin as plugin
from applier.adapters.client_plugin import CLIENTS, Problem
from applier.adapters.transcripts.claude_code import config_folder
from applier.cli.files import make_folder
from applier.cli.options import agreed, as_json, change_options, existing_store, store_anywhere, store_option
from applier.cli.screen import echo, print_json
from applier.processes import program, program_file
from applier.store.opening import STORE_VARIABLE, store_place
from planner.errors import CompactorError, SettingsError
from planner.reading.lines import one_line

QUIET = dict.fromkeys(
    (
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "OPENCODE_DISABLE_AUTOUPDATE",
        "PI_OFFLINE",
    ),
    "1",
)
"""Environment variables that keep a client from updates and network traffic while it answers a question."""
ANSWER_SECONDS = 60
"""Longest time in seconds for a command of the client, such as ``claude --version``."""
TRUST = "Codex asks before it runs a new hook: type /hooks in Codex once, and trust the one of compactor."
"""Message after the installation for Codex."""

_client = click.argument("client", type=click.Choice([*CLIENTS]))


@click.command
@_client
@change_options
@store_option
@as_json
def install_command(client: str, store: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Add the plugin to a client, so that it compacts by relevance: with its own login, no proxy, no key.

    A plugin is written into the folder from which the client loads it in every session: skills of Claude Code
    ($CLAUDE_CONFIG_DIR or ~/.claude), plugins of OpenCode ($OPENCODE_CONFIG_DIR or ~/.config/opencode), extensions of
    Pi ($PI_CODING_AGENT_DIR or ~/.pi/agent); for Codex into its home ($CODEX_HOME or ~/.codex), and Codex' own command
    adds it. It runs this installation of compactor by its absolute path.
    """
    folder = CLIENTS[client].folder(os.environ)
    present = _present_files(client, folder)
    _, environment = plugin.program_of(present)  # an update keeps the store of the last install
    if store:
        environment = {STORE_VARIABLE: store_anywhere(store)}
    wanted = plugin.plugin_files(program("mod"), environment, client)
    changes = [*_changes(present, wanted)]
    preview = "\n".join([f"{folder}:", *(f"  {line}" for line in changes or ["nothing to change"])])
    if _ask(folder, changes, preview, dry_run=dry_run, yes=yes, as_json=as_json):
        make_folder(folder.parent)
        _clear_parts(folder)
        if present:
            _run_client(client, folder, CLIENTS[client].forgets)
        plugin.put_plugin(wanted, folder)
        _run_client(client, folder, CLIENTS[client].registers)
        if not as_json:
            echo(f"Installed: {CLIENTS[client].title} loads it from its next session on.")
        if client == plugin.CODEX and not as_json:
            echo(TRUST)
    if changes and not dry_run and not as_json:
        _print_problems([*_problems(client, folder, wanted, *_client_program(client))])


@click.command
@_client
@change_options
@as_json
def uninstall_command(client: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the plugin from a client; the store stays."""
    folder = CLIENTS[client].folder(os.environ)
    present = _present_files(client, folder)
    _, environment = plugin.program_of(present)
    store = store_place(environment.get(STORE_VARIABLE))
    changes = [f"- {path}" for path in present]
    if not changes and folder.is_dir():
        changes = [f"- {folder}"]
    preview = f"{folder}: {'is removed' if changes else 'is not there: nothing to change'}"
    if _ask(folder, changes, preview, dry_run=dry_run, yes=yes, as_json=as_json):
        _run_client(client, folder, CLIENTS[client].forgets)
        _remove(folder, has_entry=plugin.ENTRY in present)
        if not as_json:
            echo("Uninstalled: running sessions keep it until they end.")
    if not as_json and ("://" in store or Path(store).exists()):
        echo(_with_tilde(f"The store stays: {store}; `compactor store forget` deletes from it"))


@click.command
@_client
@as_json
def status_command(client: str, as_json: bool) -> int:
    """Show whether a client uses the plugin; if not, why and what to do.

    Exits with 1 if there is a problem. Settings of the project are those of the working folder.
    """
    folder = CLIENTS[client].folder(os.environ)
    present = _present_files(client, folder)
    argv, environment = plugin.program_of(present)
    path, version = _client_program(client)
    problems = [*_problems(client, folder, plugin.plugin_files(argv, environment, client), path, version)]
    last = _last_event(CLIENTS[client].title, environment.get(STORE_VARIABLE)) if present else ""
    store = store_place(environment.get(STORE_VARIABLE))
    if as_json:
        status = {"client": path, "version": version, "folder": str(folder), "installed": bool(present)}
        status |= {"program": argv, "store": store, "last": last}
        print_json({**status, "problems": [asdict(problem) for problem in problems]})
    else:
        rows = {"client": f"{version} ({path})" if path else ""}
        rows |= {"plugin": str(folder) if present else "", "program": shlex.join(argv)}
        rows |= {"store": store if present else "", "last": last}
        echo(_with_tilde("".join(f"{name + ':':<9}{value}\n" for name, value in rows.items() if value)), nl=False)
        _print_problems(problems)
    return 1 if problems else 0


def _run_client(client: str, folder: Path, commands: Sequence[str]) -> None:
    """Run the client's `commands` that add or remove the plugin in `folder`; `_problems` finds out if they failed."""
    path = program_file(CLIENTS[client].command)
    for command in commands if path else ():
        _run([path, *(word.format(folder=folder) for word in command.split())])


def _last_event(client: str, name: str | None) -> str:
    """Return time and message of the newest event of the plugin of `client` in the store `name`; empty if none."""
    with suppress(CompactorError), existing_store(name) as store:
        for event in reversed(store.events()):
            if event["kind"] == "mod" and event.get("client") == client:
                return f"{datetime.fromtimestamp(event['time'], UTC):%Y-%m-%d %H:%M:%S} UTC, {event['message']}"
    return ""


def _print_problems(problems: list[Problem]) -> None:
    """Print each problem with its cure, or that there is none."""
    lines = [f"✗ {one_line(problem.what)}\n  → {problem.cure}" for problem in problems]
    echo(_with_tilde("\n".join(lines or ["No problem found."])))


def _with_tilde(text: str) -> str:
    """Return `text` with ``~`` in place of the user's home folder."""
    return text.replace(f"{Path.home()}{os.sep}", f"~{os.sep}")


def _ask(folder: Path, changes: list[str], preview: str, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Print the `changes` of `folder`, as JSON or as the text `preview`. Return True if they are to be made now."""
    is_to_write = bool(changes) and not dry_run
    if as_json:
        print_json({"folder": str(folder), "changes": changes, "written": is_to_write})
    else:
        echo(_with_tilde(preview))
    return is_to_write and agreed(yes=yes, as_json=as_json)


def _present_files(client: str, folder: Path) -> dict[str, bytes]:
    """Return the contents of the installed plugin's files by path: those in `folder`, and the file next to it by which
    some clients load it; empty if it is not installed. Raise SettingsError if something else is there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise SettingsError(f"{folder}: not a folder of ours: move it away")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    present = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    # an interrupted installation may have left only some files; in Claude Code's folder their names show that they are
    # ours, but in other clients' folders a user's own extension may have the same names
    if not plugin.is_ours(present, plugin.plugin_files([], {}) if client == plugin.CLAUDE_CODE else ()):
        raise SettingsError(f"{folder}: not ours: move it away")
    entry, entry_content = (
        folder.parent / f"{plugin.PLUGIN_NAME}.js",
        plugin.plugin_files([], {}, client).get(plugin.ENTRY),
    )
    if entry_content is not None and entry.exists():
        if entry.read_bytes() != entry_content:
            raise SettingsError(f"{entry}: not ours: move it away")
        present[plugin.ENTRY] = entry_content
    return present


def _changes(present: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a line for each file that an installation adds (``+ path``), changes (``~``) or removes (``-``). `present`,
    `wanted`: contents of the files by path, before and after."""
    for path in sorted({*present, *wanted}):
        if path not in wanted:
            yield f"- {path}"
        elif present.get(path) != wanted[path]:
            argv, _ = plugin.program_of(wanted)
            runs = f": runs {shlex.join(argv)}" if path == "program.json" else ""
            yield f"{'~' if path in present else '+'} {path}{runs}"


def _remove(folder: Path, *, has_entry: bool) -> None:
    """Remove the plugin: first the file that loads it (if `has_entry`), then `folder`, which is renamed so that it is
    gone in one step, then the parent folder if it is empty."""
    _clear_parts(folder)
    if has_entry:
        (folder / plugin.ENTRY).unlink(missing_ok=True)
    if not folder.exists():
        return
    with tempfile.TemporaryDirectory(prefix=plugin.PART, dir=folder.parent) as temporary:
        folder.rename(Path(temporary, "old"))
    with suppress(OSError):
        folder.parent.rmdir()


def _clear_parts(folder: Path) -> None:
    """Remove the temporary folders that interrupted runs left next to the plugin's `folder`."""
    for leftover in folder.parent.glob(f"{plugin.PART}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _problems(
    client: str, folder: Path, wanted: Mapping[str, bytes], agent_path: str, version: str
) -> Iterator[Problem]:
    """Yield every reason why the plugin in `folder` does not work in `client`, with its cure. `wanted`: contents of its
    files by path, as this version writes them. `agent_path`, `version`: of the client's program, or empty."""
    reinstall = f"compactor install {client}"
    present, about = _present_files(client, folder), CLIENTS[client]
    if not agent_path:
        yield Problem(f"no `{about.command}` is on the PATH", f"install {about.title}, or add its folder to PATH")
    elif problem := plugin.version_problem(about, version):
        yield problem
    if not present:
        yield Problem(f"the plugin is not installed: {folder} is empty", reinstall)
        return
    if present != wanted:
        yield Problem("the plugin is of another version, or was changed or damaged", reinstall)
    argv, _ = plugin.program_of(present)
    yield from _program_problems(argv, reinstall)
    if client == plugin.CODEX and find_spec("mcp") is None:
        yield Problem("the agent's tools need the extra mcp", "pip install 'relevance-compactor[mcp]'")
    if client == plugin.CODEX and agent_path:
        listing = _printed_json([agent_path, "plugin", "list", "--json"])
        yield from plugin.codex_problems(listing if isinstance(listing, dict) else {}, str(folder))
    if client == plugin.CLAUDE_CODE:
        yield from _settings_problems()
        yield from _claude_code_problems(agent_path, folder) if agent_path else ()


def _program_problems(argv: list[str], cure: str) -> Iterator[Problem]:
    """Yield a problem, with this `cure`, if the command line `argv` by which the plugin runs this program fails."""
    interpreter = Path(argv[0]) if argv else Path()
    if not interpreter.is_absolute() or not interpreter.is_file():
        yield Problem(f"the plugin's interpreter is gone: {interpreter}", cure)
    elif (process := _run([*argv[:-1], "--version"])) is None or process.returncode:
        error = one_line(process.stderr)[-200:] if process else "it does not answer"
        yield Problem(f"the plugin's program fails: {error}", cure)


def _claude_code_problems(path: str, folder: Path) -> Iterator[Problem]:
    """Yield the problems of the plugin in `folder` that Claude Code reports. `path`: Claude Code's program."""
    listing = _printed_json([path, "plugin", "list", "--json"])
    checked = _printed_json([path, "plugin", "validate", str(folder), "--json"])
    if not isinstance(listing, list) or not isinstance(checked, dict):
        yield Problem("Claude Code does not list its plugins", "claude doctor")
        return
    yield from plugin.listing_problems([entry for entry in listing if isinstance(entry, dict)], str(folder))
    yield from plugin.refusals(checked)


def _printed_json(command: list[str]) -> object:
    """Run `command` and return the JSON that it prints; None if it cannot be run or prints no JSON."""
    process = _run(command)
    try:
        return json.loads(process.stdout) if process else None
    except (ValueError, RecursionError):
        return None


def _settings_problems() -> Iterator[Problem]:
    """Yield the settings of Claude Code by which the plugin does not work. They may be in the person's own file, in
    those of the working folder, or in managed ones, which a company or the provider writes."""
    machine = {"darwin": "/Library/Application Support/ClaudeCode", "win32": "C:\\Program Files\\ClaudeCode"}
    managed = Path(machine.get(sys.platform, "/etc/claude-code"))
    persons, remote = (config_folder(os.environ) / name for name in ("settings.json", "remote-settings.json"))
    drop_ins = sorted((managed / "managed-settings.d").glob("*.json"))
    project = [Path.cwd() / ".claude" / name for name in ("settings.json", "settings.local.json")]
    for path in dict.fromkeys((persons, *project, remote, managed / "managed-settings.json", *drop_ins)):
        settings = None
        with suppress(OSError, ValueError, RecursionError):  # Claude Code reports a file that it cannot read
            settings = json.loads(path.read_text("utf-8-sig"))
        if isinstance(settings, dict):
            yield from plugin.settings_problems(str(path), settings, managed=path not in (persons, *project))


def _client_program(client: str) -> tuple[str, str]:
    """Return path and printed version of the client's program on this machine; both empty if it is not installed."""
    path = program_file(CLIENTS[client].command)
    process = _run([path, "--version"]) if path else None
    # Pi 0.74 prints its version on standard error
    return path, one_line(process.stdout.strip() or process.stderr) if process else ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run `command` without input; return output and exit code, or None if it cannot run or takes too long."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
