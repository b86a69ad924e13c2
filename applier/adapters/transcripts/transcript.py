"""Transcripts after reading, and their construction from a client's session log.

The log's lines that belong to one answer of the API become one assistant message. The results of its calls become one
user message after it, in the order of the calls. Everything else keeps its place. Calls and results without each other
are reported in the warnings. A piece is a message under construction. A part of a session is what lies between two
compactions by the agent. Content that an adapter cannot translate becomes an opaque block, which stays in place while
everything around it is compacted.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import NAMESPACE_URL, uuid5

from applier.adapters.transcripts.document import Document
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text, own_words
from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import OPAQUE, Block, Message, blocks, call_ids, message_digest, read_history, result_ids
from planner.validity import CALL_RULES, LOST_RESULT, check_messages, lost_call, lost_result

FEWEST_WORDS = 4
"""Fewest words of a task: shorter texts ("yes", "go on", "please push") answer something."""
LONGEST_CHARACTERS = 2_000
"""Length at which a guessed task is cut; the rest is pasted."""
SEARCHED_CHARACTERS = 50_000
"""Number of characters of one text that are searched for the user's words."""

_ANSWER = re.compile(
    r"\W*(?:thanks|thank you|great|perfect|awesome|nice|that'?s all|no,? that|yes|yep|sure|correct)\b", re.I
)
LONGEST_ANSWER_WORDS = 25
"""Length from which a text that begins like an answer ("thanks, now …") is taken for a task, in words."""
_UNPAIRED = frozenset(("unanswered_call", "uncalled_result"))
"""Codes of `check_messages` for a call without a result and a result without a call."""


class Format(Protocol):
    """Form in which conversations are stored: it recognises its files, reads them and writes them."""

    @property
    def name(self) -> str:
        """Beginning of `Transcript.format`."""

    @property
    def title(self) -> str:
        """Name for people: ``a session of Claude Code``."""

    def detects(self, document: Document) -> bool:
        """Return whether `document` is of this form, by its content."""

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the conversation in `document`. `part`: index of the only part or list to read; None to read all parts
        of a session, or the first list of messages."""

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        """Return `messages` as the text of a file of this form. `like`: the transcript whose other content is copied.
        `session_id`: id of the new session; empty to derive it from `messages`."""


class Client(Format, Protocol):
    """Form of a client's session log that the client can resume."""

    def log_name(self, session_id: str, now: datetime) -> str:
        """Return the client's file name for the log of the session `session_id` that begins at `now`."""

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:
        """Return the client's folder for the log of a session in `working_folder` that begins at `now`."""

    def logs(self, working_folder: str, environment: Mapping[str, str]) -> Iterator[Path]:
        """Yield the client's logs of sessions in `working_folder`; of all sessions if `working_folder` is empty."""

    def finds(self, place: Path, in_place: Path) -> bool:
        """Return True if the client finds a log at `place`. `in_place`: the path that the client itself would use."""

    def resume_command(self, session_id: str) -> str:
        """Return the command that continues a session."""


@dataclass(frozen=True)
class Transcript:
    """One conversation, read from any format. Messages are Anthropic messages whatever they were."""

    messages: list[Message] = field(repr=False)
    system: str | list[Block] | None = field(repr=False)
    tools: list[dict[str, Any]] | None = field(repr=False)
    task: str
    """Task of the agent: the file's ``task``, or else the result of `guess_task`."""
    format: str
    """Name of the format: ``anthropic``, ``openai``, ``claude_code``, ``codex`` …; a list with one message a line is
    ``anthropic_jsonl`` or ``openai_jsonl``."""
    warnings: tuple[str, ...] = ()
    """Problems that did not stop the reading, each with its place: content that is left out or that the API refuses."""
    source: dict[str, Any] = field(default_factory=dict, repr=False)
    """Origin of the conversation. ``path``: the file, if there is one. A session log also has ``lines``, the line
    numbers of each message, and ``log``, the lines by number. Only `write_transcript` reads further keys."""
    client: Client | None = field(default=None, repr=False)
    """Client that can resume a session from this log."""

    @property
    def working_folder(self) -> str:
        """Last folder of the session; empty if its log has none."""
        for line in reversed(self.source.get("log", {}).values()):
            folder = line.get("cwd") or (line.get("payload") or {}).get("cwd")
            if isinstance(folder, str):
                return folder
        return ""


