"""Plans, views, logs and preset replays of the project's own transcripts: figures to read, and digests that tell all.

The clock and all ids are passed in, and only public names are used, so that the same behaviour gives the same lines.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import planner
from applier import apply, preview
from applier.adapters.transcripts import read_transcript, to_openai, write_transcript
from applier.session import PRESETS, Session
from applier.settings import SessionSettings
from applier.store import open_store
from planner.validity import check_messages
from tests.inventory.commands import DEMO, run
from tests.inventory.product import ROOT

RATIOS = (0.05, 0.1, 0.25, 0.5)
RECORDED = ROOT / "tests" / "evaluation" / "recorded"
REPLAYS = {
    "demo": (240, 40_000, ("relevance",)),
    "failing": (38, 8_000, tuple(PRESETS)),
    "service": (40, 3_500, tuple(PRESETS)),
}
"""Number of messages of each, a window in which they do not fit, and the presets that compact them."""
LOGGED = 100
"""So many messages of each are written in each format."""
SECONDS_PER_CALL = 15.0
SESSION_ID = "11111111-2222-4333-8444-555555555555"


@cache
def transcripts() -> dict[str, dict[str, Any]]:
    """The one that ships, as ``compactor demo --copy`` writes it, and those kept beside the tests."""
    run("demo", "--copy", DEMO)
    paths = {"demo": Path(DEMO), **{name: ROOT / f"tests/example/{name}.json" for name in ("failing", "service")}}
    return {name: json.loads(path.read_text("utf-8")) for name, path in paths.items()}


def digest(value: object) -> str:
    """The first 12 digits of the SHA-256 of `value`, text or JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class Scripted:
    """A planner of fixed opinions: every strategy, scores up and down, lines, names that hold and names that do not."""

    def propose(self, request: planner.PlanRequest) -> planner.Proposal:
        """Judge each turn by its number alone."""
        turns = [turn.id for turn in request.history.turns]
        said = {turn_id: self._of(turn_id, at) for at, turn_id in enumerate(turns) if at % 7}
        last = turns[-1]
        brief = (
            f"STATE\n- all of it stands ({turns[0]})\n- moved to /srv/nowhere/else.py ({last})\nNEXT\n- go on ({last})"
        )
        facts = [planner.ExtractedFact(type="decision", content="it stands", source=turns[0])]
        facts.append(planner.ExtractedFact(type="constraint", content="no", quote="nobody said this", source=turns[0]))
        return planner.Proposal(said, planner.Provenance(planner="scripted"), tuple(facts), brief)

    def _of(self, turn_id: str, at: int) -> planner.TurnProposal:
        return planner.TurnProposal(
            turn_id,
            at * 37 % 101 / 100,
            "by number",
            ("keep", "summarize", "reference", "drop", None)[at % 5],
            "it went on" if at % 2 else f"it went on in file_{at}.py",
            ((1, 2), (4, 6)) if at % 3 else (),
            at % 11 == 0,
        )


def plans() -> Iterator[str]:
    """Each transcript planned by rules, by a scripted planner and by recorded answers of a model."""
    for name, whole in transcripts().items():
        messages, task = whole["messages"], whole["task"]
        yield f"## {name}"
        for ratio in RATIOS:
            plan = planner.plan_compaction(messages, task, target_ratio=ratio, planner="rules", now=0.0)
            yield from _plan_lines(f"rules @{ratio}", plan, messages)
        more = {"system": whole["system"], "tools": whole["tools"], "focus": "what failed and why"}
        more["settings"] = planner.PlanSettings(target_model="claude-sonnet-4-5", restore_tool="restore_context")
        plan = planner.plan_compaction(messages, task, target_ratio=0.25, planner="rules", now=0.0, **more)
        yield from _plan_lines("rules @0.25, focus, other model", plan, messages)
        for ratio in RATIOS[1:3]:
            plan = planner.plan_compaction(messages, task, target_ratio=ratio, planner=Scripted(), now=0.0)
            yield from _plan_lines(f"scripted @{ratio}", plan, messages)
        yield from _second_plan(messages, task)
        yield ""
    yield from _by_model()


