"""What changes the list while an answer is on its way, on the server that keeps the API's rules: that answer was
thought behind the older list."""

from __future__ import annotations

import anthropic
import pytest

from applier.adapters.frameworks.anthropic_middleware import CompactionMiddleware
from applier.session import Session
from applier.testing import MessagesServer, say, use
from tests.server.agent import SYSTEM, TOOLS
from tests.server.test_matrix import ADAPTIVE, INTERLEAVED, MANUAL, NEWEST, OLDER

pytestmark = pytest.mark.real

MODELS = {
    "manual": {"model": OLDER, "thinking": MANUAL},
    "manual, between calls": {"model": OLDER, "thinking": MANUAL, "extra_headers": INTERLEAVED},
    "preserved": {"model": NEWEST, "thinking": ADAPTIVE},
}


class Host:
    """An agent that reads and reads; what `meanwhile` says of a request's number happens while that is in flight."""

    def __init__(self, open_session, meanwhile, request, *, tasks_of=8):
        self.open_session, self.meanwhile, self.request, self.tasks_of = open_session, meanwhile, request, tasks_of
        self.session = open_session(model=request["model"])
        self.messages = []

    def answer(self, _request):
        number = self.number = self.number + 1
        for act in self.meanwhile.get(number, "").split():
            self.act(act)
        if number % self.tasks_of == 0:
            return [say(f"Done after {number}.")]
        return [say(f"Step {number}."), use("bash", command=f"cat part_{number}.py")]

    def act(self, act):
        if act == "compact":
            assert self.session.compact(self.messages).applied
        elif act == "undo":
            assert self.session.undo()
        elif act == "restart":
            self.session.close()
            self.session = self.open_session(model=self.request["model"])
        elif act == "queue":  # what the user types meanwhile stands behind the answer in the end
            queued = {"role": "user", "content": "And mind src/auth.ts."}
            assert self.session.compact([*self.messages, queued]).applied

    def play(self, requests):
        self.number = 0
        middleware = CompactionMiddleware(lambda _body: self.session)
        with (
            MessagesServer(self.answer) as server,
            anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0, middleware=[middleware]) as client,
        ):
            while self.number < requests:
                if self.number % self.tasks_of == 0:
                    self.messages.append({"role": "user", "content": f"Task {self.number}: never delete rows."})
                response = client.messages.create(
                    messages=self.messages, system=SYSTEM, tools=TOOLS, max_tokens=2048, **self.request
                )
                content = [block.model_dump(exclude_none=True) for block in response.content]
                self.messages.append({"role": "assistant", "content": content})
                results = [
                    {"type": "tool_result", "tool_use_id": block["id"], "content": read(self.number)}
                    for block in content
                    if block["type"] == "tool_use"
                ]
                if results:
                    self.messages.append({"role": "user", "content": results})
        assert server.violations == []
        return [exchange.request.messages for exchange in server.exchanges]


def read(number):
    return "\n".join(f"row {line} of part {number}, with value_{number}_{line} in it" for line in range(60))


def numbers(messages):
    """Of the requests whose answers still have their thinking in `messages`."""
    said = (block for message in messages if message["role"] == "assistant" for block in message["content"])
    return [int(block["thinking"].split()[1].rstrip(":")) for block in said if block["type"] == "thinking"]


MEANWHILE = {
    "a compaction": {12: "compact"},
    "in the first answer to a task": {17: "compact"},
    "in the last answer to a task": {16: "compact"},
    "one after another": {12: "compact", 13: "compact", 20: "compact"},
    "and undone at once": {12: "compact undo"},
    "undone later": {12: "compact", 14: "undo"},
    "the first of two undone": {12: "compact", 15: "compact", 18: "undo undo"},
    "undone, and compacted again": {12: "compact", 14: "undo compact"},
    "with words that wait": {12: "queue"},
    "before a restart": {12: "compact restart"},
    "behind a restart": {12: "compact", 15: "restart compact"},
    "undone behind a restart": {12: "compact", 15: "restart undo"},
}


@pytest.fixture
def session_of(tmp_path):
    opened = []

    def make(**wishes):
        given = {"preset": "off", "planner": "rules", "store": tmp_path / "store.db", "session_id": "s", **wishes}
        opened.append(Session("Check the parts", **given))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


IN_TURN = [*zip(MEANWHILE, [*MODELS] * len(MEANWHILE), strict=False)]
"""Each with one of the models, for what all of them would only repeat."""
REST = [(act, model) for act in MEANWHILE for model in MODELS if (act, model) not in IN_TURN]
SHORT = [pytest.param(act, model, 8, id=f"{act}-{model}") for act, model in IN_TURN]
SHORT_REST = [pytest.param(act, model, 8, id=f"{act}-{model}", marks=pytest.mark.slow) for act, model in REST]
LONG = [
    pytest.param(act, model, 40, id=f"{act}-{model}, in one long task", marks=pytest.mark.slow)
    for act, model in IN_TURN
]


@pytest.mark.parametrize(("act", "model", "tasks_of"), [*SHORT, *SHORT_REST, *LONG])
def test_no_rule_is_broken(session_of, act, model, tasks_of):
    Host(session_of, MEANWHILE[act], MODELS[model], tasks_of=tasks_of).play(24)


def test_thinking_of_the_answer_that_was_on_its_way_goes_and_of_those_behind_it_stays(session_of):
    *_, sent = Host(session_of, {12: "compact"}, MODELS["preserved"]).play(24)
    assert numbers(sent) == list(range(13, 24))


@pytest.mark.parametrize("meanwhile", [{}, {12: "compact undo"}, {12: "restart"}], ids=["nothing", "undone", "restart"])
def test_where_the_list_is_the_same_again_no_thinking_goes(session_of, meanwhile):
    *_, sent = Host(session_of, meanwhile, MODELS["preserved"]).play(24)
    assert numbers(sent) == list(range(1, 24))


def test_thinking_from_before_a_compaction_stands_again_once_that_is_undone(session_of):
    *_, sent = Host(session_of, {12: "compact", 14: "undo"}, MODELS["preserved"]).play(24)
    assert numbers(sent) == [*range(1, 13), *range(15, 24)]
