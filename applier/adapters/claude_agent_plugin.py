"""Compaction for agents of Anthropic's Agent SDK, which runs Claude Code: adds the plugin for it to the SDK's options.

::

    options = ClaudeAgentOptions(plugins=[claude_agent_plugin()], allowed_tools=[*mine, *PLUGIN_TOOLS])

Nothing is installed: Claude Code loads the plugin for these options only. The plugin asks the agent's own model for
plans; if it fails, Claude Code compacts by itself.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal, TypedDict

import platformdirs

from applier.adapters.agent_tools import MCP_PREFIX, PROJECT_TOOLS
from applier.adapters.client_plugin import PLUGIN_NAME, plugin_files, put_plugin
from applier.processes import program
from applier.store.opening import STORE_VARIABLE, store_file
from planner.api import check_argument
from planner.errors import SettingsError

__all__ = ["PLUGIN_TOOLS", "claude_agent_plugin"]

PLUGIN_TOOLS = [f"{MCP_PREFIX}{name}" for name in PROJECT_TOOLS]
"""Names of the tools by which the agent looks up removed turns, for the option ``allowed_tools``."""


class _Plugin(TypedDict):
    """Entry for a plugin in the SDK's options, with the fields of `claude_agent_sdk.SdkPluginConfig`."""

    type: Literal["local"]
    path: str


def claude_agent_plugin(store: str | Path | None = None, folder: str | Path | None = None) -> _Plugin:
    """Write the plugin's files and return the entry for the ``plugins`` of `ClaudeAgentOptions`.

    `store`: file or address of the store; None for the one that the agent's environment names. `folder`: the plugin's
    files are written below it, once for each version and environment of this package; None for the user's state folder.

    Raises:
        SettingsError: An argument has the wrong type, or the folder cannot be written.
    """
    check_argument("store", store, str | Path, "a path or an address")
    check_argument("folder", folder, str | Path, "a path")
    environment = {STORE_VARIABLE: str(store_file(str(store)) or store)} if store else {}
    files = plugin_files(program("mod"), environment)
    digest = sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    parent = Path(folder or platformdirs.user_state_dir("relevance-compactor"), "claude-agent-sdk", digest)
    place = parent.absolute() / PLUGIN_NAME
    try:
        if not place.is_dir():
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            put_plugin(files, place)
    except OSError as error:
        if not place.is_dir():  # another process may have done the same meanwhile
            problem = f"{place}: {error.strerror}; name another folder: claude_agent_plugin(folder=…)"
            raise SettingsError(problem) from None
    return {"type": "local", "path": str(place)}
