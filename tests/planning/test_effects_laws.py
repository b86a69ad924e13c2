"""Actions: no view holds a failed attempt without its later success, and each receipt is listed while it has room."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier import preview
from applier.plan_review import reviewed
from planner import plan_compaction
from planner.analysis import analyze
from planner.brief import brief_text, check_brief, read_brief
from planner.evidence.effects import effects, open_calls, retried
from planner.plan import CompactionPlan, Proposal, Provenance, TurnProposal
from planner.rules import effects_records
from planner.settings import ToolUse
from tests.planning.planners import STRATEGIES
from tests.viewed import said

TOOLS = ("create_refund", "hotel_buchen", "发送邮件", "xq7")
"""Names in three languages, and one that says nothing."""


RECORD = {f"field {number}": f"value {number} of the order" for number in range(30)}
"""Record that a look-up shows, and that some services return whole from each action."""


def act(number, tool, order, *, failed, record=None):
    receipt = {"status": 409, "error": f"clash {number}"}
    if not failed:
        receipt = {**(record or {}), "receipt": f"RC-{4000 + number}"}
    use = {"type": "tool_use", "id": f"a{number}", "name": tool, "input": {"order": order, "try": number}}
    answer = {"type": "tool_result", "tool_use_id": f"a{number}", "content": json.dumps(receipt)}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def look(number):
    rows = "\n".join(f"row {number}.{row} value {row * 37 % 101} of the list" for row in range(40))
    use = {"type": "tool_use", "id": f"l{number}", "name": "list_rows", "input": {"page": number}}
    answer = {"type": "tool_result", "tool_use_id": f"l{number}", "content": rows}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


class DropsAll:
    """A careless planner."""

    def propose(self, request):
        turns = {turn_id: TurnProposal(turn_id, 0.0, "old", "drop") for turn_id in request.evidence.turns}
        return Proposal(turns, Provenance(planner="careless"), brief="STATE\n- all is well (t2)")


ACTIONS = st.lists(st.tuples(st.sampled_from(TOOLS), st.integers(1, 3), st.booleans()), min_size=1, max_size=8)


def look_at_record():
    use = {"type": "tool_use", "id": "r", "name": "get_order", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "r", "content": json.dumps(RECORD)}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def history_of(actions, record=None):
    messages = [{"role": "user", "content": "Look after my orders."}, *look_at_record()]
    for number, (tool, order, failed) in enumerate(actions):
        messages += [*act(number, tool, order, failed=failed, record=record), *look(number)]
    return [*messages, {"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]


RECORDS = st.sampled_from([None, RECORD])


@given(ACTIONS, RECORDS, st.sampled_from((0.02, 0.1, 0.3)), st.sampled_from(("rules", DropsAll())))
def test_no_view_holds_a_failed_action_without_its_later_success(actions, record, ratio, planner):
    messages = history_of(actions, record)
    view = json.dumps(preview(plan_compaction(messages, "", planner=planner, target_ratio=ratio, now=0.0)).messages)
    for number, (tool, order, failed) in enumerate(actions):
        later = [at for at in range(number + 1, len(actions)) if actions[at] == (tool, order, False)]
        if failed and later and f"clash {number}" in view:
            assert any(f"RC-{4000 + at}" in view for at in later)


@st.composite
def edited_plans(draw):
    """Return actions, their history, and a plan of it that somebody edited and that was loaded from disk."""
    actions = draw(ACTIONS)
    messages = history_of(actions, draw(RECORDS))
    ratio = draw(st.sampled_from((0.02, 0.1, 0.3)))
    plan = plan_compaction(messages, "", planner="rules", target_ratio=ratio, now=0.0)
    edits = draw(st.lists(st.sampled_from(STRATEGIES), min_size=len(plan.turns), max_size=len(plan.turns)))
    turns = [
        turn.model_copy(update={"strategy": edit, "excerpts": ()}) for turn, edit in zip(plan.turns, edits, strict=True)
    ]
    brief = draw(st.sampled_from((plan.brief, "", "STATE\n- all is well (t2)", "EFFECTS\n- nothing so far (t1)")))
    edited = plan.model_copy(update={"turns": tuple(turns), "brief": brief, "findings": ()})
    return actions, messages, CompactionPlan.from_json(edited.to_json())


@given(edited_plans())
def test_no_edit_of_a_plan_loses_an_action(drawn):
    actions, messages, plan = drawn
    shown = preview(plan, messages)
    view = json.dumps(shown.messages, ensure_ascii=False)
    cut = " ".join(finding.problem for finding in shown.plan.findings if finding.code == "effects_cut")
    for number, (tool, order, failed) in enumerate(actions):
        later = [at for at in range(number + 1, len(actions)) if actions[at] == (tool, order, False)]
        if failed and later and f"clash {number}" in view:
            assert any(f"RC-{4000 + at}" in view or f"t{3 + 2 * at} > {tool}" in view for at in later)
        assert failed or f"RC-{4000 + number}" in view or (re.search(rf"\bt{3 + 2 * number}\b", cut) and tool in view)


def test_a_brief_of_the_users_own_lists_the_effects_again():
    messages = history_of([("hotel_buchen", 1, True), ("hotel_buchen", 1, False)])
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0)
    review = reviewed(plan, messages, brief="STATE\n- all is well (t2)")
    assert "RC-4001" in review.plan.brief
    assert "effects_missing" in {finding.code for finding in review.plan.findings}


@given(ACTIONS, RECORDS)
def test_each_receipt_is_listed_while_it_has_room(actions, record):
    plan = plan_compaction(history_of(actions, record), "", planner="rules", target_ratio=0.5, now=0.0)
    page = plan.brief.split("EFFECTS", 1)[-1]
    for number, (_, _, failed) in enumerate(actions):
        assert (f"RC-{4000 + number}" in page) == (not failed)


@given(st.lists(st.sampled_from(("Ada", "Bo")), min_size=1, max_size=24), st.booleans())
def test_equal_actions_are_one_statement_with_their_number_and_turns(payees, declared):
    messages = [{"role": "user", "content": "Pay for the lessons."}]
    for number, payee in enumerate(payees):
        messages += called(number, "transfer_money", {"to": payee, "amount": 50}, '{"ok": true}')
    uses = {"transfer_money": ToolUse(effect="acts")} if declared else {}
    evidence = analyze([*messages, {"role": "assistant", "content": "Paid."}], uses=uses).evidence
    record = effects_records(evidence)[0]
    for payee in set(payees):
        (statement,) = (statement for statement in record if payee in statement.text)
        turn_ids = [f"t{number}" for number, paid in enumerate(payees, 2) if paid == payee]
        times = f"{len(turn_ids)}× " if len(turn_ids) <= 10 else "over 10× "
        assert statement.text.startswith("transfer_money" if len(turn_ids) == 1 else times)
        assert statement.turns == tuple(turn_ids[-3:])
    assert check_brief(brief_text(record), evidence) == (brief_text(record), ())


@given(st.integers(1, 6), st.sampled_from((0.05, 0.25, 0.9)))
def test_the_page_lists_no_effect_of_a_call_that_is_not_answered_yet(count, ratio):
    messages = [{"role": "user", "content": "Book the rooms."}]
    for number in range(count):
        messages += [*called(number, "book_room", {"room": f"R-{number}"}, f"RC-{4000 + number}"), *look(number)]
    messages += called(99, "book_room", {"room": "R-99"}, "RC-4099")
    plan = plan_compaction(messages, "", planner="rules", target_ratio=ratio, now=0.0)
    assert "RC-4099" not in plan.brief
    assert "RC-4099" in said(preview(plan).messages)


ACTS_WITHOUT_NEWS = [
    ("close_garage", {}),
    ("unlock_door", {"door": "front"}),
    ("open_ticket", {"title": "Printer broken"}),
    ("send_notification", {"to": "Ada"}),
    ("reply_to_review", {"text": "thank you"}),
    ("charge_card", {}),
    ("wishlist_add", {"item": "kettle"}),
]
"""Actions without a name or figure; some tools' names contain a verb of reading within another word."""


