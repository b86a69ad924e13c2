"""Compaction inside a running agent, by one object that decides when to compact and never breaks the agent."""

from applier.session.compaction import Compaction
from applier.session.events import Event
from applier.session.presets import PRESETS, Preset, Step
from applier.session.session import Session
from applier.session.state import SessionState

__all__ = ["PRESETS", "Compaction", "Event", "Preset", "Session", "SessionState", "Step"]
