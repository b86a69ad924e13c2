"""Where originals, plans, facts, events and session states live; see `Store` for what it promises."""

from applier.store.opening import STORE_VARIABLE, default_path, open_store
from applier.store.protocol import Match, Restored, Store, StoredHistory, StoreSize
from applier.store.reference import history_key

__all__ = [
    "STORE_VARIABLE",
    "Match",
    "Restored",
    "Store",
    "StoreSize",
    "StoredHistory",
    "default_path",
    "history_key",
    "open_store",
]
