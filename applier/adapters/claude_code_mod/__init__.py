"""Answers calls from this project's JavaScript plugins, which let Claude Code, Pi and OpenCode compact through it.

Each call (`compact`, `preview`, …) is a process of its own; its answer depends only on its input and the store. It
raises CompactorError if the call, the settings or the store cannot be read. If the client's own model is to plan, the
answer is a list of questions; the plugin asks the model and repeats its call with the answers. The original messages
are stored before a transcript without them is returned. After any failure, the client compacts by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from applier.adapters.agent_tools import MCP_PREFIX, PROJECT_TOOLS, Answer, answer_call, definitions
from applier.adapters.claude_code_mod.rows import Row, RowTranscript, read_rows, rows_of, without_tail
from applier.adapters.visible import Visible
from applier.receipt import forecast, receipt, receipt_of_foreign
from applier.session import Compaction, Session
from applier.session.ledger import load_session
from applier.session.presets import Preset
from applier.session.tiers import DemoteLarge
from applier.settings import SessionSettings, load_settings
from applier.store.store import Store
from applier.view import originals_behind, view_text
from planner.api import PlannerChoice
from planner.errors import SettingsError
from planner.layout import thinking_policy
from planner.model.planners import RelayedAnswer, RelayedPlanner, RelayedQuestion, Unanswered
from planner.plan import MOST_TOKENS, Usage
from planner.prices import is_warm
from planner.reading.messages import Message, blocks, read_history
from planner.settings import OptionalToolName
from planner.validity import check_messages

__all__ = [
    "ahead",
    "compact",
    "conversation_id",
    "describe",
    "look_up",
    "preview",
    "read_call",
    "receipt_of_own",
    "remember",
    "shorten",
]

Call = TypeVar("Call", bound=BaseModel)

PAGE_WINDOW = 16_000
"""Context window, in tokens, for which the page of memory that Codex adds to its own summary is planned; the page then
has about 4,000 tokens."""
USAGE = "/compactor preview [WORDS]: what a compaction now would do, with WORDS for its focus. /compact [WORDS]: do it."


class _Call(BaseModel):
    """Input of a call from a plugin in a coding agent (the client); unknown fields, of a newer plugin, are ignored."""

    session_id: str = Field(min_length=1, max_length=200)
    agent_id: str = Field(default="", max_length=500)
    """Id of the subagent that has the conversation; empty for the main conversation."""
    client: str = Field(default="Claude Code", max_length=40)


class ModelAnswer(BaseModel):
    """Answer of the client's model to a question of the planner, as the plugin reports it."""

    isAnswered: bool = False  # noqa: N815 - the client's names
    text: str = ""
    reason: str = ""
    usage: Mapping[str, Any] = {}


def _usage(reported: Mapping[str, Any]) -> Usage:
    """Return the token counts that a client `reported` for one request, without those that are no plausible numbers."""
    known = {name: reported.get(name) for name in Usage.model_fields if name.endswith("_tokens")}
    counts = {name: count for name, count in known.items() if isinstance(count, int) and 0 < count <= MOST_TOKENS}
    return Usage(**counts, requests=int(bool(counts)))


class CompactCall(_Call):
    """Input of `compact`: the transcript to compact, and what the client knows about its model."""

    trigger: Literal["manual", "auto", "plugin", "precompute"] = "manual"
    instructions: str = ""
    model: str = ""
    window_tokens: int = 0
    """Context window of the model; 0 if the client does not know it."""
    context_tokens: int = 0
    """Size of the last prompt; 0 if it is unknown."""
    started_at: float = 0.0
    """Time at which the client began to wait, in seconds since the epoch; 0 if it is unknown."""
    idle_seconds: float | None = None
    """Time since the model's last answer; None if it has not answered in this process of the client."""
    messages: tuple[Row, ...]
    """Transcript in the client's own form."""
    api: tuple[dict[str, Any], ...] = ()
    """The same transcript as messages of the API, which also contain images and documents."""
    answers: Mapping[str, ModelAnswer] = {}
    """Answers to the questions that an earlier, equal call returned, by the id of the question."""
    as_summary: Literal["", "front", "all"] = ""
    """Form of the replacement that the client accepts. Empty: rows. ``front``: one text in place of the first messages;
    the client keeps the others (Pi). ``all``: one text in place of all messages (OpenCode)."""
    cards_model: str = ""
    """Model that plans from cards (short descriptions of turns) if the settings name none; empty for a small model."""
    restore_tool: OptionalToolName = f"{MCP_PREFIX}restore_context"
    """Name under which the agent knows this project's tool that restores removed turns."""


