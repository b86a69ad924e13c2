"""The samples of a run: transcripts, where each is cut, and what its agent needed from before the cut.

A method is shown the part before the cut only; what is needed is read from the part after it. Labels made by reading
and the agent's own summary come with a cut where there are any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from applier.adapters.transcripts import read_transcript
from applier.eval.labels import FailureFlags, Labels, failure_flags
from applier.eval.specifics import occurrences, path_splits, specifics, stands
from applier.eval.texts import agent_values, message_tokens, pieces, plain_text
from planner.reading.messages import Message, blocks

__all__ = [
    "CUT_SHARES",
    "LEAST_NEEDS",
    "LEAST_PREFIX_TOKENS",
    "WINDOW_CHARACTERS",
    "Cut",
    "Need",
    "context_words",
    "cut_points",
    "cut_transcript",
    "cuts_of_file",
    "find_needs",
    "own_summary",
    "placings",
    "transcript_paths",
]

CUT_SHARES = (0.5, 0.8)
"""By default a transcript is cut where the part before holds these shares of its tokens."""
LEAST_PREFIX_TOKENS = 15_000
"""A shorter part before the cut needs no compaction and is not measured."""
WINDOW_CHARACTERS = 60
"""How far around a specific its context reaches, either side."""

LEAST_NEEDS = 8
"""A cut after which the agent needed less says nothing and is left out."""

_CONTEXT_WORD = re.compile(r"[^\W\d_]{3,}")
"""``session``, ``läuft``; not ``x1`` or ``to``."""
_BARE_VALUE = re.compile(r"[\d.,:\-]+|[a-z]+")
"""An argument that says nothing of where it is from: ``200``, ``true``; not ``src/a.py`` or ``maxRetries``."""
_PIECE = re.compile(r"(.+-s)(\d+)")
"""The name of one piece of a session that its own agent compacted: ``NAME-s0``, ``NAME-s1``; not ``NAME``."""


CutKind = Literal["cut", "labelled", "own summary"]
"""``cut``: at a share of the transcript; ``labelled``: where its labels are for; ``own summary``: where its own
agent compacted it."""


@dataclass(frozen=True)
class Need:
    """One specific the agent wrote after the cut that it could only know from before."""

    specific: str
    contexts: frozenset[frozenset[str]]
    """The words around each of its original occurrences."""


@dataclass(frozen=True)
class Cut:
    """One transcript cut at one point."""

    name: str
    """Transcript and share, to tell rows apart."""
    task: str
    messages: tuple[Message, ...]
    """Before the cut: what a method compacts."""
    after: tuple[Message, ...]
    """What no method is shown."""
    tokens: int
    """Of `messages`, by o200k."""
    needs: tuple[Need, ...]
    kind: CutKind = "cut"
    labels: Labels | None = None
    flags: FailureFlags | None = None
    """How the planner's evidence agrees with the labels about what failed."""
    own_summary: str = ""
    """What the transcript's own agent kept of `messages`."""


def transcript_paths(places: Iterable[Path]) -> list[Path]:
    """The transcript files among and in `places`, sorted within each folder."""
    return [path for place in places for path in (_inside(place) if place.is_dir() else [place])]


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".json", ".jsonl"))


def cuts_of_file(
    path: Path, shares: Sequence[float] = CUT_SHARES, labels: Mapping[str, Labels] | None = None
) -> list[Cut]:
    """All cuts of one transcript file: at `shares`, at its label's place, and where its own agent compacted it."""
    transcript = read_transcript(path)
    cuts = cut_transcript(path.stem, transcript.messages, transcript.task, shares)
    known = (labels or {}).get(path.stem)
    if known:
        labelled = _cut(path.stem, transcript.messages, known.cut, transcript.task)
        cuts.append(replace(labelled, kind="labelled", labels=known, flags=failure_flags(known, transcript.messages)))
    return [*cuts, *_compacted_itself(path, transcript.messages, transcript.task)]


def cut_transcript(
    name: str, messages: Sequence[Message], task: str, shares: Sequence[float] = CUT_SHARES
) -> list[Cut]:
    """The cuts of one transcript that are worth measuring."""
    cuts = [_cut(name, messages, point, task) for point in cut_points(messages, shares)]
    return [cut for cut in cuts if len(cut.needs) >= LEAST_NEEDS]


