"""The `compactor` command: the edge where files are read, the store is opened and people are told."""

from applier.cli.start import main

__all__ = ["main"]
