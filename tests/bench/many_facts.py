"""``python -m tests.bench facts STORE --count 1000000``: facts in a large store.

Makes facts of the words of transcripts, 500 a conversation, in two hundred projects, and saves the last 2,000 by
`save_facts`; those before are stored in the same form, without the search for secrets, and the index once.
Then asks for one to three words: of the whole store and of one project, and in new processes; and saves the
transcripts themselves, for their size. STORE is a file or a postgresql:// address, which is filled further, or
``postgresql`` for a server of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.progress import track

from applier.store import Store, open_store
from applier.store.listing import known_facts
from applier.store.records import encode, find_history, marks_of_new_facts, next_order, pack
from applier.store.search import FactIndex
from planner.plan import ExtractedFact, FactType
from planner.reading.messages import read_history
from tests.postgres_server import PostgresServer

FACTS_A_CONVERSATION, PROJECTS, SAVED = 500, 200, 2_000
QUESTIONS = 60


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``facts``."""
    parser = commands.add_parser("facts", help="saving and finding facts in a large store")
    parser.add_argument("store", help="a file, a postgresql:// address, or postgresql")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--words", type=Path, required=True, help="a folder of transcripts whose words are used")
    parser.add_argument("--ask", action="store_true", help="ask once and say how long it took")
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    words = [
        word
        for path in sorted(options.words.glob("*.json"))[:20]
        for word in re.findall(r"[\w./-]{2,30}", path.read_text("utf-8")[:300_000])
    ]
    asked = _questions(words)
    with ExitStack() as stack:
        if options.store == "postgresql":
            options.store = stack.enter_context(PostgresServer()).url
        with open_store(options.store) as store:
            if options.ask:
                print(_taken([partial(known_facts, store, words=next(asked))]))
                return
            _fill(console, store, options.count, words)
            console.print(f"the first question after that: {_taken([partial(known_facts, store, words=next(asked))])}")
            for name, project in (("all", ""), ("one project", "/code/p7")):
                ask = [partial(known_facts, store, words=next(asked), project=project) for _ in range(QUESTIONS)]
                console.print(f"{name}: {_taken(ask)}")
            _save_transcripts(console, store, options.words)
        command = [sys.executable, "-m", "tests.bench", "facts", options.store, "--words", str(options.words), "--ask"]
        ran = [subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ) for _ in range(3)]
        console.print("".join(f"in a new process: {one.stdout}" for one in ran))


def _fill(console: Console, store: Store, count: int, words: list[str]) -> None:
    """Fill the store up to `count` facts."""
    with store.backend.transaction():
        first = len(store.backend.keys("history/"))
    last, raw, before = count // FACTS_A_CONVERSATION, 0, store.size().file_bytes
    for number in track(range(first, last - SAVED // FACTS_A_CONVERSATION), "filling", console=console):
        raw += _put_in(store, *_made(store, number, words))
    FactIndex(store.backend).refresh()
    for number in range(max(first, last - SAVED // FACTS_A_CONVERSATION), last):
        key, facts = _made(store, number, words)
        console.print(f"saved {len(facts):,} facts: {_taken([partial(store.save_facts, facts, key)])}")
    grown = store.size().file_bytes - before
    console.print(f"{raw / 1e6:.1f} MB of facts' words take {grown / 1e6:.1f} MB on disk")


def _save_transcripts(console: Console, store: Store, folder: Path) -> None:
    """Save the originals of the transcripts in `folder`, and print their size."""
    before, raw, paths = store.size().file_bytes, 0, sorted(folder.glob("*.json"))
    for path in paths:
        read = json.loads(path.read_bytes())
        store.save_history(read_history(read if isinstance(read, list) else read["messages"]))
        raw += path.stat().st_size
    after = store.size().file_bytes
    took = f"{raw / 1e6:.1f} MB take {(after - before) / 1e6:.1f} MB on disk"
    console.print(f"{len(paths)} transcripts of {took}; all of it {after / 1e6:,.1f} MB")


def _questions(words: list[str]) -> Iterator[str]:
    chance, long = random.Random(7), [word for word in words if len(word) > 3]
    while True:
        yield " ".join(chance.sample(long, chance.randint(1, 3)))


def _made(store: Store, number: int, words: list[str]) -> tuple[str, list[ExtractedFact]]:
    """Return a stored conversation, and its facts, which are not stored."""
    chance, kinds, at = random.Random(number), get_args(FactType), 1_790_000_000.0 + number
    starts = [chance.randrange(len(words) - 24) for _ in range(FACTS_A_CONVERSATION)]
    texts = [" ".join(words[start : start + chance.randint(8, 24)]) for start in starts]
    key = store.save_history(read_history([{"role": "user", "content": f"Work on number {number}, please."}]))
    store.note_origin(key, f"/code/p{number % PROJECTS}", at)
    return key, [
        ExtractedFact(type=kinds[nth % len(kinds)], content=text, source="t1", timestamp=at)
        for nth, text in enumerate(texts)
    ]


def _put_in(store: Store, key: str, facts: list[ExtractedFact]) -> int:
    """Store `facts` as `save_facts` does, and return their characters."""
    with store.backend.transaction(write=True):
        history = find_history(store.backend, key)
        first = int(next_order(store.backend, len(facts)))
        contents = [encode(fact.model_dump(mode="json"), "fact") for fact in facts]
        place = f"fact/{history.groups[-1]}/{history.prefix}"
        new = {f"{place}/{order:012}": pack(content) for order, content in enumerate(contents, first)}
        store.backend.add({**new, **marks_of_new_facts(new)})
    return sum(len(fact.content) for fact in facts)


def _taken(works: Sequence[Callable[[], object]]) -> str:
    """Return the seconds by the clock and by the processor: half of them, and one in a hundred."""
    taken = []
    for work in works:
        began = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    clock, processor = (sorted(one) for one in zip(*taken, strict=True))
    half, most = len(works) // 2, min(len(works) - 1, int(len(works) * 0.99))
    shown = [f"{name} {clock[at]:.2f} s ({processor[at]:.2f} s)" for name, at in (("p50", half), ("p99", most))]
    return ", ".join(shown[: 1 + (len(works) > 1)]) + " by the clock (by the processor)"
