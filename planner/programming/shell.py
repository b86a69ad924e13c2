"""Commands of a shell line: their words, their operators, and the files that they change.

Each question about a command is answered here, by its words. Runs nothing, expands nothing, and reads no script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, dropwhile
from posixpath import join, normpath
from typing import NamedTuple

from planner.reading.patterns import lazy_pattern

__all__ = [
    "SAYING",
    "WITH_WORKTREE",
    "Command",
    "HereDocument",
    "commands_of",
    "documents",
    "is_looking",
    "last_run",
    "shell_changes",
    "without_paging",
]

LINE_CHARACTERS = 4_096
"""Length of a shell line that is read, without its here-documents."""

_OPENED = lazy_pattern(r"<<-?[ \t]{0,80}\\?(['\"]?)(\w{1,80})\1")
"""Beginning of a here-document within a command: ``<<'EOF'``, ``<<\\EOF``."""
_TOKEN = lazy_pattern(
    r"\d*[<>]&[\d-]+|(?<!\S)#[^\n]*|(?P<redirect>\d*(?:>>?|<<?<?)|&>>?)|(?P<operator>&&|\|\||\|&?|[;&\n])"
    r"|(?P<word>(?:'[^']*+'?|\"(?:[^\"\\]|\\.)*+\"?|\\.|[^\s'\"\\;|&<>()])++)",
    re.S,
)
"""Redirection, comment, chaining operator, or word as written: ``2>&1``, ``# x``, ``&&``, ``"a b"``."""
_ASSIGNMENT = lazy_pattern(r"\w+=")
_OPENING = frozenset({"{", "then", "do", "else", "if", "while"})
_CLOSING = frozenset({"}", "done", "fi", "esac"})
"""Words of the shell before a command or instead of one."""

_LOOKING = frozenset(
    (
        *("cat", "head", "tail", "less", "ls", "rg", "grep", "egrep", "find", "fd", "tree", "wc", "nl"),
        *("bat", "jq", "awk", "stat", "file", "which", "sed -n", "gh api"),
        *("Select-String", "Get-Content", "Get-ChildItem", "Get-Item", "Get-Command", "Test-Path", "findstr"),
        *(f"git {act}" for act in ("diff", "log", "show", "status", "blame", "grep", "ls-files", "branch", "remote")),
        *(f"gh {what} {act}" for what in ("pr", "issue", "run") for act in ("view", "list", "diff", "checks")),
        "gh pr status",
    )
)
"""Commands that only read, by their first words; also those with a subcommand such as ``show``, ``list`` or
``capture``."""
SAYING = frozenset(
    (
        *("cd", "pushd", "popd", "echo", "printf", "sleep", "true", ":", "set", "export", "source", "kill", "pkill"),
        *("Set-Location", "Push-Location", "Write-Host", "Write-Output"),
    )
)
"""Commands before a line's main command: they change the folder, wait, end something or print a heading."""
_BEFORE_ACT = {"-C": 2, "-c": 2, "--no-pager": 1}
"""Number of words of each option that git accepts before its subcommand."""
_SENDING = frozenset({"-X", "--method", "-f", "-F"})
"""Options with which ``gh api`` may change something."""


class Command(NamedTuple):
    """One command of a line."""

    words: tuple[str, ...]
    """Words as written, with quotes, the program first; at least one."""
    before: str
    """Operator before the command: ``&&``, ``||``, ``|``, ``;`` or a line break; ``;`` for the first."""
    writes: tuple[tuple[str, bool], ...]
    """Files that receive the output, each with True if it is appended."""
    folder: str = ""
    """Folder in which git runs: ``git -C ../app log`` is ``git log`` in ``../app``."""

    def starts(self, *words: str) -> bool:
        """Return True if the command begins with these words."""
        return self.words[: len(words)] == words


class HereDocument(NamedTuple):
    """Text that a command passes to a program: ``cat > a <<'EOF'`` up to ``EOF``."""

    start: int
    """Index of its ``<<`` in the command."""
    stop: int
    """Index after the line that ends it."""
    beside: str
    """Rest of the line on which it begins."""
    text: str


