"""Every rule of the Messages API, broken once, and the shapes around it that must pass."""

import pytest
from hypothesis import given

from applier.testing import Request, judge, judge_edit
from planner.validity import check_messages
from tests.strategies import histories, image

NEWEST, MANUAL, PLAIN = "claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-4-8"
WORDS = {"role": "user", "content": "Please read it."}


def call(*ids, **more):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids]}


def result(*ids, text="fine"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids]}


def text(role, *words, **fields):
    return {"role": role, "content": [{"type": "text", "text": word, **fields} for word in words]}


def broken(messages, model=PLAIN, headers=None, window=None, **body):
    request = Request({"model": model, "max_tokens": 2048, "messages": messages, **body}, headers or {})
    return [violation.rule for violation in judge(request, window)]


def marked(ttl=None):
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


ANSWERED = [WORDS, call("a"), result("a")]
SERVER_CALL = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "x"}
FORGED = [WORDS, {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "so"}]}, WORDS]
ADAPTIVE, BUDGET = {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}
BAD_INPUT = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": "{}"}]}
COMPACTION = {"type": "compaction", "content": "what was"}
ADDITION = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}
BETAS = "mid-conversation-output-config-2026-07-01, mid-conversation-tool-changes-2026-07-01"
NEW = {"headers": {"anthropic-beta": BETAS}}
CLEARED = {"headers": {"anthropic-beta": "mid-conversation-system-clear-at-2026-08-21"}}
INLINE = {"headers": {"anthropic-beta": f"{BETAS}, inline-tools-2026-09-15"}}
CLIENTS_OWN = {"headers": {"anthropic-beta": "per-turn-control-2026-07-01"}}
STRICT = {"headers": {"anthropic-version": "2026-10-21"}}
OLD_API = {"headers": {"anthropic-version": "2023-06-01"}}
PAGE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}}
CITED = {"type": "text", "text": "so", "citations": [{"type": "char_location", "cited_text": "so"}]}
FOUND = {"type": "search_result", "source": "x", "title": "x", "content": [CITED]}
DEFINITION = {"type": "tool_definition", "definition": {"name": "read", "input_schema": {"type": "object"}}}
DEFINED = {"type": "tool_addition", "tool": DEFINITION}
BRIEF_ONCE = {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"}
QUIET = {"role": "system", "content": "Be brief.", "output_config": {"effort": "low"}}
SIGNED = {**COMPACTION, "signature": "s"}
TEXT = {"type": "text", "text": "so"}

VALID = {
    "one word": ([WORDS], {}),
    "a call and its result": (ANSWERED, {}),
    "words behind results": ([WORDS, call("a"), {**result("a"), "content": [*result("a")["content"], TEXT]}], {}),
    "parallel calls": ([WORDS, call("a", "b"), result("b", "a")], {}),
    "neighbours of one role": ([WORDS, WORDS, call("a"), result("a")], {}),
    "parallel calls and results apart": ([WORDS, call("a"), call("b"), result("a"), result("b")], {}),
    "server tools": ([WORDS, {"role": "assistant", "content": [SERVER_CALL, SERVER_RESULT, TEXT]}, WORDS], {}),
    "a paused turn": ([WORDS, {"role": "assistant", "content": [TEXT, SERVER_CALL]}], {}),
    "prefill on 4.5": ([WORDS, text("assistant", "The")], {"model": MANUAL}),
    "a system message": ([WORDS, {"role": "system", "content": "Be brief."}, call("a"), result("a")], {}),
    "a system message that sets the effort alone": (
        [WORDS, {"role": "system", "content": [], "output_config": {"effort": "low"}}, call("a"), result("a")],
        NEW,
    ),
    "a tool that is there from now on": (
        [WORDS, {"role": "system", "content": [ADDITION]}, call("a"), result("a")],
        NEW,
    ),
    "a system message for one turn": ([WORDS, BRIEF_ONCE, call("a"), result("a")], CLEARED),
    "an effort by the client's name for it": ([WORDS, QUIET, call("a"), result("a")], CLIENTS_OWN),
    "a tool that is defined in the list": ([WORDS, {"role": "system", "content": [DEFINED]}], INLINE),
    "a document of the assistant's before": ([WORDS, {"role": "assistant", "content": [PAGE]}, WORDS], OLD_API),
    "citations of the user's before": ([{"role": "user", "content": [CITED]}], OLD_API),
    "citations of the assistant's": ([WORDS, {"role": "assistant", "content": [CITED]}, WORDS], STRICT),
    "a document of the user's": ([{"role": "user", "content": [PAGE, TEXT]}], STRICT),
    "a compaction block": ([{"role": "assistant", "content": [COMPACTION]}, WORDS], {}),
    "a signed one of the user's": ([{"role": "user", "content": [SIGNED, TEXT]}], {}),
    "one on demand": ([WORDS], {"compaction": {"type": "summarize"}}),
    "four marks": ([text("user", *"abcd", **marked())], {}),
}

BROKEN = {
    "an unmatched call": (1, [WORDS, call("a"), WORDS], {}),
    "a user message between call and result": (1, [WORDS, call("a"), text("user", "wait"), call("b"), result("b")], {}),
    "an assistant message between": (1, [WORDS, call("a"), text("user", "x"), text("assistant", "y"), result("a")], {}),
    "a system message between": (1, [WORDS, call("a"), {"role": "system", "content": "x"}, result("a")], {}),
    "a parallel result missing": (1, [WORDS, call("a", "b"), result("a")], {}),
    "a call of the user's": (1, [call("a") | {"role": "user"}], {}),
    "an unmatched result": (2, [WORDS, text("assistant", "so"), result("a")], {}),
    "a wrong id": (2, [WORDS, call("a"), result("b")], {}),
    "text before a result": (3, [WORDS, call("a"), {"role": "user", "content": [TEXT, *result("a")["content"]]}], {}),
    "text between results": (3, [WORDS, call("a", "b"), result("a"), WORDS, result("b")], {}),
    "two results": (5, [WORDS, call("a"), result("a", "a")], {}),
    "two calls of one id": (6, [*ANSWERED, call("a"), result("a")], {}),
    "an odd id": (7, [WORDS, call("a:1"), result("a:1")], {}),
    "an input that is text": (8, [WORDS, BAD_INPUT, result("a")], {}),
    "a server result alone": (9, [WORDS, {"role": "assistant", "content": [SERVER_RESULT, TEXT]}, WORDS], {}),
    "a server call alone": (9, [WORDS, {"role": "assistant", "content": [SERVER_CALL, TEXT]}, WORDS], {}),
    "thinking of the user's": (10, [{"role": "user", "content": [THOUGHT, TEXT]}], {}),
    "thinking alone": (10, [WORDS, {"role": "assistant", "content": [THOUGHT]}, WORDS], {"thinking": ADAPTIVE}),
    "a forged signature": (11, FORGED, {"thinking": ADAPTIVE}),
    "calls without thinking": (12, ANSWERED, {"model": MANUAL, "thinking": BUDGET}),
    "thinking while it is off": (13, FORGED, {}),
    "thinking of elsewhere": (14, FORGED, {"model": NEWEST, "thinking": ADAPTIVE}),
    "prefill": (15, [WORDS, text("assistant", "The")], {}),
    "a trailing space": (16, [WORDS, text("assistant", "The ")], {"model": MANUAL}),
    "an empty text": (17, [text("user", "")], {}),
    "a blank text": (17, [text("user", " \n")], {}),
    "no content": (17, [WORDS, {"role": "assistant", "content": []}, WORDS], {}),
    "a blank result": (17, [WORDS, call("a"), result("a", text=[{"type": "text", "text": ""}])], {}),
    "five marks": (18, [text("user", *"abcde", **marked())], {}),
    "a mark on a message": (18, [{**WORDS, **marked()}], {}),
    "a mark on thinking": (
        18,
        [WORDS, {"role": "assistant", "content": [{**THOUGHT, **marked()}, TEXT]}, WORDS],
        {"thinking": ADAPTIVE},
    ),
    "an hour behind five minutes": (18, [text("user", "a", **marked()), text("user", "b", **marked("1h"))], {}),
    "a system message on 4.5": (
        19,
        [WORDS, {"role": "system", "content": "x"}, call("a"), result("a")],
        {"model": MANUAL},
    ),
    "a system message between users": (19, [WORDS, {"role": "system", "content": "x"}, WORDS], {}),
    "a system message first": (19, [{"role": "system", "content": "x"}, WORDS], {}),
    "a role of OpenAI's": (19, [WORDS, {"role": "tool", "content": "x"}], {}),
    "101 images": (20, [{"role": "user", "content": [image(8, 8)] * 101}], {}),
    "a large image among many": (20, [{"role": "user", "content": [image(8, 8)] * 20 + [image(2001, 8)]}], {}),
    "half a character": (21, [text("user", "a \ud83d b")], {}),
    "a long prompt": (22, [text("user", "word " * 4000)], {"window": 5000}),
    "a compaction block behind text": (23, [WORDS, {"role": "assistant", "content": [TEXT, COMPACTION]}, WORDS], {}),
    "no messages": (24, [], {}),
    "an assistant first": (24, [text("assistant", "a"), WORDS], {}),
    "too many messages": (24, [WORDS] * 100_001, {}),
    "an unknown field": (0, [text("user", "a", mood="good")], {}),
    "an effort without its beta": (0, [WORDS, {"role": "system", "content": "x", "output_config": {}}], {}),
    "a system message for one turn without its beta": (0, [WORDS, BRIEF_ONCE], NEW),
    "a tool that is defined in the list without its beta": (0, [WORDS, {"role": "system", "content": [DEFINED]}], NEW),
    "a system message for Sonnet 5": (19, [WORDS, {"role": "system", "content": "x"}], {"model": "claude-sonnet-5"}),
    "a document of the assistant's": (25, [WORDS, {"role": "assistant", "content": [PAGE]}, WORDS], STRICT),
    "citations of the user's": (25, [{"role": "user", "content": [CITED]}], STRICT),
    "citations in a search result of the user's": (25, [{"role": "user", "content": [FOUND]}], STRICT),
    "the default temperature": (25, [WORDS], {**STRICT, "temperature": 1.0}),
    "a tool change of the user's": (0, [{"role": "user", "content": [ADDITION]}], NEW),
    "a system message of nothing": (17, [WORDS, {"role": "system", "content": [], "output_config": {}}], NEW),
    "no list": (0, "Hello", {}),
    "a temperature": (0, [WORDS], {"temperature": 0.2}),
    "a forced tool": (0, [WORDS], {"tool_choice": {"type": "any"}}),
    "adaptive thinking on 4.5": (0, [WORDS], {"model": MANUAL, "thinking": ADAPTIVE}),
}


def test_a_body_is_judged_without_a_request():
    body = {"model": PLAIN, "max_tokens": 2048, "messages": [WORDS, call("a"), WORDS]}
    assert judge(body) == judge(Request(body, {}))
    assert judge(body)


@pytest.mark.parametrize("name", VALID)
def test_what_the_api_takes(name):
    messages, options = VALID[name]
    assert broken(messages, **options) == []


@pytest.mark.real
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "too many messages" else ()) for name in BROKEN]
)
def test_what_the_api_refuses(name):
    rule, messages, options = BROKEN[name]
    assert rule in broken(messages, **options)


