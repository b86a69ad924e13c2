"""Time and memory of planning, applying and a session, as ratios to one tiktoken pass over the same text.

Processor time of this machine, in one run, medians. Other packages are measured on the same list.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from applier.eval.survival import message_tokens, o200k_counter, plain_text
from applier.session.session import Session
from applier.settings import SessionSettings
from applier.store import open_store
from applier.view import apply
from planner.api import plan_compaction
from planner.errors import SettingsError
from planner.plan import CompactionPlan
from planner.reading.messages import Message
from planner.reading.tokens import load_vocabulary
from tests.bench.peers import PEERS, Peer

RATIO = 0.1
NEW_TURNS = 10
"""New turns after those that a session has planned."""
STEADY_CALLS = 20
REPEATS = 5
ROOMY_TOKENS = 10**8
"""Window in which nothing is compacted but on demand, and then to half."""
TOKENS_PER_MESSAGE = 95
"""A little more than a message of `made_session` has with short results."""
QUIET_CALLS = 50
"""Last calls of a long session; most have nothing to do."""
SESSION_LIMITS: dict[int, tuple[float | None, float | None, float | None]] = {
    2_000: (None, None, 0.5),
    8_000: (60, 1.5, 0.5),
}
"""By number of messages: seconds of all calls, seconds of the slowest one, and time of a call with nothing to do as a
share of ``json.dumps`` of the list."""
IMPORTS = {
    "import planner": 0.15,
    "from pydantic import create_model; create_model('Model')": None,
    "from planner import plan_compaction": None,
    "from applier import apply": None,
    "from planner import plan_compaction; plan_compaction([], '', planner='rules')": None,
}
"""Seconds for a process's first step: the packages load a name when it is used, and most of a plan's time is the first
pydantic model."""
VERBS = ("load", "save", "parse", "send", "merge", "check", "render", "fetch")
NOUNS = ("report", "token", "session", "row", "deadline", "header", "account", "cache", "worker", "invoice")
TASK = "Make the report job stop in time"


@dataclass(frozen=True, slots=True)
class Timing:
    """Row of the table."""

    what: str
    value: float
    unit: str
    """``passes`` of tiktoken over the same text, ``seconds``, ``milliseconds``, or ``times`` the history's JSON."""
    limit: float | None = None
    """Limit, if there is one."""

    @property
    def is_over(self) -> bool:
        """True if the limit is passed."""
        return self.limit is not None and self.value > self.limit


def measure_speed(tokens: int = 150_000, only: str = "") -> Iterator[Timing]:
    """Yield the rows of each part of `PARTS`, or of the `only` one, on a made-up session of `tokens` tokens."""
    messages = made_session(tokens)
    for name, part in PARTS.items():
        if only in ("", name):
            yield from part(messages)


def _planning(messages: list[Message]) -> Iterator[Timing]:
    text = plain_text(messages)
    yield Timing(f"one tiktoken pass over {message_tokens(messages):,} tokens", _median(_encode, text), "seconds")
    yield Timing("plan_compaction", _passes(text, partial(_seconds, _plan, messages)), "passes", 16)
    plan = _plan(messages)
    yield Timing("apply after plan", _passes(text, partial(_apply_seconds, plan)), "passes", 2)
    what = f"a session plans again with {NEW_TURNS} new turns"
    yield Timing(f"{what}, to half", _passes(text, partial(_replan_seconds, messages, ROOMY_TOKENS)), "passes", 8)
    filled = 2 * message_tokens(messages)
    again = _passes(text, partial(_replan_seconds, messages, filled))
    yield Timing(f"{what}, in a window that they fill", again, "passes", 8)
    yield _small()


def _passes(text: str, measure: Callable[[], float], repeats: int = REPEATS) -> float:
    """Return the seconds of `measure` in passes over `text`: the median of several, each between two passes."""
    ratios = []
    for _ in range(repeats):
        before, taken, behind = _seconds(_encode, text), measure(), _seconds(_encode, text)
        ratios.append(2 * taken / (before + behind))
    return statistics.median(ratios)


def _small() -> Timing:
    """Measure a plan of almost nothing."""
    messages = made_session(200)[:4]
    taken = [_seconds(_plan, messages) for _ in range(10 * REPEATS)]
    return Timing(f"plan of {len(messages)} messages", statistics.median(taken) * 1_000, "milliseconds")


def _plan(messages: Sequence[Message]) -> CompactionPlan:
    return plan_compaction(messages, TASK, target_ratio=RATIO, planner="rules", now=0.0)


