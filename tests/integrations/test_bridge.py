"""Conversations of an agent and its subagents, for frameworks that do not tell which agent sends a request."""

from applier.adapters.frameworks.bridge import MAX_CHILDREN, RunConversations
from applier.session import Session
from applier.store import open_store


def test_the_oldest_subagents_end_only_when_there_are_too_many(tmp_path):
    with open_store(tmp_path / "store.db") as store, Session(store=store, planner="rules") as session:
        conversations = RunConversations(session)
        tasks = [{"role": "user", "content": f"task {number}"} for number in range(MAX_CHILDREN + 3)]
        begun = [conversations.find([task]) for task in tasks]
        answer = {"role": "assistant", "content": "done"}
        ended = {1, 2}  # number 0 is the agent itself
        for number in {*range(len(tasks))} - ended:
            assert conversations.find([tasks[number], answer]) is begun[number]
