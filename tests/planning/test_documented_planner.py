"""The planner that the documentation shows is one: what it proposes happens, on any history."""

import re
from pathlib import Path

from hypothesis import given

from applier.view import preview
from planner import plan_compaction
from planner.validity import check_messages
from tests.strategies import histories, make_session

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def shown_planner():
    """An instance of the page's class; its last lines, which plan, are the test's."""
    (example,) = (
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "propose" in block
    )
    names = {}
    exec(example.split("\n\nplan = ")[0], names)
    return names["NewestFirst"]()


@given(histories(max_turns=12))
def test_its_plan_is_valid_for_any_history(messages):
    plan = plan_compaction(messages, "go on", planner=shown_planner(), target_ratio=0.5, now=0.0)
    assert plan.provenance.planner in ("newest first", "none")
    assert [one for one in check_messages(preview(plan).messages) if one.refused] == []


def test_it_goes_by_age_and_by_the_words_of_the_task():
    plan = plan_compaction(make_session(40), "Close ticket-4709", planner=shown_planner(), target_ratio=0.3, now=0.0)
    scores = {own.turn_id: own.relevance_score for own in plan.turns}
    assert scores["t11"] < scores["t20"] < scores["t10"] < scores["t30"]  # t10 is where ticket-4709 was begun
