"""Commands of a shell line: their words, their operators, and the files that they change.

Answers all questions about a command, by its words alone. Runs nothing, expands nothing, and reads no script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, dropwhile
from posixpath import join, normpath
from typing import NamedTuple

from planner.reading.patterns import lazy_pattern

LINE_CHARACTERS = 4_096
"""Number of first characters of a shell line that are read. Here-documents do not count."""

_OPENED = lazy_pattern(r"<<-?[ \t]{0,80}\\?(['\"]?)(\w{1,80})\1")
"""Beginning of a here-document within a command: ``<<'EOF'``, ``<<\\EOF``."""
_TOKEN = lazy_pattern(
    r"\d*[<>]&[\d-]+|(?<!\S)#[^\n]*|(?P<redirect>\d*(?:>>?|<<?<?)|&>>?)|(?P<operator>&&|\|\||\|&?|[;&\n])"
    r"|(?P<word>(?:'[^']*+'?|\"(?:[^\"\\]|\\.)*+\"?|\\.|[^\s'\"\\;|&<>()])++)",
    re.S,
)
"""Copy of an output, comment, redirection, operator between commands, or word as written: ``2>&1``, ``# x``, ``>``,
``&&``, ``"a b"``."""
_ASSIGNMENT = lazy_pattern(r"\w+=")
"""Beginning of a word that sets a variable: ``A=1``."""
_OPENING = frozenset({"{", "then", "do", "else", "if", "while"})
"""Words of the shell before a command."""
_CLOSING = frozenset({"}", "done", "fi", "esac"})
"""Words of the shell in place of a command."""

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
"""First words of commands that only read."""
PREPARING = frozenset(
    (
        *("cd", "pushd", "popd", "echo", "printf", "sleep", "true", ":", "set", "export", "source", "kill", "pkill"),
        *("Set-Location", "Push-Location", "Write-Host", "Write-Output"),
    )
)
"""First words of commands that prepare a line's main command. They change the folder, wait, end a program or print a
heading."""
_BEFORE_ACT = {"-C": 2, "-c": 2, "--no-pager": 1}
"""Number of words of each option that git accepts before its subcommand."""
_SENDING = frozenset({"-X", "--method", "-f", "-F"})
"""Options with which ``gh api`` may change something."""


class Output(NamedTuple):
    """File that receives the output of a command."""

    path: str
    is_appended: bool


class PathChange(NamedTuple):
    """Change of one file or folder."""

    path: str
    """Path of the file; a path that may be that of a folder ends in a slash."""
    how: str
    """Kind of change, in words: ``removed``, ``edited by a command``."""


class Command(NamedTuple):
    """One command of a line."""

    words: tuple[str, ...]
    """Words as written, with quotes, the program first; at least one."""
    before: str
    """Operator before the command: ``&&``, ``||``, ``|``, ``;`` or a line break; ``;`` for the first."""
    outputs: tuple[Output, ...]
    folder: str = ""
    """Folder in which git runs: ``../app`` for ``git -C ../app log``; empty for the folder of the line."""

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
    """Rest of the line on which it begins, after ``<<EOF``."""
    text: str
    """Lines of the document, without the line that ends it."""


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
    """Return a command with ``<<_`` in place of each here-document."""
    parts, at = [], 0
    for one in documents(command):
        parts += [command[at : one.start], "<<_", one.beside]
        at = one.stop
    return "".join([*parts, command[at:]])


def without_paging(command: str) -> str:
    """Return a command without ``| tail``, ``| head`` and ``2>&1`` at its end: ``make`` for ``make 2>&1 | tail -9``."""
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
    """Return the commands of a line without here-documents."""
    commands: list[Command] = []
    # parts of the present command, until an operator ends it
    words: list[str] = []
    outputs: list[Output] = []
    operator, redirect = ";", ""  # the operator before the command; a redirection without its file yet
    for token in chain(_TOKEN.finditer(line), _TOKEN.finditer("\n")):
        text = token.group()
        if token.lastgroup == "redirect":
            redirect = text
        elif token.lastgroup == "word" and redirect:
            if redirect in (">", ">>"):
                outputs.append(Output(text.strip("\"'"), redirect == ">>"))
            redirect = ""
        elif token.lastgroup == "word":
            words.append(text)
        elif token.lastgroup == "operator":
            command_words = tuple(dropwhile(lambda word: word in _OPENING or _ASSIGNMENT.match(word), words))
            if command_words and command_words[0] not in _CLOSING:
                commands.append(_without_git_options(Command(command_words, operator, tuple(outputs))))
            operator = text if command_words else operator  # a line break after an operator separates nothing
            words, outputs, redirect = [], [], ""
    return tuple(commands)


def _without_git_options(command: Command) -> Command:
    """Return a command of git with its subcommand as second word and its folder; other commands unchanged."""
    if command.words[0] != "git":
        return command
    rest, folder = command.words[1:], ""
    while rest and rest[0] in _BEFORE_ACT:
        count = _BEFORE_ACT[rest[0]]
        folder = rest[1].strip("\"'") if rest[0] == "-C" and rest[1:] else folder
        rest = rest[count:]
    return command._replace(words=("git", *rest), folder=folder)


def is_looking(command: Command) -> bool:
    """Return True for a command that only reads: ``git log``, ``gh api repos/a``; not ``git push``.

    These are the commands in `_LOOKING`, and all with a subcommand that begins with ``show``, ``list`` or ``capture``.
    """
    words = command.words[:3]
    if any(word.partition("-")[0] in ("show", "list", "capture") for word in words[1:]):
        return True
    looks = any(" ".join(words[:count]) in _LOOKING for count in (1, 2, 3))
    return looks and not (words[:2] == ("gh", "api") and _SENDING.intersection(command.words))


def last_run(commands: Sequence[Command]) -> list[Command]:
    """Return the commands of a line that may have run last: one of them set the exit code of the line.

    For ``a; b | c && d`` these are ``c`` and ``d``, as ``d`` does not run if ``c`` fails. For ``a || b`` it is only
    ``b``.
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
_WRITTEN, _APPENDED = "written by a command", "appended to by a command"
WITH_WORKTREE = "removed with its worktree"
_IN_PLACE = lazy_pattern(r"-[a-zA-Z\d]*i.*", re.S)
"""Option with which ``sed`` changes its file: ``-i``, ``-ni``."""


