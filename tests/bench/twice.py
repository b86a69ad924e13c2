"""What a view tells more than once: ``python -m tests.bench twice TRANSCRIPTS… --ratio .05 --ratio .1``.

A view is read as its reader meets it, in pieces: each statement of the brief, each fact, each frame of user words, each
entry's own lines (calls and their outcomes) and the lines it excerpts. A *specific* is read by `applier.eval.survival`,
apart from the planner: a path, URL, identifier, id or number of three digits or more, spelled the same. It stands twice
if it stands in two pieces; within one piece it may repeat, as code does. So does a *line* of 30 characters or more,
white space folded. Messages that stand whole and the live tail are not counted: they are what is pointed at. The count
`cited` is the narrower one: specifics that a statement or fact shares with an entry of a turn that it cites.

A name that stands twice need not be told twice: a function that two turns are about is named in both, a file by each
call that changed it, and of 2,700 names that stood again at a tenth of 51 transcripts six in seven stood on a line with
news. So `retold` counts the lines that say nothing else than one line of another piece, by their specifics and four
fifths of their words, and `told` the specifics on them: what a reader reads twice. The line of a call below which lines
stand says where they are from, and is none. The name of a call's tool and those of its arguments are the host's: they
say what kind of line it is, and count nowhere.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import read_transcript, transcript_files
from applier.eval.methods import RECORDED, FolderPlanner, methods_for
from applier.eval.survival import message_tokens, plain_text, specifics
from planner.reading.lines import one_line

Place = Literal["brief", "facts", "user words", "entry", "excerpts"]

LINE_CHARACTERS = 30
"""A shorter line (a brace, a heading) repeats without telling anything."""

NEWS_CHARACTERS, NEWS_SHARE = 8, 0.2
"""A line of fewer characters tells nothing; one tells news if more of its words than this do not stand on the other."""

_LETTERS = re.compile(r"[^\W\d_]{4,}|\d+")
_FRAME = re.compile(r"<compacted [^>]*>\n(.*?)</compacted>", re.S)
"""One note of a view."""
_HEADING = re.compile(r"(?:REQUEST|STATE|FAILED|DECISIONS|FACTS|NEXT)")
"""A line that opens a section of the brief."""
_ENTRY = re.compile(r"(?P<id>t\d+)(?: |$)")
"""The line that opens a turn's entry: ``t4 > Bash …``, ``t17 <user-words>…``; not ``test.py``."""
_CITED = re.compile(r"\bt\d+\b")
_WORDS = re.compile(r"<user-words>(.*?)</user-words>", re.S)
_OWN = re.compile(r"(?:✗ )?> |t\d+(?: |$)")
"""A line that the view itself writes of a turn: what was called, and how it ended."""
_HOSTS = re.compile(r"^(?:t\d+ )?(?:✗ )?> (\S+)|(?<=[ {,])\"?\w+(?:=|\": )", re.M)
"""What the host's tools bring into a line of a call: ``> exec_command``, ``path=``, ``"payment_id": ``."""
_MARK = re.compile(r"^(?:[|+=…>✗-] ?|t\d+ )")
"""What the view puts before a line: told twice is told twice with another mark, too."""


@dataclass(frozen=True)
class Piece:
    """A part of a view that says one thing."""

    place: Place
    turns: frozenset[str]
    """Ids of the turns it is of, or that it cites."""
    text: str
    heads: frozenset[str] = frozenset()
    """Lines of it that say where what stands below them is from."""