@given(st.lists(st.sampled_from(ACTS_WITHOUT_NEWS), min_size=1, max_size=8), st.sampled_from(("ok", '{"ok": true}')))
def test_each_call_that_may_act_and_succeeded_is_an_effect(acts, receipt):
    messages = [{"role": "user", "content": "Go on."}]
    for number, (name, arguments) in enumerate(acts):
        messages += called(number, name, arguments, receipt)
    found = effects(analyze([*messages, {"role": "assistant", "content": "Done."}]).evidence)
    turn_ids = sorted((turn_id for effect in found for turn_id in effect.turn_ids), key=lambda name: int(name[1:]))
    assert turn_ids == [f"t{number}" for number in range(2, len(acts) + 2)]


READINGS = {
    "a file": ("open", {"path": "notes.txt"}),
    "joined": ("getOrder", {"id": 7}),
    "server": ("mcp__x__list", {}),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_verb_of_reading_as_a_word_of_the_name_shows_that_a_tool_reads(name):
    messages = [{"role": "user", "content": "Go on."}, *called(1, *READINGS[name], "nothing new")]
    assert effects(analyze([*messages, {"role": "assistant", "content": "So."}]).evidence) == []


TRIES = st.lists(st.tuples(st.sampled_from(("get_camera", "close_window")), st.booleans()), min_size=1, max_size=12)


@given(TRIES)
def test_a_failure_shows_where_the_same_call_worked_later(tries):
    messages = [{"role": "user", "content": "Look after the house."}, *look(99)]
    for number, (name, failed) in enumerate(tries):
        result = json.dumps({"error": f"clash {number}"} if failed else {"ok": True})
        messages += [*called(number, name, {"room": "attic"}, result), *look(number)]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.05, now=0.0)
    lines = said(preview(plan).messages).splitlines()
    for number, (name, failed) in enumerate(tries):
        later = (at for at in range(number + 1, len(tries)) if tries[at] == (name, False))
        worked = [f"t{3 + 2 * at}" for at in later][:1]
        shown = [re.findall(r"\(worked at (t\d+)\)", line) for line in lines if f'clash {number}"' in line]
        assert shown == [worked] * failed


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
SCALARS = st.one_of(
    st.integers(-(10**6), 10**6), st.booleans(), st.none(), WORDS, st.sampled_from(["a b", "HAT-17", "9:30"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "seat_no", "flights"]), inner),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(["order_id", "flights", "note"]), VALUES, min_size=1)


