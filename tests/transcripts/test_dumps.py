"""What other libraries and agents dumped comes back as a list that the API takes, every text of it in its place."""

import json
import warnings
from contextlib import suppress

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("langsmith", reason="needs the extra bench")
pytest.importorskip("pydantic_ai", reason="needs the extra bench")

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, messages_to_dict
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langsmith import Client, tracing_context
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic_ai import messages as pa

from applier.adapters.transcripts import FORMATS, read_transcript, to_openai, write_transcript
from applier.testing import Request, judge, say, use
from planner.errors import TranscriptError
from planner.reading.messages import result_text
from tests.openai_server import OpenAIServer

with warnings.catch_warnings():  # it imports a module of its own that it calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from langsmith.wrappers import wrap_anthropic, wrap_openai

WORDS = st.text(alphabet="ab ü\n{", min_size=1, max_size=12).map(lambda text: f"x{text}y")
STEPS = st.lists(
    st.tuples(WORDS, st.lists(st.tuples(st.sampled_from(["read", "run"]), WORDS, WORDS, st.booleans()), max_size=3)),
    max_size=3,
)
TALKS = st.lists(st.tuples(WORDS, STEPS, WORDS), min_size=1, max_size=3)
"""Rounds: what the user said; answers of the model, each with calls (tool, argument, result, whether it failed); the
last answer."""


def numbered(talk):
    """Each round with calls that have ids: (user, [(text, [(id, tool, argument, result, failed)])], last)."""
    ids = iter(range(1, 1000))
    return [
        (user, [(text, [(f"c|{next(ids)}", *call) for call in calls]) for text, calls in steps], last)
        for user, steps, last in talk
    ]


def langchain_messages(talk):
    yield SystemMessage("Be brief.")
    for user, steps, last in numbered(talk):
        yield HumanMessage(user)
        for text, calls in steps:
            yield AIMessage(
                text, tool_calls=[{"id": key, "name": name, "args": {"a": a}} for key, name, a, *_ in calls]
            )
            for key, name, _, result, failed in calls:
                yield ToolMessage(result, tool_call_id=key, name=name, status="error" if failed else "success")
        yield AIMessage(last)


def langchain(talk):
    return messages_to_dict(list(langchain_messages(talk)))


def langchain_dumpd(talk):
    return {"messages": dumpd(list(langchain_messages(talk)))}


def langsmith(talk):
    """The run of the last answer, as LangChain's tracers have it."""
    messages = list(langchain_messages(talk))
    collector = RunCollectorCallbackHandler(_schema_format="original+chat")
    FakeMessagesListChatModel(responses=messages[-1:]).invoke(messages[:-1], config={"callbacks": [collector]})
    return [json.loads(run.model_dump_json()) for run in collector.traced_runs]


def pydantic_ai(talk):
    made = []
    for user, steps, last in numbered(talk):
        prompt = [pa.SystemPromptPart("Be brief.")] if not made else []
        made.append(pa.ModelRequest([*prompt, pa.UserPromptPart(user)], instructions="Be kind."))
        for text, calls in steps:
            uses = [pa.ToolCallPart(name, {"a": a}, key) for key, name, a, *_ in calls]
            made.append(pa.ModelResponse([pa.ThinkingPart("hm"), pa.TextPart(text), *uses]))
            returns = [
                pa.ToolReturnPart(name, result, key, outcome="failed" if failed else "success")
                for key, name, _, result, failed in calls
            ]
            made.append(pa.ModelRequest(returns, instructions="Be kind."))
        made.append(pa.ModelResponse([pa.TextPart(last)]))
    return json.loads(pa.ModelMessagesTypeAdapter.dump_json(made))


