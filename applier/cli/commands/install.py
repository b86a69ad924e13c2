"""`compactor install`, `uninstall`, `status`: the mod is put where a client loads it, taken away, and looked after.

What will happen is shown first. The folder is there whole or not at all, and an install that was interrupted is
repaired by the next one. No setting of the client is changed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from applier.adapters.client_plugin import (
    CLAUDE_CODE,
    CLIENTS,
    PART,
    Problem,
    is_ours,
    listing_problems,
    plugin_files,
    program_of,
    put_plugin,
    refusals,
    settings_problems,
    version_problem,
)
from applier.adapters.transcripts.claude_code import config_folder
from applier.cli.files import make_folder
from applier.cli.options import agreed, as_json, change_options, existing_store, store_anywhere, store_option
from applier.cli.screen import echo, one_line, print_json
from applier.processes import program, program_file
from applier.store.opening import STORE_VARIABLE, store_place
from planner.errors import CompactorError, SettingsError

__all__ = ["install_command", "status_command", "uninstall_command"]

QUIET = dict.fromkeys(
    ("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "PI_OFFLINE"), "1"
)
"""The client is asked for what it knows, and is to do nothing else meanwhile."""
ANSWER_SECONDS = 60

_client = click.argument("client", type=click.Choice([*CLIENTS]))


@click.command
@_client
@change_options
@store_option
@as_json
def install_command(client: str, store: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Let a client compact with us: its own login, no proxy, no key.

    A plugin is put into Claude Code's folder of skills ($CLAUDE_CONFIG_DIR or ~/.claude), or into Pi's of extensions
    ($PI_CODING_AGENT_DIR or ~/.pi/agent), from where the client loads it in every session. It runs this installation
    of compactor by its absolute path.
    """
    folder = CLIENTS[client].folder(os.environ)
    present = _present(client, folder)
    # an update goes on with the store that was named
    environment = {STORE_VARIABLE: store_anywhere(store)} if store else program_of(present)[1]
    wanted = plugin_files(program("mod"), environment, client)
    changes = [*_changes(present, wanted)]
    shown = "\n".join([f"{folder}:", *(f"  {line}" for line in changes or ["nothing to change"])])
    if _agreed(folder, changes, shown, dry_run=dry_run, yes=yes, as_json=as_json):
        make_folder(folder.parent)
        _clear_parts(folder)
        put_plugin(wanted, folder)
        if not as_json:
            echo(f"Installed: from its next session on {CLIENTS[client].title} compacts with it.")
    if changes and not dry_run and not as_json:
        _print_problems([*_problems(client, folder, wanted, _client_version(client))])


