"""Where originals, plans, facts, events and session states live; see `Store` for what it promises."""

from applier.store.backend import Backend
from applier.store.opening import REDACT_VARIABLE, STORE_VARIABLE, default_path, open_store, store_file
from applier.store.records import StoredHistory
from applier.store.store import Match, Restored, SearchResult, Store, StoreSize
from planner.placeholders import history_key

__all__ = [
    "REDACT_VARIABLE",
    "STORE_VARIABLE",
    "Backend",
    "Match",
    "Restored",
    "SearchResult",
    "Store",
    "StoreSize",
    "StoredHistory",
    "default_path",
    "history_key",
    "open_store",
    "store_file",
]