@given(FIELDS, FIELDS)
def test_the_guards_leave_the_record_of_effects_as_it_is(arguments, receipt):
    use = {"type": "tool_use", "id": "a", "name": "create_order", "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": json.dumps(receipt, ensure_ascii=False)}
    messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": [use]}]
    messages += [{"role": "user", "content": [answer]}, {"role": "assistant", "content": "Done."}]
    evidence = analyze(messages).evidence
    page = brief_text(effects_records(evidence)[0])
    assert [finding.code for finding in check_brief(page, evidence)[1] if finding.code == "invented_in_brief"] == []


@given(FIELDS, st.dictionaries(st.sampled_from(["status", "hint", "note"]), st.sampled_from(["", "a:", "b c"])))
def test_each_effect_is_a_statement_that_the_page_keeps(arguments, receipt):
    messages = [{"role": "user", "content": "Go on."}]
    messages += called(1, "create_order", arguments, json.dumps({"id": "R-9", **receipt}))
    uses = {"create_order": ToolUse(effect="acts")}
    evidence = analyze([*messages, {"role": "assistant", "content": "Done."}], uses=uses).evidence
    for record in effects_records(evidence):
        assert len(record) == len(read_brief(brief_text(record))) == 1


def test_empty_fields_are_in_no_effect():
    messages = [{"role": "user", "content": "Pay it back."}]
    for number, result in enumerate(({"status": "ok", "error": ""}, {"ok": True, "note": ""}, {"error": ""})):
        messages += called(number, "refund", {"order": f"B-{number}", "note": ""}, json.dumps(result))
    found = effects(analyze([*messages, {"role": "assistant", "content": "Done."}]).evidence)
    assert [effect.text() for effect in found] == ["refund B-0 → ok", "refund B-1 → ok: true", "refund B-2"]


NEWS = {f"part {number}": f"value {number} of a customer" for number in range(30)}


@pytest.mark.parametrize("record", [NEWS, RECORD], ids=["mostly news", "the same again"])
def test_an_answer_of_an_unknown_tool_is_no_effect(record):
    use = {"type": "tool_use", "id": "c", "name": "crm_customer", "input": {"key": 7}}
    answer = {"type": "tool_result", "tool_use_id": "c", "content": json.dumps(record)}
    messages = [{"role": "user", "content": "Go on."}, *look_at_record(), {"role": "assistant", "content": [use]}]
    messages += [{"role": "user", "content": [answer]}, {"role": "assistant", "content": "Done."}]
    assert effects(analyze(messages).evidence) == []


READS = [*look(0), *act(1, "crm_customer", 7, failed=False)]


@pytest.mark.parametrize(("use", "listed"), [(None, 1), (ToolUse(effect="reads"), 0), (ToolUse(effect="acts"), 1)])
def test_a_declaration_decides_what_a_tool_does(use, listed):
    uses = {"crm_customer": use} if use else {}
    messages = [{"role": "user", "content": "Go on."}, *READS, {"role": "assistant", "content": "Done."}]
    assert len(effects(analyze(messages, uses=uses).evidence)) == listed


