"""Hunts for a broken promise of the store: random damage to its file, and writers killed in the middle of a save."""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from applier.store import open_store
from planner.reading.messages import read_history
from tests.hunt.planning_hunt import memory
from tests.store.damage import Damage, check_damage, fill, sound_store
from tests.store.worker import grown, spawn

KINDS = "over", "flipped", "taken out", "cut", "misplaced"
DAMAGES_A_KILL = 10
VERIFIED_EVERY = 10
"""Of so many kills one is followed by a look at the whole store; after the others what was said to be saved is read."""
KILLS_A_STORE = 100
FORGOTTEN_EVERY = 3
"""Of so many conversations that a writer saves it forgets one again."""


def rounds(seed):
    """What one damage or kill after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed and the round, at the first broken promise.
    """
    number = 0
    while True:
        with tempfile.TemporaryDirectory(dir=memory()) as name, open_store(Path(name, "open.db")) as store:
            folder = Path(name)
            fill(store)
            sound_store(folder / "closed.db")
            for _ in range(KILLS_A_STORE):
                try:
                    yield kill_once(folder, f"{seed}:{number}", number)
                    for _ in range(DAMAGES_A_KILL):
                        number += 1
                        yield damage_once(folder, f"{seed}:{number}")
                except Exception as error:
                    raise AssertionError(f"store_hunt, seed {seed}, round {number}: {error!r}") from error


def damage_once(folder, seed):
    """Damage a copy of a closed store's file, or of the log of an open one, and read it in every way."""
    chance = random.Random(seed)
    noise = chance.choice([chance.randbytes(chance.randint(1, 64)), b"\0" * 512, b"\xff" * 8, b"text", b"\1"])
    damage = Damage(chance.choice(KINDS), chance.random(), noise)
    name, damaged = chance.choice((("closed.db", ""), ("closed.db", ""), ("open.db", "-wal")))
    refused = check_damage(folder / name, damage, folder / "damaged.db", damaged)
    return Counter({"damages": 1, "refused reads": refused})


def kill_once(folder, seed, number):
    """Kill a writer while it makes a store, or soon after its first save: what it said it did is done, the rest is
    done or not, and nothing is half done."""
    chance = random.Random(seed)
    path, awaited = (folder / "killed.db", 1 + chance.randrange(6)) if chance.random() < 0.7 else (folder / "new.db", 0)
    reading, writing = os.pipe()
    child = spawn(lambda: write(path, seed, writing))
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        lines = [pipe.readline() for _ in range(awaited)]
        time.sleep(chance.random() * (0.002 if awaited else 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.read().splitlines()
    with open_store(path) as store:
        check_done([line.split() for line in lines], store)
        if number // DAMAGES_A_KILL % VERIFIED_EVERY == 0:
            check_whole(store)
        store.save_history(read_history([{"role": "user", "content": f"after {seed}"}]))
    if not awaited:
        path.unlink()
    return Counter({"kills": 1, "saved before": len(lines)})


def write(path, seed, pipe):
    """Save and forget without end, and say so: ``saved KEY LENGTH``, ``forgetting KEY 4``, ``forgot KEY 4``."""
    with open_store(path) as store:
        for turn in range(1, 10**6):
            for history in grown(f"{seed}-{turn}", length=4):
                key = store.save_history(history)
                os.write(pipe, f"saved {key} {len(history.messages)} {turn}\n".encode())
            if turn % FORGOTTEN_EVERY == 0:
                os.write(pipe, f"forgetting {key} 4 {turn}\n".encode())
                store.forget(key)
                os.write(pipe, f"forgot {key} 4 {turn}\n".encode())


def check_done(lines, store):
    """What was said to be saved is there, and what was said to be forgotten is not; in between it may be either."""
    turns = {what: {turn for said, _, _, turn in lines if said == what} for what in ("forgetting", "forgot")}
    there = {stored.key for stored in store.histories()}
    for _, key, length, turn in lines:
        if turn in turns["forgot"]:
            assert key not in there, f"{key} was said to be forgotten"
        elif turn not in turns["forgetting"] or key in there:
            assert len(store.load_history(key).messages) == int(length), f"{key} was said to be saved"


def check_whole(store):
    assert store.verify() == []
    for stored in store.histories():
        assert store.load_history(stored.key).digest == stored.digest
