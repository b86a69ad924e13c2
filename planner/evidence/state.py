"""State of the work and its repository in a history, as lines with the turns they rest on.

Each function reads evidence that was gathered and returns its lines in the order of the history. None judges what is
worth showing, and none says what the record does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from planner.evidence.calls import Call
from planner.evidence.changes import FileChange, changed_paths, file_changes
from planner.evidence.gather import Evidence, TurnEvidence, call_head
from planner.evidence.hosts import running_id, without_boilerplate
from planner.evidence.names import is_absolute, plain_path
from planner.evidence.outcomes import RAN_NOTHING, Outcome
from planner.evidence.shell import Command, commands_of, last_run, without_paging
from planner.evidence.tasks import task_lists
from planner.evidence.user_words import Choice
from planner.reading.lines import statements
from planner.reading.patterns import lazy_pattern

__all__ = [
    "CheckKind",
    "RecordLine",
    "branches",
    "changed_files",
    "check_kind",
    "check_outcomes",
    "choices",
    "commits",
    "conflicts",
    "latest_request",
    "open_items",
    "recoveries",
    "urls",
]

CheckKind = Literal["test", "lint", "typecheck", "build"]
_Ended = tuple[TurnEvidence, Call, Outcome]

LINE_CHARACTERS, WORDS_CHARACTERS = 300, 80
"""Length of one line, and of quoted words of the user."""
OUTCOME_CHARACTERS, COMMAND_CHARACTERS = 120, 120
"""Length of the outcome of a check, and of a command or the subject of a commit."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One line of the record, with the ids of its turns."""

    text: str
    turn_ids: tuple[str, ...]


def shortened(text: str, most: int = LINE_CHARACTERS) -> str:
    """`text` in one line of so many characters; a cut is marked, and made between words where there are several."""
    text = " ".join(text.split())
    return text if len(text) <= most else (text[:most].rpartition(" ")[0] or text[: most - 1]) + "…"


def latest_request(evidence: Evidence) -> RecordLine | None:
    """Return the latest words that the user typed, a short reply with its offer; None if the user typed nothing."""
    for turn in reversed(evidence.turns.values()):
        if turn.choice is not None:
            return _chosen(turn, turn.choice)
        if words := _last_typed(turn):
            answered = f", answered at {turn.answered_at}" * bool(turn.answered_at)
            return RecordLine(f"“{shortened(words, WORDS_CHARACTERS)}”{answered}", (turn.turn.id,))
    return None


def choices(evidence: Evidence) -> list[RecordLine]:
    """Return the offers that short replies of the user answer, each with the reply."""
    return [_chosen(turn, turn.choice) for turn in evidence.turns.values() if turn.choice is not None]


def _chosen(turn: TurnEvidence, choice: Choice) -> RecordLine:
    words = _plain_lines(one.text for one in statements(turn.user_lines))
    text = f"“{shortened(words, WORDS_CHARACTERS)}” to: {shortened(choice.text)}"
    return RecordLine(text, (choice.turn_id, turn.turn.id))


def _last_typed(turn: TurnEvidence) -> str:
    """The words of the last block that the user typed in `turn`."""
    typed = [line for line in turn.user_lines if line.part == "user"]
    return _plain_lines(one.text for one in statements(line for line in typed if line.block == typed[-1].block))


def _plain_lines(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, map(without_boilerplate, texts))).strip()


def changed_files(evidence: Evidence) -> list[RecordLine]:
    """The files that were written, and how they were changed last."""
    return [_change(evidence, change) for change in file_changes(evidence)]


def _change(evidence: Evidence, change: FileChange) -> RecordLine:
    state = change.how + f", before `{change.undone}`" * bool(change.undone)
    return RecordLine(evidence.shown(f"{change.path}: {state}"), tuple(dict.fromkeys(change.turns)))


