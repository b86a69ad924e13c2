"""What a store needs of a database: records by key, in order, and transactions. See `Store` for what is made of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

__all__ = ["Backend"]


class Backend(ABC):
    """Where records are: a text of ASCII characters as the key, bytes as the body.

    A backend of your own has the abstract methods; ``Store(backend)`` does the rest. Threads and processes may use it
    at once. All but `transaction`, `flush` and `close` are called inside of a transaction, by the thread that began it.
    """

    place: str = "the store"
    """The file or address, for error texts; holds no password."""

    patience_seconds: float | None = None
    """A backend on a server breaks off what takes longer, whatever the server or the network does; None: nothing."""

    @abstractmethod
    def transaction(self, *, write: bool = False) -> AbstractContextManager[object]:
        """All or nothing of what is done in the ``with`` block, which sees no other's half of one, and which nobody
        writes beside if it is to `write`. What was written is on disk when the block ends; if it raises, nothing is.

        Raises:
            StoreError: the database could not do it; the text names the place and the cure.
        """

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in the order of their characters."""

    @abstractmethod
    def get(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """The bodies of those of `keys` that are there."""

    @abstractmethod
    def add(self, records: Mapping[str, bytes]) -> None:
        """Store `records`; a key that is there already keeps its body."""

    @abstractmethod
    def remove(self, keys: Iterable[str]) -> None:
        """Delete the records with these keys, whether they are there or not."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database. The backend is not to be used afterwards."""

    def hold(self, name: str, seconds: float) -> AbstractContextManager[bool]:
        """Nobody else who asks for `name` has it in the ``with`` block; False if another had it for all of `seconds`.
        Outside of a transaction. A process that dies lets go. This one holds nobody off.

        Raises:
            StoreError: the database could not be asked.
        """
        return nullcontext(bool(name) and seconds >= 0)

    def damages(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        return []

    def flush(self) -> list[str]:
        """Take what was deleted out of every file and log; what is left of it, and where."""
        return []

    def file_bytes(self) -> int:
        """Bytes on disk, free pages within the files included."""
        return 0