def _cut(name: str, messages: Sequence[Message], point: int, task: str) -> Cut:
    before = tuple(messages[:point])
    after = tuple(messages[point:])
    return Cut(f"{name}@{point}", task, before, after, message_tokens(before), find_needs(before, after, task))


def _compacted_itself(path: Path, messages: Sequence[Message], task: str) -> list[Cut]:
    """The place where the agent compacted this piece itself: the next piece, without the summary, is the future."""
    piece = _PIECE.fullmatch(path.stem)
    follower = path.with_name(f"{piece[1]}{int(piece[2]) + 1}{path.suffix}") if piece else path
    if follower == path or path.suffix != ".json" or not follower.is_file():
        return []
    summary = own_summary(path)
    if not summary:
        return []
    after = [m for m in read_transcript(follower).messages if not _says(m, summary)]
    needs = find_needs(messages, after, task)
    before, tokens = tuple(messages), message_tokens(messages)
    own = Cut(path.stem, task, before, tuple(after), tokens, needs, kind="own summary", own_summary=summary)
    return [own] if needs else []


def own_summary(path: Path) -> str:
    """What the transcript's own agent kept when it compacted itself; empty where the file holds none."""
    if path.suffix != ".json":
        return ""
    document = json.loads(path.read_text("utf-8"))
    meta = document.get("meta") if isinstance(document, dict) else None
    return str((meta or {}).get("native_compact_summary") or "")


def _says(message: Message, text: str) -> bool:
    return any(text[:200] in str(block.get("text") or "") for block in blocks(message))


def cut_points(messages: Sequence[Message], shares: Sequence[float] = CUT_SHARES) -> list[int]:
    """Indexes of assistant messages to cut before, one per share, pairs whole, without doubles."""
    sizes = [message_tokens([message]) for message in messages]
    total, points = sum(sizes), []
    for share in shares:
        held = 0
        for index, message in enumerate(messages):
            if held >= share * total and message["role"] == "assistant":
                if held >= LEAST_PREFIX_TOKENS and index not in points:
                    points.append(index)
                break
            held += sizes[index]
    return points


def find_needs(before: Sequence[Message], after: Sequence[Message], task: str) -> tuple[Need, ...]:
    """What the agent writes in `after`, before it is shown again, that `before` holds and `task` does not."""
    texts = [text for _, text in pieces(before)]
    held = "\n".join(texts)
    return tuple(
        Need(specific, _contexts(specific, texts))
        for specific in _written_unseen(after)
        if stands(specific, held) and not stands(specific, task)
    )


def _written_unseen(after: Sequence[Message]) -> list[str]:
    """Specifics in the order the agent first writes them, without those shown to it before it did."""
    shown, unseen, known = "", [], set[str]()
    for message in after:
        if message["role"] == "assistant":
            for specific in _written(message):
                if specific not in known and not stands(specific, shown):
                    unseen.append(specific)
                known.add(specific)
        shown += "\n" + plain_text([message] if message["role"] == "user" else [])
    return unseen


def _written(message: Message) -> Iterator[str]:
    for value, is_input in agent_values(message):
        if not (is_input and _BARE_VALUE.fullmatch(value.strip())):
            yield from specifics(value)


def _contexts(specific: str, texts: Sequence[str]) -> frozenset[frozenset[str]]:
    return frozenset(
        context_words(text, at, at + len(specific)) for text in texts for at in occurrences(specific, text)
    )


def context_words(text: str, start: int, end: int) -> frozenset[str]:
    """The words of three letters or more within `WINDOW_CHARACTERS` either side of ``text[start:end]``."""
    around = text[max(0, start - WINDOW_CHARACTERS) : start] + " \n " + text[end : end + WINDOW_CHARACTERS]
    return frozenset(word.lower() for word in _CONTEXT_WORD.findall(around))


def placings(specific: str, text: str) -> Iterator[tuple[int, int]]:
    """Where `specific` stands in `text`: itself, or for a path its rest while its root stands elsewhere."""
    for at in occurrences(specific, text):
        yield at, at + len(specific)
    for root, rest in path_splits(specific):
        if stands(root, text):
            for at in occurrences(rest, text):
                yield at, at + len(rest)
