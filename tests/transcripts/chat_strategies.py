"""OpenAI chat histories as Hypothesis strategies: what the API and its clients send, odd forms included."""

import json

from hypothesis import strategies as st

words = st.sampled_from(["", " ", "plain words", "two\nlines", "Größe 😀", "half a \ud83d pair", '"quoted"', "\u2028"])
json_objects = st.sampled_from(
    [{}, {"a": 1}, {"a": 1.0, "b": None}, {"ä": ["\ud83d", {"b": True}]}, {"n": 10**30, "f": 1e-9}, {"arguments": "{"}]
)
styles = st.sampled_from(
    [{}, {"separators": (",", ":")}, {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 2}]
)


@st.composite
def arguments(draw):
    """The arguments text of a call: JSON of any style, or what a model writes when it slips."""
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from(["", "{", "[1]", '"x"', "null", '{"a":1,"a":2}', '{"n":1e999}', '{"n":NaN}', '{"n":1.10}'])
        )
    return json.dumps(draw(json_objects), **draw(styles))


text_parts = st.fixed_dictionaries({"type": st.just("text"), "text": words})
image_parts = st.fixed_dictionaries(
    {
        "type": st.just("image_url"),
        "image_url": st.fixed_dictionaries(
            {
                "url": st.sampled_from(
                    ["https://example.org/a.png", "data:image/png;base64,AAAA", "data:image/svg+xml,<svg/>"]
                )
            },
            optional={"detail": st.sampled_from(["auto", "low", "high"])},
        ),
    }
)
other_parts = st.sampled_from(
    [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "something_new", "value": [1, None]},
    ]
)
refusal_parts = st.fixed_dictionaries({"type": st.just("refusal"), "refusal": words})
user_contents = words | st.lists(text_parts | image_parts | other_parts, max_size=3)
names = {"name": st.sampled_from(["ann", "bob"])}

systems = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer"]), "content": words | st.lists(text_parts, max_size=2)},
    optional=names,
)
users = st.fixed_dictionaries({"role": st.just("user"), "content": user_contents}, optional=names)
answers = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": words | st.none() | st.lists(text_parts | refusal_parts, max_size=2)},
    optional={
        **names,
        "refusal": st.none() | words,
        "annotations": st.just([]),
        "audio": st.none(),
        "tool_calls": st.none() | st.just([]),
    },
)


@st.composite
def calls(draw, key):
    """One tool call with id `key`."""
    if draw(st.integers(0, 5)) == 0:
        return {"id": key, "type": "custom", "custom": {"name": "sql", "input": draw(words)}}
    call = {"id": key, "function": {"name": draw(st.sampled_from(["read", "run"])), "arguments": draw(arguments())}}
    return {**call, **draw(st.sampled_from([{"type": "function"}, {"type": "function", "index": 0}, {}]))}


@st.composite
def rounds(draw):
    """An assistant message with parallel calls, and the tool messages that answer them, in any order."""
    keys = [f"call_{i}" for i in range(draw(st.integers(1, 3)))]
    optional = {**names, "refusal": st.none(), "reasoning_content": words}
    message = draw(
        st.fixed_dictionaries(
            {"role": st.just("assistant"), "tool_calls": st.tuples(*map(calls, keys)).map(list)},
            optional={"content": words | st.none() | st.lists(text_parts, max_size=2), **optional},
        )
    )
    tool = st.fixed_dictionaries(
        {"role": st.just("tool"), "content": words | st.lists(text_parts, max_size=2)}, optional=names
    )
    results = [{**draw(tool), "tool_call_id": key} for key in draw(st.permutations(keys))]
    return [message, *results]


@st.composite
def histories(draw):
    """A whole chat history."""
    head = draw(st.lists(systems, max_size=2))
    body = draw(st.lists(rounds() | st.tuples(users | answers | systems).map(list), max_size=6))
    return [*head, *(message for stretch in body for message in stretch)]
