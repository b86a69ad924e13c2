"""Public names of a package that are imported when first asked for: who needs an error class loads no planner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, *homes: str) -> Callable[[str], object]:
    """The ``__getattr__`` (PEP 562) of `package`, whose names the modules `homes` define; the lightest come first."""

    def load(name: str) -> object:
        names = vars(sys.modules[package])
        for module in map(import_module, homes if name in names["__all__"] else ()):
            if name in module.__all__:
                names[name] = getattr(module, name)
                return names[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
