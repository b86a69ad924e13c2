"""A list that begins with a view of ours is planned from its originals; one that only looks like it is not."""

import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from applier import apply, open_store, preview
from applier.cli.app import run
from applier.session import Session
from applier.view import originals_behind, remember_view
from planner import plan_compaction
from planner.reading.messages import blocks, read_history
from tests.session.agent import Agent, Clock
from tests.strategies import histories, make_session
from tests.viewed import refusals

ROUNDS = 10


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "default.db"))


def rounds_of(history):
    """Where each of ten rounds ends."""
    return [len(history) * part // ROUNDS for part in range(2, ROUNDS + 1)]


def said(messages):
    return "\n".join(str(block.get("text", "")) for message in messages for block in blocks(message))


@pytest.mark.parametrize("copied", [False, True])
def test_ten_rounds_by_the_snippet_are_each_planned_from_the_whole_history(copied):
    history, messages, at = make_session(24), [], 0
    for end in rounds_of(history):
        messages = [*messages, *history[at:end]]
        at = end
        plan = plan_compaction(messages, "fix it", target_ratio=0.25, planner="rules", now=0)
        whole = plan_compaction(history[:end], "fix it", target_tokens=plan.target_tokens, planner="rules", now=0)
        assert plan.history == whole.history
        assert (plan.turns, plan.extracted_facts) == (whole.turns, whole.extracted_facts)
        messages = apply(plan)
        messages = json.loads(json.dumps(messages)) if copied else messages
    with open_store() as store:
        assert any(list(store.load_history(one.key).messages) == history for one in store.histories())


def test_ten_rounds_by_the_snippet_keep_what_ten_of_one_session_and_of_ten_sessions_keep(tmp_path):
    history, one, views = make_session(30), Agent(Session("fix it", planner="rules", store=tmp_path / "a.db")), []
    snippet, resumed, at = [], [], 0
    for end in rounds_of(history):
        one.messages = history[:end]
        mine = one.session.compact(one.messages).messages
        resumed = [*resumed, *history[at:end]]
        with Session("fix it", planner="rules", store=tmp_path / "b.db") as another:
            resumed = json.loads(json.dumps(another.compact(resumed).messages))
        snippet = apply(plan_compaction([*snippet, *history[at:end]], "fix it", planner="rules"))
        views, at = [mine, resumed, snippet], end
    one.session.close()
    for view in views:
        text = said(view)
        assert "please no Bun-only APIs" in text
        assert "TimeoutError: 3 s" in text
        assert text.count("<compacted history=") == 1


@settings(max_examples=15)
@given(histories(min_turns=6, max_turns=12), st.data())
def test_no_forged_view_restores_anything(tmp_path_factory, history, data):
    with open_store(tmp_path_factory.mktemp("forged") / "s.db") as store:
        plan = plan_compaction(history, "fix it", target_ratio=0.1, planner="rules")
        view = apply(plan, store=store)
        at = next((i for i, message in enumerate(view) if "<compacted history=" in said([message])), None)
        assume(at is not None)
        more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        known = plan_compaction([*deepcopy(view), *more], "fix it", planner="rules", target_ratio=0.1)
        assert known.history.messages > len(history)
        forged = deepcopy(view)
        block = next(block for block in forged[at]["content"] if "<compacted history=" in block.get("text", ""))
        place = data.draw(st.integers(0, len(block["text"]) - 1))
        block["text"] = f"{block['text'][:place]}§{block['text'][place + 1 :]}"
        behind = [history[0], {"role": "assistant", "content": "ok"}] if history[0]["role"] == "user" else []
        for pasted in ([*forged, *more], [*behind, *view, *more]):
            plan = plan_compaction(pasted, "fix it", planner="rules", target_ratio=0.1)
            assert plan.history.messages == len(pasted)


@pytest.mark.parametrize(("maker", "reader", "known"), [("a", "a", True), ("a", "b", False), ("a", None, False)])
def test_a_session_knows_the_views_of_its_own_name_alone(tmp_path, maker, reader, known):
    history, store = make_session(30), open_store(tmp_path / "s.db")
    with store, Session("fix it", planner="rules", store=store, session_id=maker) as session:
        view = session.compact(history).messages
        store.set_state(f"session:{maker}", None)
        with Session("fix it", planner="rules", store=store, session_id=reader) as another:
            another.prepare([*view, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}])
            assert (another.state.history_messages == len(history) + 2) is known


def test_a_session_goes_on_from_a_view_of_the_command_as_it_came(tmp_path):
    history = make_session(30)
    view = apply(plan_compaction(history, "fix it", planner="rules", target_ratio=0.2), store=tmp_path / "s.db")
    more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    with Session("fix it", planner="rules", store=tmp_path / "s.db", clock=Clock(), session_id="wrapped") as session:
        assert session.prepare([*view, *more]) == [*view, *more]
        assert list(session.restore("t2").messages) == history[1:3]
        assert session.compact([*view, *more]).plan.history.messages == len(history) + 2


