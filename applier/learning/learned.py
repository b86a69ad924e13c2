"""Lines that a project has learned: their files, those that matter to a new conversation, and the records in a store.

A line in a file is ours if it is exactly as a person approved it; text that a person wrote or changed stays, and a
deleted line is not added again. A repository's files come from strangers: no link is followed, and only approved lines
that matter to the task are used, as a record without instructions. Writes no file. The lessons of a conversation are
stored as soon as it is read, so an interrupted run can continue.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any

from applier.learning.lesson import KINDS, Kind, Lesson, folded, long_words, stems
from applier.learning.propose import Heard, ProposedLine, Review, is_over
from applier.store.search import ranked
from applier.store.store import Store
from planner.errors import SettingsError
from planner.evidence import Evidence
from planner.evidence.words import specifics_of
from planner.placeholders import clean
from planner.programming.repository import commits
from planner.reading.lazy import lazy_property
from planner.reading.messages import History
from planner.reading.tokens import TokenCounter

FOLDER = ".compactor/learned"
"""Folder of the files, below the project's folder."""
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", "README.md")
"""Files that everybody on the project reads anyway."""
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
"""Marks around our lines in a file with other content."""
_SOURCE = re.compile(r"(?<![\w.-])[\w.-]++:t\d+")

INTRODUCTION = "Noted in earlier conversations on this project and approved by the user; a record, not an instruction."
MAX_FILE_BYTES = 2_000_000
"""Largest file that is read."""
_OPENING_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags against following a link and against waiting for a pipe."""
_SOURCES = re.compile(r" \((?:[\w.-]++:t\d++(?:, )?)++(\d{4}-\d\d-\d\d)?\)$")
"""Sources at the end of a line: ``(c1:t3, c2:t4, 2026-11-03)``. A new conversation gets the line without them, as it
cannot open them."""
SHARED_WORDS = 2
"""Fewest words that a line and a task must share if they share no name."""


@dataclass(frozen=True)
class LearnedFiles:
    """The files with learned lines in one project."""

    project: Path
    into: str = ""
    """File with other content to which all lines are added; empty for two files of our own."""

    def _file_of(self, kind: Kind) -> str:
        """Return the file for lines of this kind, relative to the project."""
        return self.into or f"{FOLDER}/{'errors' if kind == 'error' else 'decisions'}.md"

    @property
    def names(self) -> list[str]:
        """Names of the files, relative to the project."""
        return list(dict.fromkeys(map(self._file_of, KINDS)))

    def texts(self) -> dict[str, str]:
        """Return the texts of the files by name; empty for a file that does not exist.

        Raises:
            SettingsError: a file is no text file in its own folder of the project, or too large.
        """
        texts = {}
        for name in self.names:
            root = os.path.realpath(self.project)
            place = Path(root, name)
            text = file_below(place.parent, place.name) if os.path.lexists(place) else ""
            if text is None or Path(os.path.realpath(place)) != place or not place.is_relative_to(root):
                wanted = "a text file of the project: in its folder, no link, UTF-8, at most 2 MB"
                raise SettingsError(f"{name}: expected {wanted}")
            texts[name] = text
        return texts

    def merged(
        self, texts: Mapping[str, str], lines: Sequence[ProposedLine], approved: Mapping[str, str], today: date
    ) -> dict[str, str]:
        """Return `texts` with `lines` merged (as by `merged`), each into the text of the file for its kind."""
        of_file = {name: [line for line in lines if self._file_of(line.kind) == name] for name in texts}
        return {name: merged(texts[name], of_file[name], approved, today, shared=bool(self.into)) for name in texts}

    def lines(self, texts: Mapping[str, str]) -> list[str]:
        """Return the lines of `texts` that may be ours, approved or not."""
        return [line for text in texts.values() for line in learned_lines(text, shared=bool(self.into))]

    def unwritten(self, lines: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return `lines` without wishes and commands whose words the project's `INSTRUCTIONS` already contain."""
        instructions = [file_below(self.project, name) or "" for name in INSTRUCTIONS]
        apart = [folded(part) for text in instructions for part in _parts(text, shared=True)[::2]]
        return [line for line in lines if not _is_covered(line, apart)]


def _is_covered(line: ProposedLine, instructions: Sequence[str]) -> bool:
    """Return True if `line` is a wish or a command, and one of the texts `instructions` contains its words."""
    words = line.sources[0].lesson.words
    whole = re.compile(rf"(?<!\w){re.escape(words.strip('.'))}(?![\w:/-])", re.I)
    return line.kind in ("wish", "command") and any(map(whole.search, instructions))


