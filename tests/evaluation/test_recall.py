"""Future-use recall: what an agent needed next, and what of it a compacted list still holds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from applier.eval import evaluation
from applier.eval.evaluation import cut_points
from applier.eval.survival import find_needs, measure_recall
from tests.evaluation.work import FUTURE, PAST, TASK
from tests.strategies import histories


def needs_of(past, future, task=""):
    return find_needs(past, future, task)


def said(text):
    return [{"role": "user", "content": text}]


@given(histories(), st.data())
def test_what_was_not_compacted_keeps_everything(messages, data):
    at = data.draw(st.integers(0, len(messages)))
    recall = measure_recall(needs_of(messages[:at], messages[at:]), messages[:at])
    assert recall.plain == recall.in_context == 1


@settings(max_examples=20)
@given(histories(), st.data())
def test_taking_away_never_raises_recall_and_nothing_keeps_nothing(messages, data):
    at = data.draw(st.integers(0, len(messages)))
    before = [*messages[:at], *PAST]
    needs = needs_of(before, [*FUTURE, *messages[at:]], TASK)
    fewer = before[data.draw(st.integers(0, len(before))) :]
    recall = measure_recall(needs, fewer)
    assert recall.in_context <= recall.plain <= measure_recall(needs, before).plain
    assert measure_recall(needs, []).plain == 0


def test_needed_is_what_the_agent_writes_before_it_sees_it_again():
    found = [need.specific for need in needs_of(PAST, FUTURE, TASK)]
    assert found == ["/srv/jobs/report/runner.py", "DEFAULT_DEADLINE", "900", "tests/test_runner.py", "test_stops",
                     "run_report"]  # fmt: skip


def test_the_task_and_bare_values_need_not_be_remembered():
    past = [{"role": "user", "content": "limit 50000 and window abcdef1 and status shipped_late"}]
    call = {"type": "tool_use", "id": "c", "name": "Set", "input": {"limit": "50000", "note": "shipped_late abcdef1"}}
    future = [{"role": "assistant", "content": [call]}]
    assert [need.specific for need in needs_of(past, future, "find abcdef1")] == ["shipped_late"]


def test_a_bare_list_of_names_earns_nothing_in_context():
    needs = needs_of(PAST, FUTURE, TASK)
    recall = measure_recall(needs, said("\n".join(need.specific for need in needs)))
    assert recall.plain == 1
    assert "run_report" in recall.bare


def test_half_of_the_words_around_one_occurrence_are_enough():
    past = said("alpha beta run_report gamma delta") + said("other words near run_report entirely")
    needs = needs_of(past, [{"role": "assistant", "content": "now run_report"}])
    assert measure_recall(needs, said("alpha run_report delta")).in_context == 1
    assert measure_recall(needs, said("alpha run_report words")).in_context == 0
    assert measure_recall(needs, said(f"alpha {'x' * 80} run_report {'x' * 80} delta")).in_context == 0


def test_a_path_counts_when_its_root_and_the_rest_stand_apart():
    past = said("file /srv/app/lib/x.py was read")
    needs = needs_of(past, [{"role": "assistant", "content": "edit /srv/app/lib/x.py"}])
    assert measure_recall(needs, said("in /srv/app: file lib/x.py was read")).in_context == 1
    assert measure_recall(needs, said("in /srv/app: file x.py was read")).plain == 0
    assert measure_recall(needs, said("file lib/x.py was read")).plain == 0


def test_a_transcript_is_cut_before_an_assistant_message_with_pairs_whole(monkeypatch):
    monkeypatch.setattr(evaluation, "LEAST_PREFIX_TOKENS", 20)
    messages = [*PAST, *FUTURE]
    points = cut_points(messages, (0.5, 0.8, 0.8))
    assert len(points) == 2
    assert all(messages[point]["role"] == "assistant" for point in points)
    assert all(messages[point - 1]["role"] == "user" for point in points)


def test_a_short_part_before_the_cut_is_not_measured():
    assert cut_points([*PAST, *FUTURE]) == []
