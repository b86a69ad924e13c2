"""The client's rows and the API's messages say the same, either way."""

from hypothesis import given
from hypothesis import strategies as st

from applier.adapters.claude_code_mod.rows import Row, read_rows, rows_of
from tests.mod.transcript import Rows, read_by_model
from tests.strategies import histories, image
from tests.viewed import refusals


def read(rows, api=()):
    return read_rows([Row.model_validate(row) for row in rows], api)


@given(histories(min_turns=2, max_turns=8))
def test_messages_are_what_the_transcript_says(history):
    rows = Rows(history)
    assert read_by_model(read(rows.rows, rows.sent).messages) == read_by_model(rows.sent)


@given(histories(min_turns=2, max_turns=8), st.booleans())
def test_rows_given_back_say_what_the_messages_say(history, thinking):
    rows = Rows(history)
    transcript = read(rows.rows, rows.sent)
    before = read_by_model(rows.sent)
    rows._replace(list(rows_of(transcript.messages, transcript, thinking=thinking)))
    assert read_by_model(rows.sent) == before
    thought = [block for message in rows.sent for block in message["content"] if "thinking" in block["type"]]
    assert thinking or not thought


ROWS = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant"))},
    optional={
        "text": st.sampled_from(("", "  ", "words", "more\nwords")),
        "toolUses": st.lists(
            st.fixed_dictionaries({"tool_use_id": st.sampled_from("abc"), "tool": st.just("Bash")}), max_size=2
        ),
        "toolResults": st.lists(
            st.fixed_dictionaries({"tool_use_id": st.sampled_from("abc"), "text": st.just("out")}), max_size=2
        ),
    },
)  # fmt: skip


@given(st.lists(ROWS, max_size=8))
def test_a_call_has_its_result_unless_it_still_waits_for_it(rows):
    transcript = read(rows)
    messages = transcript.messages
    late = [{"type": "tool_result", "tool_use_id": name, "content": "late"} for name in transcript.open_calls]
    if late and messages[-1]["role"] == "user":
        messages[-1]["content"] += late
    elif late:
        messages.append({"role": "user", "content": late})
    assert [one for one in refusals(messages) if one.rule in (1, 2, 3, 4, 17)] == []


def test_what_a_person_pastes_goes_back_as_it_was():
    pasted = {"role": "user", "content": [image(3, 2), {"type": "text", "text": "this window"}]}
    rows = Rows([pasted, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "and?"}])
    transcript = read(rows.rows, rows.sent)
    assert transcript.messages[0]["content"] == pasted["content"]
    given_back = list(rows_of(transcript.messages, transcript))
    assert given_back[0] == {"handle": "row-0"}
    assert [row["text"] for row in given_back[1:]] == ["ok", "and?"]
    without = list(rows_of([{"role": "user", "content": [image(9, 9)]}], transcript))
    assert [row["text"] for row in without] == ["[image 9x9]"]
