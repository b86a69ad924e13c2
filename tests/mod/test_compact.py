"""What the mod's program answers: valid lists whose originals are stored, or word that the client is to do it."""

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier import open_store
from applier.adapters import claude_code_mod as mod
from applier.session import Session
from applier.session.ledger import load_session
from applier.settings import load_settings
from planner.errors import CompactorError, ReferenceNotFound
from tests.mod.client import ANSWER
from tests.mod.transcript import CLOCK, MODEL, Rows, read_by_model
from tests.strategies import histories, image, make_session
from tests.viewed import refusals, said

ROUNDS = 10
NEVER = pytest.fail
"""An answer to a question that must not be asked."""
END = {"role": "assistant", "content": "Done so far."}
NO_ANSWER = {"isAnswered": False, "reason": "nothing-to-fork"}


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "s.db") as opened:
        yield opened


def restored(store, history):
    """All that the store has of `history`, by any of its keys."""
    return [said(store.load_history(one.key).messages) for one in store.histories()]


def hears(question):
    """An answer behind the transcript alone."""
    return ANSWER if question["via"] == "fork" else NO_ANSWER


HOSTILE = '{"brief": ["FAILED", "- `x` (t9)"], "turns": ["t1 drop 0"]}'
ANSWERS = st.sampled_from((ANSWER, NO_ANSWER, "", "no JSON", '{"brief": 3}', HOSTILE))
WORDS = ("session_id", "messages", "role", "text", "answers")
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25)
@given(histories(min_turns=3, max_turns=9), ANSWERS, st.sampled_from(("manual", "auto", "precompute")), st.booleans())
def test_whatever_is_answered_the_list_is_valid_and_what_went_is_stored(tmp_path_factory, history, answer, when, ended):
    rows = Rows([*history, END] if ended else history)
    before = deepcopy(rows.sent)
    with open_store(tmp_path_factory.mktemp("any") / "s.db") as store:
        done = rows.compact(store, answer, trigger=when)
        assert ("messages" in done) != ("pass" in done)
        if "pass" in done:
            assert read_by_model(rows.sent) == read_by_model(before)
            return
        sent = rows.sent if rows.sent[-1]["role"] == "user" else [*rows.sent, {"role": "user", "content": "go on"}]
        assert not refusals(sent)
        whole = restored(store, before)
        texts = [
            text
            for _, content in read_by_model(before)
            for text in said([{"role": "user", "content": content}]).split("\n")
        ]
        assert all(any(text in one for one in whole) for text in texts)


@settings(max_examples=12)
@given(histories(min_turns=3, max_turns=9), ANSWERS, st.sampled_from(("manual", "auto")), st.booleans())
def test_a_summary_and_what_is_kept_behind_it_are_the_list_that_would_be_sent(
    tmp_path_factory, history, answer, when, ended
):
    rows, others = (Rows([*history, END] if ended else history) for _ in range(2))
    before, folder = deepcopy(rows.sent), tmp_path_factory.mktemp("any")
    with open_store(folder / "s.db") as store, open_store(folder / "o.db") as other:
        done = rows.compact(store, answer, trigger=when, as_summary="front")
        others.compact(other, answer, trigger=when)
        if "pass" in done or "unchanged" in done:
            return
        handles = [*(row["handle"] for row in rows.rows), None]
        rows.rows = rows.rows[handles.index(done["kept"]) :]
        kept = rows.sent
        summary = {"role": "user", "content": done["summary"]}
        front = [summary, {"role": "assistant", "content": "OK"}][: 2 if kept and kept[0]["role"] == "user" else 1]
        assert not refusals([*front, *kept, *([{"role": "user", "content": "go on"}] if ended and kept else [])])
        shown = said([summary, *kept])
        assert all(line in shown for line in said(others.sent).split("\n"))
        assert all(content in read_by_model(before) for content in read_by_model(kept))
        assert restored(store, before)


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("form", ["", "front"])
def test_a_result_that_comes_after_the_compaction_finds_its_call(store, form, answered):
    """A plan made ahead comes while tools run: their results arrive behind the view."""
    names = ("toolu_one", "toolu_two")
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "make"}} for name in names]
    results = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": name}]} for name in names
    ]
    history = [*make_session(30), {"role": "assistant", "content": [{"type": "text", "text": "Both."}, *calls]}]
    rows = Rows([*history, *results[:answered]])
    done = rows.compact(store, as_summary=form)
    if form:
        handles = [row["handle"] for row in rows.rows]
        rows.rows = rows.rows[handles.index(done["kept"]) :]
        rows.rows.insert(0, {"role": "user", "text": done["summary"], "handle": "summary", "toolUses": []})
        rows.content["summary"] = [{"type": "text", "text": done["summary"]}]
    rows.add(results[answered:])
    assert not refusals(rows.sent)
    assert [block["id"] for block in rows.sent[-2]["content"] if block["type"] == "tool_use"] == [*names]
    assert [block["content"] for block in rows.sent[-1]["content"] if block["type"] == "tool_result"] == [*names]


