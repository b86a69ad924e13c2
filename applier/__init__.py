"""Applies plans, stores and restores originals, runs sessions, adapters for other programs, and commands."""

TYPE_CHECKING = False  # not from `typing`: the `compactor` command first leaves the folder it is run in
if TYPE_CHECKING:
    from applier.store import open_store
    from applier.view import Preview, apply, preview
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'applier' has no attribute {name!r}")
        return getattr(import_module("applier.store" if name == "open_store" else "applier.view"), name)


__all__ = ["Preview", "apply", "open_store", "preview"]


def __dir__() -> list[str]:
    return __all__