def test_hints_of_a_tool_definition_declare_it_and_the_plan_carries_the_declaration():
    tools = [{"name": "crm_customer", "input_schema": {}, "annotations": {"readOnlyHint": True}}]
    messages = history_of([("crm_customer", 1, False)])
    plan = plan_compaction(messages, "", planner="rules", tools=tools, target_ratio=0.3, now=0.0)
    assert plan.tool_uses == {"crm_customer": ToolUse(effect="reads")}
    assert "EFFECTS" not in plan.brief
    assert preview(type(plan).from_json(plan.to_json()), messages).messages == preview(plan).messages


def test_a_tool_is_declared_by_the_form_of_the_setting_too():
    def plan(use):
        return plan_compaction(READS, "", planner="rules", tool_uses={"crm_customer": use}, target_ratio=0.3, now=0.0)

    assert plan({"effect": "reads"}) == plan(ToolUse(effect="reads"))


def told(number, tool, arguments, answer, words=""):
    """A call with its answer, behind some words of the agent."""
    use = {"type": "tool_use", "id": f"s{number}", "name": tool, "input": arguments}
    said_first = [{"type": "text", "text": words}] if words else []
    result = {"type": "tool_result", "tool_use_id": f"s{number}", "content": answer}
    return [{"role": "assistant", "content": [*said_first, use]}, {"role": "user", "content": [result]}]


def test_each_receipt_has_its_state_and_a_cut_action_its_number():
    subject = "Ihre Erstattung, wie heute am Telefon besprochen, zu Ihrer Bestellung B-204"
    messages = [{"role": "user", "content": "Pay and write."}]
    for at in range(2):
        paid = json.dumps({"refund": f"R-881{at}", "status": "booked"})
        messages += told(at, "create_refund", {"order": f"B-204{at}"}, paid)
        messages += told(9 - at, "send_mail", {"subject": f"{subject}{at}"}, json.dumps({"id": f"m-550{at}"}))
    found = effects(analyze([*messages, {"role": "assistant", "content": "Done."}]).evidence)
    assert [effect.receipt for effect in found] == ["R-8810, booked", "m-5500", "R-8811, booked", "m-5501"]
    assert all(f"B-204{at}" in found[2 * at + 1].text(0.25) for at in range(2))


def test_the_mark_of_failure_is_at_the_call_and_not_at_the_words_before_it():
    said_first = "The refund R-1 over 80.00 is booked."
    messages = [
        {"role": "user", "content": "Pay and write."},
        *told(1, "send_mail", {"to": "a"}, "Error: 550", said_first),
    ]
    messages += [*look(1), *look(2), {"role": "assistant", "content": "Done."}]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.5, now=0.0)).messages)
    assert f"t2 {said_first}\n✗ > send_mail" in text


def test_words_need_no_key_in_a_receipt_and_figures_keep_theirs_once():
    booked = {"booking": "DB-7KX2", "seats": [45, 46], "date": "2026-12-01", "refundable": True}
    messages = [{"role": "user", "content": "Go on."}, *act(1, "book_train", 7, failed=False, record=booked)]
    (effect,) = effects(analyze([*messages, {"role": "assistant", "content": "Done."}]).evidence)
    assert effect.receipt == "DB-7KX2, seats: 45, 46, date: 2026-12-01, refundable: true, RC-4001"


def test_fields_that_must_stay_come_first_in_a_receipt():
    use = {"type": "tool_use", "id": "a", "name": "bestellen", "input": {"artikel": "KET-17"}}
    result = {"note": "words " * 60, "lieferung": "2026-12-03"}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": json.dumps(result)}
    messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": [use]}]
    messages += [{"role": "user", "content": [answer]}, {"role": "assistant", "content": "Done."}]
    declared = {"bestellen": ToolUse(effect="acts", keep_fields=("lieferung",))}
    (effect,) = effects(analyze(messages, uses=declared).evidence)
    assert effect.text().startswith("bestellen KET-17 → lieferung: 2026-12-03")


def test_what_runs_and_what_was_asked_is_pending():
    running = "Command running in background with ID: b7"
    use = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "make serve"}}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": running}
    messages = [{"role": "user", "content": "Serve it."}, {"role": "assistant", "content": [use]}]
    messages += [{"role": "user", "content": [answer]}]
    messages += [message for number in range(12) for message in look(number)]
    messages += [{"role": "assistant", "content": "Soll ich d-501 senden?"}]
    page = plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0).brief
    pending = page.split("PENDING\n", 1)[1]
    assert "make serve: running" in pending