def documents(command: str) -> Iterator[HereDocument]:
    """Yield the here-documents in a command, in order; an unterminated one extends to the end."""
    at = 0
    while opened := _OPENED.search(command, at):
        line_end = command.find("\n", opened.end())
        if line_end < 0:
            return
        ended = re.compile(rf"^[ \t]{{0,80}}{opened[2]}[ \t]{{0,80}}$", re.M).search(command, line_end + 1)
        last, at = ended.span() if ended else (len(command), len(command))
        yield HereDocument(opened.start(), at, command[opened.end() : line_end], command[line_end + 1 : last])


def _without_documents(command: str) -> str:
    """Return a command with each here-document replaced by ``<<_``."""
    parts, at = [], 0
    for one in documents(command):
        parts += [command[at : one.start], "<<_", one.beside]
        at = one.stop
    return "".join([*parts, command[at:]])


def without_paging(command: str) -> str:
    """Return a command without ``| tail`` or ``| head`` at its end: ``make 2>&1 | tail -20`` becomes ``make``."""
    command = command.rstrip()
    before, bar, last = command.rpartition("|")
    if bar and last.split()[:1] in (["tail"], ["head"]) and not {";", "&"} & {*last}:
        command = before.rstrip()
    return command.removesuffix("2>&1").rstrip()


def commands_of(line: str) -> tuple[Command, ...]:
    """Return the commands of `line`, in order; operators in quotes or in a here-document are ignored.

    Assignments before a program and words of the shell are left out: ``if A=1 make`` becomes ``make``.
    """
    bare = _without_documents(line) if "<<" in line else line
    return _commands(bare.replace("\\\n", " ").strip()[:LINE_CHARACTERS])


@lru_cache(maxsize=4_096)
def _commands(line: str) -> tuple[Command, ...]:
    """Return the commands of a line without here-documents: words and redirections are collected until an operator."""
    commands: list[Command] = []
    words: list[str] = []
    writes: list[tuple[str, bool]] = []
    operator, redirect = ";", ""
    for token in chain(_TOKEN.finditer(line), _TOKEN.finditer("\n")):
        text = token.group()
        if token.lastgroup == "redirect":
            redirect = text
        elif token.lastgroup == "word" and redirect:
            writes += [(text.strip("\"'"), redirect == ">>")] * (redirect in (">", ">>"))
            redirect = ""
        elif token.lastgroup == "word":
            words.append(text)
        elif token.lastgroup == "operator":
            command_words = tuple(dropwhile(lambda word: word in _OPENING or _ASSIGNMENT.match(word), words))
            if command_words and command_words[0] not in _CLOSING:
                command_words, folder = _of_git(command_words) if command_words[0] == "git" else (command_words, "")
                commands.append(Command(command_words, operator, tuple(writes), folder))
            operator = text if command_words else operator  # a line break after an operator is none
            words, writes, redirect = [], [], ""
    return tuple(commands)


