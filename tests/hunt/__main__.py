"""Runs every ``*_hunt.py`` of this folder, one after the other: ``python -m tests.hunt --seconds 600 --seed 7``.

Prints the seed first, each minute what was counted so far, and of each hunt the counts or the first broken law; exit
code 1 if there was any.
"""

import argparse
import secrets
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

TOLD_EVERY_SECONDS = 60


def main():
    parser = argparse.ArgumentParser(prog="tests.hunt", description="random attacks on every law, for a given time")
    parser.add_argument("--seconds", type=float, default=600, help="for all hunts together")
    parser.add_argument("--seed", type=int, default=None, help="what an earlier run printed")
    parser.add_argument("--only", default="", help="run the hunts whose names begin so")
    asked = parser.parse_args()
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    names = [path.stem for path in sorted(Path(__file__).parent.glob(f"{asked.only}*_hunt.py"))]
    print(f"--seed {seed}: {', '.join(names)}", flush=True)
    broken = [name for name in names if not holds(name, asked.seconds / len(names), seed)]
    return int(bool(broken))


def holds(name, seconds, seed):
    """Run one hunt and print what came of it; True if nothing was found."""
    counts = Counter()
    start = told = time.monotonic()
    try:
        for round_counts in import_module(f"tests.hunt.{name}").rounds(seed):
            counts.update(round_counts)
            now = time.monotonic()
            if now - told >= TOLD_EVERY_SECONDS:
                told = now
                print(f"{name}, {now - start:.0f} s: {spelled(counts)}", flush=True)
            if now - start >= seconds:
                break
    except AssertionError as error:
        print(f"{name}: BROKEN after {spelled(counts)}: {error}", flush=True)
        return False
    print(f"{name}: {spelled(counts)}", flush=True)
    return True


def spelled(counts):
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
