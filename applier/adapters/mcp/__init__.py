"""An MCP server over a store, for one conversation and those below it; needs the extra ``mcp``."""

from applier.adapters.mcp.tools import mcp_server
from applier.adapters.mcp.visible import Visible

__all__ = ["Visible", "mcp_server"]
