"""Reads what an agent's calls of programming tools do: shells, editors and patches.

Splits a shell line into its commands, and finds the files that they change, by their words alone: it runs nothing,
expands nothing, and reads no script. Finds the kind of a call and its files, and recognises lines of code that define a
function, type or constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, dropwhile
from posixpath import join, normpath
from typing import Any, NamedTuple

from planner.evidence.calls import Call, CallKind, CallReading, argument
from planner.reading.lazy import lazy_pattern

LINE_CHARACTERS = 4_096
"""Number of first characters of a shell line that are read, without its here-documents."""

_OPENED = lazy_pattern(r"<<-?[ \t]{0,80}\\?(['\"]?)(\w{1,80})\1")
"""Beginning of a here-document in a shell command: ``<<'EOF'``, ``<<\\EOF``."""
_TOKEN = lazy_pattern(
    r"\d*[<>]&[\d-]+|(?<!\S)#[^\n]*|(?P<redirect>\d*(?:>>?|<<?<?)|&>>?)|(?P<operator>&&|\|\||\|&?|[;&\n])"
    r"|(?P<word>(?:'[^']*+'?|\"(?:[^\"\\]|\\.)*+\"?|\\.|[^\s'\"\\;|&<>()])++)",
    re.S,
)
"""Next part of a shell line as written: a joined output (``2>&1``), comment (``# x``), redirection (``>``), operator
(``&&``) or word (``"a b"``)."""
_ASSIGNMENT = lazy_pattern(r"\w+=")
"""Beginning of a shell word that sets a variable: ``A=1``."""
_OPENING = frozenset({"{", "then", "do", "else", "if", "while"})
"""Keywords of the shell before a command."""
_CLOSING = frozenset({"}", "done", "fi", "esac"})
"""Keywords of the shell that have the place of a command but run nothing."""

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
"""First words of shell commands that only read."""
PREPARING = frozenset(
    (
        *("cd", "pushd", "popd", "echo", "printf", "sleep", "true", ":", "set", "export", "source", "kill", "pkill"),
        *("Set-Location", "Push-Location", "Write-Host", "Write-Output"),
    )
)
"""First words of shell commands that only prepare the main command of a line: they change the folder, wait or print."""
_BEFORE_ACT = {"-C": 2, "-c": 2, "--no-pager": 1}
"""Options that git accepts before its subcommand, each with the number of words it takes: two for ``-C ../app``."""
_SENDING = frozenset({"-X", "--method", "-f", "-F"})
"""Options with which ``gh api`` may change something."""


class PathChange(NamedTuple):
    """Change of one file or folder by an agent."""

    path: str
    """Path of the file or folder; it ends in a slash if it may be a folder."""
    how: str
    """Kind of change, in words: ``removed``, ``edited by a command``."""


class Command(NamedTuple):
    """One command of a shell line: ``make test > log`` in ``cd app && make test > log``."""

    words: tuple[str, ...]
    """Words of the command as written, with quotes, the program first; at least one."""
    before: str
    """Operator before the command: ``&&``, ``||``, ``|``, ``;`` or a line break; ``;`` for the first command."""
    outputs: tuple[PathChange, ...]
    """Files to which the output of the command is redirected."""
    folder: str = ""
    """Folder in which git runs: ``../app`` for ``git -C ../app log``; empty for the folder of the shell line."""

    def starts(self, *words: str) -> bool:
        """Return True if the command begins with `words`."""
        return self.words[: len(words)] == words


class HereDocument(NamedTuple):
    """Here-document of a shell command, a text that it passes to a program: ``cat > a <<'EOF'`` up to ``EOF``."""

    start: int
    """Index of the ``<<`` in the command."""
    stop: int
    """Index after the line that ends the document (``EOF``)."""
    beside: str
    """Text after ``<<EOF`` on the same line, which belongs to the command."""
    text: str
    """Lines of the document, without the one that ends it."""


def documents(command: str) -> Iterator[HereDocument]:
    """Yield the here-documents in a shell command, in order; one without an end extends to the end of the command."""
    at = 0
    while opened := _OPENED.search(command, at):
        line_end = command.find("\n", opened.end())
        if line_end < 0:
            return
        ended = re.compile(rf"^[ \t]{{0,80}}{opened[2]}[ \t]{{0,80}}$", re.M).search(command, line_end + 1)
        last, at = ended.span() if ended else (len(command), len(command))
        yield HereDocument(opened.start(), at, command[opened.end() : line_end], command[line_end + 1 : last])


def without_paging(command: str) -> str:
    """Return a shell line without ``| tail``, ``| head`` and ``2>&1`` at its end, so that two runs of the same command
    are equal: ``make`` for ``make 2>&1 | tail -9``."""
    command = command.rstrip()
    before, bar, last = command.rpartition("|")
    if bar and last.split()[:1] in (["tail"], ["head"]) and not {";", "&"} & {*last}:
        command = before.rstrip()
    return command.removesuffix("2>&1").rstrip()


def commands_of(line: str) -> tuple[Command, ...]:
    """Split the shell line `line` at its operators into commands, in order. Operators in quotes or in a here-document
    do not count. Assignments before a program and keywords of the shell are left out: ``if A=1 make`` becomes
    ``make``."""
    pieces, at = [], 0
    for document in documents(line) if "<<" in line else ():
        pieces += [line[at : document.start], "<<_", document.beside]
        at = document.stop
    without_documents = "".join([*pieces, line[at:]])
    return _parsed(without_documents.replace("\\\n", " ").strip()[:LINE_CHARACTERS])


@lru_cache(maxsize=4_096)
def _parsed(line: str) -> tuple[Command, ...]:
    """Split a shell line without here-documents into its commands (see `commands_of`)."""
    commands: list[Command] = []
    # words and outputs of the present command, until an operator ends it; the added line break ends the last one
    words: list[str] = []
    outputs: list[PathChange] = []
    operator, redirect = ";", ""  # the operator before the command; a redirection, until the next word names its file
    for token in chain(_TOKEN.finditer(line), _TOKEN.finditer("\n")):
        text = token.group()
        if token.lastgroup == "redirect":
            redirect = text
        elif token.lastgroup == "word" and redirect:
            if redirect in (">", ">>"):
                outputs.append(PathChange(text.strip("\"'"), _WRITTEN if redirect == ">" else _APPENDED))
            redirect = ""
        elif token.lastgroup == "word":
            words.append(text)
        elif token.lastgroup == "operator":
            command_words = tuple(dropwhile(lambda word: word in _OPENING or _ASSIGNMENT.match(word), words))
            if command_words and command_words[0] not in _CLOSING:
                commands.append(_without_git_options(Command(command_words, operator, tuple(outputs))))
            operator = text if command_words else operator  # a line break right after ``&&`` separates nothing
            words, outputs, redirect = [], [], ""
    return tuple(commands)


def _without_git_options(command: Command) -> Command:
    """Return ``git log``, with the folder ``../app``, for ``git -C ../app log``. Other commands stay the same."""
    if command.words[0] != "git":
        return command
    arguments, folder = command.words[1:], ""
    while arguments and arguments[0] in _BEFORE_ACT:
        count = _BEFORE_ACT[arguments[0]]
        folder = arguments[1].strip("\"'") if arguments[0] == "-C" and arguments[1:] else folder
        arguments = arguments[count:]
    return command._replace(words=("git", *arguments), folder=folder)


def is_looking(command: Command) -> bool:
    """Return True if a shell command only reads: its first words are in `_LOOKING` (``git log``), or its second or
    third word begins with ``show``, ``list`` or ``capture``; not ``git push``."""
    words = command.words[:3]
    if any(word.partition("-")[0] in ("show", "list", "capture") for word in words[1:]):
        return True
    looks = any(" ".join(words[:count]) in _LOOKING for count in (1, 2, 3))
    return looks and not (words[:2] == ("gh", "api") and _SENDING.intersection(command.words))


def last_run(commands: Sequence[Command]) -> list[Command]:
    """Return the commands of a shell line that may have run last; one of them set the exit code of the line. For ``a;
    b | c && d`` these are ``c`` and ``d``, as ``d`` does not run if ``c`` fails. For ``a || b`` it is only ``b``."""
    last: list[Command] = []
    for command in commands:
        if command.before in ("|", "|&"):
            last[-1:] = [command]
        elif command.before == "&&":
            last.append(command)
        else:
            last = [command]
    return last


_NAME = lazy_pattern(r"(?!/dev/|/proc/)(?:[A-Za-z]:)?[\w./\\~@+-]{1,300}+(?<=\w)")
"""File name or path: ``notes``, ``a/b.md``, ``C:\\a.md``; not ``/dev/null``, ``$out``, nor text in quotes."""
FILE_ENDING = lazy_pattern(r"\.\w{1,12}$")
_WRITTEN, _APPENDED = "written by a command", "appended to by a command"
WITH_WORKTREE = "removed with its worktree"
_IN_PLACE = lazy_pattern(r"-[a-zA-Z\d]*i.*", re.S)
"""Option with which ``sed`` changes its file: ``-i``, ``-ni``."""


def shell_changes(commands: Sequence[Command]) -> list[PathChange]:
    """Return the files that the `commands` of a shell line change, such as by ``> a.txt``, ``sed -i`` or ``rm``. Paths
    are relative to the folder in which the line runs. Names with variables or blanks are left out."""
    changes: list[PathChange] = []
    folder = ""
    for command in commands:
        words = command.words
        if words[0] == "cd":
            # "$": unknown folder; below, all names with such a mark are left out
            folder = _within(folder, words[1].strip("\"'")) if len(words) == 2 else "$"
        copies = [PathChange(word, _WRITTEN) for word in words[1:] if words[0] == "tee" and word[0] != "-"]
        outputs = [output for output in (*command.outputs, *copies) if _NAME.fullmatch(output.path)]
        changes += [PathChange(_within(folder, path), how) for path, how in outputs]
        changes += [PathChange(_within(_within(folder, command.folder), path), how) for path, how in _changed(command)]
        if words[0] in ("cp", "mv", "ditto", "install") and _is_file(words[-1]):
            changes.append(PathChange(_within(folder, words[-1]), _WRITTEN))
    # blanks are allowed here, because a folder after ``cd`` may have some
    return [change for change in changes if _NAME.fullmatch(change.path.removesuffix("/").replace(" ", "_"))]


def _is_file(word: str) -> bool:
    """Return True for the name of a file with an ending: ``a/b.md``; not ``a/b``, ``$out.md``."""
    return _NAME.fullmatch(word) is not None and FILE_ENDING.search(word) is not None


def _within(folder: str, path: str) -> str:
    """Return `path` with the `folder` before it; an absolute path stays the same."""
    if path[1:2] == ":":
        return path
    joined = join(folder, path.removeprefix("./"))
    if "../" not in joined:
        return joined
    return f"{normpath(joined)}/" if path.endswith("/") else normpath(joined)


def _changed(command: Command) -> list[PathChange]:
    """Return the changes of files that a command names: ``sed -i _ a.py``, ``git checkout -- a.py``, ``mv a b``; not
    ``sed -n`` or ``git rm --cached a``. The result may contain other words, such as the script of ``sed``."""
    words = command.words
    operands = tuple(word.strip("\"'") for word in words[1:])
    how = ""
    if words[0] in ("sed", "gsed", "perl") and any(map(_IN_PLACE.fullmatch, words[1:])):
        how, operands = "edited by a command", words[1:]
    elif command.starts("git", "restore") and "--staged" not in words:
        how, operands = "restored by git", words[2:]
    elif command.starts("git", "checkout") and (path_marks := {"--", "--theirs", "--ours"}.intersection(words)):
        how, operands = "restored by git", words[min(map(words.index, path_marks)) + 1 :]
    elif operands and (words[0] == "mv" or command.starts("git", "mv")):
        how, operands = "moved" if "$" in operands[-1] else f"moved to {operands[-1]}", operands[:-1]
    elif command.starts("git", "worktree", "remove"):
        how = WITH_WORKTREE
    elif (command.starts("rm") or command.starts("git", "rm")) and "--cached" not in words:
        how = "removed"
    if not how:
        return []
    return [PathChange(word if _is_file(word) else f"{word.rstrip('/')}/", how) for word in operands]


_COMMANDS = ("command", "cmd", "script", "code", "input")
"""Names of arguments that contain a command, the best first."""
_FOLDERS = ("workdir", "cwd", "working_directory", "working_dir")
"""Names of arguments that contain the folder in which a command runs."""
_OLD, _NEW = ("old_string", "old_str"), ("new_string", "new_str")
"""Names of arguments that contain the text that an edit replaces, and the new text."""
_WHOLE = ("content", "file_text")
"""Names of arguments that contain a whole new file."""
_SHELL = lazy_pattern(r"bash|shell|exec|run|terminal|command|python", re.I)
"""Names of tools that run commands."""
_PROCESS = lazy_pattern(r"stdin|(?:Bash|Shell|Terminal|Process|Command|Task)_?Output", re.I)
"""Names of tools that continue a running command: ``write_stdin``, ``BashOutput``, ``get_terminal_output``."""
_LOOKS = frozenset({"view", "read", "open", "show", "list"})
"""Commands of editor tools that change nothing, such as ``view``."""
PATCHED = lazy_pattern(r"^\*\*\* (Add|Update|Delete) File: (\S.*)(?:\n\*\*\* Move to: (\S.*))?$", re.M)
"""Line that names a file in a patch of Codex: ``*** Update File: src/a.ts``, with its new path if it is moved."""
_PATCHING = {"Add": "written", "Update": "edited", "Delete": "removed"}
"""Kind of change by the word before ``File:`` in a patch of Codex."""
_LEAD = lazy_pattern(r"^(?:cd \S+ && )+(?=\S)")
"""Changes of folder before the main command: ``cd /srv/app && `` in ``cd /srv/app && npm test``."""
_INSTALL = lazy_pattern(
    r"\b(?:pip3? install|uv (?:add|pip install)|npm (?:i|install|add)|yarn add|pnpm add|bun add|cargo add|go get|"
    r"apt(?:-get)? install|brew install|poetry add|gem install)\b[^&|;\n]*"
)
"""Command that installs packages, with the packages: ``npm install left-pad``."""
_REMARK = lazy_pattern(r"//|/?\*|#(?!include)|--|<!--|\W*$")
"""Beginning of a comment, or a line with marks alone: ``// Load it``, ``})``."""


def read_tool(name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
    """Add to `reading` (what general rules know of a call) the kind of a programming tool's call, its command and
    files, and which arguments hold the removed and added texts of an edit. `name`: name of the tool."""
    command = argument(arguments, _COMMANDS)
    commands = _commands_of_call(name, arguments, command)
    kind = _kind(name, command, commands, reading.kind)
    adds = tuple(key for key in (*_WHOLE, *_NEW, "new_source", "replacement_text") if key in arguments)
    lead = _LEAD.match(" ".join(command[:400].split())) if command.startswith("cd ") else None
    install = _INSTALL.search(command)
    return replace(
        reading,
        kind=kind,
        command=command,
        objects=", ".join(path for _, path, _ in PATCHED.findall(command)),
        lead=lead.group() if lead else "",
        tried=_tried(arguments, command) if kind == "write" else "",
        removes=tuple(key for key in _OLD if key in arguments) if kind == "write" else (),
        adds=adds if kind == "write" else (),
        is_whole=kind == "write" and not arguments.keys().isdisjoint(_WHOLE),
        is_local="patch" in name.lower() or bool(command and _SHELL.search(name)),
        installs=install[0].strip() if install else "",
        starts_anew=any(map(_changes_branch, commands)),
    )


def _kind(name: str, command: str, commands: Sequence[Command], kind: CallKind) -> CallKind:
    """Return the kind of a call; for an unknown tool `kind`, the one by general rules. A shell line is a ``read`` if
    its main command only reads and no command changes a file, else a ``run``."""
    if kind == "ask" or "kubectl" in name:  # its tools change a cluster, not the files that they read
        return "other" if kind == "write" else kind
    if _PROCESS.search(name):
        return "run"
    if commands:
        main = next((command for command in commands if command.words[0] not in PREPARING), commands[0])
        return "read" if is_looking(main) and not shell_changes(commands) else "run"
    if kind == "other" and _SHELL.search(name):
        return "run"
    return "read" if kind == "write" and command in _LOOKS else kind  # an editor tool with the command ``view``


def commands_in(call: Call) -> tuple[Command, ...]:
    """Return the shell commands that `call` runs; none if its tool runs code in another language."""
    return _commands_of_call(call.name, call.input, call.command)


def _commands_of_call(name: str, arguments: Mapping[str, Any], command: str) -> tuple[Command, ...]:
    """Return the shell commands in the argument `command` of a call; none if that is code in another language."""
    is_script = name == "exec" and command == arguments.get("input")  # Codex's tool, in place of a shell line
    is_shell = _SHELL.search(name) is not None and command != arguments.get("code")
    return commands_of(command) if command and is_shell and not is_script else ()


def folder_of(call: Call) -> str:
    """Return the absolute folder in which a call runs its command; empty if its arguments contain none."""
    folder = argument(call.input, _FOLDERS)
    return folder.rstrip("/") if folder.startswith("/") else ""


def writes_of(call: Call) -> Mapping[str, str]:
    """Return the files that a call of an editor or a patch changes, each with the kind of change: ``{"a.py":
    "edited"}``. The result is empty for other calls, and for an address such as ``conflict://7``."""
    if call.kind != "write":
        return {}
    if call.path and "\n" not in call.path:
        how = "written" if call.reading.is_whole else "edited"
        return {} if "://" in call.path else {call.path: how}
    patched = [match for text in call.input.values() if isinstance(text, str) for match in PATCHED.findall(text)]
    return {path: f"moved to {new_path}" if new_path else _PATCHING[act] for act, path, new_path in patched}


def edit_of(call: Call) -> tuple[str, str]:
    """Return the text that an edit replaces, and the new text. Each is empty if the call has no argument for it."""
    return argument(call.input, _OLD), argument(call.input, _NEW)


def _tried(arguments: Mapping[str, Any], command: str) -> str:
    """Return the first line that an edit adds, or if it adds none the first that it replaces; if possible no comment.
    It distinguishes this attempt from others with the same file."""
    old, new = argument(arguments, _OLD), argument(arguments, (*_NEW, "patch", "content"))
    new = new or "\n".join(line[1:] for line in command.splitlines() if line[:1] == "+")
    old_lines = {"", *map(str.strip, old.splitlines())}
    lines = [line for line in map(str.strip, new.splitlines()) if line not in old_lines]
    lines = lines or [old.strip().partition("\n")[0]]
    return next((line for line in lines if not _REMARK.match(line)), lines[0])[:80]


def _changes_branch(command: Command) -> bool:
    """Return True if a command goes to another branch: ``git switch main``; not ``git checkout -- src/a.py``."""
    forms = (("git", "checkout"), ("git", "switch"), ("gh", "pr", "checkout"))
    return "--" not in command.words and any(command.starts(*words) for words in forms)


_DEFINITION = lazy_pattern(
    r"[ \t]{0,8}"
    r"(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|unsafe)[ \t]){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module"
    r"|(?<![ \t])const|(?<=export )const|(?<=pub )const)"
    r"[ \t]{1,4}(?:\([^()\n]{0,60}\)[ \t]{0,2})?[A-Za-z_]"
)
"""Beginning of a function, type or constant of a module: ``func (s *Store) Save(``, ``export class Foo``, ``const
LIMIT``; not ``return type(x)``, nor a ``const`` within a function."""
_BEFORE_CODE = lazy_pattern(r"(?:\+|\s{0,8}\d{1,9}(?:→|\t| \| ))?")
"""Text that a tool prints before a line of code: a line number (``12→``), or the ``+`` of a diff."""


def defines(line: str) -> bool:
    """Return True if `line` begins the definition of a function, type or constant, to prefer it in searches."""
    before = _BEFORE_CODE.match(line)
    return _DEFINITION.match(line[before.end() :] if before else line) is not None
