"""What a history says of the state of the work and its repository, as lines with the turns they rest on.

Each function reads evidence that was gathered and returns its lines in the order of the history. None judges what is
worth showing, and none says what the record does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.evidence.calls import Call, chained
from planner.evidence.changes import FileChange, file_changes, written_texts
from planner.evidence.gather import Evidence, TurnEvidence, call_head
from planner.evidence.hosts import without_boilerplate
from planner.evidence.outcomes import Outcome
from planner.evidence.tasks import Task, task_lists
from planner.evidence.user_words import Choice
from planner.reading.lines import statements
from planner.reading.patterns import lazy_pattern

__all__ = [
    "CheckKind",
    "RecordLine",
    "branches",
    "changed_files",
    "check_outcomes",
    "choices",
    "commits",
    "conflicts",
    "latest_request",
    "open_items",
    "pending_changes",
    "recoveries",
    "urls",
]

CheckKind = Literal["test", "lint", "typecheck", "build"]

LINE_CHARACTERS = 300
"""Of one line so much."""
REQUEST_CHARACTERS = 400
"""Of the latest request so much is told."""
OUTCOME_CHARACTERS = 160
"""Of how a check ended so much."""
COMMAND_CHARACTERS = 120
"""Of a command, and of the subject of a commit."""
MOST_NAMES = 5
"""Of the names in one file so many of a kind, the last ones."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """What the record says, and the ids of the turns that say it."""

    text: str
    turn_ids: tuple[str, ...]


def shortened(text: str, most: int = LINE_CHARACTERS) -> str:
    """`text` in one line of so many characters; a cut is marked, and made between words where there are several."""
    text = " ".join(text.split())
    return text if len(text) <= most else (text[:most].rpartition(" ")[0] or text[: most - 1]) + "…"


def latest_request(evidence: Evidence) -> RecordLine | None:
    """What the user typed last; of a short answer with what it chose. None if the user typed nothing."""
    for turn in reversed(evidence.turns.values()):
        if turn.choice is not None:
            return _chosen(turn, turn.choice)
        if words := _last_typed(turn):
            return RecordLine(_quoted(shortened(words, REQUEST_CHARACTERS)), (turn.turn.id,))
    return None


def choices(evidence: Evidence) -> list[RecordLine]:
    """What short answers of the user chose, each with the words of the answer."""
    return [_chosen(turn, turn.choice) for turn in evidence.turns.values() if turn.choice is not None]


def _chosen(turn: TurnEvidence, choice: Choice) -> RecordLine:
    words = _plain_lines(one.text for one in statements(turn.user_lines))
    return RecordLine(f"{_quoted(words)} to: {shortened(choice.text)}", (choice.turn_id, turn.turn.id))


def _last_typed(turn: TurnEvidence) -> str:
    """The words of the last block that the user typed in `turn`."""
    typed = [line for line in turn.user_lines if line.part == "user"]
    return _plain_lines(one.text for one in statements(line for line in typed if line.block == typed[-1].block))


def _plain_lines(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, map(without_boilerplate, texts))).strip()


def _quoted(text: str) -> str:
    return f"“{' '.join(text.split())}”"


def changed_files(evidence: Evidence) -> list[RecordLine]:
    """The files that were written: how the last change ended, and what was edited, defined and named in each."""
    return [_change(evidence, change) for change in file_changes(evidence)]


def _change(evidence: Evidence, change: FileChange) -> RecordLine:
    path, ids = evidence.shown(change.path), tuple(dict.fromkeys(change.turns))
    if not ids:
        return RecordLine(f"{path}: change failed", (change.failed_turn,))
    state = "written" if change.written else "edited"
    names = [
        f"{what} {', '.join(listed[:MOST_NAMES])}{', …' * (len(listed) > MOST_NAMES)}"
        for what, listed in (("in", change.edits), ("defines", change.defines), ("now names", change.adds))
        if listed
    ]
    state += ", last change failed" * change.failed_last
    return RecordLine("; ".join([f"{path}: {state}", *names]), ids)


_CHECKS: tuple[tuple[CheckKind, re.Pattern[str]], ...] = (
    ("typecheck", lazy_pattern(r"\b(?:typecheck|type-check|tsc|mypy|pyright|go vet|flow check)\b")),
    ("lint", lazy_pattern(r"\b(?:lint|eslint|ruff|biome|golangci-lint|flake8|clippy|rubocop|prettier)\b|lint:|:lint")),
    ("test", lazy_pattern(r"\b(?:test|tests|pytest|jest|vitest|rspec|mocha|tox|nextest|ctest|unittest)\b|test:|:test")),
    ("build", lazy_pattern(r"\b(?:build|compile|make|tsup|webpack|vite build|cargo check)\b")),
)
"""Which kind of check a command is, the first that fits: ``bun run typecheck``, ``go test ./...``; not ``cat test.py``,
which only looks."""
_NO_CHECK = lazy_pattern(r"\s*(?:git|gh|cd|echo|cat|ls|grep|rg|mkdir|rm|cp|mv|touch|tail|head|sed|export|go doc)\b")
"""Commands that check nothing, whatever the words behind them: ``git commit -m "Fix the build"``."""


def check_kinds(call: Call) -> list[CheckKind]:
    """Which checks a call ran, in their order: ``make lint && make test`` ran two."""
    if call.kind != "run":
        return []
    commands = chained(call.command.split("<<", 1)[0][:LINE_CHARACTERS])
    runs = [command for command in commands if not _NO_CHECK.match(command)]
    kinds = (next((kind for kind, pattern in _CHECKS if pattern.search(run)), None) for run in runs)
    return list(dict.fromkeys(kind for kind in kinds if kind))


def check_outcomes(evidence: Evidence) -> list[RecordLine]:
    """Of each kind of check the last run: its command, whether it passed, and the lines that say so."""
    ended = [one for one in evidence.ended_calls() if one[2].status != "unanswered"]
    last = {kind: at for at, (_, call, _) in enumerate(ended) for kind in check_kinds(call)}
    return [
        _check_outcome(evidence, [kind for kind in last if last[kind] == at], *ended[at])
        for at in dict.fromkeys(last.values())
    ]


def _check_outcome(
    evidence: Evidence, kinds: Sequence[CheckKind], turn: TurnEvidence, call: Call, outcome: Outcome
) -> RecordLine:
    command = shortened(evidence.shown(call.subject), COMMAND_CHARACTERS)
    word = {"passed": "passed", "failed": "failed", "running": "was still running"}.get(outcome.status, "ended")
    lines = [plain for one in turn.statements_of(outcome.lines) if (plain := without_boilerplate(one.text).strip())]
    end = f"{word}: {shortened(' · '.join(lines[-2:]), OUTCOME_CHARACTERS)}" if lines else word
    return RecordLine(f"{', '.join(kinds)}: `{command}` {end}", (turn.turn.id,))


_SHOWING = lazy_pattern(r"\s*(?:2>&1)?\s*\|\s*(?:tail|head|grep|rg)\b.*$|\s*2>&1\s*$", re.S)
"""What only says how much of an output is shown: ``make test 2>&1 | tail -20`` is ``make test``."""


def recoveries(evidence: Evidence) -> list[RecordLine]:
    """Commands that failed and of which a later run shows that it passed; what failed stands as an entry of its own."""
    failed: dict[str, list[str]] = {}
    lines: list[RecordLine] = []
    for turn, call, outcome in evidence.ended_calls():
        command = f"{call.name} {_SHOWING.sub('', call.command)}"
        if call.kind == "run" and outcome.status == "failed" and not turn.is_refused(call):
            failed.setdefault(command, []).append(turn.turn.id)
        elif outcome.status == "passed" and (ids := failed.pop(command, None)):
            text = f"{call_head(call, evidence.root)} failed; the same command passed at {turn.turn.id}"
            lines.append(RecordLine(text, (*dict.fromkeys(ids), turn.turn.id)))
    return lines


_URL = lazy_pattern(r"https?://[^\s\"'<>`|\\^{}\[\]()]{4,300}")
_REVIEW = lazy_pattern(
    r"https?://[^\s\"'<>`()\[\]]{4,200}/(?:pull|pulls|issues|merge_requests|-/merge_requests)/\d{1,9}"
)
"""A pull request or an issue: ``https://host/a/b/pull/7``."""


