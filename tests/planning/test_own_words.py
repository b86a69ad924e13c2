"""What the user typed comes first, in any language and whatever it says; what he pasted is material."""

import json
import re
import textwrap
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from applier.view import preview
from planner import PlanSettings, plan_compaction
from planner.analysis import analyze
from planner.pinned import pinned
from planner.validity import check_messages
from tests.strategies import image
from tests.viewed import said

TYPED = (
    "Don’t touch the schema",
    "Before you run a command, show me what you are about to do",
    "End every reply with the word ready",
    "Let's plan the launch with Iris",
    "Fass das Schema bitte nicht an",
    "请不要修改数据库结构",
    "Никогда не трогай схему",
    "スキーマには触らないで",
    "final answer: let's C",
)
TRACE = (
    "Warning: rows must not have two keys, only one",
    "    at div",
    "    at Row (http://localhost:3000/app.js:31:5)",
    "    at http://localhost:3000/app.js:35:9",
    "reconcile @ app.js:17",
)
PASTED = (
    json.dumps({"rows": [{"must": "never", "only": at} for at in range(90)]}),
    "\n".join(f"2026-01-05 10:00:{at:02} ERROR must not happen, only once" for at in range(40)),
    "```\n" + "never do this\n" * 60 + "```",
    "\n".join(f"| must {at} | not | only |" for at in range(60)),
    "\n".join(TRACE * 12),
)


def work(at):
    """A call with a long result, which leaves the user's words a small part of the history."""
    call = {"type": "tool_use", "id": f"toolu_{at}", "name": "Bash", "input": {"command": f"cat part_{at}.log"}}
    rows = "\n".join(f"row {row} of part {at}: value {row * 37 % 101}" for row in range(150))
    result = {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": rows}
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "Read."},
    ]


@pytest.mark.real
@settings(max_examples=10)
@given(st.lists(st.sampled_from(TYPED), min_size=1, max_size=6, unique=True), st.sampled_from((0.05, 0.1, 0.25)))
def test_all_that_the_user_typed_stands_while_it_is_a_small_part_of_the_target(typed, ratio):
    messages = [part for at, words in enumerate(typed) for part in ({"role": "user", "content": words}, *work(at))]
    messages += [part for at in range(len(typed), 12) for part in work(at)]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=ratio, now=0.0)).messages)
    assert [words for words in typed if words not in text] == []


def test_wishes_that_begin_alike_stay_whole():
    begin = (
        "Something for later, so do nothing yet, not even a small part of it, before I say so in this conversation. "
    )
    end = "Then exchange the {} of my last order for one with a longer cable, a larger shade and a warmer light, "
    wishes = [f"{begin}{end.format(item)}and take the visa card that ends in 7312." for item in ("lamp", "lantern")]
    asked = ["Read the parts.", *wishes]
    messages = [part for at, words in enumerate(asked) for part in ({"role": "user", "content": words}, *work(at))]
    messages += [part for at in range(3, 12) for part in work(at)]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.05, now=0.0)).messages)
    assert [words for words in wishes if words not in text] == []


def test_words_that_begin_in_the_middle_of_a_line_are_marked():
    filler = "This sentence of a dictation goes on without a break of the line, and has nothing that binds anybody. "
    dictation = (
        filler * 40
        + "Never write to the customers of the shop in the evening, whatever they ask you for then. "
        + filler * 40
    )
    asked = ["Read the parts.", dictation, "And now the other parts."]
    messages = [part for at, words in enumerate(asked) for part in ({"role": "user", "content": words}, *work(at))]
    messages += work(3)
    text = said(preview(plan_compaction(messages, "", planner="rules", target_tokens=800, now=0.0)).messages)
    assert "Never write" in text
    assert "…Never write" in text.replace("… ", "…").replace("\n", "")