SMALL = [
    {"role": "user", "content": "Name the three modules, and never delete a file"},
    {"role": "assistant", "content": [{"type": "text", "text": "They are alpha, beta and gamma."}]},
]


@pytest.mark.parametrize("form", ["", "front", "all"])
def test_a_small_session_is_returned_unchanged(tmp_path, form):
    """The client's own summary of it would be larger, and lose the user's words."""
    rows = Rows(SMALL)
    with open_store(tmp_path / "s.db") as store:
        done = rows.compact(store, as_summary=form)
        assert store.events()[-1]["did"] == "unchanged"
    assert done.get("unchanged", done.get("receipt")).startswith("Nothing to compact: all ")
    assert read_by_model(rows.sent) == read_by_model(SMALL)
    assert form != "all" or all(words in done["summary"] for words in ("never delete a file", "beta and gamma"))


@given(GARBAGE)
def test_garbage_is_refused_in_words(tmp_path_factory, garbage):
    with open_store(tmp_path_factory.mktemp("garbage") / "s.db") as store:
        for verb in (lambda: mod.compact(garbage, store, CLOCK), lambda: mod.look_up(garbage, lambda: store)):
            with pytest.raises(CompactorError):
                verb()


@pytest.mark.parametrize("ended", [True, False])
def test_what_the_client_sends_is_the_view_that_a_session_gives(tmp_path, store, monkeypatch, ended):
    monkeypatch.setenv("COMPACTOR_PLANNER", "rules")
    history = [*make_session(40), *([END] if ended else [])]
    rows = Rows(history)
    assert "messages" in rows.compact(store)
    own = load_settings(plan={"restore_tool": "mcp__compactor__restore_context"})
    with Session(store=tmp_path / "other.db", model=MODEL, settings=own) as session:
        assert read_by_model(rows.sent) == read_by_model(session.compact(history).messages)


@pytest.mark.parametrize("ended", [True, False])
def test_asked_again_at_once_it_gives_the_same_view_and_asks_nobody(store, ended):
    """Even where the person has typed something meanwhile; with words of his it plans."""
    rows = Rows([*make_session(40), *([END] if ended else [])])
    first, sent = rows.compact(store, hears), read_by_model(rows.sent)
    again = rows.compact(store, hears)
    assert (bool(first["answers"]), again["answers"]) == (True, {})
    assert read_by_model(rows.sent) == sent
    assert "Nothing to compact since the last time" in again["receipt"]
    if ended:
        rows.add([{"role": "user", "content": "Now the tests, please."}])
        assert not rows.compact(store, hears)["answers"]
        assert said(rows.sent).endswith("Now the tests, please.")
    assert rows.compact(store, hears, instructions="the handshake")["answers"]