def responses(talk):
    items = []
    for user, steps, last in numbered(talk):
        items.append({"role": "user", "content": user})
        for text, calls in steps:
            items += [{"type": "reasoning", "id": "r", "summary": []}, spoken(text)]
            items += [
                ResponseFunctionToolCall(type="function_call", call_id=k, name=n, arguments=json.dumps({"a": a}))
                for k, n, a, *_ in calls
            ]
            items += [{"type": "function_call_output", "call_id": k, "output": r} for k, _, _, r, _ in calls]
        items.append(spoken(last))
    plain = [item if isinstance(item, dict) else item.model_dump(mode="json") for item in items]
    return {"model": "gpt-5.5", "instructions": "Be brief.", "input": plain[:-1], "output": plain[-1:]}


def spoken(text):
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


def gemini(talk):
    contents = []
    for user, steps, last in talk:
        contents.append({"role": "user", "parts": [{"text": user}]})
        for text, calls in steps:
            uses = [{"functionCall": {"name": name, "args": {"a": a}}} for name, a, *_ in calls]
            answers = [
                {"functionResponse": {"name": name, "response": {"error" if failed else "output": result}}}
                for name, _, result, failed in calls
            ]
            contents.append({"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": text}, *uses]})
            contents += [{"role": "user", "parts": answers}] if answers else []
        contents.append({"role": "model", "parts": [{"text": last}]})
    return {"contents": contents, "systemInstruction": {"parts": [{"text": "Be brief."}]}}


def gemini_lines(talk):
    """A session of Gemini CLI: messages come again as they grow; what was rewound is said anew."""
    yield {"sessionId": "s", "projectHash": "p", "startTime": "t"}
    yield {"id": "m0", "type": "user", "content": "taken back"}
    yield {"$rewindTo": "m0"}
    yield {"id": "i", "type": "info", "content": "Update available"}
    ids = iter(range(1, 1000))
    for user, steps, last in numbered(talk):
        yield {"id": f"m{next(ids)}", "type": "user", "content": [{"text": user}]}
        for text, calls in steps:
            message = {"id": f"m{next(ids)}", "type": "gemini", "content": text, "thoughts": [{"subject": "hm"}]}
            yield message
            made = []
            for key, name, argument, result, failed in calls:
                answer = {"id": key, "name": name, "response": {"error" if failed else "output": result}}
                status = {"status": "error" if failed else "success"}
                made.append({"id": key, "name": name, "args": {"a": argument}, **status})
                made[-1]["result"] = [{"functionResponse": answer}]
                yield {**message, "toolCalls": list(made)}
        yield {"id": f"m{next(ids)}", "type": "gemini", "content": last}
        yield {"$set": {"lastUpdated": "t"}}


def gemini_session(talk):
    """The same as one object, as it was stored before."""
    known = {line["id"]: line for line in gemini_lines(talk) if "id" in line and line["id"] != "m0"}
    return {"sessionId": "s", "projectHash": "p", "messages": list(known.values())}


def sharegpt(talk):
    turns = [{"from": "system", "value": "Be brief."}]
    for user, steps, last in talk:
        turns.append({"from": "human", "value": user})
        for text, calls in steps:
            turns.append({"from": "gpt", "value": text})
            for name, argument, result, _ in calls:
                turns.append(
                    {"from": "function_call", "value": json.dumps({"name": name, "arguments": {"a": argument}})}
                )
                turns.append({"from": "observation", "value": result})
        turns.append({"from": "gpt", "value": last})
    return [{"conversations": turns}]


def openhands(talk):
    """A trajectory of version 0."""
    ids = iter(range(1, 1000))
    events = [{"id": 0, "source": "agent", "action": "system", "args": {"content": "Be brief.", "tools": []}}]
    for user, steps, last in talk:
        events.append({"id": next(ids), "source": "user", "action": "message", "args": {"content": user}})
        events.append({"id": next(ids), "source": "environment", "observation": "agent_state_changed", "content": "",
                       "message": "", "extras": {"agent_state": "running"}})  # fmt: skip
        for text, calls in steps:
            events.append({"id": next(ids), "source": "agent", "action": "message", "args": {"content": text}})
            for name, argument, result, failed in calls:
                at = next(ids)
                events.append(
                    {"id": at, "source": "agent", "action": name, "message": "Running", "args": {"a": argument}}
                )
                events.append({"id": next(ids), "source": "agent", "cause": at, "observation": name, "content": result,
                               "extras": {"metadata": {"exit_code": int(failed)}}})  # fmt: skip
        events.append({"id": next(ids), "source": "agent", "action": "finish", "args": {"final_thought": last}})
    return events


