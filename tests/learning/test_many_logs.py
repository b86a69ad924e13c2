"""Logs enough to be read on all cores: what they teach is what they teach one by one."""

import pytest

from applier.adapters.transcripts import transcript_files
from applier.cli.commands.learn import MANY, conversations_in
from applier.learning.learned import FinishedConversation


@pytest.fixture
def logs(say, folder):
    for number in range(MANY + 2):
        say(f"run{number:02}", f"Look at part {number}, please.", f"Never push to branch-{number}, ever.")
    (folder / "logs" / "package.json").write_text('{"name": "foreign"}')
    (folder / "logs" / "below").mkdir()
    (folder / "logs" / "below" / "broken.jsonl").write_text("{")
    return folder / "logs"


@pytest.mark.real
def test_many_are_found_as_one_by_one(logs, folder):
    now, projects = 4e9, [str(folder / "app")]
    every = conversations_in([logs], projects, now)
    alone = [one for path in transcript_files([logs]) for one in conversations_in([path], projects, now)]
    assert [(type(one), one.name) for one in every] == [(type(one), one.name) for one in alone]
    assert [one.digests for one in every if isinstance(one, FinishedConversation)] == [
        one.digests for one in alone if isinstance(one, FinishedConversation)
    ]


@pytest.mark.real
def test_many_are_read_once_and_those_that_are_new(learn, logs, say):
    assert learn("--dry-run").err.count("broken.jsonl") == 1
    ran = learn("--json", "--dry-run").json
    assert (ran["conversations"], ran["read_now"]) == (MANY + 2, MANY + 2)
    assert len(ran["lines"]) == MANY + 2
    assert sorted(one["name"] for one in ran["unread"] if one["bad"]) == ["broken.jsonl", "package.json"]
    assert learn("--json", "--yes").json["lines"] == ran["lines"]
    say("new", "Look at the rest, please.")
    again = learn("--json", "--yes").json
    assert (again["read_now"], again["change"]) == (1, "")
