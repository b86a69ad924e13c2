"""The transcripts that nothing is tuned on: ``python -m tests.bench.held_out FOLDER [--draw EXAMS]`` lists them.

`held_out.txt` holds them by the digest of their session's name, for names of sessions lead to the people who worked in
them. It was drawn once by `--draw`, which takes whole sessions that are worth an exam and of which no piece has one,
and is not drawn again.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from collections.abc import Iterable
from pathlib import Path

from applier.adapters.transcripts import transcript_files

LIST = Path(__file__).with_name("held_out.txt")
SEED = "held out"
SHARE = 0.5
"""Share of the sessions without an exam that is held out."""
LEAST_BYTES = 60_000
"""Smallest file; a smaller one needs no compaction."""
DIGEST_CHARACTERS = 16
_PIECE = re.compile(r"-s\d+$")
"""Suffix of one piece of a session: ``NAME-s0``, ``NAME-s1``."""


def session_of(name: str) -> str:
    """Return the digest of the session of the transcript `name`."""
    return hashlib.sha256(_PIECE.sub("", name).encode()).hexdigest()[:DIGEST_CHARACTERS]


def is_held_out(name: str) -> bool:
    """Return True if the transcript `name` is held out."""
    return session_of(name) in LIST.read_text("utf-8").split()


def held_out(paths: Iterable[Path]) -> list[Path]:
    """Return the held-out ones of `paths`."""
    return [path for path in paths if is_held_out(path.stem)]


def draw(names: Iterable[str], examined: Iterable[str]) -> list[str]:
    """Return the digests to hold out, always the same for the same names."""
    known = sorted({session_of(name) for name in names} - {session_of(name) for name in examined})
    return sorted(random.Random(SEED).sample(known, round(SHARE * len(known))))


def main() -> None:
    """Print the held-out transcripts of a folder, or the result of a draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--draw", type=Path, help="a folder of exams: print the digests that are drawn without them")
    options = parser.parse_args()
    paths = transcript_files(options.places)
    if options.draw:
        large = [path.stem for path in paths if path.stat().st_size >= LEAST_BYTES]
        print(*draw(large, [path.stem for path in options.draw.glob("*.json")]), sep="\n")
    else:
        print(*held_out(paths), sep="\n")


if __name__ == "__main__":
    main()
