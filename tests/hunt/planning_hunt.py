"""Hunts for a broken law of planning: random lists of every block type; planners, plans and answers that mean harm."""

import gc
import tempfile
from collections import Counter
from pathlib import Path

from applier.store import open_store
from tests.hunt.odd_histories import odd_history
from tests.hunt.planning_checks import check_planning
from tests.hunt.tiny_histories import tiny_history

ODD_EVERY, TWICE_EVERY, RESTORED_EVERY = 1_000, 64, 64
"""Of so many lists one is long and odd; of so many one is planned twice, read from its JSON, guarded again; of so many
one is applied to a store and restored."""
STORED = 2_000
"""A store holds about this many histories before a new one is opened."""
COLLECTED_EVERY = 200_000
"""So many new objects until the collector looks for cycles: by default every 700, for a tenth of the time."""


def rounds(seed):
    """What one list after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one list, at the first broken law.
    """
    gc.freeze()
    gc.set_threshold(COLLECTED_EVERY)
    number = 0
    while True:
        with tempfile.TemporaryDirectory(dir=memory()) as folder, open_store(Path(folder, "store.db")) as store:
            for _ in range(STORED * RESTORED_EVERY):
                yield check_one(f"{seed}:{number}", number, store)
                number += 1


def memory():
    """A folder in memory where there is one: a store on a disk waits for it at every commit."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def check_one(seed, number, store=None):
    """One list, by its own seed; of a find the seed is in the error."""
    odd = number % ODD_EVERY == 0
    try:
        drawn = odd_history(seed) if odd else tiny_history(seed)
        outcome = check_planning(
            drawn, seed, store if number % RESTORED_EVERY == 0 else None, twice=number % TWICE_EVERY == 0
        )
    except Exception as error:
        raise AssertionError(f"planning_hunt.check_one({seed!r}, {number}): {error!r}") from error
    hostile = sum(name in ("liar", "answer", "edited", "refused answers") for name in outcome)
    return Counter({"histories": 1, "hostile plans": hostile}) + Counter(outcome)
