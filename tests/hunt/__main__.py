"""Runs every ``*_hunt.py`` of this folder, one after the other: ``python -m tests.hunt --seconds 600 --seed 7``.

Prints the seed first, and of each hunt what it counted or the first broken law; exit code 1 if there was any.
"""

import argparse
import secrets
import sys
from importlib import import_module
from pathlib import Path


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
    try:
        counts = import_module(f"tests.hunt.{name}").run(seconds, seed)
    except AssertionError as found:
        print(f"{name}: BROKEN: {found}", flush=True)
        return False
    print(f"{name}: {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
