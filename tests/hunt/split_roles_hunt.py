"""Hunts for a list that is valid and whose view is not, where a host appends blocks one by one: runs of one role.

The API joins neighbours of one role before it reads them; so does the judge here, which shares no code with the reader.
"""

from collections import Counter
from itertools import count
from random import Random

from applier.view import preview
from planner.analysis import analyze
from planner.api import plan_analysis
from planner.reading.messages import read_history
from tests.hunt.planning_checks import content_of, planner
from tests.hunt.tiny_histories import long_history
from tests.viewed import refusals

CHANCE_OF_A_CUT = 0.5
PLANNERS = ("rules", "one word", "one word", "liar")


def rounds(seed):
    """What one list after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one list, at the first broken law.
    """
    yield from (check_one(f"{seed}:{number}") for number in count())


def check_one(seed):
    """One list, by its own seed; of a find the seed is in the error."""
    try:
        return _check(Random(seed), seed)
    except Exception as error:
        raise AssertionError(f"split_roles_hunt.check_one({seed!r}): {error!r}") from error


def _check(chance, seed):
    drawn = long_history(seed, chance.choice((1, 2, 4, 8)))
    messages = [part for message in drawn.messages for part in split(message, chance)]
    assert joined(messages) == joined(drawn.messages)
    if refusals(joined(messages)):  # what the writer itself did not mean to be valid
        return Counter({"left out": 1})
    analysis = analyze(messages)
    check_turns(messages, analysis.history.turns)
    whole = read_history(drawn.messages).turns
    assert len(analysis.history.turns) >= len([turn for turn in whole if turn.kind == "tools"])
    target = int(chance.choice((0.0, 0.1, 0.25, 0.5, 0.75)) * analysis.tokens)
    plan = plan_analysis(
        analysis, "fix the race", planner=planner(chance.choice(PLANNERS), chance, seed), target_tokens=target, now=0.0
    )
    sent = preview(plan).messages
    demands = () if any(finding.code == "user_words_cut" for finding in plan.findings) else drawn.demands
    assert refusals(joined(sent)) == [], f"the API would refuse {refusals(joined(sent))}"
    assert calls(sent) == results(sent), "a call without its result, or a result without its call"
    text = str(sent)
    lost = [words for words in (*demands, *drawn.failures) if words not in text]
    assert not lost, f"{lost[0]!r} is not in the view"
    return Counter({"histories": 1, "messages": len(messages), "messages more": len(messages) - len(drawn.messages)})


def split(message, chance):
    """`message` as several, cut between its blocks."""
    if isinstance(message["content"], str):
        return [message]
    parts = [[message["content"][0]]]
    for block in message["content"][1:]:
        if chance.random() < CHANCE_OF_A_CUT:
            parts.append([])
        parts[-1].append(block)
    return [{**message, "content": part} for part in parts]


def joined(messages):
    """`messages` with each run of one role as one message, as the API reads them."""
    runs = []
    for message in messages:
        if runs and runs[-1]["role"] == message["role"]:
            runs[-1]["content"] += content_of(message)
        else:
            runs.append({"role": message["role"], "content": [*content_of(message)]})
    return runs


def check_turns(messages, turns):
    """Turns hold all messages, each once, and no call without its result unless nothing answered it yet."""
    assert [at for turn in turns for at in range(turn.start, turn.stop)] == list(range(len(messages)))
    for turn in turns:
        own = messages[turn.start : turn.stop]
        answered = results(own) == calls(own) or (turn.live and results(own) < calls(own))
        assert answered, f"{turn.id} is cut between a call and its result"


def calls(messages):
    return {block["id"] for message in messages for block in content_of(message) if block["type"] == "tool_use"}


def results(messages):
    found = (block for message in messages for block in content_of(message) if block["type"] == "tool_result")
    return {block["tool_use_id"] for block in found}