def urls(evidence: Evidence, reviews_only: bool = False) -> list[RecordLine]:
    """URLs that the user named, the agent wrote, or a short result printed, each with the turns that name it.

    `reviews_only`: those of pull requests and issues alone.
    """
    naming: dict[str, list[str]] = {}
    for turn in evidence.turns.values():
        for url in turn.once(_urls):
            review = _REVIEW.match(url)
            if review or not reviews_only:
                naming.setdefault(review[0] if review and reviews_only else url, []).append(turn.turn.id)
    return [RecordLine(url, tuple(dict.fromkeys(ids))) for url, ids in naming.items()]


def _urls(turn: TurnEvidence) -> tuple[str, ...]:
    numbers = {number for outcome in turn.outcomes for number in outcome.lines}
    own = {*turn.lines.of_sources("user", "agent", "planner"), *(turn.lines[number - 1] for number in numbers)}
    matches = (url.rstrip(".,:;!?*") for line in sorted(own) for url in _URL.findall(line.text))
    return tuple(dict.fromkeys(matches))


def open_items(evidence: Evidence) -> list[RecordLine]:
    """What the agent's lists of tasks leave open, with the state of each."""
    tasks = [task for standing in task_lists(evidence) for task in standing.tasks if task.is_open]
    return [RecordLine(f"{_label(task)}{shortened(task.text)} ({task.status})", (task.turn_id,)) for task in tasks]


