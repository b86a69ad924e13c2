"""A session's planner asks where its agent asks, whatever the environment holds for other hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.frameworks.anthropic_middleware import CompactionMiddleware
from applier.session import Session
from applier.settings import SessionSettings
from planner.model import ModelPlanner
from tests.hosts import hosts, talk

OPERATOR, AGENT, PLANNER, EXTRA = "sk-ant-operator-1", "sk-ant-agent-2", "sk-ant-planner-3", "extra-header-4"
MODEL = "claude-opus-5-5"
MARKED = {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}


def ask(client: Any, messages: list[dict[str, Any]]) -> None:
    client.messages.create(model=MODEL, max_tokens=99, messages=messages, extra_headers={"x-extra": EXTRA})


def ask_all(url: str, middleware: CompactionMiddleware, lists: list[list[dict[str, Any]]], *, is_async: bool) -> None:
    """Send the lists, one after the other, with one client."""
    options = {"api_key": AGENT, "base_url": url, "middleware": [middleware], "max_retries": 0}
    if not is_async:
        with anthropic.Anthropic(**options) as client:
            for messages in lists:
                ask(client, messages)
        return

    async def run() -> None:
        async with anthropic.AsyncAnthropic(**options) as client:
            for messages in lists:
                headers = {"x-extra": EXTRA}
                await client.messages.create(model=MODEL, max_tokens=99, messages=messages, extra_headers=headers)

    asyncio.run(run())


@pytest.mark.real
@settings(max_examples=10)
@given(
    planner=st.sampled_from(("auto", "model", "object")),
    has_client=st.booleans(),
    model=st.sampled_from(("", MODEL, "anthropic/claude-haiku-5-5")),
    is_async=st.booleans(),
    is_marked=st.booleans(),
)
def test_the_planner_asks_where_the_agent_does_unless_another_place_is_named(
    planner, has_client, model, is_async, is_marked, tmp_path_factory
):
    long = talk("for-the-agent-s-host-only")
    longer = [*long, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [MARKED]}]
    longer[-3] = {"role": "user", "content": [MARKED]} if is_marked else long[-1]
    with hosts(3) as (agents, planners, public), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", OPERATOR)
        patch.setenv("ANTHROPIC_BASE_URL", public.url)
        client = anthropic.Anthropic(api_key=PLANNER, base_url=planners.url) if has_client else None
        chosen = ModelPlanner(client=client, model=model or None) if planner == "object" else planner
        session = Session(
            planner=chosen,
            client=client,
            store=tmp_path_factory.mktemp("store") / "store.db",
            settings=SessionSettings(window_tokens=8_000, planner_model=model, background=False),
        )
        with session:
            lists = [long, longer, longer]
            ask_all(agents.url, CompactionMiddleware(session), lists[:2], is_async=is_async)
            session.request_compaction()
            ask_all(agents.url, CompactionMiddleware(session), lists[2:], is_async=is_async)
        if client is not None:
            client.close()
    named = model.startswith("anthropic/") and not has_client
    assert bool(planners.arrivals) == has_client
    assert bool(public.arrivals) == named
    assert not {OPERATOR, PLANNER} & set(secrets_in(agents.read))
    assert secrets_in(planners.read) in ([], [PLANNER])
    assert secrets_in(public.read) in ([], [OPERATOR])


def secrets_in(text: str) -> list[str]:
    return [secret for secret in (OPERATOR, AGENT, PLANNER, EXTRA) if secret in text]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_agent_s_own_client_is_asked_once_it_is_known(is_async, tmp_path, monkeypatch):
    first = talk("first", 3)
    with hosts(2) as (agents, public):
        monkeypatch.setenv("ANTHROPIC_API_KEY", OPERATOR)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", public.url)
        given = SessionSettings(window_tokens=8_000, background=False)
        with Session(store=tmp_path / "store.db", settings=given) as session:
            lists = [first, [*first, {"role": "assistant", "content": "ok"}, *talk("then")]]
            ask_all(agents.url, CompactionMiddleware(session), lists, is_async=is_async)
            planned = session.state.planned
    assert not public.arrivals
    assert agents.questions
    assert all(AGENT in question.headers for question in agents.questions)
    assert planned[0].planner == "claude-haiku-5-5"
