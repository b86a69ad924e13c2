"""The samples a run measures on: transcript files, cut and prepared, with labels and own summaries where there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from applier.adapters.transcripts import read_transcript
from applier.bench.cuts import CUT_SHARES, Cut, cut_points, find_needs
from applier.bench.labels import Labels
from applier.bench.texts import message_tokens
from planner.reading.messages import Message, blocks

__all__ = ["LEAST_NEEDS", "cut_transcript", "cuts_of_file", "transcript_paths"]

LEAST_NEEDS = 8
"""A cut after which the agent needed less says nothing and is left out."""

_PIECE = re.compile(r"(.+-s)(\d+)")
"""The name of one piece of a session that its own agent compacted: ``NAME-s0``, ``NAME-s1``, …"""


def transcript_paths(places: Iterable[Path]) -> list[Path]:
    """The transcript files among and in `places`, sorted within each folder."""
    return [found for place in places for found in (_inside(place) if place.is_dir() else [place])]


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
        cuts.append(replace(labelled, kind="labelled", labels=known))
    return [*cuts, *_own_summary(path, transcript.messages, transcript.task)]


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


def _own_summary(path: Path, messages: Sequence[Message], task: str) -> list[Cut]:
    """The place where the agent compacted this piece itself: the next piece, without the summary, is the future."""
    piece = _PIECE.fullmatch(path.stem)
    follower = path.with_name(f"{piece[1]}{int(piece[2]) + 1}{path.suffix}") if piece else path
    if follower == path or path.suffix != ".json" or not follower.is_file():
        return []
    meta = json.loads(path.read_text("utf-8")).get("meta") or {}
    summary = meta.get("native_compact_summary")
    if not summary:
        return []
    after = [m for m in read_transcript(follower).messages if not _says(m, str(summary))]
    needs = find_needs(messages, after, task)
    before, tokens = tuple(messages), message_tokens(messages)
    own = Cut(path.stem, task, before, tuple(after), tokens, needs, kind="own summary", own_summary=summary)
    return [own] if needs else []


def _says(message: Message, text: str) -> bool:
    return any(text[:200] in str(block.get("text") or "") for block in blocks(message))