_LAUNCHER = lazy_pattern(
    r"time|nice|sudo|env|exec|timeout|npx|bunx|bundle|python[\d.]*|run|uv|poetry|pipenv|pdm|hatch|rye"
)
"""Words before the program that is run: ``timeout 60 npx``, ``uv run``, ``.venv/bin/python -m``."""
_RUNNER = lazy_pattern(
    r"npm|yarn|pnpm|bun|deno|mise|make|just|task|rake|rails|gradlew?|mvn|dotnet|mix|swift|cargo|go|nx|turbo|composer|bazel|ruff"
)
"""Programs that run what is named behind them: ``bun --filter @a/core build``, ``make -C app test``."""
_VALUED = frozenset({"-C", "--filter", "--cwd", "--prefix", "-w"})
"""Options of theirs that take a word."""
_PROGRAMS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("tsc", "mypy", "pyright", "basedpyright"), "typecheck"),
    **dict.fromkeys(("eslint", "ruff check", "biome", "golangci-lint", "flake8", "rubocop"), "lint"),
    **dict.fromkeys(("pytest", "jest", "vitest", "rspec", "mocha", "tox", "nextest", "ctest", "unittest"), "test"),
    **dict.fromkeys(("tsup", "webpack", "cargo check"), "build"),
}
"""Programs that are checks by themselves, where a program stands: ``npx tsc -p .``; not ``npm install jest``."""
_TASKS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("typecheck", "type-check", "vet"), "typecheck"),
    **dict.fromkeys(("lint", "clippy"), "lint"),
    **dict.fromkeys(("test", "tests"), "test"),
    **dict.fromkeys(("build", "compile", "all"), "build"),
}
_RUNS_NOTHING = frozenset({"--help", "--version", "-h", "-V"})


def check_kinds(call: Call) -> list[CheckKind]:
    """Which checks a call ran, in their order: ``make lint && make test`` ran two; ``git add a.test.ts`` none."""
    kinds = map(check_kind, call.commands) if call.kind == "run" else ()
    return list(dict.fromkeys(kind for kind in kinds if kind))


def check_kind(command: Command) -> CheckKind | None:
    """Which check a command runs, told by its first word that is no launcher, option or number; ``go test -c`` builds
    and runs none.
    """
    if command.starts("go", "test") and "-c" in command.words:
        return "build"
    runs = False
    for before, word in pairwise(("", *command.words)):
        name = word.rpartition("/")[2]
        if _RUNNER.fullmatch(name):
            runs = True
        elif not (_LAUNCHER.fullmatch(name) or word[0] in "-0123456789" or before in _VALUED):
            tasks = (name, *name.split(":")) if runs and name == word else ()
            programs = (_PROGRAMS.get(one) for one in (name, f"{before} {name}"))
            kinds = [kind for kind in (*programs, *map(_TASKS.get, tasks)) if kind]
            return kinds[0] if kinds and _RUNS_NOTHING.isdisjoint(command.words) else None
    return None


def check_outcomes(evidence: Evidence) -> list[RecordLine]:
    """Return the last run of each kind of check with its counts, its failures or its exit code.

    Nothing is said of a run whose end does not show.
    """
    ended = [one for one in evidence.ended_calls() if one[2].status != "unanswered" and not one[2].refused]
    last = {kind: at for at, (_, call, _) in enumerate(ended) for kind in check_kinds(call)}
    said: list[RecordLine] = []
    for at in dict.fromkeys(last.values()):
        run, end = ended[at], _end_of(ended, at)
        if text := _check_outcome(evidence, run[1], *end):
            kinds = check_kinds(run[1])
            which = "one of " * (len(kinds) > 1 and end[2].status == "failed") + ", ".join(kinds)
            said.append(RecordLine(f"{which}: {text}", tuple(dict.fromkeys([run[0].turn.id, end[0].turn.id]))))
    return said


def _end_of(ended: Sequence[_Ended], at: int) -> _Ended:
    """The call that shows how the one `at` a place ended: of a command that went on behind its call the last that asks
    for its output."""
    name = running_id(ended[at][1].text) if ended[at][2].status == "running" else ""
    asking = (one for one in reversed(ended[at + 1 :]) if name in map(str, one[1].input.values()))
    return next(asking, ended[at]) if name else ended[at]


