"""Acts, keeps and runs: turns a plan into a message list, and stores and restores what was removed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from applier.store import open_store
    from applier.view import Preview, apply, preview
else:
    from planner.lazy_names import lazy_names

    __getattr__ = lazy_names(__name__, "applier.store", "applier.view")

__all__ = ["Preview", "apply", "open_store", "preview"]


def __dir__() -> list[str]:
    return __all__
