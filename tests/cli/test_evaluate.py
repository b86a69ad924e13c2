"""`eval`: what survives of a person's own transcripts, as a table and as JSON."""

from importlib.resources import files

import pytest


@pytest.fixture
def whole_run(folder):
    path = folder / "run.json"
    path.write_bytes(files("applier.example").joinpath("transcript.json").read_bytes())
    return path


def test_rules_keep_more_than_the_newest_messages(compactor, whole_run):
    arguments = ["--method", "rules", "--method", "newest", "--ratio", 0.25, "--quick"]
    ran = compactor("eval", whole_run, *arguments, "--json")
    assert ran.code == 0
    means = {mean["method"]: mean for mean in ran.json["means"]}
    assert means["rules"]["in_context"] > means["newest"]["in_context"]
    assert {row["method"] for row in ran.json["cuts"]} == {"rules", "newest"}


def test_table_has_a_row_for_each_target(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "newest", "--ratio", 0.25, "--ratio", 0.1)
    rows = [line.split() for line in ran.out.splitlines() if "newest" in line]
    assert [row[2] for row in rows] == ["0.25", "0.10"]


def test_unknown_method_is_wrong_usage(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "magic")
    assert ran.code == 2
    assert "there are rules, model" in ran.err


def test_folder_without_transcripts_is_named(compactor, folder):
    ran = compactor("eval", ".")
    assert ran.code == 1
    assert "no transcripts" in ran.err