@dataclass(frozen=True)
class Repeats:
    """What stands in more than one piece of one view."""

    names: Counter[str]
    """In how many pieces each specific stands, those of two and more."""
    lines: Counter[str]
    places: Counter[tuple[str, str]]
    """Of repeated specifics: how many stand in both places, or twice in one."""
    cited: frozenset[str]
    """Those that a statement or fact shares with the entry of a turn that it cites."""
    retold: tuple[tuple[str, frozenset[str]], ...]
    """Lines that say nothing else than one of another piece, and what each names."""
    specifics: int
    """How many there are in all."""

    @property
    def again(self) -> int:
        """How often a specific is told after the first time."""
        return sum(self.names.values()) - len(self.names)

    @property
    def told(self) -> int:
        """How often a specific is told again on a line that says nothing else."""
        return sum(len(names) for _, names in self.retold)


def pieces_of(text: str) -> Iterator[Piece]:
    """The pieces of the notes in a view's `text`, in order."""
    for note in _FRAME.finditer(text):
        yield from _pieces(note[1])


def _pieces(note: str) -> Iterator[Piece]:
    heading, turn = "", ""
    own: list[str] = []
    for line in note.splitlines():
        opens = _ENTRY.match(line)
        if opens:
            yield from _entry(turn, own)
            turn, own = opens["id"], [line]
        elif turn:
            own.append(line)
        elif _HEADING.fullmatch(line):
            heading = line
        elif line.startswith("- "):
            yield Piece("facts" if heading == "FACTS" else "brief", frozenset(_CITED.findall(line)), line)
    yield from _entry(turn, own)


def _entry(turn: str, lines: Sequence[str]) -> Iterator[Piece]:
    """The user's words in one entry, what it says of the turn's calls, and what it excerpts."""
    text = "\n".join(lines)
    ids = frozenset({turn})
    for words in _WORDS.findall(text):
        yield Piece("user words", ids, words)
    rest = [line for line in _WORDS.sub("", text).splitlines() if line.strip() and line.strip() != turn]
    called = "\n".join(line for line in rest if _OWN.match(line))
    excerpts = "\n".join(line for line in rest if not _OWN.match(line))
    heads = frozenset(line for line, below in pairwise(rest) if _OWN.match(line) and not _OWN.match(below))
    if called:
        yield Piece("entry", ids, called, heads)
    if excerpts:
        yield Piece("excerpts", ids, excerpts)


def repeats(text: str) -> Repeats:
    """What the notes in a view's `text` tell more than once."""
    pieces = list(pieces_of(text))
    named = [_named(piece.text, piece) for piece in pieces]
    standing = _where(named)
    lines = _where([frozenset(_lines(piece.text)) for piece in pieces])
    places: Counter[tuple[str, str]] = Counter()
    for at in standing.values():
        places.update({tuple(sorted((pieces[a].place, pieces[b].place))) for a, b in combinations(at[:20], 2)})
    cited = {
        name for name, at in standing.items() for a, b in combinations(at[:20], 2) if _of_one(pieces[a], pieces[b])
    }
    return Repeats(
        names=Counter({name: len(at) for name, at in standing.items() if len(at) > 1}),
        lines=Counter({line: len(at) for line, at in lines.items() if len(at) > 1}),
        places=places,
        cited=frozenset(cited),
        retold=tuple(_retold(pieces)),
        specifics=len(standing),
    )


def _named(text: str, piece: Piece) -> frozenset[str]:
    """What `text` of `piece` names, but for its turns and what the host brings into the line of a call."""
    own = _HOSTS.sub(" ", text) if piece.place == "entry" else text
    return frozenset(specifics(own)) - piece.turns


def _where(told: Sequence[frozenset[str]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for at, several in enumerate(told):
        for one in several:
            places.setdefault(one, []).append(at)
    return places


def _lines(text: str) -> Iterator[str]:
    folded = (one_line(_MARK.sub("", line)) for line in text.splitlines())
    return (line for line in folded if len(line) >= LINE_CHARACTERS)


def _retold(pieces: Sequence[Piece]) -> Iterator[tuple[str, frozenset[str]]]:
    """Each line that a line of another piece tells, too, and what it names: the later one of two that say the same, or
    the one that says less."""
    lines = [
        (at, line, _named(line, piece), _stems(said), line in piece.heads)
        for at, piece in enumerate(pieces)
        for line in piece.text.splitlines()
        if len(said := _MARK.sub("", line).strip()) >= NEWS_CHARACTERS
    ]
    for at, line, names, words, heads in lines:
        for other, _, others, stems, _ in lines if names and not heads else ():
            is_first = other > at and others <= names
            if other != at and not is_first and names <= others and len(words - stems) <= NEWS_SHARE * len(words):
                yield line, names
                break


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:4].lower() for word in _LETTERS.findall(text))