@pytest.mark.parametrize("target", [700, 1_500])
def test_the_line_in_place_of_effects_without_room_names_their_actions(target):
    messages = [{"role": "user", "content": "Look after my orders."}]
    for number in range(20):
        messages += act(number, "bestellen" if number % 2 else "send_mail", f"order {number}", failed=False)
        messages += look(number)
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=target, now=0.0).brief
    (rest,) = (line for line in page.splitlines() if "more effects" in line)
    counted = {action: int(count) for count, action in re.findall(r"(\d+)× (\w+)", rest)}
    assert counted.keys() == {"bestellen", "send_mail"}
    assert sum(counted.values()) + page.count("→ RC-") == 20


@given(st.integers(20, 60), st.integers(0, 4), st.integers(700, 1_000))
def test_many_calls_of_one_tool_leave_room_for_the_only_call_of_another(polls, at, target):
    messages = [{"role": "user", "content": "Pay it, then wait for the job."}]
    for number in range(polls):
        if number == at:
            messages += called(900, "pay_invoice", {"invoice": "INV-77", "amount": "81.40"}, '{"receipt": "PR-5519"}')
        result = json.dumps({"job": "J-4", "seen": number, "progress": f"{number} of {polls} rows"})
        messages += called(number, "poll_job", {"job": "J-4", "attempt": number}, result)
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=target, now=0.0).brief
    assert "PR-5519" in page


@pytest.mark.parametrize("target", [600, 1_000, 1_500])
def test_addresses_of_pages_take_no_room_from_effects(target):
    messages = [{"role": "user", "content": "Order a sample from each of the fifteen."}]
    for number in range(15):
        address = f"https://supplier{number}.example.com/catalogue/2026/samples-and-swatches?page={number}&sort=asc"
        messages += called(number, "web_fetch", {"url": address}, "a long text about cloth " * 40 + f"item {number}")
        messages += act(number, "order_sample", f"SW-{number}", failed=False)
        messages += [{"role": "assistant", "content": f"Ordered from {address}."}, {"role": "user", "content": "next"}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=target, now=0.0).brief
    ordered = re.findall(r"SW-\d+", page)
    assert len(ordered) >= 4
    assert len(ordered) == 15 or "https:" not in page


@given(st.lists(st.sampled_from(["size", "colour", "price", "note", "total"]), min_size=3, max_size=9, unique=True))
def test_a_shortened_effect_shows_no_field_without_its_value(keys):
    arguments = {key: 1000 + at if key in ("size", "price", "total") else "blue " * 12 for at, key in enumerate(keys)}
    messages = [{"role": "user", "content": "Order them."}]
    for number in range(12):
        messages += called(number, "place_order", {"item": f"KET-{number}", **arguments}, f"receipt {number}")
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=700, now=0.0).brief
    shown = re.findall(r"(\w+): ?(\S*)", page)
    assert all(re.fullmatch(rf"{arguments[key]}[,.…]?", value) for key, value in shown if key in arguments)


@pytest.mark.parametrize("depth", [10, 200, 400, 900])
@pytest.mark.parametrize("wrap", [lambda value: {"of": value}, lambda value: [value]])
def test_deeply_nested_arguments_and_results_break_nothing(depth, wrap):
    value = "ORD-1"
    for _ in range(depth):
        value = wrap(value)
    messages = [{"role": "user", "content": "Order it."}]
    messages += called(1, "place_order", {"order": value}, '{"receipt": "RC-1"}')
    messages += [*look(1), {"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0)
    assert "place_order" in plan.brief


def test_the_argument_that_tells_actions_apart_comes_first():
    messages = [{"role": "user", "content": "Fill in the budget."}]
    for number in range(30):
        arguments = {"sheet": "Budget-2026", "note": "as in the plan of last year", "cell": f"B{number}"}
        messages += called(number, "set_cell", arguments, "ok")
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=700, now=0.0).brief
    assert "set_cell B29" in page
    assert re.search(r"more effects: \d+× set_cell \(B\d+, B\d+", page)


def test_an_effect_counts_the_calls_of_answered_turns_alone():
    messages = [{"role": "user", "content": "Pay it three times."}, *look(1)]
    for number in range(3):
        messages += called(number, "pay", {"to": "Bolt"}, "paid")
    page = plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0).brief
    assert "2× pay Bolt" in page


