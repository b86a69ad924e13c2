"""The picture of recall against size."""

from dataclasses import fields
from xml.etree import ElementTree

from applier.bench.picture import COLOURS, HEIGHT, WIDTH, recall_picture
from applier.bench.summary import Summary

SVG = "{http://www.w3.org/2000/svg}"


def mean(method, size, plain, in_context, kind="cut"):
    blank = {field.name: None for field in fields(Summary)}
    return Summary(**{**blank, "kind": kind, "method": method, "ratio": size, "size": size, "plain": plain,
                      "in_context": in_context})  # fmt: skip


def drawn(*means):
    return ElementTree.fromstring(recall_picture(means))


def test_each_method_has_a_line_in_both_panels_and_a_name():
    root = drawn(mean("a<b", 0.25, 0.9, 0.8), mean("a<b", 0.04, 0.5, 0.4), mean("other", 0.1, 0.7, 0.2))
    assert len(root.findall(f"{SVG}circle")) == 6
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a<b", "other", "plain recall", "recall in context"} <= set(texts)


def test_more_recall_is_higher_and_more_size_further_right():
    root = drawn(mean("m", 0.04, 0.5, 0.1), mean("m", 0.25, 0.9, 0.8))
    first, second = ((float(c.get("cx")), float(c.get("cy"))) for c in root.findall(f"{SVG}circle")[:2])
    assert first[0] < second[0]
    assert first[1] > second[1]


def test_nothing_leaves_the_picture_and_other_kinds_of_cuts_are_not_drawn():
    means = [mean(f"m{n}", size, 1, 0) for n in range(len(COLOURS) + 2) for size in (0, 0.001, 1, 3)]
    root = drawn(*means, mean("own", 0.1, 0.5, 0.5, kind="own summary"))
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < HEIGHT
    assert "own" not in [text.text for text in root.iter(f"{SVG}text")]
