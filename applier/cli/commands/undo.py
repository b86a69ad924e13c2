"""`compactor undo`: the whole history again, out of the store, with what was said since."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from applier.adapters.transcripts import write_transcript
from applier.cli.files import read_file, write_whole
from applier.cli.options import OutputFile, as_json, store_option
from applier.cli.screen import echo, print_json
from applier.cli.stores import existing_store
from applier.store.protocol import Store
from applier.store.secrets import redact_texts
from applier.view import preview
from planner.errors import ReferenceNotFound, StalePlan
from planner.layout import joined_messages
from planner.reading.messages import Message, blocks, message_digest

__all__ = ["command"]

_NOTE = re.compile(r'<compacted history="(h[0-9a-f]{8,64})"')


@click.command
@click.argument("view", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", metavar="FILE", required=True, type=OutputFile())
@store_option
@as_json
def command(view: Path, output: Path, store: str | None, as_json: bool) -> None:
    """Write the whole history behind a view again.

    VIEW is a transcript that `compactor apply` wrote; the agent may have gone on with it. FILE gets the originals
    and, behind them, what was added to VIEW since.
    """
    read = read_file(view)
    key = _key(read.messages, view)
    with existing_store(store) as opened:
        originals = list(opened.load_history(key).messages)
        added = _added(opened, key, read.messages, view)
        write_whole(output, write_transcript([*originals, *added], read))
        opened.record_event({"time": time.time(), "kind": "undo", "history": key, "message": f"{key} to {output}"})
    if as_json:
        print_json({"history": key, "originals": len(originals), "added": len(added), "output": str(output)})
        return
    echo(f"{len(originals)} original messages and {len(added)} added since are in {output}")


def _key(messages: Sequence[Message], view: Path) -> str:
    for message in messages:
        for block in blocks(message):
            found = _NOTE.search(str(block.get("text", ""))) if block["type"] == "text" else None
            if found:
                return found[1]
    raise ReferenceNotFound(f"{view}: holds no compacted part: nothing to undo")


def _added(store: Store, key: str, messages: Sequence[Message], view: Path) -> list[Any]:
    """The messages behind the view, by the newest plan whose view `messages` begin with.

    A stored plan has no secrets, so views are compared without them. And neighbours of one role as one message, for
    OpenAI's form has results and the words beside them one by one.
    """
    history = store.load_history(key)
    ends = [at for at in range(1, len(messages)) if messages[at]["role"] != messages[at - 1]["role"]] + [len(messages)]
    given, joined = _digests(messages), _digests(joined_messages((), messages))
    for plan_id in reversed(store.plans(key)):
        shown = preview(store.load_plan(plan_id), history.messages).messages
        rendered = _digests(shown)
        if given[: len(rendered)] == rendered:
            return list(messages[len(rendered) :])
        rendered = _digests(joined_messages((), shown))
        if joined[: len(rendered)] == rendered and len(joined) == len(ends):
            return list(messages[ends[len(rendered) - 1] :])
    raise StalePlan(f"{view}: what stands in place of {key} was edited since: `compactor restore {key}:t1` still works")


def _digests(messages: Sequence[Message]) -> list[str]:
    return [message_digest(redact_texts(message)) for message in messages]