def _check_outcome(evidence: Evidence, run: Call, turn: TurnEvidence, call: Call, outcome: Outcome) -> str:
    command = f"`{shortened(evidence.shown(run.subject), COMMAND_CHARACTERS)}`"
    lines = [plain for one in turn.statements_of(outcome.lines) if (plain := without_boilerplate(one.text).strip())]
    if lines and all(map(RAN_NOTHING.search, lines)):
        return ""
    words = " · ".join(shortened(line, OUTCOME_CHARACTERS) for line in lines[-2:])
    code = outcome.exit_code
    if outcome.status == "running":
        return f"{command} was still running: {words}" if words else f"{command} was still running"
    if call.is_error or code:
        return f"{command} failed: {words}" if words else f"{command} failed"
    if outcome.status in ("passed", "failed"):
        return f"{command}: {words}"
    if code == 0 and any(map(check_kind, last_run(run.commands))):
        return f"{command}: exit code 0"
    return f"{command} printed nothing" if not call.text.strip() else ""


def recoveries(evidence: Evidence) -> list[RecordLine]:
    """Commands that failed and of which a later run shows that it passed, by its counts or its exit code."""
    failed: dict[str, list[str]] = {}
    lines: list[RecordLine] = []
    for turn, call, outcome in evidence.ended_calls():
        command = f"{call.name} {without_paging(call.command)}"
        if call.kind != "run" or outcome.refused or not call.command:
            continue
        if outcome.has_failed:
            failed.setdefault(command, []).append(turn.turn.id)
        elif _shows_success(turn, call, outcome) and (ids := failed.pop(command, None)):
            text = f"{call_head(call, evidence.root)} failed; the same command passed at {turn.turn.id}"
            lines.append(RecordLine(text, (*dict.fromkeys(ids), turn.turn.id)))
    return lines


def _shows_success(turn: TurnEvidence, call: Call, outcome: Outcome) -> bool:
    if outcome.status == "passed":
        return not all(RAN_NOTHING.search(one.text) for one in turn.statements_of(outcome.lines))
    return outcome.status == "done" and outcome.exit_code == 0 and "|" not in call.command


_URL = lazy_pattern(r"https?://[^\s\"'<>`|\\^{}\[\]()]{4,300}")
_IN_FILE = lazy_pattern(r":\d+:\d+$")
"""Where a browser's trace says line and column of a program: ``http://localhost:3000/app.js:30815:13``."""
_BADGE = lazy_pattern(r"\bshields\.io/|/badges?[/.]|\.(?:png|jpe?g|gif|svg|webp|ico|css|js|woff2?)(?:\?|$)", re.I)
"""A picture that says how something stands, beside its link: ``https://img.shields.io/badge/…``, ``…/badge.svg``."""
_REVIEW = lazy_pattern(
    r"https?://[^\s\"'<>`()\[\]]{4,200}/(?:pull|pulls|issues|merge_requests|-/merge_requests)/\d{1,9}"
)
"""A pull request or an issue: ``https://host/a/b/pull/7``."""


def urls(evidence: Evidence) -> list[RecordLine]:
    """URLs that the user named, the agent wrote, or a short result printed, each with the turns that name it: pull
    requests and issues first, of each kind the newest first; none that only programs read.
    """
    naming: dict[str, list[str]] = {}
    for turn in evidence.turns.values():
        for url in turn.once(_urls):
            naming.setdefault(url, []).append(turn.turn.id)
    pages = [RecordLine(url, tuple(ids)) for url, ids in reversed(naming.items()) if "//api." not in url]
    return sorted(pages, key=lambda page: _REVIEW.fullmatch(page.text) is None)


def _urls(turn: TurnEvidence) -> tuple[str, ...]:
    numbers = {number for outcome in turn.outcomes for number in outcome.lines}
    own = {*turn.lines.of_sources("user", "agent", "planner"), *(turn.lines[number - 1] for number in numbers)}
    matches = (url.rstrip(".,:;!?*") for line in sorted(own) for url in _URL.findall(line.text))
    pages = (url for url in matches if "#" not in url and not (_IN_FILE.search(url) or _BADGE.search(url)))
    return tuple(dict.fromkeys(review[0] if (review := _REVIEW.match(url)) else url for url in pages))


LEFT_TURNS = 10
"""So long after the answer to what a list of tasks was written for, it has not been taken up again."""