def openhands_events(talk):
    """A list of events of version 1."""

    def part(text):
        return {"type": "text", "text": text}

    events = [{"kind": "SystemPromptEvent", "source": "agent", "system_prompt": part("Be brief."), "tools": []}]

    def message(source, role, text):
        events.append(
            {"kind": "MessageEvent", "source": source, "llm_message": {"role": role, "content": [part(text)]}}
        )

    for user, steps, last in numbered(talk):
        message("user", "user", user)
        for text, calls in steps:
            for number, (key, name, argument, _, _) in enumerate(calls):
                call = {"id": key, "name": name, "arguments": json.dumps({"a": argument})}
                events.append({"kind": "ActionEvent", "source": "agent", "thought": [] if number else [part(text)],
                               "tool_name": name, "tool_call_id": key, "tool_call": call})  # fmt: skip
            for key, name, _, result, failed in calls:
                seen = {"kind": "Observation", "content": [part(result)], "is_error": failed}
                events.append({"kind": "ObservationEvent", "source": "environment", "tool_name": name,
                               "tool_call_id": key, "observation": seen})  # fmt: skip
            if not calls:
                message("agent", "assistant", text)
        message("agent", "assistant", last)
    return {"items": events}


def opencode(talk):
    """An export: a message of the agent is all steps to its last answer."""
    messages = []
    for user, steps, last in numbered(talk):
        messages.append({"info": {"role": "user"}, "parts": [{"type": "text", "text": user}]})
        parts = []
        for text, calls in steps:
            parts += [{"type": "step-start"}, {"type": "reasoning", "text": "hm"}, {"type": "text", "text": text}]
            for key, name, argument, result, failed in calls:
                told = {"status": "error", "error": result} if failed else {"status": "completed", "output": result}
                state = {**told, "input": {"a": argument}}
                parts.append({"type": "tool", "callID": key, "tool": name, "state": state})
            parts.append({"type": "step-finish"})
        parts += [{"type": "step-start"}, {"type": "text", "text": last}, {"type": "step-finish"}]
        messages.append({"info": {"role": "assistant"}, "parts": parts})
    return {"info": {"id": "ses_1"}, "messages": messages}


def pi_entries(talk):
    for user, steps, last in numbered(talk):
        yield {"role": "user", "content": user}
        for text, calls in steps:
            thinking, said = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}
            used = [{"type": "toolCall", "id": key, "name": name, "arguments": {"a": a}} for key, name, a, *_ in calls]
            yield {"role": "assistant", "content": [thinking, said, *used]}
            for key, name, _, result, failed in calls:
                content = [{"type": "text", "text": result}]
                told = {"toolCallId": key, "toolName": name, "content": content, "isError": failed}
                yield {"role": "toolResult", **told}
        yield {"role": "assistant", "content": [{"type": "text", "text": last}]}


def pi_list(talk):
    """A session as it was stored before its lines named their parents."""
    head = {"type": "session", "id": "s", "cwd": "/w"}
    lines = ({"type": "message", "message": entry} for entry in pi_entries(talk))
    return "".join(json.dumps(line) + "\n" for line in (head, {"type": "model_change", "modelId": "m"}, *lines))