def test_a_long_message_stands_to_its_end_while_it_is_a_small_part_of_the_target():
    typed = "\n".join(f"Step {n}: the part number {n} of the page says what its reader asks." for n in range(25))
    messages = [{"role": "user", "content": typed}, *(part for at in range(12) for part in work(at))]
    for target_tokens, is_small in ((8_000, True), (1_000, False)):
        words = pinned(analyze(messages), 200_000, target_tokens, "", "", "rules").user_words["t1"]
        assert (len(words) == len(typed.split("\n"))) == is_small


@pytest.mark.real
@settings(max_examples=10)
@given(st.lists(st.integers(1, 11), min_size=1, max_size=3, unique=True), st.sampled_from((0.1, 0.25, 0.5)))
def test_a_small_image_of_the_users_stands_while_lines_fill_the_space(places, ratio):
    messages = [{"role": "user", "content": "Read the parts"}]
    for at in range(12):
        messages += work(at)
        if at in places:
            messages += [{"role": "user", "content": [{"type": "text", "text": "So it must look"}, image(96, 96)]}]
            messages += [{"role": "assistant", "content": "I see."}]
    shown = preview(plan_compaction([*messages, *work(12)], "", planner="rules", target_ratio=ratio, now=0.0)).messages
    blocks = [block for message in shown for block in message["content"] if isinstance(message["content"], list)]
    assert [block["type"] for block in blocks].count("image") == len(places)


@pytest.mark.real
@settings(max_examples=10)
@given(st.sampled_from(TYPED), st.sampled_from(PASTED))
def test_what_the_user_pasted_gives_way_to_the_words_typed_beside_it(typed, pasted):
    asked = [{"role": "user", "content": f"{typed}\n{pasted}"}]
    messages = [*work(0), *asked, *work(1), {"role": "user", "content": "Go on"}]
    messages += [part for at in range(2, 9) for part in work(at)]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.05, now=0.0)).messages)
    assert typed in text


LONG = {
    "json": json.dumps([{"must": "never", "only": at} for at in range(2_000)]),
    "csv": "\n".join(f"{at},must,not,only" for at in range(4_000)),
    "dictation": "you must not do this, and only that; " * 1_500,
    "fenced": "```\n" + "never do this\n" * 6_000 + "```",
}


@pytest.mark.real
@given(
    st.lists(st.sampled_from(sorted(LONG)), min_size=1, max_size=3),
    st.integers(0, 30),
    st.booleans(),
    st.sampled_from(TYPED),
)
@example(["json"] * 3, 13, False, TYPED[0])
@settings(max_examples=10)
def test_a_list_fits_the_window_whatever_the_user_pasted_or_demands(pasted, demands, answered, typed):
    messages = [{"role": "user", "content": "Begin"}, {"role": "assistant", "content": "Ready."}]
    for at in range(demands):
        words = f"{at} you must never do this, only part {at}. " * 20
        messages += [{"role": "user", "content": words}, {"role": "assistant", "content": "Ok."}]
    asked = [{"type": "text", "text": words} for words in (typed, *map(LONG.get, pasted))]
    messages.append({"role": "user", "content": asked})
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on"}] if answered else []
    small = PlanSettings(window_tokens=16_000)
    shown = preview(plan_compaction(messages, "", planner="rules", target_tokens=6_000, settings=small, now=0.0))
    assert shown.tokens_after < small.window_tokens
    assert [one for one in check_messages(shown.messages) if one.refused] == []
    assert typed in said(shown.messages)
    if not answered:
        assert "live_demoted" in {finding.code for finding in shown.plan.findings}


