"""Decides what an agent's history may lose: reads it turn by turn and returns a `CompactionPlan`."""
