"""A plan is data: it survives JSON unchanged, and anything else is refused with the name of the field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.analysis import analyze
from planner.errors import PlanRejected
from planner.guards import check_plan
from planner.plan import CompactionPlan, ExtractedFact, HistoryStamp, Provenance, TurnDecision, Usage
from planner.reading.messages import read_history
from tests.strategies import histories, make_session, plans, texts

HISTORY = read_history(make_session(3))
KEEP = TurnDecision(turn_id="t1", strategy="keep", relevance_score=1)


def plan(**fields):
    """A small plan."""
    basics = {"task": "fix it", "history": HistoryStamp.of(HISTORY, 900), "target_tokens": 300, "turns": (KEEP,)}
    return CompactionPlan(**{**basics, "estimated_tokens": 41, "provenance": Provenance(planner="rules"), **fields})


@given(st.data())
def test_json_gives_the_same_plan_back(data):
    drawn = data.draw(plans(data.draw(histories(max_turns=6))))
    again = CompactionPlan.from_json(drawn.to_json())
    assert again == drawn
    assert again.to_json() == drawn.to_json()
    assert CompactionPlan.from_json(drawn.to_json().encode()) == drawn


@given(texts(surrogates=True))
def test_json_carries_lone_surrogates_and_can_be_written(words):
    drawn = plan(task=words, extracted_facts=(ExtractedFact(type="error", content=words, quote=words, source="t1"),))
    assert CompactionPlan.from_json(drawn.to_json().encode("utf-8")) == drawn


def test_json_is_for_reading():
    written = plan(task="重构 auth").to_json()
    assert "重构 auth" in written
    assert written.endswith("}\n")
    assert written.count("\n") > 20


REFUSED = [
    ({"color": "red"}, "plan: color: Extra inputs are not permitted"),
    ({"version": 2}, "plan: version: Input should be 1"),
    ({"turns": [{**KEEP.model_dump(), "strategy": "forget"}]}, "plan: turns.0.strategy: Input should be 'keep'"),
    ({"turns": [{**KEEP.model_dump(), "mood": 1}]}, "plan: turns.0.mood: Extra inputs"),
    ({"turns": [{**KEEP.model_dump(), "turn_id": "t0"}]}, "plan: turns.0.turn_id: String should match"),
    ({"turns": [{**KEEP.model_dump(), "relevance_score": 1.5}]}, "plan: turns.0.relevance_score: .*less than or equal"),
    ({"turns": [{**KEEP.model_dump(), "relevance_score": float("nan")}]}, "plan: turns.0.relevance_score: .*finite"),
    ({"turns": [{**KEEP.model_dump(), "excerpts": [[0, 3]]}]}, "plan: turns.0.excerpts.0.0: .*greater than"),
    ({"turns": [KEEP.model_dump()] * 2}, "plan: top level: .*more than one decision for t1"),
    ({"turns": None, "task": 7}, r"plan: task: .* \(and 1 more\)"),
    ({"extracted_facts": [{"type": "error", "content": "", "source": "t1"}]}, "plan: .*content: .*at least 1"),
    ({"extracted_facts": [{"type": "rumour", "content": "x", "source": "t1"}]}, "plan: extracted_facts.0.type: "),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_a_file_that_is_no_plan_is_refused_with_the_place(change, said):
    text = json.dumps({**json.loads(plan().to_json()), **change})
    with pytest.raises(PlanRejected, match=said) as error:
        CompactionPlan.from_json(text)
    assert "\n" not in str(error.value)
    assert {finding.code for finding in error.value.findings} == {"invalid_plan"}


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"plan"', b"\xff\xfe", "[" * 100_000, None])
def test_a_file_that_is_no_json_object_is_refused(text):
    with pytest.raises(PlanRejected, match=r"^my\.json: "):
        CompactionPlan.from_json(text, "my.json")


def test_a_missing_field_is_named():
    fields = json.loads(plan().to_json())
    del fields["provenance"]
    with pytest.raises(PlanRejected, match="plan: provenance: Field required"):
        CompactionPlan.from_json(json.dumps(fields))


def test_decisions_cannot_be_changed_in_place():
    with pytest.raises(ValidationError):
        plan().turns[0].strategy = "drop"
    with pytest.raises(ValidationError, match="more than one decision for t1"):
        plan(turns=(KEEP, KEEP))


def test_a_bound_plan_holds_what_was_read_and_writes_none_of_it():
    analysis = analyze(make_session(3))
    bound = check_plan(plan(), analysis)
    loaded = CompactionPlan.from_json(bound.to_json())
    assert bound.bound_analysis is bound.bound.analysis is analysis
    assert (loaded.bound, loaded.bound_analysis) == (None, None)
    assert loaded == bound
    assert check_plan(loaded, analyze(make_session(3))) == bound


def test_a_changed_plan_is_no_longer_bound_to_its_layout():
    bound = check_plan(plan(), analyze(make_session(3)))
    for change in ({"turns": bound.turns[:1]}, {"brief": "STATE\n- done (t1)"}, {"target_tokens": 5}):
        edited = bound.model_copy(update=change)
        assert edited.bound is None
        assert edited.bound_analysis is bound.bound_analysis
        assert edited != bound


@pytest.mark.parametrize("field", ["turns", "history", "provenance"])
def test_a_part_of_a_changed_plan_that_is_a_dict_is_refused_by_name(field):
    bound = check_plan(plan(), analyze(make_session(3)))
    edited = bound.model_copy(update={field: bound.model_dump()[field]})
    with pytest.raises(PlanRejected, match=rf"plan: {field}[.0]*: expected a \w+, found dict"):
        edited.check_fields()
    bound.check_fields()


def test_usage_adds_up():
    both = Usage(input_tokens=10, requests=1) + Usage(input_tokens=5, output_tokens=2, requests=1)
    assert both == Usage(input_tokens=15, output_tokens=2, requests=2)
