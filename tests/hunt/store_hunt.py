"""Hunts for a broken promise of the store: random damage to its file, and writers killed in the middle of a save."""

import os
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

from applier.store import open_store
from planner.reading.history import read_history
from tests.hunt.planning_hunt import memory
from tests.store.damage import Damage, check_damage, sound_store
from tests.store.worker import grown, spawn

KINDS = "over", "flipped", "taken out", "cut"
DAMAGES_A_KILL = 5
VERIFIED_EVERY = 10
"""Of so many kills one is followed by a look at the whole store; after the others what was said to be saved is read."""
KILLS_A_STORE = 100


def rounds(seed):
    """What one damage or kill after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed and the round, at the first broken promise.
    """
    number = 0
    while True:
        with tempfile.TemporaryDirectory(dir=memory()) as folder:
            sound = sound_store(Path(folder, "sound.db"))
            for _ in range(KILLS_A_STORE):
                try:
                    yield Counter(kills=kill_once(Path(folder, "killed.db"), f"{seed}:{number}", number))
                    for _ in range(DAMAGES_A_KILL):
                        number += 1
                        yield damage_once(sound, f"{seed}:{number}", Path(folder, "damaged.db"))
                except Exception as error:
                    raise AssertionError(f"store_hunt, seed {seed}, round {number}: {error!r}") from error


def damage_once(sound, seed, path):
    """Damage a copy of `sound` and read it in every way."""
    chance = random.Random(seed)
    noise = chance.choice([chance.randbytes(chance.randint(1, 64)), b"\0" * 512, b"\xff" * 8, b"text", b"\1"])
    damage = Damage(chance.choice(KINDS), chance.random(), noise)
    return Counter({"damages": 1, "refused reads": check_damage(sound, damage, path)})


def kill_once(path, seed, number):
    """Kill a writer soon after its first save: what it said it saved is there, the rest whole or absent."""
    chance = random.Random(seed)
    reading, writing = os.pipe()

    def save():
        with open_store(path) as store:
            for turn in range(10**6):
                for history in grown(f"{seed}-{turn}", length=4):
                    key = store.save_history(history)
                    os.write(writing, f"{key} {len(history.messages)}\n".encode())

    child = spawn(save)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        lines = [pipe.readline() for _ in range(1 + chance.randrange(4))]
        for _ in range(chance.randrange(20_000)):
            pass  # a moment that differs from kill to kill, shorter than a save
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.read().splitlines()
    with open_store(path) as store:
        for key, length in map(str.split, lines):
            assert len(store.load_history(key).messages) == int(length), f"{key} was said to be saved"
        if number // DAMAGES_A_KILL % VERIFIED_EVERY == 0:
            check_whole(store)
        store.save_history(read_history([{"role": "user", "content": f"after {seed}"}]))
    return 1


def check_whole(store):
    assert store.verify() == []
    for stored in store.histories():
        assert store.load_history(stored.key).digest == stored.digest
