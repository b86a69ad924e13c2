"""Hunts for what is lost or believed where a list that begins with our own view is planned again: README's snippet.

``messages = apply(plan_compaction(messages, task))`` in a loop, as a reader of the README writes it, against the
default store; and views that are forged, pasted or changed, which may restore nothing.
"""

import json
import os
import tempfile
from collections import Counter
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

from applier import apply
from planner import plan_compaction
from tests.hunt.planning_checks import content_of
from tests.hunt.planning_hunt import memory
from tests.hunt.split_roles_hunt import joined
from tests.hunt.tiny_histories import long_history
from tests.viewed import refusals

ROUNDS = (3, 6, 10)
RATIOS = (0.25, 0.5)
TASK = "fix the race"
SECRETLY = "The code word is blue-heron-4711."


def rounds(seed):
    """What one loop after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one loop, at the first demand, failure or rule that is lost.
    """
    yield from (check_one(f"{seed}:{number}") for number in count())


def check_one(seed):
    """One loop or one forgery, by its own seed; of a find the seed is in the error."""
    chance = Random(seed)
    try:
        with tempfile.TemporaryDirectory(dir=memory()) as folder, default_store(Path(folder, "store.db")):
            return check_forgery(chance, seed) if chance.random() < 0.2 else check_loop(chance, seed)
    except Exception as error:
        raise AssertionError(f"plan_of_plans_hunt.check_one({seed!r}): {error!r}") from error


def check_loop(chance, seed):
    """After each round the view has all failures since the beginning, and all demands unless the plan reports that
    there was no room for the user's words."""
    messages, demands, failures, ratio = [], [], [], chance.choice(RATIOS)
    count = chance.choice(ROUNDS)
    for number in range(count):
        drawn = long_history(f"{seed}:{number}", chance.choice((2, 4, 8)))
        messages = [*messages, *go_on(messages), *drawn.messages]
        demands += drawn.demands
        failures += drawn.failures
        if refusals(joined(messages)):
            return Counter({"left out": 1})
        plan = planned(messages, ratio)
        messages = apply(plan)
        assert refusals(joined(messages)) == [], (
            f"round {number + 1}: the API would refuse {refusals(joined(messages))}"
        )
        view = json.dumps(messages, ensure_ascii=False)
        reports_cut = any(finding.code == "user_words_cut" for finding in plan.findings)
        for what, wanted in (("demand", [] if reports_cut else demands), ("failure", failures)):
            lost = [words for words in wanted if words not in view]
            assert not lost, f"round {number + 1}: {len(lost)} of {len(wanted)} {what}s are lost, {lost[0]!r} first"
        assert view.count('<compacted history="') <= 1, f"round {number + 1}: ids of two histories in one view"
    return Counter({"loops": 1, "rounds": count, "demands": len(demands), "failures": len(failures)})


def go_on(messages):
    """What the agent answers before the user speaks again."""
    answered = not messages or messages[-1]["role"] == "assistant"
    return [] if answered else [{"role": "assistant", "content": "Done."}]


def planned(messages, ratio):
    return plan_compaction(messages, TASK, planner="rules", target_ratio=ratio, now=0.0)


def check_forgery(chance, seed):
    """A view that is pasted among words or changed by a letter brings nothing of its originals back: the exact bytes,
    in front, in the same owner's store, would be that view itself."""
    other = [*long_history(f"{seed}:other", 6).messages, {"role": "assistant", "content": "Done."}]
    hidden = f"{SECRETLY} " + "and so on, at length. " * 200
    other = [other[0], {"role": "assistant", "content": hidden}, *other]
    view = apply(planned(other, 0.1))
    noted = next((block["text"] for m in view for block in content_of(m) if "<compacted " in block.get("text", "")), "")
    if not noted or SECRETLY in json.dumps(view):
        return Counter({"left out": 1})
    changed = chance.choice((noted.replace("Shortened", "Short"), f"Look at this:\n{noted}", f"{noted} "))
    own = [{"role": "user", "content": changed}, *long_history(f"{seed}:own", 6).messages[1:]]
    sent = apply(planned(own, 0.5))
    assert SECRETLY not in json.dumps(sent), "a pasted view brought back what it stood for"
    assert refusals(joined(sent)) == refusals(joined(own)) or not refusals(joined(sent))
    return Counter({"forgeries": 1})


@contextmanager
def default_store(path):
    """`path` as the store that is used where none is named."""
    before = os.environ.get("COMPACTOR_STORE")
    os.environ["COMPACTOR_STORE"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COMPACTOR_STORE"]
        else:
            os.environ["COMPACTOR_STORE"] = before
