"""The mod inside Claude Code: what the shim in `plugin` asks, and Pi's likewise, and what becomes of the answers.

Each call is a process of its own and a pure function of what comes in and of the store; what only the client can do,
asking its model, is answered by a list of questions, and the same call with their answers goes on from there. Originals
and plan are stored before rows without them are returned; whatever stands in the way leaves the client its own
compaction.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from applier.adapters.agent_tools import PROJECT_TOOLS, Answer, answer_call, definitions
from applier.adapters.claude_code_mod.rows import Row, Transcript, read_rows, rows_of, without_tail
from applier.adapters.visible import Visible
from applier.receipt import forecast, receipt, receipt_of_foreign
from applier.session import Session
from applier.session.persistence import load_session
from applier.session.presets import Preset
from applier.session.result_tiers import DemoteLarge
from applier.settings import SessionSettings, load_settings
from applier.store.store import Store
from applier.store.views import originals_behind
from applier.view import view_text
from planner.api import PlannerChoice
from planner.errors import SettingsError
from planner.layout import thinking_policy
from planner.model.planners import RelayedAnswer, RelayedPlanner, RelayedQuestion, Unanswered
from planner.plan import MOST_TOKENS, Usage
from planner.prices import is_warm
from planner.reading.history import read_history
from planner.reading.messages import Message, blocks
from planner.settings import OptionalToolName
from planner.validity import check_messages

__all__ = ["compact", "conversation_id", "describe", "look_up", "preview", "read_call", "receipt_of_own", "shorten"]

Of = TypeVar("Of", bound=BaseModel)

PREFIX = "mcp__compactor__"
"""What the client puts before the names of tools that a plugin called ``compactor`` registers."""
USAGE = "/compactor preview [WORDS]: what a compaction now would do, with WORDS for its focus. /compact [WORDS]: do it."


class _Call(BaseModel):
    """What newer shims say beyond these fields is ignored, here and below."""

    session_id: str = Field(min_length=1, max_length=200)
    agent_id: str = Field(default="", max_length=500)
    """Of a subagent."""
    client: str = Field(default="Claude Code", max_length=40)


class Answered(BaseModel):
    """What `$.model.fork` or `$.model.complete` resolved to."""

    isAnswered: bool = False  # noqa: N815 - the client's names
    text: str = ""
    reason: str = ""
    usage: Mapping[str, Any] = {}

    @property
    def answer(self) -> RelayedAnswer:
        """As the planner takes it."""
        return RelayedAnswer(self.text, _usage(self.usage), "" if self.isAnswered else self.reason or "no answer")


def _usage(said: Mapping[str, Any]) -> Usage:
    """What a request cost, of what the client says of it."""
    known = {name: said.get(name) for name in Usage.model_fields if name.endswith("_tokens")}
    counts = {name: count for name, count in known.items() if isinstance(count, int) and 0 < count <= MOST_TOKENS}
    return Usage(**counts, requests=int(bool(counts)))


class CompactCall(_Call):
    """One compaction that is about to happen."""

    trigger: Literal["manual", "auto", "plugin", "precompute"] = "manual"
    instructions: str = ""
    model: str = ""
    window_tokens: int = 0
    """Of the model, as the client knows it; 0: it does not."""
    context_tokens: int = 0
    """Of the prompt that was sent last."""
    idle_seconds: float | None = None
    """Since the model last answered; None: it has not, in this process."""
    messages: tuple[Row, ...]
    api: tuple[dict[str, Any], ...] = ()
    """The same in the API's form."""
    answers: Mapping[str, Answered] = {}
    as_summary: bool = False
    """The client takes one text in place of what stands first, and keeps the rest itself (Pi)."""
    cards_model: str = ""
    """Whom it asks about cards unless the person names another; empty: a small one."""
    restore_tool: OptionalToolName = f"{PREFIX}restore_context"
    """As the agent knows it."""


class PreviewCall(CompactCall):
    """What a person typed behind the command that shows what a compaction would do."""

    arguments: str = ""


class ToolCall(_Call):
    """The agent looks back."""

    name: str
    arguments: dict[str, Any] = {}


class OwnCompaction(_Call):
    """The client compacted by itself."""

    model: str = ""
    why: str = ""
    """What stood in our way."""
    messages: tuple[Row, ...]
    api: tuple[dict[str, Any], ...] = ()
    after: tuple[Row, ...]
    usage: Mapping[str, Any] = {}
    """Of the client's own question."""


class LargeResult(_Call):
    """A result that was not sent yet."""

    tool: str
    tool_use_id: str = Field(pattern="^[a-zA-Z0-9_-]{1,200}$")
    content: str