class PreviewCall(CompactCall):
    """Input of `preview`, the command that shows what a compaction would do."""

    arguments: str = ""
    """Words that the person typed after the command."""


class ToolCall(_Call):
    """Input of `look_up`: a call by the agent of one of this project's tools, such as ``restore_context``."""

    name: str
    arguments: dict[str, Any] = {}


class OwnCompactionCall(_Call):
    """Input of `receipt_of_own`: a compaction that the client made by itself."""

    model: str = ""
    why: str = ""
    """Reason why the client compacted by itself and not through this package."""
    messages: tuple[Row, ...]
    """Transcript before the compaction."""
    api: tuple[dict[str, Any], ...] = ()
    """The same transcript as messages of the API."""
    after: tuple[Row, ...]
    """Transcript after the compaction."""
    usage: Mapping[str, Any] = {}
    """Token counts of the request that wrote the client's summary."""


class LargeResultCall(_Call):
    """Input of `shorten`: a large tool result that the client has not sent to the model yet."""

    tool: str
    tool_use_id: str = Field(pattern="^[a-zA-Z0-9_-]{1,200}$")
    content: str


class CodexHookCall(_Call):
    """Input of `remember`, which Codex calls (as a hook) directly after it compacted a session."""

    client: str = "Codex"
    transcript_path: str
    """Log of the session, which still contains the messages from before."""
    model: str = ""


