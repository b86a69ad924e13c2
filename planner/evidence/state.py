"""What a history says of the state of the work, as statements with the turns they rest on: an extractive brief.

Each function reads evidence that was gathered and returns its statements in the order of the history. None judges what
is worth showing, and none says what the record does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from planner.evidence.answers import Choice
from planner.evidence.boilerplate import without_boilerplate
from planner.evidence.calls import Call, chained
from planner.evidence.changes import FileChange, file_changes
from planner.evidence.gather import Evidence, TurnEvidence, call_head
from planner.evidence.outcomes import Outcome
from planner.evidence.said import LINE_CHARACTERS, Said, ended_calls, shortened
from planner.evidence.tasks import Task, task_lists
from planner.reading.lines import statements
from planner.reading.patterns import lazy_pattern

__all__ = [
    "CheckKind",
    "changed_files",
    "check_outcomes",
    "choices",
    "latest_request",
    "open_items",
    "remedies",
    "urls",
]

CheckKind = Literal["test", "lint", "typecheck", "build"]

REQUEST_CHARACTERS = 400
"""Of the latest request so much is told."""
OUTCOME_CHARACTERS = 160
"""Of how a check ended so much."""
MOST_NAMES = 5
"""Of the names in one file so many of a kind, the last ones."""


def latest_request(evidence: Evidence) -> Said | None:
    """What the user typed last; of a short answer with what it chose. None if the user typed nothing."""
    for turn in reversed(evidence.turns.values()):
        if turn.choice is not None:
            return _chosen(turn, turn.choice)
        if words := _last_typed(turn):
            return Said(_quoted(shortened(words, REQUEST_CHARACTERS)), (turn.turn.id,))
    return None


def _last_typed(turn: TurnEvidence) -> str:
    """The words of the last block that the user typed in `turn`."""
    typed = [line for line in turn.user_lines if line.part == "user"]
    return _plain_lines(one.text for one in statements(line for line in typed if line.block == typed[-1].block))


def _chosen(turn: TurnEvidence, choice: Choice) -> Said:
    return Said(f"{_quoted(_words(turn))} to: {shortened(choice.text)}", (choice.turn_id, turn.turn.id))


def choices(evidence: Evidence) -> list[Said]:
    """What short answers of the user chose, each with the words of the answer."""
    return [_chosen(turn, turn.choice) for turn in evidence.turns.values() if turn.choice is not None]


def changed_files(evidence: Evidence) -> list[Said]:
    """The files that were written: how the last change ended, and what was edited, defined and named in each."""
    return [_change(evidence, change) for change in file_changes(evidence)]


def _change(evidence: Evidence, change: FileChange) -> Said:
    path, ids = evidence.shown(change.path), tuple(dict.fromkeys(change.turns))
    if not ids:
        return Said(f"{path}: change failed", (change.failed_turn,))
    state = "written" if change.written else "edited"
    names = [
        f"{what} {', '.join(listed[:MOST_NAMES])}{', …' * (len(listed) > MOST_NAMES)}"
        for what, listed in (("in", change.edits), ("defines", change.defines), ("now names", change.adds))
        if listed
    ]
    state += ", last change failed" * change.failed_last
    return Said("; ".join([f"{path}: {state}", *names]), ids)


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


def check_outcomes(evidence: Evidence) -> list[Said]:
    """Of each kind of check the last run: its command, whether it passed, and the lines that say so."""
    calls = list(ended_calls(evidence))
    ended = [at for at, (_, _, outcome) in enumerate(calls) if outcome.status != "unanswered"]
    last = {kind: at for at in ended for kind in check_kinds(calls[at][1])}
    return [
        _check_outcome(evidence, [kind for kind in last if last[kind] == at], *calls[at])
        for at in dict.fromkeys(last.values())
    ]


def _check_outcome(
    evidence: Evidence, kinds: Sequence[CheckKind], turn: TurnEvidence, call: Call, outcome: Outcome
) -> Said:
    command = shortened(evidence.shown(call.subject), 120)
    return Said(f"{', '.join(kinds)}: `{command}` {_ended(turn, outcome)}", (turn.turn.id,))


def _ended(turn: TurnEvidence, outcome: Outcome) -> str:
    word = {"passed": "passed", "failed": "failed", "done": "ended"}[outcome.status]
    lines = [plain for one in turn.statements_of(outcome.lines) if (plain := without_boilerplate(one.text).strip())]
    return f"{word}: {shortened(' · '.join(lines[-2:]), OUTCOME_CHARACTERS)}" if lines else word


_REMEDY = lazy_pattern(
    r"\b(?:root cause|the (?:issue|problem|bug|error|cause|culprit|reason) (?:is|was)\b(?! (?:real|valid|fixed"
    r"|resolved|gone|now))|the fix (?:is|was)|fixed by|"
    r"turned out|this (?:happens|happened|fails|failed) because|should be .{0,40} instead)\b",
    re.I,
)
"""How the agent names a cause or a remedy: ``root cause: the lock is held``; not ``the issue tracker``."""
_WORD = lazy_pattern(r"^(?!\s*```).*\w")
"""A line that says something: not ``` ```go ```, which opens what is said."""
REMEDY_TURNS = 6
"""A remedy is looked for in so many turns behind the failure."""


def remedies(evidence: Evidence) -> list[Said]:
    """Of failures for which the record shows a cause or a later success: which call, and that, once where several say
    the same; what failed stands as an entry of its own."""
    turns = list(evidence.turns.values())
    passed = _successes(turns)
    failed: dict[str, list[str]] = {}
    for at, turn in enumerate(turns):
        remedy, ids = _remedy(turns, at, passed) if turn.decisive_lines and turn.calls else ("", ())
        if remedy:
            failed.setdefault(f"{_tried(evidence, turn)} failed{remedy}", []).extend((turn.turn.id, *ids))
    return [Said(text, tuple(dict.fromkeys(ids))) for text, ids in failed.items()]


def _tried(evidence: Evidence, turn: TurnEvidence) -> str:
    return "; ".join(call_head(call, evidence.root) for call in turn.failed_calls[:1]) or turn.turn.id


def _remedy(turns: Sequence[TurnEvidence], at: int, passed: dict[str, list[int]]) -> tuple[str, tuple[str, ...]]:
    """The cause that the agent gives and where the same call succeeded later, with their turns."""
    text = ""
    ids: tuple[str, ...] = ()
    cause = _cause(turns, at)
    if cause is not None:
        text, ids = f"; cause as the agent said: {shortened(cause.text)}", cause.turn_ids
    keys = [_retry_key(call) for call in turns[at].failed_calls]
    later = next((then for key in keys for then in passed.get(key, ()) if then > at), None)
    if later is not None:
        text, ids = f"{text}; later succeeded at {turns[later].turn.id}", (*ids, turns[later].turn.id)
    return text, ids


def _successes(turns: Sequence[TurnEvidence]) -> dict[str, list[int]]:
    """Where calls succeeded, by what they were about: places in the history, ascending."""
    places: dict[str, list[int]] = {}
    for at, turn in enumerate(turns):
        for call, outcome in zip(turn.calls, turn.outcomes, strict=True):
            if outcome.status in ("passed", "done"):
                places.setdefault(_retry_key(call), []).append(at)
    return places


_SHOWING = lazy_pattern(r"\s*(?:2>&1)?\s*\|\s*(?:tail|head|grep|rg)\b.*$|\s*2>&1\s*$", re.S)
"""What only says how much of an output is shown: ``make test 2>&1 | tail -20`` is ``make test``."""


def _retry_key(call: Call) -> str:
    """The same for a call and one that does it again: of a command what it runs, of a change the file."""
    return (
        f"{call.name} {call.path or _SHOWING.sub('', call.command[:LINE_CHARACTERS]) or call.subject[:LINE_CHARACTERS]}"
    )


def _cause(turns: Sequence[TurnEvidence], at: int) -> Said | None:
    """What the agent says of the cause, up to the next failure or words of the user, and what its colon opens."""
    for turn in turns[at + 1 : at + 1 + REMEDY_TURNS]:
        spoken = statements(line for line in turn.lines.of_part("assistant") if _WORD.search(line.text))
        for one in spoken:
            if _REMEDY.search(one.text):
                opened = islice(spoken, int(one.text.rstrip().endswith(":")))
                return Said(" ".join(said.text.strip() for said in (one, *opened)), (turn.turn.id,))
        if turn.failed or turn.turn.kind == "user":
            return None
    return None


_URL = lazy_pattern(r"https?://[^\s\"'<>`|\\^{}\[\]()]{4,300}")
_REVIEW = lazy_pattern(
    r"https?://[^\s\"'<>`()\[\]]{4,200}/(?:pull|pulls|issues|merge_requests|-/merge_requests)/\d{1,9}"
)
"""A pull request or an issue: ``https://host/a/b/pull/7``."""