def conversation_id(call: _Call) -> str:
    """The client's own id of the session; of a subagent's conversation a name below it."""
    if not call.agent_id:
        return call.session_id
    return f"{call.session_id}.{_digest(call.agent_id)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def read_call(kind: type[Of], data: object) -> Of:
    """What the shim says, as one `kind` of call.

    Raises:
        SettingsError: it is none; the text names the field, and nothing that stands in it.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        raise SettingsError(f"{'.'.join(map(str, item['loc'])) or 'input'}: {item['msg']}") from None


def describe() -> dict[str, Any]:
    """The tools to register, as `$.tool.register` takes them, and from how many characters on a result is to be
    shortened; 0: never."""
    return {
        "tools": [
            {"name": tool["name"], "description": tool["description"], "inputSchema": tool["input_schema"]}
            for tool in definitions(PROJECT_TOOLS)
        ],
        "shorten_over_characters": load_settings().shorten_over_tokens,  # no text has more tokens than characters
    }


def look_up(data: object, open_store: Callable[[], Store], project: str = "") -> dict[str, Answer]:
    """What the agent reads after calling one of the tools, of its own conversation alone; of the folder `project` it
    sees the facts, too.

    Raises:
        CompactorError: it could not be done; the text says what to do instead.
    """
    call = read_call(ToolCall, data)
    with closing(Visible(open_store, session=conversation_id(call), project=project)) as visible:
        return {"content": answer_call(visible, call.name.removeprefix(PREFIX), call.arguments, PROJECT_TOOLS)}


def compact(data: object, store: Store, now: float, command: str = "compactor", project: str = "") -> dict[str, Any]:
    """What becomes of the transcript; `command` is how a person calls this program, `project` the folder of the work.

    ``{"messages", "receipt"}``: rows in its place. ``{"summary", "kept", "receipt"}``: a text in place of what stands
    before the row that is kept first, or of all. ``{"ask"}``: questions to be answered first. ``{"pass"}``: why the
    client is to compact by itself.

    Raises:
        CompactorError: the call, the settings or the store cannot be read.
    """
    call = read_call(CompactCall, data)
    settings, name = _settings(call).changed(project=project), conversation_id(call)
    transcript = read_rows(call.messages, call.api)
    messages = _behind_head(transcript.messages, store, name)
    if not messages:
        return {"pass": "there is nothing to compact"}
    planner: PlannerChoice = "rules" if settings.planner == "rules" else _planner(call, settings)
    with Session(store=store, settings=settings, planner=planner, model=call.model, session_id=name) as session:
        try:
            done = session.compact(messages, call.instructions)
        except Unanswered as asked:
            return {"ask": [_question(question, settings) for question in asked.questions]}
        is_ours = done.applied or done.stands
        shown, why = _shown(done.messages, transcript, call) if is_ours else ({}, done.reason)
        if done.applied and why:
            session.undo()
    _note(store, call, now, "passed" if why else "compacted", why or call.trigger)
    if why:
        return {"pass": why}
    tokens = done.tokens_before, done.tokens_after
    if done.stands:
        return {**shown, "receipt": f"Nothing to compact since the last time: all {done.tokens_after:,} tokens stay"}
    told = receipt(done.plan, tokens=tokens, dollars=done.dollars, command=command) if done.plan else ""
    return {**shown, "receipt": told}


def _shown(view: Sequence[Message], transcript: Transcript, call: CompactCall) -> tuple[dict[str, Any], str]:
    """What the client takes in place of its transcript, and what speaks against it."""
    if call.as_summary:
        front, kept = without_tail(view, transcript)
        return {"summary": view_text(front), "kept": kept or None}, ""
    rows = list(rows_of(view, transcript, thinking=thinking_policy(call.model) == "leave"))
    return {"messages": rows}, _broken_rule(rows, call)


def _note(store: Store, call: _Call, now: float, did: str, why: str) -> None:
    said = {"client": call.client, "did": did, "why": why, "message": f"{did}: {why}"}
    store.record_event({"kind": "mod", "session": conversation_id(call), "time": now, **said})


def receipt_of_own(data: object, store: Store, now: float, command: str = "compactor") -> dict[str, Any]:
    """``{"receipt"}`` of a compaction that the client made by itself; what it was made from is stored first.

    Raises:
        CompactorError: the call or the store cannot be read.
    """
    call = read_call(OwnCompaction, data)
    name = conversation_id(call)
    before = _behind_head(read_rows(call.messages, call.api).messages, store, name)
    earlier = originals_behind(store, before, name)
    whole = earlier.messages if earlier else before
    store.save_history(read_history(whole))
    _note(store, call, now, "passed", call.why)
    after, usage = read_rows(call.after).messages, _usage(call.usage)
    told = receipt_of_foreign(
        whole, after, stood=before, model=call.model, usage=usage, by=call.client, command=command
    )
    return {"receipt": told}


def preview(data: object, store: Store | None, log_of: Callable[[str], str]) -> dict[str, str]:
    """``{"text"}``: what a compaction now would do. Planned by rules: asks no model and writes nothing.

    `store`: None if there is none yet. `log_of` names the file of a session that `compactor plan` reads; empty: there
    is none.

    Raises:
        CompactorError: the call, the settings or the store cannot be read.
    """
    call = read_call(PreviewCall, data)
    first, _, focus = call.arguments.strip().partition(" ")
    if first not in ("", "preview"):
        return {"text": USAGE}
    messages = read_rows(call.messages, call.api).messages
    known: dict[str, Any] = {}
    if store is not None:
        known = {"store": store, "session_id": conversation_id(call)}
        messages = _behind_head(messages, **known)
    with Session(settings=_settings(call), planner="rules", model=call.model, **known) as session:
        done = session.compact(messages, focus, dry_run=True)
    if done.plan is None or not done.tier:
        return {"text": f"A compaction now would change nothing: all {done.tokens_before:,} tokens stay"}
    log = log_of(call.session_id)
    review = f"compactor plan {shlex.quote(log)} --planner rules --web" if log else ""
    return {"text": forecast(done.plan, review, tokens=(done.tokens_before, done.tokens_after), dollars=done.dollars)}


def shorten(data: object, store: Store) -> dict[str, str]:
    """``{"content"}`` to send in place of a large result, which is stored first; empty if it is to go as it is.

    Raises:
        CompactorError: the call, the settings or the store cannot be read.
    """
    call = read_call(LargeResult, data)
    settings = _with_tool(load_settings())
    use = {"type": "tool_use", "id": call.tool_use_id, "name": call.tool, "input": {}}
    result = {"type": "tool_result", "tool_use_id": call.tool_use_id, "content": call.content}
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    arrival = Preset("shorten", arrival=(DemoteLarge(settings.shorten_over_tokens),))
    below = f"{conversation_id(call)}.{int(_digest(call.tool_use_id), 16)}"
    with Session(store=store, preset=arrival, settings=settings, planner="rules", session_id=below) as session:
        (block,) = session.prepare(messages)[-1]["content"]
    return {} if block == result else {"content": block["content"]}


def _settings(call: CompactCall) -> SessionSettings:
    """As the environment says, for this client: the name of its tool, and its window where that is smaller, which is
    no larger than what it compacts of its own accord."""
    settings = load_settings()
    told = (call.window_tokens, 0 if call.trigger in ("manual", "plugin") else call.context_tokens)
    window = max(2_000, min([settings.window_of(call.model), *filter(None, told)]))
    return _with_tool(settings.changed(window_tokens=window), call.restore_tool)


def _with_tool(settings: SessionSettings, name: str = f"{PREFIX}restore_context") -> SessionSettings:
    tool = settings.plan.restore_tool or name
    return settings.changed(plan=settings.plan.changed(restore_tool=tool))


def _planner(call: CompactCall, settings: SessionSettings) -> RelayedPlanner:
    """Asks behind the transcript while the client's cache holds it, unless another model is named; else by cards.

    A subagent's transcript is not the one that a fork continues.
    """
    warm = call.idle_seconds is not None and is_warm(call.idle_seconds)
    named = settings.planner_model.removeprefix("anthropic/")
    behind = warm and not call.agent_id and named in ("", call.model)
    answers = {key: answered.answer for key, answered in call.answers.items()}
    return RelayedPlanner(answers, named or call.cards_model, call.model, max(1, call.context_tokens) if behind else 0)


def _question(question: RelayedQuestion, settings: SessionSettings) -> dict[str, Any]:
    asked: dict[str, Any] = {"id": question.id, "via": question.via, "prompt": question.prompt}
    if question.via == "complete":
        asked |= {"model": question.model, "system": question.system, "maxTokens": question.max_tokens}
        asked["timeoutMs"] = int(settings.plan.timeout_seconds * 1_000)
    return asked


def _behind_head(messages: Sequence[Message], store: Store, session_id: str) -> list[Message]:
    """`messages`, with what follows the compacted part of the conversation's last view apart from it, though it is the
    user's as well: the client puts what he types next behind it."""
    saved = load_session(store, session_id)
    head = saved.frame.head if saved is not None else []
    at = len(head) - 1
    if not head or len(messages) < len(head) or messages[at]["role"] != head[at]["role"]:
        return list(messages)
    last, content = list(blocks(head[at])), list(blocks(messages[at]))
    if content[: len(last)] != last or len(content) == len(last):
        return list(messages)
    apart = ({**messages[at], "content": last}, {**messages[at], "content": content[len(last) :]})
    return [*messages[:at], *apart, *messages[at + 1 :]]


def _broken_rule(rows: Sequence[Mapping[str, Any]], call: CompactCall) -> str:
    """Which rule of the API the messages of `rows` would break; those with a handle are the client's own."""
    known = {row.handle: row for row in call.messages}
    whole = [known[row["handle"]] if "handle" in row else Row.model_validate(row) for row in rows]
    goes_on = {"role": "user", "text": "and what is said next"}  # a turn may have ended
    broken = check_messages(read_rows([*whole, Row.model_validate(goes_on)]).messages, model=call.model)
    refused = next((violation for violation in broken if violation.refused), None)
    return f"what would be sent breaks a rule of the API: {refused}" if refused else ""