def _second_plan(messages: Sequence[Any], task: str) -> Iterator[str]:
    """The plan after a first one of the first two thirds."""
    first = planner.plan_compaction(
        messages[: len(messages) * 2 // 3], task, target_ratio=0.1, planner="rules", now=0.0
    )
    plan = planner.plan_compaction(messages, task, target_ratio=0.1, planner="rules", now=1.0, previous=first)
    yield from _plan_lines("rules @0.1, planned before", plan, messages)
    yield _from_disk(plan, messages)


def _by_model() -> Iterator[str]:
    import anthropic  # a second of loading that no other text needs

    from applier.testing import MessagesServer

    yield "## recorded answers of a model"
    for path in sorted(RECORDED.glob("*.answer.txt")):
        name, ratio = path.name.removesuffix(".answer.txt").split("@")
        whole = transcripts()["demo" if name == "transcript" else name]
        with (
            MessagesServer(path.read_text("utf-8"), clock=lambda: 0.0) as server,
            anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client,
        ):
            plan = planner.plan_compaction(
                whole["messages"], whole["task"], target_ratio=float(ratio), planner="model", client=client, now=0.0
            )
        asked = [exchange.request.body for exchange in server.exchanges]
        yield from _plan_lines(f"{name} @{ratio}", plan, whole["messages"])
        yield _from_disk(plan, whole["messages"])
        yield f"    asked {len(asked)}: {digest(asked)}"


def _from_disk(plan: planner.CompactionPlan, messages: Sequence[Any]) -> str:
    """What a plan that was written and read again gives."""
    return f"    from disk: view {digest(preview(planner.CompactionPlan.from_json(plan.to_json()), messages).messages)}"


def _plan_lines(label: str, plan: planner.CompactionPlan, messages: Sequence[Any]) -> Iterator[str]:
    """Figures of a plan and its view, and digests of their parts: which part differs says where to look."""
    shown = preview(plan, messages)
    with open_store("plans.db") as store:
        applied = apply(plan, messages, store=store)
    strategies = Counter(decision.strategy for decision in plan.turns)
    failed = sum(decision.failed_approach for decision in plan.turns)
    codes = Counter(finding.code for finding in plan.findings)
    data = json.loads(plan.to_json())
    yield label
    yield f"    {shown.tokens_before:,} -> {shown.tokens_after:,} tokens; {_counts(strategies)}; {failed} failed"
    beside = f"{len(plan.brief.splitlines())} lines of brief, {len(plan.extracted_facts)} facts"
    yield f"    {beside}; findings: {_counts(codes)}"
    cost = f"first changed {shown.first_changed_message}, {shown.invalidated_tokens:,} cached tokens invalidated"
    yield f"    {cost}, pays back after {shown.payback_calls} calls; thinking: {shown.thinking}"
    parts = " ".join(f"{part} {digest(data[part])}" for part in ("turns", "brief", "extracted_facts", "findings"))
    yield f"    plan {digest(plan.to_json())}: {parts}"
    same = "" if applied == shown.messages else f", APPLIED {digest(applied)}"
    broken = Counter(violation.code for violation in check_messages(shown.messages))
    yield f"    view {digest(shown.messages)}: {len(shown.messages)} messages; breaks {_counts(broken)}{same}"


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "nothing"


def logs() -> Iterator[str]:
    """Each transcript in each format: how it is read, and how a view of it is written."""
    for name, whole in transcripts().items():
        messages = whole["messages"][:LOGGED]
        texts = {
            "anthropic": json.dumps({**whole, "messages": messages}, indent=2),
            "anthropic lines": _lines(messages),
            "openai": json.dumps({"messages": to_openai(messages)}),
            "openai lines": _lines(to_openai(messages)),
            "claude_code": _lines(_claude_code(messages)),
            "codex": _lines(_codex(messages)),
        }
        yield f"## {name}"
        for label, text in texts.items():
            read = read_transcript(text)
            plan = planner.plan_compaction(read.messages, whole["task"], target_ratio=0.25, planner="rules", now=0.0)
            view = preview(plan).messages
            written = write_transcript(view, read, session_id=SESSION_ID if read.client else "")
            same = "as they were" if read.messages == messages else digest(read.messages)
            yield f"{label}: {read.format}, {len(read.messages)} messages, {same}; task {digest(read.task)}"
            again = f"{len(written.splitlines())} lines, {digest(written)}"
            yield f"    {len(read.warnings)} warnings; view written: {again}"
        yield ""


def _lines(values: Iterable[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def _claude_code(messages: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Lines as Claude Code writes them, one a block of an answer."""
    before = None
    for number, message in enumerate(messages):
        parts = [message]
        if message["role"] == "assistant":
            whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m"}
            parts = [{**whole, "content": [block]} for block in _blocks(message)]
        for at, part in enumerate(parts):
            line = {
                "parentUuid": before,
                "isSidechain": False,
                "sessionId": "s",
                "cwd": "/code",
                "type": message["role"],
            }
            before = f"line-{number}-{at}"
            yield {**line, "timestamp": "2026-01-01T00:00:00.000Z", "uuid": before, "message": part}


def _codex(messages: Sequence[Any]) -> Iterator[dict[str, Any]]:
    meta = {"id": SESSION_ID, "cwd": "/code", "base_instructions": {"text": "Be brief."}}
    yield {"type": "session_meta", "payload": meta}
    for message in messages:
        for block in _blocks(message):
            yield {
                "timestamp": "2026-01-01T00:00:00Z",
                "type": "response_item",
                "payload": _item(message["role"], block),
            }


def _item(role: str, block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        call = {"name": block["name"], "arguments": json.dumps(block["input"]), "call_id": block["id"]}
        return {"type": "function_call", **call}
    if block["type"] == "tool_result":
        return {"type": "function_call_output", "call_id": block["tool_use_id"], "output": block["content"]}
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": block["text"]}]}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def replays() -> Iterator[str]:
    """Presets over each transcript, call by call, with the rules planner and a clock of their own."""
    for name, whole in transcripts().items():
        count, window, presets = REPLAYS[name]
        whole = {**whole, "messages": whole["messages"][:count]}
        yield f"## {name}, {count} messages, window {window:,}"
        for preset in presets:
            yield from _replayed(whole, preset, window, replace=False)
        yield from _replayed(whole, "relevance", window, replace=True)
        yield ""


def _replayed(whole: dict[str, Any], preset: str, window: int, *, replace: bool) -> Iterator[str]:
    """What the session would have had its agent send; with `replace` the agent goes on from what it got."""
    messages, own, now = whole["messages"], [], 0.0
    sent = Sent()
    place = f"{preset}-{window}-{replace}.db"
    with open_store(place) as store:
        session = Session(
            whole["task"],
            preset=preset,
            settings=SessionSettings(background=False, window_tokens=window),
            store=store,
            planner="rules",
            system=whole["system"],
            clock=lambda: now,
            session_id="inventory",
        )
        for at, message in enumerate(messages):
            if at and message["role"] == "assistant":
                sent.take(prepared := session.prepare(own if replace else messages[:at]))
                own = [*prepared] if replace else own
                now += SECONDS_PER_CALL
            own.append(message)
        events = session.log()
        session.close()
        whole_again = [found.problem for found in store.verify()]
    done = [event for event in events if event.kind == "post_compact"]
    tiers = Counter(f"{event.tier} by {event.trigger}" for event in done)
    freed = sum(event.reclaimed_tokens for event in done)
    yield f"{preset}{', list replaced' if replace else ''}: {_counts(Counter(event.kind for event in events))}"
    yield f"    {sent.calls} calls, {sent.tokens:,} tokens sent, at most {sent.most:,}"
    yield f"    {freed:,} freed: {_counts(tiers)}"
    yield f"    lists {sent.hash.hexdigest()[:12]}, events {digest([e.as_json() for e in events])}" + (
        f", STORE DAMAGED {whole_again}" if whole_again else ""
    )


class Sent:
    """All lists that were sent, counted and hashed; a message that is sent again is read once."""

    def __init__(self) -> None:
        self.hash, self.calls, self.tokens, self.most = sha256(), 0, 0, 0
        self._counter = planner.TokenCounter.for_model("")
        self._known: dict[int, tuple[Any, str, int]] = {}

    def take(self, messages: Sequence[Any]) -> None:
        """One list."""
        read = [self._read(message) for message in messages]
        tokens = sum(count for _, _, count in read)
        self.calls, self.tokens, self.most = self.calls + 1, self.tokens + tokens, max(self.most, tokens)
        self.hash.update(" ".join(own for _, own, _ in read).encode() + b"\n")

    def _read(self, message: Any) -> tuple[Any, str, int]:
        if id(message) not in self._known:
            self._known[id(message)] = (message, digest(message), self._counter.messages([message]))
        return self._known[id(message)]
