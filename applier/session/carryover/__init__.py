"""What survives a compaction besides the plan: files read last, the agent's lists, the host's rules."""

from applier.session.carryover.allowance import Allowance
from applier.session.carryover.carried import carried_text
from applier.session.carryover.files import FileMarks

__all__ = ["Allowance", "FileMarks", "carried_text"]
