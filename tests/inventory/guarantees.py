"""Whether what is promised is still said and still held: ``guarantees.txt`` against the pages and the tests there are.

Tests are known by name, wherever they stand: one that is moved is the same, one that is renamed or gone is missed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.inventory.product import ROOT, documents

PROMISES = Path(__file__).with_name("guarantees.txt")
MARKUP = re.compile(r"[*`]|\[([^]]*)\]\([^)]*\)")


def guarantees() -> Iterator[str]:
    """What is missing, or that nothing is."""
    said = " ".join(_words(text) for text in documents().values())
    names = test_names()
    missing = []
    for line in PROMISES.read_text("utf-8").splitlines():
        kind, _, promise = line.partition(": ")
        if line.startswith("    "):
            missing += [f"no such test: {line.strip()}"] if line.strip() not in names else []
        elif kind == "says" and _words(promise) not in said:
            missing.append(f"no page says: {promise}")
    yield from missing or ["each is said or a law, and held by tests that are there"]


def _words(text: str) -> str:
    """`text` without marks of Markdown and with single spaces."""
    return " ".join(MARKUP.sub(lambda mark: mark[1] or "", text).split())


def test_names() -> set[str]:
    """The names of all tests, those of classes included."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
