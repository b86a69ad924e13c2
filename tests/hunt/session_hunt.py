"""Hunts for a broken promise of a session: clocks that jump, restarts, lists that fork or are edited, stores
that break, planners that lie, undo."""

import logging
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from applier.session import PRESETS, Session
from applier.store import open_store
from tests.hunt.planning_checks import check_note, content_of
from tests.hunt.planning_hunt import memory
from tests.hunt.tiny_histories import long_history
from tests.session.agent import Clock, FailingStore, LyingPlanner
from tests.viewed import refusals

JUMPS = (0, 1, 6, 400, 5_000, 10**6, -10, -(10**5))
"""Seconds between two calls."""
TROUBLE = frozenset(("tier_failed", "prepare_failed"))
SESSIONS_A_STORE = 10


def rounds(seed):
    """What one session after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one session, at the first broken promise.
    """
    number = 0
    logging.getLogger("applier").addHandler(logging.NullHandler())  # what a broken store has it say is no find
    while True:
        with tempfile.TemporaryDirectory(dir=memory()) as folder, open_store(Path(folder, "store.db")) as store:
            for _ in range(SESSIONS_A_STORE):
                number += 1
                yield check_session(f"{seed}:{number}", store)


def check_session(seed, store):
    """One session, by its own seed; of a find the seed is in the error."""
    try:
        return _Run(Random(seed), seed, store).counts
    except Exception as error:
        raise AssertionError(f"session_hunt.check_session({seed!r}, store): {error!r}") from error


class _Run:
    """An agent that plays a list against a session which is disturbed between calls."""

    def __init__(self, chance, seed, store):
        self.chance, self.seed, self.store, self.clock = chance, seed, FailingStore(store), Clock()
        self.wishes = {
            "preset": chance.choice(sorted(PRESETS)),
            "planner": chance.choice(("rules", "rules", LyingPlanner(seed))),
            "window_tokens": chance.choice((2_000, 4_000, 16_000)),
        }
        self.counts = Counter(sessions=1)
        self.session = self.opened()
        history = long_history(seed, chance.choice((5, 10, 20))).messages
        self.play(history)
        if chance.random() < 0.3:
            fork = history[: chance.randrange(len(history)) or 1]
            self.counts["forks"] += 1
            self.play([*fork, *long_history(f"{seed}:fork", 6).messages[fork[-1]["role"] == "user" :]])
        self.session.close()

    def opened(self):
        return Session("fix the race", store=self.store, clock=self.clock, session_id=self.seed, **self.wishes)

    def play(self, history):
        for at in range(1, len(history) + 1):
            if at == len(history) or history[at]["role"] == "assistant":
                self.disturb(history[:at])
                self.call(history[:at])

    def disturb(self, messages):
        self.clock.pass_(self.chance.choice(JUMPS))
        roll = self.chance.random()
        if roll < 0.05:
            self.session.close()
            self.session = self.opened()
            self.counts["restarts"] += 1
        elif roll < 0.1:
            self.session.compact(messages)
        elif roll < 0.13:
            self.counts["undone"] += self.session.undo()
        elif roll < 0.16:
            self.edit(self.chance.choice(messages))
        elif roll < 0.19:
            self.store.broken = not self.store.broken
            self.counts["broken stores"] += self.store.broken

    def edit(self, message):
        """What hosts do that make room themselves: other words in an old message, which stays where it is."""
        for block in message["content"] if isinstance(message["content"], list) else ():
            name = {"text": "text", "tool_result": "content"}.get(block["type"])
            if name is not None:
                block[name] = f"edited at call {self.counts['calls']}"
                self.counts["edits"] += 1

    def call(self, messages):
        was = repr(messages)
        sent = self.session.prepare(messages)
        self.counts["calls"] += 1
        assert repr(messages) == was, "the caller's list was changed"
        if refusals(messages) == []:
            assert refusals(sent) == [], f"the API would refuse what is sent: {refusals(sent)}"
        given = {block.get("text") for message in messages for block in content_of(message)}
        for text in (block["text"] for message in sent for block in content_of(message) if block["type"] == "text"):
            if text not in given and text.startswith("<compacted "):
                check_note(text)
        trouble = [event for event in self.session.log() if event.kind in TROUBLE]
        assert not trouble, f"{trouble[0].kind}: {trouble[0].message}"
        missing = [message for message in messages if message not in sent]
        if missing:
            self.counts["shortened"] += 1
            self.check_stored(missing)

    def check_stored(self, missing):
        """What is not sent as it is, is in the store; looked at now and then, for it takes longest."""
        if self.chance.random() < 0.1:
            kept = [m for stored in self.store.histories() for m in self.store.load_history(stored.key).messages]
            assert not [message for message in missing if message not in kept], "a message is neither sent nor stored"