def guess_task(messages: Sequence[Message], skip: Collection[int] = ()) -> str:
    """Return the user's newest text that sets a task. If no text does, return their first text, or an empty one.

    Text of the host in the user's messages is ignored. `skip`: indexes of messages that the host wrote.
    """
    own = [i for i in range(len(messages)) if i not in skip]
    newest = (text for i in reversed(own) for text in reversed(list(_words(messages[i]))))
    task = next(filter(_sets_a_task, newest), None)
    if task is None:
        task = next((text for i in own for text in _words(messages[i])), "")
    return task if len(task) <= LONGEST_CHARACTERS else task[:LONGEST_CHARACTERS].rstrip() + " …"


def _sets_a_task(text: str) -> bool:
    words = len(text.split())
    is_answer = words < LONGEST_ANSWER_WORDS and _ANSWER.match(text) and "?" not in text
    return words >= FEWEST_WORDS and not is_answer


def _words(message: Message) -> Iterator[str]:
    """Yield the user's own words in `message`, one text for each block."""
    for block in blocks(message) if message["role"] == "user" else ():
        if block["type"] == "text" and isinstance(block.get("text"), str):
            history = read_history([{"role": "user", "content": block["text"][:SEARCHED_CHARACTERS]}])
            words = join_lines(own_words(turn_lines(history, history.turns[0]))).strip()
            if words:
                yield words


def pairing_warnings(messages: Sequence[Message], places: Sequence[str]) -> list[str]:
    """Return a warning for each call without a result and each misplaced result. `places`: the name of each message for
    people, such as ``log.jsonl, line 7``."""
    wrong: list[tuple[int, str]] = []
    for violation in check_messages(messages, rules=CALL_RULES):
        at = violation.message
        if violation.code in _UNPAIRED or (violation.code == "late_result" and at not in dict(wrong)):
            is_open = violation.code == "unanswered_call" and at == len(messages) - 1
            wrong.append((at, violation.problem + (", for it is the last" if is_open else "")))
    for at, message in enumerate(messages):
        lost = [block.get("tool_use_id") for block in blocks(message) if block.get("content") == LOST_RESULT]
        wrong += [(at, f"call {call} has no result; a note replaces it") for call in lost]
    return [f"{places[at]}: {problem}" for at, problem in sorted(wrong)]


LogLine = dict[str, Any]
Only = Literal["", "whole", "part"]
"""Reading that includes a message: each one, only that of the whole session, or only that of a single part. A log
repeats some messages in the next part, which the whole session must not contain twice."""
_NO_TIME = "1970-01-01T00:00:00.000Z"


@dataclass
class GrowingMessage:
    """Message under construction, and the results for its calls."""

    role: str
    content: str | list[Block]
    lines: list[int]
    """Numbers of its lines in the log."""
    host: bool = False
    """True if the host wrote the message, not the user."""
    part: int = 0
    """Number of earlier compactions by the agent."""
    only: Only = ""
    results: list[Block] = field(default_factory=list)
    """Results for the calls in the message."""
    result_lines: list[int] = field(default_factory=list)
    """Lines of these results."""
    is_mended: bool = False
    """True if the message differs from its lines: a call or a result was missing."""

    @property
    def message(self) -> Message:
        """The message without its results."""
        return {"role": self.role, "content": self.content}

    @property
    def unanswered(self) -> list[str]:
        """Ids of the message's calls that have no result yet."""
        answered = {*result_ids({"role": "user", "content": self.results})}
        calls = (str(block.get("id")) for block in blocks(self.message) if block["type"] == "tool_use")
        return [call for call in dict.fromkeys(calls) if call not in answered]


