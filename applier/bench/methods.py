"""Methods by name: this compactor with its planners, the plain starting points, other people's packages, yours."""

from __future__ import annotations

import importlib
import re
from functools import partial

from applier.bench.compactor import compact_by
from applier.bench.outcome import Method
from applier.bench.peers import PEERS
from applier.bench.plain_methods import PLAIN_METHODS
from applier.bench.preset_method import compact_by_preset
from applier.session.presets import PRESETS, preset_named
from planner.errors import SettingsError

__all__ = ["METHODS", "OWN_SUMMARY", "find_method"]

OWN_SUMMARY = "own summary"
"""What the transcript's agent kept itself; added wherever a transcript holds it."""
METHODS = ("rules", "model", *PLAIN_METHODS, *PEERS, *(f"preset:{name}" for name in PRESETS))
"""What can be named, besides ``module:function``."""

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
    raise SettingsError(f"no method {name!r}; there are {', '.join(METHODS)}, and module:function of your own")


def _yours(module: str, function: str) -> Method:
    try:
        found: Method = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"method {module}:{function}: {error}") from error
    return found
