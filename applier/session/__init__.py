"""Compaction inside a running agent: one object that decides when, and never breaks the host."""

from applier.session.compaction import Compaction
from applier.session.events import Event
from applier.session.presets import PRESETS, Preset, Step
from applier.session.session import Session
from applier.session.state import SessionState

__all__ = ["PRESETS", "Compaction", "Event", "Preset", "Session", "SessionState", "Step"]
