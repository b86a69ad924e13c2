"""The MCP server through the SDK's own client: what a conversation shows, and that no other does."""

from __future__ import annotations

import sys
import threading

import anyio
import pytest
from mcp import Client, StdioServerParameters

from applier import apply
from applier.adapters.mcp import mcp_server
from applier.adapters.visible import Visible
from applier.session import Session
from applier.store import open_store
from planner import plan_compaction
from planner.errors import ReferenceNotFound
from planner.placeholders import history_key
from tests.patience import PATIENCE_SECONDS
from tests.strategies import image

NO_KEY = f"h{0:032}"
TOOLS = ["brief", "facts", "log", "note", "preview_compaction", "restore_context", "search_context"]


def conversation(secret: str, rounds: int = 40) -> list[dict]:
    """A user's wish, and rounds of calls, the third of which holds `secret` and an image; the fourth sends a mail."""
    messages: list[dict] = [{"role": "user", "content": "Check the modules. Never delete rows."}]
    for number in range(rounds):
        call = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"command": f"check {number}"}}
        lines = "\n".join(f"row {number}-{row} is fine" for row in range(60))
        content = [{"type": "text", "text": f"{lines}\n{secret if number == 3 else ''}."}]
        content += [image(64, 48)] if number == 3 else []
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": content}
        if number == 4:
            call |= {"name": "send_mail", "input": {"to": "ada@example.org"}}
            result["content"] = "sent"
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


ARGUMENTS = {
    "brief": {},
    "facts": {},
    "log": {},
    "note": {"text": "Never book before YES"},
    "preview_compaction": {},
    "restore_context": {"reference": "t1"},
    "search_context": {"text": "ours"},
}
"""Arguments for a call of each tool."""
SESSIONS = {
    "wrap-1": "ours-4711",
    "wrap-1.1": "below-4712",
    f"wrap-1.{5:032x}.2": "below-4714",
    "wrap-1.work": "strange-4715",
    "wrap-1.1.work": "strange-4716",
    "wrap-12": "strange-4713",
}
"""By session what its conversation holds: a proxy names conversations by 32 digits, a session its subagents by
number; the others belong to somebody else."""


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
    """A store with the compacted conversations of ours, of two below it, and of strangers. Only read."""
    path = tmp_path_factory.mktemp("mcp") / "store.db"
    for name, secret in SESSIONS.items():
        with Session(planner="rules", store=path, session_id=name, window_tokens=24_000) as session:
            assert session.compact(conversation(secret)).applied
    return path


def ask(path, *calls, session="wrap-1", history="", is_typed=False):
    """The texts that the tools answer, in order; an error's with a mark before it."""

    async def run() -> list[str]:
        visible = Visible(lambda: open_store(path), session=session, history=history, is_typed=is_typed)
        try:
            async with Client(mcp_server(visible)) as client:
                return [_text(await client.call_tool(name, arguments)) for name, arguments in calls]
        finally:
            visible.close()

    return anyio.run(run)


class Together(Visible):
    """Conversations whose first two look-ups begin before one of them goes on."""

    barrier = threading.Barrier(2)

    def restore(self, *reference, **asked):
        self.barrier.wait(timeout=PATIENCE_SECONDS)
        return super().restore(*reference, **asked)


def test_calls_of_two_threads_at_once_are_answered_each_from_its_own(store_path):
    names, answers = ("wrap-1", "wrap-12"), {}

    async def call(client, name):
        shown = await client.call_tool("restore_context", {"reference": "t5"}, meta={"threadId": name})
        answers[name] = _text(shown)

    async def run() -> None:
        visible = Together(lambda: open_store(store_path))
        async with Client(mcp_server(visible, by_thread=True)) as client, anyio.create_task_group() as calls:
            for name in names:
                calls.start_soon(call, client, name)
        visible.close()

    anyio.run(run)
    assert all(SESSIONS[name] in answers[name] for name in names), answers


def _text(result) -> str:
    text = "\n".join(getattr(block, "text", f"<{block.type}>") for block in result.content)
    return f"! {text}" if result.is_error else text


