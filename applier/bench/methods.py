"""Methods by name: this compactor with its planners, the plain starting points, other people's packages, yours."""

from __future__ import annotations

import glob
import importlib
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from applier.bench.compactor import compact_by
from applier.bench.outcome import Method
from applier.bench.peers import PEERS
from applier.bench.plain_methods import PLAIN_METHODS
from applier.bench.preset_method import compact_by_preset
from applier.session.presets import PRESETS, preset_named
from planner.errors import SettingsError
from planner.model.recorded import RecordedPlanner

__all__ = ["METHODS", "OWN_SUMMARY", "find_method", "methods_for", "recorded_planner"]

OWN_SUMMARY = "own summary"
"""What the transcript's agent kept itself; added wherever a transcript holds it."""
METHODS = ("rules", "model", *PLAIN_METHODS, *PEERS, *(f"preset:{name}" for name in PRESETS))
"""What can be named, besides ``module:function`` and ``recorded:DIR``."""

RECORDED = "recorded:"
_YOURS = re.compile(r"[\w.]+:\w+")


def find_method(name: str, model: str | None = None) -> Method:
    """The method called `name`; `model` is the planner model of the method ``model``.

    Raises:
        SettingsError: nothing is called that, or its package is not installed.
    """
    if name in ("rules", "model"):
        return partial(compact_by, planner=name, model=model)
    if name in PLAIN_METHODS:
        return PLAIN_METHODS[name]
    if name in PEERS:
        return PEERS[name]
    if name.startswith("preset:"):
        return partial(compact_by_preset, preset=preset_named(name.removeprefix("preset:")).name)
    if _YOURS.fullmatch(name):
        return _yours(*name.split(":"))
    listed = ", ".join(METHODS)
    raise SettingsError(f"no method {name!r}; there are {listed}, recorded:DIR, and module:function of your own")


def methods_for(sample: str, names: Sequence[str], model: str | None = None) -> dict[str, Method]:
    """The methods called `names`; ``recorded:DIR`` plans by what a model answered for `sample`, the name of a
    transcript or of a cut of one, and is left out where DIR holds no answer for it.

    Raises:
        SettingsError: nothing is called one of the names, or its package is not installed.
    """
    methods: dict[str, Method] = {}
    for name in names:
        if not name.startswith(RECORDED):
            methods[name] = find_method(name, model)
        elif planner := recorded_planner(Path(name.removeprefix(RECORDED)), sample):
            methods[name] = partial(compact_by, planner=planner)
    return methods


def recorded_planner(folder: Path, sample: str, prompts_dir: Path | None = None) -> RecordedPlanner | None:
    """What answers for `sample` as recorded in `folder`: ``SAMPLE.answer.txt``, or ``SAMPLE.answer-1.txt`` and on,
    one a piece; None if there are none."""
    single = folder / f"{sample}.answer.txt"
    files = [single] if single.is_file() else sorted(folder.glob(f"{glob.escape(sample)}.answer-*.txt"))
    return RecordedPlanner([file.read_text("utf-8") for file in files], prompts_dir) if files else None


def _yours(module: str, function: str) -> Method:
    try:
        found: Method = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"method {module}:{function}: {error}") from error
    return found