def conversation_id(call: _Call) -> str:
    """Return the id of a conversation in the store: the client's session id; for a subagent, with a digest after it."""
    return f"{call.session_id}.{_digest(call.agent_id)}" if call.agent_id else call.session_id


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def read_call(kind: type[Call], data: object) -> Call:
    """Check `data`, the JSON that a plugin sent, and return it as a call of the class `kind`.

    Raises:
        SettingsError: A field has the wrong form. The error names the field and does not show its content.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        raise SettingsError(f"{'.'.join(map(str, item['loc'])) or 'input'}: {item['msg']}") from None


def describe() -> dict[str, Any]:
    """Return what a plugin needs at its start. ``tools``: the tools to register. ``shorten_over_characters``: the size
    above which it calls `shorten` for a tool result; 0 means never. ``plans_ahead``: True if it is to call `ahead`."""
    settings = load_settings()
    return {
        "tools": [
            {"name": tool["name"], "description": tool["description"], "inputSchema": tool["input_schema"]}
            for tool in definitions(PROJECT_TOOLS)
        ],
        "shorten_over_characters": settings.shorten_over_tokens,  # a text never has more tokens than characters
        "plans_ahead": settings.background is not False and settings.planner != "rules",
    }


def look_up(data: object, open_store: Callable[[], Store], project: str = "", wrapped: str = "") -> dict[str, Answer]:
    """Answer the agent's call (`ToolCall`) of a tool that searches or restores content of its own conversation, or
    lists facts from all conversations in the folder `project`.

    `wrapped`: name of the session if `compactor wrap` runs the client, else empty. The conversation that the proxy
    saved under this name is searched too, because these tools replace the MCP server.
    """
    call = read_call(ToolCall, data)
    with closing(Visible(open_store, session=(conversation_id(call), wrapped), project=project)) as visible:
        return {"content": answer_call(visible, call.name.removeprefix(MCP_PREFIX), call.arguments, PROJECT_TOOLS)}


def compact(
    data: object, store: Store, clock: Callable[[], float], command: str = "compactor", project: str = ""
) -> dict[str, Any]:
    """Compact the transcript of a `CompactCall`, and return one of these answers:

    - ``{"messages", "receipt"}``: the rows that replace the whole transcript, and a text for the person about it.
    - ``{"summary", "kept", "receipt"}``: a text that replaces the messages before the row with the handle ``kept``, or
      all messages if ``kept`` is None.
    - ``{"unchanged"}``: a line to show; the client keeps everything.
    - ``{"ask"}``: questions for the client's model; the plugin repeats its call with the answers.
    - ``{"pass"}``: the reason why the client is to compact by itself.

    `clock` returns the time in seconds since the epoch. `command`: the command by which a person runs this program, for
    the receipt. `project`: the working folder.
    """
    call = read_call(CompactCall, data)
    with _open_session(call, store, project) as (session, settings, transcript, messages):
        if not messages:
            return {"pass": "there is nothing to compact"}
        try:
            compaction = session.compact(messages, call.instructions)
        except Unanswered as asked:
            return {"ask": [_question(question, settings) for question in asked.questions]}
        is_small = _is_small(compaction, session, settings)
        if compaction.applied or compaction.is_repeated or is_small:
            replacement, why_not = _replacement(compaction.messages, transcript, call)
        else:
            replacement, why_not = {}, compaction.reason
        if compaction.applied and why_not:  # the client cannot use it
            session.undo()
    outcome = "passed" if why_not else "unchanged" if is_small else "compacted"
    now = clock()
    waited = f"; the agent waited {now - call.started_at:.1f} s" if call.started_at and not why_not else ""
    plan = compaction.plan
    # a plan by a model without answers in this call was made by an earlier call of `ahead`
    was_ahead = compaction.applied and plan and plan.provenance.asked != "rules" and not call.answers
    planned = ", planned beforehand" if was_ahead else ""
    _record_outcome(store, call, now, outcome, f"{why_not or call.trigger}{planned}{waited}")
    if why_not:
        return {"pass": why_not}
    if compaction.applied:
        tokens = compaction.tokens_before, compaction.tokens_after
        text = receipt(plan, tokens=tokens, dollars=compaction.dollars, command=command) if plan else ""
        return {**replacement, "receipt": text}
    since = " since the last time" if compaction.is_repeated else ""
    text = f"Nothing to compact{since}: all {compaction.tokens_after:,} tokens stay"
    # only Pi can keep its transcript as it is; the other clients expect a replacement, here an equal one
    return {"unchanged": text} if is_small and call.as_summary == "front" else {**replacement, "receipt": text}


def ahead(data: object, store: Store, project: str = "") -> dict[str, Any]:
    """Plan the next compaction before it is due, and store the plan, so that the person need not wait for it later.

    Return ``{"is_ready"}``, which is True if a model made a plan, or ``{"ask"}`` as `compact` does. `compact` uses the
    plan if its transcript begins with the planned one and its call has no instructions. `project`: the working folder.
    """
    call = read_call(CompactCall, data)
    with _open_session(call, store, project) as (session, settings, _, messages):
        try:
            return {"is_ready": bool(messages) and session.plan_ahead(messages)}
        except Unanswered as asked:
            return {"ask": [_question(question, settings) for question in asked.questions]}


@contextmanager
def _open_session(
    call: CompactCall, store: Store, project: str
) -> Iterator[tuple[Session, SessionSettings, RowTranscript, list[Message]]]:
    """Yield the session of the conversation, its settings, the call's transcript, and the messages to compact."""
    settings, name = _settings(call).changed(project=project), conversation_id(call)
    transcript = read_rows(call.messages, call.api)
    planner: PlannerChoice = "rules" if settings.planner == "rules" else _planner(call, settings)
    with Session(store=store, settings=settings, planner=planner, model=call.model, session_id=name) as session:
        yield session, settings, transcript, _split_after_view(transcript.messages, store, name)


def _is_small(compaction: Compaction, session: Session, settings: SessionSettings) -> bool:
    """Return True if the transcript is too small to compact: nothing changed because it would not pay, and half of the
    window is free. The client is then not asked to compact by itself, because its summary would be longer."""
    if compaction.applied or compaction.is_repeated or compaction.tokens_before > settings.window_tokens / 2:
        return False
    # no step of the session changed anything, or too little for its costs
    return not compaction.tier or session.log()[-1].kind == "not_worth_it"


def _replacement(view: Sequence[Message], transcript: RowTranscript, call: CompactCall) -> tuple[dict[str, Any], str]:
    """Return the compacted messages `view` in the form that the client accepts, and an empty text; or, if they would
    break a rule of the API in this form, the rule."""
    if call.as_summary == "all":
        return {"summary": view_text(view), "kept": None}, ""
    if call.as_summary:
        front, kept = without_tail(view, transcript)
        return {"summary": view_text(front), "kept": kept or None}, ""
    rows = list(rows_of(view, transcript, thinking=thinking_policy(call.model) == "leave"))
    return {"messages": rows}, _broken_rule(rows, call)


