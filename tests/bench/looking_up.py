"""Readings with look-ups: a reader of a round's view asks the record behind it, as the agent would, by commands.

``python -m tests.bench exams … --write-views ROUND --look-ups`` writes ``views/ID.lookups.txt`` and the records;
``python -m tests.bench look-up ROUND ID search_context text="token refresh"`` is one call of an agent's tool. Each is
noted with the tokens that came back, so that nobody counts them by hand. Asks no model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from applier.adapters.agent_tools import LOOK_UP_TOOLS, answer_call
from applier.adapters.visible import Visible
from applier.eval.evaluation import ExamSample
from applier.eval.survival import text_tokens
from applier.store import open_store
from planner.errors import CompactorError
from planner.reading.messages import read_history

MOST_CALLS, MOST_TOKENS = 5, 1_500
"""Most calls and tokens that a session's questions should take; more is reported."""
_TOOLS = """
Where it does not say, you may look into the record that it was made of, by these commands, run in {here}:

python -m tests.bench look-up {folder} {view_id} search_context text="a text or several words" limit=1
python -m tests.bench look-up {folder} {view_id} restore_context reference=t12 search="words"
python -m tests.bench look-up {folder} {view_id} restore_context reference=t12 first_line=5 last_line=9

All questions together should take at most {calls} look-ups and {tokens} tokens of what they give back: begin with those
that the record above names an id for, ask for words or lines and not for whole turns, and stop when it is used up.

Write answers/{view_id}.lookups.json instead: {{"answers": {{"1": "…", "2": "…", …}}}}
"""


def write_record(sample: ExamSample, folder: Path) -> None:
    """Store the history of `sample` in the round at `folder`, once."""
    path = _record(folder, sample.exam.transcript)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_store(path) as store:
            store.save_history(read_history(sample.messages))


def _record(folder: Path, transcript: str) -> Path:
    return folder / "records" / f"{transcript}.db"


def reader_text(closed_book: str, folder: Path, view_id: str) -> str:
    """Return the text for a reader with look-ups, made from that of one without."""
    told = closed_book.replace("look nothing up, and guess nothing", "and guess nothing")
    return told + _TOOLS.format(
        here=Path.cwd(), folder=folder.resolve(), view_id=view_id, calls=MOST_CALLS, tokens=f"{MOST_TOKENS:,}"
    )


def look_up(folder: Path, view_id: str, tool: str, arguments: Sequence[str]) -> str:
    """Return the answer of `tool` to `arguments` of the form ``name=value``, noted in the round at `folder`."""
    transcript = json.loads((folder / "sheets" / f"{view_id}.json").read_text("utf-8"))["transcript"]
    with open_store(_record(folder, transcript)) as store:
        record = Visible(lambda: store, history=store.histories()[0].key)
        try:
            answer = answer_call(record, tool, dict(one.split("=", 1) for one in arguments))
        except CompactorError as error:
            answer = str(error)
    text = answer if isinstance(answer, str) else "\n".join(str(block.get("text", "[image]")) for block in answer)
    notes = _notes(folder, view_id)
    notes.parent.mkdir(exist_ok=True)
    with notes.open("a", encoding="utf-8") as file:
        note = {"tool": tool, "arguments": [*arguments], "tokens": text_tokens(text)}
        file.write(json.dumps(note, ensure_ascii=False) + "\n")
    calls, tokens = looked_up(folder, view_id) or (0, 0)
    return f"{text}\n[look-up {calls} of {MOST_CALLS}, {tokens:,} of {MOST_TOKENS:,} tokens]"


def _notes(folder: Path, view_id: str) -> Path:
    return folder / "look_ups" / f"{view_id}.jsonl"


def looked_up(folder: Path, view_id: str) -> tuple[int, int] | None:
    """Return the number of look-ups for a view, and their tokens; None if there were none."""
    path = _notes(folder, view_id)
    notes = list(_read(path)) if path.exists() else []
    return (len(notes), sum(note["tokens"] for note in notes)) if notes else None


def _read(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text("utf-8").splitlines())


def add_command(commands: Any) -> None:
    """Add the command ``look-up``."""
    asked = commands.add_parser("look-up", help="what an agent's look-up gives a reader of a round")
    asked.add_argument("folder", type=Path)
    asked.add_argument("view", help="ID of the view")
    asked.add_argument("tool", choices=sorted(LOOK_UP_TOOLS))
    asked.add_argument("arguments", nargs="+", help='name=value, as text="token refresh"')
    asked.set_defaults(run=_look_up)


def _look_up(console: Console, options: argparse.Namespace) -> None:
    text = look_up(options.folder, options.view, options.tool, options.arguments)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