def test_a_conversation_is_searched_and_restored(store_path):
    (found,) = ask(store_path, ("search_context", {"text": "ours-4711"}))
    reference = found.split("\n")[0]
    assert "ours-4711" in found
    whole, lines, searched = ask(
        store_path,
        ("restore_context", {"reference": reference}),
        ("restore_context", {"reference": reference, "first_line": 2, "last_line": 3}),
        ("restore_context", {"reference": reference, "search": "ours-4711"}),
    )
    assert "row 3-59 is fine" in whole
    assert "<image>" in whole
    assert lines.count("is fine") <= 2
    assert "ours-4711" in searched


def test_facts_brief_log_and_preview(store_path):
    facts, constraints, brief, log, shown = ask(
        store_path,
        ("facts", {}),
        ("facts", {"type": "constraint"}),
        ("brief", {}),
        ("log", {"count": 5}),
        ("preview_compaction", {"target_tokens": 2000}),
    )
    assert "Never delete rows" in facts
    assert {line.split(" ")[0] for line in constraints.split("\n")} == {"constraint"}
    assert "send_mail ada@example.org" in brief
    assert "compact" in log
    assert "tokens →" in shown


@pytest.mark.parametrize("secret", [secret for secret in SESSIONS.values() if secret.startswith("strange")])
def test_other_conversations_cannot_be_reached(store_path, secret):
    with open_store(store_path) as store:
        strange = next(h.key for h in store.histories() if secret in str(store.load_history(h.key).messages))
    answers = ask(
        store_path,
        ("search_context", {"text": secret}),
        ("search_context", {"text": "below-4712"}),
        ("search_context", {"text": "below-4714"}),
        ("restore_context", {"reference": f"{strange}:t2"}),
        ("restore_context", {"reference": strange}),
        ("log", {"count": 200}),
    )
    assert "nothing in this conversation matches" in answers[0]
    assert ("below-4712" in answers[1], "below-4714" in answers[2]) == (True, True)
    assert answers[3].startswith("!")
    assert answers[4].startswith("!")
    assert all("strange-" not in answer.replace(f"'{secret}'", "") for answer in answers)
    (unknown,) = ask(store_path, ("restore_context", {"reference": f"{NO_KEY}:t2"}))
    assert answers[3].replace(strange, NO_KEY) == unknown


def test_a_history_may_be_named_itself(store_path):
    with open_store(store_path) as store:
        key = store.histories()[0].key
    found, brief = ask(store_path, ("search_context", {"text": "ours-4711"}), ("brief", {}), session="", history=key)
    assert "ours-4711" in found
    assert brief


def test_the_log_of_a_history_has_its_events_and_the_plans_applied_to_its_beginnings(tmp_path):
    """These are the events that `compactor apply` and `undo` store."""
    path, messages = tmp_path / "store.db", conversation("ours-4711")
    strange = conversation("strange-4718", 30)
    with open_store(path) as store:
        for at, part in enumerate((messages[:41], messages, strange), 1):
            plan = plan_compaction(part, "Check", planner="rules", target_ratio=0.3)
            apply(plan, part, store=store)
            key, text = history_key(plan.history.digest), "of strangers" if part is strange else f"apply {at}"
            event = {"time": float(at), "history": key, "message": text}
            store.record_event({**event, "kind": "apply", "plan": store.save_plan(plan)})
            store.record_event({**event, "kind": "undo"})
        ours = next(one for one in store.histories() if one.messages == len(messages))
    for key in (ours.key, ours.digest):
        (log,) = ask(path, ("log", {}), session="", history=key)
        kinds = [line.split(" ", 2)[2].partition(" (")[0] for line in log.split("\n")]
        assert kinds == ["apply: apply 1", "apply: apply 2", "undo: apply 2"]


