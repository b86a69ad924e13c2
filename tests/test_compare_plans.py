"""The comparison of plans reports all differences, and nothing else."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.compare_plans import CLASSES, ROOT, command, compared, planned

SERVICE = Path(__file__).parent / "example" / "service.json"


@pytest.fixture(scope="module")
def before():
    name, made = planned(SERVICE)
    return {name: made}


@pytest.fixture
def after(before):
    return json.loads(json.dumps(before))


def test_planning_again_differs_in_nothing(before):
    name, made = planned(SERVICE)
    assert list(compared(before, {name: made})) == []


def test_each_difference_is_named_by_its_class(before, after, tmp_path):
    del after["service"]["0.05"]
    plan = after["service"]["0.25"]
    drop = next(turn for turn in plan["turns"].values() if turn["strategy"] == "drop")
    told = next(turn for turn in plan["turns"].values() if turn["strategy"] == "summarize")
    drop |= {"strategy": "reference", "relevance_score": 0.123, "tokens_before": 1}
    told |= {"failed_approach": not told["failed_approach"], "entry": "something else"}
    del plan["turns"]["t1"], plan["facts"][0]
    plan["brief"].append("NOTES - something")
    plan["findings"].append({"code": "media", "turn_id": "t3", "problem": "an image", "repair": ""})
    plan |= {"tokens": plan["tokens"] + 1, "view": "[]"}
    assert {difference.kind for difference in compared(before, after)} == set(CLASSES)
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file, made in zip(files, (before, after), strict=True):
        file.write_text(json.dumps(made), "utf-8")
    shown = CliRunner().invoke(command, ["diff", *map(str, files), "--show", "entry"])
    assert shown.exit_code == 1
    assert "+ something else" in shown.output
    assert CliRunner().invoke(command, ["diff", str(files[0]), str(files[0])]).exit_code == 0


def test_a_findings_other_words_are_a_difference(before, after):
    plan = next(plan for plan in after["service"].values() if plan["findings"])
    plan["findings"][0]["problem"] += " now"
    assert [difference.what for difference in compared(before, after)] == ["worded otherwise"]


def test_nothing_is_saved_in_the_tree_nor_without_transcripts(tmp_path):
    inside = CliRunner().invoke(command, ["save", str(ROOT / "plans.json")])
    assert (inside.exit_code, (ROOT / "plans.json").exists()) == (2, False)
    empty = CliRunner().invoke(command, ["save", str(tmp_path / "plans.json"), "--folder", str(tmp_path)])
    assert (empty.exit_code, "nothing to plan" in empty.output) == (0, True)
