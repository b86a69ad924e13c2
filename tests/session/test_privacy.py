"""What a session keeps and hands out: its own originals only, and nothing of them once they are forgotten."""

import sqlite3
from contextlib import closing

import pytest

from applier.adapters.agent_tools import handle_tool_use
from applier.session import PRESETS
from applier.store import open_store
from applier.store.records import unpack
from planner.errors import ReferenceNotFound
from tests.session.agent import Agent
from tests.strategies import make_session

SECRET = "x7Gq-not-to-be-found"
DIGEST_BYTES = 32


def told(history, secret):
    """`history` in which the user, the agent, a call and a result name `secret`."""
    history[0]["content"] += f"\nNever print {secret}."
    for message in history[1:]:
        for block in message["content"]:
            if block["type"] == "text":
                block["text"] += f" {secret}"
            elif block["type"] == "tool_use":
                block["input"] = {**block["input"], "note": secret}
            else:
                block["content"] = f"{secret}\n{block['content']}\nlast line of {secret}"
    return history


def bodies_with(path, secret):
    """What a store's records hold of `secret`, as it stands in the file: compressed, mostly."""
    with closing(sqlite3.connect(path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM records WHERE body != x''")]
    return [body[DIGEST_BYTES:] for body in bodies if secret.encode() in unpack(body, "record")]


def test_a_session_hands_out_its_own_and_no_other_conversation(store, session_of):
    other = session_of("another task")
    theirs = Agent(other).play(told(make_session(16), SECRET))
    other.compact(theirs.messages)
    foreign = {stored.key for stored in store.histories()}
    session = session_of()
    agent = Agent(session).play(make_session(16))
    session.compact(agent.messages)
    for key in foreign:
        for reference in (f"{key}:t1", f"{key}:t2", f"{key[:6]}:t1"):
            with pytest.raises(ReferenceNotFound) as refused:
                session.restore(reference)
            assert SECRET not in str(refused.value)
            others = str(refused.value).replace(key, "")
            assert not [name for name in foreign if name in others]
            call = {"type": "tool_use", "id": "toolu_7", "name": "restore_context", "input": {"reference": reference}}
            result = handle_tool_use(session, call)
            assert result["is_error"]
            assert SECRET not in str(result)
    assert session.restore("t1").text


SECRETS = f"ghp_{'aB3dE5gH7j' * 4}", f"sk-ant-api03-{'aB3dE5gH7j' * 4}-_AA", "hunter22xyz"


def leaky():
    """A session in which the user, the agent, calls and failures spell out secrets."""
    history = make_session(16)
    history[0]["content"] += f"\nAlways push with {SECRETS[0]}.\nexport DB_PASSWORD={SECRETS[2]}"
    for message in history[1::6]:
        message["content"][0]["text"] += f" We decided to use {SECRETS[1]} as the key."
    for message in history[2::4]:
        said = f"Error: login failed for {SECRETS[1]}\nDB_PASSWORD={SECRETS[2]} refused"
        message["content"][0]["content"] = f"{said}\n{message['content'][0]['content']}"
    return history


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"off"}))
def test_secrets_stand_in_originals_only_and_nowhere_once_these_are_forgotten(tmp_path, session_of, preset, caplog):
    caplog.set_level(0)
    folder = tmp_path / "kept"
    with open_store(folder / "store.db") as store:
        session = session_of(f"push with {SECRETS[0]}", preset=preset, window_tokens=6_000, store=store)
        agent = Agent(session).play(told(leaky(), SECRET))
        session.compact(agent.messages, focus=f"{SECRETS[1]} {SECRET}")
        assert session.state.compactions >= 2
        keys = [stored.key for stored in store.histories()]
        plans = [store.load_plan(plan).to_json() for key in keys for plan in store.plans(key)]
        facts = [str(store.facts(key)) for key in keys]
        assert plans or preset != "relevance"
        for text in (*plans, *facts, str(session.log()), str(store.events()), str(session.state), caplog.text):
            assert not [secret for secret in SECRETS if secret in text]
        assert SECRETS[1] in str(session.restore("t2").text)
        session.close()
        kept = bodies_with(folder / "store.db", SECRET)
        assert kept
        while histories := store.histories():
            assert store.forget(histories[0].key) == []
        for whole in [file.read_bytes() for file in folder.iterdir()]:
            assert not [secret for secret in (SECRET, *SECRETS) if secret.encode() in whole]
            assert not [body for body in kept if body in whole]
