"""Compaction inside a running agent: one object that decides when, and never breaks the host."""

from applier.session.events import Event
from applier.session.session import Compaction, Session, SessionState

__all__ = ["Compaction", "Event", "Session", "SessionState"]
