"""The page without a browser: who may talk to it, what the guards answer, what is written."""

import json
import re
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from applier import preview
from applier.web import PageServer
from applier.web.reviews import Replan, Revision
from planner import CompactionPlan, plan_compaction
from planner.errors import PlannerUnavailable, StalePlan
from planner.plan import Provenance
from tests import http_client
from tests.patience import PATIENCE_SECONDS
from tests.web.conftest import review_of


def base(server) -> str:
    return server.link.split("/#")[0]


def token(server) -> str:
    return server.link.split("#")[1]


def opened(server, text):
    return http_client.post(f"{base(server)}/api/open", json={"token": text})


def test_link_opens_once(server):
    assert opened(server, token(server)).status_code == 200
    again = opened(server, token(server))
    assert again.status_code == 401
    assert "used before" in again.json()["problem"]


def test_wrong_token_opens_nothing_and_does_not_use_up_the_link(server):
    for text in ("", "x", "ä" * 32, "\ud83d", None, 7, ["a"]):
        body = json.dumps({"token": text})
        wrong = http_client.post(f"{base(server)}/api/open", content=body, headers={"content-type": "application/json"})
        assert wrong.status_code == 401
        assert "key" not in wrong.json()
    assert opened(server, token(server)).status_code == 200


@pytest.mark.parametrize("body", ["", "{", "[" * 100_000, "17", "null"])
def test_garbage_is_a_clear_answer(page, body):
    headers = {"content-type": "application/json"}
    for path in ("/api/open", "/api/check", "/api/view", "/api/replan", "/api/save", "/api/apply"):
        answer = page.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 401)
        assert answer.json()["problem"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/review",
        "/api/turns/t1",
        "/api/check",
        "/api/save",
        "/api/apply",
        "/api/finish",
        "/api/view",
        "/api/replan",
        "/api/search",
    ],
)
@pytest.mark.parametrize("key", [None, "", "wrong"])
def test_nothing_without_the_key(page, page_wrote, path, key):
    headers = {} if key is None else {"x-compactor-key": key}
    address = str(page.base_url.join(path))
    assert http_client.get(address, headers=headers).status_code == 401
    assert http_client.post(address, headers=headers, json={}).status_code == 401
    assert (page_wrote.plans, page_wrote.sheets) == ([], [])


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "127.0.0.1"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_hosts_and_other_sites_pages_are_refused(page, headers):
    assert page.get("/api/review").status_code == 200
    for path in ("/", "/static/review.js", "/api/review"):
        assert page.get(path, headers=headers).status_code == 403
    assert page.post("/api/save", headers=headers, json={}).status_code == 403


def test_bodies_that_a_form_could_send_are_refused(page, page_wrote):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert page.post("/api/save", content="{}", headers={"content-type": kind}).status_code == 415
    assert page.post("/api/save", json={"brief": "x" * 9_000_000}).status_code == 413
    assert page_wrote.plans == []


def test_every_answer_carries_the_policy(page):
    for answer in (page.get("/"), page.get("/static/review.js"), page.get("/nowhere"), page.get("/api/review"),
                   http_client.get(str(page.base_url.join("/api/review")))):  # fmt: skip
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_page_fetches_nothing_from_outside_and_parses_no_text_as_markup():
    for file in files("applier.web").joinpath("static").iterdir():
        text = file.read_text("utf-8")
        assert not re.search(r"https?://|@import|url\(", text), file
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|style=|\son\w+=", text
        ), file


def test_server_listens_on_loopback_only(server):
    assert urlsplit(server.link).hostname == "127.0.0.1"


def revised(page, **revision):
    answer = page.post("/api/check", json=revision)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_page_is_the_plan(page, plan, messages):
    shown = page.get("/api/review").json()
    assert [turn["id"] for turn in shown["turns"]] == [own.turn_id for own in plan.turns]
    assert shown["checked"]["totals"]["tokens_after"] == plan.estimated_tokens
    assert shown["brief"] == plan.brief
    assert {fact["content"] for fact in shown["facts"]} == {fact.content for fact in plan.extracted_facts}
    assert {own["turn"] for own in shown["checked"]["failed"]} == {
        own.turn_id for own in plan.turns if own.failed_approach
    }
    assert "Build a small Python package" in shown["words"][0]["lines"][0]["text"]


