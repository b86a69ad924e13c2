"""The rules of the Messages API that a change can break: one list that keeps each, one that breaks it; odd shapes."""

import json
from itertools import product

import anthropic.types
import pytest
from hypothesis import given
from pydantic import TypeAdapter

from planner.errors import TranscriptError
from planner.reading.messages import pairs_plainly, read_history
from planner.reading.tokens import model_family
from planner.validity import CALL_RULES, Violation, check_messages
from tests.strategies import answered_histories, histories, make_session, text

OLD = "claude-sonnet-4-5"
SYSTEM_TAKER = "claude-opus-4-8"


def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def call(name="toolu_1", arguments=None):
    return {
        "type": "tool_use",
        "id": name,
        "name": "Read",
        "input": {"path": "a.py"} if arguments is None else arguments,
    }


def result(name="toolu_1", content="done", **more):
    return {"type": "tool_result", "tool_use_id": name, "content": content, **more}


def thought(words="hm", signature="sig-1"):
    return {"type": "thinking", "thinking": words, "signature": signature}


def searched(name="srvtoolu_1"):
    asked = {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": "x"}}
    return [asked, {"type": "web_search_tool_result", "tool_use_id": name, "content": []}]


def compaction(**fields):
    return {"type": "compaction", "content": "what was said", **fields}


HI, OK = user(text("hi")), assistant(text("ok"))
ASKED = [HI, assistant(call())]
ANSWERED = [*ASKED, user(result())]
TWO_CALLS, BOTH = [HI, assistant(call("a"), call("b"))], user(result("a"), result("b"))


def said(*content):
    """Return the user, an assistant message of `content`, then the user again."""
    return [HI, assistant(*content), HI]


def run(*calls, results):
    """Return the user, a message of `calls`, a message of `results`."""
    return [HI, assistant(*calls), user(*results)]


THOUGHT = said(thought(), text("ok"))
SYSTEM = {"role": "system", "content": "be brief"}
SIGNED = compaction(signature="s")

RULES = [
    (1, "unanswered_call", ANSWERED, [*ASKED, user(text("well?"))], {}),
    (1, "unanswered_call", ANSWERED, ASKED, {}),
    (1, "call_role", ANSWERED, [user(text("hi"), call())], {}),
    (2, "uncalled_result", ANSWERED, [HI, OK, user(result())], {}),
    (3, "late_result", run(call(), results=[result(), text("go")]), run(call(), results=[text("go"), result()]), {}),
    (4, "split_results", [*TWO_CALLS, BOTH], [*TWO_CALLS, user(result("a")), user(result("b"))], {}),
    (4, "alternation", [HI, OK, HI], [HI, HI], {}),
    (5, "repeated_result", ANSWERED, run(call(), results=[result(), result()]), {}),
    (6, "repeated_call", [*ANSWERED, *run(call("b"), results=[result("b")])[1:]], [*ANSWERED, *ANSWERED[1:]], {}),
    (7, "bad_id", ANSWERED, run(call("call.1"), results=[result("call.1")]), {}),
    (8, "bad_input", run(call(arguments={}), results=[result()]), run(call(arguments="{}"), results=[result()]), {}),
    (9, "uncalled_server_result", said(*searched()), said(searched()[1]), {}),
    (9, "unanswered_server_call", said(*searched()), said(searched()[0]), {}),
    (10, "broken_thinking", THOUGHT, said({"type": "redacted_thinking"}, text("ok")), {}),
    (10, "thinking_role", [HI], [user(thought(), text("hi"))], {}),
    (10, "last_thinking", THOUGHT[:2], [HI, assistant(text("ok"), thought())], {}),
    (10, "late_thinking", THOUGHT, said(text("ok"), thought(), text("so")), {"model": OLD}),
    (11, "unsigned_thinking", THOUGHT, said(thought(signature=""), text("ok")), {}),
    (
        12,
        "lost_thinking",
        run(thought(), call(), results=[result()]),
        ANSWERED,
        {"model": OLD, "thinking_enabled": True},
    ),
    (13, "thinking_off", [HI, OK, HI], THOUGHT, {"thinking_enabled": False}),
    (15, "prefill", [HI, OK, HI], [HI, OK], {"model": "claude-opus-4-6"}),
    (17, "blank_text", [HI], [user(text("hi"), text(" \n"))], {}),
    (17, "blank_text", [HI], [{"role": "user", "content": ""}], {}),
    (17, "blank_text", ANSWERED, run(call(), results=[result(content=[text("")])]), {}),
    (17, "empty_content", [HI], said(), {}),
    (19, "system_message", [HI], [HI, SYSTEM], {"model": OLD}),
    (19, "system_place", [HI, OK, HI, SYSTEM, OK, HI], [*ASKED, SYSTEM, user(result())], {"model": SYSTEM_TAKER}),
    (19, "unknown_role", [HI], [HI, {"role": "tool", "content": "done"}], {}),
    (23, "compaction_place", [assistant(SIGNED), HI], said(SIGNED), {}),
    (23, "compaction_place", [user(SIGNED, text("hi"))], [user(text("hi"), SIGNED)], {}),
    (23, "compaction_place", said(compaction(), text("ok")), said(text("ok"), compaction()), {}),
    (23, "compaction_repeated", [assistant(SIGNED), HI], [assistant(SIGNED), *said(SIGNED)], {}),
    (23, "compaction_empty", [assistant(compaction()), HI], [assistant({**SIGNED, "content": ""}), HI], {}),
    (24, "first_role", [HI], [OK, HI], {}),
    (24, "no_messages", [HI], [], {}),
]


@pytest.mark.parametrize(("rule", "code", "kept", "broken", "options"), RULES, ids=[f"{r[0]}-{r[1]}" for r in RULES])
def test_rule(rule, code, kept, broken, options):
    assert [v for v in check_messages(kept, **options) if v.rule == rule] == []
    assert (rule, code) in {(v.rule, v.code) for v in check_messages(broken, **options)}


def test_all_rules_that_a_smaller_list_can_break_are_in_the_table():
    """Rule 14 takes two lists; what a request may hold, its marks and characters are the judge's alone."""
    assert {rule for rule, *_ in RULES} | {14, 16, 18, 20, 21, 22} == set(range(1, 25))


SHAPES = {
    "unmatched call": ([*ASKED, OK, HI], {"unanswered_call", "alternation"}),
    "unmatched result": ([HI, OK, user(result())], {"uncalled_result"}),
    "a user message between call and result": (
        [*ASKED, user(text("wait")), user(result())],
        {"late_result", "alternation", "split_results"},
    ),
    "the assistant's next message between call and result": ([*ASKED, OK, user(result())], {"alternation"}),
    "both sides of parallel calls split": (
        [HI, assistant(call("a")), assistant(call("b")), user(result("a")), user(result("b"))],
        {"split_results", "alternation"},
    ),
    "duplicate call id": ([*ANSWERED, assistant(call()), user(result())], {"repeated_call", "repeated_result"}),
    "wrong id": ([*ASKED, user(result("toolu_2"))], {"unanswered_call", "uncalled_result"}),
    "a parallel result missing": ([*TWO_CALLS, user(result("a"))], {"unanswered_call"}),
    "parallel results in the wrong order": ([*TWO_CALLS, user(result("b"), result("a"))], {"result_order"}),
}

CONTENT = TypeAdapter(list[anthropic.types.ContentBlock])


def as_sdk_objects(messages):
    """Return messages as people append them, with the list that the SDK gave back as content."""
    return [
        {**message, "content": CONTENT.validate_python(message["content"])}
        if message["role"] == "assistant" and isinstance(message["content"], list)
        else message
        for message in messages
    ]


@pytest.fixture(params=SHAPES)
def malformed(request):
    """Return one of the eight malformed shapes with its codes."""
    return SHAPES[request.param]


@pytest.mark.parametrize("given_as", [list, as_sdk_objects])
def test_malformed_shape_is_named(malformed, given_as):
    messages, codes = malformed
    found = check_messages(given_as(messages))
    assert {violation.code for violation in found} == codes
    assert all(json.dumps(str(violation)) and "\n" not in str(violation) for violation in found)


def test_malformed_shape_still_reads_as_a_history(malformed):
    messages, _ = malformed
    assert [m for turn in read_history(messages).turns for m in range(turn.start, turn.stop)] == list(
        range(len(messages))
    )


def test_what_the_api_mends_can_be_told_apart():
    alternation, order = (
        check_messages([HI, HI])[0],
        check_messages(SHAPES["parallel results in the wrong order"][0])[0],
    )
    assert (alternation.rule, alternation.code, alternation.refused) == (4, "alternation", False)
    assert (order.rule, order.code, order.refused) == (4, "result_order", False)
    assert all(violation.refused for violation in check_messages([OK, *ASKED]) if violation.code != "alternation")


def test_a_violation_is_one_line_with_place_problem_and_cure():
    violation = Violation(17, "messages[2]", "no content", "leave the message out", "empty_content")
    assert str(violation) == "messages[2]: no content; leave the message out (rule 17)"


@pytest.mark.parametrize(
    ("messages", "options"),
    [
        ([HI, assistant(searched()[0])], {}),  # pause_turn: sent back to be continued
        ([HI, assistant(searched()[0]), assistant(searched()[1], text("ok")), HI], {}),
        ([*run(searched()[0], call(), results=[result()]), assistant(searched()[1]), HI], {}),  # code that calls a tool
        ([*ASKED, user(result(content=""))], {}),  # a tool may return nothing
        ([HI, OK, HI, assistant(thought(), call("a")), user(result("a")), assistant(call("b")), user(result("b"))],
         {"model": OLD, "thinking_enabled": True}),  # one loop, thinking at its start
        ([HI, assistant(thought(), text("ok")), HI, assistant(text("so")), HI], {"thinking_enabled": False}),
        ([HI, OK], {"model": "gpt-5"}),
    ],
)  # fmt: skip
def test_unusual_but_valid(messages, options):
    assert [violation for violation in check_messages(messages, **options) if violation.refused] == []


def test_what_is_no_message_is_an_error_with_its_place():
    with pytest.raises(TranscriptError, match=r"messages\[1\]"):
        check_messages([HI, {"role": "user", "content": None}])


@given(histories(splits=False))
def test_generated_histories_are_valid_for_every_model(messages):
    for model in ("", "claude-opus-4-5", "claude-sonnet-5", "gpt-5"):
        assert check_messages(messages, model=model) == []
    assert check_messages(as_sdk_objects(messages)) == []


@given(answered_histories(splits=False))
def test_answered_histories_end_with_the_assistant_and_no_more(messages):
    assert {violation.code for violation in check_messages(messages)} == {"prefill"}
    assert check_messages(messages, model=OLD) == []


@given(histories(min_turns=3, max_turns=6, splits=False))
def test_any_message_left_out_of_a_run_of_calls_is_noticed(messages):
    for at in range(1, len(messages)):
        assert check_messages(messages[:at] + messages[at + 1 :]) != []


def test_make_session_is_valid_and_has_the_turns_asked_for():
    for turns in (1, 2, 30):
        messages = make_session(turns)
        assert check_messages(messages) == []
        assert len(read_history(messages).turns) == turns


def test_shared_transcripts_are_valid_but_for_their_end(shared_transcripts):
    for name, transcript in shared_transcripts:
        found = [violation for violation in check_messages(transcript["messages"]) if violation.code != "prefill"]
        assert found == [], name


@pytest.mark.parametrize(
    ("model", "prefill", "manual", "preserved", "system"),
    [
        ("", False, False, True, True),
        ("claude-3-5-sonnet-20241022", True, True, False, False),
        ("claude-opus-4-20250514", True, True, False, False),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", True, True, False, False),
        ("anthropic/claude-sonnet-4.6", False, False, False, False),
        ("claude-opus-4-8", False, False, False, True),
        ("claude-sonnet-5", False, False, False, False),
        ("claude-sonnet-5-5", False, False, True, True),
        ("claude-fable-5", False, False, False, True),
        ("claude-fable-5-1", False, False, True, True),
        ("claude-opus-5-5", False, False, True, True),
        ("claude-haiku-5-5", False, False, True, True),
        ("claude-next-20270101", False, False, True, True),
        ("my-own-alias", False, False, True, True),
        ("openai/gpt-5-mini", True, False, False, True),
    ],
)
def test_model_family(model, prefill, manual, preserved, system):
    family = model_family(model)
    found = (family.accepts_prefill, family.thinks_manually, family.preserves_thinking, family.takes_system_messages)
    assert found == (prefill, manual, preserved, system)


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}}
CITED = {**text("so"), "citations": [{"type": "char_location", "cited_text": "so"}]}
FOUND = {"type": "search_result", "source": "x", "title": "x", "content": [CITED]}


