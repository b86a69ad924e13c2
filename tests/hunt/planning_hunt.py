"""Hunts for a broken law of planning: random lists of every block type, planners and plans that do not mean well."""

import tempfile
import time
from collections import Counter
from pathlib import Path

from applier.store import open_store
from tests.hunt.odd_histories import odd_history
from tests.hunt.planning_checks import check_planning

RESTORED_SHARE = 20
"""Of so many histories one is applied to a store and restored; writing takes longer than planning."""
STORED = 2_000
"""A store holds about this many histories before a new one is opened."""


def run(seconds, seed):
    """Plan, guard, apply and restore for `seconds`, as `seed` says; how many histories, and what was said of them.

    Raises AssertionError, with the seed of the one history, at the first broken law.
    """
    counts = Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
            for _ in range(RESTORED_SHARE * STORED):
                if time.monotonic() >= deadline:
                    break
                check_one(
                    f"{seed}:{counts['histories']}",
                    store if counts["histories"] % RESTORED_SHARE == 0 else None,
                    counts,
                )
    return dict(counts)


def check_one(seed, store, counts):
    """One history, by its own seed."""
    try:
        outcome = check_planning(odd_history(seed), seed, store)
    except Exception as error:
        raise AssertionError(f"planning_hunt.check_one({seed!r}, None, Counter()): {error!r}") from error
    counts["histories"] += 1
    counts["hostile plans"] += "liar" in outcome or "edited" in outcome
    counts.update(outcome)