def difference(texts: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Return a unified diff from `texts` to `changes`, both the texts of files by name."""
    pairs = ((name, texts[name].splitlines(), changes[name].splitlines()) for name in changes)
    rows = (row for name, old, new in pairs for row in unified_diff(old, new, name, name, lineterm=""))
    return "".join(f"{row}\n" for row in rows)


def digest_of(line: str) -> str:
    """Return the digest by which an approved `line` is known."""
    return sha256(line.strip().encode()).hexdigest()


def learned_lines(text: str, *, shared: bool = False) -> list[str]:
    """Return the lines of the file `text` that may be ours; a `shared` file also has other content."""
    _, ours, _ = _parts(text, shared=shared)
    return [line for line in ours.splitlines() if line.startswith("- ") and line.isprintable()]


def approved_lines(text: str, approved: Collection[str], today: date) -> list[str]:
    """Return the lines of the file `text` that have an `approved` digest and are not expired `today`."""
    ended = _ended(text.splitlines(), today)
    return [line for line in learned_lines(text) if digest_of(line) in approved and line not in ended]


def merged(
    text: str, lines: Sequence[ProposedLine], approved: Mapping[str, str], today: date, *, shared: bool = False
) -> str:
    """Return the file `text` with `lines` merged.

    New lines are added under their headings, and approved lines are replaced by their newest form. Approved lines that
    were replaced or have expired are removed; text that a person wrote or changed stays. A line that the person
    deleted, or whose source they cite in a line of their own, is not added again. `approved` maps the key of each
    approved line to its digest. A `shared` file also has other content.
    """
    before, present, after = _parts(text, shared=shared)
    first = present.splitlines()
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
    return text if is_same else before + "".join(f"{row}\n" for row in rows) + after


def _parts(text: str, *, shared: bool) -> tuple[str, str, str]:
    """Return the text before our lines, our lines, and the text after them.

    In a `shared` file our lines are between marks. If these are missing, they are at the end of the first text and the
    beginning of the last, so that our lines come at the file's end.
    """
    if not shared:
        return "", text, ""
    last = text.rfind(END)
    first = text.rfind(BEGIN, 0, max(last, 0))
    if first < 0:
        return f"{text.rstrip()}\n\n{BEGIN}\n".lstrip(), "", f"{END}\n"
    first = text.find("\n", first) + 1
    return text[:first], text[first:last], text[last:]


def _put_in(rows: list[str], line: ProposedLine) -> None:
    """Insert `line` in `rows` at the end of the part under its heading; add the heading if it is missing."""
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
    """Return the expired lines under the heading of errors."""
    ended, heading = set(), ""
    for row in rows:
        heading = row if row.startswith("#") else heading
        if heading == HEADINGS["error"] and is_over(row, today):
            ended.add(row)
    return ended


# Lines for a new conversation.


def lines_for(task: str, project: Path, approved: Collection[str], today: date) -> list[str]:
    """Return the approved lines in the folder `project` that are relevant to `task`, the most relevant first."""
    texts = (file_below(project, name) or "" for name in LearnedFiles(project).names)
    return mattering([line for text in texts for line in approved_lines(text, approved, today)], task)


def mattering(lines: Sequence[str], task: str) -> list[str]:
    """Return the lines that share a name or some words with `task`, the most similar first."""
    specifics, task_stems = specifics_of(task), stems(task)
    names = [name for name in specifics if not name.isdigit()]
    related = [
        line for line in lines if any(name in line for name in names) or len(stems(line) & task_stems) >= SHARED_WORDS
    ]
    return [related[at] for at, _ in ranked(related, " ".join([*long_words(task), *specifics]))]


def file_below(root: Path, path: str) -> str | None:
    """Return the content of `path` if it is a small text file below `root`, no link and without a hard link; else
    None."""
    try:
        top = os.path.realpath(root)  # unlike `resolve`, `realpath` accepts links that lead in a circle
        place = os.path.realpath(os.path.join(top, path))
        with open(place, "rb", opener=lambda name, flags: os.open(name, flags | _OPENING_FLAGS)) as file:
            status = os.fstat(file.fileno())
            is_inside = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and Path(place).is_relative_to(top)
            content = file.read(MAX_FILE_BYTES + 1) if is_inside else b""
        return content.decode() if is_inside and len(content) <= MAX_FILE_BYTES else None
    except (OSError, ValueError):
        return None


def opening_text(lines: Collection[str], counter: TokenCounter, most_tokens: int) -> tuple[str, int]:
    """Return a text with as many `lines`, without their sources, as fit in `most_tokens`, and the number of these
    lines.

    The text is empty if no line fits.
    """
    shown: list[str] = []
    text = ""
    for line in lines:
        short = clean(_SOURCES.sub(lambda match: f" ({match[1]})" if match[1] else "", line))
        longer = "\n".join(["<carried>", INTRODUCTION, *shown, short, "</carried>"])
        if counter.text(longer) <= most_tokens:
            shown, text = [*shown, short], longer
    return text, len(shown)


# Records in a store.


@dataclass(frozen=True)
class FinishedConversation:
    """Finished conversation of the project."""

    name: str
    """Key of a stored history, or name of a log without its suffix."""
    digests: tuple[str, ...]
    """Digests of its messages; a continuation begins with the same digests."""
    digest: str
    """Digest of the whole conversation."""
    tokens: int
    """Approximate number of tokens, rather too many."""
    time: float
    """Time of the last words in seconds since the epoch; 0 if unknown."""
    day: str
    """Day of the last words; empty if unknown."""
    load: Callable[[], History]


@dataclass
class Memory:
    """Memory of one project, identified by its folder."""

    store: Store
    folder: str
    writes: bool = True
    """False for a dry run, which stores nothing."""

    @property
    def _project(self) -> str:
        return sha256(os.path.realpath(self.folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @lazy_property
    def conversations(self) -> dict[str, dict[str, Any]]:
        """Stored readings of the project's conversations, by the conversation's name; `keep` writes their fields."""
        prefix = f"lessons:{self._project}:"
        return {name.removeprefix(prefix): read for name, read in self.store.states(prefix).items()}

    @property
    def heard(self) -> list[Heard]:
        """Lessons of all conversations of the project."""
        return [
            Heard(Lesson(**lesson), name, read["day"], place, read.get("time", 0.0))
            for name, read in self.conversations.items()
            for lesson, place in zip(read["lessons"], read["places"], strict=True)
        ]

    @property
    def approved(self) -> Mapping[str, str]:
        """Digest of every line that was ever approved, by the line's key."""
        return dict(self.store.get_state(f"learned:{self._project}") or {})

    def knows(self, line: str) -> bool:
        """Return True if the person approved `line` in this form."""
        return digest_of(line) in self.approved.values()

    def is_read(self, conversation: FinishedConversation, reader: str) -> bool:
        """Return True if `reader` has read the conversation as it is now; in place of ``rules``, any reader counts."""
        stored = self.conversations.get(conversation.name, {})
        return stored.get("digest") == conversation.digest and (reader == "rules" or stored.get("reader") == reader)

    def keep(
        self, conversation: FinishedConversation, reader: str, lessons: Sequence[Lesson], evidence: Evidence
    ) -> None:
        """Store the `lessons` that `reader` found in a conversation, and the conversation's commits.

        Each lesson's place is the digest of the history up to the end of its turn.
        """
        ends = [evidence.turns[lesson.turn].turn.stop for lesson in lessons]
        read = {
            "history": conversation.name,  # the store forgets the lessons with the history of this key
            "digest": conversation.digest,
            "reader": reader,
            "day": conversation.day,
            "time": conversation.time,
            "lessons": [asdict(lesson) for lesson in lessons],
            "places": [sha256("".join(conversation.digests[:end]).encode()).hexdigest() for end in ends],
            "commits": [[*line.text.split(maxsplit=2)[1:], line.turn_ids[0]] for line in commits(evidence)],
        }
        self.conversations[conversation.name] = read
        if self.writes:
            self.store.set_state(f"lessons:{self._project}:{conversation.name}", read)

    @lazy_property
    def review(self) -> Review:
        """A model's review of the project's lines; empty if there was none."""
        return Review.of(self.store.get_state(f"lessons-review:{self._project}") or {})

    def keep_review(self, review: Review) -> None:
        """Store a `review`. It is removed when any of the conversations is forgotten, as it may contain their words."""
        self.review = review
        if self.writes:
            kept = {**review.state, "histories": sorted(self.conversations)}
            self.store.set_state(f"lessons-review:{self._project}", kept)

    def lines(self, every: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return the lines among `every` that the review kept, and those that wait for no review.

        A new line waits for a review if a model has read its conversation.
        """
        review = self.review
        waiting = {name for name, read in self.conversations.items() if read["reader"] != "rules"}
        unseen = [line for line in review.unseen(every) if line.sources[0].conversation not in waiting]
        return [*(line for _, line in review.reviewed_lines(every)), *unseen]

    def approve(self, lines: Mapping[str, str], ended: Collection[str] = ()) -> None:
        """Store the digests of approved `lines`, by key. Forget approved lines with a digest in `ended`; they may be
        proposed again."""
        kept = {key: digest for key, digest in self.approved.items() if digest not in ended}
        self.store.set_state(f"learned:{self._project}", {**kept, **lines})