def pi_tree(talk):
    """A session whose first words were said anew: what hangs on the others is another branch."""
    lines = [{"type": "title", "v": 1, "title": "t"}, {"type": "session", "version": 3, "id": "s", "cwd": "/w"}]
    lines.append({"type": "model_change", "id": "l1", "parentId": None, "modelId": "m"})
    other = {"role": "user", "content": "taken back"}
    lines.append({"type": "message", "id": "other", "parentId": "l1", "message": other})
    for number, entry in enumerate(pi_entries(talk), 2):
        lines.append({"type": "message", "id": f"l{number}", "parentId": f"l{number - 1}", "message": entry})
    return "".join(json.dumps(line) + "\n" for line in lines)


def copilot_cli(talk):
    events = [("session.start", {"sessionId": "s"}), ("system.message", {"role": "system", "content": "Be brief."})]
    for user, steps, last in numbered(talk):
        events.append(("user.message", {"content": user, "transformedContent": f"<datetime/>{user}"}))
        for text, calls in steps:
            asked = [{"toolCallId": key, "name": name, "arguments": {"a": a}} for key, name, a, *_ in calls]
            events.append(("assistant.message", {"content": text, "toolRequests": asked}))
            for key, _, _, result, failed in calls:
                of = {"toolCallId": key}
                events += [("tool.execution_start", of), ("hook.start", {"hookType": "preToolUse"})]
                told = {"error": {"message": result}} if failed else {"result": {"content": result}}
                events.append(("assistant.message", {"parentToolCallId": key, "content": "deep", "toolRequests": []}))
                events.append(("tool.execution_complete", {**of, "success": not failed, **told}))
        events.append(("assistant.message", {"content": last, "toolRequests": []}))
    return "".join(json.dumps({"type": kind, "data": data}) + "\n" for kind, data in events)


FORMS = {
    "langchain": (langchain, langchain_dumpd),
    "langsmith": (langsmith,),
    "pydantic_ai": (pydantic_ai,),
    "responses": (responses,),
    "gemini": (gemini,),
    "gemini_cli": (gemini_session, lambda talk: "".join(json.dumps(line) + "\n" for line in gemini_lines(talk))),
    "sharegpt": (sharegpt,),
    "openhands": (openhands, openhands_events),
    "opencode": (opencode,),
    "pi": (pi_list, pi_tree),
    "copilot_cli": (copilot_cli,),
}
EVERY = [(name, dump) for name, dumps in FORMS.items() for dump in dumps]
each_form = pytest.mark.parametrize(("name", "dump"), EVERY, ids=[f"{name}-{i}" for i, (name, _) in enumerate(EVERY)])
NO_SYSTEM = ("gemini_cli", "opencode", "pi")
"""Forms that do not store the system prompt."""
NO_ERRORS = ("responses", "sharegpt")
"""Forms that do not say whether a call failed."""


def read(dumped):
    return read_transcript(dumped if isinstance(dumped, str) else json.dumps(dumped))


def said(messages, role):
    blocks = [block for message in messages if message["role"] == role for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


@each_form
@settings(max_examples=25)
@given(talk=TALKS)
def test_what_was_dumped_is_a_list_that_the_api_takes_with_every_text_in_its_place(name, dump, talk):
    transcript = read(dump(talk))
    messages = transcript.messages
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [*messages, {"role": "user", "content": "Go on."}]}
    assert judge(Request(body, {})) == ()
    assert (transcript.format.removesuffix("_jsonl"), transcript.warnings) == (name, ())
    assert "Be brief." in str(transcript.system) or name in NO_SYSTEM
    assert said(messages, "user") == [user for user, _, _ in talk]
    answers = [text for _, steps, last in talk for text in (*(text for text, _ in steps), last)]
    assert said(messages, "assistant") == answers
    blocks = [block for message in messages for block in message["content"]]
    calls = [call for _, steps, _ in talk for _, calls in steps for call in calls]
    uses = {block["id"]: (block["name"], block["input"]["a"]) for block in blocks if block["type"] == "tool_use"}
    results = [block for block in blocks if block["type"] == "tool_result"]
    found = [
        (*uses[one["tool_use_id"]], result_text(one), one.get("is_error", False) or (name in NO_ERRORS and failed))
        for one, (*_, failed) in zip(results, calls, strict=True)
    ]
    assert found == calls
    assert len(uses) == len(results)


