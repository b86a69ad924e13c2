"""Import of a file as `compactor store import` does it."""

from applier.store.archive import import_archive, open_archive


def import_records(store, path, *, is_own_backup=False):
    """Return the keys of the histories of the file `path`, now in `store`."""
    with open_archive(path) as archive:
        return import_archive(store, archive, is_own_backup=is_own_backup)
