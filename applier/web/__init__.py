"""Pages for a browser on this machine: the review of a plan, the report of a session; needs the extra ``web``.

Shows and checks; what is written is written by the two functions it was given.
"""

from applier.web.report import Report
from applier.web.review import Outcome, Review
from applier.web.server import PageServer

__all__ = ["Outcome", "PageServer", "Report", "Review"]
