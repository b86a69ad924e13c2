"""What the session logs of all clients share: messages are put together from lines, and known lines are found again.

Reading, decides only what a log's form forces: the lines of one answer of the API become one assistant message, the
results of its calls one user message behind it, in the order of the calls. Everything else stays where it is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from applier.adapters.transcripts.document import Document
from applier.adapters.transcripts.transcript import Client, Transcript, guess_task, pairing_warnings
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message, blocks, call_ids, message_digest

__all__ = ["Assembly", "LogLine", "Only", "Origins"]

LogLine = dict[str, Any]
Only = Literal["", "whole", "part"]
"""Whether a message is for readers of the whole session only, or of one part only: a log repeats some."""
_NO_TIME = "1970-01-01T00:00:00.000Z"


@dataclass
class _Piece:
    """One message in the making, and the results that answer it."""

    role: str
    content: str | list[Block]
    lines: list[int]
    host: bool
    """True if the host wrote it, not the user."""
    part: int
    """How often the agent had compacted before."""
    only: Only = ""
    results: list[Block] = field(default_factory=list)
    result_lines: list[int] = field(default_factory=list)

    @property
    def message(self) -> Message:
        return {"role": self.role, "content": self.content}


class Assembly:
    """A conversation in the making; lines arrive in the order in which they were spoken."""

    def __init__(self, document: Document) -> None:
        """Of the lines of `document`."""
        self.name, self._path = document.name, document.path
        self.pieces: list[_Piece] = []
        self.warnings = [f"{document.torn}; left out"] if document.torn else []
        self._compactions: list[int] = []
        self._carried: dict[int, frozenset[int]] = {}
        self._groups: dict[str, _Piece] = {}
        self._asked: dict[str, _Piece] = {}
        self._blank: list[int] = []

    def note(self, numbers: Sequence[int], what: str) -> None:
        """Warn that the lines `numbers` are `what`, if there are any."""
        if numbers:
            self.warnings.append(f"{self.name}, {_line_numbers(sorted(set(numbers)))}: {what}")

    def assistant(self, group: str, content: Sequence[Block], line: int) -> None:
        """Blocks of the assistant; those of one `group` are one answer of the API."""
        spoken = [block for block in content if block["type"] != "text" or str(block.get("text", "")).strip()]
        if len(spoken) < len(content):
            self._blank.append(line)
        if not spoken:
            return
        piece = self._groups.get(group)
        if piece is None:
            piece = self._groups[group] = _Piece("assistant", [], [], False, len(self._compactions))
            self.pieces.append(piece)
        assert isinstance(piece.content, list)
        piece.content += spoken
        piece.lines.append(line)
        self._asked.update((str(block.get("id")), piece) for block in spoken if block["type"] == "tool_use")

    def user(self, content: str | list[Block], line: int, *, host: bool = False, only: Only = "") -> None:
        """Words of the user (or of the host, `host`), results among them."""
        if isinstance(content, list):
            content = self._unanswered(content, line)
        if content and not (isinstance(content, str) and content.isspace()):
            self.pieces.append(_Piece("user", content, [line], host, len(self._compactions), only))

    def compacted(self, line: int, carried: frozenset[int] = frozenset()) -> None:
        """The agent compacted its context here, all but the lines `carried`; what follows is a new part."""
        self._compactions.append(line)
        self._carried[len(self._compactions)] = carried

    def roll_back(self, user_messages: int) -> None:
        """Forget everything from the last `user_messages`-th words of the user on."""
        own = [i for i, piece in enumerate(self.pieces) if piece.role == "user" and not piece.host and not piece.only]
        if user_messages > 0 and own:
            del self.pieces[own[max(0, len(own) - user_messages)] :]

    def finish(
        self, client: Client, log: Mapping[int, LogLine], *, system: str | None = None, part: int | None = None
    ) -> Transcript:
        """The conversation; only its `part`-th part between compactions if one is named.

        `log`: by number, the lines that a log of this conversation would begin from.

        Raises:
            TranscriptError: there is no such part, or nothing was said in the whole log.
        """
        if not self.pieces:
            raise TranscriptError(f"{self.name}: expected messages of a user and an assistant, found none")
        whole = [piece for piece in self.pieces if piece.only != "part"]
        chosen = list(_answered(whole if part is None else self._part(part)))
        self.note(self._blank, "blank text of the assistant is left out")
        if part is None:
            reading = "what came before is read as well (part=-1 reads only what its context holds now)"
            self.note(self._compactions, f"the agent compacted here; {reading}")
        messages = [piece.message for piece in chosen]
        places = [f"{self.name}, line {min(piece.lines)}" for piece in chosen]
        return Transcript(
            messages=messages,
            system=system,
            tools=None,
            task=guess_task(messages, {i for i, piece in enumerate(chosen) if piece.host}),
            format=client.name,
            warnings=(*self.warnings, *pairing_warnings(messages, places)),
            source={"path": self._path, "log": log, "lines": tuple(tuple(dict.fromkeys(p.lines)) for p in chosen)},
            client=client,
        )

    def _unanswered(self, content: list[Block], line: int) -> list[Block]:
        """What of `content` is a message of its own: results, and words beside them, join the calls they answer."""
        askers = [self._asked.get(str(b.get("tool_use_id"))) if b["type"] == "tool_result" else None for b in content]
        last = next((asker for asker in reversed(askers) if asker), None)
        if last is None:
            return content
        own = []
        for block, asker in zip(content, askers, strict=True):
            if asker is None and block["type"] == "tool_result":
                own.append(block)
            else:
                (asker or last).results.append(block)
                (asker or last).result_lines.append(line)
        return own

    def _part(self, part: int) -> list[_Piece]:
        """The pieces of one part; what its compaction left as it was stands behind the summary."""
        count = len(self._compactions) + 1
        if not -count <= part < count:
            raise TranscriptError(f"{self.name}: no part {part}; the session has {count} (0 to {count - 1})")
        number = part % count
        own = [piece for piece in self.pieces if piece.part == number and piece.only != "whole"]
        lines = self._carried.get(number, frozenset())
        carried = [piece for piece in self.pieces if piece.part < number and lines & set(piece.lines)]
        return [*own[:1], *carried, *own[1:]]


def _answered(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """`pieces`, each with one message of the results that answer it behind it, those in the order of the calls."""
    for piece in pieces:
        yield piece
        if piece.results:
            order = {name: at for at, name in enumerate(call_ids(piece.message))}
            piece.results.sort(key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
            yield _Piece("user", piece.results, piece.result_lines, True, piece.part)


def _line_numbers(numbers: Sequence[int]) -> str:
    """For people: ``line 3``, ``lines 7-9``, ``7 lines from 10 to 90``."""
    first, last = numbers[0], numbers[-1]
    if last - first >= len(numbers):
        return f"{len(numbers)} lines from {first} to {last}"
    return f"line {first}" if first == last else f"lines {first}-{last}"


class Origins:
    """Which lines of the log `like` the messages of a view came from, and under which id it is written."""

    def __init__(self, messages: Sequence[Message], like: Transcript, session_id: str) -> None:
        """`like` is the transcript of a session log; an empty `session_id` is one that follows from the view."""
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
        """The lines behind `message`, each time those of its next occurrence; none if it is not from the log."""
        known = self._lines.get(message_digest(message))
        return known.popleft() if known else []

    def wrote(self, message: Message) -> bool:
        """True if some text of `message` is from the log: it is not only a compaction's own words."""
        return any(block["type"] != "text" or block.get("text") in self._texts for block in blocks(message))
