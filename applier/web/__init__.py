"""Pages in a browser on this machine: the review of a plan, and the report of a session. Needs the extra ``web``."""

from applier.web.page_server import PageServer
from applier.web.reviews import ReviewPage

__all__ = ["PageServer", "ReviewPage"]
