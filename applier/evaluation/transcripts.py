"""Transcript files, cut and prepared for the measure. Reads; a cut knows nothing of where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from applier.evaluation.cuts import CUT_SHARES, Cut, cut_points, find_needs
from applier.evaluation.texts import message_tokens
from planner.messages import Message

__all__ = ["LEAST_NEEDS", "cut_transcript", "cuts_of_file", "transcript_paths"]

LEAST_NEEDS = 8
"""A cut after which the agent needed less says nothing and is left out."""


def cut_transcript(
    name: str, messages: Sequence[Message], task: str, shares: Sequence[float] = CUT_SHARES
) -> list[Cut]:
    """The cuts of one transcript that are worth measuring."""
    cuts = []
    for point in cut_points(messages, shares):
        before = tuple(messages[:point])
        needs = find_needs(before, messages[point:], task)
        if len(needs) >= LEAST_NEEDS:
            cuts.append(Cut(f"{name}@{point}", task, before, message_tokens(before), needs))
    return cuts


def cuts_of_file(path: Path, shares: Sequence[float] = CUT_SHARES) -> list[Cut]:
    """The cuts of a transcript file: ``{"task": …, "messages": […]}``."""
    data = json.loads(path.read_text())
    return cut_transcript(path.stem, data["messages"], str(data.get("task") or ""), shares)


def transcript_paths(places: Iterable[Path]) -> list[Path]:
    """The JSON files among and in `places`, sorted."""
    return [
        found for place in places for found in (sorted(place.glob("*.json")) if place.is_dir() else [place])
    ]
