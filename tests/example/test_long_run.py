"""The example agent over several hundred turns and many compactions, killed and started again in the middle."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from applier.testing import Answer
from planner.reading.messages import read_history, to_json
from tests.example.record import seeded
from tests.example.screenplay import load_screenplay
from tests.example.scripted import ScriptedModel
from tests.example.worker import STORY, WINDOW_TOKENS, open_session, saved_messages
from tests.loopback import STALL, Loopback

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROUNDS = 18


class KilledOnce:
    """The scripted model; when first asked for `line` of the play it lets the agent wait until it is killed."""

    def __init__(self, play, line: int) -> None:
        self.model, self.line, self.waiting = ScriptedModel(play), line, threading.Event()

    def __call__(self, request) -> Answer:
        if self.model.place(request.messages[-1]) == self.line and not self.waiting.is_set():
            self.waiting.set()
            return STALL
        return Answer(**self.model.answer(request.body))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The finished run: its folder, the play, and the requests before and after the kill."""
    folder = tmp_path_factory.mktemp("agent")
    seed, play = load_screenplay(STORY, ROUNDS)
    (folder / "workspace").mkdir()
    seeded(seed, folder / "workspace")
    model = KilledOnce(play, len(play) // 2)
    with Loopback([model], window_tokens=WINDOW_TOKENS - 4_096) as server:
        command = [sys.executable, "-m", "tests.example.worker", str(folder), server.url, str(ROUNDS)]
        with subprocess.Popen(command, cwd=ROOT) as first:
            while not model.waiting.wait(1):
                assert first.poll() is None, "the agent ended before it could be killed"
            first.kill()
        before = len(server.requests)
        subprocess.run(command, cwd=ROOT, check=True)
        assert server.violations == []
        return folder, play, [request.body["messages"] for request in server.requests], before


def test_the_run_is_long_and_came_to_its_end(run):
    folder, play, sent, _ = run
    messages = saved_messages(folder)
    assert len(read_history(messages).turns) >= 200
    assert len(sent) == sum(line.speaker == "say" for line in play) + 1
    assert messages[-1]["content"][0]["text"] == play[-1].text


def test_it_compacted_many_times_and_kept_the_prefix_in_between(run):
    folder, _, sent, before = run
    changed = [n for n in range(1, len(sent)) if sent[n][: len(sent[n - 1])] != sent[n - 1]]
    with open_session(folder) as session:
        kinds = [event.kind for event in session.log()]
    assert kinds.count("post_compact") >= 4
    assert len(changed) <= kinds.count("post_compact")
    assert before not in changed
    assert sent[before] == sent[before - 1]


def test_the_user_and_the_failed_approach_are_in_every_prompt(run):
    _, _, sent, _ = run
    for messages in sent[8:]:
        text = to_json(messages)
        assert "Never modify inventory.csv. Standard library only." in text
        assert "invalid literal for int()" in text


def test_every_turn_can_be_restored_exactly(run):
    folder, *_ = run
    history = read_history(saved_messages(folder))
    with open_session(folder) as session:
        session.prepare(history.messages[:-1])
        for turn in history.turns[:-1]:
            assert session.restore(turn.id).messages == history.messages_of(turn)


def test_the_agents_own_tools_found_what_was_compacted(run):
    folder, play, *_ = run
    answers = {
        block["tool_use_id"]: block
        for message in saved_messages(folder)
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    }
    restored = [
        f"toolu_{at:04}_0" for at, line in enumerate(play) if line.calls and line.calls[0].name == "restore_context"
    ]
    assert len(restored) == ROUNDS
    assert all("invalid literal for int()" in answers[call]["content"] for call in restored)


def test_the_work_was_really_done(run):
    folder, *_ = run
    assert len(list((folder / "workspace" / "rules").glob("rule_*.py"))) == ROUNDS
