"""Pages for a browser on this machine: the review of a plan or of learned lines, the report of a session; needs the
extra ``web``.

Shows and checks; what is written is written by the functions it was given.
"""

from applier.web.line_review import LineReview
from applier.web.page_server import PageServer
from applier.web.plan_review import Review

__all__ = ["LineReview", "PageServer", "Review"]