def test_flipping_a_decision_changes_the_tokens(page, plan):
    before = revised(page)["totals"]["tokens_after"]
    dropped = next(own.turn_id for own in plan.turns if own.strategy == "drop")
    kept = revised(page, turns={dropped: {"strategy": "keep"}})
    at = list(plan.decisions).index(dropped)
    assert kept["turns"][at]["strategy"] == "keep"
    assert kept["totals"]["tokens_after"] > before
    assert revised(page)["totals"]["tokens_after"] == before


def test_keeping_everything_changes_nothing_and_costs_nothing(page, plan):
    totals = revised(page, turns={own.turn_id: {"strategy": "keep"} for own in plan.turns}, brief="")["totals"]
    assert totals["tokens_after"] == totals["tokens_before"]
    assert (totals["first_changed_message"], totals["payback_calls"]) == (None, None)


def test_drop_of_a_failed_approach_is_repaired_and_said(page, plan):
    at, failed = next((at, own.turn_id) for at, own in enumerate(plan.turns) if own.failed_approach)
    answer = revised(page, turns={failed: {"strategy": "drop"}}, open=failed)
    assert answer["turns"][at]["strategy"] == "summarize"
    new = [finding for finding in answer["findings"] if finding["new"]]
    assert [(one["code"], one["turn_id"]) for one in new] == [("failed_approach", failed)]
    assert answer["findings"][0] == new[0]
    assert answer["open"]["left"].startswith(f"{failed} ✗")


def test_lines_can_be_let_stay(page, plan):
    turn_id = next(own.turn_id for own in plan.turns if own.strategy == "drop")
    lines = page.get(f"/api/turns/{turn_id}").json()["lines"]
    number = next(line["number"] for line in lines if line["part"] == "result" and line["text"].strip())
    wanted = {"strategy": "summarize", "lines": [number, 10**9]}
    opened = revised(page, turns={turn_id: wanted}, open=turn_id)["open"]
    assert opened["kept"] == [[number, number]]
    assert lines[number - 1]["text"].strip() in opened["left"]


def test_view_is_what_apply_gives_with_the_place_of_each_message_that_is_as_it_was(page, plan, messages):
    dropped = next(own.turn_id for own in plan.turns if own.strategy == "drop")
    revision = {"turns": {dropped: {"strategy": "keep"}}}
    shown = page.post("/api/view", json=revision).json()["messages"]
    page.post("/api/apply", json=revision)
    edited = plan.model_copy(update={"turns": tuple(
        own.model_copy(update={"strategy": "keep"}) if own.turn_id == dropped else own for own in plan.turns
    )})  # fmt: skip
    assert [one["message"] for one in shown] == preview(edited, messages).messages
    own = [one for one in shown if one["index"] is not None]
    assert [one["message"] for one in own] == [messages[one["index"]] for one in own]
    assert len(own) >= 2
    assert sum(one["tokens"] for one in shown) <= revised(page, **revision)["totals"]["tokens_after"]


def test_plan_is_made_anew_for_another_target(plan, messages, written):
    review = review_of(plan, messages, written)
    assert review.page()["planners"] == ["rules"]
    review.replan(Replan(target_tokens=9_000, planner="rules"))
    shown = review.page()
    assert not shown["saved"]
    assert shown["checked"]["totals"]["target"] == 9_000
    assert shown["checked"]["totals"]["tokens_after"] > plan.estimated_tokens + 2_000
    review.save(Revision())
    assert written.plans[0].target_tokens == 9_000
    assert review.page()["saved"]


@pytest.mark.parametrize("wanted", [{}, {"target_tokens": 0, "planner": "rules"}, {"target_tokens": 9, "planner": "x"}])
def test_wish_for_a_plan_that_makes_no_sense_is_refused(page, wanted):
    assert page.post("/api/replan", json=wanted).status_code == 400