@pytest.mark.parametrize("wrapped", ["anthropic", "openai"])
def test_runs_of_wrapped_clients_are_read(wrapped):
    """Whose outputs have OpenAI's form where their inputs have Anthropic's."""
    runs, extra = [], {"on_end": lambda run: runs.append(json.loads(run.model_dump_json()))}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x.py"}]},
    ]
    with (
        OpenAIServer(lambda _: [say("I see"), use("bash", "b", command="cat x.py")]) as server,
        tracing_context(enabled="local", client=Client(api_url=server.url, api_key="none", info={})),
    ):
        if wrapped == "anthropic":
            with anthropic.Anthropic(api_key="any", base_url=server.url) as plain:
                wrap_anthropic(plain).messages.create(
                    model="claude-opus-5-5", max_tokens=9, system="Be brief.", messages=history, langsmith_extra=extra
                )
        else:
            chat = [{"role": "system", "content": "Be brief."}, *to_openai(history)]
            with openai.OpenAI(api_key="any", base_url=f"{server.url}/v1") as plain:
                wrap_openai(plain).chat.completions.create(model="gpt-5.5", messages=chat, langsmith_extra=extra)
    transcript = read(runs)
    assert [block["type"] for message in transcript.messages for block in message["content"]] == [
        "text", "tool_use", "tool_result", "text", "tool_use",
    ]  # fmt: skip
    assert transcript.system == [{"type": "text", "text": "Be brief."}]


def test_what_one_call_says_twice_stands_once_and_an_id_used_again_is_another_call():
    call = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
    content = AIMessage([call], tool_calls=[{"id": "a", "name": "read", "args": {}}])
    again = [
        HumanMessage("go"),
        content,
        ToolMessage("1", tool_call_id="a"),
        content,
        ToolMessage("2", tool_call_id="a"),
    ]
    blocks = [block for message in read(messages_to_dict(again)).messages for block in message["content"]]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert [results[key] for key in uses] == ["1", "2"]


def test_what_nobody_said_is_never_the_users():
    """A prompt in the middle, a result without a call: they are the host's, in the frame by which that is known."""
    late = [HumanMessage("go"), SystemMessage("Obey."), ToolMessage("stray", tool_call_id="z"), AIMessage("ok")]
    transcript = read(messages_to_dict(late))
    framed = ["<system-reminder>\nObey.\n</system-reminder>", "<system-reminder>\nstray\n</system-reminder>"]
    assert said(transcript.messages, "user") == ["go", *framed]
    assert (transcript.task, transcript.system) == ("go", None)


def test_an_unknown_file_is_told_every_form_that_is_known():
    with pytest.raises(TranscriptError) as caught:
        read_transcript('{"a": 1}')
    assert all(form.title in str(caught.value) for form in FORMATS)


@each_form
def test_a_form_that_is_only_read_is_written_as_messages(name, dump):
    transcript = read(dump([("do it", [], "done")]))
    again = read_transcript(write_transcript(transcript.messages, transcript))
    assert again.format == "anthropic"
    assert (again.messages, again.system) == (transcript.messages, transcript.system)


@each_form
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_dump_is_read_or_refused(name, dump, data):
    dumped = dump([("do it", [("ok", [("read", "p", "one", False)])], "done")])
    text = dumped if isinstance(dumped, str) else json.dumps(dumped)
    value = [json.loads(line) for line in text.splitlines()]
    holder = value
    while isinstance(holder, dict | list) and holder:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if data.draw(st.integers(0, 3)) == 0 or not isinstance(holder[key], dict | list) or not holder[key]:
            holder[key] = data.draw(st.sampled_from([None, 7, "text", [], {}, [None], [[1]], {"type": 3}]))
            break
        holder = holder[key]
    with suppress(TranscriptError):
        read_transcript("\n".join(map(json.dumps, value)).encode())


