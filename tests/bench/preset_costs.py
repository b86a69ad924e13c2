"""Every preset, and agents of other packages, on every transcript and window: requests, cost and problems.

Simulates; calls no model. Counts are the conservative ones of an uncalibrated session. The cheapest context is an empty
one, so it also counts how many of the names that the agent's next message takes from the past were in its prompt.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from applier.adapters.transcripts import Transcript, read_transcript
from applier.eval.replay import Replay, ReplayedCall, replay
from applier.eval.survival import agent_values, contains, placings, plain_text, specifics
from applier.session.presets import RELEVANCE
from applier.store import open_store
from planner.prices import CACHE_READ_PRICES
from planner.reading.messages import plain_message
from tests.bench.peer_costs import PEER_AGENTS, replay_peer


@dataclass(frozen=True, slots=True)
class PresetJob:
    """Transcript, preset and window of one run."""

    path: Path
    preset: str
    window_tokens: int
    replace: bool = False


@dataclass(frozen=True, slots=True)
class PresetRun:
    """Numbers of one run."""

    transcript: str
    preset: str
    window_tokens: int
    calls: int
    compactions: int
    sent_tokens: int
    invalidated_tokens: int
    peak_tokens: int
    exceeded: int
    """Calls with a prompt over the limit."""
    violations: int
    unrestorable: int
    needed: int
    """Names in the agent's messages that it took from before."""
    met: int
    """Number of these that its prompt contained."""
    costs: tuple[float, ...]
    """Costs at each of `CACHE_READ_PRICES`, in uncached input tokens."""


@dataclass(frozen=True, slots=True)
class PresetTotal:
    """Rows of one preset at one window."""

    preset: str
    window_tokens: int
    rows: tuple[PresetRun, ...]

    def sum(self, name: str) -> int:
        """Return the sum of a field over all transcripts."""
        return sum(getattr(row, name) for row in self.rows)

    @property
    def exceeded_transcripts(self) -> int:
        """Number of transcripts with a prompt that was too long."""
        return sum(row.exceeded > 0 for row in self.rows)

    @property
    def costs(self) -> tuple[float, ...]:
        """Costs over all transcripts, at each read price."""
        return tuple(map(sum, zip(*(row.costs for row in self.rows), strict=True)))


PRICED_MODELS = ("", "claude-sonnet-5-5", "claude-fable-5-1")
"""One model for each of `CACHE_READ_PRICES`."""


def run_preset(job: PresetJob) -> PresetRun:
    """Return one row; ``relevance`` depends on prices and runs once for each, and the run with the fewest names
    counts."""
    transcript = read_transcript(job.path)
    if job.preset in PEER_AGENTS:
        done = replay_peer(transcript.messages, job.preset, job.window_tokens, transcript.system)
        return _row(job, done, *count_needs(done.calls, transcript.messages), tuple(map(done.cost, CACHE_READ_PRICES)))
    models = PRICED_MODELS if job.preset == RELEVANCE.name else PRICED_MODELS[:1]
    runs = [_replayed(job, transcript, model) for model in models]
    runs += runs[:1] * (len(PRICED_MODELS) - len(runs))
    costs = tuple(run.cost(price) for run, price in zip(runs, CACHE_READ_PRICES, strict=True))
    counts = (count_needs(run.calls, transcript.messages) for run in runs[: len(models)])
    needed, met = min(counts, key=lambda count: count[1] / max(1, count[0]))
    return _row(job, runs[0], needed, met, costs)


def _replayed(job: PresetJob, transcript: Transcript, model: str) -> Replay:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        return replay(
            transcript.messages,
            job.preset,
            job.window_tokens,
            store=store,
            task=transcript.task,
            system=transcript.system,
            model=model,
            replace=job.replace,
        )


def _row(job: PresetJob, done: Replay, needed: int, met: int, costs: tuple[float, ...]) -> PresetRun:
    return PresetRun(
        transcript=job.path.stem,
        preset=job.preset,
        window_tokens=job.window_tokens,
        calls=len(done.calls),
        compactions=len(done.compactions),
        sent_tokens=done.sent_tokens,
        invalidated_tokens=done.invalidated_tokens,
        peak_tokens=done.peak_tokens,
        exceeded=done.exceeded,
        violations=len(done.violations),
        unrestorable=len(done.unrestorable),
        needed=needed,
        met=met,
        costs=costs,
    )


def measure_presets(
    paths: Iterable[Path],
    presets: Sequence[str],
    windows: Sequence[int],
    *,
    replace: bool = False,
    processes: int = 1,
) -> Iterator[PresetRun]:
    """Yield a row for each combination as it is done.

    With `replace` the simulated agents replace their lists by the results; otherwise they keep growing.
    """
    jobs = [PresetJob(path, preset, window, replace) for path in paths for window in windows for preset in presets]
    if processes == 1:
        yield from map(run_preset, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(run_preset, job) for job in jobs]):
            yield done.result()


def preset_totals(rows: Iterable[PresetRun]) -> list[PresetTotal]:
    """Return the totals by window, then by cost at the general read price."""
    groups: dict[tuple[int, str], list[PresetRun]] = {}
    for row in rows:
        groups.setdefault((row.window_tokens, row.preset), []).append(row)
    made = [PresetTotal(preset, window, tuple(of_one)) for (window, preset), of_one in groups.items()]
    return sorted(made, key=lambda total: (total.window_tokens, total.costs))


def count_needs(calls: Iterable[ReplayedCall], messages: Sequence[object]) -> tuple[int, int]:
    """Return how many names the agent's messages take from before, and how many of these were in their prompts.

    Names are paths, URLs, identifiers and numbers of three digits or more, counted once a message. `messages` is the
    transcript of `calls`.
    """
    texts = _Texts()
    needed = met = 0
    for call in calls:
        names = _written(messages[call.history_messages])
        view = texts.joined(call.sent)
        standing = {name for name in names if contains(name, view) or any(placings(name, view))}
        gone = names - standing
        before = texts.joined(messages[: call.history_messages]) if gone else ""
        needed += len(standing) + sum(contains(name, before) for name in gone)
        met += len(standing)
    return needed, met


def _written(message: object) -> set[str]:
    return {name for value, _ in agent_values(plain_message(message)) for name in specifics(value)}


class _Texts:
    """Texts of messages, read once for each object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}

    def joined(self, messages: Iterable[object]) -> str:
        return "\n".join(map(self._text, messages))

    def _text(self, message: object) -> str:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, plain_text([plain_message(message)])
        return known[1]
