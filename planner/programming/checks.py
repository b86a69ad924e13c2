"""Checks of a project: the commands that run a test, linter, type checker or build, and how their last run ended.

Also finds failed commands that passed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from planner.evidence.calls import Call
from planner.evidence.hosts import running_id, without_boilerplate
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import EndedCall, Evidence, RecordLine, TurnEvidence, call_head, shortened
from planner.programming.coding_tools import commands_in
from planner.programming.failures import RAN_NOTHING
from planner.programming.shell import Command, last_run, without_paging
from planner.reading.patterns import lazy_pattern

CheckKind = Literal["test", "lint", "typecheck", "build"]

OUTCOME_CHARACTERS, COMMAND_CHARACTERS = 120, 120
"""Largest length of each shown line of a check's outcome, and of its command."""

_LAUNCHER = lazy_pattern(
    r"time|nice|sudo|env|exec|timeout|npx|bunx|bundle|python[\d.]*|run|uv|poetry|pipenv|pdm|hatch|rye"
)
"""Words before the program that runs: ``timeout 60 npx``, ``uv run``, ``.venv/bin/python -m``."""
_RUNNER = lazy_pattern(
    r"npm|yarn|pnpm|bun|deno|mise|make|just|task|rake|rails|gradlew?|mvn|dotnet|mix|swift|cargo|go|nx|turbo|composer|bazel|ruff"
)
"""Runners: programs that run the target after them: ``bun --filter @a/core build``, ``make -C app test``."""
_VALUED = frozenset({"-C", "--filter", "--cwd", "--prefix", "-w"})
"""Options of runners that a value follows."""
_PROGRAMS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("tsc", "mypy", "pyright", "basedpyright"), "typecheck"),
    **dict.fromkeys(("eslint", "ruff check", "biome", "golangci-lint", "flake8", "rubocop"), "lint"),
    **dict.fromkeys(("pytest", "jest", "vitest", "rspec", "mocha", "tox", "nextest", "ctest", "unittest"), "test"),
    **dict.fromkeys(("tsup", "webpack", "cargo check"), "build"),
}
"""Checks by the name of their program: ``npx tsc -p .``; not ``npm install jest``, where it is an argument."""
_TASKS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("typecheck", "type-check", "vet"), "typecheck"),
    **dict.fromkeys(("lint", "clippy"), "lint"),
    **dict.fromkeys(("test", "tests"), "test"),
    **dict.fromkeys(("build", "compile", "all"), "build"),
}
"""Checks by the target of a runner: ``make lint``."""
_RUNS_NOTHING = frozenset({"--help", "--version", "-h", "-V"})
"""Options with which a check only prints something about itself."""


def check_kinds(call: Call) -> list[CheckKind]:
    """Return the kinds of checks that a call runs, in order: two for ``make lint && make test``, none for ``git add
    a.test.ts``."""
    kinds = map(check_kind, commands_in(call)) if call.kind == "run" else ()
    return list(dict.fromkeys(kind for kind in kinds if kind))


def check_kind(command: Command) -> CheckKind | None:
    """Return the kind of check that a command runs; None if it runs no check.

    It is shown by the first word that is no launcher, runner, option, value or number. ``go test -c`` is a build.
    """
    if command.starts("go", "test") and "-c" in command.words:
        return "build"
    if not _RUNS_NOTHING.isdisjoint(command.words):
        return None
    has_runner = False
    for before, word in pairwise(("", *command.words)):
        name = word.rpartition("/")[2]
        if _RUNNER.fullmatch(name):
            has_runner = True
        elif not (_LAUNCHER.fullmatch(name) or word[0] in "-0123456789" or before in _VALUED):
            is_target = has_runner and name == word
            return (
                _PROGRAMS.get(name) or _PROGRAMS.get(f"{before} {name}") or (_target_kind(name) if is_target else None)
            )
    return None


def _target_kind(target: str) -> CheckKind | None:
    """Return the kind of check of a runner's target, by its name or a part of it: ``test:unit``; None if it is none."""
    return next(filter(None, map(_TASKS.get, (target, *target.split(":")))), None)


def check_outcomes(evidence: Evidence) -> list[RecordLine]:
    """Return a line on the last run of each kind of check, with its counts, failures or exit code.

    There is no line on a run if its result does not show how it ended.
    """
    ended_calls = [
        one for one in evidence.ended_calls() if one.outcome.status != "unanswered" and not one.outcome.refused
    ]
    last_runs = {kind: index for index, one in enumerate(ended_calls) for kind in check_kinds(one.call)}
    records: list[RecordLine] = []
    for index in dict.fromkeys(last_runs.values()):
        run, end = ended_calls[index], _end_of(ended_calls, index)
        if text := _check_outcome(evidence, run.call, end):
            kinds = check_kinds(run.call)
            is_unclear = len(kinds) > 1 and end.outcome.status == "failed"  # any of them may have failed
            label = f"{'one of ' if is_unclear else ''}{', '.join(kinds)}"
            records.append(RecordLine(f"{label}: {text}", tuple(dict.fromkeys([run.turn.turn.id, end.turn.turn.id]))))
    return records


def _end_of(ended_calls: Sequence[EndedCall], index: int) -> EndedCall:
    """Return the call that shows how the run at `index` of `ended_calls` ended. It is the run itself, or if its command
    continued to run, the last call with the command's id as an argument."""
    run = ended_calls[index]
    command_id = running_id(run.call.text) if run.outcome.status == "running" else ""
    if not command_id:
        return run
    later = reversed(ended_calls[index + 1 :])
    return next((one for one in later if command_id in map(str, one.call.input.values())), run)


def _check_outcome(evidence: Evidence, run: Call, end: EndedCall) -> str:
    """Return how the check `run` ended; empty if nothing shows it. `end`: the call that shows its end."""
    command = f"`{shortened(evidence.shown(run.subject), COMMAND_CHARACTERS)}`"
    outcome, code = end.outcome, end.outcome.exit_code
    statements = end.turn.statements_of(outcome.lines)
    lines = [plain for one in statements if (plain := without_boilerplate(one.text).strip())]
    if lines and all(map(RAN_NOTHING.search, lines)):
        return ""
    words = " · ".join(shortened(line, OUTCOME_CHARACTERS) for line in lines[-2:])
    if outcome.status == "running":
        return f"{command} was still running: {words}" if words else f"{command} was still running"
    if end.call.is_error or code:
        return f"{command} failed: {words}" if words else f"{command} failed"
    if outcome.status in ("passed", "failed"):
        return f"{command}: {words}"
    if code == 0 and any(map(check_kind, last_run(commands_in(run)))):
        return f"{command}: exit code 0"
    return f"{command} printed nothing" if not end.call.text.strip() else ""


def recoveries(evidence: Evidence) -> list[RecordLine]:
    """Return a line for each command that failed and passed later, by the counts or the exit code of the later run."""
    failed: dict[str, list[str]] = {}  # ids of the turns in which a command failed, by tool and command
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
    """Return True if counts of tests or an exit code show that a command passed. A run of no tests does not count."""
    if outcome.status == "passed":
        return not all(RAN_NOTHING.search(one.text) for one in turn.statements_of(outcome.lines))
    return outcome.status == "done" and outcome.exit_code == 0 and "|" not in call.command
