"""What the installed product is made of: modules, classes, syntax trees. Found by walking and by public names.

Knows no path of an inner module, so that rooms may be moved and renamed without a word changing here.
"""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "applier")
PUBLIC = (
    "planner",
    "planner.model",
    "planner.validity",
    "applier",
    "applier.settings",
    "applier.session",
    "applier.store",
    "applier.testing",
    "applier.cli",
    "applier.adapters.transcripts",
    "applier.adapters.mcp",
    "applier.adapters.proxy",
    "applier.adapters.agent_tools",
    "applier.adapters.frameworks.anthropic_middleware",
    "applier.adapters.frameworks.anthropic_tools",
    "applier.adapters.frameworks.langchain_middleware",
    "applier.adapters.frameworks.pydantic_ai_history",
)
"""What users import today. README and docs may name more, and that counts, too."""
ELSEWHERE = frozenset({"applier.adapters.frameworks.hermes_engine"})
"""What can be imported only beside a host that lives in an environment of its own."""
IMPORT = re.compile(r"from ((?:planner|applier)[\w.]*) import")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
INNER_PATH = re.compile(r"\b(?:planner|applier)\.(?:\w+\.)*(?=\w)")


def documents() -> dict[str, str]:
    """README and the pages of ``docs/`` by name."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


@cache
def files() -> dict[str, Path]:
    """Every module of both packages with its file."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        found[package] = Path(spec.origin)
        for module in pkgutil.walk_packages(spec.submodule_search_locations, f"{package}."):
            if not module.name.endswith("__main__") and module.name not in ELSEWHERE:
                found[module.name] = Path(importlib.util.find_spec(module.name).origin)
    return found


@cache
def modules() -> tuple[ModuleType, ...]:
    """All of them, imported: only then has a class all its subclasses."""
    return tuple(importlib.import_module(name) for name in files())


def public_modules() -> dict[str, ModuleType | None]:
    """What users import from; None where that is gone."""
    named = {found for text in documents().values() for found in IMPORT.findall(text)}
    known = {module.__name__: module for module in modules()}
    return {name: known.get(name) for name in sorted({*PUBLIC, *named})}


def is_ours(value: Any) -> bool:
    """True for a class or function that this project defines."""
    return (getattr(value, "__module__", None) or "").split(".")[0] in PACKAGES


def subclasses(root: type) -> set[type]:
    """`root` and every class of this project below it."""
    modules()
    return {root}.union(*(subclasses(below) for below in root.__subclasses__() if is_ours(below)))


def syntax(package: str) -> Iterator[ast.AST]:
    """Every node of every module of `package`."""
    for name, path in files().items():
        if name == package or name.startswith(f"{package}."):
            yield from ast.walk(ast.parse(path.read_text("utf-8")))


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (inspect.cleandoc(text or "") or "-").splitlines()[0]


def field_lines(cls: type) -> dict[str, str]:
    """The first line of what stands below each field of `cls`, of the classes it comes from, too."""
    found: dict[str, str] = {}
    for own in reversed([base for base in cls.__mro__ if is_ours(base)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(own))).body[0].body
        for field, doc in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                found[field.target.id] = first_line(doc.value.value)
    return found


def plain(value: Any) -> str:
    """`value` as text that is the same tomorrow: no address, no inner path, sets in order, dataclasses by field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [f for f in dataclasses.fields(value) if f.repr]
        parts = [f"{f.name}={plain(getattr(value, f.name))}" for f in shown if getattr(value, f.name) != f.default]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(plain, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(plain, value))})"
    return INNER_PATH.sub("", ADDRESS.sub("", repr(value)))
