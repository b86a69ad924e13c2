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

__all__ = ["draw", "held_out", "is_held_out", "session_of"]

LIST = Path(__file__).with_name("held_out.txt")
SEED = "held out"
SHARE = 0.5
"""Of the sessions without an exam so many are held out."""
LEAST_BYTES = 60_000
"""A smaller file holds some 15,000 tokens or less, which need no compaction."""
DIGEST_CHARACTERS = 16
_PIECE = re.compile(r"-s\d+$")
"""What tells the pieces of one session apart: ``NAME-s0``, ``NAME-s1``."""


def session_of(name: str) -> str:
    """The digest that stands for the session of the transcript called `name`."""
    return hashlib.sha256(_PIECE.sub("", name).encode()).hexdigest()[:DIGEST_CHARACTERS]


def is_held_out(name: str) -> bool:
    """True if nothing may be tuned on the transcript called `name`."""
    return session_of(name) in LIST.read_text("utf-8").split()


def held_out(paths: Iterable[Path]) -> list[Path]:
    """Those of `paths` that are held out."""
    return [path for path in paths if is_held_out(path.stem)]


def draw(names: Iterable[str], examined: Iterable[str]) -> list[str]:
    """The digests to hold out of the sessions of `names`: always the same for the same names, in any order."""
    known = sorted({session_of(name) for name in names} - {session_of(name) for name in examined})
    return sorted(random.Random(SEED).sample(known, round(SHARE * len(known))))


def main() -> None:
    """Print the transcripts of a folder that are held out, or what a draw from them would be."""
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