def open_items(evidence: Evidence) -> list[RecordLine]:
    """Return the open tasks of the agent's lists, each with its state; none of a list that was left long ago."""
    tasks = (one for standing in task_lists(evidence) for one in standing if one.is_open)
    turns = list(evidence.turns.values())
    return [
        RecordLine(f"{f'Task #{one.number}: ' * bool(one.number)}{shortened(one.text)} ({one.status})", (one.turn_id,))
        for one in tasks
        if not _is_left(turns, evidence.turns[one.turn_id].turn.number)
    ]


def _is_left(turns: Sequence[TurnEvidence], at: int) -> bool:
    """True if the request that the agent worked on at the turn of this number was answered long ago."""
    asked = next((turns[before] for before in range(at - 2, -1, -1) if turns[before].user_lines), None)
    if asked is None or not asked.answered_at:
        return False
    answered = next(turn.turn.number for turn in turns[asked.turn.number :] if turn.turn.id == asked.answered_at)
    return at <= answered <= len(turns) - LEFT_TURNS


_COMMIT = lazy_pattern(r"^\[(?:[^\s\[\]]{1,120}|detached HEAD) (?:\(root-commit\) )?([0-9a-f]{7,40})\] (.*)$", re.M)
"""Report of git on a commit: ``[main a1b2c3d] Fix the race``, ``[detached HEAD a1b2c3d] Try``; not ``[main] Fix``."""
_LOGGED = lazy_pattern(r"^[*|\\/ ]{0,9}([0-9a-f]{7,40}) (?:\([^()\n]{1,200}\) )?(.+)$", re.M)
"""A commit in ``git log --oneline``: ``a1b2c3d (HEAD -> main) Fix the race``."""
SHORT_HASH = 7
"""Git abbreviates a hash to as many digits as it needs, and to no fewer."""
_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""How git names a file in conflict: when it merges, in its status, and in its short status, ``UU src/a.py``."""
_BACK = lazy_pattern(r"HEAD(?:~(\d{1,2})?|\^)")
"""``HEAD~2``, ``HEAD^``; not ``HEAD``."""
_GIVING_UP = frozenset({"--abort", "--quit"})
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""The branch as git names it: ``On branch main``, ``## main...origin/main``, ``Switched to a new branch 'fix'``."""
_ASKING_BRANCH = (("branch", "--show-current"), ("rev-parse", "--abbrev-ref", "HEAD"))
_BRANCH_ALONE = lazy_pattern(r"^(?!refs/|origin/|HEAD$|[0-9a-f]{7,40}$)(\w[\w./-]{0,119})$", re.M)
"""Output of such a command: the name of the branch, alone in its line; not ``--- branch ---``, a hash or ``HEAD``.
"""
_REBASING = frozenset({"rebase", "--rebase"})
_RUN_BY_USER = lazy_pattern(r"</?bash-(?:input|stdout)>")
"""How Claude Code marks what the user ran beside the agent, ``! git commit``, and what that printed."""


def _git_commands(call: Call) -> list[Command]:
    """The commands of `call` whose output tells of commits, branches and conflicts, not of those that would be."""
    asked = [one for one in call.commands if one.words[0] in ("git", "gh", "glab")]
    return [] if any(one.starts("git", "merge-tree") for one in asked) else asked


def _users_commands(turn: TurnEvidence) -> Sequence[Command]:
    """Return the commands that the user ran beside the agent, as Claude Code reports them."""
    ran = turn.text.partition("<bash-input>")[2] if turn.turn.kind == "user" else ""
    return commands_of(ran.partition("</bash-input>")[0]) if ran else ()


def _git_output(evidence: Evidence) -> Iterator[tuple[TurnEvidence, str, list[Command]]]:
    """Yield the output of git in the repository of the work with its commands, also those of the user."""
    for turn in evidence.turns.values():
        if turn.turn.kind == "user" and _RUN_BY_USER.search(turn.text):
            yield turn, _RUN_BY_USER.sub("\n", turn.text), list(_users_commands(turn))
        for call in turn.calls:
            if (asked := _git_commands(call)) and not _is_elsewhere(call, evidence.root):
                yield turn, call.text, asked