def test_of_a_session_of_pi_is_read_what_the_model_was_told_and_nothing_that_it_was_not():
    head, *lines = pi_tree([("go", [], "done")]).splitlines()
    shell = {"role": "bashExecution", "command": "env", "output": "A=1", "excludeFromContext": True}
    told = [
        {"type": "custom_message", "customType": "x", "content": "Lint is on.", "display": True},
        {"type": "branch_summary", "summary": "Another way failed."},
        {"type": "custom", "customType": "x", "data": {"count": 1}},
        {"type": "message", "message": shell},
        {"type": "message", "message": {**shell, "excludeFromContext": False}},
    ]
    known = len(lines)
    lines += [json.dumps({**line, "id": f"t{at}", "parentId": f"t{at - 1}"}) for at, line in enumerate(told)]
    lines[known] = lines[known].replace("t-1", json.loads(lines[known - 1])["id"])
    words = ("Lint is on.", "Another way failed.", "The user ran `env`:\nA=1")
    framed = [f"<system-reminder>\n{text}\n</system-reminder>" for text in words]
    assert said(read("\n".join([head, *lines])).messages, "user") == ["go", *framed]


def test_a_log_that_only_begins_as_a_session_of_pi_is_not_read_as_an_empty_one():
    lines = ({"type": "session", "id": "s", "cwd": "/w"}, {"type": "user/message", "content": "go"})
    with pytest.raises(TranscriptError):
        read("\n".join(map(json.dumps, lines)))


def test_the_images_of_openhands_are_images():
    url = "https://example.org/a.png"
    old = {"id": 1, "source": "user", "action": "message", "args": {"content": "Look.", "image_urls": [url, url]}}
    parts = [{"type": "text", "text": "Look."}, {"type": "image", "image_urls": [url, url]}]
    new = {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": parts}}
    image = {"type": "image", "source": {"type": "url", "url": url}}
    for event in (old, new):
        (message,) = read([event]).messages
        assert message["content"] == [{"type": "text", "text": "Look."}, image, image]


def test_the_context_that_gemini_cli_sends_first_is_the_hosts():
    context = "<session_context>\nThis is the Gemini CLI. We are setting up the context.\n</session_context>"
    told = "Explain <session_context> to me."
    entries = [{"id": str(at), "type": "user", "content": [{"text": text}]} for at, text in enumerate((context, told))]
    answer = {"id": "9", "type": "gemini", "content": "It is a tag."}
    session = {"sessionId": "s", "projectHash": "p", "messages": [*entries, answer]}
    transcript = read_transcript(json.dumps(session))
    assert transcript.task == told
    assert transcript.messages[0]["content"][0]["text"].startswith("<system-reminder>")


def test_the_system_prompt_of_copilot_is_none_of_the_users_words_however_often_it_is_logged():
    def event(kind, **data):
        return {"type": kind, "data": data}

    events = [event("session.start", sessionId="s")]
    for number in range(3):
        events.append(event("user.message", content=f"question {number} of three"))
        events.append(event("system.message", content=f"You are Copilot, version {number}."))
        events.append(event("assistant.message", content=f"answer {number}", toolRequests=[]))
    transcript = read_transcript("\n".join(map(json.dumps, events)))
    assert said(transcript.messages, "user") == [f"question {number} of three" for number in range(3)]
    assert transcript.system == [{"type": "text", "text": "You are Copilot, version 2."}]


def test_a_tool_return_of_an_older_pydantic_ai_has_not_failed():
    entries = pydantic_ai([("hello", [("I look.", [("read", "a.py", "found", False)])], "done")])
    for part in (part for entry in entries for part in entry["parts"]):
        part.pop("outcome", None)
    blocks = [block for message in read(entries).messages for block in message["content"]]
    (result,) = [block for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]
    assert not result.get("is_error")