def test_the_offer_stays_that_the_latest_reply_accepts():
    messages = [{"role": "user", "content": "Help me with my transfers."}]
    for number in range(6):
        messages += [
            *look(number),
            {"role": "assistant", "content": f"Invoice {number} is correct. " + "Really. " * 60},
        ]
        messages.append({"role": "user", "content": f"Look at invoice {number + 1}, too, and at its clause {number}."})
    offer = "I would transfer 512.40 EUR to Nordlicht GmbH, reference R-2201. Shall I send it?"
    messages += [{"role": "assistant", "content": offer}, {"role": "user", "content": "yes"}]
    for planner in ("rules", DropsAll()):
        plan = plan_compaction(messages, "", planner=planner, target_ratio=0.04, now=0.0)
        assert offer in said(preview(plan).messages)


@pytest.mark.parametrize("tool", ["find_and_book", "viewAndAccept", "check_and_pay"])
def test_a_tool_with_two_verbs_may_act(tool):
    messages = [{"role": "user", "content": "Book it."}]
    messages += called(1, tool, {"what": "van"}, '{"booking": "VAN-8812"}')
    messages += [*look(1), {"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    assert "VAN-8812" in plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0).brief


@given(st.integers(10, 30))
def test_effects_without_room_are_counted_with_their_newest_objects(count):
    note = "with all the words that a letter has, from the greeting to the very last line below the name " * 3
    messages = [{"role": "user", "content": "Write to all of them."}]
    for number in range(count):
        arguments = {"subject": "Your place", "text": note, "to": f"guest{number}@example.org"}
        messages += called(number, "send_mail", arguments, f"sent {number}")
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=800, now=0.0).brief
    (rest,) = (line for line in page.splitlines() if "more effects" in line)
    named = [int(number) for number in re.findall(r"guest(\d+)@example\.org", page)]
    assert named == list(range(count - 1, count - 1 - len(named), -1))
    assert len(re.findall("guest", rest)) >= 2


@given(st.integers(1, 30), st.integers(800, 4_000))
def test_actions_are_shortened_before_the_oldest_are_left_out(count, target):
    note = "bitte um Rückruf am Vormittag, sonst per Brief an die neue Anschrift in der Gartenstraße " * 2
    messages = [{"role": "user", "content": "Look after my orders."}]
    for number in range(count):
        use = {"type": "tool_use", "id": f"a{number}", "name": "bestellen", "input": {"nr": number, "notiz": note}}
        answer = {"type": "tool_result", "tool_use_id": f"a{number}", "content": json.dumps({"beleg": f"RC-{number}"})}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}, *look(number)]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    page = plan_compaction(messages, "", planner="rules", target_tokens=target, now=0.0).brief
    listed = [line for line in page.splitlines() if "- bestellen" in line]
    if len(listed) < count:
        assert all(len(line) < len(note) / 2 for line in listed)


@pytest.mark.parametrize(
    ("result", "listed"),
    [
        ('{"beleg": "RC-7", "posten": [{"nr": 1}]}', 1),
        ("Bestellt: RC-7", 1),
        ('{"treffer": [{"nr": "RC-7"}]}', 0),
        ('["RC-7", "RC-8"]', 0),
        ("\n".join(f"RC-{number} | offen" for number in range(9)), 0),
    ],
)
def test_lists_and_tables_of_an_unknown_tool_are_answers(result, listed):
    use = {"type": "tool_use", "id": "a", "name": "xq7", "input": {"order": 1}}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": result}
    messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": [use]}]
    messages += [{"role": "user", "content": [answer]}, {"role": "assistant", "content": "Done."}]
    assert len(effects(analyze(messages).evidence)) == listed


def test_of_equal_successes_the_next_one_ends_a_failed_action():
    actions = [("xq7", 1, True), ("xq7", 1, False), ("xq7", 1, False)]
    assert retried(analyze(history_of(actions)).evidence) == {"t3": ("t5", 0)}


def test_an_action_that_restores_a_record_is_listed():
    before, after = ({**RECORD, "id": "u-501", "zip": number} for number in ("80280", "10001"))
    messages = [
        {"role": "user", "content": "Go on."},
        *called(1, "get_user", {"id": "u-501"}, json.dumps(before)),
        *called(2, "xq7", {"id": "u-501", "zip": "10001"}, json.dumps(after)),
        *called(3, "xq7", {"id": "u-501", "zip": "80280"}, json.dumps(before)),
        *called(4, "kunde_laden", {"id": "u-501"}, json.dumps(before)),
    ]
    assert [effect.turn_ids for effect in effects(analyze(messages).evidence)] == [("t3",), ("t4",)]


