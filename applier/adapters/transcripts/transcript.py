"""Defines `Transcript`, a conversation read from a file, and builds one from an agent's session log.

Log lines of one answer of the API become one assistant message. The results of its tool calls become one user message
after it, in the order of the calls, because the API demands this. A call without a result, or the reverse, gets a
warning. A part of a session is what lies between two compactions by the agent itself. Content of an unknown kind
becomes an opaque block, which is passed on unchanged.
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
"""Fewest words of a user's text that may be a task: shorter ones ("yes", "go on", "please push") answer something."""
LONGEST_CHARACTERS = 2_000
"""Length at which a guessed task is cut, because what follows is usually pasted material."""
SEARCHED_CHARACTERS = 50_000
"""Number of characters at the start of a text in which the user's own words are searched, to limit the time."""

_ANSWER = re.compile(
    r"\W*(?:thanks|thank you|great|perfect|awesome|nice|that'?s all|no,? that|yes|yep|sure|correct)\b", re.I
)
"""Beginning of a text that replies to the agent: ``Thanks, …``, ``Yes``; not ``Yesterday …``."""
LONGEST_ANSWER_WORDS = 25
"""Number of words from which even a text that begins like a reply ("thanks, now …") is taken for a task."""
_UNPAIRED = frozenset(("unanswered_call", "uncalled_result"))
"""Codes of `check_messages` for a tool call without a result and a result without a call."""


class Format(Protocol):
    """File format of conversations, such as a log of Codex: recognises its files, reads them and writes them."""

    @property
    def name(self) -> str:
        """Name of the format for programs: ``claude_code``. `Transcript.format` begins with it."""

    @property
    def title(self) -> str:
        """Name of the format for people: ``a session of Claude Code``."""

    def detects(self, document: Document) -> bool:
        """Return True if the content of `document` has this format."""

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the conversation in `document`. `part`: index of one part of a session, or of one of several message
        lists; None for the whole session, or the first list."""

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        """Return `messages` as the text of a file in this format. Everything else in the file is copied from the
        transcript `like`. `session_id`: id of the new session; empty to derive it from `messages`."""


class Client(Format, Protocol):
    """Format of the session logs of a coding agent (the client), which can resume a session from a log written here."""

    def log_name(self, session_id: str, now: datetime) -> str:
        """Return the file name that the client gives to the log of a session that begins at `now`."""

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:
        """Return the folder where the client keeps the log of a session that begins in `working_folder` at `now`."""

    def logs(self, working_folder: str, environment: Mapping[str, str]) -> Iterator[Path]:
        """Yield the logs of the client's sessions that worked in `working_folder`; of all sessions if it is empty."""

    def finds(self, place: Path, in_place: Path) -> bool:
        """Return True if the client can resume a log saved at `place`. `in_place`: the path it would choose itself."""

    def resume_command(self, session_id: str) -> str:
        """Return the shell command by which a user continues the session: ``codex resume 0199-…``."""


@dataclass(frozen=True)
class Transcript:
    """One conversation, read from a file of any format and converted to Anthropic messages."""

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
    """Agent program that can resume a session from this log; None if the file is no session log."""

    @property
    def working_folder(self) -> str:
        """Folder in which the session last worked; empty if its log names none."""
        for line in reversed(self.source.get("log", {}).values()):
            folder = line.get("cwd") or (line.get("payload") or {}).get("cwd")
            if isinstance(folder, str):
                return folder
        return ""


def guess_task(messages: Sequence[Message], skip: Collection[int] = ()) -> str:
    """Return the user's newest text that sets a task. If no text does, return their first text, or an empty one.

    Text that the agent's program (the host) inserted into the user's messages is ignored. `skip`: indexes of messages
    that it wrote as a whole.
    """
    indexes = [i for i in range(len(messages)) if i not in skip]
    newest_first = (text for i in reversed(indexes) for text in reversed(list(_typed_texts(messages[i]))))
    task = next(filter(_sets_a_task, newest_first), None)
    if task is None:
        task = next((text for i in indexes for text in _typed_texts(messages[i])), "")
    return task if len(task) <= LONGEST_CHARACTERS else task[:LONGEST_CHARACTERS].rstrip() + " …"


def _sets_a_task(text: str) -> bool:
    """Return True if a user's `text` is long enough for a task and is not only a reply: ``Thanks, that works now``."""
    words = len(text.split())
    is_answer = words < LONGEST_ANSWER_WORDS and _ANSWER.match(text) and "?" not in text
    return words >= FEWEST_WORDS and not is_answer


