"""Pages for a browser on this machine: the review of a plan or of learned lines, the report of a session; needs the
extra ``web``.

Shows and checks; what is written is written by the functions it was given.
"""

from applier.web.page_server import PageServer
from applier.web.reviews import LinesPage, ReviewPage

__all__ = ["LinesPage", "PageServer", "ReviewPage"]
