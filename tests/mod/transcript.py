"""How Claude Code 2.1.330 keeps a transcript in rows and shows it to a mod, as far as compaction goes: what was seen of
the real client, without a process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from applier.adapters import claude_code_mod as mod
from planner.reading.messages import blocks
from tests.mod.client import ANSWER

READ = ("text", "tool_use", "tool_result", "image", "document")
"""The client runs a search of the server in a request of its own."""
MODEL = "claude-opus-5-5"
CLOCK = float
"""A clock that is always at 0."""


class Rows:
    """A transcript that grows by messages and is compacted by the mod; each row has a handle of its own."""

    def __init__(self, messages: Sequence[dict[str, Any]] = ()) -> None:
        self.rows: list[dict[str, Any]] = []
        self.content: dict[str, list[dict[str, Any]]] = {}
        """What the client has of each row itself, media included, by its handle."""
        self.add(messages)

    def add(self, messages: Sequence[dict[str, Any]]) -> None:
        """An assistant's blocks are rows of their own, as its answer streams in; a user's message is one."""
        for message in messages:
            content = [*blocks(message)]
            whole = message["role"] == "user"
            for part in [content] if whole else [[block] for block in content]:
                self._add(message["role"], part)

    def _add(self, role: str, content: list[dict[str, Any]]) -> None:
        texts = [block["text"] for block in content if block["type"] == "text"]
        uses = [block for block in content if block["type"] == "tool_use"]
        results = [block for block in content if block["type"] == "tool_result"]
        row = {
            "role": role,
            "text": "\n".join(texts),
            "handle": f"row-{len(self.content)}",
            "toolUses": [{"tool_use_id": b["id"], "tool": b["name"], "input": b["input"]} for b in uses],
            "toolResults": [
                {"tool_use_id": b["tool_use_id"], "text": _text(b), "isError": bool(b.get("is_error"))} for b in results
            ],
        }
        self.rows.append(row)
        self.content[row["handle"]] = content

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the next request holds: neighbours of one role are one message, results first."""
        messages: list[dict[str, Any]] = []
        for row in self.rows:
            content = deepcopy(self.content[row["handle"]])
            if messages and messages[-1]["role"] == row["role"]:
                messages[-1]["content"] += content
            else:
                messages.append({"role": row["role"], "content": content})
        for message in messages:
            message["content"].sort(key=lambda block: message["role"] == "user" and block["type"] != "tool_result")
        return messages

    def call(self, **more: Any) -> dict[str, Any]:
        """What the shim sends."""
        return {
            "session_id": "a-session", "model": MODEL, "idle_seconds": 1.0, "context_tokens": 1_000,
            "messages": self.rows, "api": self.sent, **more,
        }  # fmt: skip

    def compact(self, store: Any, answer: Any = ANSWER, project: str = "", **more: Any) -> dict[str, Any]:
        """Compact as the shim does: asks until there is an end; `answer` says what is answered to a question."""
        reply = self._asked(lambda call: mod.compact(call, store, CLOCK, project=project), answer, more)
        if "messages" in reply:
            self._replace(reply["messages"])
        return reply

    def plan_ahead(self, store: Any, answer: Any = ANSWER, **more: Any) -> bool:
        """Plan beforehand as the shim does; True if there is a plan."""
        return bool(self._asked(lambda call: mod.ahead(call, store), answer, more)["is_ready"])

    def _asked(self, run: Any, answer: Any, more: dict[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for _ in range(6):
            reply = json.loads(json.dumps(run(json.loads(json.dumps(self.call(answers=answers, **more))))))
            for question in reply.get("ask", ()):
                said = answer(question) if callable(answer) else answer
                answers[question["id"]] = said if isinstance(said, dict) else {"isAnswered": True, "text": said}
            if "ask" not in reply:
                break
        return {**reply, "answers": answers}

    def _replace(self, rows: Sequence[dict[str, Any]]) -> None:
        own = {row["handle"]: row for row in self.rows}
        kept, self.rows = dict(self.content), []
        for row in rows:
            if "handle" in row:
                self.rows.append(own[row["handle"]])
                self.content[row["handle"]] = kept[row["handle"]]
                continue
            content = [
                {"type": "tool_result", "tool_use_id": r["tool_use_id"], "content": r["text"],
                 **({"is_error": True} if r["isError"] else {})}
                for r in row.get("toolResults", ())
            ]  # fmt: skip
            content += [{"type": "text", "text": row["text"]}] if row["text"] else []
            content += [
                {"type": "tool_use", "id": u["tool_use_id"], "name": u["tool"], "input": u["input"]}
                for u in row["toolUses"]
            ]
            self._add(row["role"], content)


def _text(result: dict[str, Any]) -> str:
    inside = result.get("content", "")
    return inside if isinstance(inside, str) else "\n".join(part.get("text", "") for part in inside)


def read_by_model(messages: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Messages as a model reads them: without thinking, marks and errors that are none; neighbours of a role as one."""
    read: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        content = [_bare(block) for block in blocks(message) if block["type"] in READ]
        content = [block for block in content if block["type"] != "text" or block["text"].strip()]
        if read and read[-1][0] == message["role"]:
            read[-1][1].extend(content)
        elif content:
            read.append((message["role"], content))
    return read


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    if block["type"] != "tool_result":
        return bare
    inside = block.get("content") or ""
    texts = isinstance(inside, list) and all(part["type"] == "text" for part in inside)
    return {
        "type": "tool_result", "tool_use_id": block["tool_use_id"],
        "content": _text(block) if isinstance(inside, str) or texts else inside,
        **({"is_error": True} if block.get("is_error") else {}),
    }  # fmt: skip