def _record_outcome(store: Store, call: _Call, now: float, outcome: str, why: str) -> None:
    """Store an event about a call. `outcome`: ``compacted``, ``passed`` …; `why`: the reason, or what began it."""
    event = {"client": call.client, "did": outcome, "why": why, "message": f"{outcome}: {why}"}
    store.record_event({"kind": "mod", "session": conversation_id(call), "time": now, **event})


def remember(data: object, read: Callable[[str], Sequence[Message]], store: Store, now: float) -> dict[str, Any]:
    """Store the session that Codex has just compacted, and return a page of memory that Codex adds to its own summary;
    empty if there is none.

    No model is asked for the page. As the original messages are stored, the agent can restore every turn. `read`
    returns the messages in the session log at a path. `now`: seconds since the epoch.
    """
    call = read_call(CodexHookCall, data)
    messages = read(call.transcript_path)
    settings = _with_tool(load_settings()).changed(window_tokens=PAGE_WINDOW)
    with Session(
        store=store, settings=settings, planner="rules", model=call.model, session_id=call.session_id
    ) as session:
        compaction = session.compact(messages)
    _record_outcome(store, call, now, "remembered" if compaction.applied else "passed", compaction.reason)
    if not compaction.applied:
        return {}
    page = {"hookEventName": "SessionStart", "additionalContext": view_text(compaction.messages)}
    text = f"compactor: every turn is stored, and a page of {compaction.tokens_after:,} tokens is beside Codex' summary"
    return {"hookSpecificOutput": page, "systemMessage": text}


def receipt_of_own(data: object, store: Store, now: float, command: str = "compactor") -> dict[str, Any]:
    """Store what the client removed in a compaction of its own, and return ``{"receipt"}``: a text that shows the
    person what was kept and removed. `now`: seconds since the epoch. `command`: as for `compact`."""
    call = read_call(OwnCompactionCall, data)
    name = conversation_id(call)
    before = _split_after_view(read_rows(call.messages, call.api).messages, store, name)
    earlier = originals_behind(store, before, name)  # None if `before` does not begin with a compacted list
    whole = earlier.messages if earlier else before
    store.save_history(read_history(whole))
    _record_outcome(store, call, now, "passed", call.why)
    after, usage = read_rows(call.after).messages, _usage(call.usage)
    text = receipt_of_foreign(
        whole, after, sent_before=before, model=call.model, usage=usage, by=call.client, command=command
    )
    return {"receipt": text}


def preview(data: object, store: Store | None, review: Callable[[str], str]) -> dict[str, str]:
    """Return ``{"text"}``: what a compaction would do now, as text for the person. Ask no model and write nothing.

    `store`: None if there is no store yet. `review` takes the id of the client's session, and returns the command that
    shows a person the whole plan; an empty text if there is none.
    """
    call = read_call(PreviewCall, data)
    first, _, focus = call.arguments.strip().partition(" ")
    if first not in ("", "preview"):
        return {"text": USAGE}
    messages = read_rows(call.messages, call.api).messages
    known: dict[str, Any] = {}
    if store is not None:
        known = {"store": store, "session_id": conversation_id(call)}
        messages = _split_after_view(messages, **known)
    with Session(settings=_settings(call), planner="rules", model=call.model, **known) as session:
        compaction = session.compact(messages, focus, dry_run=True)
    if compaction.plan is None or not compaction.tier:
        return {"text": f"A compaction now would change nothing: all {compaction.tokens_before:,} tokens stay"}
    tokens = compaction.tokens_before, compaction.tokens_after
    return {"text": forecast(compaction.plan, review(call.session_id), tokens=tokens, dollars=compaction.dollars)}


def shorten(data: object, store: Store) -> dict[str, str]:
    """Store a large tool result, and return ``{"content"}``, a shorter text for the model with a way to restore the
    whole. Return an empty dict if the result is to be sent as it is."""
    call = read_call(LargeResultCall, data)
    settings = _with_tool(load_settings())
    use = {"type": "tool_use", "id": call.tool_use_id, "name": call.tool, "input": {}}
    result = {"type": "tool_result", "tool_use_id": call.tool_use_id, "content": call.content}
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    # a preset with a single step, and for each result a session of its own, with an id that `look_up` allows
    arrival = Preset("shorten", arrival=(DemoteLarge(settings.shorten_over_tokens),))
    name = f"{conversation_id(call)}.{int(_digest(call.tool_use_id)[:16], 16)}"
    with Session(store=store, preset=arrival, settings=settings, planner="rules", session_id=name) as session:
        (block,) = session.prepare(messages)[-1]["content"]
    return {} if block == result else {"content": block["content"]}