@pytest.mark.parametrize(
    ("messages", "codes"),
    [
        ([user(DOCUMENT), assistant(CITED), HI], []),
        ([HI, assistant(DOCUMENT), HI], ["assistant_document"]),
        ([user(CITED)], ["user_citations"]),
        ([user(FOUND)], ["user_citations"]),
        ([user({**FOUND, "content": [text("so")], "citations": {"enabled": True}})], []),
    ],
)
def test_documents_are_the_users_and_citations_the_assistants(messages, codes):
    found = check_messages(messages)
    assert [violation.code for violation in found] == codes
    assert all(violation.refused and violation.rule == 25 for violation in found)


PIECES = [
    {"type": "text", "text": "Well."},
    *({"type": "tool_use", "id": call, "name": "Read", "input": {}} for call in "ab"),
    *({"type": "tool_result", "tool_use_id": call, "content": "read"} for call in "ab"),
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
]
CONTENTS = [list(pieces) for length in range(1, 3) for pieces in product(PIECES, repeat=length)]


@pytest.mark.parametrize("roles", [["assistant"], ["user"], *map(list, product(("assistant", "user"), repeat=2))])
def test_messages_that_pair_plainly_break_no_rule_of_calls(roles):
    plain = 0
    for contents in product(CONTENTS, repeat=len(roles)):
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        if pairs_plainly(messages):
            plain += 1
            assert not [one for one in check_messages(messages, rules=CALL_RULES) if one.refused]
    assert plain