def test_every_rule_is_broken_once():
    """Rule 4 asks for what the API mends itself."""
    assert {rule for rule, _, _ in BROKEN.values()} == set(range(26)) - {4}


def thought(words, signature):
    return {"type": "thinking", "thinking": words, "signature": signature}


def used(*ids, thinking=()):
    return {"role": "assistant", "content": [*thinking, *call(*ids)["content"]]}


def unbound(before, after, model=NEWEST):
    """The rules that the second list breaks because its blocks came with the first."""
    return [v.rule for v in judge_edit(*(Request({"model": model, "messages": one}, {}) for one in (before, after)))]


def test_thinking_behind_the_first_change_is_no_longer_valid():
    before = [WORDS, call("a"), result("a", text="x" * 500), used("b", thinking=[thought("1", "s1")]), result("b")]
    shorter = [*before[:2], result("a", text="cut"), *before[3:]]
    assert unbound(before, shorter) == [14]
    assert unbound(before, before) == []
    new = {"role": "assistant", "content": [thought("2", "s2"), TEXT]}
    assert unbound(before, [*before, new, WORDS]) == []
    assert unbound(before, [*shorter[:3], call("b"), result("b")]) == [], "stripped: nothing left to refuse"
    assert unbound(before, shorter, PLAIN) == [], "thinking is not bound there"


