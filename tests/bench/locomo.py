"""How often the ten best turns of a search hold the evidence for a question: ``python -m tests.bench.locomo FILE``.

FILE is ``data/locomo10.zip`` of snap-research/locomo (CC BY-NC 4.0: to measure with, never to ship): ten conversations
of two people with questions, and for each the messages that hold its answer. Each message becomes one turn, each
question is searched for as it stands. ``--store postgresql://…`` measures there; it forgets what it saved.
"""

import argparse
import json
import re
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

from applier.store import open_store
from planner.reading.messages import read_history

SESSION = re.compile(r"session_\d+")
CATEGORIES = {1: "several turns", 2: "time", 3: "inference", 4: "one turn"}
"""Categories of questions; the fifth asks for facts that nobody mentioned."""
BEST = 10


def messages_of(conversation):
    """Return the messages with their senders, and their ids."""
    said = [message for key, value in conversation.items() if SESSION.fullmatch(key) for message in value]
    roles = {conversation["speaker_a"]: "user", conversation["speaker_b"]: "assistant"}
    texts = ((roles[message["speaker"]], f"{message['speaker']}: {message['text']}") for message in said)
    return [{"role": role, "content": text} for role, text in texts], [message["dia_id"] for message in said]


def questions_of(conversation, ids):
    """Return each question with its category and its evidence."""
    for question in conversation["qa"]:
        evidence = set(question["evidence"]).intersection(ids)
        if question["category"] in CATEGORIES and evidence:
            yield question["question"], question["category"], evidence


def measure(store, conversation):
    """Return hits, questions and seconds by category."""
    messages, ids = messages_of(conversation)
    history = read_history(messages)
    names = {turn.id: set(ids[turn.start : turn.stop]) for turn in history.turns}
    key = store.save_history(history)
    hits, asked, seconds = Counter(), Counter(), Counter()
    for question, category, evidence in questions_of(conversation, ids):
        start = time.perf_counter()
        matches = store.search(question, key, limit=BEST).matches
        seconds[category] += time.perf_counter() - start
        asked[category] += 1
        hits[category] += any(names[match.turn_id] & evidence for match in matches)
    store.forget(key)
    return hits, asked, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--store", help="a path or a postgresql:// address; without it a file that is removed")
    options = parser.parse_args()
    hits, asked, seconds = Counter(), Counter(), Counter()
    with (
        zipfile.ZipFile(options.file) as archive,
        tempfile.TemporaryDirectory() as folder,
        open_store(options.store or f"{folder}/store.db") as store,
    ):
        for name in sorted(name for name in archive.namelist() if name.endswith(".json")):
            counts = measure(store, json.loads(archive.read(name)))
            for total, some in zip((hits, asked, seconds), counts, strict=True):
                total.update(some)
    for category, label in CATEGORIES.items():
        print(f"{label:14} {asked[category]:5} questions  hit at {BEST} {hits[category] / max(1, asked[category]):.3f}")
    share, each = hits.total() / asked.total(), seconds.total() / asked.total()
    print(f"{'all':14} {asked.total():5} questions  hit at {BEST} {share:.3f}  {1000 * each:.0f} ms a search")


if __name__ == "__main__":
    main()
