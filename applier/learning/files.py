"""The files in which learned lines stand, and whose lines they are: a diff is proposed, never more than what is new.

A line belongs to us while it stands as it was approved, letter by letter. What a person wrote, changed or deleted is
left as it is, for good. Reads and writes nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from hashlib import sha256

from applier.learning.kinds import Kind, folded
from applier.learning.propose import Line, is_over

__all__ = ["HEADINGS", "INSTRUCTIONS", "approved_lines", "digest_of", "file_of", "is_told", "learned_lines", "merged"]

FOLDER = ".compactor/learned"
"""Below the project's folder."""
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", "README.md")
"""Which everybody who works on the project reads anyway."""
HEADINGS: Mapping[Kind, str] = {
    "decision": "## What was decided",
    "fact": "## What it took time to find out",
    "wish": "## What is wanted throughout",
    "command": "## How it is checked",
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


def learned_lines(text: str, *, shared: bool = False) -> list[str]:
    """The lines of a file that may be ours, but for those with a character that nobody sees; `shared`: it holds more
    than ours.
    """
    own = _parts(text, shared=shared)[1]
    return [line for line in own.splitlines() if line.startswith("- ") and line.isprintable()]


def approved_lines(text: str, approved: Collection[str], today: date) -> list[str]:
    """Of these those that the person approved, by their digests, and that are not over."""
    ended = _ended(text.splitlines(), today)
    return [line for line in learned_lines(text) if digest_of(line) in approved and line not in ended]


def is_told(line: Line, instructions: Sequence[str]) -> bool:
    """True for a wish or a command that stands to the letter in the project's instructions, outside of our marks."""
    words = line.sources[0].lesson.words
    apart = (part for text in instructions for part in _parts(text, shared=True)[::2])
    whole = re.compile(rf"(?<!\w){re.escape(words.strip('.'))}(?![\w:/-])", re.I)
    return line.kind in ("wish", "command") and any(whole.search(folded(part)) for part in apart)


def merged(text: str, lines: Sequence[Line], approved: Mapping[str, str], today: date, *, shared: bool = False) -> str:
    """`text` with `lines` in it. `approved`: the digest that each line had when it was approved, by the line's key;
    `shared`: the file holds more than ours.
    """
    before, own, behind = _parts(text, shared=shared)
    first = own.splitlines()
    rows = first or ([] if shared else [_TITLE])
    ours = set(approved.values()) & set(map(digest_of, rows))
    cited = set(_SOURCE.findall("\n".join(row for row in rows if row.startswith("- ") and digest_of(row) not in ours)))
    new = [line for line in lines if line.key not in approved and line.sources[0].source not in cited]
    forms = {approved[line.key]: line for line in lines if approved.get(line.key) in ours}
    gone = {approved.get(key) for line in (*new, *forms.values()) for key in line.replaced}
    gone |= (ours & set(map(digest_of, _ended(rows, today)))) - set(forms)
    kept = [(row, digest_of(row)) for row in rows]
    rows = [forms[digest].line if digest in forms else row for row, digest in kept if digest not in gone]
    for line in new:
        _put_in(rows, line)
    is_same = rows == first or not any(row.startswith("- ") for row in (*rows, *first))
    return text if is_same else before + "".join(f"{row}\n" for row in rows) + behind


def _parts(text: str, *, shared: bool) -> tuple[str, str, str]:
    """What stands before our lines, our lines, and what stands behind."""
    if not shared:
        return "", text, ""
    last = text.rfind(END)
    first = text.rfind(BEGIN, 0, max(last, 0))
    if first < 0:
        return f"{text.rstrip()}\n\n{BEGIN}\n".lstrip(), "", f"{END}\n"
    first = text.find("\n", first) + 1
    return text[:first], text[first:last], text[last:]


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


def _ended(rows: Sequence[str], today: date) -> set[str]:
    """Those that stand below the heading of errors, and are over."""
    ended, heading = set(), ""
    for row in rows:
        heading = row if row.startswith("#") else heading
        if heading == HEADINGS["error"] and is_over(row, today):
            ended.add(row)
    return ended
