"""Hunts for a look-up inside a client that answers from somebody else's conversation in a shared store.

Sessions have names that begin alike, with subagents, owners and conversations of a proxy below them. Each conversation
holds a word of its own. Restoring by any turn, key or beginning of a key, searching and listing, also by several
threads of one server at once, shows the words of the session and of its subagents alone.
"""

import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

from applier.adapters.visible import Visible
from applier.session import Session
from applier.store import open_store
from planner.errors import CompactorError
from tests.hunt.planning_hunt import memory

NAMES = ("alice", "alice.1", "alice.1.2", "alice.work", "alice-1", "ali", "alice1", "Alice", "bob", "proxy-alice")
OWNER, OTHER = f"{1:032x}", f"{2:032x}"
PROXIED = (f"alice.{OWNER}", f"alice.{OWNER}.3", f"alice.{OWNER}.{OTHER}", f"alice.{OTHER}.{OWNER}.1", f"bob.{OWNER}")
BELOW = re.compile(r"(?:\.[0-9a-f]{32})?(?:\.[0-9]+)*")
"""A proxy's conversation and its subagents, or subagents; a name and its owner are followed by a conversation."""
LOOK_UPS = 12


def rounds(seed):
    """Yield the counts of one store after another, without end.

    Raises AssertionError, with the seed of the one store, at the first answer from a stranger's conversation.
    """
    yield from (check_one(f"{seed}:{number}") for number in count())


def check_one(seed):
    """Fill one store by its own seed, and look up in it as some of its sessions."""
    chance = Random(seed)
    words = {name: f"word-{at}-{chance.getrandbits(40):x}" for at, name in enumerate(drawn_names(chance))}
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        path = Path(folder, "store.db")
        for name, word in words.items():
            with Session(planner="rules", store=path, session_id=name, window_tokens=24_000) as session:
                session.compact(conversation(word, chance))
        visible = Visible(lambda: open_store(path))
        assert visible.store.histories()  # opened before the threads ask
        with ThreadPoolExecutor(4) as threads:
            names = [name for name in chance.sample(sorted(words), 3) for _ in range(LOOK_UPS)]
            asked = [(name, chance.getrandbits(64)) for name in names]
            chance.shuffle(asked)
            answers = [*threads.map(lambda one: (one[0], looked_up(visible, *one, words.values())), asked)]
        visible.close()
    for name, answer in answers:
        own = {one for one in words if one == name or (one.startswith(name) and BELOW.fullmatch(one[len(name) :]))}
        strange = [one for one, word in words.items() if one not in own and word in answer]
        assert not strange, f"owners_hunt.check_one({seed!r}): {name} was answered from {strange}"
    return Counter({"stores": 1, "conversations": len(words), "look-ups": len(answers)})


def drawn_names(chance):
    return chance.sample([*NAMES, *PROXIED], chance.randint(4, 7))


def conversation(word, chance):
    """Return a conversation of some calls, one of which prints `word`."""
    messages, place = [{"role": "user", "content": "Check the modules. Never delete rows."}], chance.randrange(12)
    for number in range(12):
        call = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"command": f"check {number}"}}
        printed = "\n".join(f"row {number}-{row} is fine" for row in range(40)) + f"\n{word}" * (number == place)
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": printed}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


def looked_up(visible, name, seed, words):
    """Return all that one random look-up of the session `name` answers, errors included."""
    chance, shown = Random(seed), ""
    visible.show(name)
    keys = [history.key for history in visible.store.histories()]
    turn, key = f"t{chance.randint(1, 14)}", chance.choice(keys)
    reference = chance.choice((turn, f"{key}:{turn}", f"{key[: chance.randint(5, 33)]}:{turn}", f"h{key[1:9]}:{turn}"))
    asked = {"lines": None, "search": None, "max_characters": None}
    with suppress(CompactorError):
        shown += str(visible.restore(reference, **asked).messages)
    with suppress(CompactorError):
        found = visible.search(chance.choice([*words, "row", "check"]), part=None, tool=None, limit=50)
        shown += "".join(match.excerpt for match in found.matches)
    return shown + str(visible.events()) + str(visible.facts()) + str(visible.conversations())
