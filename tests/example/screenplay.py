"""A screenplay: what the scripted model says and calls, and what its user says, read from text files.

Lines that start with ``@@`` are marks: ``user`` (their words), ``say`` (a new answer, which may hold calls),
``bash`` / ``read`` / ``write`` / ``edit … with`` / any other tool with ``name=value`` (a call, in an answer of
its own; with ``&`` before it in parallel to the one above), ``refused`` and ``meanwhile`` (what the user says of
that call). What stands between two marks is the text, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

DETECTORS = (
    ("slow_requests", "took", "> 5", "requests over five seconds"),
    ("lost_clients", "status", "= -", "clients that went away"),
    ("large_bodies", "size", "> 1000000", "answers over a million bytes"),
    ("order_errors", "status", "= 500", "failures of the order store"),
    ("anonymous_calls", "user", "= -", "calls without a user"),
    ("kiosk_clients", "agent", '~ "Kiosk"', "calls from kiosks"),
    ("edge_traffic", "host", '= "edge-9"', "calls through the edge"),
    ("login_calls", "path", '= "/login"', "logins"),
)
"""What the rounds after the written chapters add, one each; then the same again with a number."""


@dataclass
class Call:
    """One tool call and what the user has to say of it."""

    name: str
    input: dict[str, Any]
    refused: str | None = None
    meanwhile: str | None = None


@dataclass
class Line:
    """One answer of the model (with or without calls), or the user's words."""

    speaker: str
    text: str = ""
    calls: list[Call] = field(default_factory=list)


Screenplay = list[Line]


def load_screenplay(folder: Path, rounds: int = 0) -> tuple[list[Call], Screenplay]:
    """The calls that set the stage, and the play: every chapter in `folder`, then `rounds` of its round."""
    seed, *chapters = [_lines(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("[0-9]*.txt"))]
    play = [line for chapter in chapters for line in chapter]
    if rounds:
        pattern = Template((folder / "round.txt").read_text(encoding="utf-8"))
        for number in range(rounds):
            play += _lines(pattern.substitute(_round(number)))
    return [call for line in seed for call in line.calls], play


def _round(number: int) -> dict[str, str]:
    name, column, test, title = DETECTORS[number % len(DETECTORS)]
    again = number // len(DETECTORS)
    name = f"{name}_{again + 1}" if again else name
    return {"name": name, "field": column, "test": test, "title": title, "number": str(number + 1)}


def _lines(text: str) -> Screenplay:
    play: Screenplay = []
    for scene in ("\n" + text.rstrip("\n")).split("\n@@ ")[1:]:
        mark, _, body = scene.partition("\n")
        _add(play, mark.split(), body.rstrip("\n") if mark.startswith(("user", "say")) else body)
    return play


def _add(play: Screenplay, mark: list[str], body: str) -> None:
    kind, *rest = mark
    if kind in ("user", "say"):
        play.append(Line(kind, body))
        return
    if kind == "with":
        play[-1].calls[-1].input["new_string"] = body
    elif kind in ("refused", "meanwhile"):
        setattr(play[-1].calls[-1], kind, body.strip())
    elif kind == "&":
        play[-1].calls.append(Call(rest[0], _input(rest[0], rest[1:], body)))
    else:
        if play[-1].calls:
            play.append(Line("say"))
        play[-1].calls.append(Call(kind, _input(kind, rest, body)))


def _input(kind: str, rest: list[str], body: str) -> dict[str, Any]:
    if kind == "bash":
        return {"command": body.rstrip("\n")}
    if kind == "read":
        return {"path": rest[0], **dict(zip(("offset", "limit"), map(int, rest[1:]), strict=False))}
    if kind == "write":
        return {"path": rest[0], "content": body + "\n" if body else ""}
    if kind == "edit":
        return {"path": rest[0], "old_string": body, "new_string": ""}
    return {name: value.replace("|", " ") for name, value in (given.split("=") for given in rest)}