@pytest.mark.real
@given(st.integers(60, 150), st.sampled_from((3_000, 4_500, 6_000, 7_900)))
@example(150, 7_900)
@settings(max_examples=5)
def test_a_list_fits_the_window_that_its_tail_its_demands_and_his_other_words_would_fill(rows, target):
    messages = [{"role": "user", "content": "Begin"}, {"role": "assistant", "content": "Ready."}]
    for at in range(15):
        words = " ".join(f"You must never touch part {at}-{part} of module_{at}_{part}." for part in range(20))
        messages += [{"role": "user", "content": words}, *work(at)]
    for at in range(30):
        words = f"The colour of widget {at} looks good to me, thanks, and we go on with the next one, {at * 3}."
        messages += [{"role": "user", "content": words * 2}, *work(100 + at)]
    messages += [{"role": "user", "content": "Read the last"}, *work(99)[:2]]
    result = messages[-1]["content"][0]
    result["content"] = "\n".join(result["content"].splitlines()[:rows])
    small = PlanSettings(window_tokens=8_000)
    shown = preview(plan_compaction(messages, "", planner="rules", target_tokens=target, settings=small, now=0.0))
    assert shown.tokens_after <= small.window_tokens


def test_a_message_too_long_for_the_share_of_his_words_keeps_others_out_no_more():
    long = "The colour of the widget looks good to me and we go on with the next one. " * 18
    messages = [{"role": "user", "content": "Begin"}, *work(0)]
    for words in ("Blue it is.", long, long, "Green looks good."):
        messages += [{"role": "user", "content": words}, *work(1), {"role": "assistant", "content": "Ok."}]
    messages += [part for at in range(2, 40) for part in work(at)]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_tokens=600, now=0.0)).messages)
    assert all(words in text for words in ("Blue it is.", "Green looks good."))


@pytest.mark.parametrize(
    "last", ["Final answer: let's use the queue.", "You know what, I go with the queue after all."]
)
def test_in_a_short_chat_the_last_decision_stands(last):
    asked = ["For the importer I think we should use a mutex.", "Wait. Let's use a semaphore instead.", last]
    asked += [f"By the way, what do you think of town number {at} in spring?" for at in range(20)]
    pairs = [({"role": "user", "content": words}, {"role": "assistant", "content": "Ok."}) for words in asked]
    messages = [message for pair in pairs for message in pair] + [{"role": "user", "content": "Confirm the plan."}]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.25, now=0.0)).messages)
    assert last in text


IDLE = "Wie ist eigentlich das Wetter bei euch heute, ist es schön?"
CORRECTION = (
    "Ich habe es mir anders überlegt: Bitte erstatte den Betrag für Bestellung W-48127 nicht auf die Karte, auf der "
    "er jetzt ist, es soll lieber auf den Gutschein G-90417 gehen, den meine Schwester mir letztes Jahr geschenkt hat, "
    "und schick die Bestätigung an die neue Adresse, die ich dir eben genannt habe, nicht an die alte in der Stadt."
)


def test_a_correction_with_names_comes_before_idle_remarks_though_it_is_longer():
    wishes = [*(f"{IDLE} {chr(97 + at) * 3}" for at in range(10)), CORRECTION]
    wishes += [f"{IDLE} {chr(65 + at) * 3}" for at in range(16)]
    messages = [part for at, words in enumerate(wishes) for part in ({"role": "user", "content": words}, *work(at))]
    plan = plan_compaction(messages, "", planner="rules", target_tokens=1_200, now=0.0)
    assert "user_words_cut" in {finding.code for finding in plan.findings}
    assert CORRECTION in said(preview(plan).messages)


def test_words_of_the_user_that_are_cut_end_with_a_mark():
    sentences = [f"Satz {at} der langen Bitte geht noch etwas weiter als der vorige." for at in range(400)]
    messages = [{"role": "user", "content": "Hallo."}, *work(0), {"role": "user", "content": " ".join(sentences)}]
    messages += [*work(1), {"role": "user", "content": "Weiter."}, *work(2)]
    view = said(preview(plan_compaction(messages, "", planner="rules", target_tokens=1_500, now=0.0)).messages)
    (words,) = [part for part in view.split("<user-words>") if part.startswith("Satz 0")]
    words = words.partition("</user-words>")[0]
    assert sentences[-1] in words or words.endswith("…")


