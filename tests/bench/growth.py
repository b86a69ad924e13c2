"""How time and memory grow with one input that is made to hurt: each at 1, 2, 4 and 8 times its size.

Times this machine, each size in a process of its own, processor seconds; says nothing about what is planned.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from applier.processes import program
from planner.api import plan_compaction
from planner.reading.messages import Block, Message
from planner.reading.secrets import redact
from tests.bench.speed import made_session

FACTORS = (1, 2, 4, 8)
LINE_CHARACTERS = 65_536
MEGABYTE = 1_000_000
TASK = "Make the report job stop in time"
ROW = "2026-01-31T12:00:01 INFO load_report_4711 = merge_row_17(request, timeout=30)  # row {}\n"

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Growth:
    """Input at its sizes."""

    name: str
    sizes: tuple[int, ...]
    """Sizes of the input as JSON, in bytes."""
    seconds: tuple[float, ...]
    """Processor seconds, children included, without starting."""
    peaks: tuple[int, ...]
    """Most bytes by which the process grew."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Seconds as multiples of the first; linear is at most `FACTORS`."""
        return tuple(taken / max(self.seconds[0], 1e-9) for taken in self.seconds)


def measure_growth(names: Sequence[str] = ()) -> Iterator[Growth]:
    """Yield the inputs of these names, or all."""
    _ready()
    for name in names or INPUTS:
        runs = [_run(INPUTS[name], factor) for factor in FACTORS]
        sizes, seconds, peaks = zip(*runs, strict=True)
        yield Growth(name, sizes, seconds, peaks)


def _ready() -> None:
    """Load what the first plan loads, so that no size pays for it."""
    _plan([{"role": "user", "content": TASK}])()
    redact("nothing")


def _run(make: Callable[[int], tuple[int, Work]], factor: int) -> tuple[int, float, int]:
    """Return size, seconds and growth of one input in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            size, work = make(factor)
            os.write(writing, json.dumps([size, *_measured(work)]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    size, seconds, peak = json.loads(answer)
    return size, seconds, peak


def _measured(work: Work) -> tuple[float, int]:
    gc.collect()
    before = _used()
    work()
    after = _used()
    return after[0] - before[0], max(0, after[1] - before[1])


def _used() -> tuple[float, int]:
    """Return the processor seconds and the most memory so far, ended children included."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1_024
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    return seconds, max(own.ru_maxrss, children.ru_maxrss) * unit


def _plan(messages: Sequence[Message], focus: str | None = None, ratio: float = 0.1) -> Work:
    return lambda: plan_compaction(messages, TASK, target_ratio=ratio, focus=focus, planner="rules", now=0.0)


def _planned(messages: list[Message], focus: str | None = None) -> tuple[int, Work]:
    return len(json.dumps(messages)), _plan(messages, focus)


def _said(text: str, focus: str | None = None) -> tuple[int, Work]:
    return _planned(_session([text]), focus)


def _session(texts: Iterable[str]) -> list[Message]:
    """Return `texts` as results in the middle of a session."""
    call = {"type": "tool_use", "id": "toolu_long", "name": "bash", "input": {"command": "cat job.log"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_long", "content": "".join(texts)}
    return [
        {"role": "user", "content": f"{TASK}."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "The log says it all."},
        {"role": "user", "content": "Go on."},
    ]


def _line(character: str) -> Callable[[int], tuple[int, Work]]:
    return lambda factor: _said(character * (LINE_CHARACTERS * factor), focus="src/auth.py and refresh_token()")


def _call(number: int) -> Block:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": f"make t{number}"}}


def _failed(call: Block) -> Block:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": f"Exit code 1\nno rule for {call['id']}"}


def calls_in_one_message(count: int) -> list[Message]:
    """Return `count` failed calls side by side."""
    calls = [_call(number) for number in range(count)]
    return [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [_failed(call) for call in calls]},
        {"role": "assistant", "content": "None of it went well."},
        {"role": "user", "content": "Go on."},
    ]


def calls_in_turns(count: int) -> list[Message]:
    """Return `count` calls, one after the other's result."""
    calls = [_call(number) for number in range(count)]
    rounds = [[{"role": "assistant", "content": [c]}, {"role": "user", "content": [_failed(c)]}] for c in calls]
    return [{"role": "user", "content": TASK}, *chain.from_iterable(rounds)]


def unanswered_calls(count: int) -> list[Message]:
    """Return a list that no API accepts: every second message calls, and nothing answers."""
    steps = [{"role": "user", "content": f"Step {number}."} for number in range(count)]
    calls = [{"role": "assistant", "content": [_call(number)]} for number in range(count)]
    return [*chain.from_iterable(zip(steps, calls, strict=True))]


def long_result(count: int) -> list[Message]:
    """Return one result of `count` lines in the middle of a session."""
    return _session(ROW.format(number) for number in range(count))


def _one_name(factor: int) -> tuple[int, Work]:
    lines = (
        f"main.py handled {number} for worker {number % 97} with {number * 7919 % 9973}"
        for number in range(2_500 * factor)
    )
    messages = _session(f"{line}\n" for line in lines)
    return len(json.dumps(messages)), _plan(messages, ratio=0.5)


def _tokens(factor: int) -> tuple[int, Work]:
    return _planned(made_session(250_000 * factor, most_lines=18))


def _redacted(shape: str) -> Callable[[int], tuple[int, Work]]:
    def make(factor: int) -> tuple[int, Work]:
        text = shape * (LINE_CHARACTERS * factor // len(shape))
        return len(text), lambda: redact(text)

    return make


def _file(factor: int) -> tuple[int, Work]:
    """Return a transcript of results of 100 KB, as the command line reads it."""
    messages = made_session(20_000)
    filler = "\n".join(f"{number}\tvalue_{number} = load_row({number * 7})" for number in range(3_000))
    while len(messages) * len(filler) < 2 * 15.5 * MEGABYTE * factor:
        call = _call(len(messages))
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"{len(messages)}\n{filler}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    folder = tempfile.mkdtemp()
    path = Path(folder, "session.json")
    path.write_text(json.dumps(messages), encoding="utf-8")
    size = path.stat().st_size

    def work() -> None:
        asked = ("plan", str(path), "--task", TASK, "--planner", "rules", "--json")
        try:
            subprocess.run(
                program(*asked),
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            path.unlink()
            path.parent.rmdir()

    return size, work


INPUTS: dict[str, Callable[[int], tuple[int, Work]]] = {
    "one line of 64 KB of dots, with a focus": _line("."),
    "one line of 64 KB of dashes, with a focus": _line("-"),
    "1,000 calls in one message": lambda factor: _planned(calls_in_one_message(1_000 * factor)),
    "1,250 messages with unanswered calls": lambda factor: _planned(unanswered_calls(625 * factor)),
    "a text of 128 KB of '2.'": lambda factor: _said("2." * (LINE_CHARACTERS * factor)),
    "redact 64 KB of 'a'": _redacted("a"),
    "redact 64 KB of 'token='": _redacted("token="),
    "redact 64 KB of dashes": _redacted("-"),
    "a result of 1.25 MB": lambda factor: _planned(long_result(10 * MEGABYTE // 8 // len(ROW) * factor)),
    "2,500 lines that name one file, planned to half": _one_name,
    "250,000 tokens": _tokens,
    "a file of 15.5 MB read by the command line": _file,
}
"""Inputs at their smallest size; at eight times as large as one that once took minutes, or larger."""
