"""Prompts are files a person edits: what is wrong with one is said with its path and the cure."""

import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.brief import HEADINGS
from planner.errors import SettingsError
from planner.model.prefix import prefix_question
from planner.model.prompts import PROMPTS, load_prompts, packaged_folder
from planner.model.question import LINE_TOKENS, QuestionBasis, brief_tokens, plan_questions
from planner.selection import brief_limit
from tests.model.sample import SAMPLE, call, plan_request
from tests.strategies import histories


def own_folder(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_the_packaged_prompts_can_be_used_as_they_are():
    prompts = load_prompts()
    assert set(prompts.texts) == set(PROMPTS)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", prompts.hash)


def test_a_file_of_the_users_folder_takes_the_place_of_the_packaged_one(tmp_path):
    folder = own_folder(tmp_path, "brief.md", "Keep everything.")
    mine, packaged = load_prompts(folder), load_prompts()
    assert "Keep everything." in mine.render("system")
    assert mine.texts["plan"] == packaged.texts["plan"]
    assert mine.hash != packaged.hash


def test_the_hash_is_of_what_is_used_not_of_where_it_lies(tmp_path):
    shutil.copytree(packaged_folder(), tmp_path / "copy")
    assert load_prompts(tmp_path / "copy").hash == load_prompts().hash


def test_what_is_filled_in_is_not_read_for_places_again():
    values = dict.fromkeys(PROMPTS["plan"], "x") | {"task": "{{cards}} {% raw %} \\1"}
    assert "{{cards}} {% raw %} \\1" in load_prompts().render("plan", **values)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("plan.md", "Only {{task}} here", "missing variable {{after}}, {{before}}, {{brief}}, {{cards}}"),
        ("system.md", "Hello {{nmae}}", "unknown variable {{nmae}}: use {{brief_rules}}"),
        ("system.md", " \n", "is empty"),
        (
            "sytem.md",
            "Hello",
            "no prompt has this name: rename it to one of brief.md, learn.md, learn_system.md, mend.md, plan.md",
        ),
    ],
)
def test_a_prompt_that_cannot_be_used_is_named_with_its_cure(tmp_path, name, text, said):
    folder = own_folder(tmp_path, name, text)
    with pytest.raises(SettingsError, match=f"{re.escape(str(folder / name))}.*{re.escape(said)}"):
        load_prompts(folder)


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path):
    (tmp_path / "system.md").write_bytes(b"\xef\xbb\xbf" + (packaged_folder() / "system.md").read_bytes())
    assert load_prompts(tmp_path).texts == load_prompts().texts


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "system.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"system\.md: cannot be read .*UTF-8"):
        load_prompts(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match="no such folder of prompts: make it with `compactor prompts copy"):
        load_prompts(tmp_path / "nowhere")


@settings(max_examples=20)
@given(histories(max_turns=10), st.floats(0.02, 1.0))
def test_entries_are_explained_where_there_is_room_for_them_and_the_brief_alone_is_asked_for_elsewhere(messages, share):
    request = plan_request(messages)
    basis, prompts = (
        QuestionBasis.of(replace(request, target_tokens=int(request.target_tokens * 4 * share))),
        load_prompts(),
    )
    asked = [(q.system(prompts), q.values["sizes"]) for q in plan_questions(basis, prompts)[0]]
    prefix = prefix_question(basis, prompts)
    for system, sizes in [*asked, (prefix, prefix)]:
        most = re.search(r"at most (\d+) entries", sizes)
        assert ('"turns": [' in system) == ("summarize 8" in system or "summarize 6" in system) == bool(most)
        assert "<!--" not in system
        assert most is None or int(most[1]) > 0


@settings(max_examples=20)
@given(histories(min_turns=2, max_turns=10), st.lists(st.floats(0.01, 1.0), min_size=2, max_size=2).map(sorted))
def test_a_larger_target_leaves_the_brief_no_less_and_never_more_than_its_room(messages, shares):
    request = plan_request(messages)
    limits = []
    for share in shares:
        target = int(request.evidence.tokens * share)
        basis = QuestionBasis.of(replace(request, target_tokens=target))
        limits.append(brief_tokens(basis, basis.turns))
        assert limits[-1] <= brief_limit(basis.request, basis.least_tokens)
    assert limits[0] <= limits[1]