def test_wrong_calls_are_answered(store_path, tmp_path):
    answers = ask(
        store_path,
        ("restore_context", {"reference": "t9999"}),
        ("restore_context", {"reference": "../../etc/passwd"}),
        ("search_context", {"text": ""}),
        ("facts", {"type": "gossip"}),
        ("log", {"count": -1}),
    )
    assert all(answer.startswith("!") for answer in answers)
    assert answers[2] == "! search_context: text: String should have at least 1 character"
    (empty,) = ask(tmp_path / "other.db", ("brief", {}))
    assert "nothing was compacted" in empty
    (misspelled,) = ask(store_path, ("search_context", {"text": "ours"}), session="wrap-l")
    assert "nothing was compacted under the name 'wrap-l' yet" in misspelled
    assert "or it has another name or store" in misspelled


def test_resources_are_briefs(store_path):
    async def run():
        visible = Visible(lambda: open_store(store_path), session="wrap-1")
        async with Client(mcp_server(visible)) as client:
            listed = [str(item.uri) for item in (await client.list_resources()).resources]
            templates = [item.uri_template for item in (await client.list_resource_templates()).resource_templates]
            texts = [
                (await client.read_resource(uri)).contents[0].text for uri in ("brief://current", "brief://wrap-1.1")
            ]
            with pytest.raises(Exception, match="wrap-12"):
                await client.read_resource("brief://wrap-12")
        visible.close()
        return listed, templates, texts

    listed, templates, texts = anyio.run(run)
    assert (listed, templates) == (["brief://current"], ["brief://{session}"])
    assert all("send_mail ada@example.org" in text for text in texts)


def test_a_server_for_which_no_conversation_is_named_shows_none_and_says_how(store_path):
    with open_store(store_path) as store:
        store.record_event({"time": 1.0, "kind": "apply", "message": "of no session"})
    answers = dict(zip(ARGUMENTS, ask(store_path, *ARGUMENTS.items(), session=""), strict=True))
    assert sorted(answers) == TOOLS
    cure = "! Error executing tool {}: no conversation is named here: run the client by `compactor wrap`"
    assert [name for name, answer in answers.items() if not answer.startswith(cure.format(name))] == []


@pytest.mark.parametrize("is_typed", [True, False])
def test_a_name_under_which_nothing_is_stored_is_reported(store_path, tmp_path, is_typed):
    """The name may be right before the first compaction, so a note is accepted, and the call keeps it."""
    answers = dict(zip(ARGUMENTS, ask(store_path, *ARGUMENTS.items(), session="nix", is_typed=is_typed), strict=True))
    unknown, note = "nothing was compacted under the name 'nix' yet", answers.pop("note")
    assert [name for name, answer in answers.items() if not (answer.startswith("!") and unknown in answer)] == []
    assert note.startswith("Noted as n")
    assert (unknown in note) == is_typed
    (first,) = ask(tmp_path / "none.db", ("note", ARGUMENTS["note"]), session="nix", is_typed=is_typed)
    assert first == note
    (known,) = ask(store_path, ("note", ARGUMENTS["note"]), is_typed=is_typed)
    assert note.startswith(known)
    assert "compacted" not in known


@pytest.mark.real
def test_the_command_reports_that_no_conversation_is_set(store_path, tmp_path):
    """This is the documented set-up for a client without `wrap`: the command that `--config` prints."""

    async def run(store, *arguments):
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "applier.cli", "mcp", "--store", str(store), *arguments]
        )
        async with Client(command) as client:
            return {name: _text(await client.call_tool(name, call)) for name, call in ARGUMENTS.items()}

    answers = anyio.run(run, store_path)
    assert [name for name, text in answers.items() if "no conversation is named here" not in text] == []
    full, none = (anyio.run(run, store, "--session", "nix")["note"] for store in (store_path, tmp_path / "none.db"))
    assert ("nothing was compacted under the name 'nix'" in full, "no store there yet" in full) == (True, False)
    assert ("nothing was compacted under the name 'nix'" in none, "no store there yet" in none) == (False, True)


