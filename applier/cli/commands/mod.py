"""`compactor mod`: the program that our plugins inside clients run. JSON in, JSON out; no command for people."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from applier.adapters import claude_code_mod as mod
from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.cli.commands.servers import SESSION_VARIABLE
from applier.cli.files import read_file
from applier.cli.options import existing_store, naming_store
from applier.cli.screen import one_line
from applier.store.opening import open_store
from planner.errors import CompactorError, SettingsError, StoreError

__all__ = ["mod_command"]

_PAGE = "starlette"
"""Package without which no review opens in a browser."""


@click.command
@click.argument(
    "question",
    type=click.Choice(["describe", "ahead", "compact", "receipt", "shorten", "look-up", "preview", "remember"]),
)
def mod_command(question: str) -> None:
    """Answer our plugins inside clients: JSON on standard input, JSON on standard output.

    The client runs it in the project's folder, whose settings are a stranger's: it leaves that first.
    """
    try:
        project = os.getcwd()
    except OSError:  # the folder was deleted
        project = ""
    try:
        os.chdir(Path.home())
    except (OSError, RuntimeError):  # some containers name a home that does not exist
        os.chdir(os.sep)
    sys.stdout.write(json.dumps(mod.describe() if question == "describe" else _answer(question, _input(), project)))


def _answer(question: str, call: Any, project: str) -> object:
    if question == "look-up":
        return mod.look_up(call, lambda: existing_store(None), project, os.environ.get(SESSION_VARIABLE, ""))
    if question == "preview":
        return _previewed(call)
    if question == "remember":
        return _remembered(call)
    with open_store() as store:
        if question == "shorten":
            return mod.shorten(call, store)
        if question == "receipt":
            return mod.receipt_of_own(call, store, time.time(), naming_store())
        if question == "ahead":
            return mod.ahead(call, store, project)
        return mod.compact(call, store, time.time, naming_store(), project)


def _remembered(call: Any) -> object:
    """Answer Codex' hook, which never fails: Codex has compacted already, and continues with its own summary."""
    try:
        with open_store() as store:
            return mod.remember(call, lambda path: read_file(Path(path)).messages, store, time.time())
    except CompactorError as error:
        return {"systemMessage": f"compactor: {one_line(str(error))}; Codex' own summary is all there is"}


def _previewed(call: Any) -> object:
    with ExitStack() as opened:
        store = None
        with suppress(StoreError):  # nothing was compacted yet
            store = opened.enter_context(existing_store(None))
        return mod.preview(call, store, _review)


def _review(session: str) -> str:
    """Return the command that reviews the session, in a browser if the extra is installed; empty without its log."""
    log = next((log for log in CLAUDE_CODE.logs("", os.environ) if log.stem == session), None)
    page = " --web" if find_spec(_PAGE) else ""
    return f"compactor plan {shlex.quote(str(log))} --planner rules{page}" if log else ""


def _input() -> Any:
    try:
        return json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"expected JSON on standard input: {error}") from None
