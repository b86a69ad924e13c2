"""The chart of recall against size."""

from dataclasses import fields
from xml.etree import ElementTree

import pytest

from applier.eval.evaluation import EvaluationMean
from planner.errors import SettingsError

pytest.importorskip("matplotlib")
from applier.eval.evaluation import draw_recall

SVG = "{http://www.w3.org/2000/svg}"


def mean(method, size, plain, in_context):
    blank = {field.name: None for field in fields(EvaluationMean)}
    return EvaluationMean(**{**blank, "method": method, "ratio": size, "size": size, "plain": plain,
                             "in_context": in_context})  # fmt: skip


def test_each_method_is_named_in_a_chart_that_is_the_same_each_time(tmp_path):
    means = [mean(f"m{n}<b", size, 0.9, 0.8) for n in range(10) for size in (0.25, 0.04)]
    draw_recall(means, tmp_path / "a.svg")
    draw_recall(means, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    texts = ["".join(text.itertext()) for text in ElementTree.parse(tmp_path / "a.svg").iter(f"{SVG}text")]
    assert {"m0<b", "m9<b", "plain recall", "recall in context"} <= set(texts)


def test_a_format_that_nobody_knows_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"r\.xyz"):
        draw_recall([mean("m", 0.1, 0.5, 0.5)], tmp_path / "r.xyz")
