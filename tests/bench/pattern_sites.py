"""Finds every regular expression of both packages: compiled ones by their module, others where they are written."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import planner

ROOT = Path(planner.__file__).parents[1]
PACKAGES = ("planner", "applier")
_SPEAKS = re.compile(r"lazy_pattern|\bre\.\w|\b[A-Z_]+\.(?:search|match|fullmatch|sub|finditer|findall|split)\(")
COMPILERS = ("lazy_pattern", "re.compile")
FUNCTIONS = ("search", "match", "fullmatch", "split", "sub", "subn", "findall", "finditer")
"""Functions of `re` that take a pattern's text."""
ANCHORED = {"match", "fullmatch"}
"""Uses that try a pattern at one place only."""


@dataclass(frozen=True)
class PatternSite:
    """A regular expression and where the sources define it."""

    where: str
    """``planner/brief.py:HEADING``, or the line where it has no name."""
    text: str
    flags: int
    is_anchored: bool
    """True if every use tries it at one place only."""


def pattern_sites() -> list[PatternSite]:
    """Return the patterns of `planner` and `applier`, each text once, in the order of files."""
    uses, sites = _uses(), dict[tuple[str, int], PatternSite]()
    compiled = [(module, *found) for module in _modules() for found in _compiled(module)]
    for module, name, text, flags in compiled:
        used = uses.get((module.__name__, name), set())
        anchored = bool(used) and used <= ANCHORED
        known = sites.get((text, flags))
        if known is None or known.is_anchored > anchored:
            sites[text, flags] = PatternSite(f"{_file(module)}:{name}", text, flags, anchored)
    for module in _modules():
        for line, text, flags in _written(module):
            sites.setdefault((text, flags), PatternSite(f"{_file(module)}:{line}", text, flags, False))
    return list(sites.values())


@lru_cache(maxsize=1)
def _modules() -> list[ModuleType]:
    """Import the modules whose text speaks of patterns; those of frameworks that are not installed are left out."""
    modules = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if _SPEAKS.search(path.read_text("utf-8")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            with suppress(ImportError):
                modules.append(importlib.import_module(name))
    return modules


def _file(module: ModuleType) -> str:
    return str(Path(str(module.__file__)).relative_to(ROOT))


@lru_cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text("utf-8"))


def _compiled(module: ModuleType) -> Iterator[tuple[str, str, int]]:
    """Yield the compiled patterns that the module's values hold, in containers too."""
    imported = _imports(module)
    for name, value in vars(module).items():
        if name not in imported:
            for text, flags in _held(value):
                yield name, text, _all_flags(text, flags)


def _all_flags(text: str, flags: int) -> int:
    """Return the flags with those that the text sets itself."""
    return re.compile(text, flags).flags & ~re.UNICODE.value


def _held(value: Any, depth: int = 0) -> Iterator[tuple[str, int]]:
    kind = type(value)
    if kind is re.Pattern and isinstance(value.pattern, str):
        yield value.pattern, value.flags
    elif kind.__name__ == "_Pattern":
        yield value.pattern, value._flags
    elif depth < 4 and isinstance(value, Mapping):
        for one in (*value.keys(), *value.values()):
            yield from _held(one, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _held(one, depth + 1)
    elif depth < 4 and kind.__module__.startswith(("planner", "applier")) and hasattr(value, "__dict__"):
        yield from _held(vars(value), depth + 1)


def _written(module: ModuleType) -> Iterator[tuple[str, str, int]]:
    """Yield the patterns that calls in the module spell out, if its constants suffice to read them."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _callers():
            flags = [one for one in (*node.args[1:], *(k.value for k in node.keywords)) if "re." in ast.unparse(one)]
            try:
                text, number = _value(node.args[0], module), int(_value(flags[0], module)) if flags else 0
            except NameError:  # made of a function's arguments
                continue
            if isinstance(text, str):
                yield str(node.lineno), text, _all_flags(text, number)


def _callers() -> set[str]:
    return {*COMPILERS, *(f"re.{name}" for name in FUNCTIONS)}


def _value(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), vars(module))


@lru_cache
def _imports(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Return where each name comes from that the module imports from another."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@lru_cache(maxsize=1)
def _uses() -> dict[tuple[str, str], set[str]]:
    """Return by module and name which methods are called on it; ``unknown`` for a use as a value."""
    uses: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module in _modules():
        tree = _tree(module)
        source = _imports(module)
        called: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called.add(id(node.value))
                uses[source.get(node.value.id, (module.__name__, node.value.id))].add(node.attr)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
                uses[source.get(node.id, (module.__name__, node.id))].add("unknown")
    return uses