def _label(task: Task) -> str:
    return f"Task #{task.number}: " if task.number else ""


def pending_changes(evidence: Evidence) -> list[RecordLine]:
    """The files that were changed after the last test, and after the last commit, if there was one."""
    since = {
        "test": _changed_since(evidence, lambda call: "test" in check_kinds(call)),
        "commit": _changed_since(evidence, lambda call: bool(_commits(call))),
    }
    return [
        RecordLine(f"changed since the last {what}: {', '.join(map(evidence.shown, changed))}", tuple(changed.values()))
        for what, changed in since.items()
        if changed
    ]


def _changed_since(evidence: Evidence, closes: Callable[[Call], bool]) -> dict[str, str]:
    """Files with the turn that changed them last, behind the last call that `closes`; none if there is none."""
    changed: dict[str, str] = {}
    closed = False
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status in ("failed", "running", "unanswered"):
            continue
        if closes(call):
            closed = True
            changed.clear()
        changed |= {path: turn.turn.id for path, _, _ in written_texts(call)}
    return changed if closed else {}


_GIT = lazy_pattern(r"\b(?:git|gh|glab)\b")
"""Commands whose output tells of commits, branches and conflicts: ``git switch main``, ``gh pr checkout 7``."""
_COMMIT = lazy_pattern(r"^\[[\w./-]{1,120} (?:\(root-commit\) )?([0-9a-f]{7,40})\] (.*)$", re.M)
"""What git says of a commit: ``[main a1b2c3d] Fix the race``; not ``[main] Fix``."""
_CONFLICT = lazy_pattern(
    r"^CONFLICT \([^)\n]{1,60}\): Merge conflict in (\S.{0,250})$|^\s{0,8}both (?:modified|added): +(\S.{0,250})$"
    r"|^(?:UU|AA) (\S.{0,250})$",
    re.M,
)
"""How git names a file in conflict: when it merges, in its status, and in its short status, ``UU src/a.py``."""
_SETTLED = lazy_pattern(r"^Successfully rebased |^Merge made by |^All conflicts fixed ", re.M)
_GIVEN_UP = lazy_pattern(r"\bgit (?:merge|rebase|cherry-pick|am) --(?:abort|quit)\b")
_ON_BRANCH = lazy_pattern(
    r"^On branch ([\w./-]{1,120})$|^Switched to (?:a new )?branch '([\w./-]{1,120})'|^\[([\w./-]{1,120}) "
    r"(?:\(root-commit\) )?[0-9a-f]{7,40}\] |^## ([\w/-][\w./-]{0,119}?)\.\.\.",
    re.M,
)
"""The branch as git names it: ``On branch main``, ``## main...origin/main``, ``Switched to a new branch 'fix'``."""
_ASKS_BRANCH = lazy_pattern(r"\bgit (?:branch --show-current|rev-parse --abbrev-ref HEAD)")
_BRANCH_ALONE = lazy_pattern(r"^(\w[\w./-]{0,119})$", re.M)
"""What such a command prints: the name of the branch, alone in its line; not ``--- branch ---``."""


