"""Answers of a model to the rendered prompt, replayed: they plan, pass the guards and stay small."""

import json
import re
from pathlib import Path

import pytest

from applier import preview
from planner import plan_compaction
from planner.errors import PlannerUnavailable
from planner.model.recorded import RecordedPlanner, rendered_prompts
from planner.rules import RulesPlanner
from planner.validity import check_messages
from tests.example.record import RECORDINGS
from tests.model.sample import SAMPLE, answer, plan_request

PLACES = {path.stem: path for path in RECORDINGS}
RECORDED = sorted(Path(__file__).parent.glob("recorded/*.answer.txt"), key=lambda path: path.name)


def cut_of(path):
    """The transcript and how many of its messages an answer was given for: ``failing@38.answer.txt``."""
    name, cut = re.fullmatch(r"(\w+)@(\d+)\.answer\.txt", path.name).groups()
    data = json.loads(PLACES[name].read_text("utf-8"))
    return data["messages"][: int(cut)], data["task"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".answer.txt"))
def test_a_recorded_answer_makes_a_sound_plan(path):
    messages, task = cut_of(path)
    planner = RecordedPlanner([path.read_text("utf-8")])
    request = plan_request(messages, task)
    proposal = planner.propose(request)
    asked = {turn.id for turn in request.history.turns if not turn.live}
    unusable = sum(int(re.search(r"(\d+) of \d+ entries", note)[1]) for note in proposal.provenance.notes)
    assert unusable <= 1, "a model may name what a turn does not hold; the rules judge that turn"
    ruled = RulesPlanner().propose(request).turns
    assert sum(turn == ruled[turn_id] for turn_id, turn in proposal.turns.items() if turn_id in asked) <= unusable
    assert request.counter.text(path.read_text("utf-8")) <= max(800, 0.03 * request.evidence.tokens)
    for ratio in (0.5, 0.25):
        plan = plan_compaction(messages, task, target_ratio=ratio, planner=planner)
        view = preview(plan).messages
        assert {v.code for v in check_messages(view)} <= {v.code for v in check_messages(messages)}
        left_out = [f for f in plan.findings if f.code.startswith("invented")]
        assert len(left_out) <= 1, "a file's rule taken for the user's own words, say"


def test_what_is_rendered_is_what_is_sent():
    from planner.model import ModelPlanner
    from tests.loopback import Loopback

    request = plan_request()
    with Loopback([answer("t1-t8 drop 0")]) as server:
        ModelPlanner(client=server.client()).propose(request)
    body = server.requests[0].body
    sent = f"{body['system'][0]['text']}\n\n{body['messages'][0]['content']}"
    assert rendered_prompts(request) == (sent,)


def test_a_recorded_answer_that_does_not_fit_is_refused():
    with pytest.raises(PlannerUnavailable, match="2 for 1 questions: record them again"):
        RecordedPlanner(["{}", "{}"]).propose(plan_request(SAMPLE))
    with pytest.raises(PlannerUnavailable, match="recorded answer for t1-t9: cannot be used"):
        RecordedPlanner(["I would rather not."]).propose(plan_request(SAMPLE))
