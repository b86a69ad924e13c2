"""The summary of a transcript's own agent, if its file has one, beside methods of its size."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from applier.adapters.transcripts import read_transcript
from applier.eval.evaluation import Cut, EvaluationRow, ExamSample, ExamView, evaluate, exam_view, measured
from applier.eval.methods import NotRecorded, methods_for
from applier.eval.survival import find_needs, message_tokens, plain_text, text_tokens
from planner.reading.messages import Message, blocks

OWN_SUMMARY = "own summary"
"""Name of the method."""

_PIECE = re.compile(r"(.+-s)(\d+)")
"""Name of one piece of a session that its own agent compacted: ``NAME-s0``, ``NAME-s1``; not ``NAME``."""


def own_summary(path: Path) -> str:
    """Return the agent's own summary; empty if the file has none."""
    if path.suffix != ".json":
        return ""
    document = json.loads(path.read_text("utf-8"))
    meta = document.get("meta") if isinstance(document, dict) else None
    return str((meta or {}).get("native_compact_summary") or "")


def summary_cut(path: Path) -> Cut | None:
    """Return the cut at which the agent compacted this piece; the next piece is the future."""
    piece = _PIECE.fullmatch(path.stem)
    follower = path.with_name(f"{piece[1]}{int(piece[2]) + 1}{path.suffix}") if piece else path
    summary = own_summary(path)
    if follower == path or not follower.is_file() or not summary:
        return None
    transcript = read_transcript(path)
    before = tuple(transcript.messages)
    after = [message for message in read_transcript(follower).messages if not _says(message, summary)]
    needs = find_needs(before, after, transcript.task)
    return Cut(path.stem, transcript.task, before, message_tokens(before), needs) if needs else None


def _says(message: Message, text: str) -> bool:
    return any(text[:200] in str(block.get("text") or "") for block in blocks(message))


def summary_rows(path: Path, names: Sequence[str]) -> list[EvaluationRow]:
    """Return rows of the summary and of the methods `names` at its size; none without such a cut."""
    cut = summary_cut(path)
    if cut is None:
        return []
    summary: list[Message] = [{"role": "user", "content": own_summary(path)}]
    ratio = message_tokens(summary) / cut.tokens
    rows = evaluate(methods_for(cut.name, names), [cut], [ratio])
    return [*rows, measured(cut, OWN_SUMMARY, summary, ratio)]


def summary_views(sample: ExamSample, path: Path, names: Sequence[str]) -> Iterator[ExamView]:
    """Return views of the summary and of methods at its size; none without one.

    A recorded method is left out where ``TRANSCRIPT@summary`` was not recorded.
    """
    summary = own_summary(path)
    if not summary:
        return
    ratio = text_tokens(summary) / sample.tokens
    yield exam_view(sample, OWN_SUMMARY, ratio, summary)
    for name, method in methods_for(f"{sample.exam.transcript}@summary", names).items():
        try:
            made = method(list(sample.messages), sample.task, int(ratio * sample.tokens))
        except NotRecorded:
            continue
        yield exam_view(sample, name, ratio, plain_text(made))