def _settings(call: CompactCall) -> SessionSettings:
    """Return the user's settings, with the window of the call's model and the tool name that its client uses."""
    settings = load_settings()
    # a client that compacts without being asked has reached its limit
    last_prompt = 0 if call.trigger in ("manual", "plugin") else call.context_tokens
    known_limits = [tokens for tokens in (call.window_tokens, last_prompt) if tokens]
    window = max(2_000, min([settings.window_of(call.model), *known_limits]))
    return _with_tool(settings.changed(window_tokens=window), call.restore_tool)


def _with_tool(settings: SessionSettings, name: str = f"{MCP_PREFIX}restore_context") -> SessionSettings:
    """Return `settings` with `name` for the tool by which the agent restores removed turns, unless the user set one."""
    return settings.changed(plan=settings.plan.changed(restore_tool=settings.plan.restore_tool or name))


def _planner(call: CompactCall, settings: SessionSettings) -> RelayedPlanner:
    """Return a planner that lets the client's model answer its questions. The model answers after the whole transcript
    (a fork), which is cheap while the provider has it cached, or else from cards, short descriptions of the turns. The
    client forks only its main transcript, and only on the session's own model."""
    is_cached = call.idle_seconds is not None and is_warm(call.idle_seconds)
    model = settings.planner_model.removeprefix("anthropic/")
    can_fork = is_cached and not call.agent_id and model in ("", call.model)
    answers = {
        question_id: RelayedAnswer(one.text, _usage(one.usage), "" if one.isAnswered else one.reason or "no answer")
        for question_id, one in call.answers.items()
    }
    fork_tokens = max(1, call.context_tokens) if can_fork else 0
    return RelayedPlanner(answers, model or call.cards_model, call.model, fork_tokens)


def _question(question: RelayedQuestion, settings: SessionSettings) -> dict[str, Any]:
    """Return a planner's question as JSON data for the plugin. A question from cards (``complete``) also has the model,
    system prompt and limits of its request."""
    data: dict[str, Any] = {"id": question.id, "via": question.via, "prompt": question.prompt}
    if question.via == "complete":
        data |= {"model": question.model, "system": question.system, "maxTokens": question.max_tokens}
        data["timeoutMs"] = int(settings.plan.timeout_seconds * 1_000)
    return data


def _split_after_view(messages: Sequence[Message], store: Store, session_id: str) -> list[Message]:
    """Return `messages` with the user's first words after a compaction as a message of their own. The client appends
    them to the last message of the compacted list (the view), which is recognised only without words after it."""
    saved = load_session(store, session_id)
    view = saved.frame.head if saved is not None else []  # the newest compacted list, without messages after it
    at = len(view) - 1  # index of the view's last message
    if not view or len(messages) < len(view) or messages[at]["role"] != view[at]["role"]:
        return list(messages)
    end_of_view, content = list(blocks(view[at])), list(blocks(messages[at]))
    is_same_start = content[: len(end_of_view)] == end_of_view
    if not is_same_start or len(content) == len(end_of_view):  # it is another message, or nothing was joined to it
        return list(messages)
    next_words = content[len(end_of_view) :]
    split = ({**messages[at], "content": end_of_view}, {**messages[at], "content": next_words})
    return [*messages[:at], *split, *messages[at + 1 :]]


def _broken_rule(rows: Sequence[Mapping[str, Any]], call: CompactCall) -> str:
    """Return the rule of the API that the client's transcript would break if `rows` replaced it; empty if none."""
    known = {row.handle: row for row in call.messages}
    whole = [known[row["handle"]] if "handle" in row else Row.model_validate(row) for row in rows]
    late = [{"tool_use_id": name} for name in read_rows(whole).open_calls]
    # the list is checked as it will be sent: with results of the calls at its end, and then words of the user
    following = {"role": "user", "text": "the user's next words", "toolResults": late}
    broken = check_messages(read_rows([*whole, Row.model_validate(following)]).messages, model=call.model)
    refused = next((violation for violation in broken if violation.refused), None)
    return f"the compacted messages break a rule of the API: {refused}" if refused else ""
