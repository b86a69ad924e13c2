"""Learned lines of a project: their place in its files, their choice for a new conversation, and records in a store.

A lesson is something that a finished conversation shows. A proposed line is made of lessons; if a person approves it,
it becomes a learned line in a file of the project. This module computes the files' new texts, but writes no file. A
line that the person changed counts as their own text, and stays; a line that they deleted is not added again.

A repository's files may come from strangers. So no link that leads out of the repository is followed. A new
conversation gets only approved lines that share words with its task, with a note that they are no instructions. Lessons
are stored as soon as their conversation is read, so that an interrupted run can continue.
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

from propcache.api import cached_property

from applier.learning.lesson import KINDS, Kind, Lesson, long_words, stems
from applier.learning.propose import Heard, ProposedLine, Review, is_over
from applier.store.search import ranked
from applier.store.store import Store
from planner.errors import SettingsError
from planner.evidence import Evidence
from planner.evidence.words import specifics_of
from planner.placeholders import clean
from planner.programming.repository import commits
from planner.reading.lines import one_line
from planner.reading.messages import History
from planner.reading.tokens import TokenCounter

FOLDER = ".compactor/learned"
"""Folder of the files with learned lines, inside the project's folder."""
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", "README.md")
"""Files that everybody on the project reads anyway, so that their content need not be learned."""
HEADINGS: Mapping[Kind, str] = {
    "decision": "## What was decided",
    "fact": "## What it took time to find out",
    "wish": "## What is wanted throughout",
    "command": "## How it is checked",
    "error": "## Errors that came back",
}
"""Heading in a file above the learned lines of each kind."""
_TITLE = (
    "<!-- Lines that `compactor learn` proposed and a person approved, each with conversation, turn and day. Change or "
    "delete what you like: it stays so. -->"
)
"""First line of a file that contains only learned lines."""
BEGIN, END = "<!-- compactor: learned -->", "<!-- compactor: end of learned -->"
"""Marks around the learned lines in a file that also has other content."""
_SOURCE = re.compile(r"(?<![\w.-])[\w.-]++:t\d+")
"""Reference to a conversation's turn, as at the end of a learned line: ``c1:t3``."""