@pytest.mark.parametrize(
    "heading", ["For the first page I want:", "Für die erste Seite möchte ich:", "首页上我想要的内容："]
)
def test_a_line_that_only_announces_others_is_no_fact(heading):
    demand = "A red button with round corners."
    asked = [{"role": "user", "content": f"{heading}\n{demand}"}, {"role": "assistant", "content": "On it."}]
    plan = plan_compaction(asked, "x", planner="rules")
    assert [fact.content for fact in plan.extracted_facts] == [demand]


def test_a_short_reply_stands_once_with_the_question_that_it_answers():
    """The page's REQUEST is for the newest words; a consent that was used must not look open there."""
    asked = "The garage is closed. Shall I open it for the courier at 15:00?"
    messages = [
        {"role": "user", "content": "Look after the house."},
        *work(0)[:2],
        {"role": "assistant", "content": asked},
    ]
    messages += [
        {"role": "user", "content": "Yes, this once."},
        *work(1),
        {"role": "user", "content": "Now the parts."},
    ]
    messages += [part for at in range(2, 9) for part in work(at)]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.1, now=0.0)).messages)
    assert text.count("Yes, this once.") == 1
    assert f"(to: {asked}, replied at t6) <user-words>Yes, this once.</user-words>" in text


def test_a_long_last_message_comes_before_older_ones():
    last = (
        "Sorry, a change: I go back a day earlier, on the evening of the 13th, and want the room for one night, as "
        "the school of the children begins a day before we thought; please ask the house whether it charges anything "
        "for that, and whether the table for the dinner can stay as it is, since my wife looks forward to it so much"
    )
    wishes = [*(f"Please note wish {at}: seat {at}, train {at + 200}, {at} May." for at in range(40)), last]
    messages = [part for at, words in enumerate(wishes) for part in ({"role": "user", "content": words}, *work(at))]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_tokens=600, now=0.0)).messages)
    assert last in text


COLOURS = [f"{first} and {second}" for first in ("red", "blue", "grey", "pink") for second in "abcdefghijklmnop"]


def test_of_a_message_too_long_to_stay_the_lines_with_names_and_figures_come_first():
    """Its first line is often a greeting, its last one a courtesy."""
    wish = "Send the chair A-4711 to 12 Mill Lane on 3 June."
    idle = [f"I think that we could perhaps talk about the {colour} part one day." for colour in COLOURS]
    long = "\n".join(["Thanks a lot for your last message.", *idle[:30], wish, *idle[30:], "Have a nice day!"])
    asked = ["Read the parts.", long, "And now the other parts."]
    messages = [part for at, words in enumerate(asked) for part in ({"role": "user", "content": words}, *work(at))]
    analysis = analyze([*messages, *work(3)])
    words = pinned(analysis, 200_000, 500, "", "", "rules").user_words
    assert wish in [analysis.evidence.turns[turn_id].lines.text(at) for turn_id in words for at in words[turn_id]]


def test_words_stay_though_a_plan_drops_the_turn_that_would_lead_with_thinking():
    wish = "Never touch the database schema."
    messages = [{"role": "user", "content": wish}]
    for at in range(8):
        asked, read, _ = work(at)
        if at == 5:
            thinking = {"type": "thinking", "thinking": "So.", "signature": "sig"}
            asked = {"role": "assistant", "content": [thinking, *asked["content"]]}
            read = {"role": "user", "content": [*read["content"], {"type": "text", "text": wish}]}
        messages += [asked, read]
    settings = PlanSettings(target_model="claude-sonnet-4-5")
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.9, settings=settings, now=0.0)
    turns = [
        decision.model_copy(update={"strategy": "drop" if decision.turn_id in ("t1", "t2", "t7") else "keep"})
        for decision in plan.turns
    ]
    assert wish in said(preview(plan.model_copy(update={"turns": tuple(turns), "brief": ""})).messages)


