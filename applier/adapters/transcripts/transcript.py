"""What a transcript is once it is read: Anthropic messages, what is needed to write them back, and the task in them.

Says where calls and results do not pair as the API wants; repairs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from applier.adapters.transcripts.document import Document
from planner.evidence.user_words import own_words
from planner.reading.history import read_history
from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import Block, Message, blocks
from planner.validity import check_messages
from planner.validity.calls import CALL_RULES

__all__ = ["Client", "Format", "Transcript", "guess_task", "pairing_warnings"]

FEWEST_WORDS = 4
"""Shorter words of the user ("yes", "go on", "please push") answer something; they set no task."""
LONGEST_CHARACTERS = 2_000
"""A guessed task is cut here: what stands behind it is a paste."""
SEARCHED_CHARACTERS = 50_000
"""Of one text no more is searched for the user's words."""

_ANSWER = re.compile(
    r"\W*(?:thanks|thank you|great|perfect|awesome|nice|that'?s all|no,? that|yes|yep|sure|correct)\b", re.I
)
LONGEST_ANSWER_WORDS = 25
"""Longer words that begin like an answer ("thanks, now …") go on to a task."""
_UNPAIRED = frozenset(("unanswered_call", "uncalled_result", "repeated_result"))


class Format(Protocol):
    """A form in which conversations are stored: it knows its own files, reads them and writes them back."""

    @property
    def name(self) -> str:
        """What `Transcript.format` begins with."""

    @property
    def title(self) -> str:
        """For people: ``a session of Claude Code``."""

    def detects(self, document: Document) -> bool:
        """Whether `document` is of this form, by what is inside."""

    def read(self, document: Document, part: int | None) -> Transcript:
        """The conversation, or its `part`-th part."""

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        """`messages` as the text of a file such as `like` was read from; of a session, under the id `session_id`."""


class Client(Format, Protocol):
    """The form of a client's session log, from which the client resumes."""

    def log_name(self, session_id: str, now: datetime) -> str:
        """The client's own name for the log of a session."""

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:
        """Where the client keeps the logs of sessions in `working_folder`."""

    def finds(self, place: Path, in_place: Path) -> bool:
        """Whether it finds a log at `place`, where `in_place` is the file that it would have written itself."""

    def resume_command(self, session_id: str) -> str:
        """What a person types to go on with a session."""


@dataclass(frozen=True)
class Transcript:
    """One conversation, read from any format. Messages are Anthropic messages whatever they were."""

    messages: list[Message] = field(repr=False)
    system: str | list[Block] | None = field(repr=False)
    tools: list[dict[str, Any]] | None = field(repr=False)
    task: str
    """The file's own ``task``; else the last words of the user that set one, else their first; or empty."""
    format: str
    """The name of its format: ``anthropic``, ``openai``, ``claude_code``, ``codex``; a list with one message a line
    is ``anthropic_jsonl`` or ``openai_jsonl``."""
    warnings: tuple[str, ...] = ()
    """What was left out or is not as the API wants it, each with its place; nothing here stops a reader."""
    source: dict[str, Any] = field(default_factory=dict, repr=False)
    """Where it came from. ``path``: the file, if it was one. Of a session log ``lines``: the line numbers behind
    each message, and ``log``: the lines by number. The rest belongs to `write_transcript`."""
    client: Client | None = field(default=None, repr=False)
    """Of a session log: the client that can resume a session from it."""

    @property
    def working_folder(self) -> str:
        """The folder in which the session ran last; empty if its log does not say."""
        for line in reversed(self.source.get("log", {}).values()):
            folder = line.get("cwd") or (line.get("payload") or {}).get("cwd")
            if isinstance(folder, str):
                return folder
        return ""


def guess_task(messages: Sequence[Message], skip: Collection[int] = ()) -> str:
    """The last words of the user that set a task, else their first words, else an empty text.

    Never reads what the host put into the user's messages. `skip`: indexes of messages known to be the host's.
    """
    own = [i for i in range(len(messages)) if i not in skip]
    newest = (text for i in reversed(own) for text in reversed(list(_words(messages[i]))))
    task = next(filter(_sets_a_task, newest), None)
    if task is None:
        task = next((text for i in own for text in _words(messages[i])), "")
    return task if len(task) <= LONGEST_CHARACTERS else task[:LONGEST_CHARACTERS].rstrip() + " …"


def _sets_a_task(text: str) -> bool:
    words = len(text.split())
    answers = words < LONGEST_ANSWER_WORDS and _ANSWER.match(text) and "?" not in text
    return words >= FEWEST_WORDS and not answers


def _words(message: Message) -> Iterator[str]:
    """The user's own words in `message`, one text per block."""
    for block in blocks(message) if message["role"] == "user" else ():
        if block["type"] == "text" and isinstance(block.get("text"), str):
            history = read_history([{"role": "user", "content": block["text"][:SEARCHED_CHARACTERS]}])
            words = join_lines(own_words(turn_lines(history, history.turns[0]))).strip()
            if words:
                yield words


def pairing_warnings(messages: Sequence[Message], places: Sequence[str]) -> list[str]:
    """One warning per call without a result, per result without a call, or else behind other content; `places` names
    each message."""
    wrong: list[tuple[int, str]] = []
    for violation in check_messages(messages, rules=CALL_RULES):
        at = int(violation.place.split("]")[0].removeprefix("messages["))
        if violation.code in _UNPAIRED or (violation.code == "late_result" and at not in dict(wrong)):
            is_open = violation.code == "unanswered_call" and at == len(messages) - 1
            wrong.append((at, violation.problem + (", for it is the last" if is_open else "")))
    return [f"{places[at]}: {problem}" for at, problem in sorted(wrong)]