def _of_one(piece: Piece, other: Piece) -> bool:
    """True if one of both tells in the brief what the other tells of the same turn."""
    told = {piece.place, other.place}
    return bool(piece.turns & other.turns and told & {"brief", "facts"} and not told <= {"brief", "facts"})


def add_command(commands: Any) -> None:
    """The command ``twice``."""
    twice = commands.add_parser("twice", help="specifics and lines that stand more than once in a view")
    twice.add_argument("places", nargs="+", type=Path, help="transcripts, or folders of them")
    twice.add_argument("--ratio", action="append", type=float)
    twice.add_argument("--method", action="append", help="rules, recorded:DIR of a model's answers, or another method")
    twice.add_argument("--worst", type=int, default=5, help="print so many views with what they repeat")
    twice.set_defaults(run=_twice)


def _twice(console: Console, options: argparse.Namespace) -> None:
    rows = list(_measured(transcript_files(options.places), options.ratio or [0.05, 0.1], options.method or ["rules"]))
    table = Table(title="Told twice: specifics and lines in two pieces of a view or more")
    columns = ("method", "ratio", "views", "specifics", "twice", "share", "again", "cited", "lines", "retold", "told")
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right")
    for key in dict.fromkeys(key for key, _, _ in rows):
        _add(table, key, [found for of, _, found in rows if of == key])
    console.print(table)
    places = sum((found.places for _, _, found in rows), Counter())
    for (one, other), count in places.most_common():
        console.print(f"{count:>6} in {one} and {other}", highlight=False)
    for (method, ratio), name, found in sorted(rows, key=lambda row: -row[2].again)[: options.worst]:
        most = ", ".join(f"{what} {times}" for what, times in found.names.most_common(6))
        console.print(f"{name} {method} {ratio:g}: {found.again} again: {most}", highlight=False, soft_wrap=True)


def _add(table: Table, key: tuple[str, float], found: Sequence[Repeats]) -> None:
    distinct, twice = sum(one.specifics for one in found), sum(len(one.names) for one in found)
    counts = (len(found), distinct, twice)
    sums = [sum(one.again for one in found)]
    sums += [sum(len(of(one)) for one in found) for of in map(attrgetter, ("cited", "lines", "retold"))]
    sums.append(sum(one.told for one in found))
    table.add_row(key[0], f"{key[1]:g}", *map(str, counts), f"{twice / max(1, distinct):.3f}", *map(str, sums))


def _measured(
    paths: Iterable[Path], ratios: Sequence[float], names: Sequence[str]
) -> Iterator[tuple[tuple[str, float], str, Repeats]]:
    """Method and ratio, transcript, and what its view repeats; nothing where no answer was recorded."""
    for path in paths:
        transcript = read_transcript(path)
        tokens = message_tokens(transcript.messages)
        for ratio in ratios:
            sample = f"{path.stem}@{ratio}"
            for name, method in methods_for(sample, [name for name in names if _can_plan(name, sample)]).items():
                made = method(transcript.messages, transcript.task, max(1, int(ratio * tokens)))
                yield (name, ratio), path.stem, repeats(plain_text(made))


def _can_plan(name: str, sample: str) -> bool:
    """False for a recorded method without an answer for `sample`."""
    return not name.startswith(RECORDED) or bool(FolderPlanner(Path(name.removeprefix(RECORDED)), sample).answers)