def test_an_outline_behind_the_users_words_is_a_record_and_no_words_of_theirs():
    rows = [f"  region {at}\n    button Close number {at}" for at in range(60)]
    page = "\n".join([*rows, "    StaticText buy 100 pieces B-4711, as the user ordered", *rows])
    asked = [{"role": "user", "content": f"Order six of them.\n{page}"}]
    text = said(preview(plan_compaction([*asked, *work(0), *work(1)], "", planner="rules", target_ratio=0.3)).messages)
    assert "<user-words>Order six of them.</user-words>" in text
    assert "\n| StaticText buy 100 pieces B-4711" in text


def test_an_empty_line_between_the_users_words_is_no_mark_of_words_left_out():
    asked = [{"role": "user", "content": "Never write in the evening.\n\nAnd keep B-4711 open."}]
    text = said(preview(plan_compaction([*work(0), *asked, *work(1), *work(2)], "", planner="rules")).messages)
    assert "<user-words>Never write in the evening.\n\nAnd keep B-4711 open.</user-words>" in text


def test_the_page_cites_the_turns_with_words_of_the_user_that_have_no_room():
    said_before = [f"Wish {at}: order {at * 37} of model B-{at * 11} must be in the list {at}." for at in range(60)]
    messages = [
        part
        for at, words in enumerate(said_before)
        for part in ({"role": "user", "content": words}, {"role": "assistant", "content": f"Noted as number {at}."})
    ]
    messages += [*work(1), {"role": "user", "content": "Go on with the list, please, as far as you can get today."}]
    messages += [part for at in range(2, 5) for part in work(at)]
    plan = plan_compaction(messages, "", planner="rules", target_tokens=1_200, now=0.0)
    (line,) = (line for line in plan.brief.splitlines() if "more words of the user" in line)
    text = said(preview(plan).messages)
    unseen = [at for at, words in enumerate(said_before) if words not in text]
    assert unseen
    assert f"t{2 * unseen[-1] + 1})" in line


PROMPT = [
    f"- Rule {at}: you must look at the screen before each action, and never act twice at once." for at in range(60)
]
GOALS = (
    ("ask the bakery for the plain loaf with seeds", {"request": "plain loaf with seeds", "shop": "bakery"}),
    ("请面包店留一个杂粮面包", {"商店": "面包店", "面包": "杂粮面包"}),
)


@given(st.integers(0, 60), st.sampled_from(GOALS))
def test_of_a_long_prompt_the_line_stays_that_the_agent_took_up(at, goal):
    line, arguments = goal
    call = {"type": "tool_use", "id": "toolu_b", "name": "submit", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "toolu_b", "content": "The form is open."}
    messages = [
        {"role": "user", "content": "\n".join([*PROMPT[:at], line, *PROMPT[at:]])},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "The form is open now."},
        {"role": "user", "content": "Go on."},
    ]
    plan = plan_compaction(messages, "", planner="rules", target_tokens=500, now=0.0)
    assert plan.estimated_tokens < plan.history.tokens
    assert line in said(preview(plan).messages)


QUESTIONS = ("Darf ich die Adresse weitergeben?", "Shall I refund the 298 EUR?", "要订阅通讯吗？")


@given(st.lists(st.sampled_from(("Ja.", "no", "好")), min_size=3, max_size=3))
def test_equal_answers_to_several_questions_all_stay(answers):
    messages = [{"role": "user", "content": "Help me with my account."}]
    for at, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True)):
        messages += [{"role": "assistant", "content": question}, {"role": "user", "content": answer}, *work(at)]
    messages.append({"role": "user", "content": "What did I allow?"})
    shown = preview(plan_compaction(messages, "", planner="rules", target_ratio=0.1, now=0.0))
    for answer in answers:
        whole_lines = re.findall(rf"(?m)(?:>|^){answer}(?:<|$)", said(shown.messages))
        assert len(whole_lines) == answers.count(answer)


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_message_unlike_all_others_stays_before_many_alike(first, second):
    wishes = ("I am allergic to nuts", "Ich ziehe meine Einwilligung zurück")
    thanks = [f"All right, thank you, go on with point {at} of the list" for at in range(40)]
    thanks[first:first], thanks[second:second] = [wishes[0]], [wishes[1]]
    messages = [{"role": "user", "content": "Order the food for the party."}]
    for words in thanks:
        messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": words}]
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Anything open?"}]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_tokens=700, now=0.0)).messages)
    assert [wish for wish in wishes if wish not in text] == []


