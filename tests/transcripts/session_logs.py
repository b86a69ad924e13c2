"""Conversations, and the session logs that Claude Code and Codex would have written of them."""

import json
from itertools import count

from hypothesis import strategies as st

words = st.sampled_from(["fix the parser please", "why?", "two\nlines", "Größe 😀", "ok"])


@st.composite
def conversations(draw):
    """Anthropic messages: words of the user, answers, and answers with parallel calls and their results."""
    messages, numbers = [{"role": "user", "content": draw(words)}], count(1)
    for _ in range(draw(st.integers(1, 5))):
        texts = [{"type": "text", "text": text} for text in draw(st.lists(words, max_size=2))]
        calls = [
            {"type": "tool_use", "id": f"toolu_{next(numbers)}", "name": "Read", "input": {"path": draw(words)}}
            for _ in range(draw(st.integers(0, 3)))
        ]
        if not (texts or calls):
            continue
        messages.append({"role": "assistant", "content": [*texts, *calls]})
        if calls:
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": draw(words)} for c in calls]
            messages.append({"role": "user", "content": results})
        if not calls or draw(st.booleans()):
            messages.append({"role": "user", "content": draw(words)})
    return messages


class ClaudeCodeLog:
    """Writes lines the way Claude Code does; every line follows `at` unless told otherwise."""

    def __init__(self):
        self.lines, self.at = [], None

    def add(self, kind, parent="", **fields):
        uuid = f"line-{len(self.lines) + 1}"
        parent = self.at if parent == "" else parent
        base = {"parentUuid": parent, "isSidechain": False, "sessionId": "s", "timestamp": self._time()}
        self.lines.append({**base, "type": kind, "uuid": uuid, **fields})
        self.at = uuid
        return uuid

    def user(self, content, parent="", **fields):
        return self.add("user", parent, message={"role": "user", "content": content}, **fields)

    def assistant(self, key, *blocks, parent="", **fields):
        message = {"id": key, "type": "message", "role": "assistant", "model": "m", "content": list(blocks)}
        return self.add("assistant", parent, message=message, **fields)

    def noise(self):
        self.lines.append({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}})

    def text(self):
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def _time(self):
        return f"2026-01-01T00:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.000Z"


@st.composite
def claude_code_logs(draw):
    """A conversation and a log of it: blocks on lines of their own, results in between, noise, left branches."""
    messages, log = draw(conversations()), ClaudeCodeLog()
    for i, message in enumerate(messages):
        if draw(st.integers(0, 3)) == 0:
            log.noise()
        if message["role"] == "assistant":
            results = messages[i + 1]["content"] if i + 1 < len(messages) else []
            _answer(draw, log, f"msg_{i}", message["content"], results)
        elif isinstance(message["content"], str):
            if draw(st.integers(0, 3)) == 0:
                _left_branch(log, i)
            log.user(message["content"])
    return messages, log


def _answer(draw, log, key, blocks, results):
    tree = draw(st.booleans())
    waiting = [r for r in results if isinstance(r, dict) and r["type"] == "tool_result"]
    asked, last = {}, log.at
    for block in blocks:
        last = asked[block.get("id")] = log.assistant(key, block, parent=last if tree else "")
        if draw(st.booleans()):
            log.add("progress", data={"type": "hook_progress"})
        if block["type"] == "tool_use" and draw(st.booleans()):
            _result(log, waiting.pop(_index(waiting, block["id"])), asked, tree)
    for result in draw(st.permutations(waiting)):
        _result(log, result, asked, tree)


def _index(results, key):
    return next(i for i, result in enumerate(results) if result["tool_use_id"] == key)


def _result(log, result, asked, tree):
    parent = asked[result["tool_use_id"]] if tree else ""
    log.user([result], parent=parent, toolUseResult={"stdout": "for the screen"})


def _left_branch(log, number):
    """Words of the user that were taken back by going to the message before them."""
    back = log.at
    log.user("never mind this one")
    log.assistant(f"msg_left_{number}", {"type": "text", "text": "As you like."})
    log.at = back


@st.composite
def codex_logs(draw):
    """A conversation and a rollout of it, with the events that repeat it for the screen."""
    messages, lines = draw(conversations()), []
    lines.append({"type": "session_meta", "payload": {"id": "s", "base_instructions": {"text": "Be brief."}}})
    for message in messages:
        if isinstance(message["content"], str):
            lines.append(
                _item(type="message", role="user", content=[{"type": "input_text", "text": message["content"]}])
            )
            lines.append({"type": "event_msg", "payload": {"type": "user_message", "message": message["content"]}})
        else:
            blocks = message["content"]
            lines += [_codex_item(block) for block in blocks]
        if draw(st.booleans()):
            lines.append({"type": "event_msg", "payload": {"type": "token_count", "info": None}})
    return messages, "".join(json.dumps(line) + "\n" for line in lines)


def _item(**payload):
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}


def _codex_item(block):
    if block["type"] == "text":
        return _item(type="message", role="assistant", content=[{"type": "output_text", "text": block["text"]}])
    if block["type"] == "tool_use":
        arguments = json.dumps(block["input"])
        return _item(type="function_call", name=block["name"], arguments=arguments, call_id=block["id"])
    return _item(type="function_call_output", call_id=block["tool_use_id"], output=block["content"])