@pytest.mark.real
def test_the_command_speaks_on_standard_output(store_path):
    async def run():
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "applier.cli", "mcp", "--session", "wrap-1", "--store", str(store_path)],
        )
        async with Client(command) as client:
            tools = (await client.list_tools()).tools
            return sorted(tool.name for tool in tools), _text(await client.call_tool("brief", {}))

    tools, brief = anyio.run(run)
    assert tools == TOOLS
    assert "send_mail ada@example.org" in brief


class TestWhoseTurn:
    """Which conversation a bare id means where several are visible."""

    @pytest.fixture
    def shown(self, tmp_path):
        """Show the sessions of a name after conversations were compacted, by session what each holds."""
        opened = open_store(tmp_path / "store.db")

        def show(session, conversations):
            for name, messages in conversations.items():
                with Session(planner="rules", store=opened, session_id=name, window_tokens=24_000) as own:
                    assert own.compact(messages).applied
            return Visible(lambda: opened, session=session)

        yield show
        opened.close()

    def restored(self, visible, reference):
        return str(visible.restore(reference, lines=None, search=None, max_characters=None).messages)

    def test_the_session_itself_answers_before_a_subagent_that_was_compacted_later(self, shown):
        visible = shown("ann", {"ann": conversation("own-1"), "ann.1": conversation("below-1")})
        assert "own-1" in self.restored(visible, "t5")
        assert "below-1" not in str(visible.current())

    def test_of_several_without_an_own_one_none_is_guessed(self, shown):
        names = [f"ann.{number:032x}" for number in (1, 2)]
        visible = shown("ann", {name: conversation(f"secret-{name[-1]}") for name in names})
        with pytest.raises(ReferenceNotFound, match="several conversations have a t5: write it with the key") as raised:
            self.restored(visible, "t5")
        references = str(raised.value).split("such as ")[1].split(", ")
        texts = [self.restored(visible, reference) for reference in references]
        assert [("secret-1" in text, "secret-2" in text) for text in texts] == [(False, True), (True, False)]
        assert self.restored(visible, "t1") == self.restored(visible, references[0].replace("t5", "t1"))

    def test_without_an_own_one_the_conversation_compacted_last_is_the_current_one(self, shown):
        first, second = (f"ann.{number:032x}" for number in (1, 2))
        shown("ann", {first: conversation("early-1"), second: conversation("other-1")})
        assert shown("ann", {}).current().session == second
        assert shown("ann", {first: [*conversation("early-1"), *conversation("late-1")]}).current().session == first

    def test_a_name_that_clients_of_a_proxy_chose_shows_nothing_without_its_owner(self, shown):
        owner, call = f"{7:032x}", f"{8:032x}"
        visible = shown("ann", {f"ann.{owner}.{call}": conversation("strange-1")})
        for reference in ("t5", f"{visible.store.histories()[0].key}:t5"):
            with pytest.raises(ReferenceNotFound, match=f"use --session with name and owner: ann.{owner}"):
                self.restored(visible, reference)
        for look_up in (visible.facts, visible.events):
            with pytest.raises(ReferenceNotFound, match="use --session with name and owner"):
                look_up()
        assert "strange-1" in self.restored(shown(f"ann.{owner}", {}), "t5")


@pytest.mark.parametrize("session", ["wrap-a660720f", "proxy", "01a22384-2eba-7141-9c96-9c27d91eb7fd"])
def test_an_event_keeps_the_names_by_which_its_session_is_found(tmp_path, session):
    """The digest at the end of a session's id looks like a secret, and a secret in a message is still hidden."""
    name, history = f"{session}.{'c1064a7c69f28e2c8cc1a143bcc3268a'}", f"h{'bbbada32855c0084e84c0fec974763d6'}"
    with open_store(tmp_path / "names.db") as store:
        told = {"session": name, "session_id": name, "history": history, "message": "password=hunter22hunter22"}
        store.record_event({"time": 1.0, "kind": "post_compact", **told})
        (event,) = store.events(name)
    assert [event[key] for key in ("session", "session_id", "history")] == [name, name, history]
    assert "hunter22" not in event["message"]