def shell_changes(commands: Sequence[Command]) -> list[PathChange]:
    """Return the changes of files by the `commands` of a line.

    Paths are relative to the folder in which the line runs. Names with variables or blanks are left out.
    """
    changes: list[PathChange] = []
    folder = ""
    for one in commands:
        if one.words[0] == "cd":
            folder = _within(folder, one.words[1].strip("\"'")) if len(one.words) == 2 else "$"
        changes += [PathChange(_within(folder, path), how) for path, how in _written(one)]
        changes += [PathChange(_within(_within(folder, one.folder), path), how) for path, how in _changed(one)]
        if one.words[0] in ("cp", "mv", "ditto", "install") and _is_file(one.words[-1]):
            changes.append(PathChange(_within(folder, one.words[-1]), _WRITTEN))
    # blanks are allowed, as a folder that the line goes to may have some
    return [one for one in changes if _NAME.fullmatch(one.path.removesuffix("/").replace(" ", "_"))]


def _written(one: Command) -> list[PathChange]:
    """Return the files that receive the output of a command."""
    outputs = list(one.outputs)
    if one.words[0] == "tee":
        outputs += [Output(word, is_appended=False) for word in one.words[1:] if word[0] != "-"]
    return [
        PathChange(output.path, _APPENDED if output.is_appended else _WRITTEN)
        for output in outputs
        if _NAME.fullmatch(output.path)
    ]


def _is_file(word: str) -> bool:
    """Return True for the name of a file, by its ending: ``a/b.md``; not ``a/b``, ``$out.md``."""
    return _NAME.fullmatch(word) is not None and _FILE_ENDING.search(word) is not None


def _within(folder: str, path: str) -> str:
    """Return `path` with `folder` before it; an absolute path or one on a drive unchanged."""
    if path[1:2] == ":":
        return path
    joined = join(folder, path.removeprefix("./"))
    if "../" not in joined:
        return joined
    return f"{normpath(joined)}/" if path.endswith("/") else normpath(joined)


def _changed(one: Command) -> list[PathChange]:
    """Return the changes of the files among a command's words. Words that are no names of files are included. Examples
    are ``sed -i _ a.py``, ``git checkout -- a.py`` and ``mv a b``; ``sed -n``, ``git checkout -b a`` and ``git rm
    --cached a`` change no file."""
    words = one.words
    operands = tuple(word.strip("\"'") for word in words[1:])
    how = ""
    if words[0] in ("sed", "gsed", "perl") and any(map(_IN_PLACE.fullmatch, words[1:])):
        how, operands = "edited by a command", words[1:]
    elif one.starts("git", "restore") and "--staged" not in words:
        how, operands = "restored by git", words[2:]
    elif one.starts("git", "checkout") and (path_marks := {"--", "--theirs", "--ours"}.intersection(words)):
        how, operands = "restored by git", words[min(map(words.index, path_marks)) + 1 :]
    elif operands and (words[0] == "mv" or one.starts("git", "mv")):
        how, operands = "moved" if "$" in operands[-1] else f"moved to {operands[-1]}", operands[:-1]
    elif one.starts("git", "worktree", "remove"):
        how = WITH_WORKTREE
    elif (one.starts("rm") or one.starts("git", "rm")) and "--cached" not in words:
        how = "removed"
    if not how:
        return []
    return [PathChange(word if _is_file(word) else f"{word.rstrip('/')}/", how) for word in operands]
