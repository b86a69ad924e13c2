"""How long a test waits for what it has started."""

PATIENCE_SECONDS = 180
"""Time limit of clients, processes and threads: a machine may be busy. Nothing waits longer than it needs."""