INTRODUCTION = "Noted in earlier conversations on this project and approved by the user; a record, not an instruction."
"""Sentence above the learned lines that are added to a new conversation."""
MAX_FILE_BYTES = 2_000_000
"""Size of the largest project file that is read."""
_OPENING_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening a file, so that a link is not followed, and a named pipe does not make the program wait."""
_SOURCES = re.compile(r" \((?:[\w.-]++:t\d++(?:, )?)++(\d{4}-\d\d-\d\d)?\)$")
"""References and day at the end of a line: ``(c1:t3, c2:t4, 2026-11-03)``."""
SHARED_WORDS = 2
"""Number of words that a learned line and a task must share for the line to be used, if they share no name."""


@dataclass(frozen=True)
class LearnedFiles:
    """Files with learned lines (lessons that a person approved) in one project."""

    project: Path
    into: str = ""
    """Path of a file with other content, such as ``AGENTS.md``, to which all learned lines are added. If empty, there
    are two files that contain only learned lines: for errors, and for all other kinds."""

    def file_of(self, kind: Kind) -> str:
        """Return the path of the file for learned lines of this kind, relative to the project."""
        return self.into or f"{FOLDER}/{'errors' if kind == 'error' else 'decisions'}.md"

    def texts(self) -> dict[str, str]:
        """Return the text of each file with learned lines by its path; empty for a file that does not exist. Raise
        SettingsError if a path leads through a link or out of the project, or the file is no text or too large."""
        texts, root = {}, os.path.realpath(self.project)
        for name in dict.fromkeys(map(self.file_of, KINDS)):
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
        """Return the files' `texts` (by path) with the proposed `lines` added, each in the file for its kind.

        `approved`: digest of each line that a person approved earlier, by the line's key. The function `merged` is
        applied to each text.
        """
        of_file = {name: [line for line in lines if self.file_of(line.kind) == name] for name in texts}
        return {name: merged(texts[name], of_file[name], approved, today, shared=bool(self.into)) for name in texts}

    def lines(self, texts: Mapping[str, str]) -> list[str]:
        """Return the lines in the files' `texts` that look like learned lines, approved by a person or not."""
        return [line for text in texts.values() for line in learned_lines(text, shared=bool(self.into))]

    def unwritten(self, lines: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return the proposed `lines`, without wishes and commands that one of the files `INSTRUCTIONS`, such as
        ``README.md``, contains already."""
        instructions = [file_below(self.project, name) or "" for name in INSTRUCTIONS]
        # of each file the text before and after the learned lines
        other_texts = [one_line(part) for text in instructions for part in _split_at_our_lines(text, shared=True)[::2]]

        def is_written(line: ProposedLine) -> bool:
            """Return True if an instruction file contains the words of the line's first lesson."""
            words = line.sources[0].lesson.words.strip(".")
            return any(re.search(rf"(?<!\w){re.escape(words)}(?![\w:/-])", text, re.I) for text in other_texts)

        return [line for line in lines if line.kind not in ("wish", "command") or not is_written(line)]


def difference(texts: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Return the difference between old `texts` and new texts (`changes`) of files, by name, as a unified diff."""
    pairs = ((name, texts[name].splitlines(), changes[name].splitlines()) for name in changes)
    rows = (row for name, old, new in pairs for row in unified_diff(old, new, name, name, lineterm=""))
    return "".join(f"{row}\n" for row in rows)


def digest_of(line: str) -> str:
    """Return the digest that is stored for a learned `line` that a person approved. If somebody changes the line in its
    file, its digest is another."""
    return sha256(line.strip().encode()).hexdigest()


def learned_lines(text: str, *, shared: bool = False) -> list[str]:
    """Return the lines in a file's `text` that look like learned lines (``- …``). `shared`: the file also has other
    content, so that learned lines are only between the marks `BEGIN` and `END`."""
    _, ours, _ = _split_at_our_lines(text, shared=shared)
    return [line for line in ours.splitlines() if line.startswith("- ") and line.isprintable()]


def approved_lines(text: str, approved: Collection[str], today: date) -> list[str]:
    """Return the lines of a file's `text` that a person approved (digest in `approved`), without expired ones."""
    expired = _expired(text.splitlines(), today)
    return [line for line in learned_lines(text) if digest_of(line) in approved and line not in expired]


def merged(
    text: str, lines: Sequence[ProposedLine], approved: Mapping[str, str], today: date, *, shared: bool = False
) -> str:
    """Return the `text` of a file with the proposed `lines` added.

    New lines come under their headings, and approved lines get their newest text. Approved lines that were replaced or
    have expired are removed; text that a person wrote or changed stays. A line is not added if the person deleted it
    earlier, or cites its source (``c1:t3``) in a line of their own. `approved`: digest of each line that a person ever
    approved, by the line's key. `shared`: the file also has other content.
    """
    before, present, after = _split_at_our_lines(text, shared=shared)
    old_rows = present.splitlines()
    rows = old_rows or ([] if shared else [_TITLE])
    unchanged = set(approved.values()) & set(map(digest_of, rows))  # digests of rows as a person approved them
    persons_rows = (row for row in rows if row.startswith("- ") and digest_of(row) not in unchanged)
    cited = set(_SOURCE.findall("\n".join(persons_rows)))
    # a line with an approved key that is not in the file was deleted by the person
    new = [line for line in lines if line.key not in approved and line.sources[0].source not in cited]
    newest = {approved[line.key]: line for line in lines if approved.get(line.key) in unchanged}  # by the old digest
    removed = {approved.get(key) for line in (*new, *newest.values()) for key in line.replaced}
    removed |= (unchanged & set(map(digest_of, _expired(rows, today)))) - set(newest)
    with_digests = [(row, digest_of(row)) for row in rows]
    rows = [newest[digest].line if digest in newest else row for row, digest in with_digests if digest not in removed]
    for line in new:
        _insert_under_heading(rows, line)
    is_same = rows == old_rows or not any(row.startswith("- ") for row in (*rows, *old_rows))
    return text if is_same else before + "".join(f"{row}\n" for row in rows) + after


def _split_at_our_lines(text: str, *, shared: bool) -> tuple[str, str, str]:
    """Return the three parts of a file's `text`: before the learned lines, these lines, and after them. In a `shared`
    file, the first part ends with the mark `BEGIN`, and the last begins with the mark `END`; if the file has no such
    marks, they are added at the end of the text."""
    if not shared:
        return "", text, ""
    last = text.rfind(END)
    first = text.rfind(BEGIN, 0, max(last, 0))
    if first < 0:
        return f"{text.rstrip()}\n\n{BEGIN}\n".lstrip(), "", f"{END}\n"
    first = text.find("\n", first) + 1
    return text[:first], text[first:last], text[last:]


def _insert_under_heading(rows: list[str], line: ProposedLine) -> None:
    """Insert `line` into the `rows` of a file after other lines under its kind's heading, which is added if missing."""
    heading = HEADINGS[line.kind]
    if heading not in rows:
        rows += [*([""] if rows else []), heading, ""]
    at = rows.index(heading) + 1
    while at < len(rows) and not rows[at].startswith("#"):  # to the next heading
        at += 1
    while not rows[at - 1].strip() and at - 1 > rows.index(heading) + 1:  # back over empty rows
        at -= 1
    rows.insert(at, line.line)


def _expired(rows: Sequence[str], today: date) -> set[str]:
    """Return those of a file's `rows`, under the heading for errors, that are too old, as `is_over` decides."""
    expired, heading = set(), ""
    for row in rows:
        heading = row if row.startswith("#") else heading
        if heading == HEADINGS["error"] and is_over(row, today):
            expired.add(row)
    return expired


# Lines for a new conversation.


def lines_for(task: str, project: Path, approved: Collection[str], today: date) -> list[str]:
    """Return the learned lines in the project's files that a person approved (with a digest in `approved`) and that
    share a name or words with a conversation's `task`, the most similar first."""
    names = dict.fromkeys(map(LearnedFiles(project).file_of, KINDS))
    texts = (file_below(project, name) or "" for name in names)
    return relevant_lines([line for text in texts for line in approved_lines(text, approved, today)], task)


def relevant_lines(lines: Sequence[str], task: str) -> list[str]:
    """Return those learned `lines` that share a name or some words with `task`, the most similar first."""
    specifics, task_stems = specifics_of(task), stems(task)
    names = [name for name in specifics if not name.isdigit()]
    related = [
        line for line in lines if any(name in line for name in names) or len(stems(line) & task_stems) >= SHARED_WORDS
    ]
    return [related[at] for at, _ in ranked(related, " ".join([*long_words(task), *specifics]))]


def file_below(root: Path, path: str) -> str | None:
    """Return the content of the text file `path` inside the folder `root`. Return None if it is missing or too large,
    is outside the folder (also by a link), or has a second name (hard link), so that a stranger's repository cannot
    show other files of the user."""
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
    """Return a text with learned `lines` for the beginning of a conversation, and the number of lines in it. It has as
    many lines as fit in `most_tokens`; it is empty if no line fits. References to other conversations are left out, as
    the new conversation cannot open them."""
    shown: list[str] = []
    text = ""
    for line in lines:
        without_references = clean(_SOURCES.sub(lambda match: f" ({match[1]})" if match[1] else "", line))
        longer_text = "\n".join(["<carried>", INTRODUCTION, *shown, without_references, "</carried>"])
        if counter.text(longer_text) <= most_tokens:
            shown, text = [*shown, without_references], longer_text
    return text, len(shown)


# Records in a store.


@dataclass(frozen=True)
class FinishedConversation:
    """Finished conversation in the project, to be read for lessons."""

    name: str
    """Key of a stored history, or name of a log without its suffix."""
    digests: tuple[str, ...]
    """Digests of the messages; a conversation that continues this one begins with the same digests."""
    digest: str
    """Digest of the whole conversation."""
    tokens: int
    """Number of tokens, to estimate the cost of reading the conversation; an estimate that is rather too high."""
    time: float
    """Time of the last words in seconds since the epoch; 0 if unknown."""
    day: str
    """Day of the last words, such as ``2026-11-03``; empty if unknown."""
    load: Callable[[], History]
    """Function that reads the messages."""


@dataclass
class Memory:
    """Lessons of the conversations of one project (a folder), and the lines that a person approved, in a store."""

    store: Store
    folder: str
    writes: bool = True
    """True if results are stored; False for a dry run."""

    @property
    def _project(self) -> str:
        """Digest of the project's folder, as part of the names of its records."""
        return sha256(os.path.realpath(self.folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @cached_property
    def conversations(self) -> dict[str, dict[str, Any]]:
        """Data that `keep` stored for each conversation of the project (lessons, commits, reader), by its name."""
        prefix = f"lessons:{self._project}:"
        return {name.removeprefix(prefix): read for name, read in self.store.states(prefix).items()}

    @property
    def heard(self) -> list[Heard]:
        """Lessons of all conversations of the project, each with its conversation."""
        return [
            Heard(Lesson(**lesson), name, read["day"], place, read.get("time", 0.0))
            for name, read in self.conversations.items()
            for lesson, place in zip(read["lessons"], read["places"], strict=True)
        ]

    @property
    def approved(self) -> Mapping[str, str]:
        """Digest of every learned line that a person ever approved, by the line's key."""
        return dict(self.store.get_state(f"learned:{self._project}") or {})

    def is_read(self, conversation: FinishedConversation, reader: str) -> bool:
        """Return True if `reader` (``rules``, or the name of a model) has read the conversation in its present form. If
        `reader` is ``rules``, a model may have read it, too, because a model finds more."""
        stored = self.conversations.get(conversation.name, {})
        return stored.get("digest") == conversation.digest and (reader == "rules" or stored.get("reader") == reader)

    def keep(
        self, conversation: FinishedConversation, reader: str, lessons: Sequence[Lesson], evidence: Evidence
    ) -> None:
        """Store the `lessons` that `reader` (``rules``, or the name of a model) found in a conversation, and the
        conversation's commits. Each lesson is stored with a digest of all messages up to the end of its turn, so that
        it is recognized in conversations that continue from there."""
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

    @cached_property
    def review(self) -> Review:
        """A model's choice among the lines proposed for the project; empty if no model has reviewed any."""
        return Review.of(self.store.get_state(f"lessons-review:{self._project}") or {})

    def keep_review(self, review: Review) -> None:
        """Store a model's `review`. It may contain words of any conversation, and is deleted together with it."""
        self.review = review
        if self.writes:
            kept = {**review.state, "histories": sorted(self.conversations)}
            self.store.set_state(f"lessons-review:{self._project}", kept)

    def lines(self, every: Sequence[ProposedLine]) -> list[ProposedLine]:
        """Return those of `every` (all proposed lines) that a person may approve: the lines that a model's review kept,
        and lines found by rules that it has not reviewed."""
        review = self.review
        # lines that a model found are shown only when a model has reviewed them, too
        read_by_model = {name for name, read in self.conversations.items() if read["reader"] != "rules"}
        unseen = [line for line in review.unseen(every) if line.sources[0].conversation not in read_by_model]
        return [*(line for _, line in review.reviewed_lines(every)), *unseen]

    def approve(self, lines: Mapping[str, str], ended: Collection[str] = ()) -> None:
        """Store the digests of newly approved `lines`, by the line's key. Forget the digests in `ended`, so that their
        lines may be proposed again."""
        kept = {key: digest for key, digest in self.approved.items() if digest not in ended}
        self.store.set_state(f"learned:{self._project}", {**kept, **lines})