def test_moved_cache_marks_and_merged_neighbours_are_no_change():
    before = [text("user", "hi"), used("a", thinking=[thought("1", "s1")]), result("a")]
    assert unbound(before, [text("user", "hi", **marked()), *before[1:]]) == []
    apart = [text("user", "hi"), text("user", "more"), *before[1:]]
    assert unbound(apart, [text("user", "hi", "more"), *before[1:]]) == []


def test_thinking_of_the_latest_answer_is_whole_in_order_or_gone():
    one, two = thought("1", "s1"), thought("2", "s2")
    before = [WORDS, used("a", thinking=[one, two]), result("a")]
    assert unbound(before, [WORDS, used("a", thinking=[two, one]), result("a")], PLAIN) == [10]
    assert unbound(before, [WORDS, used("a", thinking=[two]), result("a")], PLAIN) == [10]
    assert unbound(before, [WORDS, call("a"), result("a")]) == []


def test_a_signature_has_its_own_text():
    before = [WORDS, {"role": "assistant", "content": [thought("long story", "s1"), TEXT]}, WORDS]
    cut = [WORDS, {"role": "assistant", "content": [thought("long", "s1"), TEXT]}, WORDS]
    assert 11 in unbound(before, cut, PLAIN)


def test_a_compaction_block_comes_back_as_it_was():
    signed = {**COMPACTION, "signature": "s"}
    before = [{"role": "assistant", "content": [signed]}, WORDS]
    assert unbound(before, before) == []
    assert unbound(before, [{"role": "assistant", "content": [{**signed, "content": "shorter"}]}, WORDS]) == [23]


@given(histories())
def test_both_oracles_take_what_is_valid(messages):
    """Thinking aside, whose signatures only the server's own are."""
    refused = [violation for violation in check_messages(messages, model=NEWEST) if violation.refused]
    rules = set(broken(messages, NEWEST, thinking=ADAPTIVE)) - {11, 14}
    assert (bool(refused), bool(rules)) == (False, False), rules