def _is_elsewhere(call: Call, root: str) -> bool:
    """True if `call` goes to a folder that neither holds the changed files' `root` nor lies in it: ``cd /srv/other &&
    git status``, ``git -C ../other log``; not ``cd src``."""
    asked = [*filter(None, [call.folder, *(one.folder for one in call.commands)])]
    moved = [one.words[-1].strip("\"'") for one in call.commands if one.words[0] == "cd"]
    gone = [*asked, *(folder for folder in moved if is_absolute(folder) or folder.startswith(".."))] if root else []
    paths = [f"{plain_path(folder, [root]).rstrip('/')}/" for folder in gone]
    return any(not path.startswith(f"{root}/") and not f"{root}/".startswith(path) for path in paths)


def commits(evidence: Evidence) -> list[RecordLine]:
    """Commits that were made, and since neither amended nor taken back: hash and subject, by the hash that a log of git
    showed last."""
    made: list[tuple[str, str, str]] = []
    for turn, text, asked in _git_output(evidence):
        if "fatal: " not in text:
            made = made[: len(made) - sum(map(_taken_back, asked))]
        if any(_REBASING.intersection(one.words) for one in asked):  # all may have other names now
            made = []
        logged = {subject: digest for digest, subject in reversed(_LOGGED.findall(text))}
        made = [(_renamed(digest, logged.get(subject, digest)), subject, turn_id) for digest, subject, turn_id in made]
        made += [(digest, subject, turn.turn.id) for digest, subject in _COMMIT.findall(text)]
    last = {one[0][:SHORT_HASH]: one for one in made}
    return [
        RecordLine(f"commit {digest} {shortened(subject, COMMAND_CHARACTERS)}", (turn_id,))
        for digest, subject, turn_id in last.values()
    ]


def _renamed(digest: str, logged: str) -> str:
    """The hash of a commit that a log shows as `logged`; two abbreviations of one are the same."""
    return digest if digest.startswith(logged) or logged.startswith(digest) else logged


def _taken_back(command: Command) -> int:
    """How many of the newest commits a command takes away: ``git commit --amend``, ``git reset --soft HEAD~2``."""
    words = command.words[1:]
    if words[:1] == ("commit",):
        return int("--amend" in words)
    back = _BACK.fullmatch(words[-1]) if words[:1] == ("reset",) else None
    return int(back[1] or 1) if back else 0


def conflicts(evidence: Evidence) -> list[RecordLine]:
    """The files that a merge left in conflict, that were not changed since and that no commit settled."""
    standing: dict[str, str] = {}
    for turn, call, outcome in evidence.ended_calls():
        written = tuple(changed_paths(call, outcome))
        standing = {path: at for path, at in standing.items() if not any(one.endswith(path) for one in written)}
        asked = [] if _is_elsewhere(call, evidence.root) else _git_commands(call)
        if not asked:
            continue
        if _COMMIT.search(call.text) or _SETTLED.search(call.text) or any(_GIVING_UP & {*one.words} for one in asked):
            standing.clear()
        named = (next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(call.text))
        standing |= dict.fromkeys(named, turn.turn.id)
    text = f"merge conflicts in {', '.join(map(evidence.shown, standing))}"
    return [RecordLine(text, tuple(dict.fromkeys(standing.values())))] if standing else []


def branches(evidence: Evidence) -> list[RecordLine]:
    """The branches that the work was on, the last one last."""
    naming: dict[str, list[str]] = {}
    for turn, text, asked in _git_output(evidence):
        if any(one.starts("git", "worktree") for one in asked):
            continue  # what is printed may be another one's
        named = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(text)]
        asking = [one.words[1:] in _ASKING_BRANCH for one in asked]
        if any(asking) and "(no branch)" not in text:  # what others printed stands before or behind it
            alone = _BRANCH_ALONE.findall(text)
            named += alone[:1] if asking[0] else alone[-1:]
        for branch in named:
            naming[branch] = [*naming.pop(branch, []), turn.turn.id]
    current = next(reversed(naming), "")
    return [
        RecordLine(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)))
        for branch, ids in naming.items()
    ]