def _apply_seconds(plan: CompactionPlan) -> float:
    """Measure applying into a store that does not know the history."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        return _seconds(lambda: apply(plan, store=store))


def _replan_seconds(messages: Sequence[Message], window_tokens: int) -> float:
    with tempfile.TemporaryDirectory() as folder, _session(Path(folder), window_tokens) as session:
        session.compact(list(messages[: -2 * NEW_TURNS]))
        return _seconds(lambda: session.compact(list(messages)))


def _session(folder: Path, window_tokens: int = ROOMY_TOKENS) -> Session:
    return Session(TASK, store=folder / "store.db", window_tokens=window_tokens, planner="rules")


def _large(_: Sequence[Message]) -> Iterator[Timing]:
    """Measure long histories and results, beside a tenth and a hundredth of them."""
    for size in (2_000_000, 200_000, 20_000):
        messages = made_session(size, most_lines=18)
        name = f"{size:,} tokens in short results: plan"
        passes = _passes(plain_text(messages), partial(_seconds, _plan, messages), repeats=1)
        yield Timing(f"{name} ({len(messages):,} messages)", passes, "passes")
    yield Timing("plan with a result of 10 MB", _seconds(_plan, _with_long_result(10_000_000)), "seconds", 4)


def _with_long_result(characters: int) -> list[Message]:
    call = {"type": "tool_use", "id": "toolu_log", "name": "bash", "input": {"command": "cat job.log"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_log", "content": _log(characters)}
    return [
        *made_session(2_000),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        _spoken("assistant", "The log says it all."),
    ]


def _memory(messages: Sequence[Message]) -> Iterator[Timing]:
    """Measure the most memory of planning beyond what was there."""
    _plan(messages[:20])  # loads vocabulary, rules and patterns
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    _plan(messages)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = len(json.dumps(messages).encode())
    yield Timing("peak memory of plan_compaction, times the history's JSON", (peak - before) / size, "times", 8.5)


def _imports(_: Sequence[Message]) -> Iterator[Timing]:
    """Measure imports with compiled modules; the first run, which compiles, does not count."""
    for what, limit in IMPORTS.items():
        code = f"import time; start = time.process_time(); {what}; print(time.process_time() - start)"
        with tempfile.TemporaryDirectory() as compiled:
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": compiled}
            command = [sys.executable, "-P", "-c", code]  # not from the folder this is run in
            runs = [
                subprocess.run(command, capture_output=True, check=True, env=environment) for _ in range(REPEATS + 1)
            ]
        yield Timing(what, statistics.median(float(run.stdout) for run in runs[1:]), "seconds", limit)


def _steady(messages: Sequence[Message]) -> Iterator[Timing]:
    """Measure `prepare` with two new messages and nothing to do."""
    for what, anew in (("same objects", False), ("all messages made anew, as a gateway does", True)):
        taken = []
        with tempfile.TemporaryDirectory() as folder, _session(Path(folder)) as session:
            for length in range(len(messages) - 2 * STEADY_CALLS, len(messages) + 1, 2):
                shown = list(messages[:length])
                shown = json.loads(json.dumps(shown)) if anew else shown
                taken.append(_seconds(lambda shown=shown: session.prepare(shown)))
        # The first call reads the whole history.
        yield Timing(f"prepare, nothing to do, {what}", statistics.median(taken[1:]) * 1_000, "milliseconds")


def _sessions(_: Sequence[Message]) -> Iterator[Timing]:
    """Measure all calls of long sessions that compact as they go, plans in the call and not beside it."""
    for length, limits in SESSION_LIMITS.items():
        messages = made_session(length * TOKENS_PER_MESSAGE, most_lines=18)[:length]
        settings, taken = SessionSettings(background=False), list[float]()
        with tempfile.TemporaryDirectory() as folder:
            session = Session(TASK, store=Path(folder, "store.db"), planner="rules", settings=settings)
            with session:
                ends = (at for at, message in enumerate(messages, 1) if message["role"] == "user")
                taken = [_call_seconds(session, messages[:end]) for end in ends]
                name = f"{len(messages):,} messages, {session.state.compactions} compactions"
        quiet = statistics.median(taken[-QUIET_CALLS:])
        dumped = statistics.median(_seconds(json.dumps, messages) for _ in range(REPEATS))
        whole, slowest, share = limits
        yield Timing(f"all calls of a session of {name}", sum(taken), "seconds", whole)
        yield Timing(f"its slowest call ({name})", max(taken), "seconds", slowest)
        yield Timing(f"its calls with nothing to do ({name})", quiet / dumped, "json.dumps", share)


def _call_seconds(session: Session, messages: list[Message]) -> float:
    started = time.process_time()
    session.prepare(messages)
    return time.process_time() - started


def _peers(messages: Sequence[Message]) -> Iterator[Timing]:
    """Measure other packages without their caches."""
    text = plain_text(messages)
    target = int(RATIO * message_tokens(messages))
    for name, peer in PEERS.items():
        try:
            peer(messages[:3], TASK, target)  # imports
        except SettingsError:
            continue
        yield Timing(f"{name}, cold", _passes(text, partial(_peer_seconds, peer, messages, target)), "passes")


def _peer_seconds(peer: Peer, messages: Sequence[Message], target: int) -> float:
    o200k_counter.cache_clear()
    return _seconds(peer, messages, TASK, target)


def _encode(text: str) -> None:
    """Encode a text once.

    Raises:
        SettingsError: this machine has no vocabulary.
    """
    vocabulary = load_vocabulary()
    if vocabulary is None:
        raise SettingsError("no o200k vocabulary: pip install '.[offline]'")
    vocabulary.encode_ordinary(text)


def _median(work: Callable[..., object], *given: object) -> float:
    return statistics.median(_seconds(work, *given) for _ in range(REPEATS))


def _seconds(work: Callable[..., object], *given: object, **named: object) -> float:
    gc.collect()
    started = time.process_time()
    work(*given, **named)
    return time.process_time() - started


def made_session(tokens: int, most_lines: int = 120) -> list[Message]:
    """Return a made-up session of about `tokens` tokens, always the same: files read, edits, test runs, words of the
    user. Results have up to `most_lines` lines."""
    pick = random.Random(tokens)
    messages: list[Message] = [{"role": "user", "content": TASK + ". Never change the public names, please."}]
    room = tokens
    while room > 0:
        number = len(messages)
        added = [*_exchange(pick, f"toolu_{number}", most_lines)]
        if number % 40 == 1:
            added += [
                _spoken("assistant", f"Next comes {_name(pick)}."),
                _spoken("user", f"No, use {_name(pick)} first."),
            ]
        messages += added
        room -= message_tokens(added)
    return messages


def _exchange(pick: random.Random, call_id: str, most_lines: int) -> Iterator[Message]:
    """A call with its result."""
    name, lines = _name(pick), pick.randrange(2, most_lines)
    path = f"src/{pick.choice('abcdef')}/{name}.py"
    kind = pick.choice(("read", "read", "edit", "test", "failure"))
    if kind == "read":
        tool, arguments, text = "read", {"path": path}, "\n".join(f"{n}\t{_code(pick)}" for n in range(1, lines))
    elif kind == "edit":
        tool, arguments, text = "edit", {"path": path, "old": _code(pick), "new": _code(pick)}, f"edited {path}"
    else:
        tool, arguments = "bash", {"command": f"pytest tests/test_{name}.py"}
        ran = [f"tests/test_{name}.py::test_{_name(pick)} PASSED" for _ in range(lines)]
        last = (
            f"{lines} passed"
            if kind == "test"
            else f"E   KeyError: '{_name(pick)}'\n1 failed, {lines} passed\nexit code 1"
        )
        text = "\n".join([*ran, last])
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
    words = {"type": "text", "text": f"I look at {name} because {_name(pick)} calls it."}
    yield {"role": "assistant", "content": [words, call]}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": kind == "failure"}
    yield {"role": "user", "content": [result]}


def _spoken(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def _name(pick: random.Random) -> str:
    return f"{pick.choice(VERBS)}_{pick.choice(NOUNS)}_{pick.randrange(10_000)}"


def _code(pick: random.Random) -> str:
    return f"    {_name(pick)} = {_name(pick)}(request, timeout={pick.randrange(1_000)})  # {pick.choice(NOUNS)}"


def _log(characters: int) -> str:
    """A log of about so many characters."""
    pick, lines, room = random.Random(0), list[str](), characters
    while room > 0:
        lines.append(f"2026-01-31T12:{len(lines) % 60:02} {pick.choice(('INFO', 'INFO', 'WARN'))} {_code(pick)}")
        room -= len(lines[-1]) + 1
    return "\n".join(lines)


PARTS: dict[str, Callable[[list[Message]], Iterator[Timing]]] = {
    "plan": _planning,
    "large": _large,
    "memory": _memory,
    "imports": _imports,
    "steady": _steady,
    "sessions": _sessions,
    "peers": _peers,
}
