"""No credential that a session holds is readable in what the store keeps to be read, in all channels."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier import apply
from applier.plan_review import reviewed
from applier.store import open_store
from planner import plan_compaction
from planner.plan import CompactionPlan
from planner.reading.messages import read_history
from planner.reading.secrets import MARK, Secrets, quoted, redact, secrets_in
from tests.bench.credentials import MOST_READABLE, leaks, session_with
from tests.credentials import FORMS, made
from tests.hunt.cut_secrets_hunt import LINES, WRAPPED, readable

CONTEXTS = [
    "{}",
    "<user-words>{}</user-words>",
    "please use {} for it",
    "run:\n{}\nthen go on",
    'export X="{}"',
    "{{'key': '{}'}}",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_unreadable_wherever_it_stands(form):
    for seed in range(3):
        secret, parts = made(form, seed)
        assert not [context for context in CONTEXTS if readable(parts, redact(context.format(secret)))]


@given(st.sampled_from(FORMS), st.sampled_from(list(WRAPPED)), st.integers(0, 99))
def test_no_form_is_readable_behind_marks_numbers_and_escapes(form, way, seed):
    secret, parts = made(form, seed)
    shown = redact(f"see this\n{WRAPPED[way](secret, Random(seed))}\nand go on")
    assert readable(parts, redact(secret)) or not readable(parts, shown)


def _cut(lines, cuts):
    ends = sorted({*cuts, len(lines)})
    return ["\n".join(lines[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


@given(
    st.sampled_from(LINES),
    st.sampled_from(list(WRAPPED)),
    st.integers(0, 99),
    st.sets(st.integers(1, 4)),
    st.integers(0, 3),
)
def test_no_line_of_a_key_is_readable_however_it_is_cut(form, way, seed, cuts, depth):
    """Each piece as an argument of one call or a block of one result, as deep in JSON as that may be."""
    secret, parts = made(form, seed)
    pieces = _cut(WRAPPED[way](secret, Random(seed)).split("\n"), cuts)
    for _ in range(depth):
        pieces = [json.dumps({"content": piece}) for piece in pieces]
    blocks = [{"type": "text", "text": piece} for piece in pieces]
    arguments = {"id": "toolu_01AbCdEfGhIjKl2mNoP", "input": {f"part_{at}": [piece] for at, piece in enumerate(pieces)}}
    for data in (blocks, arguments):
        clean = redact(data)
        assert not readable(parts, json.dumps(clean))
        assert [*clean[0]] == ["type", "text"] if data is blocks else clean["id"] == arguments["id"]


@given(st.sampled_from(LINES), st.integers(0, 99), st.integers(1, 4))
def test_what_stands_beside_a_key_that_was_cut_off_stays(form, seed, cut):
    secret, _ = made(form, seed)
    lines = secret.split("\n")
    begun, ended = "\n".join(lines[:-cut]), "\n".join(lines[cut:])
    shown = redact(f"before that word\n{ended}\nthen srcFoo9 goes on\n{begun}\nand this, barBaz7, stays")
    for kept in ("before that word\n", "\nthen srcFoo9 goes on\n", "\nand this, barBaz7, stays"):
        assert kept in shown


@given(st.sampled_from(FORMS), st.integers(0, 99), st.integers(0, 400), st.integers(0, 400))
def test_no_piece_of_a_secret_is_readable_however_a_text_with_it_is_cut(form, seed, start, stop):
    secret, parts = made(form, seed)
    whole = f"take this and go on: {secret} and go on with this"
    known = Secrets(secrets_in([{"role": "user", "content": whole}]))
    for cut in (whole[start:], whole[:stop], whole[start : start + stop], "\n7| ".join((whole[:stop], whole[stop:]))):
        assert not readable(parts, redact(cut, known))


def test_words_and_numbers_of_a_secret_stay_elsewhere():
    known = Secrets(["mycompany-production-20260101-q9Xw8Ev7Rb6T", "open sesame"])
    text = "mycompany moved production on 20260101; open the door"
    assert redact(text, known) == text
    assert redact("production-20260101-q9Xw8E… and open sesame", known) == f"{MARK}… and {MARK}"


def test_pictures_and_sealed_fields_hold_no_secrets():
    source = {"type": "base64", "media_type": "image/png", "data": "ghp_" + "aB3dE5gH7jK9" * 3}
    thinking = {"type": "thinking", "thinking": "", "signature": "ghp_" + "aB3dE5gH7jK9" * 3}
    assert not secrets_in([{"role": "user", "content": [{"type": "image", "source": source}, thinking]}])


@pytest.mark.real
@pytest.mark.parametrize("forms", [FORMS[::11], pytest.param(FORMS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_nearly_no_form_is_readable_in_what_is_kept_shown_logged_or_sent(forms):
    """One value of each form: which channel shows it depends on no value."""
    readable_forms = set().union(*leaks(seed=0, forms=forms).values())
    assert len(readable_forms) <= len(forms) * MOST_READABLE, readable_forms


def test_a_plan_from_disk_keeps_demands_with_secrets_and_gives_the_same_view():
    messages = session_with([made(form, 1)[0] for form in FORMS[:9]])
    plan = plan_compaction(messages, "Deploy", planner="rules", target_ratio=0.4)
    loaded = CompactionPlan.from_json(plan.to_json())
    review = reviewed(loaded, messages)
    assert MARK in plan.to_json()
    assert review.plan.findings == plan.findings
    assert len(review.plan.extracted_facts) == len(plan.extracted_facts)
    assert apply(loaded, messages) == apply(plan, messages)


@given(st.sampled_from(FORMS), st.integers(0, 9))
def test_an_error_quotes_no_secret(form, seed):
    secret, parts = made(form, seed)
    assert not readable(parts, quoted(secret, 400))
    assert not readable(parts, quoted({"kind": f"take this:\n{secret}"}, 400))


def test_a_text_under_a_secrets_name_goes_from_what_a_call_says(tmp_path):
    call = {"type": "tool_use", "id": "toolu_1", "name": "login", "input": {"user": "bob", "password": "open sesame"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    messages = [
        {"role": "user", "content": "Log in."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    with open_store(tmp_path / "store.db", redact_originals=True) as store:
        kept = store.load_history(store.save_history(read_history(messages))).messages[1]["content"][0]
    assert kept["input"] == {"user": "bob", "password": "[secret]"}
