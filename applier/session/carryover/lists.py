"""The agent's own lists, as they stand now: the todo list or plan it wrote last, and its open tasks.

Tools are told by what they carry, not by a list of products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from applier.session.ledger import Ledger, Result

__all__ = ["open_lists"]

_LIST_TOOL = re.compile(r"todo|update_?plan|set_?plan|task_?list", re.I)
_CREATE_TASK = re.compile(r"^task_?create$", re.I)
_UPDATE_TASK = re.compile(r"^task_?update$", re.I)
_TEXT_KEYS = ("content", "step", "text", "subject", "title", "task", "description")
_DONE = frozenset(("completed", "done", "cancelled", "deleted"))


def open_lists(ledger: Ledger) -> list[str]:
    """Each list that still has something open, as text."""
    lists = (_latest_list(ledger), _open_tasks(ledger.results))
    return [text for text in lists if text]


def _latest_list(ledger: Ledger) -> str:
    for result in reversed(ledger.results):
        if _LIST_TOOL.search(result.tool):
            entries = next((v for v in result.arguments.values() if _is_list(v)), None)
            if entries is not None:
                return _shown(f"Todo list ({ledger.turn_id(result.message)})", entries)
    return ""


def _open_tasks(results: Iterable[Result]) -> str:
    tasks: dict[str, dict[str, Any]] = {}
    for result in results:
        if _CREATE_TASK.match(result.tool) and not result.is_error:
            number = re.search(r"\d+", result.text)
            tasks[number.group() if number else str(len(tasks) + 1)] = dict(result.arguments)
        elif _UPDATE_TASK.match(result.tool):
            name = str(result.arguments.get("taskId") or result.arguments.get("id") or "")
            if name in tasks:
                tasks[name].update(result.arguments)
    return _shown("Tasks", list(tasks.values()))


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _shown(title: str, entries: Iterable[Mapping[str, Any]]) -> str:
    rows = [(str(entry.get("status", "pending")), _text(entry)) for entry in entries]
    if all(status in _DONE for status, _ in rows):
        return ""
    return "\n".join([f"{title}:", *(f"- [{status}] {text}" for status, text in rows)])


def _text(entry: Mapping[str, Any]) -> str:
    return next((str(entry[key]) for key in _TEXT_KEYS if entry.get(key)), "")