class Pairing:
    """Conversation under construction, which joins calls and results; content arrives in the order of its lines."""

    def __init__(self) -> None:
        """Begin empty."""
        self.pieces: list[GrowingMessage] = []
        self.part = 0
        self.blank: list[int] = []
        """Lines of the assistant with blank text."""
        self._groups: dict[str, GrowingMessage] = {}
        """Answers of the API by their group."""
        self._asked: dict[str, GrowingMessage] = {}
        """Messages by the ids of their calls."""

    def assistant(self, content: Sequence[Block], line: int, group: str = "", *, late: bool = False) -> None:
        """Add blocks of the assistant from line `line`. Blocks with the same `group` form one message.

        Without a group, the blocks continue the newest message if that is the assistant's and has no results yet. With
        `late`, they also continue it while one of its calls has no result.
        """
        spoken = [block for block in content if block["type"] != "text" or str(block.get("text", "")).strip()]
        if len(spoken) < len(content):
            self.blank.append(line)
        if not spoken:
            return
        piece = self._groups.get(group) if group else self._open_answer(late)
        if piece is None:
            piece = self._groups[group] = GrowingMessage("assistant", [], [], part=self.part)
            self.pieces.append(piece)
        assert isinstance(piece.content, list)
        piece.content += spoken
        piece.lines.append(line)
        self._asked.update((str(block.get("id")), piece) for block in spoken if block["type"] == "tool_use")

    def user(
        self, content: str | list[Block], line: int, *, host: bool = False, only: Only = "", joins: bool = False
    ) -> None:
        """Add the content of a user's message from line `line`; its results go to the messages with their calls.

        `host`: True if the host wrote it. `joins`: True to continue the newest message if that is a user's in the same
        part.
        """
        before = self.pieces[-1] if joins and self.pieces else None
        if before is not None and before.role == "user" and before.part == self.part:
            before.content = [*blocks(before.message), *blocks({"role": "user", "content": content})]
            before.lines.append(line)
            return
        is_mended = False
        if isinstance(content, list):
            content = self._own(content, line)
            is_mended = any(block["type"] == "tool_result" for block in content)
            content = [lost_call(block) if block["type"] == "tool_result" else block for block in content]
        if content and not (isinstance(content, str) and content.isspace()):
            self.pieces.append(
                GrowingMessage("user", content, [line], host or is_mended, self.part, only, is_mended=is_mended)
            )

    def answered(self, pieces: Iterable[GrowingMessage] | None = None) -> Iterator[GrowingMessage]:
        """Yield `pieces` (default: all), each followed by one message with its results in the order of its calls.

        A call without a result gets a note instead. Calls of the last piece get none, because they may still run.
        """
        chosen = list(self.pieces if pieces is None else pieces)
        for at, piece in enumerate(chosen):
            yield piece
            lost = [] if at == len(chosen) - 1 else piece.unanswered
            results, lines = [*piece.results, *map(lost_result, lost)], piece.result_lines or piece.lines
            if results:
                order = {name: number for number, name in enumerate(call_ids(piece.message))}
                results.sort(key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
                yield GrowingMessage("user", results, lines, True, piece.part, is_mended=bool(lost))

    def _open_answer(self, late: bool) -> GrowingMessage | None:
        """Return the newest message if blocks of the assistant without a group continue it."""
        last = self.pieces[-1] if self.pieces else None
        if last is None or last.role != "assistant" or last.part != self.part:
            return None
        return last if not last.results or (late and last.unanswered) else None

    def _own(self, content: list[Block], line: int) -> list[Block]:
        """Add each result to the message with its call, and other blocks to the message of the last result. Return the
        blocks that form a message of their own: results without a call, or all blocks if no result has a call."""
        askers = [self._asked.get(str(b.get("tool_use_id"))) if b["type"] == "tool_result" else None for b in content]
        last = next((asker for asker in reversed(askers) if asker), None)
        if last is None:
            return content
        own = []
        for block, asker in zip(content, askers, strict=True):
            if asker is None and block["type"] == "tool_result":
                own.append(block)
            else:
                receiver = asker or last
                receiver.results.append(block)
                receiver.result_lines.append(line)
        return own


class Assembly(Pairing):
    """Conversation of a session log under construction."""

    def __init__(self, document: Document) -> None:
        """Begin with the lines of `document`."""
        super().__init__()
        self.name, self._path = document.name, document.path
        self.warnings = document.damage_notes
        self._compactions: dict[int, frozenset[int]] = {}
        """Lines at which the agent compacted, each with the numbers of the lines that it left unchanged."""

    def note(self, numbers: Sequence[int], what: str) -> None:
        """Add the warning that the lines `numbers` are `what`, if there are any."""
        if numbers:
            self.warnings.append(f"{self.name}, {_line_numbers(sorted(set(numbers)))}: {what}")

    def compacted(self, line: int, carried: frozenset[int] = frozenset()) -> None:
        """Begin a new part: the agent compacted its context here, except for the lines `carried`."""
        self._compactions[line] = carried
        self.part = len(self._compactions)

    def roll_back(self, user_messages: int) -> None:
        """Remove the last `user_messages` messages of the user, and everything after the first of them."""
        own = [i for i, piece in enumerate(self.pieces) if piece.role == "user" and not piece.host and not piece.only]
        if user_messages > 0 and own:
            del self.pieces[own[max(0, len(own) - user_messages)] :]

    def finish(
        self, client: Client, log: Mapping[int, LogLine], *, system: str | None = None, part: int | None = None
    ) -> Transcript:
        """Return the conversation as a transcript.

        `log`: the lines of the log by number. `part`: index of the part to return; None for the whole conversation.

        Raises:
            TranscriptError: There are no messages, or no such part.
        """
        if not self.pieces:
            raise TranscriptError(f"{self.name}: expected messages of a user and an assistant, found none")
        whole = [piece for piece in self.pieces if piece.only != "part"]
        chosen = list(self.answered(whole if part is None else self._part(part)))
        self.note(self.blank, "blank text of the assistant is left out")
        if part is None:
            reading = "what came before is read as well (part=-1 reads only what its context holds now)"
            self.note(list(self._compactions), f"the agent compacted here; {reading}")
        messages = [piece.message for piece in chosen]
        places = [f"{self.name}, line {min(piece.lines)}" for piece in chosen]
        return Transcript(
            messages=messages,
            system=system,
            tools=None,
            task=guess_task(messages, {i for i, piece in enumerate(chosen) if piece.host}),
            format=client.name,
            warnings=(*self.warnings, *pairing_warnings(messages, places)),
            source={
                "path": self._path,
                "log": log,
                "lines": tuple(() if p.is_mended else tuple(dict.fromkeys(p.lines)) for p in chosen),
            },
            client=client,
        )

    def _part(self, part: int) -> list[GrowingMessage]:
        """Return the pieces of one part. The first one is the summary of the compaction before it, if there was one;
        the pieces that this compaction left unchanged follow it."""
        count = len(self._compactions) + 1
        if not -count <= part < count:
            raise TranscriptError(f"{self.name}: no part {part}; the session has {count} (0 to {count - 1})")
        number = part % count
        own = [piece for piece in self.pieces if piece.part == number and piece.only != "whole"]
        lines = [frozenset[int](), *self._compactions.values()][number]
        carried = [piece for piece in self.pieces if piece.part < number and lines & set(piece.lines)]
        return [*own[:1], *carried, *own[1:]]


def marked_as_host(text: str) -> str:
    """Return `text`, which the host wrote into a user's message, between tags that mark it as the host's."""
    return text if is_host_text(text) else f"<system-reminder>\n{text}\n</system-reminder>"


def _line_numbers(numbers: Sequence[int]) -> str:
    """Return line numbers for people: ``line 3``, ``lines 7-9``, ``7 lines from 10 to 90``."""
    first, last = numbers[0], numbers[-1]
    if last - first >= len(numbers):
        return f"{len(numbers)} lines from {first} to {last}"
    return f"line {first}" if first == last else f"lines {first}-{last}"


class Origins:
    """Lines of a session log from which the messages of a view came, and the id of the new session."""

    def __init__(self, messages: Sequence[Message], like: Transcript, session_id: str) -> None:
        """Match `messages`, those of a view, with the session log `like`. An empty `session_id` is replaced by an id
        made from the view."""
        content = "".join(map(message_digest, messages))
        self.session_id = session_id or str(uuid5(NAMESPACE_URL, f"compactor:{like.source['path']}:{content}"))
        self.log: Mapping[int, LogLine] = like.source["log"]
        times = (line["timestamp"] for line in self.log.values() if isinstance(line.get("timestamp"), str))
        self.start: str = next(times, _NO_TIME)
        self._lines: dict[str, deque[list[LogLine]]] = defaultdict(deque)
        self._texts: set[str] = set()
        for message, numbers in zip(like.messages, like.source["lines"], strict=True):
            self._lines[message_digest(message)].append([self.log[number] for number in numbers])
            self._texts.update(str(block.get("text")) for block in blocks(message) if block["type"] == "text")

    def lines_of(self, message: Message) -> list[LogLine]:
        """Return the lines of `message` in the log; an empty list if it has none. If the log has the message several
        times, each call returns the lines of the next one."""
        known = self._lines.get(message_digest(message))
        return known.popleft() if known else []

    def is_new(self, block: Block) -> bool:
        """Return True if `block` is text written by a compaction."""
        return block["type"] == "text" and block.get("text") not in self._texts


_logger = logging.getLogger("applier.session")
_KIND_NAME = re.compile(r"[\w.-]{1,40}")
"""``shell_call``; a longer text may quote the conversation."""


def opaque_block(kind: str, carried: Any) -> Block:
    """Return a block that carries the JSON data `carried`, which has an unknown `kind`. Log each kind once."""
    _warn_once(kind if _KIND_NAME.fullmatch(kind) else "item")
    return {"type": OPAQUE, "carried": carried}


def carried_by(block: Block) -> Any:
    """Return the data that an opaque block carries."""
    return block["carried"]


@cache
def _warn_once(kind: str) -> None:
    _logger.warning("each %s stays as it is: its kind is unknown; all around it is compacted", kind)
