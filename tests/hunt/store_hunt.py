"""Hunts for a broken promise of the store: random damage to its file, and writers killed in the middle of a save."""

import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.store.damage import Damage, check_damage, sound_store
from tests.store.worker import kill_once

KINDS = "over", "flipped", "taken out", "cut"
DAMAGES_A_KILL = 10


def run(seconds, seed):
    """Damage and kill for `seconds`, as `seed` says; how many of each, and how many reads were refused.

    Raises AssertionError, with the seed and the round, at the first broken promise.
    """
    counts = Counter()
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        sound = sound_store(Path(folder, "sound.db"))
        while time.monotonic() < deadline:
            number = counts["damages"]
            chance = random.Random(f"{seed}:{number}")
            try:
                counts["refused reads"] += check_damage(sound, random_damage(chance), Path(folder, "damaged.db"))
                counts["damages"] += 1
                if number % DAMAGES_A_KILL == 0:
                    kill_once(str(Path(folder, f"killed{number % 100}.db")), number, chance.randrange(12))
                    counts["kills"] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, round {number}: {error!r}") from error
    return dict(counts)


def random_damage(chance):
    noise = chance.choice([chance.randbytes(chance.randint(1, 64)), b"\0" * 512, b"\xff" * 8, b"text", b"\1"])
    return Damage(chance.choice(KINDS), chance.random(), noise)


if __name__ == "__main__":
    import sys

    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    print(f"seed {chosen}:", run(float(sys.argv[1]), chosen))