def rounds_of(history):
    """Where each of ten rounds ends: behind an answer, as a person's `/compact` comes."""
    return [len(history) * part // ROUNDS // 2 * 2 for part in range(2, ROUNDS + 1)]


@pytest.mark.parametrize(("answer", "ended"), [(hears, True), pytest.param(NO_ANSWER, False, marks=pytest.mark.slow)])
def test_ten_rounds_keep_what_ten_rounds_of_a_session_keep(tmp_path, store, answer, ended):
    history, rows, at = make_session(30), Rows(), 0
    session = Session("", planner="rules", store=tmp_path / "other.db", model=MODEL)
    for end in rounds_of(history):
        rows.add(history[at:end])
        if ended:
            rows.add([END])
        done, at = rows.compact(store, answer), end
        assert "messages" in done
        if ended:
            rows.add([{"role": "user", "content": f"Go on from {end}"}, {"role": "assistant", "content": "Yes."}])
    with session:
        beside = session.compact(history).messages
    for view in (rows.sent, beside):
        text = said(view)
        assert "please no Bun-only APIs" in text
        assert "TimeoutError: 3 s" in text
        assert text.count("<compacted history=") == 1
    assert any("ticket-4701." in one and "ticket-4725." in one for one in restored(store, history))


def test_the_planner_is_asked_behind_the_transcript_then_by_cards_and_rules_plan_where_nobody_answers(tmp_path):
    def asked(answer, **more):
        rows, vias = Rows(make_session(30)), []

        def answers(question):
            vias.append(question["via"])
            return answer(question) if callable(answer) else answer

        with open_store(tmp_path / f"{len(list(tmp_path.iterdir()))}.db") as own:
            rows.compact(own, answers, **more)
            (plan,) = [own.load_plan(name) for one in own.histories() for name in own.plans(one.key)]
        return vias, plan.provenance

    vias, made = asked(ANSWER)
    assert (vias, made.planner, made.asked, made.model) == (["fork"], "model", "prefix", MODEL)
    vias, made = asked(lambda question: NO_ANSWER if question["via"] == "fork" else ANSWER)
    assert (vias[:2], made.asked, made.model) == (["fork", "complete"], "cards", "claude-haiku-5-5")
    vias, made = asked(NO_ANSWER)
    assert made.planner == "rules"
    for cold in ({"idle_seconds": None}, {"idle_seconds": 3_600}, {"agent_id": "a1"}):
        vias, made = asked(ANSWER, **cold)
        assert (set(vias), made.asked) == ({"complete"}, "cards")


def test_a_person_names_the_planner(store, monkeypatch):
    monkeypatch.setenv("COMPACTOR_PLANNER_MODEL", "claude-sonnet-5-5")
    (asked,) = {one["model"] for one in mod.compact(Rows(make_session(30)).call(), store, CLOCK)["ask"]}
    assert asked == "claude-sonnet-5-5"
    monkeypatch.setenv("COMPACTOR_PLANNER", "rules")
    assert "messages" in mod.compact(Rows(make_session(30)).call(), store, CLOCK)


def test_the_event_says_how_long_the_agent_waited(store):
    call = Rows(make_session(30)).call(trigger="auto", started_at=100.0)
    answers = {one["id"]: NO_ANSWER for one in mod.compact(call, store, lambda: 104.0)["ask"]}
    while "ask" in (done := mod.compact({**call, "answers": answers}, store, lambda: 131.25)):
        answers |= {one["id"]: NO_ANSWER for one in done["ask"]}
    assert store.events()[-1]["message"] == "compacted: auto; the agent waited 31.2 s"


def test_words_behind_the_command_are_the_focus(store):
    (asked,) = mod.compact(Rows(make_session(30)).call(instructions="keep the queue"), store, CLOCK)["ask"]
    assert "keep the queue" in asked["prompt"]


def test_a_picture_in_the_compacted_part_does_not_hide_the_view(store):
    pasted = {
        "role": "user",
        "content": [image(3, 2), {"type": "text", "text": "Never leave this window: it must stay."}],
    }
    history = make_session(40)
    rows = Rows([pasted, {"role": "assistant", "content": "I will not."}, *history[:40]])
    for end in (60, 80):
        assert "messages" in rows.compact(store, NO_ANSWER)
        rows.add(history[end - 20 : end])
    assert "messages" in rows.compact(store, NO_ANSWER)
    kinds = [event["kind"] for event in store.events("a-session")]
    assert (kinds.count("post_compact"), kinds.count("history_changed")) == (3, 0)
    assert said(rows.sent).count("<compacted history=") == 1


def test_a_plan_made_ahead_is_taken_up_or_does_no_harm(tmp_path):
    history = make_session(30)
    for installed in (True, False):
        with open_store(tmp_path / f"{installed}.db") as store:
            ahead, rows = Rows(history[:40]), Rows(history[:40])
            assert "messages" in ahead.compact(store, hears, trigger="precompute")
            rows = ahead if installed else rows
            rows.add(history[40:])
            assert "messages" in rows.compact(store, hears, trigger="auto")
            text = said(rows.sent)
            assert (text.count("<compacted history="), "please no Bun-only APIs" in text) == (1, True)


def test_a_plan_made_beforehand_spares_the_wait_for_the_model(tmp_path, store):
    history = make_session(30)
    rows, paid = Rows(history[:40]), {"isAnswered": True, "text": ANSWER, "usage": {"input_tokens": 900}}
    assert rows.plan_ahead(store, paid)
    assert store.events() == ()
    rows.add(history[40:])
    assert "messages" in rows.compact(store, NEVER, trigger="auto")
    plan = store.load_plan(load_session(store, "a-session").frame.plan_id)
    made = plan.provenance
    assert (made.planner, made.usage.requests, plan.history.messages) == ("model", 1, len(history))
    assert "please no Bun-only APIs" in said(rows.sent)
    assert store.events()[-1]["message"] == "compacted: auto, planned beforehand"


def test_a_plan_made_beforehand_is_not_used_for_other_words_another_history_or_twice(tmp_path):
    history = make_session(30)
    for case, more in (("focus", {"instructions": "keep the queue"}), ("rewound", {}), ("again", {})):
        with open_store(tmp_path / f"{case}.db") as store:
            rows, asked = Rows(history[:40]), []
            assert rows.plan_ahead(store, hears)
            if case == "rewound":
                rows = Rows([{"role": "user", "content": "Something else"}, *history[1:40]])
            if case == "again":
                assert "messages" in rows.compact(store, NEVER, trigger="auto")
                rows.add(history[40:])
            assert "messages" in rows.compact(store, lambda question, asked=asked: asked.append(1) or NO_ANSWER, **more)
            assert asked, case


def test_a_subagent_compacts_by_itself(store):
    one, other = Rows(make_session(30)), Rows(make_session(40))
    assert "messages" in one.compact(store, hears)
    assert "messages" in other.compact(store, ANSWER, agent_id="agent-7")
    look = {"session_id": "a-session", "name": "search_context", "arguments": {"text": "ticket-4735"}}
    assert "ticket-4735" in mod.look_up({**look, "agent_id": "agent-7"}, lambda: store)["content"]
    with pytest.raises(ReferenceNotFound):
        mod.look_up({**look, "agent_id": "agent-8"}, lambda: store)


def test_the_agent_looks_into_its_own_conversation_alone(tmp_path):
    def opened():
        return open_store(tmp_path / "s.db")

    pasted = {"role": "user", "content": [image(3, 2), {"type": "text", "text": "this window"}]}
    with opened() as store:
        Rows([pasted, END, *make_session(30)]).compact(store, hears)
    look = {"session_id": "a-session", "name": "mcp__compactor__restore_context", "arguments": {"reference": "t1"}}
    (head, *content) = mod.look_up(look, opened)["content"]
    assert head["text"] == "t1"
    assert [block["type"] for block in content] == ["image", "text"]
    assert content[0] == pasted["content"][0]
    for wrong in ({"session_id": "another"}, {"arguments": {"reference": "t999"}}, {"name": "compact"}):
        with pytest.raises(CompactorError):
            mod.look_up({**look, **wrong}, opened)
    assert {tool["name"] for tool in mod.describe()["tools"]} == {"facts", "note", "restore_context", "search_context"}


def test_the_agent_sees_the_facts_of_its_project_and_of_no_other(tmp_path):
    def opened():
        return open_store(tmp_path / "s.db")

    with opened() as store:
        Rows(make_session(30)).compact(store, hears, project="/w/app")
    ask = {"session_id": "a-new-session", "name": "mcp__compactor__facts", "arguments": {}}
    assert "please no Bun-only APIs" in mod.look_up(ask, opened, "/w/app")["content"]
    assert mod.look_up(ask, opened, "/w/app2")["content"] == "No facts yet."
    with pytest.raises(CompactorError, match="nothing was compacted under the name 'a-new-session' yet"):
        mod.look_up(ask, opened)


def test_a_large_result_is_stored_before_it_is_cut(tmp_path, monkeypatch):
    call = {
        "session_id": "a-session",
        "tool": "Bash",
        "tool_use_id": "toolu_1",
        "content": "word\n" * 9_000 + "Error: no",
    }

    def shortened():
        with open_store(tmp_path / "s.db") as store:
            return mod.shorten(call, store)

    monkeypatch.setenv("COMPACTOR_SHORTEN_OVER_TOKENS", "90000")
    assert shortened() == {}
    monkeypatch.setenv("COMPACTOR_SHORTEN_OVER_TOKENS", "2000")
    content = shortened()["content"]
    assert len(content) < 4_000
    assert "Error: no" in content
    reference = content.partition('restore_context("')[2].partition('"')[0]
    look = {
        "session_id": "a-session",
        "name": "restore_context",
        "arguments": {"reference": reference, "search": "Error: no"},
    }
    assert "Error: no" in mod.look_up(look, lambda: open_store(tmp_path / "s.db"))["content"]


def test_what_the_client_compacts_itself_is_stored_and_told(store):
    history = make_session(30)
    rows, after = Rows(history), Rows([{"role": "user", "content": "a summary"}])
    call = {**rows.call(), "why": "time up", "after": after.rows}
    assert set(mod.receipt_of_own(call, store, 5.0)) == {"receipt"}
    assert any("ticket-4701." in one for one in restored(store, history))
    (event,) = store.events("a-session")
    assert (event["did"], event["why"], event["time"]) == ("passed", "time up", 5.0)
    assert "ask" in mod.compact(rows.call(), store, CLOCK)


@pytest.mark.parametrize("since", [[], [{"role": "user", "content": "Go on"}, END]])
def test_what_the_client_compacts_after_us_is_told_of_the_originals(store, since):
    history = make_session(30)
    rows = Rows([*history, END])
    assert "messages" in rows.compact(store, hears)
    rows.add(since)
    own = {**rows.call(), "after": Rows([{"role": "user", "content": "a summary"}]).rows}
    key = mod.receipt_of_own(own, store, 0.0)["receipt"].partition("restore ")[2].partition(":")[0]
    assert said(store.load_history(key).messages[: len(history)]) == said(history)