def _of_git(words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return a git command without its general options, and the folder in them."""
    rest, folder = words[1:], ""
    while rest and rest[0] in _BEFORE_ACT:
        count = _BEFORE_ACT[rest[0]]
        folder = rest[1].strip("\"'") if rest[0] == "-C" and rest[1:] else folder
        rest = rest[count:]
    return ("git", *rest), folder


def is_looking(command: Command) -> bool:
    """Return True for a command that only reads: ``git log``, ``gh api repos/a``; not ``git push``."""
    words = command.words[:3]
    if any(word.partition("-")[0] in ("show", "list", "capture") for word in words[1:]):
        return True
    looks = any(" ".join(words[:count]) in _LOOKING for count in (1, 2, 3))
    return looks and not (words[:2] == ("gh", "api") and _SENDING.intersection(command.words))


def last_run(commands: Sequence[Command]) -> list[Command]:
    """Return the commands of a line that may have run last, one of which caused an exit code other than 0.

    For ``a; b | c && d`` these are ``c`` and ``d``, as nothing runs after a ``c`` that exits with 1; for ``a || b``
    only ``b``.
    """
    last: list[Command] = []
    for one in commands:
        if one.before in ("|", "|&"):
            last[-1:] = [one]
        elif one.before == "&&":
            last.append(one)
        else:
            last = [one]
    return last


_NAME = lazy_pattern(r"(?!/dev/|/proc/)(?:[A-Za-z]:)?[\w./\\~@+-]{1,300}+(?<=\w)")
"""File name: ``notes``, ``a/b.md``, ``C:\\a.md``; not ``/dev/null``, ``$out``, nor text in quotes."""
_FILE_ENDING = lazy_pattern(r"\.\w{1,12}$")
_SENT = ("written by a command", "appended to by a command")
_REMOVING = (("rm",), ("git", "rm"))
WITH_WORKTREE = "removed with its worktree"
_IN_PLACE = lazy_pattern(r"-[a-zA-Z\d]*i.*", re.S)


def shell_changes(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return path and kind of change of each file that a line's `commands` change.

    Paths are relative to the folder in which the line runs; a possible folder ends in a slash. Names with variables or
    blanks are left out.
    """
    changes: list[tuple[str, str]] = []
    folder = ""
    for one in commands:
        if one.words[0] == "cd":
            folder = _within(folder, one.words[1].strip("\"'")) if len(one.words) == 2 else "$"
        outputs = [*one.writes, *((word, False) for word in one.words[1:] if one.words[0] == "tee" and word[0] != "-")]
        changes += [
            (_within(folder, path), _SENT[is_appended]) for path, is_appended in outputs if _NAME.fullmatch(path)
        ]
        how, words = _way(one)
        targets = (word if _is_file(word) else f"{word.rstrip('/')}/" for word in words)
        changes += [(_within(_within(folder, one.folder), path), how) for path in targets]
        if one.words[0] in ("cp", "mv", "ditto", "install") and _is_file(one.words[-1]):
            changes.append((_within(folder, one.words[-1]), "written by a command"))
    # blanks are allowed, as a folder that the line goes to may have some
    return [(path, how) for path, how in changes if _NAME.fullmatch(path.removesuffix("/").replace(" ", "_"))]


def _is_file(word: str) -> bool:
    return _NAME.fullmatch(word) is not None and _FILE_ENDING.search(word) is not None


def _within(folder: str, path: str) -> str:
    """Return `path`, which is relative to `folder`, with `folder` before it; an absolute path or one on a drive
    stays."""
    if path[1:2] == ":":
        return path
    joined = join(folder, path.removeprefix("./"))
    return normpath(joined) + "/" * (path[-1:] == "/") if "../" in joined else joined


def _way(one: Command) -> tuple[str, tuple[str, ...]]:
    """Return the kind of change that a command makes, and the words that may be the changed files: for ``sed -i _
    a.py``, ``git checkout -- a.py``, ``mv a b``. Both are empty for ``sed -n``, ``git checkout -b a``, ``git rm
    --cached a``."""
    words = one.words
    if words[0] in ("sed", "gsed", "perl") and any(map(_IN_PLACE.fullmatch, words[1:])):
        return "edited by a command", words[1:]
    if one.starts("git", "restore") and "--staged" not in words:
        return "restored by git", words[2:]
    if one.starts("git", "checkout") and (path_marks := {"--", "--theirs", "--ours"}.intersection(words)):
        return "restored by git", words[min(map(words.index, path_marks)) + 1 :]
    plain = tuple(word.strip("\"'") for word in words[1:])
    if plain and (words[0] == "mv" or one.starts("git", "mv")):
        return "moved" if "$" in plain[-1] else f"moved to {plain[-1]}", plain[:-1]
    if one.starts("git", "worktree", "remove"):
        return WITH_WORKTREE, plain
    removes = any(one.starts(*act) for act in _REMOVING) and "--cached" not in words
    return ("removed", plain) if removes else ("", ())
