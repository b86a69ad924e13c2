"""A store that holds something of everything, damage to its file, and what must be true of it then."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from applier.store import open_store
from planner.errors import StoreError
from planner.plan import CompactionPlan, ExtractedFact, HistoryStamp, Provenance
from planner.reading.messages import read_history
from tests.strategies import make_session

HISTORY = read_history(make_session(12))
STATE = {"key": "h", "head": ["a", 1, None]}


def fact(content, source="t1", **more):
    return ExtractedFact(type="constraint", content=content, source=source, **more)


def plan_for(history, task="fix it"):
    return CompactionPlan(
        task=task,
        history=HistoryStamp.of(history, 1000),
        target_tokens=100,
        turns=(),
        estimated_tokens=0,
        provenance=Provenance(planner="rules"),
    )


def fill(store):
    """Something in every table."""
    key = store.save_history(HISTORY)
    store.save_plan(plan_for(HISTORY))
    store.save_facts([fact("Node 18+")], key)
    store.record_event({"time": 1.0, "session": "s"})
    store.set_state("s", STATE)


def sound_store(path):
    """The path of a filled store's file, closed."""
    with open_store(path) as store:
        fill(store)
    return path


PAGE = 4_096
"""Bytes that SQLite reads and writes together."""


@dataclass(frozen=True)
class Damage:
    """Noise written over a part of a file, bytes taken out of it, its end cut off, or a page where another belongs."""

    kind: str
    place: float
    """From 0, the file's start, to 1, its end."""
    noise: bytes

    def applied(self, whole):
        start = min(int(self.place * len(whole)), len(whole) - 1)
        stop = start + len(self.noise)
        if self.kind == "cut":
            return whole[:start]
        if self.kind == "taken out":
            return whole[:start] + whole[stop:]
        if self.kind == "misplaced":
            start, other = start // PAGE * PAGE, self.noise[0] * PAGE % len(whole)
            return whole[:start] + whole[other : other + PAGE] + whole[start + PAGE :]
        if self.kind == "flipped":
            return (
                whole[:start]
                + bytes(byte ^ 1 << self.noise[0] % 8 for byte in whole[start : start + 1])
                + whole[start + 1 :]
            )
        return (whole[:start] + self.noise + whole[stop:])[: len(whole)]


noises = st.one_of(st.binary(min_size=1, max_size=64), st.sampled_from([b"\0" * 512, b"\xff" * 8, b"text", b"\1"]))
damages = st.builds(
    Damage, st.sampled_from(["over", "over", "flipped", "taken out", "cut", "misplaced"]), st.floats(0, 1), noises
)


def check_damage(sound, damage, path, damaged=""):
    """What is read from a damaged copy of `sound` is what was stored, or a StoreError; nothing else ever.

    `damaged` is the ending of the file that is: none, or ``-wal`` for the log of a store that was not closed.
    """
    for ending in ("", "-wal"):
        if (original := Path(f"{sound}{ending}")).exists():
            whole = original.read_bytes()
            Path(f"{path}{ending}").write_bytes(damage.applied(whole) if ending == damaged else whole)
    try:
        return read_all(path)
    finally:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)


def same_turn(store, turn):
    return exact(store.restore(f"{HISTORY.digest}:{turn.id}").messages) == exact(HISTORY.messages_of(turn))


def same_after_saving(store):
    other = read_history(make_session(3))
    return exact(store.load_history(store.save_history(other)).messages) == exact(other.messages)


def forgotten(store):
    store.forget(HISTORY.digest)
    return HISTORY.digest not in [history.digest for history in store.histories()]


def exact(messages):
    return json.dumps(list(messages))


READS = (
    lambda store: isinstance(store.verify(), list),
    lambda store: store.size().messages >= 0,
    lambda store: all(history.key for history in store.histories()),
    lambda store: exact(store.load_history(HISTORY.digest).messages) == exact(HISTORY.messages),
    lambda store: {match.turn_id for match in store.search("refresh", HISTORY.digest).matches} <= set(HISTORY.by_id),
    lambda store: [fact.content for fact in store.facts(HISTORY.digest)] in (["Node 18+"], []),
    lambda store: all(store.load_plan(name) == plan_for(HISTORY) for name in store.plans(HISTORY.digest)),
    lambda store: store.events() in (({"time": 1.0, "session": "s"},), ()),
    lambda store: store.get_state("s") in (STATE, None),
    lambda store: exact(store.restore("t1").messages) == exact(HISTORY.messages_of(HISTORY.turns[0])),
)
"""Each True if what comes back was stored; a row that is missing from a damaged table is not noticed there."""


def read_all(path):
    """Read everything in every way; how many reads were refused."""
    reads = [*READS, *(partial(same_turn, turn=turn) for turn in HISTORY.turns), same_after_saving, forgotten]
    refused = 0
    try:
        store = open_store(path)
    except StoreError:
        return len(reads)
    try:
        for read in reads:
            try:
                assert read(store)
            except StoreError:
                refused += 1
    finally:
        store.close()
    return refused