def _typed_texts(message: Message) -> Iterator[str]:
    """Yield what the user typed in `message`, one text for each block, without insertions by the agent's program."""
    for block in blocks(message) if message["role"] == "user" else ():
        if block["type"] == "text" and isinstance(block.get("text"), str):
            history = read_history([{"role": "user", "content": block["text"][:SEARCHED_CHARACTERS]}])
            words = join_lines(own_words(turn_lines(history, history.turns[0]))).strip()
            if words:
                yield words


def pairing_warnings(messages: Sequence[Message], places: Sequence[str]) -> list[str]:
    """Return a warning for each tool call without a result and each misplaced result. `places`: the place of each
    message for people, such as ``log.jsonl, line 7``."""
    problems: list[tuple[int, str]] = []  # each with the index of the message
    for violation in check_messages(messages, rules=CALL_RULES):
        at = violation.message
        # of several late results in a message one is reported
        is_first_late = violation.code == "late_result" and at not in dict(problems)
        if violation.code in _UNPAIRED or is_first_late:
            is_open = violation.code == "unanswered_call" and at == len(messages) - 1
            problems.append((at, violation.problem + (", for it is the last" if is_open else "")))
    for at, message in enumerate(messages):  # results that `Pairing.with_results` replaced by a note
        lost = [block.get("tool_use_id") for block in blocks(message) if block.get("content") == LOST_RESULT]
        problems += [(at, f"call {call} has no result; a note replaces it") for call in lost]
    return [f"{places[at]}: {problem}" for at, problem in sorted(problems)]


LogLine = dict[str, Any]
OnlyIn = Literal["", "whole", "part"]
"""Restriction of a message to one way of reading a log: ``whole``, only if the whole session is read; ``part``, only if
one part is read alone. After a compaction a log repeats messages, which must not appear twice in the whole session."""
_NO_TIME = "1970-01-01T00:00:00.000Z"


@dataclass
class GrowingMessage:
    """Message under construction from log lines, with the results of its tool calls that were read so far."""

    role: str
    content: str | list[Block]
    lines: list[int]
    """Numbers of the log lines from which the message is built."""
    from_host: bool = False
    """True for a user's message that the agent's program wrote, not the person."""
    part: int = 0
    """Number of compactions by the agent before this message."""
    only_in: OnlyIn = ""
    results: list[Block] = field(default_factory=list)
    """Results of the tool calls in the message; they become the user's message after it."""
    result_lines: list[int] = field(default_factory=list)
    """Numbers of the log lines with the results of the message's tool calls."""
    is_mended: bool = False
    """True if the message differs from its log lines, because a call or a result was missing."""

    @property
    def message(self) -> Message:
        """Message as built so far, without the results of its calls."""
        return {"role": self.role, "content": self.content}

    @property
    def unanswered(self) -> list[str]:
        """Ids of the tool calls in the message that have no result yet."""
        answered = {*result_ids({"role": "user", "content": self.results})}
        calls = (str(block.get("id")) for block in blocks(self.message) if block["type"] == "tool_use")
        return [call for call in dict.fromkeys(calls) if call not in answered]


