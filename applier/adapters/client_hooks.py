"""Hooks of Claude Code around its own compaction: what stands in its settings, and what its agent is told after it.

Before a compaction originals and a plan go to the store; the compacted session begins with the plan's brief and with
how to get a turn back. Pure: settings in, settings out; reads and writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from planner.errors import SettingsError
from planner.placeholders import clean
from planner.plan import CompactionPlan

__all__ = ["HookCall", "brief_after_compaction", "read_call", "with_hooks", "without_hooks"]

EVENTS: Mapping[str, str | None] = {"PreCompact": None, "SessionStart": "compact"}
"""The events that are hooked, each with what it must match: only the start of a compacted session is ours."""
OURS = re.compile(r" (-m applier\.cli|-c .*\bfrom applier\.cli import main; main\(\)') hooks run$")
"""How the command of each of our hooks ends, and no one else's: ``python -I -m applier.cli hooks run`` and ``python -IS
-c '…; from applier.cli import main; main()' hooks run``; not ``echo applier.cli hooks run``."""
TIMEOUT_SECONDS = 120
MOST_CHARACTERS = 9_500
"""What a hook says beyond 10,000 characters the client puts into a file instead of the context."""


class HookCall(BaseModel):
    """What the client writes to a hook's standard input; other fields are ignored."""

    hook_event_name: Literal["PreCompact", "SessionStart"]
    session_id: str = Field(min_length=1)
    transcript_path: str = ""
    source: str = ""
    """Of a session's start: ``compact`` behind a compaction."""
    custom_instructions: str | None = None
    """What the user wrote behind ``/compact``."""


def read_call(raw: bytes) -> HookCall:
    """What the client wrote, `raw`.

    Raises:
        SettingsError: it is no event of a hook; the text names the field.
    """
    try:
        return HookCall.model_validate_json(raw)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        problem = ": ".join((*map(str, item["loc"]), item["msg"]))
        raise SettingsError(f"expected a hook's event as JSON on standard input: {problem}") from None


def with_hooks(settings: Mapping[str, Any], command: str) -> dict[str, Any]:
    """`settings` in which each event of `EVENTS` runs our `command`, once; nothing else is changed.

    Raises:
        ValueError: the hooks that are there have another form.
    """
    bare = without_hooks(settings)
    hooks = {**bare.get("hooks", {})}
    for event, matcher in EVENTS.items():
        matched = {} if matcher is None else {"matcher": matcher}
        ours = {**matched, "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_SECONDS}]}
        hooks[event] = [*hooks.get(event, []), ours]
    return {**bare, "hooks": hooks}


def without_hooks(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` without what `with_hooks` put there, and without empty lists of hooks.

    Raises:
        ValueError: the hooks that are there have another form.
    """
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(entries, list) for entries in hooks.values()):
        raise ValueError("expected 'hooks' to be an object of lists")
    left = {event: [bare for bare in map(_bare, entries) if bare is not None] for event, entries in hooks.items()}
    kept = {event: entries for event, entries in left.items() if entries}
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    return {**settings, "hooks": kept} if kept else rest


def _bare(entry: Any) -> Any:
    """One entry of an event without our commands; None if nothing is left of it."""
    commands = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(commands, list) or not any(map(_is_ours, commands)):
        return entry
    others = [command for command in commands if not _is_ours(command)]
    return {**entry, "hooks": others} if others else None


def _is_ours(command: Any) -> bool:
    return isinstance(command, dict) and OURS.search(str(command.get("command", ""))) is not None


def brief_after_compaction(plan: CompactionPlan, key: str, command: str) -> str:
    """What the agent of a compacted session is told: the brief of `plan`, and how `command` restores from `key`."""
    turns = len(plan.turns)
    opening = f'<compacted history="{key}">\nRecord of the {turns} turns before this compaction; for reference only.'
    closing = (
        f"Every turn is stored whole. In a shell: `{command} restore {key}:t1` (to t{turns}) prints one, "
        f"`{command} restore {key}:t1 --search TEXT` the lines of it that hold TEXT.\n</compacted>"
    )
    brief, room = clean(plan.brief), MOST_CHARACTERS - len(opening) - len(closing)
    if len(brief) > room:
        brief = brief[:room].rpartition("\n")[0] + "\n…"
    return "\n".join(part for part in (opening, brief, closing) if part) + "\n"
