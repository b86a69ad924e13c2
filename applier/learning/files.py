"""The files in which learned lines stand, and whose lines they are: a diff is proposed, never more than what is new.

A line belongs to us while it stands as it was approved, letter by letter. What a person wrote, changed or deleted is
left as it is, for good. Reads and writes nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from hashlib import sha256

from applier.learning.lessons import Kind
from applier.learning.propose import Line, is_over

__all__ = ["FOLDER", "approved_lines", "digest_of", "file_of", "learned_lines", "merged"]

FOLDER = ".compactor/learned"
"""Below the project's folder."""
HEADINGS: Mapping[Kind, str] = {
    "decision": "## What was decided",
    "wish": "## What is wanted throughout",
    "error": "## Errors that came back",
}
_TITLE = (
    "<!-- Lines that `compactor learn` proposed and a person approved, each with conversation, turn and day. Change or "
    "delete what you like: it stays so. -->"
)
BEGIN, END = "<!-- compactor: learned -->", "<!-- compactor: end of learned -->"
"""Between these our lines stand in a file that holds more."""
_SOURCE = re.compile(r"[\w.-]+:t\d+")


def file_of(kind: Kind, into: str = "") -> str:
    """The file that lines of this kind stand in, relative to the project: all in `into`, if there is such a name."""
    return into or f"{FOLDER}/{'errors' if kind == 'error' else 'decisions'}.md"


def digest_of(line: str) -> str:
    """What stands for an approved line."""
    return sha256(line.strip().encode()).hexdigest()


def learned_lines(text: str) -> list[str]:
    """The lines of a file that may be ours: of one that holds more those between the marks."""
    return [line for line in _parts(text)[1].splitlines() if line.startswith("- ")]


def approved_lines(text: str, approved: Collection[str], today: date) -> list[str]:
    """Of these those that the person approved, by their digests, and that are not over."""
    standing = (line for line in learned_lines(text) if digest_of(line) in approved)
    return [line for line in standing if not _has_ended(text, line, today)]


def merged(text: str, lines: Sequence[Line], approved: Mapping[str, str], today: date, *, shared: bool = False) -> str:
    """`text` with `lines` in it. `approved`: by the key of each line that was ever approved the digest it had then;
    `shared`: the file holds more than ours.
    """
    before, own, behind = _parts(text)
    if shared and not behind:
        before, own, behind = f"{text.rstrip()}\n\n{BEGIN}\n".lstrip(), "", f"{END}\n"
    first = own.splitlines()
    rows = [*first] or ([] if shared else [_TITLE])
    theirs = [row for row in rows if digest_of(row) not in approved.values()]
    gone = {approved.get(line.replaced) for line in lines if line.key not in approved or _stands(line, rows, approved)}
    rows = [row for row in rows if digest_of(row) not in gone and (row in theirs or not _has_ended(own, row, today))]
    for line in lines:
        if _stands(line, rows, approved):
            at = next(at for at, row in enumerate(rows) if digest_of(row) == approved[line.key])
            rows[at] = line.line
        elif line.key not in approved and not _is_told(line, theirs):
            _put_in(rows, line)
    is_same = rows == first or not any(row.startswith("- ") for row in (*rows, *first))
    return text if is_same else before + "".join(f"{row}\n" for row in rows) + behind


def _stands(line: Line, rows: Sequence[str], approved: Mapping[str, str]) -> bool:
    """True if a form of `line` stands as it was approved."""
    return approved.get(line.key, "") in map(digest_of, rows)


def _parts(text: str) -> tuple[str, str, str]:
    """What stands before our lines, our lines, and what stands behind."""
    first, last = text.find(BEGIN), text.find(END)
    if first < 0 or last < first:
        return "", text, ""
    first = text.find("\n", first) + 1
    return text[:first], text[first:last], text[last:]


def _is_told(line: Line, rows: Sequence[str]) -> bool:
    """True if one of `rows`, which are a person's, cites its turn: he changed it so, or approved it elsewhere."""
    return any(row.startswith("- ") and line.sources[0].source in _SOURCE.findall(row) for row in rows)


def _put_in(rows: list[str], line: Line) -> None:
    heading = HEADINGS[line.kind]
    if heading not in rows:
        rows += [*([""] if rows else []), heading, ""]
    at = rows.index(heading) + 1
    while at < len(rows) and not rows[at].startswith("#"):
        at += 1
    while not rows[at - 1].strip() and at - 1 > rows.index(heading) + 1:
        at -= 1
    rows.insert(at, line.line)


def _has_ended(text: str, line: str, today: date) -> bool:
    """True if `line` stands below the heading of errors, and is over."""
    heading = ""
    for row in text.splitlines():
        heading = row if row.startswith("#") else heading
        if row == line:
            return heading == HEADINGS["error"] and is_over(line, today)
    return False
