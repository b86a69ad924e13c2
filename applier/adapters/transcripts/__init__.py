"""Transcripts of other tools and formats: read as Anthropic messages, written back in their own format.

The content of a file decides its format. Makes only repairs that the form of a log requires, and reports the rest as
warnings. A session log is written as a log that its client can resume.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from applier.adapters.transcripts.claude_code import CLAUDE_CODE
from applier.adapters.transcripts.codex import CODEX
from applier.adapters.transcripts.document import Document, document_of, load_document
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
"""Clients whose session logs can be read, written and resumed."""
FORMATS: tuple[Format, ...] = (*CLIENTS, *DUMPS, *MESSAGE_LISTS)
"""All readable formats, in the order in which they are tried."""


def read_transcript(
    source: str | bytes | os.PathLike[str] | Sequence[object] | Mapping[str, Any], *, part: int | None = None
) -> Transcript:
    """Return the conversation in `source`: a path, the text itself, or a list of messages (dicts or SDK objects).

    Formats are all of `FORMATS`; Anthropic messages are a list, or an object with ``messages`` and perhaps ``system``,
    ``tools``, ``task``. `part` selects one conversation of a file with several, or one stretch between a session log's
    own compactions (-1: the agent's last context); without it a session is read whole.

    Raises:
        TranscriptError: the source has no such form; the text names file, line or index, and the expected form.
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
    if isinstance(document.value, dict):  # then it has ``messages``
        type_name = type(document.value["messages"]).__name__
        raise TranscriptError(f"{document.name}, messages: expected a list of messages, found {type_name}")
    wanted = " or ".join([", ".join(form.title for form in FORMATS[:-1]), FORMATS[-1].title])
    raise TranscriptError(f"{document.name}: expected {wanted}, found {_kind(document)}")


def _kind(document: Document) -> str:
    value = document.value[0] if len(document.lines) == 1 else document.value
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:6])) or 'nothing in it'}"
    return f"{type(value).__name__} {str(value)[:40]!r}"


def transcript_files(places: Iterable[Path]) -> list[Path]:
    """Return the files in `places`, and possible transcripts in their folders and below, sorted and without repetition;
    also folders that cannot be listed, so that their reader reports them."""
    each = (sorted(_below(place)) if place.is_dir() else [place] for place in places)
    return list(dict.fromkeys(chain.from_iterable(each)))


def _below(place: Path) -> Iterator[Path]:
    unlisted: list[str] = []
    for folder, _, names in os.walk(place, onerror=lambda error: unlisted.append(error.filename)):
        files = (Path(folder, name) for name in names if name.endswith(SUFFIXES))
        yield from (file for file in files if file.is_file())
    yield from map(Path, unlisted)


def write_transcript(messages: Sequence[object], like: Transcript, *, session_id: str = "") -> str:
    """Return `messages` (Anthropic messages, such as a view) as text in the format of `like`.

    Everything around the messages in that file (system, tools, other fields and conversations) is kept. For a session
    log, the lines of its messages are kept, under the session id `session_id`, or one computed from the messages.

    Raises:
        TranscriptError: an entry is not a message; the text names its index.
    """
    plain = [plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if like.client is not None:  # its client sends the list with words behind it
        plain = answer_calls(plain)
    form = next(form for form in FORMATS if form.name == like.format.removesuffix("_jsonl"))
    return form.write(plain, like, session_id)
