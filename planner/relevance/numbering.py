"""Numbers for the names of a history, from 0, so that what is known of each stands in plain arrays.

A table with open addressing: 16 to 24 bytes a name, where a dict with its keys takes 150.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

__all__ = ["Numbering"]

_FIRST_SLOTS = 1_024
_SHIFT = 2
"""The lowest bits of an identity say how its name is written and scatter nothing."""


class Numbering:
    """The number of each identity (64 bits, signed), in the order in which they came."""

    __slots__ = ("_slots", "identities")

    def __init__(self) -> None:
        """No identity yet."""
        self.identities: array[int] = array("q")
        """By number."""
        self._slots = array("I", bytes(4 * _FIRST_SLOTS))
        """By hash the number that stands there, plus 1; 0 where none does."""

    def __len__(self) -> int:
        """How many have a number."""
        return len(self.identities)

    def add(self, identities: Iterable[int]) -> Iterator[int]:
        """The number of each of `identities`; what has none yet gets the next one."""
        known, slots, mask = self.identities, self._slots, len(self._slots) - 1
        for identity in identities:
            slot = identity >> _SHIFT & mask
            while (held := slots[slot]) and known[held - 1] != identity:
                slot = slot + 1 & mask
            if not held:
                known.append(identity)
                held = slots[slot] = len(known)
                if 2 * held > mask:
                    self._grow()
                    slots, mask = self._slots, len(self._slots) - 1
            yield held - 1

    def known(self, identities: Iterable[int]) -> list[int]:
        """The numbers of those of `identities` that have one."""
        slots, mask = self._slots, len(self._slots) - 1
        near = [identity for identity in identities if slots[identity >> _SHIFT & mask]]
        return [number for identity in near if (number := self._number(identity)) >= 0]

    def _number(self, identity: int) -> int:
        """-1 for what has none."""
        known, slots, mask = self.identities, self._slots, len(self._slots) - 1
        slot = identity >> _SHIFT & mask
        while (held := slots[slot]) and known[held - 1] != identity:
            slot = slot + 1 & mask
        return held - 1

    def _grow(self) -> None:
        slots = self._slots = array("I", [0]) * (4 * len(self._slots))
        mask = len(slots) - 1
        for number, identity in enumerate(self.identities, 1):
            slot = identity >> _SHIFT & mask
            while slots[slot]:
                slot = slot + 1 & mask
            slots[slot] = number