@click.command
@_client
@change_options
@as_json
def uninstall_command(client: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take away what `install` put there; the store stays."""
    folder = CLIENTS[client].folder(os.environ)
    changes = [f"- {path}" for path in _present(client, folder)] or [f"- {folder}"] * folder.is_dir()
    shown = f"{folder}: {'is taken away' if changes else 'is not there: nothing to change'}"
    if _agreed(folder, changes, shown, dry_run=dry_run, yes=yes, as_json=as_json):
        _take_away(folder)
        if not as_json:
            echo("Uninstalled: sessions that run keep it until they end.")
    if not as_json:
        echo(_shown(f"The store stays: {store_place()}; `compactor store forget` takes out what is in it"))


@click.command
@_client
@as_json
def status_command(client: str, as_json: bool) -> int:
    """Say whether a client compacts with us, and if not, why and what to do.

    Exits with 1 where something keeps it from that.
    """
    folder = CLIENTS[client].folder(os.environ)
    present = _present(client, folder)
    argv, environment = program_of(present)
    place, printed = version = _client_version(client)
    problems = [*_problems(client, folder, plugin_files(argv, environment, client), version)]
    last = _last(CLIENTS[client].title, environment.get(STORE_VARIABLE)) if present else ""
    store = store_place(environment.get(STORE_VARIABLE))
    if as_json:
        found = {"client": place, "version": printed, "folder": str(folder), "installed": bool(present)}
        found |= {"program": argv, "store": store, "last": last}
        print_json({**found, "problems": [asdict(one) for one in problems]})
    else:
        rows = {"client": f"{printed} ({place})" if place else "", "mod": str(folder) if present else ""}
        rows |= {"program": shlex.join(argv), "store": store if present else "", "last": last}
        echo(_shown("".join(f"{name + ':':<9}{value}\n" for name, value in rows.items() if value)), nl=False)
        _print_problems(problems)
    return 1 if problems else 0


def _last(client: str, name: str | None) -> str:
    """What the mod in `client` did last by the store `name`, and when; empty if that cannot be said."""
    with suppress(CompactorError), existing_store(name) as store:
        for event in reversed(store.events()):
            if event["kind"] == "mod" and event.get("client") == client:
                return f"{datetime.fromtimestamp(event['time'], UTC):%Y-%m-%d %H:%M:%S} UTC, {event['message']}"
    return ""


def _print_problems(problems: list[Problem]) -> None:
    lines = [f"✗ {one_line(one.what)}\n  → {one.cure}" for one in problems]
    echo(_shown("\n".join(lines or ["Nothing keeps it from its work."])))


def _shown(text: str) -> str:
    """`text` with the person's home as ``~``."""
    return text.replace(f"{Path.home()}{os.sep}", f"~{os.sep}")


def _agreed(folder: Path, changes: list[str], shown: str, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Whether the `changes` of `folder` are to be made: they are `shown` first."""
    write = bool(changes) and not dry_run
    if as_json:
        print_json({"folder": str(folder), "changes": changes, "written": write})
    else:
        echo(_shown(shown))
    return write and agreed(yes=yes, as_json=as_json)


def _present(client: str, folder: Path) -> dict[str, bytes]:
    """Every file of `folder`, by its path in it; none where there is no such folder.

    Raises:
        SettingsError: something else is there.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise SettingsError(f"{folder}: is there and not a folder of ours: move it away")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    present = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    # an extension of somebody's own may well be of one file of that name
    if not is_ours(present, plugin_files([], {}) if client == CLAUDE_CODE else ()):
        raise SettingsError(f"{folder}: is there and not ours: move it away")
    return present


def _changes(present: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[str]:
    """What of the folder will be new (+), other (~) and gone (-), a line each."""
    for path in sorted({*present, *wanted}):
        if path not in wanted:
            yield f"- {path}"
        elif present.get(path) != wanted[path]:
            runs = f": runs {shlex.join(program_of(wanted)[0])}" if path == "program.json" else ""
            yield f"{'~' if path in present else '+'} {path}{runs}"


def _take_away(folder: Path) -> None:
    """Let `folder` be gone at once, and the one that holds it if nothing else is in there."""
    _clear_parts(folder)
    with tempfile.TemporaryDirectory(prefix=PART, dir=folder.parent) as beside:
        folder.rename(Path(beside, "old"))
    with suppress(OSError):
        folder.parent.rmdir()


def _clear_parts(folder: Path) -> None:
    """Take away what an interrupted run has left beside `folder`."""
    for left in folder.parent.glob(f"{PART}*"):
        shutil.rmtree(left, ignore_errors=True)


def _problems(client: str, folder: Path, wanted: Mapping[str, bytes], version: tuple[str, str]) -> Iterator[Problem]:
    """Everything that keeps the mod in `folder` from its work; `version` is where the client is and what it prints."""
    again = f"compactor install {client}"
    present, of = _present(client, folder), CLIENTS[client]
    place, printed = version
    if not place:
        yield Problem(f"no `{of.command}` is on the PATH", f"install {of.title}, or say where it is by PATH")
    elif client == CLAUDE_CODE and (problem := version_problem(printed)):
        yield problem
    if not present:
        yield Problem(f"the mod is not installed: nothing is in {folder}", again)
        return
    if present != wanted:
        yield Problem("the mod is of another version, or was changed or damaged", again)
    yield from _program_problems(program_of(present)[0], again)
    if client == CLAUDE_CODE:
        for where, settings, managed in _settings():
            yield from settings_problems(where, settings, managed=managed)
        yield from _listed(place, folder) if place else ()


def _program_problems(argv: list[str], again: str) -> Iterator[Problem]:
    """What is wrong with the program that the mod runs."""
    interpreter = Path(argv[0]) if argv else Path()
    if not interpreter.is_absolute() or not interpreter.is_file():
        yield Problem(f"the interpreter that the mod names is gone: {interpreter}", again)
    elif (done := _ran([*argv[:-1], "--version"])) is None or done.returncode:
        said = one_line(done.stderr)[-200:] if done else "it does not answer"
        yield Problem(f"the program that the mod names fails: {said}", again)


def _listed(client: str, folder: Path) -> Iterator[Problem]:
    """What the client itself says of its plugins, and of the mod's form: what mods may say can change."""
    listing = _answer([client, "plugin", "list", "--json"])
    checked = _answer([client, "plugin", "validate", str(folder), "--json"])
    if not isinstance(listing, list) or not isinstance(checked, dict):
        yield Problem("the client does not say what plugins it has", "claude doctor")
        return
    yield from listing_problems([entry for entry in listing if isinstance(entry, dict)], str(folder))
    yield from refusals(checked)


def _answer(command: list[str]) -> object:
    """The JSON that a program prints; None if it prints none."""
    done = _ran(command)
    try:
        return json.loads(done.stdout) if done else None
    except (ValueError, RecursionError):
        return None


def _settings() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """The client's settings, the person's and the machine's: name, content, whether they are the machine's."""
    machine = {"darwin": "/Library/Application Support/ClaudeCode", "win32": "C:\\Program Files\\ClaudeCode"}
    managed = Path(machine.get(sys.platform, "/etc/claude-code"))
    own, remote = (config_folder(os.environ) / name for name in ("settings.json", "remote-settings.json"))
    drop_ins = sorted((managed / "managed-settings.d").glob("*.json"))
    for path in (own, remote, managed / "managed-settings.json", *drop_ins):
        with suppress(OSError, ValueError, RecursionError):  # what the client cannot read either is its own affair
            settings = json.loads(path.read_text("utf-8-sig"))
            if isinstance(settings, dict):
                yield str(path), settings, path != own


def _client_version(client: str) -> tuple[str, str]:
    """Where the client is and what it prints for its version; twice empty without one."""
    place = program_file(CLIENTS[client].command)
    done = _ran([place, "--version"]) if place else None
    return place, one_line(done.stdout) if done else ""


def _ran(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """A program that was run, without input; None if it could not be, or took too long."""
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
