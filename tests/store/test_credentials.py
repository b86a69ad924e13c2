"""No credential that a session holds is readable in what the store keeps to be read: 71 forms in all channels."""

import json

import pytest

from applier import apply
from applier.session import Session
from applier.store import open_store
from applier.store.secrets import redact
from planner import plan_compaction
from planner.reading.history import read_history
from tests.credentials import FORMS, made
from tests.strategies import text

LEAST_UNREADABLE = 68
CONTEXTS = ["{}", "please use {} for it", "run:\n{}\nthen go on", 'export X="{}"', "{{'key': '{}'}}"]


def readable(parts, shown):
    """The parts of which eight characters in a row can be read in `shown`."""
    return [part for part in parts if any(part[at : at + 8] in shown for at in range(0, max(1, len(part) - 7), 4))]


@pytest.mark.parametrize("seed", range(4))
def test_nearly_every_form_is_unreadable_wherever_it_stands(seed):
    leaks = set()
    for form in FORMS:
        secret, parts = made(form, seed)
        leaks |= {form for context in CONTEXTS if readable(parts, redact(context.format(secret)))}
    assert len(FORMS) - len(leaks) >= LEAST_UNREADABLE, leaks


def session_with(secrets):
    """An agent that was given secrets, repeats them, calls with them and fails with them."""
    messages = [{"role": "user", "content": "Deploy the service. Never print a credential."}]
    for number, secret in enumerate(secrets):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": secret}}
        failed = {"type": "tool_result", "tool_use_id": call["id"], "content": f"Error: refused\n{secret}\nexit code 1"}
        messages += [
            {"role": "assistant", "content": [text(f"I use this now:\n{secret}"), call]},
            {"role": "user", "content": [{**failed, "is_error": True}, text(f"You must use this:\n{secret}\nonly.")]},
        ]
    return [*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]


@pytest.mark.real
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("redact_originals", [False, True])
def test_nearly_no_form_is_readable_in_what_the_store_keeps(tmp_path, seed, redact_originals):
    secrets = {form: made(form, seed) for form in FORMS}
    messages = session_with([secret for secret, _ in secrets.values()])
    with open_store(tmp_path / "store.db", redact_originals=redact_originals) as store:
        apply(plan_compaction(messages, "Deploy the service", planner="rules", target_ratio=0.5), store=store)
        session = Session("Deploy the service", store=store, planner="rules", window_tokens=8_000)
        session.prepare(messages)
        assert session.state.compactions
        kept = [json.dumps(event) for event in store.events()]
        for stored in store.histories():
            kept += (store.load_plan(plan).model_dump_json() for plan in store.plans(stored.key))
            kept += (fact.model_dump_json() for fact in store.facts(stored.key))
            if redact_originals:
                kept += map(json.dumps, store.load_history(stored.key).messages)
        shown = "\n".join(kept)
    assert "[secret]" in shown
    leaks = {form for form, (_, parts) in secrets.items() if readable(parts, shown)}
    assert len(FORMS) - len(leaks) >= LEAST_UNREADABLE, leaks


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
