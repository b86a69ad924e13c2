"""Answers of a model to the rendered prompt, replayed: they plan, pass the guards and stay small."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest

from applier import preview
from applier.eval.methods import FolderPlanner, NotRecorded
from planner import plan_compaction
from planner.errors import PlannerUnavailable
from planner.model.planners import RelayedPlanner, rendered_prompts
from planner.model.question import BRIEF_FLOOR_TOKENS
from planner.validity import check_messages
from tests.example.record import RECORDINGS
from tests.model.sample import SAMPLE, answer, plan_request
from tests.model.test_planner import reading

PLACES = {path.stem: path for path in RECORDINGS}
RECORDED = sorted((Path(__file__).parents[1] / "evaluation" / "recorded").glob("*.answer.txt"))


def recorded_for(path):
    """The messages and task that an answer was given for, and at which target ratio: ``failing@0.1.answer.txt``."""
    name, ratio = re.fullmatch(r"(\w+)@([\d.]+)\.answer\.txt", path.name).groups()
    data = json.loads(PLACES[name].read_text("utf-8"))
    return data["messages"], data["task"], float(ratio)


@pytest.mark.real
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".answer.txt"))
def test_a_recorded_answer_makes_a_sound_plan(path):
    messages, task, ratio = recorded_for(path)
    planner = RelayedPlanner([path.read_text("utf-8")])
    request = plan_request(messages, task)
    proposal = planner.propose(request)
    unusable = sum(int(re.search(r"(\d+) of \d+ entries", note)[1]) for note in proposal.provenance.notes)
    assert unusable <= 1, "a model may name what a turn does not hold; the rules judge that turn"
    assert request.counter.text(path.read_text("utf-8")) <= max(
        BRIEF_FLOOR_TOKENS * 1.5, 0.03 * request.evidence.tokens
    )
    plan = plan_compaction(messages, task, target_ratio=ratio, planner=planner)
    assert {v.code for v in check_messages(preview(plan).messages)} <= {v.code for v in check_messages(messages)}
    statements = [line for line in proposal.brief.splitlines() if line.startswith("- ")]
    struck = [finding for finding in plan.findings if finding.code == "invented_in_brief"]
    assert len(struck) <= 0.03 * len(statements)
    assert set(proposal.brief.splitlines()) & set(plan.brief.splitlines())


def test_what_is_rendered_is_what_is_sent():
    from planner.model import ModelPlanner
    from tests.loopback import Loopback

    request = plan_request()
    with Loopback([answer("t1-t8 drop 0")]) as server:
        ModelPlanner(client=server.client()).propose(request)
    body = server.requests[0].body
    sent = f"{body['system'][0]['text']}\n\n{body['messages'][0]['content']}"
    assert rendered_prompts(request) == (sent,)


def test_the_pieces_of_a_long_history_are_answered_in_order_and_the_last_one_knows_the_briefs_of_the_others(tmp_path):
    long = [SAMPLE[0], *(message for n in range(60) for message in reading(n))]
    request = plan_request(long, piece_tokens=3_000)
    written, known = [], set()
    for _ in range(9):
        try:
            proposal = FolderPlanner(tmp_path, "long").propose(request)
            break
        except NotRecorded:
            new = {path.name for path in tmp_path.glob("long.prompt-*.txt")} - known
            written.append(sorted(new))
            known |= new
            for name in new:
                said = answer(brief=("STATE", f"- what {name.split('.')[1]} told (t1)"))
                (tmp_path / name.replace("prompt", "answer")).write_text(said, "utf-8")
    *others, last = (name.split(".")[1] for name in chain(*written))
    assert len(others) >= 2
    assert written == [[f"long.{name}.txt" for name in others], [f"long.{last}.txt"]]
    notes = (tmp_path / f"long.{last}.txt").read_text("utf-8").split("<brief>")[1].split("</brief>")[0]
    assert all(f"what {name} told" in notes for name in others)
    assert f"what {last} told" in proposal.brief


def test_a_recorded_answer_that_does_not_fit_is_refused():
    with pytest.raises(PlannerUnavailable, match="2 for 1 questions: record them again"):
        RelayedPlanner(["{}", "{}"]).propose(plan_request(SAMPLE))
    with pytest.raises(PlannerUnavailable, match="no answer for t1-t9"):
        RelayedPlanner(["I would rather not."]).propose(plan_request(SAMPLE))