def test_the_brief_of_a_long_session_follows_its_target_until_it_tells_what_is_needed():
    said = "\n".join(f"Worker {n} drains queue_{n} before the next one starts, or it blocks." for n in range(9_000))
    request = plan_request([*SAMPLE[:1], {"role": "assistant", "content": said}, *SAMPLE[1:]])
    assert request.evidence.tokens > 150_000
    targets = [int(request.evidence.tokens * share) for share in (0.01, 0.02, 0.04)]
    situations = [QuestionBasis.of(replace(request, target_tokens=target)) for target in targets]
    limits = [brief_tokens(basis, basis.turns) for basis in situations]
    assert all(limit > 0.7 * target for limit, target in zip(limits, targets, strict=True)), limits


def test_the_brief_has_room_for_a_document_that_was_read_as_the_target_grows():
    prose = "\n".join(
        f"Section {n} says that worker {n} drains its queue before the next one starts." for n in range(2_000)
    )
    limits = {}
    for name, result in (("document", prose), ("code", prose.replace(" ", "(x); "))):
        messages = [SAMPLE[0], *call(1, "Bash", {"command": "cat design.md"}, result), *SAMPLE[1:]]
        request = plan_request(messages, max_output_tokens=32_000)
        for share in (0.05, 0.1, 0.25):
            target = int(request.evidence.tokens * share)
            basis = QuestionBasis.of(replace(request, target_tokens=target))
            limits[name, share] = brief_tokens(basis, basis.turns) / request.evidence.tokens
    assert 1.5 * limits["document", 0.05] < limits["document", 0.1]
    assert limits["code", 0.1] == limits["code", 0.25] < limits["document", 0.25], "there is no more to tell"


def sizes_of(words):
    basis = QuestionBasis.of(plan_request([{"role": "user", "content": words}, *SAMPLE]))
    return plan_questions(basis, load_prompts())[0][-1].values["sizes"]


@pytest.mark.parametrize(
    ("words", "characters"),
    [
        ("Please return the bookshelf. ", range(170, 190)),
        ("Верните деньги за полку на карту. ", range(110, 240)),
        ("请帮我退掉书架，退款到尾号三二〇一的卡上。", range(35, 90)),
        ("本棚を返品して、カードに返金してください。", range(50, 110)),
        ("กรุณาคืนเงินค่าชั้นหนังสือเข้าบัตร", range(60, 140)),
    ],
)
def test_a_line_of_the_page_is_as_long_as_its_tokens_are_in_the_language_of_the_conversation(words, characters):
    limit = re.search(r"\(about (\d+) lines of (\d+);", sizes_of(words * 400))
    assert int(limit[2]) in characters
    line = (words * 40)[: int(limit[2])]
    assert plan_request().counter.text(line) <= 1.1 * LINE_TOKENS


def test_the_question_lists_the_effects_that_have_room_beside_a_full_brief():
    answered = [part for at in range(30) for part in order(at)]
    basis = QuestionBasis.of(plan_request([{"role": "user", "content": "Order them."}, *answered, *SAMPLE]))
    texts = {}
    for target in (600, 3_000):
        smaller = QuestionBasis.of(replace(basis.request, target_tokens=target))
        (question,), _ = plan_questions(smaller, load_prompts())
        listed = re.search(r"of that limit: the effects of (.*)\.", question.values["sizes"])
        texts[target] = re.findall(r"t\d+", listed[1]) if listed else []
    assert len(texts[600]) < len(texts[3_000])


def order(number):
    use = {"type": "tool_use", "id": f"o{number}", "name": "place_order", "input": {"item": f"KET-{number}"}}
    answer = {"type": "tool_result", "tool_use_id": f"o{number}", "content": f'{{"receipt": "RC-{4000 + number}"}}'}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def test_the_prompts_explain_every_heading_that_a_planner_writes():
    prompts = load_prompts()
    explained = {heading for heading in HEADINGS if f"- {heading}:" in prompts.texts["brief"]}
    assert explained == set(HEADINGS) - {"NOTES"}
