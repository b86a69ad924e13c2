"""Checks of a project: the commands that run a test, linter, type checker or build, the end of their last run, and
failed commands that passed later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from planner.evidence.calls import Call
from planner.evidence.hosts import running_id, without_boilerplate
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, call_head, shortened
from planner.programming.coding_tools import commands_in
from planner.programming.failures import RAN_NOTHING
from planner.programming.shell import Command, last_run, without_paging
from planner.reading.patterns import lazy_pattern

__all__ = ["CheckKind", "check_kind", "check_kinds", "check_outcomes", "recoveries"]

CheckKind = Literal["test", "lint", "typecheck", "build"]
_Ended = tuple[TurnEvidence, Call, Outcome]
"""Call with its turn and its outcome."""

OUTCOME_CHARACTERS, COMMAND_CHARACTERS = 120, 120
"""Largest length of a line of a check's outcome, and of its command."""

_LAUNCHER = lazy_pattern(
    r"time|nice|sudo|env|exec|timeout|npx|bunx|bundle|python[\d.]*|run|uv|poetry|pipenv|pdm|hatch|rye"
)
"""Words before the program that runs: ``timeout 60 npx``, ``uv run``, ``.venv/bin/python -m``."""
_RUNNER = lazy_pattern(
    r"npm|yarn|pnpm|bun|deno|mise|make|just|task|rake|rails|gradlew?|mvn|dotnet|mix|swift|cargo|go|nx|turbo|composer|bazel|ruff"
)
"""Programs that run the target after them: ``bun --filter @a/core build``, ``make -C app test``."""
_VALUED = frozenset({"-C", "--filter", "--cwd", "--prefix", "-w"})
"""Options of these programs that are followed by a value."""
_PROGRAMS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("tsc", "mypy", "pyright", "basedpyright"), "typecheck"),
    **dict.fromkeys(("eslint", "ruff check", "biome", "golangci-lint", "flake8", "rubocop"), "lint"),
    **dict.fromkeys(("pytest", "jest", "vitest", "rspec", "mocha", "tox", "nextest", "ctest", "unittest"), "test"),
    **dict.fromkeys(("tsup", "webpack", "cargo check"), "build"),
}
"""Programs that are checks themselves, in the position of a program: ``npx tsc -p .``; not ``npm install jest``."""
_TASKS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("typecheck", "type-check", "vet"), "typecheck"),
    **dict.fromkeys(("lint", "clippy"), "lint"),
    **dict.fromkeys(("test", "tests"), "test"),
    **dict.fromkeys(("build", "compile", "all"), "build"),
}
"""Targets of `_RUNNER` programs that are checks: ``make lint``."""
_RUNS_NOTHING = frozenset({"--help", "--version", "-h", "-V"})


def check_kinds(call: Call) -> list[CheckKind]:
    """Return the checks that a call ran, in order: ``make lint && make test`` gives two; ``git add a.test.ts`` none."""
    kinds = map(check_kind, commands_in(call)) if call.kind == "run" else ()
    return list(dict.fromkeys(kind for kind in kinds if kind))


def check_kind(command: Command) -> CheckKind | None:
    """Return the kind of check that a command runs, None if it is none, by its first word that is no launcher, runner,
    option or number. ``go test -c`` is a build."""
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
    """Return a line on the last run of each kind of check, with its counts, failures or exit code; none for a run whose
    result does not show how it ended."""
    ended = [one for one in evidence.ended_calls() if one[2].status != "unanswered" and not one[2].refused]
    last = {kind: index for index, (_, call, _) in enumerate(ended) for kind in check_kinds(call)}
    records: list[RecordLine] = []
    for index in dict.fromkeys(last.values()):
        run, last_read = ended[index], _end_of(ended, index)
        if text := _check_outcome(evidence, run[1], *last_read):
            kinds = check_kinds(run[1])
            label = "one of " * (len(kinds) > 1 and last_read[2].status == "failed") + ", ".join(kinds)
            records.append(RecordLine(f"{label}: {text}", tuple(dict.fromkeys([run[0].turn.id, last_read[0].turn.id]))))
    return records


def _end_of(ended: Sequence[_Ended], at: int) -> _Ended:
    """Return the call that shows how the call at index `at` of `ended` ended: itself, or if the command continued to
    run, the last call with the id of the running command as an argument."""
    running_command = running_id(ended[at][1].text) if ended[at][2].status == "running" else ""
    readers = (one for one in reversed(ended[at + 1 :]) if running_command in map(str, one[1].input.values()))
    return next(readers, ended[at]) if running_command else ended[at]


def _check_outcome(evidence: Evidence, run: Call, turn: TurnEvidence, call: Call, outcome: Outcome) -> str:
    """Return how the check `run` ended, by the `call` of `turn` that shows its end; empty if nothing shows it."""
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
    if code == 0 and any(map(check_kind, last_run(commands_in(run)))):
        return f"{command}: exit code 0"
    return f"{command} printed nothing" if not call.text.strip() else ""


def recoveries(evidence: Evidence) -> list[RecordLine]:
    """Return the commands that failed and passed later, by the counts or the exit code of the later run."""
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
    """Return True if counts or an exit code show that a command passed, and it ran something."""
    if outcome.status == "passed":
        return not all(RAN_NOTHING.search(one.text) for one in turn.statements_of(outcome.lines))
    return outcome.status == "done" and outcome.exit_code == 0 and "|" not in call.command
