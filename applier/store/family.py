"""What of a store belongs to a conversation: its earlier states in any form, and what its session may go back to."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from applier.store.backend import Backend
from applier.store.forgetting import names_in, upwards
from applier.store.records import Node, StoredHistory, nodes_of, read, read_histories
from planner.placeholders import SHORT_DIGITS

__all__ = ["Family", "Kin"]

Mentions = Callable[[Sequence[Node]], Iterable[str]]
"""The hex digits of the histories that the messages of some nodes speak of."""


@dataclass(slots=True)
class Family:
    """Histories that go together, each with all that it extends."""

    histories: set[str] = field(default_factory=set)
    """Their names."""
    nodes: set[str] = field(default_factory=set)
    """The digests of theirs."""
    states: set[str] = field(default_factory=set)
    """The keys of the states that have one of them for a value."""

    def add(self, other: Family) -> None:
        """Take in `other`, too."""
        self.histories |= other.histories
        self.nodes |= other.nodes
        self.states |= other.states


@dataclass
class Kin:
    """Who belongs to whom in a store; read within one transaction."""

    backend: Backend
    keys: Mapping[str, str] = field(init=False)
    """Of the nodes, by digest."""
    nodes: Mapping[str, Node] = field(init=False)
    histories: Mapping[str, StoredHistory] = field(init=False)
    """By name, oldest first."""

    def __post_init__(self) -> None:
        """Read nodes, histories, and what the states name."""
        keyed = nodes_of(self.backend.keys("node/"))
        self.keys = {digest: key for digest, (key, _) in keyed.items()}
        self.nodes = {digest: node for digest, (_, node) in keyed.items()}
        self.histories = {one.name: one for one in read_histories(self.backend)}
        self._digests = sorted(
            {(digest, one.name) for one in self.histories.values() for digest in (one.name, one.says)}
        )
        states = read(self.backend, self.backend.keys("state/"))
        self._names = {key: names for key, content in states.items() if (names := names_in(content))}
        self._states: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key, names in self._names.items():
            for name in names:
                self._states[name[:SHORT_DIGITS]].append((name, key))

    def named(self, digits: str) -> Iterator[str]:
        """The names of the histories whose key or digest begins with `digits`."""
        at = bisect_left(self._digests, (digits, ""))
        while at < len(self._digests) and self._digests[at][0].startswith(digits):
            yield self._digests[at][1]
            at += 1

    def family(self, names: Iterable[str], mentions: Mentions | None = None, known: Family | None = None) -> Family:
        """The family of the histories `names`, without what is `known`: what they extend in whatever form it was
        saved, and what stands beside one of them in a state or among the `mentions` of their messages.
        """
        found, known = Family(), known or Family()
        new = set(names) - known.histories
        while new:
            found.histories |= new
            fresh = upwards(self.nodes, [self.histories[name].tip for name in new], known.nodes) - found.nodes
            digests = {self.nodes[digest].says for digest in fresh} | new
            states = {key for digest in digests for key in self._stating(digest)} - found.states
            words = {name for key in states for name in self._names[key]} | digests
            if mentions is not None:
                words.update(mentions([self.nodes[digest] for digest in fresh]))
            found.add(Family(set(), fresh, states))
            new = {name for digits in words for name in self.named(digits)} - found.histories - known.histories
        return found

    def _stating(self, digest: str) -> Iterator[str]:
        near = self._states.get(digest[:SHORT_DIGITS], ())
        return (key for digits, key in near if digest.startswith(digits))
