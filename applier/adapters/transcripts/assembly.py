"""Builds messages from the pieces a session log writes them in.

Decides only what the log's form forces: the lines of one answer of the API become one assistant message, the
results of its calls one user message behind it, in the order of the calls. Everything else stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from applier.adapters.transcripts.document import Document
from applier.adapters.transcripts.task import guess_task
from applier.adapters.transcripts.transcript import Format, Transcript, pairing_warnings
from planner.errors import TranscriptError
from planner.reading.messages import Block, Message

__all__ = ["Assembly", "Only", "line_ranges"]

Only = Literal["", "whole", "part"]
"""Whether a message is for readers of the whole session only, or of one part only: a log repeats some."""


@dataclass
class _Piece:
    """One message in the making, and the results that answer it."""

    role: str
    content: str | list[Block]
    lines: list[int]
    timestamp: float | None
    host: bool
    """True if the host wrote it, not the user."""
    part: int
    """How often the agent had compacted before."""
    only: Only = ""
    calls: list[str] = field(default_factory=list)
    answers: _Piece | None = None

    @property
    def message(self) -> Message:
        return {"role": self.role, "content": self.content}


@dataclass
class Assembly:
    """A conversation in the making; lines arrive in the order of the log."""

    name: str
    pieces: list[_Piece] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    compactions: list[int] = field(default_factory=list)
    """Lines at which the agent compacted its own context."""
    carried: dict[int, frozenset[int]] = field(default_factory=dict)
    """By part: the lines of earlier messages that the compaction before it left as they were."""
    _groups: dict[str, _Piece] = field(default_factory=dict)
    _asked: dict[str, _Piece] = field(default_factory=dict)
    _blank: list[int] = field(default_factory=list)

    def assistant(self, group: str, content: Iterable[Block], line: int, timestamp: float | None) -> None:
        """Blocks of the assistant; those of one `group` are one answer of the API."""
        piece = self._groups.get(group)
        if piece is None:
            piece = self._groups[group] = self._add("assistant", [], line, timestamp)
        else:
            piece.lines.append(line)
        assert isinstance(piece.content, list)
        for block in content:
            if block["type"] == "text" and not str(block.get("text", "")).strip():
                self._blank.append(line)
                continue
            piece.content.append(block)
            if block["type"] == "tool_use":
                piece.calls.append(str(block.get("id")))
                self._asked[str(block.get("id"))] = piece

    def user(
        self,
        content: str | list[Block],
        line: int,
        timestamp: float | None,
        *,
        host: bool = False,
        only: Only = "",
    ) -> None:
        """Words of the user (or of the host, `host`), results among them."""
        if isinstance(content, list):
            content = self._unanswered(content, line, timestamp)
        if content and not (isinstance(content, str) and content.isspace()):
            self._add("user", content, line, timestamp, host, only)

    def compacted(self, line: int, carried: frozenset[int] = frozenset()) -> None:
        """The agent compacted its context here, all but the lines `carried`; what follows is a new part."""
        self.compactions.append(line)
        self.carried[len(self.compactions)] = carried

    def roll_back(self, user_messages: int) -> None:
        """Forget everything from the last `user_messages`-th words of the user on."""
        own = [i for i, piece in enumerate(self.pieces) if piece.role == "user" and not piece.host and not piece.only]
        if user_messages > 0 and own:
            del self.pieces[own[max(0, len(own) - user_messages)] :]

    def finish(
        self,
        format_: Format,
        document: Document,
        log: Mapping[int, dict[str, Any]],
        *,
        system: str | None = None,
        part: int | None = None,
    ) -> Transcript:
        """The conversation; only its `part`-th part between compactions if one is named.

        `log`: by number, the lines of `document` that a log of this conversation would begin from.

        Raises:
            TranscriptError: there is no such part, or nothing was said in the whole log.
        """
        if not self.pieces:
            raise TranscriptError(f"{self.name}: expected messages of a user and an assistant, found none")
        chosen = list(_ordered(self._whole() if part is None else self._part(part)))
        messages = [piece.message for piece in chosen]
        lines = [sorted(set(piece.lines)) for piece in chosen]
        places = [f"{self.name}, line {numbers[0]}" for numbers in lines]
        return Transcript(
            messages=messages,
            system=system,
            tools=None,
            task=guess_task(messages, {i for i, piece in enumerate(chosen) if piece.host}),
            format=format_,
            warnings=(*self._notes(part), *pairing_warnings(messages, places)),
            timestamps=tuple(piece.timestamp for piece in chosen),
            source={"path": document.path, "lines": tuple(map(tuple, lines)), "log": log},
        )

    def _add(
        self,
        role: str,
        content: str | list[Block],
        line: int,
        timestamp: float | None,
        host: bool = False,
        only: Only = "",
    ) -> _Piece:
        piece = _Piece(role, content, [line], timestamp, host, len(self.compactions), only)
        self.pieces.append(piece)
        return piece

    def _unanswered(self, content: list[Block], line: int, timestamp: float | None) -> list[Block]:
        """What of `content` is a message of its own: results, and words beside them, join the calls they answer."""
        askers = [self._asked.get(str(b.get("tool_use_id"))) if b["type"] == "tool_result" else None for b in content]
        last = next((asker for asker in reversed(askers) if asker), None)
        if last is None:
            return content
        for block, asker in zip(content, askers, strict=True):
            if asker is None and block["type"] == "tool_result":
                continue
            self._answer(asker or last, block, line, timestamp)
        return [b for b, asker in zip(content, askers, strict=True) if asker is None and b["type"] == "tool_result"]

    def _answer(self, asker: _Piece, block: Block, line: int, timestamp: float | None) -> None:
        if asker.answers is None:
            asker.answers = _Piece("user", [], [], timestamp, True, asker.part)
        assert isinstance(asker.answers.content, list)
        asker.answers.content.append(block)
        asker.answers.lines.append(line)
        asker.answers.timestamp = timestamp

    def _whole(self) -> list[_Piece]:
        return [piece for piece in self.pieces if piece.only != "part"]

    def _part(self, part: int) -> list[_Piece]:
        """The pieces of one part; what its compaction left as it was stands behind the summary."""
        count = len(self.compactions) + 1
        if not -count <= part < count:
            raise TranscriptError(f"{self.name}: no part {part}; the session has {count} (0 to {count - 1})")
        number = part % count
        own = [piece for piece in self.pieces if piece.part == number and piece.only != "whole"]
        lines = self.carried.get(number, frozenset())
        carried = [piece for piece in self.pieces if piece.part < number and lines & set(piece.lines)]
        return [*own[:1], *carried, *own[1:]]

    def _notes(self, part: int | None) -> Iterable[str]:
        yield from self.warnings
        if self._blank:
            yield f"{self.name}, {line_ranges(self._blank)}: blank text of the assistant is left out"
        if self.compactions and part is None:
            yield (
                f"{self.name}, {line_ranges(self.compactions)}: the agent compacted here; what came before "
                "is read as well (part=-1 reads only what its context holds now)"
            )


def _ordered(pieces: Iterable[_Piece]) -> Iterable[_Piece]:
    """`pieces`, each with the results that answer it behind it, those in the order of the calls."""
    for piece in pieces:
        if piece.content:
            yield piece
        if piece.answers is not None:
            order = {call: i for i, call in enumerate(piece.calls)}
            assert isinstance(piece.answers.content, list)
            piece.answers.content.sort(key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
            yield piece.answers


def line_ranges(numbers: Sequence[int]) -> str:
    """Line numbers for people: ``lines 3, 7-9``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"line{'s' if len(set(numbers)) > 1 else ''} {text}"