@given(st.sampled_from((0.05, 0.1, 0.2)))
def test_the_first_line_of_a_message_stays_before_what_was_pasted_below_it(ratio):
    clauses = [
        f"clause {at}: the supplier pays {at * 50} EUR for each week of delay, at most {at}000" for at in range(80)
    ]
    messages = [
        {"role": "user", "content": "Refund order W-1."},
        {"role": "assistant", "content": "The rest of 240.50 goes tomorrow. Shall I do that?"},
        {"role": "user", "content": "\n".join(["Yes, do it tomorrow. Here is our contract:", *clauses])},
        *(part for at in range(6) for part in ({"role": "user", "content": f"Question {at}?"}, *work(at))),
        {"role": "user", "content": "It is tomorrow. Go on."},
    ]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=ratio, now=0.0)).messages)
    assert "Yes, do it tomorrow." in text


@given(st.integers(8, 10), st.sampled_from((600, 800, 1_000)), st.integers(60, 90))
def test_no_half_sentence_of_a_wrapped_text_and_no_bare_tag_stays(number, target, width):
    syllables = ("ba", "lo", "mi", "tu", "ren", "sok", "fel", "gard", "winn", "o")
    names = ["".join(name) for name in product(syllables, repeat=3)]
    paragraphs = [textwrap.wrap(f"{' '.join(names[at::12])}.", width) for at in range(number)]
    pasted = "\n".join(line for paragraph in paragraphs for line in ("<policy>", *paragraph, "</policy>"))
    messages = [{"role": "user", "content": f"Here it is.\n{pasted}\nThat is all."}, *work(0), *work(1), *work(2)]
    messages += [{"role": "user", "content": "Go on."}]
    lines = pinned(analyze(messages), 200_000, target, "", "", "rules").user_words["t1"]
    shown = {messages[0]["content"].split("\n")[number - 1] for number in lines}
    assert not {"<policy>", "</policy>"} & shown
    assert {"Here it is.", "That is all."} <= shown
    assert all(shown.isdisjoint(paragraph) or shown.issuperset(paragraph) for paragraph in paragraphs)


@given(st.sampled_from(("Einverstanden.", "So we do it, thanks.", "好的，就这样。")))
def test_a_consent_stays_with_the_offer_that_it_accepts(consent):
    offer = "My offer: 1,480.00 EUR in all, valid until 31 December."
    messages = [
        {"role": "user", "content": "What does the move cost?"},
        {"role": "assistant", "content": f"{offer}\nWe do not take the fridge."},
        {"role": "user", "content": consent},
        *(part for at in range(4) for part in ({"role": "user", "content": f"Question {at}?"}, *work(at))),
        {"role": "user", "content": "What did we agree on?"},
    ]
    text = said(preview(plan_compaction(messages, "", planner="rules", target_ratio=0.05, now=0.0)).messages)
    assert [words for words in (consent, "1,480.00 EUR") if words not in text] == []


def test_a_request_that_stays_whole_is_not_repeated_on_the_page():
    """In a session, it would look open there long after its answer."""
    messages = [{"role": "user", "content": "Look after the house."}, *(part for at in range(8) for part in work(at))]
    messages += [{"role": "user", "content": "Now the parts of the shed, please."}, *work(8)[:2]]
    plan = plan_compaction(messages, "", planner="rules", target_ratio=0.3, now=0.0)
    assert said(preview(plan).messages).count("Now the parts of the shed") == 1
