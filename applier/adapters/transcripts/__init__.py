"""Reads conversations saved by other programs as Anthropic messages, and writes them back in their own format.

The content of a file decides its format. Problems in a file become warnings; only what the format itself requires is
repaired. A session log of an agent is written as a log from which the agent can resume.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.adapters.transcripts.codex import CODEX
from applier.adapters.transcripts.document import document_of, load_document
from applier.adapters.transcripts.dumps import DUMPS
from applier.adapters.transcripts.message_lists import MESSAGE_LISTS
from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from applier.adapters.transcripts.transcript import Client, Format, Transcript
from planner.errors import TranscriptError
from planner.reading.messages import plain_message
from planner.validity import answer_calls

__all__ = [
    "CLIENTS",
    "FORMATS",
    "Client",
    "Format",
    "Transcript",
    "from_openai",
    "read_transcript",
    "strip_openai",
    "to_openai",
    "transcript_files",
    "write_transcript",
]

SUFFIXES = (".json", ".jsonl")

CLIENTS: tuple[Client, ...] = (CLAUDE_CODE, CODEX)
"""Agent programs with session logs that can be read, written and resumed."""
FORMATS: tuple[Format, ...] = (*CLIENTS, *DUMPS, *MESSAGE_LISTS)
"""All readable formats, in the order in which they are tried."""


def read_transcript(
    source: str | bytes | os.PathLike[str] | Sequence[object] | Mapping[str, Any], *, part: int | None = None
) -> Transcript:
    """Return the conversation in `source`: a path, the text itself, or a list of messages (dicts or SDK objects).

    The format may be any of `FORMATS`. Anthropic messages are a list, or an object with ``messages`` and perhaps
    ``system``, ``tools`` and ``task``. `part`: index of one of several conversations in a file, or of one part of a
    session log (what lies between two compactions by the agent itself); -1 is the last. None: the first conversation,
    or the whole session.

    Raises:
        TranscriptError: The source has none of these formats. The text names the file, the line or index, and what was
            expected there.
    """
    if isinstance(source, str | bytes | os.PathLike):
        document = load_document(source)
    elif isinstance(source, Mapping | Sequence):
        document = document_of(dict(source) if isinstance(source, Mapping) else list(source), "input")
    else:
        raise TranscriptError(f"messages: expected a path, text or list, found {type(source).__name__}")
    for form in FORMATS:
        if form.detects(document):
            return form.read(document, part)
    if document.damage:
        raise document.damage[0]
    if isinstance(document.value, dict):  # it has ``messages``: `document_of` makes other objects a log of one line
        type_name = type(document.value["messages"]).__name__
        raise TranscriptError(f"{document.name}, messages: expected a list of messages, found {type_name}")
    wanted = " or ".join([", ".join(form.title for form in FORMATS[:-1]), FORMATS[-1].title])
    value = document.value[0] if len(document.lines) == 1 else document.value
    found = f"{type(value).__name__} {str(value)[:40]!r}"
    if isinstance(value, dict):
        found = f"an object with {', '.join(map(repr, list(value)[:6])) or 'nothing in it'}"
    raise TranscriptError(f"{document.name}: expected {wanted}, found {found}")


def transcript_files(places: Iterable[Path]) -> list[Path]:
    """Return the files among `places`, and all JSON and JSONL files in and below the folders among them, each once. A
    folder that cannot be listed is returned itself, so that the attempt to read it reports the error."""
    groups = (sorted(_files_below(place)) if place.is_dir() else [place] for place in places)
    return list(dict.fromkeys(chain.from_iterable(groups)))


def _files_below(place: Path) -> Iterator[Path]:
    """Yield the JSON and JSONL files in and below the folder `place`, then each folder that cannot be listed."""
    unlisted: list[str] = []
    for folder, _, names in os.walk(place, onerror=lambda error: unlisted.append(error.filename)):
        files = (Path(folder, name) for name in names if name.endswith(SUFFIXES))
        yield from (file for file in files if file.is_file())
    yield from map(Path, unlisted)


def write_transcript(messages: Sequence[object], like: Transcript, *, session_id: str = "") -> str:
    """Return `messages` (Anthropic messages, such as a compacted conversation) as text in the file format of `like`; if
    this format is only read, as a JSON object with Anthropic messages, system prompt and tools.

    Everything around the messages in a file of another format (system, tools, other fields and conversations) is kept.
    For a session log, the text is a log of a new session, in which messages of the old log keep their lines.
    `session_id`: the id of the new session; empty for one computed from the messages.

    Raises:
        TranscriptError: An item of `messages` is not a message. The text names its index.
    """
    plain = [plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if like.client is not None:  # the user continues this session, and the API refuses a call without a result
        plain = answer_calls(plain)
    form = next(form for form in FORMATS if form.name == like.format.removesuffix("_jsonl"))
    return form.write(plain, like, session_id)