class Pairing:
    """Builder of a conversation: takes the content of a log line by line, and puts each tool result after its call."""

    def __init__(self) -> None:
        """Begin without messages."""
        self.pieces: list[GrowingMessage] = []
        """Messages under construction, in order."""
        self.part = 0
        """Number of compactions by the agent that were read so far."""
        self.blank: list[int] = []
        """Numbers of lines where a text of the assistant is blank and therefore left out."""
        self._groups: dict[str, GrowingMessage] = {}
        """Assistant messages by the id of the API's answer that their lines share."""
        self._callers: dict[str, GrowingMessage] = {}
        """Assistant messages by the ids of the tool calls in them."""

    def add_assistant(self, content: Sequence[Block], line: int, group: str = "", *, late: bool = False) -> None:
        """Add blocks of the assistant from the log line number `line`. Blocks with the same `group` form one message.

        Without a group, the blocks continue the newest message if it is the assistant's and no result for it was read.
        With `late`, they also continue it as long as one of its calls has no result, as Codex logs parallel calls.
        """
        spoken = [block for block in content if block["type"] != "text" or str(block.get("text", "")).strip()]
        if len(spoken) < len(content):
            self.blank.append(line)
        if not spoken:
            return
        piece = self._groups.get(group)
        last = self.pieces[-1] if self.pieces else None
        if not group and last is not None and last.role == "assistant" and last.part == self.part:
            piece = last if not last.results or (late and last.unanswered) else None
        if piece is None:
            piece = GrowingMessage("assistant", [], [], part=self.part)
            self.pieces.append(piece)
            if group:
                self._groups[group] = piece
        assert isinstance(piece.content, list)
        piece.content += spoken
        piece.lines.append(line)
        self._callers.update((str(block.get("id")), piece) for block in spoken if block["type"] == "tool_use")

    def add_user(
        self,
        content: str | list[Block],
        line: int,
        *,
        from_host: bool = False,
        only_in: OnlyIn = "",
        joins: bool = False,
    ) -> None:
        """Add the content of a user's message from the log line number `line`. Tool results in it are attached to the
        messages with their calls.

        `from_host`: True if the agent's program wrote the text, not the person. `joins`: True to continue the newest
        message if it is a user's in the same part. `only_in`: way of reading the log in which the message appears.
        """
        before = self.pieces[-1] if joins and self.pieces else None
        if before is not None and before.role == "user" and before.part == self.part:
            before.content = [*blocks(before.message), *blocks({"role": "user", "content": content})]
            before.lines.append(line)
            return
        is_mended = False
        if isinstance(content, list):
            callers = [
                self._callers.get(str(b.get("tool_use_id"))) if b["type"] == "tool_result" else None for b in content
            ]
            last_caller = next(filter(None, reversed(callers)), None)
            remaining = []
            for block, caller in zip(content, callers, strict=True):
                is_result = block["type"] == "tool_result"
                receiver = caller if is_result else last_caller  # text sent with results stays in their message
                if receiver is not None:
                    receiver.results.append(block)
                    receiver.result_lines.append(line)
                else:  # a result without a call becomes a text
                    remaining.append(lost_call(block) if is_result else block)
                    is_mended = is_mended or is_result
            content = remaining
        if content and not (isinstance(content, str) and content.isspace()):
            self.pieces.append(
                GrowingMessage("user", content, [line], from_host or is_mended, self.part, only_in, is_mended=is_mended)
            )

    def with_results(self, pieces: Iterable[GrowingMessage] | None = None) -> Iterator[GrowingMessage]:
        """Yield each message of `pieces` (default: all), followed by a user's message with the results of its calls, in
        the order of the calls. A call without a result gets a note in its place, except in the last message, where it
        may still be running."""
        chosen = list(self.pieces if pieces is None else pieces)
        for at, piece in enumerate(chosen):
            yield piece
            lost = [] if at == len(chosen) - 1 else piece.unanswered
            results, lines = [*piece.results, *map(lost_result, lost)], piece.result_lines or piece.lines
            if results:
                order = {name: number for number, name in enumerate(call_ids(piece.message))}
                results.sort(key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
                yield GrowingMessage("user", results, lines, from_host=True, part=piece.part, is_mended=bool(lost))


class Assembly(Pairing):
    """Builder of a `Transcript` from a session log: also records its warnings and the agent's compactions."""

    def __init__(self, document: Document) -> None:
        """Begin with the name of the log `document` and the warnings about its damaged lines; read no message."""
        super().__init__()
        self.name, self._path = document.name, document.path
        self.warnings = document.damage_notes
        self._compactions: dict[int, frozenset[int]] = {}
        """Lines where the agent compacted, each with the numbers of the earlier lines that it kept unchanged."""

    def warn(self, line_numbers: Sequence[int], problem: str) -> None:
        """Add one warning about all `line_numbers`, if any: ``log.jsonl, lines 7-9: <problem>``."""
        if not line_numbers:
            return
        numbers = sorted(set(line_numbers))
        first, last = numbers[0], numbers[-1]
        where = f"line {first}" if first == last else f"lines {first}-{last}"
        if last - first >= len(numbers):  # there are other lines between them
            where = f"{len(numbers)} lines from {first} to {last}"
        self.warnings.append(f"{self.name}, {where}: {problem}")

    def begin_part(self, line: int, unchanged: frozenset[int] = frozenset()) -> None:
        """Begin a new part of the session, because the agent compacted its context at `line`. `unchanged`: numbers of
        earlier lines that stayed in the context as they were."""
        self._compactions[line] = unchanged
        self.part = len(self._compactions)

    def roll_back(self, user_messages: int) -> None:
        """Remove the newest `user_messages` messages of the user with all that follows, as the user went back there."""
        typed = [i for i, p in enumerate(self.pieces) if p.role == "user" and not (p.from_host or p.only_in)]
        if user_messages > 0 and typed:
            del self.pieces[typed[max(0, len(typed) - user_messages)] :]

    def finish(
        self, client: Client, log: Mapping[int, LogLine], *, system: str | None = None, part: int | None = None
    ) -> Transcript:
        """Return the finished transcript, with warnings about missing results.

        `log`: the lines of the log by number. `part`: index of the part to return; None for the whole session.

        Raises:
            TranscriptError: There are no messages, or no such part.
        """
        if not self.pieces:
            raise TranscriptError(f"{self.name}: expected messages of a user and an assistant, found none")
        whole = [piece for piece in self.pieces if piece.only_in != "part"]
        chosen = list(self.with_results(whole if part is None else self._pieces_of_part(part)))
        self.warn(self.blank, "blank text of the assistant is left out")
        if part is None:
            reading = "what came before is read as well (part=-1 reads only what its context holds now)"
            self.warn(list(self._compactions), f"the agent compacted here; {reading}")
        messages = [piece.message for piece in chosen]
        places = [f"{self.name}, line {min(piece.lines)}" for piece in chosen]
        return Transcript(
            messages=messages,
            system=system,
            tools=None,
            task=guess_task(messages, {i for i, piece in enumerate(chosen) if piece.from_host}),
            format=client.name,
            warnings=(*self.warnings, *pairing_warnings(messages, places)),
            source={
                "path": self._path,
                "log": log,
                # a mended message has no lines, as a new log must not repeat the old ones
                "lines": tuple(() if p.is_mended else tuple(dict.fromkeys(p.lines)) for p in chosen),
            },
            client=client,
        )

    def _pieces_of_part(self, part: int) -> list[GrowingMessage]:
        """Return the messages that the agent's context held in one part of the session. After a compaction these are
        its summary, the earlier messages that it kept unchanged, and the messages written since."""
        count = len(self._compactions) + 1
        if not -count <= part < count:
            raise TranscriptError(f"{self.name}: no part {part}; the session has {count} (0 to {count - 1})")
        number = part % count
        written = [piece for piece in self.pieces if piece.part == number and piece.only_in != "whole"]
        unchanged = [frozenset[int](), *self._compactions.values()][number]
        carried = [piece for piece in self.pieces if piece.part < number and unchanged & set(piece.lines)]
        summary, since = written[:1], written[1:]
        return [*summary, *carried, *since]


def marked_as_host(text: str) -> str:
    """Return `text` in ``<system-reminder>`` tags, so that it does not count as the user's words: it is in their
    message, but the agent's program (the host) wrote it."""
    return text if is_host_text(text) else f"<system-reminder>\n{text}\n</system-reminder>"


class Origins:
    """Finder of the log lines that a message was read from, so that a new session log can repeat them unchanged.

    It also holds the id and the start time of the new session.
    """

    def __init__(self, messages: Sequence[Message], like: Transcript, session_id: str) -> None:
        """Index the log of the transcript `like`. An empty `session_id` is derived from the `messages` to write."""
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
        """Return the log lines of `message`; an empty list if it is not in the log. If the log contains an equal
        message several times, each call returns the lines of the next one."""
        known = self._lines.get(message_digest(message))
        return known.popleft() if known else []

    def is_new(self, block: Block) -> bool:
        """Return True if `block` is a text that is not in the old log: a compaction wrote it."""
        return block["type"] == "text" and block.get("text") not in self._texts


_logger = logging.getLogger("applier.session")
_KIND_NAME = re.compile(r"[\w.-]{1,40}")
"""Kind that is safe to log, such as ``shell_call``; a longer text may quote the conversation."""


def opaque_block(kind: str, carried: Any) -> Block:
    """Return a block that carries JSON data of an unknown `kind` unchanged through a compaction; log each kind once."""
    _warn_once(kind if _KIND_NAME.fullmatch(kind) else "item")
    return {"type": OPAQUE, "carried": carried}


@cache
def _warn_once(kind: str) -> None:
    _logger.warning("each %s stays as it is: its kind is unknown; all around it is compacted", kind)