_ELSEWHERE = lazy_pattern(
    r"(?:^|[;&|(]\s*)cd +[\"']?(?P<folder>[/~][^\s;&|\"')]*|\.\.[^\s;&|\"')]*)|\bgit -C +[\"']?(?P<of>[^\s\"']+)"
)
"""Where a command goes to before it asks git: ``cd /srv/other && git status``, ``git -C ../other log``."""


def _git_calls(evidence: Evidence) -> Iterator[tuple[TurnEvidence, Call, Outcome]]:
    """Calls that asked git about the repository of the work; not those that went to another folder to ask."""
    for turn, call, outcome in evidence.ended_calls():
        if _GIT.search(call.command) and not _is_elsewhere(call.command, evidence.root):
            yield turn, call, outcome


def _is_elsewhere(command: str, root: str) -> bool:
    """True if `command` goes to a folder that neither holds the changed files' `root` nor lies in it."""
    folders = (match["folder"] or match["of"] for match in _ELSEWHERE.finditer(command))
    inside = f"{root.rstrip('/')}/"
    paths = [f"{folder.rstrip('/')}/" for folder in folders if root]
    return any(not path.startswith(inside) and not inside.startswith(path) for path in paths)


def _commits(call: Call) -> list[tuple[str, str]]:
    """Hash and subject of each commit that `call` made."""
    return _COMMIT.findall(call.text) if call.kind == "run" and _GIT.search(call.command) else []


def commits(evidence: Evidence) -> list[RecordLine]:
    """Commits that were made: hash and subject."""
    return [
        RecordLine(f"commit {made} {shortened(subject, COMMAND_CHARACTERS)}", (turn.turn.id,))
        for turn, call, _ in _git_calls(evidence)
        for made, subject in _commits(call)
    ]


def conflicts(evidence: Evidence) -> list[RecordLine]:
    """The files that a merge left in conflict and no commit settled, and which of them were changed since."""
    standing: dict[str, str] = {}
    changed: dict[str, str] = {}
    for turn, call, outcome in evidence.ended_calls():
        if _is_elsewhere(call.command, evidence.root):
            continue
        if _GIT.search(call.command):
            if _commits(call) or _SETTLED.search(call.text) or _GIVEN_UP.search(call.command):
                standing.clear()
            named = (next(filter(None, match.groups())).strip() for match in _CONFLICT.finditer(call.text))
            standing |= dict.fromkeys(named, turn.turn.id)
        elif standing and outcome.status != "failed":
            written = [path for path, _, _ in written_texts(call)]
            changed |= {path: turn.turn.id for path in standing if any(one.endswith(path) for one in written)}
    if not standing:
        return []
    since = [path for path in standing if path in changed]
    text = f"merge conflicts in {', '.join(map(evidence.shown, standing))}"
    text += f"; changed since: {', '.join(map(evidence.shown, since))}" * bool(since)
    return [RecordLine(text, tuple(dict.fromkeys((*standing.values(), *(changed[path] for path in since)))))]


def branches(evidence: Evidence) -> list[RecordLine]:
    """The branches that the work was on, the last one last."""
    naming: dict[str, list[str]] = {}
    for turn, call, _ in _git_calls(evidence):
        named = [next(filter(None, match.groups())) for match in _ON_BRANCH.finditer(call.text)]
        if _ASKS_BRANCH.search(call.command):
            named += _BRANCH_ALONE.findall(call.text)[:1]
        for branch in named:
            naming[branch] = [*naming.pop(branch, []), turn.turn.id]
    current = next(reversed(naming), "")
    return [
        RecordLine(f"{'on' if branch == current else 'before on'} branch {branch}", tuple(dict.fromkeys(ids)))
        for branch, ids in naming.items()
    ]
