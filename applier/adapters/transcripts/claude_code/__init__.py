"""Claude Code's session logs (one JSON line per block, result and event) as a transcript."""

from applier.adapters.transcripts.claude_code.read import is_claude_code, read_claude_code

__all__ = ["is_claude_code", "read_claude_code"]