@given(st.integers(1_000, 9_999), st.integers(0, 3), st.booleans(), st.sampled_from((0.05, 0.1, 0.3)))
def test_an_action_of_unknown_result_is_shown_with_what_a_later_look_shows_of_it(cents, looks, is_done, ratio):
    def record(*refunds):
        return json.dumps({"order": "B-20588", "sum": 18_675, "paid by": "card", "refunds": refunds})

    def use(number, tool, arguments, answer):
        asked = {"type": "tool_use", "id": f"u{number}", "name": tool, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": f"u{number}", "content": answer}
        return [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [result]}]

    done = [{"refund": "R-88140", "cents": cents, "status": "booked"}] if is_done else []
    messages = [{"role": "user", "content": "Pay it back."}, *use(0, "find_order", {"order": "B-20588"}, record())]
    messages += use(1, "create_refund", {"order": "B-20588", "cents": cents}, "Error: no answer within 30 s")
    messages += [part for at in range(looks) for part in look(at)]
    messages += use(2, "find_order", {"order": "B-20588"}, record(*done))
    messages += [part for at in range(10, 16) for part in look(at)]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    for planner in ("rules", DropsAll()):
        text = said(preview(plan_compaction(messages, "", planner=planner, target_ratio=ratio, now=0.0)).messages)
        assert "create_refund" in text
        assert (f"(see t{4 + looks})" in text) == is_done
        assert ("R-88140" in text) == is_done


OTHER_TRIES = {
    "another appointment": ({"id": "e109", "start": "10:00"}, {"id": "e105", "start": "10:00"}, False),
    "another time of it": ({"start": "10:00", "id": "e109"}, {"start": "14:30", "id": "e109"}, True),
    "another town": ({"stadt": "Wien", "nights": 2}, {"stadt": "Rom", "nights": 2}, False),
    "another room there": ({"stadt": "Wien", "room": "a"}, {"stadt": "Wien", "room": "b"}, True),
    "within an object": ({"order": {"nr": "KET-17"}, "n": 1}, {"order": {"nr": "KET-18"}, "n": 1}, False),
}


@pytest.mark.parametrize(("failed", "succeeded", "is_same"), OTHER_TRIES.values(), ids=OTHER_TRIES)
def test_an_action_on_another_object_ends_no_failed_one(failed, succeeded, is_same):
    messages = [
        {"role": "user", "content": "Go on."},
        *called(1, "xq7", failed, '{"error": "clash"}'),
        *called(2, "xq7", succeeded, '{"receipt": "RC-7"}'),
    ]
    assert retried(analyze(messages).evidence) == ({"t2": ("t3", 0)} if is_same else {})


def test_the_arguments_that_the_user_declared_name_the_object_of_an_action():
    messages = [
        {"role": "user", "content": "Go on."},
        *called(1, "xq7", {"run": "r-1001", "nr": 5}, '{"error": "clash"}'),
        *called(2, "xq7", {"run": "r-1002", "nr": 5}, '{"receipt": "RC-7"}'),
    ]
    declared = {"xq7": ToolUse(effect="acts", object_arguments=("nr",))}
    assert retried(analyze(messages, uses=declared).evidence) == {"t2": ("t3", 0)}
    assert retried(analyze(messages).evidence) == {}


def called(number, name, arguments, result):
    use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def notice(name, status):
    """Return what Claude Code 2.1.332 writes when a task in the background changes."""
    task = f"<task-notification>\n<task-id>{name}</task-id>\n<status>{status}</status>\n</task-notification>"
    return [{"role": "system", "content": f"[SYSTEM NOTIFICATION - NOT USER INPUT]\nNot from the user.\n\n{task}"}]


