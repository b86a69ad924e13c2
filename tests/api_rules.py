"""What the Messages API refuses of a list, told by a small reading of its rules that shares no code with the product.

Covers what a compacted view can get wrong: roles and their order, pairs of calls and results, blank and odd text.
"""

import json


def refusals(messages):
    """What is wrong with `messages`, a list of plain dicts, one line for each; empty if the API takes them."""
    return [*_order(messages), *_pairs(messages), *_texts(messages)]


def _order(messages):
    roles = [message["role"] for message in messages]
    if roles and roles[0] != "user":
        yield f"starts with {roles[0]}"
    for at, role in enumerate(roles):
        before, behind = roles[at - 1 : at] or ["nothing"], roles[at + 1 : at + 2]
        if role == "system":
            if before != ["user"] or behind not in ([], ["assistant"]):
                yield f"{at}: system between {before[0]} and {behind}"
        elif before == [role]:
            yield f"{at}: two messages of {role} in a row"


def _pairs(messages):
    waiting, used = [], set()
    for at, message in enumerate(messages):
        content = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] for block in content]
        answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting):
            yield f"{at}: answers {answered}, waiting {waiting}"
        if kinds[: len(answered)] != ["tool_result"] * len(answered):
            yield f"{at}: results behind other blocks"
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        if used & set(waiting) or len(set(waiting)) < len(waiting):
            yield f"{at}: an id used twice in {waiting}"
        used |= set(waiting)
        seen = set()
        for block in content:
            if block["type"] == "server_tool_use":
                seen.add(block["id"])
            elif block["type"] == "web_search_tool_result" and block["tool_use_id"] not in seen:
                yield f"{at}: a server's result without its call"


def _texts(messages):
    for at, message in enumerate(messages):
        content = message["content"]
        texts = [content] if isinstance(content, str) else [b["text"] for b in content if b["type"] == "text"]
        if content == [] or not all(text.strip() for text in texts):
            yield f"{at}: blank"
        ending = content if isinstance(content, str) else "".join(block.get("text", "") for block in content[-1:])
        if message["role"] == "assistant" and at == len(messages) - 1 and ending.strip() and ending != ending.rstrip():
            yield f"{at}: ends in blanks"
        try:
            json.dumps(message, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield f"{at}: no valid Unicode"
