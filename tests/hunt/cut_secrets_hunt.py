"""Hunts for a credential whose value is in pieces and readable in what is kept to be read, or sent to a planner.

Lines of a key behind what viewers, diffs and mails put before them, escaped in JSON, over blocks of one result or over
a call's arguments; and values behind and before so many words that a card, a brief or a fact cuts them anywhere. Only
forms are drawn that the redaction knows when they are alone: the hunt is for the splitting. What `tests.credentials`
made is read back by any eight characters in a row.
"""

import json
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

from applier import apply
from applier.session import Session
from applier.store import open_store
from planner import plan_compaction
from planner.model.prompts import load_prompts
from planner.model.question import QuestionBasis, plan_questions
from planner.reading.secrets import redact
from tests.credentials import FORMS, made
from tests.hunt.planning_hunt import memory
from tests.model.sample import plan_request
from tests.strategies import text

READABLE_CHARACTERS = 8


def numbered(secret, chance):
    return "\n".join(f"{number:6}→{line}" for number, line in enumerate(secret.split("\n"), chance.randint(1, 900)))


def among_words(secret, chance):
    before, behind = (" ".join(chance.choices(WORDS, k=chance.randrange(160))) for _ in range(2))
    return f"{before} {secret} {behind}"


WORDS = ["deploy", "the", "service", "with", "this", "value", "and", "then", "wait", "for", "a", "result"]
WRAPPED = {
    "among words": among_words,
    "alone": lambda secret, _: secret,
    "indented": lambda secret, _: "\n".join(f"    {line}" for line in secret.split("\n")),
    "numbered": numbered,
    "in a diff": lambda secret, chance: "\n".join(f"{chance.choice('+-')}{line}" for line in secret.split("\n")),
    "in a mail": lambda secret, _: "\n".join(f"> {line}" for line in secret.split("\n")),
    "in windows lines": lambda secret, _: secret.replace("\n", "\r\n"),
    "in JSON": lambda secret, _: json.dumps({"content": secret}),
    "in JSON in JSON": lambda secret, _: json.dumps({"body": json.dumps({"content": secret})}),
    "in a here document": lambda secret, _: f"cat > config <<EOF\n{secret}\nEOF",
    "in a table": lambda secret, _: "\n".join(f"| {line} |" for line in secret.split("\n")),
    "in colours": lambda secret, _: "\n".join(f"\x1b[32m{line}\x1b[0m" for line in secret.split("\n")),
    "searched": lambda secret, _: "\n".join(f"a/k.pem:{n}:{line}" for n, line in enumerate(secret.split("\n"), 8)),
    "numbered in JSON": lambda secret, chance: json.dumps(json.dumps([numbered(secret, chance)])),
}
"""Ways in which a value of several lines stands in texts of agents."""
PLACES = ("user", "assistant", "input", "inputs", "result", "blocks", "error")
LINES = [form for form in FORMS if "PRIVATE KEY" in form]
"""Forms of several lines, each of which is secret and may be alone: every second one drawn."""


def rounds(seed):
    """What one conversation after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one conversation, at the first readable credential.
    """
    yield from (check_one(f"{seed}:{number}") for number in count())


def check_one(seed, ways=tuple(WRAPPED), places=PLACES):
    """One conversation with one credential, by its own seed; of a find the seed is in the error."""
    chance = Random(seed)
    way, place = chance.choice(ways), chance.choice(places)
    form = chance.choice(LINES if chance.random() < 0.5 else FORMS)
    secret, parts = made(form, chance.randrange(10**6))
    if readable(parts, redact(secret)):
        return Counter({"forms not known": 1})
    messages = conversation(WRAPPED[way](secret, chance), place, chance)
    shown = {"a planner": sent(messages), "a store": kept(messages, False), "a store without": kept(messages, True)}
    leaks = [where for where, text in shown.items() if readable(parts, text)]
    assert not leaks, f"cut_secrets_hunt.check_one({seed!r}): {form.splitlines()[0]} {way}, {place}, {leaks}"
    return Counter({"conversations": 1, way: 1})


def sent(messages):
    """All that a planner model is sent about `messages`."""
    prompts = load_prompts()
    questions, _ = plan_questions(QuestionBasis.of(plan_request(messages)), prompts)
    return "\n".join(question.text(prompts) for question in questions)


def conversation(secret, place, chance):
    """An agent at work in whose list the text stands at one place, with enough behind it that it is compacted."""
    lines = secret.split("\n")
    cut = chance.randint(1, len(lines) - 1) if "PRIVATE KEY" in secret and len(lines) > 1 else 0
    inputs = {"one": "\n".join(lines[:cut]), "two": {"deep": ["\n".join(lines[cut:])]}}
    call_input = {"input": {"content": secret}, "inputs": inputs}.get(place, {"command": "cat config"})
    content = {
        "result": secret,
        "error": f"Error: refused\n{secret}\nexit code 1",
        "blocks": [text(part) for part in ("\n".join(lines[:cut]), "\n".join(lines[cut:])) if part],
    }.get(place, "done")
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": call_input}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": place == "error"}
    said = f"I must use this from now on:\n{secret}" if place == "assistant" else "I look."
    asked = f"You must only use this:\n{secret}" if place == "user" else "Deploy the service."
    later = [
        {"role": role, "content": f"{role} {number}: " + "the service is deployed step by step. " * 40}
        for number in range(4)
        for role in ("assistant", "user")
    ]
    called = [{"role": "assistant", "content": [text(said), call]}, {"role": "user", "content": [result]}]
    return [{"role": "user", "content": asked}, *called, *later]


def kept(messages, redacts):
    """All that the store keeps to be read of a plan and a session over `messages`; with `redacts` the originals too."""
    with (
        tempfile.TemporaryDirectory(dir=memory()) as folder,
        open_store(Path(folder, "store.db"), redact_originals=redacts) as store,
        Session("Deploy", store=store, planner="rules", window_tokens=2_000) as session,
    ):
        apply(plan_compaction(messages, "Deploy", planner="rules", target_ratio=0.4), store=store)
        session.prepare(messages)
        parts = [json.dumps(event, default=str) for event in store.events()]
        for stored in store.histories():
            parts += (store.load_plan(plan).model_dump_json() for plan in store.plans(stored.key))
            parts += (fact.model_dump_json() for fact in store.facts(stored.key))
            if redacts:
                parts += map(json.dumps, store.load_history(stored.key).messages)
    return "\n".join(parts)


def readable(parts, shown):
    """The parts of a credential of which enough characters in a row can be read in `shown`."""
    size = READABLE_CHARACTERS
    return [part for part in parts if any(part[at : at + size] in shown for at in range(max(1, len(part) - size + 1)))]