@settings(max_examples=12)
@given(st.integers(16, 30), st.integers(4, 15), st.sampled_from((0.5, 0.8)))
def test_a_host_that_counts_its_calls_from_the_view_on_gets_a_valid_list(tmp_path_factory, turns, more, ratio):
    with open_store(tmp_path_factory.mktemp("counted") / "s.db") as store:
        view = apply(plan_compaction(make_session(turns), "fix it", planner="rules", target_ratio=0.1), store=store)
        again = [
            *view,
            {"role": "assistant", "content": "ok"},
            *json.loads(json.dumps(make_session(more)).replace("src/", "lib/")),
        ]
        assume(not refusals(again))
        plan = plan_compaction(again, "fix it", planner="rules", target_ratio=ratio, store=store)
        assert "invalid_history" not in {finding.code for finding in plan.findings}
        assert not refusals(apply(plan, store=store))
        with Session("fix it", planner="rules", store=store, session_id="counted") as session:
            assert not refusals(session.compact(again).messages)


def test_agents_that_go_on_from_one_view_at_once_are_all_recognized(tmp_path):
    history = make_session(30)
    view = apply(plan_compaction(history, "fix it", target_ratio=0.3, planner="rules"), store=tmp_path / "s.db")
    ways = [[{"role": "assistant", "content": f"Way {n}."}, {"role": "user", "content": "Go on."}] for n in range(8)]
    wholes = [read_history([*history, *way]) for way in ways]
    with open_store(tmp_path / "s.db") as store, ThreadPoolExecutor(8) as pool:
        keys = [store.save_history(whole) for whole in wholes]

        def remember(at):
            start = len(wholes[at].messages)
            remember_view(store, [*view, *ways[at]], wholes[at], start, key=keys[at], plan_id="")

        [*pool.map(remember, range(8))]
        known = [originals_behind(store, [*view, *way]) for way in ways]
    assert [found.key for found in known] == keys


def test_a_plan_of_a_view_is_applied_to_the_view(tmp_path):
    history, path = make_session(30), tmp_path / "s.db"
    more = make_session(35)[len(history) :]
    with open_store(path) as store:
        view = apply(plan_compaction(history, "fix it", planner="rules", target_ratio=0.3), store=store)
        plan = plan_compaction([*view, *more], "fix it", planner="rules", target_ratio=0.2, store=store)
        saved = type(plan).from_json(plan.to_json())
        assert apply(saved, [*view, *more], store=store) == apply(plan, store=store)
        assert preview(saved, [*view, *more], store=store).messages == preview(plan).messages


def openai(messages):
    made = []
    for message in messages:
        results = [block for block in blocks(message) if block["type"] == "tool_result"]
        calls = [
            {"id": b["id"], "type": "function", "function": {"name": b["name"], "arguments": json.dumps(b["input"])}}
            for b in blocks(message)
            if b["type"] == "tool_use"
        ]
        made += ({"role": "tool", "tool_call_id": b["tool_use_id"], "content": b["content"]} for b in results)
        if not results:
            made.append(
                {"role": message["role"], "content": said([message]), **({"tool_calls": calls} if calls else {})}
            )
    return made


@pytest.mark.parametrize("form", [list, openai])
def test_the_command_plans_a_file_that_it_wrote_from_the_originals(tmp_path, form):
    history = make_session(30)
    (tmp_path / "t.json").write_text(json.dumps(form(history)))
    to = ["--store", str(tmp_path / "s.db")]

    def called(*words):
        assert run([*map(str, words)]) == 0

    task = ["--task", "fix it", "--planner", "rules", "--target-tokens", "1500"]
    called("plan", tmp_path / "t.json", *task, "-o", tmp_path / "p.json")
    called("apply", tmp_path / "p.json", tmp_path / "t.json", "-o", tmp_path / "v.json", *to)
    again = [*task, "-o", tmp_path / "q.json", *to]
    called("plan", tmp_path / "v.json", *again)
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("p.json", "q.json"))
    assert one["history"] == two["history"]
    called("apply", tmp_path / "q.json", tmp_path / "v.json", "-o", tmp_path / "w.json", *to)
    assert json.loads((tmp_path / "w.json").read_text()) == json.loads((tmp_path / "v.json").read_text())


def test_a_view_that_no_store_knows_stands_as_it_is_and_a_finding_says_so(tmp_path, monkeypatch):
    history, at = make_session(100), 0
    messages = []
    for number, end in enumerate(rounds_of(history)):
        monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / f"{number}.db"))
        monkeypatch.setattr("applier.view._USED_PATHS", set())
        messages, at = [*messages, *history[at:end]], end
        plan = plan_compaction(messages, "fix it", target_ratio=0.7, planner="rules")
        unknown = [finding for finding in plan.findings if finding.code == "unknown_view"]
        assert len(unknown) == (number > 0)
        assert all("name the store" in finding.problem for finding in unknown)
        messages = json.loads(json.dumps(apply(plan)))
        assert "please no Bun-only APIs" in said(messages)
        if number and not unknown[0].repair:
            break
        assert "TimeoutError: 3 s" in said(messages)
    assert number > 2
