"""Where originals, plans, facts, events and session states live; see `Store` for what it promises."""

from applier.store.backend import Backend
from applier.store.opening import REDACT_VARIABLE, STORE_VARIABLE, default_path, open_store, store_file
from applier.store.records import StoredHistory, history_key
from applier.store.store import Match, Restored, SearchResult, Store, StoreSize

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