def test_a_planner_that_cannot_be_had_is_said_and_the_plan_stands(plan, messages):
    def unavailable(_wanted):
        raise PlannerUnavailable("no key: set ANTHROPIC_API_KEY")

    by_model = plan.model_copy(update={"provenance": Provenance(planner="model", model="claude-haiku-5-5")})
    with PageServer(review_of(by_model, messages, replan=unavailable)) as server:
        headers = {"x-compactor-key": opened(server, token(server)).json()["key"]}
        with http_client.Client(base_url=base(server), headers=headers) as page:
            assert page.get("/api/review").json()["planners"] == ["model", "rules"]
            answer = page.post("/api/replan", json={"target_tokens": 9_000, "planner": "model"})
            assert (answer.status_code, answer.json()) == (409, {"problem": "no key: set ANTHROPIC_API_KEY"})
            shown = page.get("/api/review").json()
    assert shown["saved"]
    assert shown["checked"]["totals"]["target"] == plan.target_tokens


def test_money_stands_beside_tokens_where_the_price_is_known(messages, plan):
    assert review_of(plan, messages).page()["checked"]["totals"]["money"] == {}
    priced = plan.model_copy(update={"target_model": "claude-opus-5-5"})
    money = review_of(priced, messages).page()["checked"]["totals"]["money"]
    assert list(money) == ["rebilled", "saved"]
    assert all(text.startswith("≈ $0.") for text in money.values())


def test_brief_is_checked_statement_by_statement(page, plan):
    brief = "STATE\n- The parser is in logsift/parser.py (t6)\n- It caches in /opt/nowhere/cache.bin (t6)\n"
    answer = revised(page, brief=brief)
    assert [one["state"] for one in answer["statements"]] == ["holds", "struck"]
    assert "/opt/nowhere/cache.bin" in answer["statements"][1]["problems"][0]
    assert "invented_in_brief" in {finding["code"] for finding in answer["findings"] if finding["new"]}


@pytest.mark.parametrize(
    ("revision", "status"),
    [
        ({"turns": {"t999": {"strategy": "keep"}}}, 409),
        ({"turns": {"<script>": {"strategy": "keep"}}}, 409),
        ({"turns": {"t1": {"strategy": "forget"}}}, 400),
        ({"turns": {"t1": {"strategy": "keep", "summary": "x"}}}, 400),
        ({"brief": 7}, 400),
        ({"plan": "../../etc/passwd"}, 400),
    ],
)
def test_revision_that_makes_no_sense_is_refused(page, page_wrote, revision, status):
    for path in ("/api/check", "/api/save", "/api/apply"):
        assert page.post(path, json=revision).status_code == status
    assert (page_wrote.plans, page_wrote.sheets) == ([], [])


def test_what_is_saved_is_what_the_guards_left(page, plan, page_wrote):
    failed = next(own.turn_id for own in plan.turns if own.failed_approach)
    revision = {"turns": {failed: {"strategy": "drop"}}, "brief": "STATE\n- Lives in /opt/nowhere/x.bin (t1)"}
    assert page.post("/api/save", json=revision).json()["message"] == "The plan is in plan.json"
    (saved,) = page_wrote.plans
    assert saved.decisions[failed].strategy == "summarize"
    assert saved.decisions[failed].reason == "set by hand"
    assert saved.brief == ""


def test_unknown_turn_and_unknown_file_are_404(page):
    assert page.get("/api/turns/t999").status_code == 404
    assert page.get("/static/..%2freview.py").status_code == 404
    assert page.get("/static/review.py").status_code == 404


def test_halves_of_characters_come_through():
    messages = [{"role": "user", "content": "\ud83d alone"}, {"role": "assistant", "content": "x " * 900}]
    messages += [{"role": "user", "content": "go on"}]
    review = review_of(plan_compaction(messages, "go on", planner="rules", target_tokens=50), messages)
    assert review.lines("t1")["lines"][0]["text"] == "\ud83d alone"


