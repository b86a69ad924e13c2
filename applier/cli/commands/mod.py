"""`compactor mod`: what our plugins inside Claude Code and Pi call. JSON in, JSON out; no command for people."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from applier.adapters import claude_code_mod as mod
from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.cli.options import existing_store, naming_store
from applier.store.opening import open_store
from planner.errors import SettingsError, StoreError

__all__ = ["mod_command"]


@click.group
@click.pass_context
def mod_command(context: click.Context) -> None:
    """Called from inside Claude Code and Pi: JSON on standard input, JSON on standard output.

    The client runs it in the project's folder, whose settings are a stranger's: it leaves that first.
    """
    try:
        context.obj = os.getcwd()
    except OSError:  # it was taken away
        context.obj = ""
    try:
        os.chdir(Path.home())
    except (OSError, RuntimeError):  # some containers name a home that is not there
        os.chdir(os.sep)


@mod_command.command("describe")
def _describe() -> None:
    """The tools to register."""
    _answer(mod.describe())


@mod_command.command("compact")
@click.pass_obj
def _compact(project: str) -> None:
    """What stands in place of a transcript."""
    with open_store() as store:
        _answer(mod.compact(_given(), store, time.time(), naming_store("compactor"), project))


@mod_command.command("receipt")
def _receipt() -> None:
    """What the client's own compaction dropped."""
    with open_store() as store:
        _answer(mod.receipt_of_own(_given(), store, time.time(), naming_store("compactor")))


@mod_command.command("shorten")
def _shorten() -> None:
    """What is sent in place of a large result."""
    with open_store() as store:
        _answer(mod.shorten(_given(), store))


@mod_command.command("look-up")
@click.pass_obj
def _look_up(project: str) -> None:
    """Answer a tool of the agent."""
    _answer(mod.look_up(_given(), lambda: existing_store(None), project))


@mod_command.command("preview")
def _preview() -> None:
    """What a compaction now would do."""
    logs = list(CLAUDE_CODE.logs("", os.environ))
    with ExitStack() as opened:
        store = None
        with suppress(StoreError):  # nothing was compacted yet
            store = opened.enter_context(existing_store(None))
        _answer(mod.preview(_given(), store, lambda name: next((str(log) for log in logs if log.stem == name), "")))


def _given() -> Any:
    try:
        return json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"expected JSON on standard input: {error}") from None


def _answer(answer: object) -> None:
    sys.stdout.write(json.dumps(answer))
