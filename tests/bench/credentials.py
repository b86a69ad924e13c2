"""Credentials that can be read in what is kept, shown, logged or sent: ``python -m tests.bench.credentials``.

Each form of `tests.credentials` is in the words, calls and failed results of an agent, and is looked for by any eight
characters in a row. With TRANSCRIPTS: how many of their lines the redaction touches, for each to be judged by a reader.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import httpx

from applier import apply
from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.transcripts import read_transcript
from applier.plan_review import reviewed
from applier.receipt import forecast
from applier.session import Session
from applier.store import open_store
from applier.web.reviews import ReviewPage, Revision
from planner import plan_compaction
from planner.errors import CompactorError
from planner.model.prompts import load_prompts
from planner.model.question import QuestionBasis, plan_questions
from planner.reading.messages import strings_in
from planner.reading.secrets import redact
from tests.credentials import FORMS, made
from tests.hosts import hosts
from tests.hunt.cut_secrets_hunt import readable
from tests.model.sample import plan_request
from tests.strategies import text

MOST_READABLE, MOST_TOUCHED = 0.03, 0.001
"""Most forms that may be readable somewhere, and most ordinary lines that may be touched, as shares."""
_TASK = "Deploy the service"


def session_with(secrets: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages of an agent that gets secrets, repeats them, calls with them and fails with them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Deploy the service. Never print a credential."}]
    for number, secret in enumerate(secrets):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": secret}}
        failed = {"type": "tool_result", "tool_use_id": call["id"], "content": f"Error: refused\n{secret}\nexit code 1"}
        messages += [
            {"role": "assistant", "content": [text(f"I use this now:\n{secret}"), call]},
            {"role": "user", "content": [{**failed, "is_error": True}, text(f"You must use this:\n{secret}\nonly.")]},
        ]
    return [*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]


def leaks(seed: int, size: int = 30, forms: Sequence[str] = FORMS) -> dict[str, set[str]]:
    """Return those of `forms` that are readable in each channel, with `size` of them in one conversation."""
    found: dict[str, set[str]] = {}
    for start in range(0, len(forms), size):
        some = forms[start : start + size]
        secrets = {form: made(form, seed) for form in some}
        for channel, shown in _channels(session_with([secret for secret, _ in secrets.values()])):
            leaking = found.setdefault(channel, set())
            leaking |= {form for form in some if readable(secrets[form][1], shown)}
    return found


def _channels(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield all that is kept, shown, logged or sent about `messages`, by channel."""
    plan = plan_compaction(messages, _TASK, planner="rules", target_ratio=0.4)
    review = reviewed(plan, messages)
    page = ReviewPage(plan, messages, {}, save=dict, apply=dict, replan=lambda _: plan)
    yield "plan file", plan.to_json()
    yield "review", "\n".join((review.plan.review(), review.plan.review(10**6, whole=True)))
    yield "review as JSON", json.dumps(review.to_json())
    yield "page", json.dumps([page.page(), page.check(Revision())])
    yield "receipt", forecast(plan, "")
    prompts = load_prompts()
    questions = plan_questions(QuestionBasis.of(plan_request(messages)), prompts)[0]
    yield "prompts", "\n".join(question.text(prompts) for question in questions)
    for redacts in (False, True):
        yield from _stored(messages, redacts=redacts)
    with _logged() as lines:
        _talk(messages)
    yield "proxy's log", "\n".join(lines)
    yield "errors", "\n".join(_errors(messages))


def _stored(messages: list[dict[str, Any]], *, redacts: bool) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "s.db"), redact_originals=redacts) as store:
        apply(plan_compaction(messages, _TASK, planner="rules", target_ratio=0.5), store=store)
        with Session(_TASK, store=store, planner="rules", window_tokens=2_000) as session:
            session.prepare(messages)
        for stored in store.histories():
            plans = [store.load_plan(plan) for plan in store.plans(stored.key)]
            yield "stored plans", "\n".join(plan.model_dump_json() for plan in plans)
            yield "stored facts", "\n".join(fact.model_dump_json() for fact in store.facts(stored.key))
            if redacts:
                yield "redacted originals", json.dumps(list(store.load_history(stored.key).messages))
        yield "events", "\n".join(map(json.dumps, store.events()))


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Yield the lines that all loggers write meanwhile, at every level."""
    lines = list[str]()
    handler, root = logging.Handler(), logging.getLogger()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _talk(messages: Sequence[Mapping[str, Any]]) -> None:
    """Send a conversation through a proxy, which compacts it."""
    session = {"window_tokens": 4_000, "planner": "rules"}
    with tempfile.TemporaryDirectory() as folder, hosts(1) as (upstream,):
        settings = ProxySettings(upstreams=Upstreams(upstream.url), store=f"{folder}/s.db", session=session)
        with ProxyServer(settings) as proxy:
            for end in (3, len(messages)):
                body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": messages[:end]}
                httpx.post(f"{proxy.url}/v1/messages", json=body, headers={"x-api-key": "loopback"}, timeout=120)


def _errors(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the errors for transcripts that have one of the texts where something else is expected."""
    for value in strings_in([message["content"] for message in messages]):
        wrong = ({"role": value, "content": "x"}, {"role": "user", "content": [{"kind": value}]})
        glued = f'{{"role": "user", "content": "a"}}\n{{"a": {value}}}'
        for document in (*map(json.dumps, wrong), f"[{value}]", glued):
            try:
                read_transcript(document)
            except (CompactorError, ValueError) as error:
                yield str(error)


@click.command
@click.argument("transcripts", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--seed", default=1, show_default=True)
def _main(transcripts: tuple[Path, ...], seed: int) -> None:
    """Print how many forms are readable in each channel, and the touched lines of TRANSCRIPTS."""
    found = leaks(seed)
    for channel, forms in found.items():
        click.echo(f"{channel:20} {len(forms):3} of {len(FORMS)} readable  {'  '.join(sorted(forms))[:200]}")
    touched = lines = 0
    for path in transcripts:
        for line in "\n".join(strings_in([m["content"] for m in read_transcript(path).messages])).split("\n"):
            lines += 1
            if (shown := redact(line)) != line:
                touched += 1
                click.echo(f"{path.name}: {shown[:150]}")
    if lines:
        click.echo(f"{touched} of {lines:,} lines touched")
    readable_forms = set[str]().union(*found.values())
    click.echo(f"{len(readable_forms)} of {len(FORMS)} readable anywhere")
    sys.exit(len(readable_forms) > len(FORMS) * MOST_READABLE or touched > lines * MOST_TOUCHED)


if __name__ == "__main__":
    _main()
