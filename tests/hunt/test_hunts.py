"""Each hunt runs, and what it does first finds nothing: what a whole hunt looks for, `python -m tests.hunt` does."""

import gc
from collections import Counter
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from planner import guards
from tests.hunt.planning_hunt import check_one

HUNTS = [path.stem for path in sorted(Path(__file__).parent.glob("*_hunt.py"))]


@pytest.mark.parametrize("name", HUNTS)
def test_a_hunt_counts_what_it_does(name):
    threshold = gc.get_threshold()
    try:
        (count,) = islice(import_module(f"tests.hunt.{name}").rounds(0), 1)
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
    assert sum(count.values())


GUARDS = {
    "keep_untouchable": guards._Guarding,
    "mark_failure": guards._Guarding,
    "check_texts": guards._Guarding,
    "keep_failure": guards._Guarding,
    "keep_user_words": guards._Guarding,
    "keep_trace": guards._Guarding,
    "_invention": guards,
    "_fact_problem": guards,
}


@pytest.mark.real
@pytest.mark.parametrize("missing", GUARDS)
def test_a_guard_that_is_missing_is_found(missing, monkeypatch):
    monkeypatch.setattr(GUARDS[missing], missing, lambda *_: "")
    with pytest.raises(AssertionError, match="check_one"):
        Counter(name for number in range(1, 1_000) for name in check_one(f"missing:{number}", number))
