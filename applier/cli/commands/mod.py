"""`compactor mod`: what our plugins inside Claude Code and Pi call. JSON in, JSON out; no command for people."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from applier.adapters import claude_code_mod as mod
from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.cli.options import existing_store, naming_store
from applier.store.opening import open_store
from planner.errors import SettingsError

__all__ = ["mod_command"]


@click.group
def mod_command() -> None:
    """Called from inside Claude Code and Pi: JSON on standard input, JSON on standard output.

    The client runs it in the project's folder, whose settings are a stranger's: it leaves that first.
    """
    try:
        os.chdir(Path.home())
    except (OSError, RuntimeError):  # some containers name a home that is not there
        os.chdir(os.sep)


@mod_command.command("describe")
def _describe() -> None:
    """The tools to register."""
    _answer(mod.describe())


@mod_command.command("compact")
def _compact() -> None:
    """What stands in place of a transcript."""
    with open_store() as store:
        _answer(mod.compact(_given(), store, time.time(), naming_store("compactor")))


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
def _look_up() -> None:
    """Answer a tool of the agent."""
    _answer(mod.look_up(_given(), lambda: existing_store(None)))


@mod_command.command("preview")
def _preview() -> None:
    """What a compaction now would do."""
    logs = list(CLAUDE_CODE.logs("", os.environ))
    _answer(mod.preview(_given(), lambda session: next((str(log) for log in logs if log.stem == session), "")))


def _given() -> Any:
    try:
        return json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"expected JSON on standard input: {error}") from None


def _answer(answer: object) -> None:
    sys.stdout.write(json.dumps(answer))
