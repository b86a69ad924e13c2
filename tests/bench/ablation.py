"""Makes each pattern, table and number of the planner neutral in turn, and compares what the rules planner makes.

The values are put back afterwards, in every module that imported them. A value that a function took as its default, or
that another constant was made of, keeps its effect there.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import planner
from applier.adapters.transcripts import Transcript, read_transcript
from applier.eval.evaluation import Exam, read_exams
from applier.eval.survival import plain_text
from applier.view import preview
from planner.analysis import analyze_history
from planner.api import plan_compaction
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter

_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
NEVER = re.compile(r"(?!)")
"""The pattern that takes another's place."""


@dataclass(frozen=True)
class Ablation:
    """Differences without one value."""

    where: str
    """``planner.brief:HEADING``."""
    turns: int = 0
    """Turns whose evidence is another."""
    views: int = 0
    answers: int = 0
    """Exam answers won; negative for answers lost."""
    error: str = ""
    """How planning failed without the value."""


@dataclass(frozen=True)
class _Made:
    """Results of the planner for one transcript."""

    turns: Sequence[Any]
    view: str
    answers: int


def ablations(paths: Sequence[Path], only: str, ratio: float, probes: Path | None) -> Iterator[Ablation]:
    """Yield a row for each value of the planner whose file begins with `only`."""
    exams = {exam.transcript: exam for exam in read_exams([probes])} if probes else {}
    samples = [(read_transcript(path), exams.get(path.stem)) for path in paths]
    modules = _modules()
    before = [_made(*sample, ratio) for sample in samples]
    for module in modules:
        for name, value in list(vars(module).items()):
            where = f"{module.__name__}:{name}"
            if not where.startswith(only.replace("/", ".")) or not _CONSTANT.fullmatch(name):
                continue
            neutral = _neutral(value)
            if neutral is None or not _defines(module, name):
                continue
            with _replaced(modules, name, value, neutral):
                try:
                    after = [_made(*sample, ratio) for sample in samples]
                except Exception as error:  # noqa: BLE001 - any way in which planning needs the value is a result
                    yield Ablation(where, error=f"{type(error).__name__}: {error}"[:100])
                else:
                    yield _difference(where, before, after)


def _modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(planner.__path__, "planner.")
    return [importlib.import_module(module.name) for module in found if not module.name.endswith("__main__")]


def _defines(module: ModuleType, name: str) -> bool:
    """Return True if the module assigns the name itself."""
    source = Path(str(module.__file__)).read_text("utf-8")
    return re.search(rf"^(?:\w+, )*{name}(?:, \w+)*(?:: [^=\n]+)? = ", source, re.M) is not None


def _neutral(value: Any) -> Any:
    """Return what takes the place of a pattern, table or number; None for other values."""
    if isinstance(value, re.Pattern) or hasattr(value, "pattern"):
        return NEVER
    if isinstance(value, frozenset | set | tuple | dict) and value:
        return type(value)()
    return 2 * value if isinstance(value, int | float) and not isinstance(value, bool) and value else None


@contextmanager
def _replaced(modules: Sequence[ModuleType], name: str, value: Any, neutral: Any) -> Iterator[None]:
    holders = [module for module in modules if vars(module).get(name) is value]
    _set(holders, name, neutral, modules)
    try:
        yield
    finally:
        _set(holders, name, value, modules)


def _set(holders: Sequence[ModuleType], name: str, value: Any, modules: Sequence[ModuleType]) -> None:
    for module in holders:
        setattr(module, name, value)
    for module in modules:
        for one in vars(module).values():
            if hasattr(one, "cache_clear"):
                one.cache_clear()


def _made(transcript: Transcript, exam: Exam | None, ratio: float) -> _Made:
    history = read_history(transcript.messages)
    turns = analyze_history(history, TokenCounter.for_model()).evidence.turns
    plan = plan_compaction(transcript.messages, transcript.task, planner="rules", target_ratio=ratio)
    view = plain_text(preview(plan).messages)
    answers = int(sum(exam.literal_scores(view).values())) if exam else 0
    return _Made(list(turns.values()) if isinstance(turns, Mapping) else list(turns), view, answers)


def _difference(where: str, before: Sequence[_Made], after: Sequence[_Made]) -> Ablation:
    pairs = list(zip(before, after, strict=True))
    return Ablation(
        where,
        turns=sum(repr(a) != repr(b) for old, new in pairs for a, b in zip(old.turns, new.turns, strict=True)),
        views=sum(old.view != new.view for old, new in pairs),
        answers=sum(new.answers - old.answers for old, new in pairs),
    )