def urls(evidence: Evidence, reviews_only: bool = False) -> list[Said]:
    """URLs that the user named, the agent wrote, or a short result printed, each with the turns that name it.

    `reviews_only`: those of pull requests and issues alone.
    """
    named: dict[str, list[str]] = {}
    for turn in evidence.turns.values():
        for url in turn.once(_named_reviews if reviews_only else _named_urls):
            named.setdefault(url, []).append(turn.turn.id)
    return [Said(url, tuple(ids)) for url, ids in named.items()]


def _named_urls(turn: TurnEvidence) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_matches(turn, _URL)))


def _named_reviews(turn: TurnEvidence) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_matches(turn, _REVIEW)))


def _matches(turn: TurnEvidence, pattern: re.Pattern[str]) -> Iterator[str]:
    numbers = {number for outcome in turn.outcomes for number in outcome.lines}
    own = {*turn.lines.of_sources("user", "agent", "planner"), *(turn.lines[number - 1] for number in numbers)}
    for line in sorted(own):
        for url in pattern.findall(line.text):
            yield url.rstrip(".,:;!?*")


def open_items(evidence: Evidence) -> list[Said]:
    """What the agent's lists of tasks leave open, with the state of each."""
    tasks = [task for standing in task_lists(evidence) for task in standing.tasks if task.is_open]
    return [Said(f"{_label(task)}{shortened(task.text)} ({task.status})", (task.turn_id,)) for task in tasks]


def _label(task: Task) -> str:
    return f"Task #{task.number}: " if task.number else ""


def _words(turn: TurnEvidence) -> str:
    """The user's own words of a turn, without the host's sentences around them."""
    return _plain_lines(one.text for one in statements(turn.user_lines))


def _plain_lines(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, map(without_boilerplate, texts))).strip()


def _quoted(text: str) -> str:
    return f"“{' '.join(text.split())}”"
