"""The sources read as plain English: docstrings without private words, one name for one class and one module.

Limits are shares of all docstrings of both packages. They may be lowered, never raised.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from tests.test_imports import MODULES, tree

LIMITS = {
    "begins with What or Of": (re.compile(r"(?:What|Of)\b"), 0.0),
    "stand": (re.compile(r"\b(?:stands?|stood|standing)\b", re.I), 0.001),
    "say or tell": (re.compile(r"\b(?:said|says?|told|tells?)\b", re.I), 0.005),
    "of which": (re.compile(r"\bof (?:which|whom)\b|\bwhose\b", re.I), 0.02),
    "behind": (re.compile(r"\b(?:behind|besides?|anew)\b", re.I), 0.01),
}
"""Words that a stranger reads twice, each with the greatest share of docstrings that may hold it."""
PRIVATE_NAMES = {"told", "said", "stand", "stands", "standing", "telling", "tells"}
"""Words that no name of a function, class, argument or variable contains."""
REPEATED_MODULES = {"settings", "state"}
"""Names that are still used twice. None may be added."""
SHOWN = 20


@cache
def docstrings() -> list[tuple[str, str]]:
    """Each docstring of both packages, also those of fields and constants, with its place."""
    return [(f"{path}:{line}", text) for name, path in MODULES.items() for line, text in _docstrings_of(name)]


def _docstrings_of(name: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(name)):
        documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        if documented and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text
        body = getattr(node, "body", None)
        for before, after in pairwise(body if isinstance(body, list) else ()):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr) and _is_text(after.value):
                yield after.lineno, after.value.value


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize("name", LIMITS)
def test_docstrings_avoid_private_words(name):
    pattern, limit = LIMITS[name]
    search = pattern.match if name.startswith("begins") else pattern.search
    held = [f"{place}: {text.splitlines()[0]}" for place, text in docstrings() if search(text)]
    share = len(held) / len(docstrings())
    assert share <= limit, f"{share:.1%} of docstrings, allowed {limit:.1%}; some:\n" + "\n".join(held[:SHOWN])


def test_a_class_name_is_used_once():
    places = defaultdict(set)
    for name in MODULES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(name)
    repeated = {name: sorted(modules) for name, modules in places.items() if len(modules) > 1}
    assert not repeated, repeated


def test_a_module_name_is_used_once():
    places = defaultdict(list)
    for name, path in MODULES.items():
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.stem].append(name)
    repeated = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert set(repeated) <= REPEATED_MODULES, repeated


def test_names_avoid_private_words():
    held = [
        f"{path}:{node.lineno}: {name}"
        for module, path in MODULES.items()
        for node in ast.walk(tree(module))
        for name in [getattr(node, "name", None) or getattr(node, "arg", None) or getattr(node, "id", None)]
        if isinstance(name, str) and PRIVATE_NAMES & set(name.lower().split("_"))
    ]
    assert not held, "\n".join(held[:SHOWN])