def test_a_number_that_is_none_comes_through_as_text():
    call = {"type": "tool_use", "id": "a", "name": "plot", "input": {"to": float("nan")}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x " * 900}
    messages = [{"role": "user", "content": "plot it"}, {"role": "assistant", "content": [call]}]
    messages += [{"role": "user", "content": [result]}, {"role": "assistant", "content": "done"}]
    plan = plan_compaction(messages, "plot it", planner="rules", target_ratio=1.0)
    with PageServer(review_of(plan, messages)) as server:
        key = {"x-compactor-key": opened(server, token(server)).json()["key"]}
        shown = http_client.post(f"{base(server)}/api/view", json={}, headers=key).content
    view = json.loads(shown, parse_constant=pytest.fail)["messages"]
    assert view[1]["message"]["content"] == [{**call, "input": {"to": "NaN"}}]


def test_plan_of_other_messages_is_not_opened(plan, messages):
    with pytest.raises(StalePlan):
        review_of(plan, messages[:-4])


def test_page_of_a_session_needs_the_key_and_has_nothing_of_a_review():
    with PageServer({"task": "task", "runs": []}) as server:
        assert http_client.get(f"{base(server)}/api/report").status_code == 401
        headers = {"x-compactor-key": opened(server, token(server)).json()["key"]}
        assert http_client.get(f"{base(server)}/api/report", headers=headers).json() == {"task": "task", "runs": []}
        assert http_client.get(f"{base(server)}/api/review", headers=headers).status_code == 404
        assert "session.js" in http_client.get(base(server)).text


@pytest.fixture
def command(tmp_path, plan, messages, monkeypatch):
    """Runs a command with ``--web`` in a process of its own, with the page's requests."""
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "store.db"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "plan.json").chmod(0o600)
    (tmp_path / "run.json").write_text(json.dumps(messages))
    with ExitStack() as running:

        def run(*arguments):
            line = [sys.executable, "-m", "applier.cli", *arguments, "--web"]
            process = running.enter_context(subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
            running.callback(process.kill)
            address, _, secret = process.stderr.readline().split()[-1].partition("/#")
            client = running.enter_context(http_client.Client(base_url=address))
            client.headers["x-compactor-key"] = client.post("/api/open", json={"token": secret}).json()["key"]
            return process, client

        yield run


@pytest.mark.real
def test_save_and_apply_write_and_finish_ends_the_command(command, plan, messages, tmp_path):
    process, page = command("review", "plan.json", "run.json")
    folder = tmp_path
    dropped = next(own.turn_id for own in plan.turns if own.strategy == "drop")
    revision = {"turns": {dropped: {"strategy": "keep"}}}
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "run.json"]
    assert page.post("/api/save", json=revision).status_code == 200
    saved = CompactionPlan.from_json((folder / "plan.json").read_bytes())
    assert saved.decisions[dropped].strategy == "keep"
    applied = page.post("/api/apply", json=revision).json()
    assert "compactor restore h" in applied["detail"]
    view = json.loads((folder / "run.view.json").read_text())
    assert len(view) < len(messages)
    for name in ("plan.json", "run.view.json", "store.db"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert json.loads((folder / "run.json").read_text()) == messages
    assert page.post("/api/replan", json={"target_tokens": 6_000, "planner": "rules"}).status_code == 200
    assert page.get("/api/review").json()["task"] == plan.task
    page.post("/api/finish", json={})
    assert process.wait(PATIENCE_SECONDS) == 0
    assert "applied: " in process.stderr.read()


@pytest.mark.slow
def test_plan_opens_the_review_and_names_where_the_plan_will_be(command, tmp_path):
    process, page = command("plan", "run.json", "--planner", "rules")
    assert page.get("/api/review").json()["files"] == {"plan": "run.plan.json", "view": "run.view.json"}
    assert page.post("/api/replan", json={"target_tokens": 6_000, "planner": "rules"}).status_code == 200
    page.post("/api/save", json={})
    assert CompactionPlan.from_json((tmp_path / "run.plan.json").read_bytes()).target_tokens == 6_000
    assert stat.S_IMODE((tmp_path / "run.plan.json").stat().st_mode) == 0o600
    page.post("/api/finish", json={})
    assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.slow
def test_watch_opens_the_page_of_the_session_until_ctrl_c(command):
    process, page = command("watch", "run.json", "--window", "8000")
    (run,) = page.get("/api/report").json()["runs"]
    assert len(run["calls"]) > 10
    assert run["compactions"]
    assert list(run["cost"]) == list(run["cost_without"]) == ["0.1", "0.05", "0.025"]
    assert max(call["sent_tokens"] for call in run["calls"]) <= run["limit_tokens"]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) == 0
