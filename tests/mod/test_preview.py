"""What the preview shows is what a compaction of the same transcript would do, and nothing else."""

from applier import open_store
from applier.adapters import claude_code_mod as mod
from tests.mod.transcript import Rows
from tests.strategies import make_session

LONG = make_session(120)


def shown(api, arguments="", **more):
    call = {"session_id": "s", "arguments": arguments, "api": api, **more}
    return mod.preview(call, lambda _: "")["text"]


def test_it_is_what_the_receipt_of_that_compaction_says(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPACTOR_PLANNER", "rules")
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "s.db"))
    rows = Rows(LONG).rows
    for window in (0, 20_000):
        foreseen = shown(LONG, window_tokens=window)
        assert foreseen == shown([], messages=rows, window_tokens=window)
        with open_store(tmp_path / f"{window}.db") as store:
            call = {"session_id": "s", "messages": rows, "window_tokens": window}
            verdict, *lines, _ = mod.compact(call, store, 0.0)["receipt"].splitlines()
        assert foreseen.splitlines()[0] == verdict.replace("Compacted", "A compaction now")
        assert [line for line in foreseen.splitlines()[1:] if line.startswith(" ")] == [
            line for line in lines if line.startswith(" ")
        ]
    assert not (tmp_path / "s.db").exists()


def test_reminders_of_the_client_do_not_count():
    first, *rest = LONG
    reminder = {"type": "text", "text": f"<system-reminder>\n{'tools ' * 3_000}</system-reminder>"}
    words = {"type": "text", "text": first["content"]}
    assert shown([{"role": "user", "content": [reminder, words]}, *rest]) == shown([first, *rest])
    assert shown([{"role": "user", "content": [reminder]}, first, *rest]) == shown([first, *rest])


def test_a_word_that_is_no_command_is_answered_by_what_there_is():
    assert shown([], "previw").startswith("/compactor preview")
    assert shown([]).startswith("A compaction now would change nothing")
    assert shown(LONG, "preview keep the queue").startswith("A compaction now:")
