"""Each hunt runs, and what it does first finds nothing: what a whole hunt looks for, `python -m tests.hunt` does."""

import gc
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", [path.stem for path in sorted(Path(__file__).parent.glob("*_hunt.py"))])
def test_a_hunt_counts_what_it_does(name):
    threshold = gc.get_threshold()
    try:
        counts = list(islice(import_module(f"tests.hunt.{name}").rounds(0), 3))
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
    assert all(sum(count.values()) for count in counts)
