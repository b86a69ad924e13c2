"""Acts, keeps and runs: turns a plan into a message list, and stores and restores what was removed."""

from applier.store import open_store
from applier.view import Preview, apply, preview

__all__ = ["Preview", "apply", "open_store", "preview"]
