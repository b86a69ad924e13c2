"""What the preview shows is what a compaction of the same transcript would do, and nothing else."""

import pytest

from applier import open_store
from applier.adapters import claude_code_mod as mod
from tests.mod.transcript import Rows
from tests.strategies import make_session

LONG = make_session(120)
CUT = next(at for at in range(len(LONG) // 2, len(LONG)) if LONG[at]["role"] == "assistant")


def shown(rows, arguments="", store=None, **more):
    return mod.preview(rows.call(arguments=arguments, **more), store, lambda _: "")["text"]


@pytest.mark.parametrize("window", [0, 20_000])
def test_it_is_what_the_receipt_of_that_compaction_says(tmp_path, monkeypatch, window):
    """Of the first one, before there is a store, and of one behind it, which is made from the originals again."""
    monkeypatch.setenv("COMPACTOR_PLANNER", "rules")
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "s.db"))
    rows = Rows(LONG[:CUT])
    foreseen = shown(rows, window_tokens=window)
    assert not (tmp_path / "s.db").exists()
    with open_store(tmp_path / "s.db") as store:
        assert_foreseen(foreseen, rows.compact(store, window_tokens=window))
        rows.add(LONG[CUT:])
        stored = store.events(), store.histories()
        foreseen = shown(rows, store=store, window_tokens=window)
        assert (store.events(), store.histories()) == stored
        assert_foreseen(foreseen, rows.compact(store, window_tokens=window))


def assert_foreseen(foreseen, done):
    """The same sizes, the same costs, and the same lines of what went."""
    verdict, *lines = done["receipt"].splitlines()
    assert foreseen.splitlines()[0] == verdict.replace("Compacted", "A compaction now")
    gone, foreseen_gone = ([one for one in some if one.startswith(" ")] for some in (lines, foreseen.splitlines()))
    assert foreseen_gone == gone


def test_a_word_that_is_no_command_is_answered_by_what_there_is():
    assert shown(Rows(), "previw").startswith("/compactor preview")
    assert shown(Rows()).startswith("A compaction now would change nothing")
    assert shown(Rows(LONG), "preview keep the queue").startswith("A compaction now:")
