"""Pages for a browser on this machine: the review of a plan, the report of a session; needs the extra ``web``.

Shows and checks; what is written is written by the two functions it was given.
"""

from applier.web.page_server import PageServer
from applier.web.plan_review import Review

__all__ = ["PageServer", "Review"]