SHELL = "Command running in background with ID: b305hupk5. Output is being written to: /tmp/b305hupk5.output."
MOVED = "Command did not complete within its 120s timeout and was moved to the background (ID: b305hupk5). Output: x"
AGENT = "Async agent launched successfully. (This tool result is internal metadata.)\nagentId: ab0a9c6d (internal ID)"
SESSION = "Chunk ID: 3\nWall time: 10.0 seconds\nProcess running with session ID 54418\nOutput:\nstep 1"
ENDED = "Chunk ID: 4\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nstep 2"
IN_FLIGHT = {
    "a shell of Claude Code": (("Bash", {"command": "make"}, SHELL), notice("b305hupk5", "completed")),
    "a command that took too long": (("Bash", {"command": "make"}, MOVED), notice("b305hupk5", "failed")),
    "a shell that was stopped": (
        ("Bash", {"command": "make"}, SHELL),
        called(8, "TaskStop", {"task_id": "b305hupk5"}, "Successfully stopped task"),
    ),
    "a subagent of Claude Code": (("Agent", {"prompt": "find"}, AGENT), notice("ab0a9c6d", "completed")),
    "a command of Codex": (
        ("exec_command", {"cmd": "make"}, SESSION),
        called(8, "write_stdin", {"session_id": 54418, "chars": ""}, ENDED),
    ),
}
STILL = {
    "a notice of a step": notice("b305hupk5", "running"),
    "a notice of another task": notice("b999", "completed"),
    "a look that finds it at work": called(8, "write_stdin", {"session_id": 54418}, SESSION),
    "words of the user": [{"role": "user", "content": "Leave b305hupk5 and 54418 alone."}],
}


def in_flight(started, since):
    messages = [{"role": "user", "content": "Go on."}, *called(7, *started), *since]
    messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More."}]
    return [
        turn_id for turn_id, _ in open_calls(analyze([*messages, {"role": "assistant", "content": "So."}]).evidence)
    ]


@pytest.mark.parametrize("name", IN_FLIGHT)
def test_what_runs_is_pending_until_its_client_reports_its_end(name):
    started, ended = IN_FLIGHT[name]
    assert in_flight(started, []) == ["t2"]
    assert in_flight(started, ended) == []


@pytest.mark.parametrize("since", STILL)
@pytest.mark.parametrize("name", ["a shell of Claude Code", "a command of Codex"])
def test_what_runs_stays_pending_whatever_else_is_said_of_it(name, since):
    assert "t2" in in_flight(IN_FLIGHT[name][0], STILL[since])


@given(st.lists(st.sampled_from(("open", "cancelled", "shipped")), min_size=1, max_size=3), st.booleans())
def test_the_newest_look_at_its_object_reports_on_an_action_without_other_arguments(states, indented):
    messages = [{"role": "user", "content": "Cancel it."}, *look(80), {"role": "assistant", "content": "I will."}]
    messages += called(0, "order_cancel", {"order": "Z-1217"}, "HTTP 502")
    for number, state in enumerate(states, 1):
        record = {"order": "Z-1217", "items": [{"sku": f"A{item}"} for item in range(60)], "status": state}
        result = json.dumps({**record, "look": f"L-{number}"}, indent=1 if indented else None)
        messages += [*called(number, "order_read", {"order": "Z-1217"}, result), *look(number)]
    messages += [*called(9, "order_read", {"order": "Y-1"}, "on its way"), *look(90), *look(91)]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Is it done?"}]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.1, now=0.0)).messages)
    assert f"(see t{3 + 2 * len(states)})" in text
    assert f'"status": "{states[-1]}"' in text


def test_the_number_of_many_earlier_actions_stays():
    messages = [{"role": "user", "content": "Remind everybody."}]
    for number in range(60):
        messages += act(number, "send_reminder", number, failed=False)
    messages.append({"role": "user", "content": "Is that all?"})
    plan = plan_compaction(messages, "", planner="rules", target_tokens=700, now=0.0)
    assert "invented_in_brief" not in {finding.code for finding in plan.findings}
    listed = plan.brief.count("→") + 1  # the last one is unanswered and so stays whole
    assert f"more effects: {60 - listed}× send_reminder" in plan.brief


@pytest.mark.parametrize("status", ["failed", "declined", "error", "abgelehnt", "Fehler", "booked"])
def test_a_failed_call_of_a_tool_that_is_declared_to_act_has_its_mark_in_the_review_and_in_the_view(status):
    messages = [{"role": "user", "content": "Pay it back."}, *look(0), {"role": "assistant", "content": "I will."}]
    messages += called(1, "refund", {"order": "B-1"}, json.dumps({"status": status, "reason": "limit"}))
    messages += [*look(1), *look(2), {"role": "assistant", "content": "So far."}, {"role": "user", "content": "Go on."}]
    uses = {"refund": ToolUse(effect="acts")}
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.2, tool_uses=uses, now=0.0)
    is_marked = status != "booked"
    assert ("✗ > refund" in said(preview(plan).messages)) == is_marked
    assert ("✗ t4 refund" in plan.review(whole=True)) == is_marked
