"""`demo`: the whole job with nothing but the package."""

import pytest

pytestmark = pytest.mark.real


def test_demo_plans_applies_and_restores(compactor, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = compactor("demo")
    assert ran.code == 0
    assert "breaks no rule of the Messages API" in ran.out
    assert "removed turns came back byte-exact" in ran.out
    assert ran.err == ""
    assert not list(folder.iterdir())
    lines = ran.out.splitlines()
    assert len(lines) <= 55, "two screens"
    assert lines[-3].startswith("Applied: 383 messages of 104,490 tokens became 3 of ")


def test_demo_copies_the_transcript_that_it_plans_and_overwrites_nothing(compactor, folder):
    assert compactor("demo", "--copy", "run.json").code == 0
    copied = (folder / "run.json").read_text("utf-8")
    verdict = compactor("demo").out.splitlines()[0]
    assert compactor("plan", "run.json", "--planner", "rules").out.splitlines()[0] == verdict
    again = compactor("demo", "--copy", "run.json")
    assert (again.code, again.err) == (
        2,
        "compactor: --copy run.json: exists already: name a new file. See 'compactor demo --help'.\n",
    )
    assert (folder / "run.json").read_text("utf-8") == copied
