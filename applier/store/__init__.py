"""The store: a database of original messages, plans, facts and session states; `Store` lists its guarantees."""

from applier.store.backend import Backend
from applier.store.excerpt import Match, Restored, SearchResult
from applier.store.opening import REDACT_VARIABLE, STORE_VARIABLE, default_path, open_store, store_file
from applier.store.records import StoredHistory
from applier.store.retention import Garbage, collect_garbage
from applier.store.store import Store, StoreSize
from planner.placeholders import history_key

__all__ = [
    "REDACT_VARIABLE",
    "STORE_VARIABLE",
    "Backend",
    "Garbage",
    "Match",
    "Restored",
    "SearchResult",
    "Store",
    "StoreSize",
    "StoredHistory",
    "collect_garbage",
    "default_path",
    "history_key",
    "open_store",
    "store_file",
]
