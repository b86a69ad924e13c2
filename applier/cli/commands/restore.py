"""`compactor restore` and `undo`: bring original content back, turn by turn or as a whole transcript."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from applier.adapters.transcripts import write_transcript
from applier.cli import options
from applier.cli.files import read_file, write_whole
from applier.cli.screen import echo, print_data, print_json, screen
from applier.store.store import Store
from applier.store.views import holds_view, originals_behind
from planner.errors import ReferenceNotFound, StalePlan

__all__ = ["restore_command", "undo_command"]


def _line_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    with suppress(ValueError):
        if 1 <= int(first) <= int(last or first):
            return int(first), int(last or first)
    raise click.BadParameter(f"{text[:40]!r}: expected lines like 3-9 or 3, counted from 1.")


@click.command
@click.argument("references", metavar="REF", callback=lambda *given: _references(given[-1]))
@click.option("--lines", type=_line_range, metavar="FIRST-LAST", help="Only these lines, first and last included.")
@click.option(
    "--search", metavar="TEXT", help="Only lines that contain TEXT, match it as a pattern, or contain its words."
)
@options.with_store
@options.as_json
def restore_command(
    references: Iterator[str], lines: tuple[int, int] | None, search: str | None, store: Store, as_json: bool
) -> None:
    """Print the exact original of a reference.

    REF is KEY:t12, or t12 if the store has one conversation; t12-t14,t20 are several turns, each after its reference.
    Lines are counted as in a plan's excerpts and in a search.
    """
    each = [store.restore(one, lines=lines, search=search) for one in references]
    if as_json:
        fields = ("reference", "messages", "text", "lines", "total_lines")
        values = [{name: getattr(restored, name) for name in fields} for restored in each]
        print_json(values if len(values) > 1 else values[0])
        return
    media = [block["type"] for restored in each for block in restored.blocks if block["type"] != "text"]
    if media:
        echo(f"compactor: note: not text, only with --json: {', '.join(media)}", err=True)
    text = "".join(f"{one.reference}\n{one.text}\n" if len(each) > 1 else f"{one.text}\n" for one in each)
    if screen().is_terminal:
        echo(text, nl=False)
    else:
        print_data(text)


def _references(text: str) -> Iterator[str]:
    """Yield each turn in the list `text`, with its history; `text` itself if it is no list of turns."""
    history, colon, turns = text.rpartition(":")
    ranges = options.turn_ranges(turns)
    numbers = (number for first, last in ranges for number in range(first, last + 1))
    return (f"{history}{colon}t{number}" for number in numbers) if ranges else iter([text])


@click.command
@click.argument("view", type=options.EXISTING_FILE)
@options.output_option(required=True)
@options.store_option
@options.as_json
def undo_command(view: Path, output: Path, store: str | None, as_json: bool) -> None:
    """Write the whole history of a view again.

    VIEW is a transcript that `compactor apply` wrote; the agent may have continued it. FILE gets the originals,
    followed by the messages that were added to VIEW.
    """
    options.check_output(output, view=view)
    read = read_file(view)
    if not holds_view(read.messages):
        raise ReferenceNotFound(f"{view}: contains no compacted part, so there is nothing to undo")
    with options.existing_store(store) as opened:
        earlier = originals_behind(opened, read.messages)
        if earlier is None:
            cause = "the compacted part was edited, or its originals are in another store or were forgotten"
            raise StalePlan(f"{view}: {cause}: name the store with --store, or use `compactor restore`")
        key, originals = earlier.key, len(opened.load_history(earlier.key).messages)
        write_whole(output, write_transcript(earlier.messages, read))
        opened.record_event({"time": time.time(), "kind": "undo", "history": key, "message": f"{key} to {output}"})
    added = len(earlier.messages) - originals
    if as_json:
        print_json({"history": key, "originals": originals, "added": added, "output": str(output)})
    else:
        echo(f"Wrote {originals} original messages and {added} added later to {output}")
