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


@click.command
@click.argument("question", type=click.Choice(["describe", "compact", "receipt", "shorten", "look-up", "preview"]))
def mod_command(question: str) -> None:
    """Called from inside Claude Code and Pi: JSON on standard input, JSON on standard output.

    The client runs it in the project's folder, whose settings are a stranger's: it leaves that first.
    """
    try:
        project = os.getcwd()
    except OSError:  # it was taken away
        project = ""
    try:
        os.chdir(Path.home())
    except (OSError, RuntimeError):  # some containers name a home that is not there
        os.chdir(os.sep)
    sys.stdout.write(json.dumps(mod.describe() if question == "describe" else _answer(question, _given(), project)))


def _answer(question: str, given: Any, project: str) -> object:
    if question == "look-up":
        return mod.look_up(given, lambda: existing_store(None), project)
    if question == "preview":
        return _previewed(given)
    with open_store() as store:
        if question == "shorten":
            return mod.shorten(given, store)
        if question == "receipt":
            return mod.receipt_of_own(given, store, time.time(), naming_store())
        return mod.compact(given, store, time.time(), naming_store(), project)


def _previewed(given: Any) -> object:
    logs = list(CLAUDE_CODE.logs("", os.environ))
    with ExitStack() as opened:
        store = None
        with suppress(StoreError):  # nothing was compacted yet
            store = opened.enter_context(existing_store(None))
        return mod.preview(given, store, lambda name: next((str(log) for log in logs if log.stem == name), ""))


def _given() -> Any:
    try:
        return json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"expected JSON on standard input: {error}") from None
